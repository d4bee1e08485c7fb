#!/usr/bin/env python3
"""tensord's benchmarks: what `make bench` runs.

    micro   rooms alone: transport, rendezvous, executor, tensor codec, CRC-32C, random numbers
    op      operations at three sizes, beside TensorFlow; products and convolutions beside bare oneDNN
    system  bench/peer.py: clusters through the TensorFlow client, beside TensorFlow's servers; mixed clusters
    scale   up to 512 tasks on this machine; many clients; what an idle cluster costs

Results go to bench/results.json, those of parts that were not run stay; docs/performance.md is made of them. What
changed since the last committed results is printed, worse by 15 % or more as WORSE.
"""
import argparse
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from harness import figures, page  # noqa: E402

PARTS = ("micro", "op", "system", "scale")


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    p.add_argument("--quick", action="store_true", help="tiny measurements that only show that everything works")
    p.add_argument("--only", action="append", metavar="TEXT", help="figures, ops or cases whose name holds it; repeat for more")
    p.add_argument("--runs", type=int, default=3, help="repetitions of a system case, of which the median counts (default: 3)")
    p.add_argument("--build", default=os.path.join(figures.ROOT, "build"), help="the folder of tensord and the bench programs")
    p.add_argument("--out", metavar="FILE", help="the results' file (default: bench/results.json; with --quick or --only: "
                   "build/bench.json, and no page)")
    p.add_argument("--before", metavar="FILE", help="compare with these results (default: the committed ones)")
    p.add_argument("--page", action="store_true", help="only make docs/performance.md and its plots of bench/results.json")
    p.add_argument("--strict", action="store_true", help="exit with 1 if a figure is worse than before by 15 %%")
    return p.parse_args(argv)


def run_part(name, options):
    """A part's results: when and where, and its figures."""
    module = __import__("harness." + name, fromlist=["run"])
    found = figures.circumstances("bench/run.py " + " ".join(sys.argv[1:]))
    found["figures"] = {}

    def add(figure_name, f):
        found["figures"][figure_name] = f
        figures.show(figure_name, f)

    print("=== %s" % name, flush=True)
    began = time.time()
    try:
        module.run(options, add)
    except Exception:  # what was measured is kept, and the other parts are run
        traceback.print_exc()
        found["incomplete"] = True
    found["took_s"] = round(time.time() - began)
    return found


def main():
    options = parse(sys.argv[1:])
    if options.page:
        page.update(figures.load(figures.RESULTS))
        return 0
    is_partial = options.quick or options.only
    out = options.out or (os.path.join(figures.ROOT, "build", "bench.json") if is_partial else figures.RESULTS)
    before = figures.load(options.before) if options.before else figures.load_committed()
    results, now = figures.load(out), {"parts": {}}
    for part in options.parts:
        now["parts"][part] = results["parts"][part] = run_part(part, options)
        figures.save(out, results)  # after each: a part may take long
    print("=== results: %s" % os.path.relpath(out))
    if out == figures.RESULTS:
        page.update(results)
    worse = figures.compare(before, now)
    incomplete = [part for part in now["parts"] if "incomplete" in now["parts"][part]]
    if incomplete:
        print("=== incomplete, see above: %s" % " ".join(incomplete), file=sys.stderr)
    return 1 if incomplete or (worse and options.strict) else 0


if __name__ == "__main__":
    sys.exit(main())
