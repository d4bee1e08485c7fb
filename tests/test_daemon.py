"""tensord's flags, errors, signals and ports."""
import json
import os
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest
from cluster_fixture import ENDS, TENSORD, accepts, free_ports, wait_until


def run(*args, env=None, timeout=ENDS):
    environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    environment.update(env or {})
    return subprocess.run([TENSORD] + list(args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment, timeout=timeout, universal_newlines=True)


class Daemon:
    """A tensord that has printed its line."""

    def __init__(self, *args, env=None):
        environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
        environment.update(env or {})
        self.process = subprocess.Popen([TENSORD] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment, universal_newlines=True)
        self.line = self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def test_help_and_version():
    r = run("--help")
    assert r.returncode == 0 and "--cluster_spec" in r.stdout and not r.stderr
    r = run("--version")
    assert r.returncode == 0 and r.stdout.startswith("tensord ")


@pytest.mark.parametrize("args", [
    [], ["--cluster_spec="], ["--cluster_spec=ps"], ["--cluster_spec=ps|"], ["--cluster_spec=ps|host"],
    ["--cluster_spec=ps|host:99999"], ["--cluster_spec=ps|host:port"], ["--cluster_spec=ps|h:1;h:2", "--job_name=ps", "--task_index=2"],
    ["--cluster_spec=ps|h:1", "--job_name=worker"], ["--cluster_spec=ps|h:1", "--task_index=-1"],
    ["--cluster_spec=ps|h:1,ps|h:2"], ["--cluster_spec=ps|0=h:1;0=h:2"], ["--cluster_spec=ps|h:1,worker|h:2"],
    ["--cluster_file=/nonexistent"], ["--cluster_spec=ps|127.0.0.1:0", "--config=/nonexistent"],
    ["--cluster_spec=ps|127.0.0.1:0", "--log_level=loud"], ["--cluster_spec=ps|127.0.0.1:0", "--threads=x"],
    ["--cluster_spec=ps|127.0.0.1:0", "--nonsense=1"], ["--cluster_spec=ps|127.0.0.1:0", "word"],
])
def test_bad_arguments(args):
    r = run(*args)
    assert r.returncode == 2, r
    assert "invalid argument" in r.stderr.lower() and r.stderr.count("\n") == 1, r.stderr
    assert not r.stdout


def test_bad_config_file(tmp_path):
    path = tmp_path / "config"
    path.write_bytes(b"\xff" * 20)
    r = run("--cluster_spec=ps|127.0.0.1:0", "--config=%s" % path)
    assert r.returncode == 2 and r.stderr.count("\n") == 1, r


def test_port_in_use():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(1)
        r = run("--cluster_spec=ps|127.0.0.1:%d" % s.getsockname()[1])
    assert r.returncode == 2
    assert "invalid argument" not in r.stderr.lower() and r.stderr.count("\n") == 1 and "in use" in r.stderr, r.stderr


@pytest.mark.parametrize("spelling", ["equals", "space"])
def test_started_line(spelling):
    port, = free_ports(1)
    flags = [("--cluster_spec", "worker|3=localhost:%d" % port), ("--job_name", "worker"), ("--task_index", "3")]
    args = ["%s=%s" % f for f in flags] if spelling == "equals" else [w for f in flags for w in f]
    with Daemon(*args) as d:
        assert d.line.startswith("Started server with target: grpc://localhost:%d" % port), d.line
        assert "/job:worker/replica:0/task:3" in d.line
        assert accepts(port)


def test_port_zero():
    with Daemon("--cluster_spec=a|127.0.0.1:0") as d:
        port = int(d.line.split("grpc://localhost:")[1].split()[0])
        assert accepts(port)


def test_tf_config(tmp_path):
    port, = free_ports(1)
    config = json.dumps({"cluster": {"ps": ["127.0.0.1:%d" % port], "worker": ["127.0.0.1:1"]}, "task": {"type": "ps", "index": 0}})
    with Daemon(env={"TF_CONFIG": config}) as d:
        assert "/job:ps/replica:0/task:0" in d.line
    path = tmp_path / "cluster.json"
    path.write_text(config)
    with Daemon("--cluster_file=%s" % path) as d:
        assert "/job:ps/replica:0/task:0" in d.line
    r = run(env={"TF_CONFIG": "{"})
    assert r.returncode == 2 and "TF_CONFIG" in r.stderr


def test_bind():
    port, = free_ports(1)
    with Daemon("--cluster_spec=a|somewhere.invalid:%d" % port, "--bind=127.0.0.1"):
        assert accepts(port)


def test_unix_socket(tmp_path):
    path = str(tmp_path / "socket")
    with Daemon("--cluster_spec=a|127.0.0.1:0", "--bind=unix:" + path):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it(number):
    with Daemon("--cluster_spec=a|127.0.0.1:0") as d:
        d.process.send_signal(number)
        assert d.process.wait(ENDS) == 0


@pytest.mark.parametrize("is_second", [False, True], ids=["one signal", "two signals"])
def test_signal_during_a_step(tf, make_cluster, is_second):
    """A running step has the grace time; a second signal ends the process at once."""
    c = make_cluster({"local": 1}, flags=["--grace_ms=%d" % (1000000 if is_second else 500)])
    loop = tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 7, [tf.constant(0)])
    # Closing a session of a server that is gone would not end without a limit.
    s = tf.Session(c.target("local"), config=tf.ConfigProto(operation_timeout_in_ms=200000))
    s.run(tf.constant(1))
    ended = []

    def step():
        try:
            s.run(loop)
        except tf.errors.OpError as e:
            ended.append(e)
    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    c["local", 0].await_steps()
    process = c["local", 0].process
    process.send_signal(signal.SIGTERM)
    if is_second:
        wait_until(lambda: "stopping" in c["local", 0].output(), what="the first signal is noticed")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENDS) == 128 + signal.SIGTERM  # less than the grace time
    else:
        assert process.wait(ENDS) == 0
    c["local", 0].restart()  # as long as it is gone the client asks again and again
    thread.join(ENDS)
    assert not thread.is_alive()
    assert isinstance(ended[0], (tf.errors.CancelledError, tf.errors.UnavailableError, tf.errors.AbortedError,
                                 tf.errors.DeadlineExceededError)), ended
    with pytest.raises(tf.errors.AbortedError):
        s.close()


