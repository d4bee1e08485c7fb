"""Between-graph replication, asynchronous: a client process per worker, each with its own graph and session.

replica_device_setter deals the variables to the ps tasks. Worker 0's client initialises them; the others wait for it.
Without --task_index this program starts one client per target and waits for all.
"""
import sys

import cluster

STEPS = 100


def client(args):
    tf = cluster.tf1()
    setter = tf.train.replica_device_setter(ps_tasks=len(args.jobs["ps"]), worker_device="/job:worker/task:%d" % args.task_index)
    with tf.device(setter):
        weight = tf.get_variable("weight", initializer=0.0)
        bias = tf.get_variable("bias", initializer=0.0)
        x = tf.random_uniform([32], -1, 1)
        loss = tf.reduce_mean(tf.square(weight * x + bias - (3.0 * x + 2.0)))
        global_step = tf.train.get_or_create_global_step()
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=global_step)
        missing = tf.report_uninitialized_variables()
        initialize = tf.global_variables_initializer()
    with tf.Session(args.targets[args.task_index]) as session:
        if args.task_index == 0:
            session.run(initialize)
        else:
            cluster.wait_for_variables(session, missing)
        for _ in range(STEPS):
            _, value, n = session.run([step, loss, global_step])
        print("worker %d: loss %.6f at global step %d" % (args.task_index, value, n))


if __name__ == "__main__":
    sys.exit(cluster.run_on_each_worker(client, __doc__))
