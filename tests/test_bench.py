"""bench/run.py: what it measures is small here; that it works is what counts."""
import json
import os
import subprocess
import sys

import pytest
from cluster_fixture import BUILD, ENDS, ROOT


def bench(*args):
    return subprocess.run([sys.executable, os.path.join(ROOT, "bench", "run.py"), "--quick", "--build", BUILD] + list(args),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=ENDS)


@pytest.fixture(scope="module")
def micro(tmp_path_factory):
    """The results of a run, and what it printed."""
    path = str(tmp_path_factory.mktemp("bench") / "results.json")
    r = bench("--parts", "micro", "--only", "crc32c", "--only", "codec/header", "--out", path)
    assert r.returncode == 0, r.stderr
    with open(path) as f:
        return json.load(f), r.stdout


def test_results_say_what_was_measured_where(micro):
    part = micro[0]["parts"]["micro"]
    assert part["machine"]["cores"] >= 1 and part["machine"]["cpu"] and part["date"] and part["tensorflow"]
    assert "crc32c/64B" in part["figures"] and "codec/header" in part["figures"]
    for name, f in part["figures"].items():
        assert f["value"] > 0 and f["unit"] and f["better"] in ("higher", "lower"), name
        assert name in micro[1]


def test_every_part_has_its_place_on_the_page():
    sys.path.insert(0, os.path.join(ROOT, "bench"))
    try:
        from harness import figures, page
    finally:
        sys.path.pop(0)
    with open(page.PAGE, encoding="utf-8") as f:
        text = f.read()
    for part in figures.load(figures.RESULTS)["parts"]:
        names = [name for name, (of, _) in page.BLOCKS.items() if of == part]
        assert names, part
        assert [n for n in names if text.count("<!-- bench: %s -->" % n) == 1] == names, part


def test_a_regression_stands_out(micro, tmp_path):
    before = json.loads(json.dumps(micro[0]))
    figures = before["parts"]["micro"]["figures"]
    figures["crc32c/64B"]["value"] *= 1e6     # GB/s: was much better
    figures["codec/header"]["value"] *= 1e6   # ns: was much worse
    path = str(tmp_path / "before.json")
    with open(path, "w") as f:
        json.dump(before, f)
    args = ["--parts", "micro", "--only", "crc32c/64B", "--only", "codec/header", "--before", path, "--out", str(tmp_path / "now.json")]
    r = bench(*args)
    assert r.returncode == 0, r.stderr
    found = {line.split()[2]: line.split()[0] for line in r.stdout.splitlines() if line.startswith(("WORSE", "better"))}
    assert found == {"crc32c/64B": "WORSE", "codec/header": "better"}, r.stdout
    assert "1 figures worse, 1 better" in r.stdout
    assert bench("--strict", *args).returncode == 1


def test_operations_beside_tensorflow(tmp_path):
    path = str(tmp_path / "results.json")
    r = bench("--parts", "op", "--only", "MatMul/medium", "--out", path)
    assert r.returncode == 0, r.stderr
    with open(path) as f:
        figures = json.load(f)["parts"]["op"]["figures"]
    f = figures["MatMul/medium"]
    assert f["value"] > 0 and f["tensorflow"] > 0 and f["ratio"] > 0 and f["unit"] == "us", f
    if os.path.exists(os.path.join(BUILD, "primitive_bench")):
        assert figures["MatMul/medium, of bare oneDNN"]["value"] > 0


def test_many_tasks(tmp_path):
    path = str(tmp_path / "results.json")
    r = bench("--parts", "scale", "--only", "8 tasks", "--out", path)
    assert r.returncode == 0, r.stderr
    with open(path) as f:
        figures = json.load(f)["parts"]["scale"]["figures"]
    assert figures["8 tasks/memory of all"]["value"] > 0 and figures["8 tasks/step over all, p50"]["value"] > 0
