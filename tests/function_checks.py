"""Functions and functional control flow over the tasks of a cluster: function_checks.py TARGET, in the client's Python."""
import sys

import numpy as np
import tensorflow
from tensorflow.python.framework import function
from tensorflow.python.ops import functional_ops


def checks(tf, target):
    tf.enable_control_flow_v2()
    tf.enable_resource_variables()
    ps, worker, master = "/job:ps/task:0", "/job:worker/task:0", "/job:master/task:0"

    @tensorflow.function
    def spread(a, b):
        with tf.device(ps):
            c = a * b
        with tf.device(worker):
            return c + 1.0, tf.identity(c)

    @function.Defun(tf.float32, tf.float32)
    def scaled_tanh(x, y):
        return tf.tanh(x) * y

    @function.Defun(tf.float32, tf.string)
    def elsewhere(x, s):
        return tf.reduce_sum(x) * 2.0, tf.strings.join([s, s])

    @function.Defun(tf.int32, tf.float32)
    def less(i, a):
        return i < 5

    @function.Defun(tf.int32, tf.float32)
    def doubled(i, a):
        return i + 1, a * 2.0

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2], name="x")
        with tf.device(ps):
            v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
        p = tf.placeholder(tf.bool, [])

        def chosen():
            with tf.device(ps):
                y = x + v
            with tf.device(worker):
                return y * 2.0
        branch = tf.cond(p, chosen, lambda: tf.negative(x))

        def body(i, a):
            with tf.device(ps):
                b = a + v
            with tf.device(worker):
                return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: b * 2.0, lambda: b)
        looped = tf.while_loop(lambda i, a: i < 4, body, [tf.constant(0), x])[1]
        slope = tf.gradients(looped, x)[0]
        with tf.device(worker):
            called = spread(x, v)
            native = scaled_tanh(x, x)
            native_slope = tf.gradients(native, x)[0]
            functional = functional_ops.While([0, 1.0], less, doubled)[1]

        @tensorflow.function
        def update(d):
            with tf.control_dependencies([v.assign_add(d)]):
                return tf.reduce_sum(d)
        with tf.device(ps):  # TensorFlow's masters want the call where the variable is
            updated = update(x) + 0.0
        with tf.device(master):
            remote = functional_ops.remote_call(args=[x, "ab"], Tout=[tf.float32, tf.string], f=elsewhere,
                                                target="/job:worker/replica:0/task:0/device:CPU:0")

        @tensorflow.function
        def bad(a):
            with tf.device(worker):
                return tf.reshape(a, [3, 5], name="inner_reshape")
        failing = bad(tf.placeholder_with_default(x, [None]))
        with tf.Session(target) as s:
            s.run(tf.global_variables_initializer())
            feed = {x: [1.0, -2.0]}
            assert np.allclose(s.run(branch, {x: [1.0, -2.0], p: True}), [4.0, -2.0])
            assert np.allclose(s.run(branch, {x: [1.0, -2.0], p: False}), [-1.0, 2.0])
            assert np.allclose(s.run([looped, slope], feed), [[13.0, 1.0], [4.0, 4.0]]), s.run([looped, slope], feed)
            one, two = s.run(called, feed)
            assert np.allclose(one, [2.0, -1.0]) and np.allclose(two, [1.0, -2.0])
            t = np.tanh([1.0, -2.0])
            want = t + np.array([1.0, -2.0]) * (1 - t * t)
            assert np.allclose(s.run(native_slope, feed), want), s.run(native_slope, feed)
            assert s.run(functional) == 32.0
            for _ in range(2):
                total, text = s.run(remote, feed)
                assert total == -2.0 and text == b"abab", (total, text)
            assert s.run(updated, feed) == -1.0
            assert np.allclose(s.run(v), [2.0, -1.0]), s.run(v)
            try:
                s.run(failing, feed)
                raise AssertionError("no error")
            except tf.errors.InvalidArgumentError as e:
                assert "inner_reshape" in e.message, e.message
    print("functions: all checks pass")


if __name__ == "__main__":
    v1 = tensorflow.compat.v1
    v1.disable_eager_execution()
    checks(v1, sys.argv[1])
