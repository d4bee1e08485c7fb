"""Writes src/ops/nn_vectors.inc: small cases of neural-network ops with the values that TensorFlow computes.

Run with TensorFlow 1.15 (the values in the tree come from 1.15.5):  python nn_vectors.py > ../../src/ops/nn_vectors.inc
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

R, tf = tf.raw_ops, tf.compat.v1
rng = np.random.RandomState(3)
f32, f64, f16, i32, i64 = np.float32, np.float64, np.float16, np.int32, np.int64
NAMES = {f32: "FLOAT", f64: "DOUBLE", f16: "HALF", i32: "INT32", i64: "INT64", np.uint8: "UINT8"}


def literal(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return "'%s'" % v
    if isinstance(v, (list, tuple)):
        return "[" + ", ".join(literal(x) for x in v) + "]"
    return v.name if isinstance(v, tf.DType) else repr(v)


def tensor(a):
    a = np.asarray(a)
    form = "%d" if a.dtype.kind != "f" else "%.16g" if a.dtype == f64 else "%.9g"
    values = " ".join(form % x for x in a.ravel())
    return '{TD_%s, "[%s]", "%s"}' % (NAMES[a.dtype.type], ",".join(map(str, a.shape)), values)


def case(op, names, inputs, types, tolerance=1e-5, **attrs):
    with tf.Graph().as_default(), tf.Session() as session:
        feeds = [tf.placeholder(x.dtype) for x in inputs]
        y = getattr(R, op)(**dict(zip(names, feeds)), **attrs)
        out = session.run(list(y) if isinstance(y, tuple) else [y], dict(zip(feeds, inputs)))
    text = "; ".join("%s: %s" % (k, literal(v)) for k, v in list(types.items()) + sorted(attrs.items()))
    print('{"%s", "%s", %g, %d, %d,' % (op, text, tolerance, len(inputs), len(out)))
    print(" {" + ",\n  ".join(tensor(x) for x in inputs) + "},")
    print(" {" + ",\n  ".join(tensor(x) for x in out) + "}},")


def real(t, *shape):
    x = rng.randn(*shape) if np.dtype(t).kind == "f" else rng.randint(0, 20, size=shape)
    return np.round(x, 3).astype(t) if np.dtype(t).kind == "f" else x.astype(t)


def ints(*values):
    return np.array(values, i32)


print("/* Written by tests/vectors/nn_vectors.py with TensorFlow %s. */" % tf.__version__)
for t, tol in ((f32, 1e-5), (f64, 1e-12), (f16, 2e-3), (i32, 0)):
    T = {"T": tf.as_dtype(t)}
    case("MatMul", ["a", "b"], [real(t, 2, 3), real(t, 3, 4)], T, tol)
    case("MatMul", ["a", "b"], [real(t, 3, 2), real(t, 4, 3)], T, tol, transpose_a=True, transpose_b=True)
    case("BatchMatMulV2", ["x", "y"], [real(t, 2, 1, 2, 3), real(t, 2, 2, 3)], T, tol, adj_y=True)
    case("BiasAdd", ["value", "bias"], [real(t, 2, 2, 3), real(t, 3)], T, tol)
    case("BiasAddGrad", ["out_backprop"], [real(t, 2, 3, 2, 2)], T, tol * 4, data_format="NCHW")
    pool = dict(ksize=[1, 2, 3, 1], strides=[1, 2, 1, 1], padding="SAME")
    x, y = real(t, 1, 3, 4, 2), real(t, 1, 2, 4, 2)
    case("MaxPool", ["input"], [x], T, 0, **pool)
    case("MaxPoolGrad", ["orig_input", "orig_output", "grad"], [x, y, real(t, 1, 2, 4, 2)], T, tol * 4, **pool)
    case("MaxPoolWithArgmax", ["input"], [x], dict(T, Targmax=tf.int64), 0, include_batch_in_index=True, **pool)
    if t == i32:
        continue
    case("AvgPool", ["value"], [x], T, tol, **pool)
    case("AvgPoolGrad", ["orig_input_shape", "grad"], [ints(1, 3, 4, 2), real(t, 1, 2, 4, 2)], T, tol * 4, **pool)
    conv = dict(strides=[1, 2, 1, 1], padding="SAME")
    x, f, g = real(t, 2, 3, 3, 2), real(t, 2, 3, 2, 3), real(t, 2, 2, 3, 3)
    case("Conv2D", ["input", "filter"], [x, f], T, tol * 10, **conv)
    case("Conv2DBackpropInput", ["input_sizes", "filter", "out_backprop"], [ints(2, 3, 3, 2), f, g], T, tol * 10, **conv)
    case("Conv2DBackpropFilter", ["input", "filter_sizes", "out_backprop"], [x, ints(2, 3, 2, 3), g], T, tol * 20, **conv)
    conv = dict(strides=[1, 2, 2, 1], padding="VALID")
    x, f, g = real(t, 1, 4, 4, 2), real(t, 2, 3, 2, 2), real(t, 1, 2, 1, 4)
    case("DepthwiseConv2dNative", ["input", "filter"], [x, f], T, tol * 10, **conv)
    case("DepthwiseConv2dNativeBackpropInput", ["input_sizes", "filter", "out_backprop"], [ints(1, 4, 4, 2), f, g], T, tol * 10, **conv)
    case("DepthwiseConv2dNativeBackpropFilter", ["input", "filter_sizes", "out_backprop"], [x, ints(2, 3, 2, 2), g], T, tol * 20, **conv)
    case("Softmax", ["logits"], [real(t, 2, 5)], T, tol)
    case("LogSoftmax", ["logits"], [real(t, 2, 5)], T, tol * 4)
    case("SoftmaxCrossEntropyWithLogits", ["features", "labels"], [real(t, 2, 3), np.abs(real(t, 1, 3))], T, tol * 10)
    case("SparseSoftmaxCrossEntropyWithLogits", ["features", "labels"], [real(t, 2, 3), np.array([2, 0], i64)],
         dict(T, Tlabels=tf.int64), tol * 4)
T = {"T": tf.float32}
case("Conv2D", ["input", "filter"], [real(f32, 1, 5, 5, 1), real(f32, 2, 2, 1, 2)], T, padding="EXPLICIT", strides=[1, 2, 1, 1],
     dilations=[1, 2, 1, 1], explicit_paddings=[0, 0, 1, 0, 0, 2, 0, 0])
x, v = real(f32, 2, 2, 2, 3) + 1, [real(f32, 3) for _ in range(3)] + [np.abs(real(f32, 3))]
none = np.zeros(0, f32)
names = ["x", "scale", "offset", "mean", "variance"]
case("FusedBatchNorm", names, [x, v[0], v[1], none, none], T, 1e-4, epsilon=0.01, is_training=True)
case("FusedBatchNormGrad", ["y_backprop", "x", "scale", "reserve_space_1", "reserve_space_2"],
     [real(f32, 2, 2, 2, 3), x, v[0], v[2], v[3]], T, 1e-4, epsilon=0.01, is_training=True)
case("FusedBatchNormGrad", ["y_backprop", "x", "scale", "reserve_space_1", "reserve_space_2"],
     [real(f32, 2, 2, 2, 3), x, v[0], v[2], v[3]], T, 1e-4, epsilon=0.01, is_training=False)
case("LRN", ["input"], [real(f32, 1, 1, 2, 5)], T, 1e-5, depth_radius=1, alpha=0.5, beta=0.7)
case("LRNGrad", ["input_grads", "input_image", "output_image"], [real(f32, 1, 1, 2, 5) for _ in range(3)], T, 1e-4,
     depth_radius=1, alpha=0.5, beta=0.7)
nan = np.array([[[[np.nan], [1]], [[2], [3]]]], f32)
case("MaxPool", ["input"], [nan], T, 0, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="SAME")
for row in ([1e30, -1e30, 0], [np.inf, 1, 2], [-np.inf, 1, 2], [np.nan, 1, 2]):
    case("Softmax", ["logits"], [np.array([row], f32)], T)
