"""In-graph replication, synchronous: every step averages the gradients of all workers and applies them once.

Fits y = 3x + 2. With the same seeds every run gives the same losses.
"""
import cluster

STEPS = 100


def main():
    parser = cluster.arguments(__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    args = cluster.parse(parser)
    tf = cluster.tf1()
    tf.set_random_seed(7)
    workers = len(args.jobs.get("worker", [])) or 1
    with tf.device("/job:ps/task:0"):
        variables = [tf.get_variable("weight", initializer=0.0), tf.get_variable("bias", initializer=0.0)]
    losses, towers = [], []
    for i in range(workers):
        with tf.device("/job:worker/task:%d" % i):
            x = tf.random_uniform([32], -1, 1, seed=i + 1)
            loss = tf.reduce_mean(tf.square(variables[0] * x + variables[1] - (3.0 * x + 2.0)))
            losses.append(loss)
            towers.append(tf.gradients(loss, variables))
    with tf.device("/job:ps/task:0"):
        averaged = [(tf.add_n(list(g)) / float(workers), v) for g, v in zip(zip(*towers), variables)]
        step = tf.train.GradientDescentOptimizer(0.2).apply_gradients(averaged)
        loss = tf.add_n(losses) / float(workers)
    with tf.Session(args.targets[0]) as session:
        session.run(tf.global_variables_initializer())
        for i in range(args.steps):
            value, _ = session.run([loss, step])
            if i % 20 == 0 or i + 1 == args.steps:
                print("step %d: loss %.9g" % (i, value))
        print("weight %.3f, bias %.3f" % tuple(session.run(variables)))


if __name__ == "__main__":
    main()
