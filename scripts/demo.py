#!/usr/bin/env python3
"""The demonstration of `make demo`: a CNN learns handwritten digits on a cluster of one ps and two workers.

Two client processes train one model between-graph; this process then evaluates what stands on the parameter server.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BUILD = os.environ.get("TENSORD_BUILD", os.path.join(ROOT, "build"))
STEPS = 250
sys.path.insert(0, os.path.join(ROOT, "examples"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def curve(losses, width=64, height=10):
    """The losses, averaged into `width` columns, as lines of text."""
    size = max(1, len(losses) // width)
    columns = [sum(losses[i:i + size]) / size for i in range(0, len(losses) - size + 1, size)][:width]
    top = max(columns)
    lines = []
    for row in range(height, 0, -1):
        cells = "".join("#" if c >= top * (row - 0.5) / height else " " for c in columns)
        label = "%5.2f" % (top * row / height) if row in (height, height // 2) else "     "
        lines.append("  %s |%s" % (label, cells.rstrip()))
    lines.append("   0.00 +" + "-" * len(columns) + " %d steps" % len(losses))
    return "\n".join(lines)


def evaluate(logs):
    import cluster
    import digits
    parser = cluster.arguments(__doc__)
    sys.argv[1:] = []
    args = cluster.parse(parser)
    tf = cluster.tf1()
    images, labels = digits.load()
    graph = digits.Graph(tf, "cnn", len(args.jobs["ps"]), 0)
    with tf.Session(args.targets[0]) as session:
        while len(session.run(graph.missing)):
            time.sleep(0.1)
        failed = [p.wait() for p, _ in logs if p.wait()]
        if failed:
            sys.exit("demo: a client failed")
        feed = {graph.x: images[-digits.HELD_OUT:], graph.y: labels[-digits.HELD_OUT:]}
        accuracy, steps = session.run([graph.accuracy, graph.global_step], feed)
    return accuracy, steps


def show_memory():
    target = os.environ["TENSORD_TARGETS"].split(",")[0]
    text = subprocess.run([os.path.join(BUILD, "tensorctl"), "status", "--json", target], stdout=subprocess.PIPE, check=True).stdout
    tasks = json.loads(text.decode())["tasks"]
    sizes = [(t["task"].replace("/replica:0", ""), t["memory"]["resident_bytes"] / 1e6) for t in tasks]
    print("cluster memory: %.1f MB (%s)" % (sum(s for _, s in sizes), ", ".join("%s %.1f" % s for s in sizes)))


def main():
    if "TENSORD_TARGETS" not in os.environ:
        launch = [os.path.join(BUILD, "tensorctl"), "launch", "--quiet", "--ps=1", "--worker=2", "--"]
        os.execv(launch[0], launch + [sys.executable, os.path.abspath(__file__)])
    print("A CNN learns 1,437 handwritten digits: 1 ps, 2 workers, a client process each.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        clients = []
        for i in range(2):
            log = os.path.join(folder, "%d.json" % i)
            clients.append((subprocess.Popen([sys.executable, os.path.join(ROOT, "examples", "digits.py"), "--model=cnn", "--quiet",
                                              "--steps=%d" % STEPS, "--task_index=%d" % i, "--log=" + log]), log))
        accuracy, steps = evaluate(clients)
        results = []
        for _, log in clients:
            with open(log) as f:
                results.append(json.load(f))
    print("\nloss of worker 0")
    print(curve(results[0]["losses"]))
    print("\nsteps/s: %.0f (%s)" % (sum(r["steps_per_s"] for r in results), " + ".join("%.0f" % r["steps_per_s"] for r in results)))
    show_memory()
    print("steps on the parameter server: %d" % steps)
    print("held-out accuracy: %.3f" % accuracy)
    return 0 if accuracy >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
