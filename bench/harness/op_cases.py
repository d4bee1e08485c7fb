"""The operations of the part `op`: those that training uses, by what they work on, at three sizes.

A case is a function of an Inputs and the size's number (0, 1, 2) that returns a function of an instance's number that
adds the operation to the graph.
"""
SIZES = ("small", "medium", "large")
CASES = {}          # name -> case
PRIMITIVES = {}     # name -> function of the size's number: the arguments of build/primitive_bench for the same work


class Inputs:
    """What operations work on: variables with random values (nothing is known when the graph is compiled), read once."""

    def __init__(self, t):
        self.t, self.reads, self.variables, self.constants = t, [], 0, {}
        self.raw = t.raw_ops if hasattr(t, "raw_ops") else __import__("tensorflow").raw_ops

    def variable(self, shape, low=-1.0, high=1.0, dtype="float32"):
        t = self.t
        make = dtype if dtype in ("float32", "float64", "int32", "int64") else "float32"
        value = t.random_uniform(shape, low, high, dtype=make)
        if dtype == "bool":
            value = value > 0
        elif dtype != make:
            value = t.cast(value, dtype)
        return self._named(value)

    def _named(self, value):
        self.variables += 1
        return self.t.get_variable("v%d" % self.variables, initializer=value)

    def __call__(self, *shape, **how):
        read = self.variable(shape, **how).read_value()
        self.reads.append(read)
        return read

    def indices(self, shape, limit):
        return self(*shape, low=0, high=limit, dtype="int32")

    def ref(self, *shape):
        """A variable to write."""
        return self._named(self.t.fill(shape, 0.5))._ref()

    def c(self, value):
        """A constant that all instances share: shapes, axes, rates."""
        key = repr(value)
        if key not in self.constants:
            self.constants[key] = self.t.constant(value)
        return self.constants[key]


def case(name):
    def add(fn):
        CASES[name] = fn
        return fn
    return add


def primitive(name):
    def add(fn):
        PRIMITIVES[name] = fn
        return fn
    return add


def count(size):
    return (1 << 10, 1 << 15, 1 << 20)[size]


def matrix(size):
    return ((32, 32), (256, 128), (1024, 1024))[size]


# ---- element by element ----

def unary(op, low=-1.0, high=1.0, dtype="float32", **attrs):
    @case(op)
    def build(x, size):
        a = x(count(size), low=low, high=high, dtype=dtype)
        key = {"Relu": "features", "Elu": "features", "Softplus": "features"}.get(op, "x")
        return lambda i: getattr(x.raw, op)(**dict(attrs, **{key: a}))


def binary(op, name=None, keys=("x", "y"), low=-1.0, high=1.0, dtype="float32", **attrs):
    @case(name or op)
    def build(x, size):
        a, b = (x(count(size), low=low, high=high, dtype=dtype) for _ in range(2))
        return lambda i: getattr(x.raw, op)(**dict(attrs, **{keys[0]: a, keys[1]: b}))


for _op in ("Neg", "Abs", "Square", "Exp", "Tanh", "Sigmoid", "Relu", "Elu", "Softplus", "Sign", "Floor", "Sin", "Erf"):
    unary(_op)
for _op in ("Sqrt", "Rsqrt", "Log", "Reciprocal"):
    unary(_op, low=0.1, high=4.0)
for _op in ("AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference", "Less", "GreaterEqual", "Equal"):
    binary(_op, low=0.5, high=2.0)
binary("Pow", low=0.5, high=2.0)
binary("FloorMod", dtype="int32", low=1, high=1000)
binary("LogicalAnd", dtype="bool")
binary("AddV2", "AddV2 int64", dtype="int64", low=0, high=1000)
binary("TanhGrad", keys=("y", "dy"))
binary("SigmoidGrad", keys=("y", "dy"))
binary("ReluGrad", keys=("gradients", "features"))


@case("AddN")
def _(x, size):
    parts = [x(count(size)) for _ in range(4)]
    return lambda i: x.raw.AddN(inputs=parts)


@case("AddV2 of a row")
def _(x, size):
    a, b = x(*matrix(size)), x(matrix(size)[1])
    return lambda i: x.raw.AddV2(x=a, y=b)


