"""Functions, functional control flow and their gradients over the tasks of a cluster, of tensord and of TensorFlow servers."""
import os
import subprocess
import sys

import pytest
from cluster_fixture import ENDS, HERE, PY37, Cluster

CLIENTS = {"tf": sys.executable, "tf1": PY37}


@pytest.mark.parametrize("client,master,others", [("tf", "tensord", "tensord"), ("tf1", "tensord", "tensord"), ("tf", "tensord", "tf"),
                                                  ("tf1", "tensord", "tf1"), ("tf", "tf", "tensord")])
def test_functions(client, master, others):
    if CLIENTS[client] is None:
        pytest.skip("no TensorFlow 1.15.5: TENSORD_PY37 names its Python")
    with Cluster({"master": 1, "ps": 1, "worker": 1}, {"master": master, "ps": others, "worker": others}) as c:
        r = subprocess.run([CLIENTS[client], os.path.join(HERE, "function_checks.py"), c.target("master")],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=ENDS)
        logs = "".join("\n--- %s/%d\n%s" % (t.job, t.index, t.output()[-1500:]) for t in c.tasks.values())
        assert r.returncode == 0 and "all checks pass" in r.stdout, r.stderr[-5000:] + logs
