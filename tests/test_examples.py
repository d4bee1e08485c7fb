"""Every example with every TensorFlow client that is installed."""
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from cluster_fixture import ENDS, PY312, PY37, ROOT, TENSORCTL

CLIENTS = {"tf2.15": sys.executable, "tf1.15": PY37, "newest": PY312}


@pytest.fixture(params=sorted(CLIENTS))
def python(request):
    if CLIENTS[request.param] is None:
        pytest.skip("no client %s: TENSORD_PY37 (TensorFlow 1.15.5) or TENSORD_PY312 (the newest) names its Python" % request.param)
    return CLIENTS[request.param]


def launch(python, tasks, example, *args):
    command = [TENSORCTL, "launch"] + tasks + ["--", python, os.path.join(ROOT, "examples", example)] + list(args)
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=ENDS)
    assert r.returncode == 0, r.stderr[-4000:]
    return r.stdout


def test_hello(python):
    out = launch(python, ["--ps=1", "--worker=2"], "hello.py")
    assert "Hello, distributed TensorFlow!" in out and out.count("/device:CPU:0") == 3


def test_placement(python):
    out = launch(python, ["--ps=2", "--worker=2"], "placement.py")
    assert "sum over workers: 9\n" in out and "after the update: 10\n" in out


def test_in_graph_async(python):
    assert "weight 3.000, bias 2.000" in launch(python, ["--ps=1", "--worker=2"], "in_graph_async.py")


def test_in_graph_sync(python):
    assert "weight 3.000, bias 2.000" in launch(python, ["--ps=1", "--worker=2"], "in_graph_sync.py")


def test_between_graph(python):
    out = launch(python, ["--ps=2", "--worker=2"], "between_graph.py")
    steps = [int(n) for n in re.findall(r"worker \d: loss 0\.0\d+ at global step (\d+)", out)]
    # The global step counts without a lock, as TensorFlow's optimisers write it: workers that meet may lose counts.
    assert len(steps) == 2 and 1 <= max(steps) <= 200, out


def test_sync_replicas(python):
    out = launch(python, ["--ps=1", "--worker=2"], "sync_replicas.py")
    workers = re.findall(r"worker (\d): loss \S+ at global step (\d+), weight (\S+), bias (\S+)", out)
    assert sorted(w[0] for w in workers) == ["0", "1"], out
    for _, step, weight, bias in workers:
        assert int(step) >= 100 and abs(float(weight) - 3) < 0.01 and abs(float(bias) - 2) < 0.01, out


@pytest.mark.parametrize("model,least", [("softmax", 0.93), ("mlp", 0.95), ("cnn", 0.95)])
def test_digits(python, model, least):
    out = launch(python, ["--ps=1", "--worker=1"], "digits.py", "--model=" + model, "--steps=250")
    assert float(out.split("held-out accuracy: ")[1]) >= least


def test_timeline(python, tmp_path):
    trace = str(tmp_path / "timeline.json")
    out = launch(python, ["--ps=1", "--worker=2"], "timeline.py", "--out=" + trace)
    assert len(re.findall(r"/job:\w+/replica:0/task:\d/device:CPU:0: \d+ nodes, \d+ us; [1-9]\d* tensors received", out)) == 3, out
    events = json.load(open(trace))["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    ran = {(processes[e["pid"]].split("/replica")[0], e["name"]) for e in events if e["ph"] == "X"}
    assert {("/job:worker", "MatMul"), ("/job:worker", "RecvTensor"), ("/job:ps", "RecvTensor"), ("/job:ps", "AddN")} <= ran, ran
    picture = str(tmp_path / "timeline.svg")
    subprocess.run([python, os.path.join(ROOT, "scripts", "draw_timeline.py"), trace, picture], check=True, timeout=ENDS)
    svg = xml.etree.ElementTree.parse(picture).getroot()
    assert len(list(svg)) > 50


def test_tf_workers(python):
    out = launch(python, ["--ps=2", "--external_worker=2"], "tf_workers.py")
    assert len(re.findall(r"worker \d: loss 0\.0", out)) == 2, out


def test_monitored(python, tmp_path):
    logdir = str(tmp_path)
    for end in (40, 60):  # the second run goes on from the first one's checkpoint
        out = launch(python, ["--ps=1", "--worker=1"], "monitored.py", "--model=mlp", "--steps=%d" % end, "--logdir=" + logdir)
        assert "last checkpoint: %s/model.ckpt-%d\n" % (logdir, end) in out, out
    assert [f for f in os.listdir(logdir) if f.startswith("events.out.tfevents")]
