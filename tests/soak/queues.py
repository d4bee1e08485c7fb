"""A queue under many clients: nothing that was put in is lost, nothing comes out twice.

Half of the clients put numbers into one shared queue of a parameter server, the other half take them out, each with a
session of its own on one of two workers; one client process holds several of them.
"""
import collections
import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "examples"), os.path.join(HERE, "..")]

CAPACITY = 50


def graph_of(tf, kind):
    with tf.device("/job:ps/task:0"):
        if kind == "fifo":
            q = tf.FIFOQueue(CAPACITY, [tf.int64], [[]], shared_name="soak_" + kind)
        elif kind == "shuffle":
            q = tf.RandomShuffleQueue(CAPACITY, 10, [tf.int64], [[]], shared_name="soak_" + kind)
        else:
            q = tf.PriorityQueue(CAPACITY, [tf.int64], [[]], shared_name="soak_" + kind)
    return q


def produce(tf, target, kind, numbers):
    """One by one and by the dozen, alternately."""
    with tf.Graph().as_default():
        q = graph_of(tf, kind)
        one, many = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [None])
        if kind == "priority":
            put_one, put_many = q.enqueue([one, one]), q.enqueue_many([many, many])
        else:
            put_one, put_many = q.enqueue([one]), q.enqueue_many([many])
        with tf.Session(target) as s:
            i = 0
            while i < len(numbers):
                s.run(put_one, {one: numbers[i]})
                s.run(put_many, {many: numbers[i + 1:i + 13]})
                i += 13


def consume(tf, target, kind, out):
    """Until the queue is closed and empty."""
    with tf.Graph().as_default():
        q = graph_of(tf, kind)
        value = q.dequeue()
        batch = q.dequeue_up_to(5)
        if kind == "priority":
            value, batch = value[1], batch[1]
        with tf.Session(target) as s:
            try:
                while True:
                    out.append(int(s.run(value)))
                    out.extend(int(v) for v in s.run(batch))
            except tf.errors.OutOfRangeError:
                pass


def client_process(args):
    """queues.py KIND TARGETS ROLE FIRST CLIENTS EACH: so many clients in threads; consumers print what they got."""
    import cluster
    tf = cluster.tf1()
    kind, targets, role, first, clients, each = args[0], args[1].split(","), args[2], int(args[3]), int(args[4]), int(args[5])
    got, errors = [[] for _ in range(clients)], []

    def run(i):
        number = first + i
        target = targets[number % len(targets)]
        try:
            if role == "produce":
                produce(tf, target, kind, list(range(number * each, (number + 1) * each)))
            else:
                consume(tf, target, kind, got[i])
        except Exception as e:  # pylint: disable=broad-except
            errors.append(repr(e)[:500])
    threads = [threading.Thread(target=run, args=(i,)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for e in errors:
        print("error", e)
    print("got", " ".join(str(v) for part in got for v in part))


def stress(cluster, kind, clients=64, each=2000, processes=4, python=sys.executable):
    """The whole test on a running cluster, `processes` of each role. Returns (elements put in, lost, twice, seconds, errors)."""
    import tensorflow
    tf = tensorflow.compat.v1
    targets = ",".join(cluster.target("worker", i) for i in range(len(cluster.spec["worker"])))
    half, share = clients // 2, max(1, clients // 2 // processes)
    began = time.time()

    def start(role):
        return [subprocess.Popen([python, os.path.abspath(__file__), kind, targets, role, str(first), str(min(share, half - first)),
                                  str(each)], stdout=subprocess.PIPE, universal_newlines=True) for first in range(0, half, share)]
    consumers, producers = start("consume"), start("produce")
    lines = [line for p in producers for line in p.communicate()[0].splitlines()]
    with tf.Graph().as_default(), tf.Session(cluster.target("worker")) as s:
        s.run(graph_of(tf, kind).close())
    lines += [line for p in consumers for line in p.communicate()[0].splitlines()]
    seen = collections.Counter(int(w) for line in lines if line.startswith("got") for w in line.split()[1:])
    expected = half * each
    return (expected, sum(1 for i in range(expected) if i not in seen), sum(n - 1 for n in seen.values()),
            time.time() - began, [line for line in lines if line.startswith("error")])


if __name__ == "__main__":
    client_process(sys.argv[1:])