@case("Mul by a scalar")
def _(x, size):
    a, b = x(count(size)), x()
    return lambda i: x.raw.Mul(x=a, y=b)


@case("Select")
def _(x, size):
    c, a, b = x(count(size), dtype="bool"), x(count(size)), x(count(size))
    return lambda i: x.raw.Select(condition=c, x=a, y=b)


@case("L2Loss")
def _(x, size):
    a = x(count(size))
    return lambda i: x.raw.L2Loss(t=a)


def cast(source, to):
    @case("Cast %s to %s" % (source, to))
    def build(x, size):
        a = x(count(size), low=0, high=100, dtype=source)
        return lambda i: x.raw.Cast(x=a, DstT=x.t.as_dtype(to))


cast("float32", "int32")
cast("int32", "float32")
cast("float32", "float16")
cast("bool", "float32")
cast("int64", "int32")


# ---- reductions ----

def reduction(op, axes, name, dtype="float32"):
    @case("%s %s" % (op, name))
    def build(x, size):
        a = x(*matrix(size), dtype=dtype)
        return lambda i: getattr(x.raw, op)(input=a, axis=x.c(axes), keep_dims=False)


for _op in ("Sum", "Mean", "Max"):
    reduction(_op, [0, 1], "of all")
    reduction(_op, [0], "of columns")
    reduction(_op, [1], "of rows")
reduction("All", [0, 1], "of all", dtype="bool")


@case("ArgMax")
def _(x, size):
    a = x(*matrix(size))
    return lambda i: x.raw.ArgMax(input=a, dimension=x.c(1))


@case("Cumsum")
def _(x, size):
    a = x(*matrix(size))
    return lambda i: x.raw.Cumsum(x=a, axis=x.c(1))


# ---- products and convolutions ----

HANDED_OVER = 200000  # multiplications from which on tensord gives a product to its pool (COSTLY_NS, work_ns() of MatMul)


def bare_product(m, n, k, transposes="NN"):
    """Arguments of the bare primitive: on one thread where the products of a step follow each other on one."""
    threads = ["--threads", "1"] if m * n * k < HANDED_OVER else []
    return ["matmul"] + list(transposes) + [str(v) for v in (m, n, k)] + threads


def square(size):
    return (64, 256, 1024)[size]


def product(name, **attrs):
    @case(name)
    def build(x, size):
        n = square(size)
        a, b = x(n, n), x(n, n)
        return lambda i: x.raw.MatMul(a=a, b=b, **attrs)

    @primitive(name)
    def _(size):
        n = square(size)
        return bare_product(n, n, n, "".join("T" if attrs.get(a) else "N" for a in ("transpose_a", "transpose_b")))


product("MatMul")
product("MatMul of a transposed", transpose_a=True)
product("MatMul by a transposed", transpose_b=True)


def layer(size):
    return ((16, 64, 32), (128, 512, 512), (128, 2048, 2048))[size]


@case("MatMul of a layer")
def _(x, size):
    m, k, n = layer(size)
    a, b = x(m, k), x(k, n)
    return lambda i: x.raw.MatMul(a=a, b=b)


@primitive("MatMul of a layer")
def _(size):
    m, k, n = layer(size)
    return bare_product(m, n, k)


@case("BatchMatMulV2")
def _(x, size):
    n, batch = (8, 32, 128)[size], 32
    a, b = x(batch, n, n), x(batch, n, n)
    return lambda i: x.raw.BatchMatMulV2(x=a, y=b)


def image(size):
    """Batch, height and width, channels in and out; filters are 3 x 3."""
    return ((8, 8, 16, 16), (16, 16, 32, 32), (16, 32, 32, 64))[size]


WINDOW = {"strides": [1, 1, 1, 1], "padding": "SAME"}
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}


@case("Conv2D")
def _(x, size):
    n, s, c, k = image(size)
    a, w = x(n, s, s, c), x(3, 3, c, k)
    return lambda i: x.raw.Conv2D(input=a, filter=w, **WINDOW)


@case("Conv2DBackpropInput")
def _(x, size):
    n, s, c, k = image(size)
    w, g = x(3, 3, c, k), x(n, s, s, k)
    return lambda i: x.raw.Conv2DBackpropInput(input_sizes=x.c([n, s, s, c]), filter=w, out_backprop=g, **WINDOW)


