"""Between-graph replication, synchronous: SyncReplicasOptimizer, with a client process per worker.

Conditional accumulators on the ps collect the workers' gradients and drop those of an earlier step; when all workers
have sent theirs, the mean is applied once and every worker gets a token for its next step.
Without --task_index this program starts one client per target and waits for all.
"""
import sys

import cluster

STEPS = 100


def client(args):
    tf = cluster.tf1()
    workers = len(args.targets)
    is_chief = args.task_index == 0
    setter = tf.train.replica_device_setter(ps_tasks=len(args.jobs["ps"]), worker_device="/job:worker/task:%d" % args.task_index)
    with tf.device(setter):
        weight = tf.get_variable("weight", initializer=0.0)
        bias = tf.get_variable("bias", initializer=0.0)
        x = tf.random_uniform([32], -1, 1, seed=args.task_index + 1)
        loss = tf.reduce_mean(tf.square(weight * x + bias - (3.0 * x + 2.0)))
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.2), replicas_to_aggregate=workers,
                                                   total_num_replicas=workers)
        train = optimizer.minimize(loss, global_step=global_step)
        farewell = optimizer.get_init_tokens_op(num_tokens=workers)
        missing = tf.report_uninitialized_variables(tf.global_variables())
    if not is_chief:
        with tf.Session(args.targets[args.task_index]) as session:
            cluster.wait_for_variables(session, missing)
    with tf.train.MonitoredTrainingSession(master=args.targets[args.task_index], is_chief=is_chief,
                                           hooks=[optimizer.make_session_run_hook(is_chief)],
                                           stop_grace_period_secs=1) as session:
        step = 0
        while step < STEPS:
            _, value, step, w, b = session.run([train, loss, global_step, weight, bias])
        try:
            session.run(farewell)  # for whoever still waits for a worker that has left
        except tf.errors.CancelledError:  # TensorFlow 2.x's chief closes the queue of tokens when it leaves
            pass
    print("worker %d: loss %.6f at global step %d, weight %.3f, bias %.3f" % (args.task_index, value, step, w, b))


if __name__ == "__main__":
    sys.exit(cluster.run_on_each_worker(client, __doc__))
