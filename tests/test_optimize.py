"""Graphs that tensord optimises give what they give as written, and what TensorFlow gives; who wants every node gets it."""
import numpy as np
import pytest

from cluster_fixture import Cluster
from test_differential import Grower, same

TASKS = ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"]


def plain(tf):
    """Every written node runs."""
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    return config


class ConstantGrower(Grower):
    """Constants among the feeds, nodes written twice, control edges, conds and loops."""

    def __init__(self, tf, random):
        super().__init__(tf, random)
        for p, value in list(self.feeds.items()):
            for _ in range(2):
                self.made.append(tf.constant(value))
        self.fetches = []

    def twice(self):
        a, b = self.pair()
        first, again = a + b, a + b
        return first * again

    def ordered(self):
        t, before = self.pick(self.is_number), self.pick()
        with self.tf.control_dependencies([before]):
            return self.tf.identity(t) + self.tf.constant(1, t.dtype)

    def tuple(self):
        a, b = self.pair()
        return sum(self.tf.tuple([self.tf.abs(a), self.tf.abs(b)]))

    def cond(self):
        tf, t, pred = self.tf, self.pick(self.is_number), self.pick(lambda t: t.dtype == self.tf.bool)
        two = tf.constant(2, t.dtype)
        return tf.cond(tf.reduce_any(pred), lambda: t * two + tf.constant(1, t.dtype) * two, lambda: t - tf.zeros_like(two) * 3)

    def loop(self):
        tf, t = self.tf, self.pick(lambda t: t.dtype.is_floating)
        half = tf.constant(0.5, t.dtype)

        def body(i, x):
            return i + 1, x * half + tf.reduce_sum(tf.ones([2, 2], t.dtype)) * half
        return tf.while_loop(lambda i, x: i < 4, body, [0, t])[1]

    def grow(self):
        extra = [self.twice, self.ordered, self.tuple, self.cond, self.loop]
        nodes = len(self.made) + 10
        for _ in range(3):
            while len(self.made) < nodes:
                t = extra[self.random.randint(len(extra))]()
                if t is not None:
                    self.made.append(t)
            nodes += 15
            super().grow()
            nodes = max(nodes, len(self.made) + 5)


@pytest.fixture(scope="module")
def written():
    """Servers that optimise nothing."""
    with Cluster({"ps": 1, "worker": 2}, flags=["--optimize=off"]) as c:
        yield c


def spread(tf, graph_def, random):
    devices = {}
    graph = tf.Graph()
    with graph.as_default(), tf.device(lambda op: devices.setdefault(op.name, TASKS[random.randint(3)])):
        tf.import_graph_def(graph_def, name="")
    return graph


@pytest.mark.parametrize("seed", range(12))
def test_same_values(tf, trio, written, seed):
    tf.disable_control_flow_v2() if seed % 2 else tf.enable_control_flow_v2()
    try:
        random = np.random.RandomState(1000 + seed)
        g = ConstantGrower(tf, random)
        g.grow()
    finally:
        tf.disable_control_flow_v2()
    wanted = [g.made[i] for i in random.permutation(len(g.made))[:15]] + g.made[-3:]
    wanted = [t for t in dict.fromkeys(wanted) if t not in g.feeds]
    feeds = {p.name: v for p, v in g.feeds.items()}
    names = [t.name for t in wanted]
    with tf.Session(config=plain(tf)) as s:
        theirs = s.run(names, feeds)
    graph = spread(tf, tf.get_default_graph().as_graph_def(), random)
    scheduled = tf.ConfigProto()
    scheduled.graph_options.enable_recv_scheduling = seed % 3 == 0
    with tf.Session(trio.target("worker", 0), graph=graph, config=scheduled) as s:
        ours = s.run(names, feeds)
    with tf.Session(trio.target("worker", 0), graph=graph, config=plain(tf)) as s:
        level_0 = s.run(names, feeds)
    with tf.Session(written.target("worker", 0), graph=graph) as s:
        switched_off = s.run(names, feeds)
    for t, a, b, c, d in zip(wanted, ours, level_0, switched_off, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape == d.shape, t
        np.testing.assert_array_equal(b, c, str(t))
        assert same(a, b, t.dtype), "%s optimised: %s, as written: %s" % (t, a, b)
        assert same(b, d, t.dtype), "%s: %s, TensorFlow: %s" % (t, b, d)


BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "pow", "squared_difference", "floordiv", "floormod",
          "greater", "greater_equal", "less", "not_equal", "atan2"]


