"""Random graphs of many ops, run by TensorFlow in this process and by tensord: the same values, or both fail.

A graph grows from feeds by applying ops, picked at random, to tensors picked at random among those whose type and
rank fit. Every tensor is fetched, so that a difference names the op that made it.
"""
import numpy as np
import pytest

GRAPHS, NODES = 40, 40

UNARY = ["abs", "negative", "square", "sign", "exp", "tanh", "sigmoid", "sin", "cos", "floor", "ceil", "round", "rint",
         "log1p", "expm1", "sqrt", "rsqrt", "log", "reciprocal", "erf", "zeros_like", "ones_like", "identity", "atan", "sinh"]
UNARY_INT = ["abs", "negative", "square", "sign", "zeros_like", "ones_like", "identity"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "squared_difference", "divide", "floordiv", "floormod"]
BINARY_INT = ["add", "subtract", "multiply", "maximum", "minimum", "squared_difference"]
COMPARE = ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]
REDUCE = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"]


class Grower:
    """Grows one graph."""

    def __init__(self, tf, random):
        self.tf, self.random, self.made, self.feeds = tf, random, [], {}
        for i, dtype in enumerate(["float32", "float32", "float64", "int32", "int64"]):
            shape = tuple(random.randint(1, 5, random.randint(1, 4)))
            value = random.randn(*shape) * 2 if dtype.startswith("float") else random.randint(-9, 10, shape)
            p = tf.placeholder(dtype, shape, name="feed_%d" % i)
            self.feeds[p] = np.asarray(value, dtype)
            self.made.append(p)
        self.made.append(tf.less(self.made[0], 0.0))

    def pick(self, test=lambda t: True):
        fitting = [t for t in self.made if test(t) and t.shape.is_fully_defined() and t.shape.num_elements() <= 4096]
        return fitting[self.random.randint(len(fitting))] if fitting else None

    def is_number(self, t):
        return t.dtype in (self.tf.float32, self.tf.float64, self.tf.int32, self.tf.int64)

    def unary(self):
        t = self.pick(self.is_number)
        names = UNARY if t.dtype.is_floating else UNARY_INT
        name = names[self.random.randint(len(names))]
        f = getattr(self.tf.math, name, None) or getattr(self.tf, name)
        return f(self.tf.abs(t) + 0.5 if name in ("sqrt", "rsqrt", "log", "log1p", "reciprocal") else
                 self.tf.clip_by_value(t, -4, 4) if name in ("exp", "expm1", "sinh") else t)

    def pair(self):
        a = self.pick(self.is_number)
        b = self.pick(lambda t: t.dtype == a.dtype and (t.shape == a.shape or t.shape.ndims == 0 or
                                                       (a.shape.ndims and t.shape.ndims == 1 and t.shape[-1] in (1, a.shape[-1]))))
        return a, b

    def binary(self):
        a, b = self.pair()
        names = BINARY if a.dtype.is_floating else BINARY_INT
        name = names[self.random.randint(len(names))]
        f = getattr(self.tf.math, name, None) or getattr(self.tf, name)
        return f(a, self.tf.abs(b) + 1 if name in ("divide", "floordiv", "floormod") else b)

    def compare(self):
        a, b = self.pair()
        return getattr(self.tf, COMPARE[self.random.randint(len(COMPARE))])(a, b)

    def logic(self):
        a = self.pick(lambda t: t.dtype == self.tf.bool)
        return [self.tf.logical_not(a), self.tf.logical_and(a, a), self.tf.cast(a, self.tf.float32),
                self.tf.reduce_any(a)][self.random.randint(4)]

    def select(self):
        condition = self.pick(lambda t: t.dtype == self.tf.bool)
        a = self.pick(lambda t: t.shape == condition.shape and t.dtype != self.tf.bool)
        return None if a is None else self.tf.where(condition, a, self.tf.zeros_like(a))

    def reduce(self):
        t = self.pick(lambda t: self.is_number(t) and t.shape.ndims > 0)
        axis = self.random.randint(t.shape.ndims)
        name = REDUCE[self.random.randint(len(REDUCE))] if t.dtype.is_floating else REDUCE[self.random.choice([0, 2, 3])]
        return getattr(self.tf, name)(t, axis if self.random.rand() < 0.7 else None, keepdims=bool(self.random.randint(2)))

    def arg(self):
        t = self.pick(lambda t: self.is_number(t) and t.shape.ndims > 0)
        return (self.tf.argmax, self.tf.argmin)[self.random.randint(2)](t, self.random.randint(t.shape.ndims))

    def shape(self):
        tf, t = self.tf, self.pick(lambda t: t.shape.ndims > 0)
        n = t.shape.ndims
        which = self.random.randint(11)
        axis = self.random.randint(n)
        if which == 0:
            return tf.reshape(t, [-1])
        if which == 1:
            return tf.transpose(t, list(self.random.permutation(n)))
        if which == 2:
            return tf.expand_dims(t, axis)
        if which == 3:
            return tf.concat([t, t], axis)
        if which == 4:
            return tf.stack([t, t], axis)
        if which == 5:
            return tf.tile(t, self.random.randint(1, 3, n))
        if which == 6:
            return tf.reverse(t, [axis])
        if which == 7:
            return tf.gather(t, self.random.randint(0, int(t.shape[axis]), 3), axis=axis)
        if which == 8:
            return tf.pad(tf.cast(t, tf.float32), [[self.random.randint(2), self.random.randint(2)] for _ in range(n)])
        if which == 9:
            return tf.shape(t)
        return t[tuple(slice(self.random.randint(2), None, self.random.randint(1, 3)) for _ in range(n))]

    def matmul(self):
        tf, a = self.tf, self.pick(lambda t: t.dtype.is_floating and t.shape.ndims == 2)
        return None if a is None else tf.matmul(a, a, transpose_a=True) if self.random.randint(2) else tf.matmul(a, a, transpose_b=True)

    def softmax(self):
        t = self.pick(lambda t: t.dtype.is_floating and t.shape.ndims > 0)
        return (self.tf.nn.softmax, self.tf.nn.log_softmax)[self.random.randint(2)](self.tf.clip_by_value(t, -20, 20))

    def cast(self):
        t = self.pick(self.is_number)
        to = ["float32", "float64", "int32", "int64"][self.random.randint(4)]
        return self.tf.cast(self.tf.clip_by_value(t, -1000, 1000), to)

    def grow(self):
        kinds = [self.unary] * 4 + [self.binary] * 4 + [self.shape] * 5 + [self.reduce] * 2 + [
            self.compare, self.logic, self.select, self.arg, self.matmul, self.softmax, self.cast]
        while len(self.made) < NODES:
            t = kinds[self.random.randint(len(kinds))]()
            if t is not None and (t.shape.num_elements() or 0) > 0:
                self.made.append(t)


