"""Collectives: groups of devices on several tasks, driven by one client or by one for each task, and with TensorFlow's own
servers among the members."""
import contextlib
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest
import tensorflow as tf
from cluster_fixture import HERE, PY37, Cluster

tf1 = tf.compat.v1
LEADER = "/job:worker/replica:0/task:0"
PATIENCE_MS = 100000  # what hangs fails


def config(**options):
    c = tf1.ConfigProto(**options)
    c.experimental.collective_group_leader = LEADER
    return c


def cluster(tasks, kinds=None):
    """With the leader in the servers' configuration, as TensorFlow's need it. `kinds`: of each task."""
    f = tempfile.NamedTemporaryFile()
    f.write(config().SerializeToString())
    f.flush()
    c = Cluster({"worker": tasks}, flags=["--config=" + f.name], start=False)
    c.config_file = f  # as long as tasks may restart
    for i, kind in enumerate(kinds or []):
        c["worker", i].kind = kind
        c["worker", i].leader = LEADER
    try:
        for t in c.tasks.values():
            t.start()
        for t in c.tasks.values():
            t.wait_ready()
    except BaseException:
        c.stop()
        raise
    return c


def run_options(ms=PATIENCE_MS, graph_key=0):
    o = tf1.RunOptions(timeout_in_ms=ms)
    o.experimental.collective_graph_key = graph_key
    return o


def reduce(x, size, instance, merge="Add", final="Id", offsets=(0,), group=1):
    return tf1.raw_ops.CollectiveReduce(input=x, group_size=size, group_key=group, instance_key=instance, merge_op=merge,
                                        final_op=final, subdiv_offsets=list(offsets))


def test_one_client():
    """Everything in one session, over three tasks."""
    n = 3
    values = [np.random.RandomState(i).rand(4, 257).astype(np.float32) for i in range(n)]
    with cluster(n) as c, tf.Graph().as_default():
        out = {}
        for i in range(n):
            with tf1.device("/job:worker/task:%d" % i):
                x = tf.identity(tf.constant(values[i]))
                out["mean", i] = reduce(x, n, 1, final="Div")
                out["max", i] = reduce(x, n, 2, "Max", offsets=())
                out["product", i] = reduce(tf.cast(x, tf.float64), n, 3, "Mul", offsets=(0, 1, -1))
                out["half", i] = reduce(tf.cast(x, tf.half), n, 4)
                out["gather", i] = tf1.raw_ops.CollectiveGather(input=x, group_size=n, group_key=1, instance_key=5, shape=[4 * n, 257])
                for source in range(n):
                    out["from %d" % source, i] = (
                        tf1.raw_ops.CollectiveBcastSend(input=x, group_size=n, group_key=1, instance_key=6 + source, shape=[4, 257])
                        if i == source else
                        tf1.raw_ops.CollectiveBcastRecv(T=tf.float32, group_size=n, group_key=1, instance_key=6 + source, shape=[4, 257]))
        with tf1.Session(c.target("worker", 1), config=config()) as s:
            for _ in range(3):
                got = s.run(out, options=run_options())
        expected = {"mean": sum(values) / n, "max": np.maximum.reduce(values), "product": np.prod(values, axis=0),
                    "half": sum(values), "gather": np.concatenate(values)}
        expected.update({"from %d" % i: values[i] for i in range(n)})
        for (what, i), value in got.items():
            np.testing.assert_allclose(value, expected[what], rtol=1e-2 if what == "half" else 1e-5, err_msg="%s at %d" % (what, i))


class Member(threading.Thread):
    """A client of one task, with a session of its own: runs `steps` and keeps what came of each."""

    def __init__(self, c, i, size, steps=1, ms=PATIENCE_MS, dim=64, instance=1):
        super().__init__(daemon=True)
        self.results, self.steps, self.ms = [], steps, ms
        self.graph = tf.Graph()
        with self.graph.as_default(), tf1.device("/job:worker/task:%d" % i):
            self.sum = reduce(tf.identity(tf.fill([dim], float(i + 1))), size, instance, group=7)
        self.session = tf1.Session(c.target("worker", i), graph=self.graph,
                                   config=config(device_filters=["/job:worker/task:%d" % k for k in range(size)]))

    def run(self):
        for _ in range(self.steps):
            try:
                self.results.append(self.session.run(self.sum, options=run_options(self.ms, graph_key=1)).tolist()[0])
            except tf.errors.OpError as e:
                self.results.append(e)

    def close(self):
        try:
            self.session.close()
        except tf.errors.OpError:  # of a task that has restarted
            pass

    def again(self, steps=1, ms=PATIENCE_MS):
        threading.Thread.__init__(self, daemon=True)
        self.results, self.steps, self.ms = [], steps, ms
        return self


@contextlib.contextmanager
def two_members(c, dims=(64, 64)):
    members = [Member(c, i, 2, dim=dims[i]) for i in range(2)]
    try:
        yield members
    finally:
        for m in members:
            m.close()


def run_all(members):
    for m in members:
        m.start()
    for m in members:
        m.join(300)
        assert not m.is_alive()
    return [m.results for m in members]


def test_a_client_for_each_task():
    """Masters of their own, whose steps meet; what fails at one member fails at all, and they meet again."""
    with cluster(2) as c, two_members(c) as members:
        assert run_all(members) == [[3.0]] * 2
        assert run_all([m.again(20) for m in members]) == [[3.0] * 20] * 2
        # one waits in vain
        (late,), = run_all([members[0].again(ms=500)])
        assert isinstance(late, tf.errors.DeadlineExceededError)
        # the other, whose step that was, learns it at once or meets the leader's next one
        members[0].again().start()
        other = None
        while other != 3.0:
            (other,), = run_all([members[1].again()])
            assert other == 3.0 or isinstance(other, (tf.errors.AbortedError, tf.errors.CancelledError)), other
        members[0].join(300)
        assert members[0].results == [3.0]


def test_members_that_disagree():
    with cluster(2) as c, two_members(c, (64, 65)) as members:
        errors = [error for (error,) in run_all(members)]
        assert any(isinstance(e, tf.errors.InvalidArgumentError) and "Shape mismatch" in str(e) for e in errors), errors
        assert all(isinstance(e, (tf.errors.InvalidArgumentError, tf.errors.AbortedError)) for e in errors), errors


def test_a_member_dies():
    with cluster(2) as c, two_members(c) as members:
        assert run_all(members) == [[3.0]] * 2
        members[0].again().start()
        c["worker", 0].await_steps()
        c["worker", 1].kill()
        members[0].join(300)
        assert isinstance(members[0].results[0], tf.errors.UnavailableError), members[0].results
        c["worker", 1].restart()  # so that its client's session can end


@pytest.mark.parametrize("kinds", [("tensord", "tf1"), ("tf1", "tensord"), ("tf1", "tensord", "tensord")], ids="-".join)
def test_with_tensorflow(kinds):
    """TensorFlow 1.15 in the group, as leader and as member. Collectives of 2.x are another protocol."""
    if PY37 is None:
        pytest.skip("no TensorFlow 1.15.5: TENSORD_PY37 names its Python")
    with cluster(len(kinds), kinds) as c:
        r = subprocess.run([PY37, HERE + "/collective_checks.py", str(len(kinds))] + [t.target for t in c.tasks.values()],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=300)
        assert r.returncode == 0 and "all checks pass" in r.stdout, r.stderr[-5000:]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
