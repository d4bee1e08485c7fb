"""Tensors that tasks of one machine lend to each other: what a borrower sees stays as it was, and comes back."""
import numpy as np
import pytest

from cluster_fixture import wait_until


def may_lend():
    """Whether a task may look into another's memory here."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as f:
            return f.read().strip() == "0"
    except OSError:
        return True


pytestmark = pytest.mark.skipif(not may_lend(), reason="kernel.yama.ptrace_scope keeps processes apart: nothing is lent")
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
SHAPE = [512, 256]  # 512 KB


def memory_kb(task, field):
    with open("/proc/%d/status" % task.process.pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith(field + ":"))


def mapped_memories(task):
    """How many memories it has mapped that tasks lend of, its own among them."""
    with open("/proc/%d/maps" % task.process.pid) as f:
        return len({line.split()[4] for line in f if "memfd:tensord" in line})


UPDATES = {
    "assign_add": lambda tf, v: v.assign_add(tf.ones(SHAPE)),
    "assign": lambda tf, v: v.assign(tf.random_uniform(SHAPE)),
    "descent": lambda tf, v: tf.train.GradientDescentOptimizer(-1.0).apply_gradients([(tf.ones(SHAPE), v)]),
    "momentum": lambda tf, v: tf.train.MomentumOptimizer(-1.0, 0.5).apply_gradients([(tf.ones(SHAPE), v)]),
    "sparse": lambda tf, v: tf.train.AdagradOptimizer(0.1).apply_gradients(
        [(tf.IndexedSlices(tf.ones(SHAPE), tf.range(SHAPE[0]), SHAPE), v)]),
    "scatter": lambda tf, v: tf.scatter_add(v, tf.range(SHAPE[0]), tf.ones(SHAPE)),
    "slice": lambda tf, v: v[0:100, 3:].assign(tf.random_uniform([100, SHAPE[1] - 3])),
}


@pytest.mark.parametrize("resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("update", UPDATES)
def test_updates_do_not_show(tf, make_cluster, update, resource):
    """The worker has a variable's value, the variable changes where it lies, the worker looks at its value again."""
    c = make_cluster({"ps": 1, "worker": 1})
    with tf.device(PS):
        v = tf.get_variable("v", SHAPE, initializer=tf.zeros_initializer(), use_resource=resource)
    with tf.device(WORKER):
        here = tf.identity(v)
        before = tf.reduce_sum(here)
    with tf.device(PS), tf.control_dependencies([before]):
        changed = UPDATES[update](tf, v)
        with tf.control_dependencies([changed]):
            now = tf.reduce_sum(v.read_value())
    with tf.device(WORKER), tf.control_dependencies([now]):
        after = tf.reduce_sum(tf.identity(here))
    with tf.Session(c.target("worker")) as s:
        s.run(tf.global_variables_initializer())
        last = 0.0
        for _ in range(80):
            a, b, n = s.run([before, after, now])
            assert a == b
            np.testing.assert_allclose(a, last, rtol=1e-5)
            assert n != a
            last = n
    assert mapped_memories(c["worker", 0]) == 2  # its own, and the ps's


def test_off(tf, make_cluster):
    """--neighbours=off: nothing is lent."""
    c = make_cluster({"ps": 1, "worker": 1}, flags=["--neighbours=off"])
    with tf.device(PS):
        v = tf.get_variable("v", SHAPE, initializer=tf.ones_initializer(), use_resource=False)
    with tf.device(WORKER):
        total = tf.reduce_sum(tf.identity(v))
    with tf.Session(c.target("worker")) as s:
        s.run(tf.global_variables_initializer())
        for _ in range(5):
            assert s.run(total) == SHAPE[0] * SHAPE[1]
    assert not any(mapped_memories(t) for t in c.tasks.values())


def test_large_variables(tf, make_cluster):
    """A worker that reads 64 MB of a ps's has no copy of them."""
    c = make_cluster({"ps": 1, "worker": 1})
    with tf.device(PS):
        v = tf.get_variable("v", [64, 1 << 18], initializer=tf.ones_initializer(), use_resource=False)
        update = v.assign_add(tf.ones_like(v))
    with tf.device(WORKER):
        rows = tf.reduce_sum(tf.identity(v), axis=1)
    with tf.Session(c.target("worker")) as s:
        s.run(tf.global_variables_initializer())
        for n in range(1, 4):
            np.testing.assert_array_equal(s.run(rows), np.full([64], n << 18, np.float32))
            s.run(update.op)
    assert memory_kb(c["worker", 0], "RssShmem") > 60 * 1024
    assert memory_kb(c["worker", 0], "RssAnon") < 32 * 1024