def same(a, b, dtype):
    """Equal, NaN and infinities included; floating point within a tolerance that many ops in a row may use up."""
    if not dtype.is_floating:
        return np.array_equal(a, b)
    rtol = 2e-3 if dtype.size == 4 else 1e-7
    with np.errstate(all="ignore"):
        scale = np.nanmax(np.abs(b[np.isfinite(b)])) if np.isfinite(b).any() else 1.0
    return np.allclose(a, b, rtol=rtol, atol=rtol * 1e-2 * max(scale, 1e-3), equal_nan=True)


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_random_graph(tf, trio, seed):
    random = np.random.RandomState(seed)
    g = Grower(tf, random)
    g.grow()
    wanted = g.made[len(g.feeds):]
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Session(config=config) as s:
        theirs = s.run(wanted, g.feeds)
    values = {t.name: v for t, v in zip(wanted, theirs)}
    tasks = ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"]
    devices = {}

    def spread(op):
        return devices.setdefault(op.name, tasks[random.randint(3)])
    graph_def = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default() as spread_graph, tf.device(spread):
        tf.import_graph_def(graph_def, name="")
        with tf.Session(trio.target("worker", 0), config=config) as s:
            ours = s.run([t.name for t in wanted], {p.name: v for p, v in g.feeds.items()})
            different = []
            for t, a, b in zip(wanted, ours, theirs):
                assert a.dtype == b.dtype and a.shape == b.shape, t
                if same(a, b, t.dtype):
                    continue
                # once more with exactly TensorFlow's inputs
                inputs = {i.name: values[i.name] for i in t.op.inputs if i.name in values}
                feed = dict({p.name: v for p, v in g.feeds.items()}, **inputs)
                again = s.run(t.name, feed)
                if not same(again, b, t.dtype):
                    different.append("%s of %s: %s\n tensord %s\n TensorFlow %s" % (
                        t.name, t.op.type, [values.get(i.name) for i in t.op.inputs], again, b))
    del spread_graph
    assert not different, "\n".join(different)[:4000]
