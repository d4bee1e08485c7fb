"""Training whose servers are killed: a chief, a parameter server and workers of tensord, a client for each master."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from beats import Beats
from cluster_fixture import TENSORCTL, Cluster, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
JOBS = {"ps": 1, "chief": 1, "worker": 2}
CLIENTS = [("chief", 0), ("worker", 0), ("worker", 1)]
PATIENCE = 600  # seconds after which something counts as hung; nothing is expected to come near
STEPS_AFTER = 200  # global steps that are trained once the last kill is over


class Client:
    """A training client's process."""

    def __init__(self, spec, job, task, folder, python):
        self.name = "%s/%d" % (job, task)
        self.command = [python, os.path.join(HERE, "training.py"), json.dumps(spec), job, str(task), folder]
        self.beats = Beats(os.path.join(folder, "beats.%s.%d" % (job, task)))
        self.log = tempfile.TemporaryFile()
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def check_alive(self):
        code = self.process.poll()
        assert code is None, "the client %s ended with %d:\n%s" % (self.name, code, self.output()[-4000:])

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Soak:
    """A training in progress; an error names what did not go on. Deterministic but for the moments of the kills."""

    def __init__(self, python=sys.executable, seed=None):
        self.random = random.Random(seed)
        self.folder = tempfile.TemporaryDirectory()
        self.cluster = Cluster(JOBS)
        self.clients = []
        self.recoveries = {}  # kind -> seconds from each kill until every client went on
        try:
            self.clients = [Client(self.cluster.spec, job, task, self.folder.name, python) for job, task in CLIENTS]
            self.wait_all_go_on("the start")
        except BaseException:
            self.stop()
            raise

    def wait_all_go_on(self, after):
        """Every client has made two steps since now: one of them began since now."""
        then = [c.beats.read()[0] for c in self.clients]

        def going():
            for c in self.clients:
                c.check_alive()
            return all(c.beats.read()[0] >= n + 2 for c, n in zip(self.clients, then))
        try:
            wait_until(going, PATIENCE, "all clients go on after " + after)
        except AssertionError:
            print("".join("\n--- client %s, beats %s\n%s" % (c.name, c.beats.read(), c.output()[-3000:]) for c in self.clients))
            print("".join("\n--- %s/%d\n%s" % (t.job, t.index, t.output()[-3000:]) for t in self.cluster.tasks.values()))
            raise

    def kill(self, kind):
        """Kills a random task of the job (or a random client), brings it back after a random time, waits for all."""
        time.sleep(self.random.uniform(0, 1))
        down = self.random.uniform(0, 1)
        began = time.time()
        if kind == "client":
            c = self.random.choice(self.clients)
            c.kill()
            time.sleep(down)
            c.start()
            name = "client " + c.name
        else:
            t = self.cluster[kind, self.random.randrange(JOBS[kind])]
            t.kill()
            time.sleep(down)
            t.start()
            t.wait_ready()
            name = "%s/%d" % (t.job, t.index)
        self.wait_all_go_on("the kill of " + name)
        self.recoveries.setdefault(kind, []).append(time.time() - began)

    def finish(self):
        """Asks all clients to end; returns the model's accuracy on images that were not trained on."""
        target = max(c.beats.read()[1] for c in self.clients) + STEPS_AFTER
        path = os.path.join(self.folder.name, "finish")
        with open(path + ".new", "w") as f:
            f.write(str(target))
        os.rename(path + ".new", path)
        for c in self.clients:
            try:
                code = c.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise AssertionError("the client %s has not ended, beats %s:\n%s" % (c.name, c.beats.read(), c.output()[-4000:]))
            assert code == 0, "the client %s ended with %d:\n%s" % (c.name, code, c.output()[-4000:])
        assert max(c.beats.read()[1] for c in self.clients) >= target
        return self.accuracy()

    def accuracy(self):
        """Of the last checkpoint, restored and evaluated on the cluster."""
        import digits
        import tensorflow
        tf = tensorflow.compat.v1
        images, labels = digits.load()
        held = slice(-digits.HELD_OUT, None)
        with tf.Graph().as_default():
            graph = digits.Graph(tf, "softmax", 1, 0)
            names = ["out/w", "out/b", "global_step"]
            variables = [v for v in tf.global_variables() if v.op.name in names]
            with tf.Session(self.cluster.target("worker")) as s:
                tf.train.Saver(variables).restore(s, tf.train.latest_checkpoint(os.path.join(self.folder.name, "model")))
                return float(s.run(graph.accuracy, {graph.x: images[held], graph.y: labels[held]}))

    def left_behind(self):
        """Sessions and steps that tasks still hold now that every client has ended, as {task: (master sessions, worker sessions, steps)}."""
        out = subprocess.run([TENSORCTL, "status", self.cluster.target("ps"), "--json", "--timeout=300"], stdout=subprocess.PIPE,
                             timeout=600, check=True)
        return {t["task"]: (t["master_sessions"], t["worker_sessions"], t["steps"]) for t in json.loads(out.stdout)["tasks"]}

    def stop(self):
        for c in self.clients:
            if c.process.poll() is None:
                c.kill()
            c.log.close()
        try:
            self.cluster.check_alive()
        finally:
            self.cluster.stop()
            self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()
