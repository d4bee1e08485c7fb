"""The long form: python tests/soak [--kills 20] [--seed N] [--queue_clients 64] [--queue_elements 2000]; prints tables."""
import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "examples")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import kills  # noqa: E402
import queues  # noqa: E402
from cluster_fixture import Cluster  # noqa: E402


def soak_training(args):
    began = time.time()
    print("seed %d" % args.seed)
    with kills.Soak(seed=args.seed) as soak:
        schedule = [kind for kind in ("ps", "worker", "chief", "client") for _ in range(args.kills)]
        soak.random.shuffle(schedule)
        for i, kind in enumerate(schedule):
            soak.kill(kind)
            print("%3d of %d: %-6s all went on after %5.1f s" % (i + 1, len(schedule), kind, soak.recoveries[kind][-1]), flush=True)
        steps = [c.beats.read() for c in soak.clients]
        accuracy = soak.finish()
        left = soak.left_behind()
    print("\n| killed | times | recovered | median | longest |\n|---|---|---|---|---|")
    for kind, seconds in sorted(soak.recoveries.items()):
        seconds = sorted(seconds)
        print("| %s | %d | %d | %.1f s | %.1f s |" % (kind, args.kills, len(seconds), seconds[len(seconds) // 2], seconds[-1]))
    print("\nheld-out accuracy %.3f; steps made %s, sessions made %s; %.0f s" % (
        accuracy, [s[0] for s in steps], [s[2] for s in steps], time.time() - began))
    print("left behind (master sessions, worker sessions, steps): %s" % left)
    return accuracy >= 0.9


def stress_queues(args):
    fine = True
    print("\n| queue | clients | elements | lost | twice | errors | elements/s |\n|---|---|---|---|---|---|---|")
    with Cluster({"ps": 1, "worker": 2}) as c:
        for kind in ("fifo", "shuffle", "priority"):
            n, lost, twice, seconds, errors = queues.stress(c, kind, args.queue_clients, args.queue_elements)
            print("| %s | %d | %d | %d | %d | %d | %.0f |" % (kind, args.queue_clients, n, lost, twice, len(errors), n / seconds), flush=True)
            for e in errors:
                print(e)
            fine = fine and not lost and not twice and not errors
    return fine


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--kills", type=int, default=20, help="of each kind: ps, worker, chief, client")
    p.add_argument("--seed", type=int, default=int(time.time()) % 100000)
    p.add_argument("--queue_clients", type=int, default=64)
    p.add_argument("--queue_elements", type=int, default=2000, help="that each producer puts in")
    args = p.parse_args()
    fine = soak_training(args) if args.kills else True
    fine = (stress_queues(args) if args.queue_clients else True) and fine
    print("\n%s" % ("all is well" if fine else "FAILED"))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
