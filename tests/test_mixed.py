"""Clusters of tensord and TensorFlow servers: every way to deal master, worker and ps between the two.

The master is the task that the client's session goes to; it holds no part of the graph but what a test places there.
"""
import itertools
import os
import subprocess
import sys

import pytest
from cluster_fixture import ENDS, HERE, PY37, Cluster

JOBS = {"master": 1, "ps": 1, "worker": 1}
DEALS = [d for d in itertools.product(["tensord", "other"], repeat=3) if len(set(d)) == 2]
# A server of one version serves clients of its own: a 1.15.5 server does not know the ops of newer clients.
CLIENTS = {"tf": sys.executable, "tf1": PY37}


@pytest.mark.parametrize("version", ["tf", "tf1"])
@pytest.mark.parametrize("deal", DEALS + [("tensord",) * 3], ids=lambda d: "-".join("%s_%s" % (j, k) for j, k in zip(JOBS, d)))
def test_deal(deal, version):
    check({job: version if kind == "other" else kind for job, kind in zip(JOBS, deal)}, version)


@pytest.mark.parametrize("version", ["tf", "tf1"])
@pytest.mark.parametrize("kinds", [("tf1", "tf"), ("tf", "tf1")], ids=lambda k: "ps_%s-worker_%s" % k)
def test_bridge(kinds, version):
    """Servers of 1.15.5 and of 2.15.1 in one cluster, which no TensorFlow master can drive: tensord leads what is inside a
    loop from the one to the other, and leaves out what the older one does not know."""
    check({"master": "tensord", "ps": kinds[0], "worker": kinds[1]}, version)


def check(kinds, version):
    if CLIENTS[version] is None or "tf1" in kinds.values() and PY37 is None:
        pytest.skip("no TensorFlow 1.15.5: TENSORD_PY37 names its Python")
    with Cluster(JOBS, kinds) as c:
        r = subprocess.run([CLIENTS[version], os.path.join(HERE, "mixed_checks.py"), c.target("master")], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, universal_newlines=True, timeout=ENDS)
        logs = "".join("\n--- %s/%d\n%s" % (t.job, t.index, t.output()[-1500:]) for t in c.tasks.values())
        assert r.returncode == 0 and "all checks pass" in r.stdout, r.stderr[-5000:] + logs