def test_constants_of_one_value(tf, trio, written):
    """Either operand, beside tensors of its shape and of others that it is repeated along, or that are repeated along it."""
    random = np.random.RandomState(3)
    feeds, wanted = {}, []
    for shape in ([48, 64], [48, 1], [64], [], [1, 1], [2, 48, 64]):
        x = tf.placeholder(tf.float32, shape)
        feeds[x] = np.asarray(random.rand(*shape) + 0.5, np.float32)
        for value in (2.0, 0.75):
            c = tf.zeros([48, 64]) + value
            for name in BINARY:
                f = getattr(tf.math, name)
                wanted += [f(x, c), f(c, x)]
    with tf.Session(config=plain(tf)) as s:
        theirs = s.run(wanted, feeds)
    for c in (trio, written):
        with tf.Session(c.target("worker")) as s:
            for t, a, b in zip(wanted, s.run(wanted, feeds), theirs):
                assert a.dtype == b.dtype and a.shape == b.shape, t
                assert same(a, b, t.dtype), "%s: %s, TensorFlow: %s" % (t, a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_products_with_two_constants(tf, trio, written, dtype):
    """One product or two: not a bit changes, whatever the constants."""
    random = np.random.RandomState(4)
    x = tf.placeholder(dtype, [3, 50])
    wanted = []
    for a in (2, 1, 8, -4, 3, 0, 1e-3, 1e30, random.rand(3, 1) * 5, random.rand(50) - 0.5, np.full([3, 50], 2)):
        for b in (2, 16, 3, 0.5, -2, 1e35, np.full([50], 4), random.rand(3, 50)):
            a_, b_ = (tf.constant(np.asarray(np.clip(v, -1e9, 1e9) if dtype == "int32" else v).astype(dtype)) for v in (a, b))
            wanted += [a_ * (x * b_), (b_ * x) * a_]
    values = {x: (random.randn(3, 50) * 10.0 ** random.randint(-4, 5, [3, 50])).astype(dtype)}
    with tf.Session(trio.target("worker")) as s:
        ours = s.run(wanted, values)
    with tf.Session(written.target("worker")) as s:
        as_written = s.run(wanted, values)
    for t, a, b in zip(wanted, ours, as_written):
        np.testing.assert_array_equal(a, b, str(t))


def traced(tf, target, config):
    """Names of the nodes that a step ran, by the last part of their device."""
    with tf.Graph().as_default():
        a = tf.constant([1.0, 2.0], name="a")
        b = tf.negative(a, name="b")
        v = tf.placeholder(tf.float32, [2], name="v")
        c = tf.add(b, v, name="c")
        d = tf.add(b, v, name="d")
        e = tf.identity(tf.multiply(c, d, name="e0"), name="e")
        f = tf.negative(e, name="f")
        options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
        with tf.Session(target, config=config) as s:
            assert list(s.run(f, {v: [3.0, 4.0]}, options=options, run_metadata=metadata)) == [-4.0, -4.0]
    return {n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats} & set("a b c d e e0 f".split())


def test_step_statistics_show_what_runs(tf, local, written):
    everything = {"a", "b", "c", "d", "e", "e0", "f"}
    assert traced(tf, local.target("local"), None) == {"b", "c", "e0", "f"}
    assert traced(tf, local.target("local"), plain(tf)) == everything
    assert traced(tf, written.target("worker"), None) == everything
    only_folding = plain(tf)
    only_folding.graph_options.rewrite_options.disable_meta_optimizer = False
    only_folding.graph_options.optimizer_options.do_constant_folding = True
    assert traced(tf, local.target("local"), only_folding) == everything - {"a"}


def test_errors_stay(tf, local):
    """What fails fails in the step that needs it, under its name."""
    zero = tf.constant(0, name="zero")
    bad = tf.floordiv(tf.constant(1), zero, name="bad")
    with tf.Session(local.target("local")) as s:
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
            s.run(bad)
        assert s.run(tf.cond(tf.placeholder_with_default(False, []), lambda: tf.constant(1) // zero, lambda: zero + 7)) == 7