@pytest.mark.parametrize("resource", [False, True], ids=["ref", "resource"])
def test_tables_move(tf, make_cluster, resource):
    """A table with sparse updates leaves the memory that is lent, without taking its own size again meanwhile."""
    c = make_cluster({"ps": 1, "worker": 1})
    with tf.device(PS):
        table = tf.get_variable("v", [1 << 16, 256], initializer=tf.ones_initializer(), use_resource=resource)
        update = tf.scatter_add(table, [1, 65535], tf.ones([2, 256]))
    with tf.device(WORKER):
        rows = tf.reduce_sum(tf.identity(table), axis=1)
    with tf.Session(c.target("worker")) as s:
        s.run(tf.global_variables_initializer())
        assert memory_kb(c["ps", 0], "RssShmem") > 60 * 1024
        s.run(tf.group(update))
        assert memory_kb(c["ps", 0], "RssShmem") < 10 * 1024
        assert memory_kb(c["ps", 0], "VmHWM") < 112 * 1024
        expected = np.full([1 << 16], 256, np.float32)
        expected[[1, 65535]] = 512
        np.testing.assert_array_equal(s.run(rows), expected)


def queue(tf):
    with tf.device(WORKER):
        return tf.FIFOQueue(1000, [tf.float32], [[512, 512]], shared_name="q")


def fill_queue(tf, c, n):
    """n tensors of 1 MB that are made on the ps, in a queue of the worker's."""
    with tf.Graph().as_default():
        q = queue(tf)
        with tf.device(PS):
            value = tf.fill([512, 512], tf.placeholder(tf.float32, [], name="x")) + tf.zeros([512, 512])
        with tf.device(WORKER):
            put = q.enqueue(value)
        with tf.Session(c.target("worker")) as s:
            for i in range(n):
                s.run(put, {"x:0": i})


def take(tf, c, n):
    with tf.Graph().as_default():
        get = queue(tf).dequeue()
        with tf.Session(c.target("worker"), config=tf.ConfigProto(device_filters=[WORKER])) as s:
            return [s.run(get) for _ in range(n)]


def test_a_lender_that_dies(tf, make_cluster):
    """What was borrowed of it stays readable, and what it becomes next lends anew."""
    c = make_cluster({"ps": 1, "worker": 1})
    fill_queue(tf, c, 100)
    c["ps", 0].kill()
    for i, t in enumerate(take(tf, c, 90)):
        np.testing.assert_array_equal(t, np.full([512, 512], i, np.float32))
    before = mapped_memories(c["worker", 0])
    take(tf, c, 10)
    wait_until(lambda: mapped_memories(c["worker", 0]) < before, what="the dead ps's memory is let go of")
    c["ps", 0].restart()
    fill_queue(tf, c, 100)
    assert [t[5, 5] for t in take(tf, c, 100)] == list(range(100))


def test_a_borrower_that_dies(tf, make_cluster):
    """The lender has its memory again."""
    c = make_cluster({"ps": 1, "worker": 1})
    fill_queue(tf, c, 100)
    assert memory_kb(c["ps", 0], "RssShmem") > 60 * 1024  # what the queue holds, but for the first few
    c["worker", 0].kill()
    wait_until(lambda: memory_kb(c["ps", 0], "RssShmem") < 10 * 1024, what="what was lent comes back")


def test_steps_that_fail_keep_nothing(tf, make_cluster):
    """Steps that are cancelled while tensors are on their way leave no loans behind."""
    c = make_cluster({"ps": 1, "worker": 1})
    with tf.device(PS):
        large = tf.random_uniform([512, 512]) + 1.0
    with tf.device(WORKER):
        bad = tf.check_numerics(tf.log(tf.placeholder(tf.float32, [], name="x")), "x")
        both = [tf.reduce_sum(large), bad]
    with tf.Session(c.target("worker")) as s:
        s.run(both, {"x:0": 1.0})
        for _ in range(300):
            with pytest.raises(tf.errors.InvalidArgumentError):
                s.run(both, {"x:0": -1.0})
        s.run(both, {"x:0": 1.0})
    wait_until(lambda: memory_kb(c["ps", 0], "RssShmem") < 10 * 1024, what="what was offered is withdrawn")
