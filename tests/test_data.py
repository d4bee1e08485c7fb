"""Input pipelines on the server, with each TensorFlow client."""
import os
import subprocess
import sys

import pytest

from cluster_fixture import ENDS, PY37

CLIENTS = {"tf2.15": sys.executable, "tf1.15": PY37}
CHECKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data_checks.py")


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_training_from_datasets(make_cluster, client):
    if not CLIENTS[client]:
        pytest.skip("no TensorFlow 1.15.5: TENSORD_PY37 names its Python")
    cluster = make_cluster({"ps": 1, "worker": 1})
    r = subprocess.run([CLIENTS[client], CHECKS, cluster.target("worker")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       universal_newlines=True, timeout=ENDS)
    assert r.returncode == 0 and "data ok" in r.stdout, r.stdout + r.stderr[-4000:]
