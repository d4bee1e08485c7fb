"""A classifier of handwritten digits (scikit-learn's 1,797 images of 8 x 8), trained on a cluster.

The variables are on the ps tasks, the model runs on one worker. Several clients, each with its own --task_index, train
one model together: that is what `make demo` does.
"""
import json
import sys
import time

import cluster

HELD_OUT = 360


def load():
    """Images and labels, shuffled the same way everywhere; the last HELD_OUT ones are not trained on."""
    import numpy as np
    from sklearn.datasets import load_digits
    d = load_digits()
    order = np.random.RandomState(0).permutation(len(d.target))
    return (d.data / 16.0).astype("float32")[order], d.target.astype("int64")[order]


def dense(tf, name, x, inputs, outputs):
    w = tf.get_variable(name + "/w", [inputs, outputs], initializer=tf.glorot_uniform_initializer(seed=1))
    b = tf.get_variable(name + "/b", [outputs], initializer=tf.zeros_initializer())
    return tf.matmul(x, w) + b


def convolution(tf, name, x, inputs, outputs):
    k = tf.get_variable(name + "/k", [3, 3, inputs, outputs], initializer=tf.glorot_uniform_initializer(seed=1))
    b = tf.get_variable(name + "/b", [outputs], initializer=tf.zeros_initializer())
    y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, k, [1, 1, 1, 1], "SAME"), b))
    return tf.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")


def softmax(tf, x):
    return dense(tf, "out", x, 64, 10)


def mlp(tf, x):
    h = tf.nn.relu(dense(tf, "hidden0", x, 64, 256))
    h = tf.nn.relu(dense(tf, "hidden1", h, 256, 256))
    return dense(tf, "out", h, 256, 10)


def cnn(tf, x):
    h = tf.reshape(x, [-1, 8, 8, 1])
    h = convolution(tf, "convolution0", h, 1, 32)
    h = convolution(tf, "convolution1", h, 32, 64)
    h = tf.nn.relu(dense(tf, "hidden", tf.reshape(h, [-1, 256]), 256, 128))
    return dense(tf, "out", h, 128, 10)


MODELS = {"softmax": (softmax, 0.5), "mlp": (mlp, 0.05), "cnn": (cnn, 0.02)}


class Graph:
    """The model with its loss, accuracy and training step, built in the default graph."""

    def __init__(self, tf, model, ps_tasks, task_index):
        function, rate = MODELS[model]
        setter = tf.train.replica_device_setter(ps_tasks=ps_tasks, worker_device="/job:worker/task:%d" % task_index)
        with tf.device(setter):
            self.x = tf.placeholder(tf.float32, [None, 64], name="x")
            self.y = tf.placeholder(tf.int64, [None], name="y")
            logits = function(tf, self.x)
            self.loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.y, logits=logits))
            self.accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), self.y), tf.float32))
            self.global_step = tf.train.get_or_create_global_step()
            optimizer = tf.train.MomentumOptimizer(rate, 0.9)
            self.step = optimizer.minimize(self.loss, global_step=self.global_step)
            self.missing = tf.report_uninitialized_variables()
            self.initialize = tf.global_variables_initializer()


def batches(images, labels, size, seed):
    """Endless random batches of the part that is trained on."""
    import numpy as np
    random, n = np.random.RandomState(seed), len(labels) - HELD_OUT
    while True:
        pick = random.randint(0, n, size)
        yield images[pick], labels[pick]


def train(args, tf, session, graph, images, labels):
    """Trains for args.steps, with a progress line about each second; returns [(seconds, loss)] and steps a second."""
    began = shown = time.time()
    losses, done_then = [], 0
    for i, (x, y) in enumerate(batches(images, labels, args.batch, args.task_index)):
        if i == args.steps:
            break
        loss, _ = session.run([graph.loss, graph.step], {graph.x: x, graph.y: y})
        losses.append(float(loss))
        now = time.time()
        if now - shown >= 1 or i + 1 == args.steps:
            mean = sum(losses[done_then:]) / (len(losses) - done_then)
            print("worker %d: step %4d of %d  loss %.4f  %4.0f steps/s" % (
                args.task_index, i + 1, args.steps, mean, (len(losses) - done_then) / max(now - shown, 1e-6)), flush=True)
            shown, done_then = now, len(losses)
    return losses, len(losses) / (time.time() - began)


def main():
    parser = cluster.arguments(__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="cnn")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--task_index", type=int, default=0, help="the worker that this client uses; 0 initialises")
    parser.add_argument("--quiet", action="store_true", help="no accuracy at the end")
    parser.add_argument("--log", help="write losses and rate there, as JSON")
    args = cluster.parse(parser)
    tf = cluster.tf1()
    tf.set_random_seed(1)
    images, labels = load()
    graph = Graph(tf, args.model, len(args.jobs["ps"]), args.task_index)
    with tf.Session(args.targets[args.task_index]) as session:
        if args.task_index == 0:
            session.run(graph.initialize)
        while len(session.run(graph.missing)):
            time.sleep(0.05)
        losses, rate = train(args, tf, session, graph, images, labels)
        accuracy = None if args.quiet else session.run(graph.accuracy, {graph.x: images[-HELD_OUT:], graph.y: labels[-HELD_OUT:]})
    if args.log:
        with open(args.log, "w") as f:
            json.dump({"losses": losses, "steps_per_s": rate}, f)
    if not args.quiet:
        print("held-out accuracy: %.3f" % accuracy)


if __name__ == "__main__":
    sys.exit(main())
