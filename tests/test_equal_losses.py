"""Training on tensord gives the losses that it gives on TensorFlow: same seeds, within 1e-4 relative over 20 steps."""
import re
import subprocess
import sys

import numpy as np
import pytest
from cluster_fixture import ENDS, PY37, ROOT

import digits

STEPS = 20
OTHER = {"tf": sys.executable, "tf1": PY37}

CLIENT = r"""
import sys
sys.path.insert(0, %r)
import cluster, digits
tf = cluster.tf1()
model, target = sys.argv[1], sys.argv[2]
tf.set_random_seed(1)
images, labels = digits.load()
graph = digits.Graph(tf, model, 1, 0)
with tf.Session(target) as s:
    s.run(graph.initialize)
    for i, (x, y) in zip(range(%d), digits.batches(images, labels, 64, 0)):
        print("loss %%.9g" %% s.run([graph.loss, graph.step], {graph.x: x, graph.y: y})[0])
""" % (ROOT + "/examples", STEPS)


def losses(python, *args):
    r = subprocess.run([python] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=ENDS)
    assert r.returncode == 0, r.stderr[-3000:]
    found = [float(x) for x in re.findall(r"loss ([-\d.e+]+)", r.stdout)]
    assert found, r.stdout
    return np.array(found)


def check(make_cluster, client, jobs):
    """`client` runs on both clusters with a TensorFlow version and returns its losses."""
    ours = client(make_cluster(jobs))
    theirs = client(make_cluster(jobs, kinds={j: client.version for j in jobs}))
    assert len(ours) == len(theirs)
    assert np.all(np.abs(ours - theirs) <= 1e-4 * np.abs(theirs)), list(zip(ours, theirs))


@pytest.fixture(params=sorted(OTHER))
def version(request):
    if OTHER[request.param] is None:
        pytest.skip("no TensorFlow 1.15.5: TENSORD_PY37 names its Python")
    return request.param


@pytest.mark.parametrize("model", sorted(digits.MODELS))
def test_digits(make_cluster, version, model):
    def client(c):
        return losses(OTHER[version], "-c", CLIENT, model, c.target("worker"))
    client.version = version
    check(make_cluster, client, {"ps": 1, "worker": 1})


def test_synchronous_example(make_cluster, version):
    def client(c):
        targets = ",".join(c.target("worker", i) for i in range(2))
        return losses(OTHER[version], ROOT + "/examples/in_graph_sync.py", "--targets=" + targets, "--cluster=" + c.flag(),
                      "--steps=%d" % STEPS)
    client.version = version
    check(make_cluster, client, {"ps": 1, "worker": 2})
