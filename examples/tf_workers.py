"""TensorFlow workers on tensord parameter servers: the commonest mixed cluster.

Each worker is a TensorFlow process with a server, and so a master, of its own (as Estimator starts them); only the
parameter servers are tensord. Here tensorctl starts those and leaves the workers' tasks to this program:

    tensorctl launch --ps 2 --external_worker 2 -- python tf_workers.py
"""
import sys

import cluster

STEPS = 100


def worker(args):
    tf = cluster.tf1()
    server = tf.train.Server(args.jobs, job_name="worker", task_index=args.task_index)
    with tf.device(tf.train.replica_device_setter(cluster=tf.train.ClusterSpec(args.jobs),
                                                  worker_device="/job:worker/task:%d" % args.task_index)):
        weights = tf.get_variable("weights", [16, 1], initializer=tf.zeros_initializer())
        x = tf.random_normal([64, 16])
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - tf.reduce_sum(x, 1, keepdims=True)))
        global_step = tf.train.get_or_create_global_step()
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=global_step)
        missing = tf.report_uninitialized_variables()
        initialize = tf.global_variables_initializer()
    # A worker needs the parameter servers and itself, not the other workers.
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % args.task_index])
    with tf.Session(server.target, config=config) as session:
        if args.task_index == 0:
            session.run(initialize)
        else:
            cluster.wait_for_variables(session, missing)
        for _ in range(STEPS):
            _, value, n = session.run([step, loss, global_step])
        print("worker %d: loss %.6f at global step %d" % (args.task_index, value, n))


if __name__ == "__main__":
    sys.exit(cluster.run_on_each_worker(worker, __doc__))
