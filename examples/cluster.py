"""What the examples share: where the cluster is, and TensorFlow's 1.x interface in whatever version is installed.

`tensorctl launch` puts the cluster into the environment; flags name another one.
"""
import argparse
import os
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def arguments(description):
    """A parser with the flags that every example has."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--targets", default=os.environ.get("TENSORD_TARGETS", ""),
                   help="grpc://host:port of each worker, with commas (default: $TENSORD_TARGETS)")
    p.add_argument("--cluster", default=os.environ.get("TENSORD_CLUSTER", ""),
                   help="job|host:port;host:port,job2|host:port (default: $TENSORD_CLUSTER)")
    return p


def parse(parser):
    """The parsed flags, with `targets` as a list and `jobs` as {job: [address]}."""
    args = parser.parse_args()
    args.targets = [t for t in args.targets.split(",") if t]
    args.jobs = {}
    for part in filter(None, args.cluster.split(",")):
        job, tasks = part.split("|")
        args.jobs[job] = tasks.split(";")
    if not args.targets:
        parser.error("no cluster: run under `tensorctl launch`, or give --targets and --cluster")
    return args


def tf1():
    """TensorFlow's 1.x interface: graphs and sessions."""
    import tensorflow as tf
    t = tf.compat.v1
    t.disable_eager_execution()
    t.logging.set_verbosity(t.logging.ERROR)
    return t


def run_on_each_worker(main, description):
    """Runs main(args) in a process per worker, args.task_index says which; with --task_index here, for that one only."""
    parser = arguments(description)
    parser.add_argument("--task_index", type=int)
    args = parse(parser)
    if args.task_index is not None:
        return main(args)
    flags = ["--targets=" + ",".join(args.targets), "--cluster=" + args.cluster]
    workers = [subprocess.Popen([sys.executable, sys.argv[0], "--task_index=%d" % i] + flags)
               for i in range(len(args.jobs["worker"]))]
    return max(w.wait() for w in workers)


def wait_for_variables(session, missing):
    """Returns when another client has initialised them; missing: what tf.report_uninitialized_variables() gave."""
    while len(session.run(missing)):
        time.sleep(0.05)
