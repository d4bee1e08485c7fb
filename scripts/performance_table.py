#!/usr/bin/env python3
"""The results of bench/peer.py --json as the table of docs/performance.md: performance_table.py FILE.json"""
import json
import sys

SMALLER = ("_ms", "_us", "_mb", "_s", "threads", "ms_per_step", "final_loss")


def is_smaller_better(name):
    return name.endswith(SMALLER) and not name.endswith("per_s")


def number(v):
    return "{:,.0f}".format(v) if v >= 1000 else "%.4g" % v


def main():
    with open(sys.argv[1]) as f:
        results = json.load(f)
    print("| case | figure | TensorFlow | tensord | better by |")
    print("|---|---|---|---|---|")
    for case, servers in results.items():
        names = list(servers)
        if len(names) < 2:
            continue
        theirs, ours = servers[names[0]], servers[names[1]]
        for figure in theirs:
            a, b = theirs[figure], ours.get(figure)
            if figure == "final_loss" or b is None:
                continue
            ratio = (a / b if is_smaller_better(figure) else b / a) if a and b else 0
            better = "%.1f x" % ratio if ratio else ""
            print("| %s | %s | %s | %s | %s |" % (case, figure.replace("_", " "), number(a), number(b), better))


if __name__ == "__main__":
    main()
