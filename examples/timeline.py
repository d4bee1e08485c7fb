"""A timeline of one training step: what ran on which task and when, with the transfers between them.

A synchronous step of a small network: parameters on ps 0, a replica per worker, the averaged gradients applied on ps 0.
The traced step goes to --out in Chrome's trace format; look at it in chrome://tracing or https://ui.perfetto.dev.
"""
import cluster


def build(tf, workers):
    with tf.device("/job:ps/task:0"):
        w1 = tf.get_variable("w1", shape=[784, 256])
        w2 = tf.get_variable("w2", shape=[256, 10])
    gradients, losses = [], []
    for i in range(workers):
        with tf.device("/job:worker/task:%d" % i), tf.name_scope("replica%d" % i):
            images = tf.random_uniform([256, 784], seed=i)
            labels = tf.random_uniform([256], maxval=10, dtype=tf.int32, seed=i)
            logits = tf.matmul(tf.nn.relu(tf.matmul(images, w1)), w2)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
            losses.append(loss)
            gradients.append(tf.gradients(loss, [w1, w2]))
    with tf.device("/job:ps/task:0"), tf.name_scope("update"):
        means = [tf.add_n(list(g)) / float(workers) for g in zip(*gradients)]
        step = tf.group(*[v.assign_sub(0.1 * g) for v, g in zip([w1, w2], means)], name="step")
    return step, losses


def main():
    parser = cluster.arguments(__doc__)
    parser.add_argument("--out", default="timeline.json", help="where the trace goes (default: timeline.json)")
    args = cluster.parse(parser)
    tf = cluster.tf1()
    from tensorflow.python.client import timeline
    step, losses = build(tf, len(args.jobs["worker"]))
    with tf.Session(args.targets[0]) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(10):  # the first step compiles the graph, the next ones warm up
            session.run([step, losses])
        metadata = tf.RunMetadata()
        session.run([step, losses], options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    with open(args.out, "w") as f:
        f.write(timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True))
    nodes, transfers = {}, {}
    for d in metadata.step_stats.dev_stats:
        for n in d.node_stats:
            kind = transfers if n.node_name == "RecvTensor" else nodes
            kind.setdefault(d.device, []).append(n.op_end_rel_micros - n.op_start_rel_micros)
    for device in sorted(nodes):
        print("%s: %d nodes, %d us; %d tensors received" % (device, len(nodes[device]), sum(nodes[device]),
                                                           len(transfers.get(device, []))))
    print("trace in %s" % args.out)


if __name__ == "__main__":
    main()
