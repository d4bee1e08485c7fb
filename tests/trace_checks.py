"""What a traced step of a cluster {ps: 1, worker: 1} must tell, whoever the servers are. Run by test_step_stats.py in a
client of the servers' version: trace_checks.py TARGET MASTER, where MASTER, tensord or tf, is what worker 0 is.
"""
import json
import sys

import tensorflow as tf
from tensorflow.python.client import timeline

PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"


def check_trace(v1, session, fetches, master):
    metadata = v1.RunMetadata()
    session.run(fetches, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=metadata)
    nodes, transfers = {}, {}
    for d in metadata.step_stats.dev_stats:
        for n in d.node_stats:
            (transfers if n.node_name == "RecvTensor" else nodes).setdefault(d.device, []).append(n)
            if n.node_name != "_SOURCE" and d.device in (PS, WORKER):
                assert n.all_start_micros > 0 and n.all_end_rel_micros >= n.op_end_rel_micros >= 0, n
    by_name = {d: {n.node_name: n for n in nodes[d]} for d in (PS, WORKER)}
    assert "there" in by_name[WORKER] and "there" not in by_name[PS], sorted(by_name[WORKER])
    assert "back" in by_name[PS] and "weights/read" in by_name[PS], sorted(by_name[PS])
    label = by_name[WORKER]["there"].timeline_label
    assert "there = " in label and "MatMul(" in label and label.endswith(")"), label  # MKL has one of its own
    out = by_name[WORKER]["there"].output[0].tensor_description
    assert [d.size for d in out.shape.dim] == [200, 200] and out.allocation_description.requested_bytes == 160000, out
    # The weights came to the worker; that its answer came back is known for certain only if the master waited until the
    # other task logs its transfers.
    labels = [n.timeline_label for n in transfers[WORKER]]
    assert any("from %s to %s" % (PS, WORKER) in x and x.startswith("[0.2MB] [") for x in labels), labels
    if master == "tensord":
        assert any("from %s to %s" % (WORKER, PS) in n.timeline_label for n in transfers[PS]), transfers.keys()
    events = json.loads(timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True))["traceEvents"]
    assert {"there", "back"} <= {e.get("args", {}).get("name") for e in events}


def main(target, master):
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    with tf.device("/job:ps/task:0"):
        weights = v1.get_variable("weights", shape=[200, 200], initializer=v1.ones_initializer(), use_resource=False)
    with tf.device("/job:worker/task:0"):
        there = tf.matmul(weights, weights, name="there")
    with tf.device("/job:ps/task:0"):
        back = tf.reduce_sum(there, name="back")
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with v1.Session(target, config=config) as session:
        session.run(weights.initializer)
        session.run(back)
        untraced = v1.RunMetadata()
        session.run(back, run_metadata=untraced)
        assert not untraced.HasField("step_stats")
        for _ in range(3):
            check_trace(v1, session, back, master)
    config.graph_options.build_cost_model = 2
    with v1.Session(target, config=config) as session:
        costs = []
        for _ in range(4):
            metadata = v1.RunMetadata()
            session.run(back, run_metadata=metadata)
            costs.append({n.name for n in metadata.cost_graph.node})
        assert not costs[0] and not costs[2] and {"there", "back"} <= costs[1] and costs[1] == costs[3], costs
    print("all checks pass")


if __name__ == "__main__":
    main(*sys.argv[1:])
