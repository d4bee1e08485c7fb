"""RunMetadata of steps over several tasks, TensorFlow's servers among them."""
import os
import subprocess
import sys

import pytest
from cluster_fixture import ENDS, HERE, PY37

CLIENTS = {"tf": sys.executable, "tf1": PY37}
DEALS = [("tensord", "tensord", "tf"), ("tensord", "tf", "tf"), ("tf", "tensord", "tf"), ("tensord", "tf1", "tf1"),
         ("tf1", "tensord", "tf1")]


@pytest.mark.parametrize("worker,ps,client", DEALS, ids=lambda x: x)
def test_trace(make_cluster, worker, ps, client):
    if CLIENTS[client] is None:
        pytest.skip("no TensorFlow 1.15.5: TENSORD_PY37 names its Python")
    c = make_cluster({"ps": 1, "worker": 1}, {"ps": ps, "worker": worker})
    r = subprocess.run([CLIENTS[client], os.path.join(HERE, "trace_checks.py"), c.target("worker"), worker], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, universal_newlines=True, timeout=ENDS)
    logs = "".join("\n--- %s/%d\n%s" % (t.job, t.index, t.output()[-1500:]) for t in c.tasks.values())
    assert r.returncode == 0 and "all checks pass" in r.stdout, r.stderr[-3000:] + logs
