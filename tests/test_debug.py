"""TensorFlow's debugger: the client's wrappers around sessions, dump folders and debug servers."""
import glob
import json

import numpy as np
import pytest
from cluster_fixture import Cluster, free_ports


@pytest.fixture
def debug_server():
    """TensorFlow's own debug server, keeping what it hears."""
    from tensorflow.core.debug import debug_service_pb2
    from tensorflow.python.debug.lib import debug_data, grpc_debug_server

    class Handler(grpc_debug_server.EventListenerBaseStreamHandler):
        def on_core_metadata_event(self, event):
            server.metadata.append(json.loads(event.log_message.message))

        def on_graph_def(self, graph_def, device_name, wall_time):
            server.graphs.append(device_name)

        def on_value_event(self, event):
            name = event.summary.value[0].node_name
            server.values.setdefault(name, []).append(debug_data.load_tensor_from_event(event))
            node, slot, op = name.split(":")
            return debug_service_pb2.EventReply() if (node, int(slot), op) in server.breakpoints else None

    port, = free_ports(1)
    server = grpc_debug_server.EventListenerBaseServicer(port, Handler)
    server.metadata, server.graphs, server.values = [], [], {}
    server.run_server(blocking=False)
    server.url = "grpc://127.0.0.1:%d" % port
    yield server
    server.stop_server().wait()


@pytest.fixture(scope="module")
def mixed():
    with Cluster({"ours": 1, "theirs": 1}, {"theirs": "tf"}) as c:
        yield c


def build(tf, leader, other):
    with tf.device("/job:%s/task:0" % other):
        v = tf.get_variable("v", initializer=tf.constant([1.0, 2.0]), use_resource=False)
        doubled = tf.multiply(v, 2.0, name="doubled")
    with tf.device("/job:%s/task:0" % leader):
        root = tf.math.log(doubled - 2.0, name="root")  # [-inf, log 2]
    return v, root


def options(tf, url, *watches, **kwargs):
    o = tf.RunOptions(**kwargs)
    for node, op in watches:
        w = o.debug_options.debug_tensor_watch_opts.add(node_name=node, output_slot=0)
        w.debug_ops.append(op)
        w.debug_urls.append(url)
    return o


@pytest.mark.parametrize("leader, other", [("ours", "theirs"), ("theirs", "ours")])
def test_dumping_wrapper(tf, mixed, tmp_path, leader, other):
    """The graph lies on TensorFlow's server and on ours; each is the master in turn."""
    from tensorflow.python.debug.lib import debug_data
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession
    v, root = build(tf, leader, other)
    with tf.Session(mixed.target(leader)) as plain:
        s = DumpingDebugWrapperSession(plain, str(tmp_path))
        s.run(v.initializer)
        expected = [-np.inf, np.log(2.0)]
        for _ in range(2):
            np.testing.assert_allclose(s.run(root), expected, rtol=1e-6)
    runs = sorted(glob.glob(str(tmp_path / "run_*")))
    assert len(runs) == 3
    for run in runs[1:]:
        dump = debug_data.DebugDumpDir(run)
        assert sorted(d.split("/")[1] for d in dump.devices()) == ["job:ours", "job:theirs"]
        np.testing.assert_allclose(dump.get_tensors("doubled", 0, "DebugIdentity"), [[2.0, 4.0]])
        np.testing.assert_allclose(dump.get_tensors("root", 0, "DebugIdentity"), [expected], rtol=1e-6)
        assert [d.node_name for d in dump.find(debug_data.has_inf_or_nan)][0] == "root"
        assert dump.node_inputs("root") and dump.loaded_partition_graphs()
        assert dump.core_metadata.output_names == ["root:0"]


def test_grpc_wrapper(tf, trio, debug_server):
    from tensorflow.python.debug.wrappers import framework
    from tensorflow.python.debug.wrappers.grpc_wrapper import GrpcDebugWrapperSession
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=tf.constant([3.0, 4.0]), use_resource=True)
    with tf.device("/job:worker/task:1"):
        y = tf.square(v, name="y")
    with tf.Session(trio.target("worker")) as plain:
        plain.run(v.initializer)
        ops = ["DebugIdentity", "DebugNumericSummary"]
        s = GrpcDebugWrapperSession(plain, debug_server.url[len("grpc://"):],
                                    watch_fn=lambda fetches, feeds: framework.WatchOptions(
                                        debug_ops=ops, tolerate_debug_op_creation_failures=True))
        assert s.run(y).tolist() == [9.0, 16.0]
    assert [m["output_names"] for m in debug_server.metadata] == [["y:0"]]
    assert len(debug_server.graphs) == 3  # the master's own has the fetch
    values = debug_server.values
    np.testing.assert_allclose(values["y:0:DebugIdentity"], [[9.0, 16.0]])
    np.testing.assert_allclose(values["y:0:DebugNumericSummary"], [[1, 2, 0, 0, 0, 0, 2, 0, 9, 16, 12.5, 12.25, 1, 1, 2]])


def test_gated_watches(tf, local, debug_server):
    with tf.device("/job:local/task:0"):
        a = tf.identity(tf.constant(5.0), name="a")
        b = tf.identity(a + 1.0, name="b")
    o = options(tf, debug_server.url, ("a", "DebugIdentity(gated_grpc=true)"), ("b", "DebugIdentity(gated_grpc=true)"))
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Session(local.target("local"), config=config) as s:
        def heard():
            debug_server.values.clear()
            assert s.run(b, options=o) == 6.0
            return sorted(debug_server.values)
        assert heard() == []
        debug_server.request_watch("a", 0, "DebugIdentity")
        assert heard() == ["a:0:DebugIdentity"]
        debug_server.request_watch("b", 0, "DebugIdentity", breakpoint=True)
        assert heard() == ["a:0:DebugIdentity", "b:0:DebugIdentity"]
        debug_server.request_unwatch("a", 0, "DebugIdentity")
        assert heard() == ["b:0:DebugIdentity"]


def test_nobody_listens(tf, local):
    """A step that waits for its listener ends by its timeout; the session goes on."""
    port, = free_ports(1)
    a = tf.identity(tf.constant(5.0), name="a")
    with tf.Session(local.target("local")) as s:
        for _ in range(2):
            with pytest.raises(tf.errors.DeadlineExceededError):
                s.run(a, options=options(tf, "grpc://127.0.0.1:%d" % port, ("a", "DebugIdentity"), timeout_in_ms=200))
        assert s.run(a) == 5.0


def test_bad_watches(tf, local, tmp_path):
    a = tf.identity(tf.constant(5.0), name="a")
    url = "file://" + str(tmp_path)
    with tf.Session(local.target("local")) as s:
        with pytest.raises(tf.errors.UnavailableError, match="Invalid debug target URL: ftp://x"):
            s.run(a, options=options(tf, "ftp://x", ("a", "DebugIdentity")))
        with pytest.raises(tf.errors.FailedPreconditionError, match="debug op Nothing"):
            s.run(a, options=options(tf, url, ("a", "Nothing")))
        (tmp_path / "file").write_text("")
        with pytest.raises(tf.errors.FailedPreconditionError, match="Failed to create directory"):
            s.run(a, options=options(tf, url + "/file", ("a", "DebugIdentity")))
        assert s.run(a, options=options(tf, url, ("a", "DebugIdentity"))) == 5.0
