"""The digits classifier under MonitoredTrainingSession: checkpoints, summaries for TensorBoard, hooks.

    tensorctl launch --ps=1 --worker=1 -- python monitored.py --logdir=/tmp/digits
    tensorboard --logdir=/tmp/digits

A second run goes on from the last checkpoint.
"""
import sys
import tempfile

import cluster
import digits


def main():
    parser = cluster.arguments(__doc__)
    parser.add_argument("--model", choices=sorted(digits.MODELS), default="cnn")
    parser.add_argument("--steps", type=int, default=300, help="global step at which to end")
    parser.add_argument("--logdir", help="checkpoints and events (default: a new temporary folder)")
    args = cluster.parse(parser)
    tf = cluster.tf1()
    tf.set_random_seed(1)
    images, labels = digits.load()
    graph = digits.Graph(tf, args.model, len(args.jobs["ps"]), 0)
    logdir = args.logdir or tempfile.mkdtemp(prefix="digits-")
    tf.summary.scalar("loss", graph.loss)
    tf.summary.scalar("accuracy", graph.accuracy)
    tf.summary.image("digits", tf.reshape(graph.x, [-1, 8, 8, 1]))
    for v in tf.trainable_variables():
        tf.summary.histogram(v.op.name, v)
    hooks = [tf.train.StopAtStepHook(last_step=args.steps), tf.train.NanTensorHook(graph.loss),
             tf.train.LoggingTensorHook({"loss": graph.loss}, every_n_iter=100)]
    held_out = {graph.x: images[-digits.HELD_OUT:], graph.y: labels[-digits.HELD_OUT:]}

    def evaluate(step_context):
        """Without the hooks: neither their summaries nor their step count see it."""
        return step_context.session.run(graph.accuracy, held_out)

    with tf.train.MonitoredTrainingSession(args.targets[0], checkpoint_dir=logdir, hooks=hooks, save_checkpoint_steps=100,
                                           save_summaries_steps=10, log_step_count_steps=100) as session:
        batches = digits.batches(images, labels, 64, 0)
        while not session.should_stop():
            accuracy = session.run_step_fn(evaluate)
            for _ in range(20):
                x, y = next(batches)
                if not session.should_stop():
                    session.run(graph.step, {graph.x: x, graph.y: y})
            print("held-out accuracy: %.3f" % accuracy, flush=True)
    print("events and checkpoints: %s\nlast checkpoint: %s" % (logdir, tf.train.latest_checkpoint(logdir)))


if __name__ == "__main__":
    sys.exit(main())
