"""What every mixed cluster must do: mixed_checks.py TARGET, in the Python of whatever client is to be tried."""
import sys

import numpy as np
import tensorflow


def checks(tf, target):
    """What every mixed cluster must do; runs in the client's process."""
    tf.disable_control_flow_v2()
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        with tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", [8, 4], initializer=tf.ones_initializer(), use_resource=False)
            r = tf.get_variable("r", [4], initializer=tf.zeros_initializer(), use_resource=True)
            n = tf.get_variable("n", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=False)
            names = tf.constant(["a", "bc", ""])
        x = tf.placeholder(tf.float32, [None, 8])
        with tf.device("/job:worker/task:0"):
            y = tf.matmul(x, w) + r
            loss = tf.reduce_mean(tf.square(y - 1.0))
            text = tf.identity(names)
            # a loop whose body is spread over two tasks
            def body(i, a):
                with tf.device("/job:ps/task:0"):
                    b = a + 1.0
                with tf.device("/job:worker/task:0"):
                    return i + 1, b * 2.0
            _, looped = tf.while_loop(lambda i, a: i < 6, body, [tf.constant(0), tf.constant(0.0)])
            # one over all three, with a loop inside, and its gradient
            def inner(k, a):
                with tf.device("/job:ps/task:0"):
                    return k + 1, a * 2.0

            def outer(i, a):
                with tf.device("/job:ps/task:0"):
                    b = a + start
                with tf.device("/job:worker/task:0"):
                    c = tf.while_loop(lambda k, a: k < 2, inner, [tf.constant(0), b])[1]
                with tf.device("/job:master/task:0"):
                    return i + 1, c - 1.0
            start = tf.constant(1.0)
            _, everywhere = tf.while_loop(lambda i, a: i < 3, outer, [tf.constant(0), start])
            slope = tf.gradients(everywhere, start)[0]
            # a dead branch on the other task
            chosen = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.identity(w), lambda: -tf.identity(w))
        with tf.device("/job:ps/task:0"):
            branch = chosen + 0.0
        with tf.device("/job:master/task:0"):
            third = tf.identity(loss) * 2.0
        step = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=n)
        big = tf.placeholder(tf.float32, [None])
        with tf.device("/job:ps/task:0"):
            sent = tf.identity(big)
        with tf.device("/job:worker/task:0"):
            back = tf.reduce_sum(tf.identity(sent))
        with tf.device("/job:worker/task:0"):
            bad = tf.reshape(big, [3, 5], name="bad_shape")
        p, q = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        with tf.device("/job:ps/task:0"):
            doubled = p * 2.0
        with tf.device("/job:worker/task:0"):
            both = doubled + q
        with tf.Session(target) as s:
            s.run(tf.global_variables_initializer())
            feed = {x: np.ones([2, 8], np.float32)}
            assert s.run(loss, feed) == 49.0
            assert s.run(third, feed) == 98.0
            losses = [s.run([loss, step], feed)[0] for _ in range(20)]
            assert losses[-1] < losses[0] / 2 and s.run(n) == 20, losses
            assert list(s.run(text)) == [b"a", b"bc", b""]
            assert s.run(looped) == 126.0
            assert s.run([everywhere, slope]) == [127.0, 148.0]
            for sign in (1.0, -1.0):
                got, want = s.run([branch, w], {x: sign * np.ones([2, 8], np.float32)})
                assert np.allclose(got, sign * want)
            assert s.run(back, {big: np.ones(1 << 20, np.float32)}) == 1 << 20
            h, left = [s.partial_run_setup([doubled, both], [p, q]) for _ in range(2)]
            assert s.partial_run(h, doubled, {p: 3.0}) == 6.0
            assert s.partial_run(left, doubled, {p: 4.0}) == 8.0  # never ends: the session's close ends it
            assert s.partial_run(h, both, {q: 0.5}) == 6.5
            try:
                s.run(bad, {big: np.ones(4, np.float32)})
                raise AssertionError("no error")
            except tf.errors.InvalidArgumentError as e:
                assert "bad_shape" in e.message
            try:  # an endless loop over both tasks ends at its timeout, and everything still works
                def endless(a):
                    with tf.device("/job:ps/task:0"):
                        return tf.identity(a) * 1.0
                with tf.device("/job:worker/task:0"):
                    loop = tf.while_loop(lambda a: a >= 0, endless, [tf.constant(0.0)])
                s.run(loop, options=tf.RunOptions(timeout_in_ms=500))
                raise AssertionError("no error")
            except tf.errors.DeadlineExceededError:
                pass
            assert s.run(looped) == 126.0
    print("mixed cluster: all checks pass")


if __name__ == "__main__":
    v1 = tensorflow.compat.v1
    v1.disable_eager_execution()
    checks(v1, sys.argv[1])