@case("Conv2DBackpropFilter")
def _(x, size):
    n, s, c, k = image(size)
    a, g = x(n, s, s, c), x(n, s, s, k)
    return lambda i: x.raw.Conv2DBackpropFilter(input=a, filter_sizes=x.c([3, 3, c, k]), out_backprop=g, **WINDOW)


for _op, _kind in (("Conv2D", "forward"), ("Conv2DBackpropInput", "input"), ("Conv2DBackpropFilter", "filter")):
    primitive(_op)(lambda size, kind=_kind: ["conv", kind] + [str(v) for v in image(size)])


@case("DepthwiseConv2dNative")
def _(x, size):
    n, s, c, _ = image(size)
    a, w = x(n, s, s, c), x(3, 3, c, 1)
    return lambda i: x.raw.DepthwiseConv2dNative(input=a, filter=w, **WINDOW)


# ---- layers ----

@case("MaxPool")
def _(x, size):
    n, s, c, _ = image(size)
    a = x(n, s, s, c)
    return lambda i: x.raw.MaxPool(input=a, **POOL)


@case("MaxPoolGrad")
def _(x, size):
    n, s, c, _ = image(size)
    a = x(n, s, s, c)
    b = x.t.nn.max_pool(a, POOL["ksize"], POOL["strides"], POOL["padding"])
    g = x(n, s // 2, s // 2, c)
    x.reads.append(b)
    return lambda i: x.raw.MaxPoolGrad(orig_input=a, orig_output=b, grad=g, **POOL)


@case("AvgPool")
def _(x, size):
    n, s, c, _ = image(size)
    a = x(n, s, s, c)
    return lambda i: x.raw.AvgPool(value=a, **POOL)


@case("AvgPoolGrad")
def _(x, size):
    n, s, c, _ = image(size)
    g = x(n, s // 2, s // 2, c)
    return lambda i: x.raw.AvgPoolGrad(orig_input_shape=x.c([n, s, s, c]), grad=g, **POOL)


@case("FusedBatchNorm")
def _(x, size):
    n, s, c, _ = image(size)
    a, scale, offset, none = x(n, s, s, c), x(c), x(c), x.t.constant([], x.t.float32)
    return lambda i: x.raw.FusedBatchNorm(x=a, scale=scale, offset=offset, mean=none, variance=none, is_training=True)


@case("BiasAdd")
def _(x, size):
    n, s, c, _ = image(size)
    a, b = x(n, s, s, c), x(c)
    return lambda i: x.raw.BiasAdd(value=a, bias=b)


@case("BiasAddGrad")
def _(x, size):
    n, s, c, _ = image(size)
    g = x(n, s, s, c)
    return lambda i: x.raw.BiasAddGrad(out_backprop=g)


def logits(size):
    return ((32, 10), (256, 100), (1024, 1000))[size]


for _op in ("Softmax", "LogSoftmax"):
    @case(_op)
    def _(x, size, op=_op):
        a = x(*logits(size))
        return lambda i: getattr(x.raw, op)(logits=a)


@case("SoftmaxCrossEntropyWithLogits")
def _(x, size):
    a, b = x(*logits(size)), x(*logits(size), low=0.0, high=0.01)
    return lambda i: x.raw.SoftmaxCrossEntropyWithLogits(features=a, labels=b)


@case("SparseSoftmaxCrossEntropyWithLogits")
def _(x, size):
    rows, classes = logits(size)
    a, b = x(rows, classes), x.indices([rows], classes)
    return lambda i: x.raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=b)


@case("TopKV2")
def _(x, size):
    a = x(*logits(size))
    return lambda i: x.raw.TopKV2(input=a, k=x.c(5))


@case("InTopKV2")
def _(x, size):
    rows, classes = logits(size)
    a, b = x(rows, classes), x.indices([rows], classes)
    return lambda i: x.raw.InTopKV2(predictions=a, targets=b, k=x.c(5))


# ---- arrays ----

@case("ConcatV2 of rows")
def _(x, size):
    parts = [x(*matrix(size)) for _ in range(4)]
    return lambda i: x.raw.ConcatV2(values=parts, axis=x.c(0))


@case("ConcatV2 of columns")
def _(x, size):
    parts = [x(*matrix(size)) for _ in range(4)]
    return lambda i: x.raw.ConcatV2(values=parts, axis=x.c(1))


@case("Split")
def _(x, size):
    a = x(*matrix(size))
    return lambda i: x.raw.Split(axis=x.c(1), value=a, num_split=4)[0].op


@case("Pack")
def _(x, size):
    parts = [x(count(size)) for _ in range(4)]
    return lambda i: x.raw.Pack(values=parts, axis=0)


@case("Unpack")
def _(x, size):
    a = x(4, count(size))
    return lambda i: x.raw.Unpack(value=a, num=4)[0].op


@case("Transpose")
def _(x, size):
    a = x(*matrix(size))
    return lambda i: x.raw.Transpose(x=a, perm=x.c([1, 0]))


@case("Transpose of images")
def _(x, size):
    n, s, c, _ = image(size)
    a = x(n, s, s, c)
    return lambda i: x.raw.Transpose(x=a, perm=x.c([0, 3, 1, 2]))


@case("Slice")
def _(x, size):
    rows, columns = matrix(size)
    a = x(rows, columns)
    return lambda i: x.raw.Slice(input=a, begin=x.c([1, 1]), size=x.c([rows - 2, columns - 2]))


@case("StridedSlice")
def _(x, size):
    rows, columns = matrix(size)
    a = x(rows, columns)
    return lambda i: x.raw.StridedSlice(input=a, begin=x.c([0, 0]), end=x.c([rows, columns]), strides=x.c([1, 2]))


@case("StridedSliceGrad")
def _(x, size):
    rows, columns = matrix(size)
    g = x(rows, columns // 2)
    return lambda i: x.raw.StridedSliceGrad(shape=x.c([rows, columns]), begin=x.c([0, 0]), end=x.c([rows, columns]), strides=x.c([1, 2]), dy=g)


@case("Pad")
def _(x, size):
    a = x(*matrix(size))
    return lambda i: x.raw.Pad(input=a, paddings=x.c([[1, 1], [1, 1]]))


@case("Tile")
def _(x, size):
    a = x(matrix(size)[1])
    return lambda i: x.raw.Tile(input=a, multiples=x.c([matrix(size)[0]]))


@case("Fill")
def _(x, size):
    v = x()
    return lambda i: x.raw.Fill(dims=x.c([count(size)]), value=v)


@case("ZerosLike")
def _(x, size):
    a = x(count(size))
    return lambda i: x.raw.ZerosLike(x=a)


@case("Reshape")
def _(x, size):
    a = x(*matrix(size))
    return lambda i: x.raw.Reshape(tensor=a, shape=x.c([-1]))


@case("ReverseV2")
def _(x, size):
    a = x(*matrix(size))
    return lambda i: x.raw.ReverseV2(tensor=a, axis=x.c([1]))


@case("OneHot")
def _(x, size):
    rows, classes = logits(size)
    a = x.indices([rows], classes)
    return lambda i: x.raw.OneHot(indices=a, depth=x.c(classes), on_value=x.c(1.0), off_value=x.c(0.0))


@case("Range")
def _(x, size):
    limit = x(low=count(size), high=count(size) + 1, dtype="int32")
    return lambda i: x.raw.Range(start=x.c(0), limit=limit, delta=x.c(1))


@case("Where")
def _(x, size):
    a = x(count(size), dtype="bool")
    return lambda i: x.raw.Where(condition=a)


# ---- by index ----

WIDTH = 32


def rows(size):
    """Rows of a table, and how many are picked."""
    return ((1000, 32), (4000, 1024), (16000, 16384))[size]


@case("GatherV2")
def _(x, size):
    table, picked = rows(size)
    a, b = x(table, WIDTH), x.indices([picked], table)
    return lambda i: x.raw.GatherV2(params=a, indices=b, axis=x.c(0))


@case("GatherNd")
def _(x, size):
    table, picked = rows(size)
    a, b = x(table, WIDTH), x.indices([picked, 1], table)
    return lambda i: x.raw.GatherNd(params=a, indices=b)


@case("ScatterNd")
def _(x, size):
    table, picked = rows(size)
    a, b = x(picked, WIDTH), x.indices([picked, 1], table)
    return lambda i: x.raw.ScatterNd(indices=b, updates=a, shape=x.c([table, WIDTH]))


@case("UnsortedSegmentSum")
def _(x, size):
    table, picked = rows(size)
    a, b = x(picked, WIDTH), x.indices([picked], table)
    return lambda i: x.raw.UnsortedSegmentSum(data=a, segment_ids=b, num_segments=x.c(table))


@case("SegmentSum")
def _(x, size):
    _, picked = rows(size)
    a = x(picked, WIDTH)
    ids = x.t.range(picked) // 4
    x.reads.append(ids)
    return lambda i: x.raw.SegmentSum(data=a, segment_ids=ids)


@case("Unique")
def _(x, size):
    table, picked = rows(size)
    a = x.indices([picked], table)
    return lambda i: x.raw.Unique(x=a)


@case("DynamicPartition")
def _(x, size):
    _, picked = rows(size)
    a, b = x(picked, WIDTH), x.indices([picked], 4)
    return lambda i: x.raw.DynamicPartition(data=a, partitions=b, num_partitions=4)[0].op


@case("DynamicStitch")
def _(x, size):
    _, picked = rows(size)
    data = [x(picked, WIDTH) for _ in range(2)]
    where = [x.t.range(picked), x.t.range(picked) + picked]
    x.reads.extend(where)
    return lambda i: x.raw.DynamicStitch(indices=where, data=data)


@case("ScatterAdd")
def _(x, size):
    table, picked = rows(size)
    a, b = x(picked, WIDTH), x.indices([picked], table)
    return lambda i: x.raw.ScatterAdd(ref=x.ref(table, WIDTH), indices=b, updates=a)


# ---- training: an instance has variables of its own ----

def weights(size):
    return (1 << 10, 1 << 15, 1 << 18)[size]


def dense(op, slots, **rates):
    """slots: the names of the variables beside `var`."""
    @case(op)
    def build(x, size):
        n = weights(size)
        g, scalars = x(n), {k: x.c(v) for k, v in rates.items()}

        def make(i):
            refs = {slot: x.ref(n) for slot in ("var",) + slots}
            return getattr(x.raw, op)(**dict(scalars, grad=g, **refs))
        return make


@case("ApplyGradientDescent")
def _(x, size):
    n = weights(size)
    g = x(n)
    return lambda i: x.raw.ApplyGradientDescent(var=x.ref(n), alpha=x.c(0.01), delta=g)


dense("ApplyMomentum", ("accum",), lr=0.01, momentum=0.9)
dense("ApplyAdagrad", ("accum",), lr=0.01)
dense("ApplyRMSProp", ("ms", "mom"), lr=0.01, rho=0.9, momentum=0.1, epsilon=1e-8)
dense("ApplyAdam", ("m", "v"), lr=0.01, beta1_power=0.9, beta2_power=0.99, beta1=0.9, beta2=0.99, epsilon=1e-8)


def sparse(op, slots, **rates):
    @case(op)
    def build(x, size):
        table, picked = rows(size)
        g, at, scalars = x(picked, WIDTH), x.indices([picked], table), {k: x.c(v) for k, v in rates.items()}

        def make(i):
            refs = {slot: x.ref(table, WIDTH) for slot in ("var",) + slots}
            return getattr(x.raw, op)(**dict(scalars, grad=g, indices=at, **refs))
        return make


sparse("SparseApplyAdagrad", ("accum",), lr=0.01)
sparse("SparseApplyMomentum", ("accum",), lr=0.01, momentum=0.9)


@case("Assign")
def _(x, size):
    n = weights(size)
    a = x(n)
    return lambda i: x.raw.Assign(ref=x.ref(n), value=a)


@case("AssignAdd")
def _(x, size):
    n = weights(size)
    a = x(n)
    return lambda i: x.raw.AssignAdd(ref=x.ref(n), value=a)


# ---- random numbers ----

for _op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
    @case(_op)
    def _(x, size, op=_op):
        return lambda i: getattr(x.raw, op)(shape=x.c([count(size)]), dtype=x.t.float32, seed=1, seed2=i + 1)


@case("RandomUniformInt")
def _(x, size):
    return lambda i: x.raw.RandomUniformInt(shape=x.c([count(size)]), minval=x.c(0), maxval=x.c(1000), seed=1, seed2=i + 1)
