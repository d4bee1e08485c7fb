"""docs/performance.md: what stands between <!-- bench: NAME --> and <!-- end --> is made of the results, the rest is
written by hand. And its plots, docs/images/bench-*.svg."""
import os
import re

from harness import op_cases, plot
from harness.figures import OP_GOAL, ROOT, number

PAGE = os.path.join(ROOT, "docs", "performance.md")
IMAGES = os.path.join(ROOT, "docs", "images")
TRAINING = "steps_per_s"
SCALE_PANELS = (("start", "until all accept, s"), ("session", "creating a session over all, s"),
                ("step over all, p50", "a step over all, µs"), ("memory of all", "resident memory of all, MB"))


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows])


def times(f):
    if "ratio" not in f:
        return ""
    return ("%.2g x" if f["ratio"] < 9.5 else "%.0f x") % f["ratio"]


def with_unit(f, key="value"):
    return ("%s %s" % (number(f[key]), f["unit"])).strip() if key in f else ""


def is_mixed(name):
    return ", tensord " in name


# ---- the tables: each takes a part's results ----

def circumstances(part):
    m = part["machine"]
    beside = "TensorFlow %s, Python %s" % (part["tensorflow"], part["python"])
    return "%s, commit %s; %d cores of %s, %.0f GB, %s; %s; `%s`, %d min." % (
        part["date"], part["commit"], m["cores"], m["cpu"], m["memory_gb"], m["system"], beside, part["command"],
        (part["took_s"] + 59) // 60)


def system(part):
    rows = []
    for name, f in part["figures"].items():
        if not is_mixed(name):
            case, what = name.split("/")
            rows.append((case, what.replace("_", " "), with_unit(f, "tensorflow"), with_unit(f), times(f)))
    return circumstances(part) + "\n\n" + table(("case", "figure", "TensorFlow", "tensord", "better by"), rows)


def mixed(part):
    rows, figures = [], part["figures"]
    for name, f in figures.items():
        if not name.startswith("train_") or not name.endswith("/" + TRAINING):
            continue
        ours = [figures.get(name + ", tensord " + job) for job in ("ps", "worker")]
        rows.append([name.split("/")[0], number(f.get("tensorflow", 0))] +
                    ["%s (%s)" % (number(g["value"]), times(g)) if g else "" for g in ours + [f]])
    return table(("steps a second", "all TensorFlow", "tensord ps", "tensord workers", "all tensord"), rows)


def op_row(figures, name, suffix=""):
    return [figures.get("%s/%s%s" % (name, size, suffix)) for size in op_cases.SIZES]


def op(part):
    figures, rows = part["figures"], []
    for name in op_cases.CASES:
        found = op_row(figures, name)
        if any(found):
            rows.append([name] + ["%s µs, %s" % (number(f["value"]), times(f)) if f else "" for f in found])
    slow = sorted((f["ratio"], name) for name, f in figures.items() if f.get("ratio", 1) * OP_GOAL < 1)
    count = sum(1 for f in figures.values() if "tensorflow" in f)
    text = "%d of %d take more than %s times as long as in TensorFlow%s\n\n" % (
        len(slow), count, OP_GOAL, ": " + ", ".join("%s (%.1f x)" % (n, 1 / r) for r, n in slow) + "." if slow else ".")
    return circumstances(part) + "\n\n" + text + table(("operation",) + op_cases.SIZES, rows)


def share(part):
    rows = []
    for name in op_cases.PRIMITIVES:
        found = op_row(part["figures"], name, ", of bare oneDNN")
        if any(found):
            rows.append([name] + ["%.0f %%" % f["value"] if f else "" for f in found])
    return table(("share of the bare primitive's rate",) + op_cases.SIZES, rows)


def scale_sizes(figures):
    return sorted({int(name.split()[0]) for name in figures if " tasks/memory of all" in name})


def scale(part):
    figures, rows = part["figures"], []
    sizes = scale_sizes(figures)
    for what in ("start", "session", "first step over all", "step over all, p50", "null step, p50", "memory of all",
                 "memory of the worker", "idle CPU of all"):
        row = [figures.get("%d tasks/%s" % (n, what)) for n in sizes]
        rows.append([what] + [with_unit(f) + (" (%s)" % number(f["tensorflow"]) if "tensorflow" in f else "") if f else ""
                              for f in row])
    return circumstances(part) + "\n\n" + table(["in brackets: TensorFlow"] + ["%d tasks" % n for n in sizes], rows)


def clients(part):
    rows, figures = [], part["figures"]
    for name in [n[:-len("/steps")] for n in figures if n.endswith("/steps")]:
        rows.append([name] + ["%s (%s)" % (with_unit(f), number(f.get("tensorflow", 0))) for f in
                              (figures["%s/%s" % (name, what)] for what in ("steps", "p50", "p99", "p99 in p50s"))])
    return table(("in brackets: TensorFlow", "steps", "p50", "p99", "p99 in p50s"), rows)


def micro(part):
    rows = [(name, with_unit(f)) for name, f in part["figures"].items()]
    return circumstances(part) + "\n\n" + table(("room/what", "figure"), rows)


# name in the page -> (part, function)
BLOCKS = {"system": ("system", system), "mixed": ("system", mixed), "op": ("op", op), "share": ("op", share),
          "scale": ("scale", scale), "clients": ("scale", clients), "micro": ("micro", micro)}


# ---- plots ----

def plot_system(part):
    rows = [(name.replace("/", ": ").replace("_", " "), [f["ratio"]]) for name, f in part["figures"].items()
            if "ratio" in f and not is_mixed(name)]
    plot.dots(os.path.join(IMAGES, "bench-system.svg"), "tensord against TensorFlow: better by", rows, ("better by",))


def plot_ops(part):
    rows = [(name, [f and f.get("ratio") for f in op_row(part["figures"], name)]) for name in op_cases.CASES]
    plot.dots(os.path.join(IMAGES, "bench-ops.svg"), "Operations: times as fast as TensorFlow", [r for r in rows if any(r[1])],
              op_cases.SIZES, 1 / OP_GOAL)


def plot_scale(part):
    figures, drawings = part["figures"], []
    for what, title in SCALE_PANELS:
        lines = {"tensord": [], "TensorFlow": []}
        for n in scale_sizes(figures):
            f = figures.get("%d tasks/%s" % (n, what), {})
            for series, key in (("tensord", "value"), ("TensorFlow", "tensorflow")):
                if f.get(key):
                    lines[series].append((n, f[key]))
        drawings.append((title, lines))
    plot.panels(os.path.join(IMAGES, "bench-scale.svg"), "A worker and 8 to 512 ps tasks on one machine", drawings,
                ("tensord", "TensorFlow"))


PLOTS = {"system": plot_system, "op": plot_ops, "scale": plot_scale}


def update(results):
    """Writes the page anew with the parts that the results have."""
    os.makedirs(IMAGES, exist_ok=True)
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()
    for name, (part, make) in BLOCKS.items():
        if part in results["parts"]:
            block = "<!-- bench: %s -->\n%s\n<!-- end -->" % (name, make(results["parts"][part]))
            page = re.sub(r"<!-- bench: %s -->.*?<!-- end -->" % name, lambda _: block, page, flags=re.S)
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(page)
    for part, draw in PLOTS.items():
        if part in results["parts"]:
            draw(results["parts"][part])
