"""A client of the soak test, one of several that train one model: training.py CLUSTER_JSON JOB TASK FOLDER.

Between-graph training of scikit-learn's digits by a MonitoredTrainingSession on this task's tensord, with checkpoints in
FOLDER. It ends once FOLDER/finish exists and the global step has reached the number in it. Nothing here knows that servers
are killed: TensorFlow's own recovery has to be enough.
"""
import functools
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "examples"), HERE]

import cluster  # noqa: E402
import digits  # noqa: E402
from beats import Beats  # noqa: E402

tf = cluster.tf1()
RATE = 0.2


def poll_quickly():
    """A worker looks for the model that the chief initialises each 30 s; here five times a second."""
    from tensorflow.python.training import session_manager
    manager = session_manager.SessionManager
    manager.__init__ = functools.partialmethod(manager.__init__, recovery_wait_secs=0.2)


class Graph:
    def __init__(self, spec, job, task):
        device = tf.train.replica_device_setter(cluster=tf.train.ClusterSpec(spec), worker_device="/job:%s/task:%d" % (job, task))
        with tf.device(device):
            self.x = tf.placeholder(tf.float32, [None, 64])
            self.y = tf.placeholder(tf.int64, [None])
            logits = digits.softmax(tf, self.x)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.y, logits=logits))
            self.accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), self.y), tf.float32))
            self.global_step = tf.train.get_or_create_global_step()
            self.step = tf.train.GradientDescentOptimizer(RATE).minimize(loss, global_step=self.global_step)


class StopWhenAsked(tf.train.SessionRunHook):
    """Notes each step, and requests the end as the file says."""

    def __init__(self, graph, beats, path):
        self.graph, self.beats, self.path = graph, beats, path

    def after_create_session(self, session, coord):
        self.beats.session()

    def before_run(self, context):
        return tf.train.SessionRunArgs(self.graph.global_step)

    def after_run(self, context, values):
        self.beats.step(int(values.results))
        if os.path.exists(self.path):
            with open(self.path) as f:
                if values.results >= int(f.read()):
                    context.request_stop()


def main():
    spec, job, task, folder = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    is_chief = job == "chief"
    poll_quickly()
    tf.set_random_seed(1)
    images, labels = digits.load()
    graph = Graph(spec, job, task)
    beats = Beats(os.path.join(folder, "beats.%s.%d" % (job, task)))
    own = "/job:%s/task:%d" % (job, task)
    batches = digits.batches(images, labels, 32, seed=task + 100 * is_chief)
    with tf.train.MonitoredTrainingSession(
            master="grpc://" + spec[job][task], is_chief=is_chief, checkpoint_dir=os.path.join(folder, "model"),
            hooks=[StopWhenAsked(graph, beats, os.path.join(folder, "finish"))], save_checkpoint_secs=1, save_summaries_steps=None,
            save_summaries_secs=None, log_step_count_steps=None, stop_grace_period_secs=10,
            config=tf.ConfigProto(device_filters=["/job:ps", own])) as session:
        while not session.should_stop():
            x, y = next(batches)
            session.run(graph.step, {graph.x: x, graph.y: y})
    print("ended at global step %d" % beats.read()[1], flush=True)


if __name__ == "__main__":
    main()
