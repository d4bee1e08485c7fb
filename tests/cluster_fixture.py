"""Clusters of server processes on 127.0.0.1, tensord's and TensorFlow's, and where the interpreters are."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.environ.get("TENSORD_BUILD", os.path.join(ROOT, "build"))
TENSORD = os.path.join(BUILD, "tensord")
TENSORCTL = os.path.join(BUILD, "tensorctl")


def interpreter(variable, folder):
    """The Python of another TensorFlow version, or None."""
    path = os.environ.get(variable) or os.path.join(ROOT, "build", folder, "bin", "python")
    return path if os.path.exists(path) else None


PY37 = interpreter("TENSORD_PY37", "venv37")     # TensorFlow 1.15.5
PY312 = interpreter("TENSORD_PY312", "venv312")  # the newest

# The kinds of servers that a cluster can have, by name.
TF_PYTHON = {"tf": sys.executable, "tf1": PY37}


_held = []  # sockets that hold the ports given out


def free_ports(n):
    """n TCP ports that stay this process's until it ends, also while no task listens on them.

    A socket that is bound but does not listen holds each: a server may bind and listen beside it, but the system gives the
    port to nobody who asks for any, outgoing connections among them (which, to a task that is down, could even be answered
    by themselves).
    """
    socks = [socket.socket() for _ in range(n)]
    for s in socks:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
    _held.extend(socks)
    return [s.getsockname()[1] for s in socks]


ENDS = 600  # seconds after which a program that a test runs counts as hung, however loaded the machine


def wait_until(condition, seconds=300.0, what="condition"):
    """Polls until it holds. `seconds` is for what hangs; how long it takes is the machine's affair. Time in which the whole
    machine stood still does not count."""
    left, then = seconds, time.monotonic()
    while not condition():
        assert left > 0, "%s: not within %g s" % (what, seconds)
        time.sleep(0.02)
        now = time.monotonic()
        left, then = left - min(now - then, 5), now


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Task:
    """One server process."""

    def __init__(self, cluster, job, index, kind, flags=()):
        self.cluster, self.job, self.index, self.kind, self.flags = cluster, job, index, kind, list(flags)
        self.port = int(cluster.spec[job][index].rsplit(":", 1)[1])
        self.target = "grpc://127.0.0.1:%d" % self.port
        self.log = tempfile.TemporaryFile()
        self.leader = ""  # of collectives, for TensorFlow's own server
        self.process = None

    def command(self):
        if self.kind == "tensord":
            return [TENSORD, "--cluster_spec=" + self.cluster.flag(), "--job_name=" + self.job,
                    "--task_index=%d" % self.index] + self.flags
        return [TF_PYTHON[self.kind], os.path.join(HERE, "tf_server.py"), json.dumps(self.cluster.spec), self.job, str(self.index),
                self.leader]

    def start(self):
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def wait_ready(self, seconds=300):
        def ready():
            assert self.process.poll() is None, "%s/%d ended: %s" % (self.job, self.index, self.output()[-2000:])
            return accepts(self.port)
        wait_until(ready, seconds, "%s/%d accepts" % (self.job, self.index))

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def kill(self, signal_number=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal_number)
            self.process.wait(ENDS)

    def suspend(self):
        """Returns once every thread stands still: the signal reaches them one after the other, and until then they serve."""
        def state(thread):
            try:
                with open("/proc/%d/task/%s/stat" % (self.process.pid, thread)) as f:
                    return f.read().rpartition(") ")[2][0]
            except OSError:
                return "ended"

        def stands_still():
            return {state(t) for t in os.listdir("/proc/%d/task" % self.process.pid)} == {"T"}

        self.process.send_signal(signal.SIGSTOP)
        wait_until(stands_still, what="%s/%d to stand still" % (self.job, self.index))

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def restart(self):
        self.kill()
        self.start()
        self.wait_ready()

    def steps(self):
        """How many steps run here: with this tensord as their master, and as a worker."""
        out = subprocess.run([TENSORCTL, "status", self.target, "--json", "--timeout=300"], stdout=subprocess.PIPE, timeout=ENDS,
                             check=True).stdout
        own = json.loads(out)["tasks"][0]
        return own["master_steps"], own["steps"]

    def await_no_steps(self):
        """Until nothing is left of steps whose clients have their answers."""
        wait_until(lambda: self.steps() == (0, 0), what="no steps run on %s/%d" % (self.job, self.index))

    def await_steps(self, n=1):
        """Until n steps run here as worker, and are not only on their way."""
        wait_until(lambda: self.steps()[1] >= n, what="%d steps run on %s/%d" % (n, self.job, self.index))

    def alive(self):
        return self.process is not None and self.process.poll() is None


class Cluster:
    """A server process per task. `jobs`: {job: number of tasks}; `kinds`: {job: "tensord" | "tf" | "tf1"}."""

    def __init__(self, jobs, kinds=None, flags=(), start=True):
        ports = iter(free_ports(sum(jobs.values())))
        self.spec = {job: ["127.0.0.1:%d" % next(ports) for _ in range(n)] for job, n in jobs.items()}
        self.tasks = {(job, i): Task(self, job, i, (kinds or {}).get(job, "tensord"), flags)
                      for job, n in jobs.items() for i in range(n)}
        if start:
            try:
                for t in self.tasks.values():
                    t.start()
                for t in self.tasks.values():
                    t.wait_ready()
            except BaseException:
                self.stop()
                raise

    def flag(self):
        return ",".join("%s|%s" % (job, ";".join(addresses)) for job, addresses in self.spec.items())

    def __getitem__(self, key):
        return self.tasks[key]

    def target(self, job, index=0):
        return self.tasks[job, index].target

    def stop(self):
        for t in self.tasks.values():
            if t.process and t.process.poll() is None:
                t.process.send_signal(signal.SIGKILL)
        for t in self.tasks.values():
            if t.process:
                t.process.wait()
            t.log.close()

    def check_alive(self):
        """Every tensord must have survived whatever the test did to it."""
        for t in self.tasks.values():
            if t.kind == "tensord" and t.process and t.process.poll() is not None and t.process.returncode not in (0, -signal.SIGKILL):
                raise AssertionError("tensord %s/%d ended with %s:\n%s" % (t.job, t.index, t.process.returncode, t.output()[-4000:]))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        try:
            self.check_alive()
        finally:
            self.stop()
