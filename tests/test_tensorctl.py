"""tensorctl status, launch and bench."""
import json
import os
import signal
import subprocess
import sys

import pytest
from cluster_fixture import ENDS, TENSORCTL, free_ports, wait_until


def ctl(*args, timeout=ENDS, **kwargs):
    return subprocess.run([TENSORCTL] + list(args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=timeout, **kwargs)


def test_help():
    for args in (["--help"], ["status", "--help"], ["launch", "--help"], ["bench", "--help"]):
        r = ctl(*args)
        assert r.returncode == 0 and r.stdout.startswith("Usage: tensorctl") and not r.stderr
    assert ctl("--version").stdout.startswith("tensorctl ")
    for args in ([], ["nonsense"], ["status"], ["launch", "--", "true"], ["launch", "--ps", "1"], ["launch", "--ps=x", "--", "true"],
                 ["status", "--timeout=0", "127.0.0.1:1"], ["bench"], ["bench", "--nodes=0", "127.0.0.1:1"],
                 ["bench", "--graph=ring", "127.0.0.1:1"]):
        r = ctl(*args)
        assert r.returncode == 2 and r.stderr, args


def test_status(tf, make_cluster):
    c = make_cluster({"ps": 1, "worker": 2})
    with tf.Session(c.target("worker", 1)) as s:
        s.run(tf.constant(1))
        found = json.loads(ctl("status", c.target("worker", 1), "--json", "--timeout=300").stdout)
    assert [t["task"] for t in found["tasks"]][0] == "/job:worker/replica:0/task:1"
    assert len(found["tasks"]) == 3
    for t in found["tasks"]:
        assert t["up"] and t["version"] and t["uptime_s"] > 0 and t["memory"]["resident_bytes"] > 0
        assert t["devices"][0]["name"].endswith("/device:CPU:0")
    assert found["tasks"][0]["master_sessions"] == 1
    assert found["cluster"]["ps"]["0"] == c.spec["ps"][0]
    c["ps", 0].kill()
    r = ctl("status", c.target("worker", 1))
    assert r.returncode == 0 and "down" in r.stdout and r.stdout.count("\n") == 4, r.stdout


def test_status_of_nobody():
    port, = free_ports(1)
    r = ctl("status", "grpc://127.0.0.1:%d" % port)
    assert r.returncode == 1 and str(port) in r.stderr


def test_status_of_a_tensorflow_server(make_cluster):
    c = make_cluster({"worker": 1}, kinds={"worker": "tf"})
    r = ctl("status", c.target("worker"))
    assert r.returncode == 0 and "/job:worker/replica:0/task:0" in r.stdout and "CPU:0" in r.stdout


@pytest.mark.parametrize("kind", ["tensord", "tf"])
def test_bench(make_cluster, kind):
    c = make_cluster({"ps": 1, "worker": 1}, kinds={"ps": kind, "worker": kind})
    for graph in ("fan", "chain"):
        r = ctl("bench", c.target("worker"), "--clients=3", "--nodes=5", "--seconds=0.3", "--graph=" + graph, "--json")
        assert r.returncode == 0, r.stderr
        found = json.loads(r.stdout)
        assert found["steps"] >= 3 and found["tasks"] == 2 and 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
    r = ctl("bench", c.target("worker"), "--tasks=3")
    assert r.returncode == 1 and "--tasks=3: the cluster has 2" in r.stderr


def test_bench_of_nobody():
    port, = free_ports(1)
    r = ctl("bench", "grpc://127.0.0.1:%d" % port)
    assert r.returncode == 1 and str(port) in r.stderr


SHOW = "import os, json; print(json.dumps({k: os.environ[k] for k in ('TF_CONFIG', 'TENSORD_TARGETS', 'TENSORD_CLUSTER')}))"


def test_launch_environment():
    r = ctl("launch", "--ps", "2", "--worker=2", "--chief", "--", sys.executable, "-c", SHOW)
    assert r.returncode == 0, r.stderr
    env = json.loads(r.stdout)
    config = json.loads(env["TF_CONFIG"])
    assert {j: len(a) for j, a in config["cluster"].items()} == {"chief": 1, "ps": 2, "worker": 2}
    targets = env["TENSORD_TARGETS"].split(",")
    assert targets == ["grpc://" + a for a in config["cluster"]["chief"] + config["cluster"]["worker"]]
    assert config["session_master"] == targets[0]
    assert "ps|" + ";".join(config["cluster"]["ps"]) in env["TENSORD_CLUSTER"]
    for task in ("chief/0", "ps/0", "ps/1", "worker/0", "worker/1"):
        assert "[%s] Started server" % task in r.stderr


def test_launch_external_workers():
    r = ctl("launch", "--ps=1", "--external_worker=2", "--", sys.executable, "-c", SHOW)
    env = json.loads(r.stdout)
    assert len(json.loads(env["TF_CONFIG"])["cluster"]["worker"]) == 2
    assert "worker/" not in r.stderr
    assert env["TENSORD_TARGETS"].count("grpc://") == 1


def test_launch_passes_on_how_the_command_ends():
    assert ctl("launch", "--worker=1", "--", "sh", "-c", "exit 7").returncode == 7
    assert ctl("launch", "--worker=1", "--", "/nonexistent/command").returncode == 127
    assert ctl("launch", "--worker=1", "--", "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL


def test_launch_without_a_daemon():
    r = ctl("launch", "--worker=1", "--server=/nonexistent/tensord", "--", "true")
    assert r.returncode == 1 and "could not be started" in r.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_launch_leaves_nothing_behind(number, tmp_path):
    path = tmp_path / "cluster"
    p = subprocess.Popen([TENSORCTL, "launch", "--quiet", "--ps=1", "--worker=2", "--", "sh", "-c",
                          "echo $TENSORD_CLUSTER > %s.new; mv %s.new %s; exec sleep 600" % (path, path, path)],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until(path.exists, what="the command runs")
    spec = path.read_text().strip()
    pids = tensord_pids(spec)
    assert len(pids) == 3
    p.send_signal(number)
    assert p.wait(ENDS) == -number
    wait_until(lambda: not tensord_pids(spec), what="all tasks have ended")
    if number == signal.SIGKILL:
        os.killpg(p.pid, signal.SIGKILL)


def tensord_pids(spec):
    """The processes that serve this cluster."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
            with open("/proc/%s/stat" % pid) as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if "--cluster_spec=" + spec in words and state != "Z":
            found.append(int(pid))
    return found


def test_launch_reports_a_task_that_dies():
    script = ("import os, signal, time\n"
              "import sys; sys.path.insert(0, %r)\n"
              "from test_tensorctl import tensord_pids\n"
              "pid = min(tensord_pids(os.environ['TENSORD_CLUSTER']))\n"
              "os.kill(pid, signal.SIGKILL)\n"
              "while os.path.exists('/proc/%%d' %% pid): time.sleep(0.02)  # tensorctl has heard of it\n"
              "sys.exit(5)\n" % os.path.dirname(os.path.abspath(__file__)))
    r = ctl("launch", "--ps=1", "--", sys.executable, "-c", script)
    assert r.returncode == 5 and "ps/0 was ended by signal 9" in r.stderr, r.stderr
