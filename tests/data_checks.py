"""Training from datasets: data_checks.py MASTER, in the Python of whatever client is to be tried. The graph has its variables
on the ps and its input pipeline on the worker; the pipelines' elements are compared with the client's own."""
import sys

import numpy as np
import tensorflow

tf = tensorflow.compat.v1
Dataset = tf.data.Dataset


def elements(dataset, target):
    get_next = tf.data.make_one_shot_iterator(dataset).get_next()
    found = []
    with tf.Session(target) as session:
        while True:
            try:
                found.append(session.run(get_next))
            except tf.errors.OutOfRangeError:
                return found


PIPELINES = {
    "map": lambda: Dataset.range(20).map(lambda x: x * x).filter(lambda x: tf.equal(x % 2, 0)).batch(3),
    "parallel": lambda: Dataset.range(50).map(lambda x: x + 1, num_parallel_calls=3).prefetch(4),
    "shuffle": lambda: Dataset.range(30).shuffle(7, seed=5, reshuffle_each_iteration=False).repeat(2),
    "interleave": lambda: Dataset.range(6).interleave(lambda x: Dataset.from_tensors(x).repeat(x), 3, 2),
    "padded": lambda: Dataset.range(1, 6).map(lambda x: tf.fill([x], x)).padded_batch(2, [None]),
    "cache": lambda: Dataset.range(5).cache().repeat(3).skip(2).take(9),
    "windows": lambda: Dataset.range(9).window(3, shift=2, drop_remainder=True).flat_map(lambda w: w.batch(3)),
    "strings": lambda: Dataset.zip((Dataset.range(3), Dataset.from_tensor_slices([u"a", u"", u"xyz"]))),
}


def check_elements(target):
    for name, make in sorted(PIPELINES.items()):
        with tf.Graph().as_default():
            with tf.device("/job:worker/task:0"):
                got = elements(make(), target)
        with tf.Graph().as_default():
            want = elements(make(), "")
        assert repr(got) == repr(want), "%s: %r, not %r" % (name, got, want)


def check_one_iterator(target):
    """Whatever is fetched beside it, and though the graph grows, it is one iterator."""
    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        iterator = tf.data.make_one_shot_iterator(Dataset.range(5))
        get_next = iterator.get_next()
        with tf.Session(target) as session:
            assert session.run(get_next) == 0
            assert session.run([get_next, get_next + 10]) == [1, 11]
            assert session.run(iterator.get_next()) == 2
            assert session.run([get_next, tf.constant(7)]) == [3, 7]


def check_training(target):
    random = np.random.RandomState(3)
    features = random.normal(size=(64, 3)).astype(np.float32)
    labels = features.dot(np.array([[1.], [-2.], [3.]], np.float32))
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:0"):
            dataset = Dataset.from_tensor_slices((features, labels)).shuffle(64, seed=1).repeat(30).batch(16).prefetch(2)
            iterator = tf.data.make_initializable_iterator(dataset)
            tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            x, y = iterator.get_next()
        with tf.device("/job:ps/task:0"):
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        with tf.device("/job:worker/task:0"):
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        losses = []
        # ends with the data: MonitoredSession takes OutOfRangeError for the end
        with tf.train.MonitoredTrainingSession(target, is_chief=True) as session:
            while not session.should_stop():
                losses.append(session.run([train, loss])[1])
        assert len(losses) == 64 * 30 // 16, len(losses)
        assert losses[-1] < 1e-3 < losses[0], losses


def main():
    tf.logging.set_verbosity(tf.logging.ERROR)
    if tensorflow.__version__.startswith("2"):
        tf.disable_v2_behavior()
    check_elements(sys.argv[1])
    check_one_iterator(sys.argv[1])
    check_training(sys.argv[1])
    print("data ok")


if __name__ == "__main__":
    main()
