"""Placement by hand: parameters live on the ps tasks, every worker computes a part of the sum."""
import cluster


def main():
    args = cluster.parse(cluster.arguments(__doc__))
    tf = cluster.tf1()
    ps, workers = len(args.jobs.get("ps", [])), len(args.jobs.get("worker", []))
    parameters = []
    for i in range(ps):
        with tf.device("/job:ps/task:%d" % i):
            parameters.append(tf.get_variable("parameter_%d" % i, initializer=float(i + 1)))
    parts = []
    for i in range(workers):
        with tf.device("/job:worker/task:%d" % i):
            parts.append((i + 1) * tf.add_n([tf.identity(p) for p in parameters]))
    with tf.device("/job:ps/task:0"):
        total = tf.add_n(parts)
        update = parameters[0].assign_add(total)
    with tf.Session(args.targets[0]) as session:
        session.run(tf.global_variables_initializer())
        print("sum over workers: %g" % session.run(total))
        print("parameter after the update: %g" % session.run(update))


if __name__ == "__main__":
    main()