def test_several_cpu_devices(tf, make_cluster, tmp_path):
    path = tmp_path / "config"
    path.write_bytes(tf.ConfigProto(device_count={"CPU": 3}).SerializeToString())
    c = make_cluster({"local": 1}, flags=["--config=%s" % path])
    with tf.device("/cpu:2"):
        a = tf.constant(2.0)
    with tf.device("/cpu:1"):
        b = a * 3.0
    with tf.Session(c.target("local")) as s:
        assert len(s.list_devices()) == 3
        assert s.run(b) == 6.0


def test_idle_process_sleeps(make_cluster):
    c = make_cluster({"local": 1})
    pid = c["local", 0].process.pid

    def ticks():
        with open("/proc/%d/stat" % pid) as f:
            v = f.read().rsplit(")", 1)[1].split()
        return int(v[11]) + int(v[12])

    def sleeps():  # on a slow machine it may still be busy with its start
        before = ticks()
        time.sleep(2)
        return ticks() - before <= 2
    wait_until(sleeps, what="the process sleeps")
    with open("/proc/%d/status" % pid) as f:
        rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    assert rss <= 8192


def test_out_of_descriptors():
    """A server that runs out of file descriptors goes on once there are some again."""
    port, = free_ports(1)
    d = subprocess.Popen([TENSORD, "--cluster_spec=a|127.0.0.1:%d" % port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
    try:
        wait_until(lambda: accepts(port))
        socks = []
        for _ in range(80):
            s = socket.socket()
            s.settimeout(2)
            try:
                s.connect(("127.0.0.1", port))
            except OSError:
                pass
            socks.append(s)
        for s in socks:
            s.close()
        wait_until(lambda: accepts(port))
        assert d.poll() is None
    finally:
        d.kill()
        d.wait()


def test_garbage_on_the_port(make_cluster):
    c = make_cluster({"local": 1})
    port = c["local", 0].port
    for garbage in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(4096), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(512), b""):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.settimeout(120)
            try:
                s.sendall(garbage)
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
            except OSError:
                pass
    assert c["local", 0].alive() and accepts(port)
