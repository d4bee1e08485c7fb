"""In-graph replication, asynchronous: one client, one graph with a replica per worker, a thread per replica.

Fits y = 3x + 2. The replicas update the shared parameters whenever they are done, without waiting for each other.
"""
import threading

import cluster

STEPS = 200


def replica(tf, task, weight, bias):
    """One worker's training step, on data of its own."""
    with tf.device("/job:worker/task:%d" % task):
        x = tf.random_uniform([32], -1, 1, seed=task + 1)
        loss = tf.reduce_mean(tf.square(weight * x + bias - (3.0 * x + 2.0)))
        return tf.train.GradientDescentOptimizer(0.1).minimize(loss), loss


def main():
    args = cluster.parse(cluster.arguments(__doc__))
    tf = cluster.tf1()
    workers = len(args.jobs.get("worker", [])) or 1
    with tf.device("/job:ps/task:0"):
        weight = tf.get_variable("weight", initializer=0.0)
        bias = tf.get_variable("bias", initializer=0.0)
    replicas = [replica(tf, i, weight, bias) for i in range(workers)]
    with tf.Session(args.targets[0]) as session:
        session.run(tf.global_variables_initializer())

        def train(step):
            for _ in range(STEPS):
                session.run(step)

        threads = [threading.Thread(target=train, args=(step,)) for step, _ in replicas]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print("weight %.3f, bias %.3f, loss %.6f" % tuple(session.run([weight, bias, replicas[0][1]])))


if __name__ == "__main__":
    main()
