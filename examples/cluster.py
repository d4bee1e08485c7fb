"""What the examples share: where the cluster is, and TensorFlow's 1.x interface in whatever version is installed.

`tensorctl launch` puts the cluster into the environment; flags name another one.
"""
import argparse
import os

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
