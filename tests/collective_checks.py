"""Collectives over a cluster with servers of TensorFlow 1.15: collective_checks.py TASKS TARGET... Runs with 1.15 itself."""
import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
n, targets = int(sys.argv[1]), sys.argv[2:]
config = tf1.ConfigProto()
config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
options = tf1.RunOptions(timeout_in_ms=100000)

for master, target in enumerate(targets):
    for size, offsets in ((7, [0]), (1003, [0, 1]), (1500001, [])):
        values = [np.random.RandomState(i).rand(size).astype(np.float32) for i in range(n)]
        key = 100 * master + size
        with tf.Graph().as_default():
            sums, parts, copies = [], [], []
            for i in range(n):
                with tf1.device("/job:worker/task:%d" % i):
                    x = tf1.get_variable("x%d" % i, [size], initializer=tf1.zeros_initializer(), use_resource=True)
                    x.load_op = x.assign(tf1.random.uniform([size], seed=i + 1))
                    group = {"group_size": n, "group_key": 1}
                    sums.append(tf1.raw_ops.CollectiveReduce(input=x.read_value(), instance_key=key, merge_op="Add",
                                                             final_op="Div", subdiv_offsets=offsets, **group))
                    parts.append(tf1.raw_ops.CollectiveGather(input=x.read_value(), instance_key=key + 10000000,
                                                              shape=[n * size], **group))
                    # 1.15 knows the source of a broadcast only on the leader's task
                    copies.append(tf1.raw_ops.CollectiveBcastRecv(T=tf.float32, shape=[size], instance_key=key + 20000000, **group)
                                  if i else
                                  tf1.raw_ops.CollectiveBcastSend(input=x.read_value(), shape=[size], instance_key=key + 20000000, **group))
            xs = [v.read_value() for v in tf1.global_variables()]
            with tf1.Session(target, config=config) as s:
                s.run([v.load_op for v in tf1.global_variables()], options=options)
                values = s.run(xs, options=options)
                for _ in range(2):
                    got = s.run([sums, parts, copies], options=options)
        for i in range(n):
            np.testing.assert_allclose(got[0][i], sum(values) / n, rtol=1e-5)
            np.testing.assert_array_equal(got[1][i], np.concatenate(values))
            np.testing.assert_array_equal(got[2][i], values[0])
print("all checks pass")
