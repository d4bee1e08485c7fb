"""Jobs of TensorFlow's Estimator by TF_CONFIG: chief, worker, evaluator; training, evaluation, export, prediction.

Either chief and worker are TensorFlow servers and only the parameter server is tensord, or all three are tensord.
"""
import re
import subprocess
import sys

import pytest
from cluster_fixture import ENDS, PY37, ROOT, TENSORCTL

CLIENTS = {"tf2.15": sys.executable, "tf1.15": PY37}
TASKS = {"tensorflow masters": ["--external_chief", "--external_worker=1"], "tensord masters": ["--chief", "--worker=1"]}


@pytest.mark.parametrize("version,masters,model,inputs", [
    ("tf2.15", "tensorflow masters", "dnn", "dataset"),
    ("tf2.15", "tensord masters", "own", "queue"),
    ("tf1.15", "tensorflow masters", "own", "dataset"),
    ("tf1.15", "tensord masters", "linear", "queue"),
])
def test_job(version, masters, model, inputs):
    if CLIENTS[version] is None:
        pytest.skip("no TensorFlow 1.15.5: TENSORD_PY37 names its Python")
    command = [TENSORCTL, "launch", "--ps=1"] + TASKS[masters] + ["--", CLIENTS[version], ROOT + "/examples/estimator.py",
                                                                  "--model=" + model, "--input=" + inputs, "--steps=300"]
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=ENDS)
    assert r.returncode == 0, r.stdout + r.stderr[-4000:]
    accuracy, = re.findall(r"held-out accuracy: ([\d.]+) at global step", r.stdout)
    assert float(accuracy) >= 0.85
    assert "exported model on tensord: 360 predictions" in r.stdout  # and they agree: that is its exit status
