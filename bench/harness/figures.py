"""Figures: one number each, with what it is measured in and whether more of it is better.

A part's figures are a dict of name -> {"value", "unit", "better": "higher" | "lower"}; where TensorFlow was measured
beside it also "tensorflow", and "ratio": how many times better than TensorFlow (below 1: worse).
"""
import datetime
import json
import os
import platform
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RESULTS = os.path.join(ROOT, "bench", "results.json")
WORSE = 1.15  # times: what stands out as a regression
OP_GOAL, SHARE_GOAL = 1.2, 85  # of an operation: times TensorFlow's time; percent of the bare primitive's rate


def figure(value, unit, better, tensorflow=None, **more):
    f = {"value": rounded(value), "unit": unit, "better": better}
    if tensorflow is not None:
        f["tensorflow"] = rounded(tensorflow)
        if value and tensorflow and better:
            f["ratio"] = rounded(tensorflow / value if better == "lower" else value / tensorflow)
    f.update(more)
    return f


def rounded(v):
    return float("%.5g" % v)


def show(name, f):
    """One line of what was measured."""
    line = "%-52s %12s %-8s" % (name, number(f["value"]), f["unit"])
    if "tensorflow" in f:
        line += " TensorFlow %12s" % number(f["tensorflow"])
    if "ratio" in f:
        line += "  %.2f x" % f["ratio"]
    print(line, flush=True)


def number(v):
    return "{:,.0f}".format(v) if abs(v) >= 1000 else "%.4g" % v


# ---- where and when ----

def _output(*command):
    try:
        return subprocess.check_output(command, cwd=ROOT, stderr=subprocess.DEVNULL).decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine():
    cpu, memory = platform.processor(), 0
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) / 1e6
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory, 1),
            "system": "Linux " + platform.release()}


def circumstances(command):
    commit = _output("git", "rev-parse", "--short=12", "HEAD")
    if commit and _output("git", "status", "--porcelain", "--untracked-files=no", "--", "src", "cmake", "CMakeLists.txt"):
        commit += " and changes"
    return {"date": datetime.datetime.utcnow().strftime("%Y-%m-%d %H:%M UTC"), "commit": commit, "command": command,
            "machine": machine(), "python": platform.python_version(), "tensorflow": _tensorflow_version()}


def _tensorflow_version():
    # Not imported: parts that need no TensorFlow must not wait for it.
    try:
        from importlib import metadata
    except ImportError:
        return _output(sys.executable, "-c", "import pkg_resources as p; print(next(d.version for d in p.working_set "
                       "if d.project_name in ('tensorflow', 'tensorflow-cpu')))")
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return ""


# ---- files ----

def load(path):
    try:
        with open(path) as f:
            return json.load(f)
    except FileNotFoundError:
        return {"parts": {}}


def load_committed(path=RESULTS):
    """The results as last committed; outside a checkout, as they lie there."""
    text = _output("git", "show", "HEAD:" + os.path.relpath(path, ROOT))
    return json.loads(text) if text else load(path)


def save(path, results):
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        os.makedirs(folder)
    with open(path + ".new", "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")
    os.rename(path + ".new", path)


# ---- comparison ----

def change(before, now):
    """How many times better `now` is than `before`; below 1: worse. None where that cannot be said."""
    if not now["better"] or before["unit"] != now["unit"] or before["value"] <= 0 or now["value"] <= 0:
        return None
    r = now["value"] / before["value"]
    return 1 / r if now["better"] == "lower" else r


def compare(before, now, out=sys.stdout):
    """Prints how the figures of `now` differ from those of `before`; returns the names of those that got worse."""
    worse, same, rows = [], 0, []
    for part, measured in sorted(now["parts"].items()):
        then = before["parts"].get(part)
        if not then:
            continue
        if then["machine"]["cpu"] != measured["machine"]["cpu"] or then["machine"]["cores"] != measured["machine"]["cores"]:
            print("%s: the results before are of another machine (%s)" % (part, then["machine"]["cpu"]), file=out)
        for name, f in sorted(measured["figures"].items()):
            old = then["figures"].get(name)
            ratio = change(old, f) if old else None
            if ratio is None:
                continue
            if ratio * WORSE < 1:
                worse.append(part + "/" + name)
                rows.append(("WORSE", part, name, old, f, ratio))
            elif ratio > WORSE:
                rows.append(("better", part, name, old, f, ratio))
            else:
                same += 1
    for verdict, part, name, old, f, ratio in rows:
        print("%-6s %-7s %-50s before %10s  now %10s %-8s %.2f x" %
              (verdict, part, name, number(old["value"]), number(f["value"]), f["unit"], ratio), file=out)
    if rows or same:
        print("since the last results: %d figures worse, %d better, %d within %.0f %%" %
              (len(worse), len(rows) - len(worse), same, (WORSE - 1) * 100), file=out)
    return worse
