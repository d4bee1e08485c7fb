"""Sessions as the Python client sees them."""
import threading
import time

import numpy as np
import pytest
from cluster_fixture import ENDS


def forever(tf):
    """A loop that never ends."""
    return tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 7, [tf.constant(0)])


@pytest.fixture(params=["v1", "v2"])
def control_flow(request, tf):
    """Control flow as switches and merges, or as functional ops."""
    was = tf.control_flow_v2_enabled()
    (tf.disable_control_flow_v2 if request.param == "v1" else tf.enable_control_flow_v2)()
    yield request.param
    (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


def test_feeds_and_fetches(tf, local):
    a = tf.placeholder(tf.float32, [None], name="a")
    text = tf.placeholder(tf.string, [])
    with tf.Session(local.target("local")) as s:
        r = s.run({"sum": a + 1.0, "all": [a, tf.constant("str")], "op": tf.no_op()}, {a: [1.0, 2.0]})
        assert r["sum"].tolist() == [2.0, 3.0] and r["all"][1] == b"str" and r["op"] is None
        assert s.run(text, {text: b"x" * 100000}) == b"x" * 100000
        assert s.run([a, a], {a: []})[0].shape == (0,)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool",
                                   "complex64", "complex128"])
def test_every_type_there_and_back(tf, local, dtype):
    value = (np.arange(24).reshape(2, 3, 4) % 5).astype(dtype)
    p = tf.placeholder(dtype, value.shape)
    with tf.Session(local.target("local")) as s:
        got = s.run(tf.identity(p), {p: value})
    assert got.dtype == value.dtype and np.array_equal(got, value)


def test_large_feed_and_fetch(tf, local):
    value = np.random.RandomState(0).rand(4 << 20).astype(np.float32)
    p = tf.placeholder(tf.float32, [None])
    with tf.Session(local.target("local")) as s:
        assert np.array_equal(s.run(tf.identity(p), {p: value}), value)


def test_extend(tf, local):
    with tf.Session(local.target("local")) as s:
        a = tf.constant(1.0)
        assert s.run(a) == 1.0
        for i in range(5):
            a = a + 1.0
            assert s.run(a) == i + 2.0


def test_failed_extend_leaves_the_session_usable(tf, local):
    with tf.Session(local.target("local")) as s:
        a = tf.constant(1.0)
        assert s.run(a) == 1.0
        with tf.device("/job:nonexistent/task:3"):
            b = tf.constant(2.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="nonexistent"):
            s.run(b)
        with pytest.raises(tf.errors.InvalidArgumentError, match="nonexistent"):
            s.run(a)  # the client sends the same nodes again


def test_error_names_the_node(tf, local):
    a = tf.placeholder(tf.float32, [2], name="feed_me")
    with tf.Session(local.target("local")) as s:
        with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value for placeholder tensor 'feed_me'") as e:
            s.run(a + 1.0)
        assert e.value.op is not None and e.value.op.name == "feed_me"
        bad = tf.placeholder(tf.float32, None)
        product = tf.reshape(bad, [3, 3], name="shape_it")
        with pytest.raises(tf.errors.InvalidArgumentError) as e:
            s.run(product, {bad: np.zeros(4)})
        assert e.value.op.name == "shape_it"


def test_uninitialized_variable(tf, local):
    v = tf.get_variable("never_set", [2], use_resource=False)
    r = tf.get_variable("never_set_resource", [2], use_resource=True)
    with tf.Session(local.target("local")) as s:
        for x in (v, r):
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
                s.run(x + 1.0)
        assert set(s.run(tf.report_uninitialized_variables([v, r]))) == {b"never_set", b"never_set_resource"}


def test_unknown_fetch(tf, local):
    with tf.Session(local.target("local")) as s:
        x = tf.constant(1)
        s.run(x)
        with tf.Graph().as_default():
            y = tf.constant(1, name="elsewhere")
        with pytest.raises((ValueError, tf.errors.NotFoundError)):
            s.run(y)


def test_unregistered_op(tf, local):
    graph_def = tf.GraphDef()
    node = graph_def.node.add()
    node.name, node.op = "a", "NoOp"
    tf.import_graph_def(graph_def, name="")
    with tf.Session(local.target("local")) as s:
        s.run(tf.get_default_graph().get_operation_by_name("a"))
        x = tf.raw_ops.Fact()
        with pytest.raises(tf.errors.OpError, match="Fact"):
            s.run(x)
        with pytest.raises(tf.errors.OpError):
            s.run(x)
    with tf.Graph().as_default(), tf.Session(local.target("local")) as s:
        assert s.run(tf.constant(3)) == 3


def test_timeout_of_a_step(tf, local, control_flow):
    loop = forever(tf)
    with tf.Session(local.target("local")) as s:
        for _ in range(2):
            with pytest.raises(tf.errors.DeadlineExceededError):
                s.run(loop, options=tf.RunOptions(timeout_in_ms=300))
        assert s.run(tf.constant(5)) == 5


def test_operation_timeout(tf, local):
    loop = forever(tf)
    with tf.Session(local.target("local"), config=tf.ConfigProto(operation_timeout_in_ms=300)) as s:
        with pytest.raises(tf.errors.DeadlineExceededError):
            s.run(loop)


def test_close_cancels_steps(tf, local):
    loop, ended = forever(tf), []
    s = tf.Session(local.target("local"))
    s.run(tf.constant(1))

    def step():
        try:
            s.run(loop)
        except tf.errors.OpError as e:
            ended.append(e)
    local["local", 0].await_no_steps()
    threads = [threading.Thread(target=step, daemon=True) for _ in range(4)]
    for t in threads:
        t.start()
    local["local", 0].await_steps(4)
    s.close()
    for t in threads:
        t.join(ENDS)
    assert len(ended) == 4 and all(isinstance(e, (tf.errors.CancelledError, tf.errors.AbortedError)) for e in ended), ended


def test_closed_session(tf, local):
    s = tf.Session(local.target("local"))
    x = tf.constant(1)
    s.run(x)
    s.close()
    with pytest.raises(RuntimeError):
        s.run(x)


def test_many_clients_at_once(tf, local):
    x = tf.placeholder(tf.float32, [])
    y = x * 2.0 + 1.0
    errors = []

    def client(i):
        try:
            with tf.Session(local.target("local"), graph=y.graph) as s:
                for k in range(30):
                    assert s.run(y, {x: i + k}) == (i + k) * 2 + 1
        except Exception as e:  # pylint: disable=broad-except
            errors.append(e)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(ENDS)
    assert not errors, errors


def test_variables_are_shared_between_sessions(tf, trio):
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("shared", initializer=1.0, use_resource=False)
        r = tf.get_variable("shared_resource", initializer=2.0, use_resource=True)
    update = tf.group(v.assign_add(1.0), r.assign_add(1.0))
    with tf.Session(trio.target("worker", 0)) as a, tf.Session(trio.target("worker", 1)) as b:
        a.run(tf.global_variables_initializer())
        b.run(update)
        assert a.run([v, r]) == [2.0, 3.0] and b.run([v, r]) == [2.0, 3.0]


def test_isolated_sessions(tf, local):
    v = tf.get_variable("mine", initializer=1.0, use_resource=False)
    config = tf.ConfigProto(isolate_session_state=True)
    with tf.Session(local.target("local"), config=config) as a, tf.Session(local.target("local"), config=config) as b:
        a.run(v.initializer)
        assert a.run(v) == 1.0
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
            b.run(v)


def test_reset(tf, make_cluster):
    c = make_cluster({"local": 1})
    with tf.container("box"):
        v = tf.get_variable("in_box", initializer=1.0, use_resource=False)
    w = tf.get_variable("outside", initializer=2.0, use_resource=False)
    s = tf.Session(c.target("local"))
    s.run(tf.global_variables_initializer())
    tf.Session.reset(c.target("local"), ["box"])
    with pytest.raises(tf.errors.AbortedError):
        s.run(w)
    with tf.Session(c.target("local")) as s:
        assert s.run(w) == 2.0
        with pytest.raises(tf.errors.FailedPreconditionError):
            s.run(v)


def test_list_devices(tf, trio):
    with tf.Session(trio.target("worker", 1)) as s:
        names = [d.name for d in s.list_devices()]
    assert names[0].startswith("/job:worker/replica:0/task:1")
    assert sorted(names) == ["/job:%s/replica:0/task:%d/device:CPU:0" % t for t in (("ps", 0), ("worker", 0), ("worker", 1))]


def test_device_filters(tf, trio):
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:1"])
    with tf.Session(trio.target("worker", 1), config=config) as s:
        assert len(s.list_devices()) == 2
        with tf.device("/job:worker/task:0"):
            x = tf.constant(1.0)
        with pytest.raises(tf.errors.InvalidArgumentError):
            s.run(x)


def test_soft_placement(tf, local):
    with tf.device("/device:GPU:0"):
        x = tf.constant(1.0) + 2.0
    with tf.Session(local.target("local"), config=tf.ConfigProto(allow_soft_placement=True)) as s:
        assert s.run(x) == 3.0
    with tf.Session(local.target("local")) as s:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device for operation"):
            s.run(x)


def test_partial_fetch_runs_only_what_is_needed(tf, local):
    v = tf.get_variable("counter", initializer=0, use_resource=False)
    bump = v.assign_add(1)
    other = tf.constant(1)
    with tf.Session(local.target("local")) as s:
        s.run(v.initializer)
        s.run(other)
        assert s.run(v) == 0
        s.run(bump.op)
        assert s.run(v) == 1


def test_control_flow_over_tasks(tf, trio, control_flow):
    with tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", initializer=0.5, use_resource=False)
    with tf.device("/job:worker/task:0"):
        i, y = tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * w), [tf.constant(0), tf.constant(1.0)])
        z = tf.cond(y < 1.0, lambda: y + 1.0, lambda: y - 1.0)
    with tf.device("/job:worker/task:1"):
        result = z * 2.0
    with tf.Session(trio.target("worker", 0)) as s:
        s.run(w.initializer)
        assert s.run([i, result]) == [5, 2.0625]


def test_gradient_of_cond(tf, trio):
    tf.disable_control_flow_v2()
    try:
        with tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", initializer=0.5, use_resource=False)
        with tf.device("/job:worker/task:0"):
            z = tf.cond(w < 1.0, lambda: w * w, lambda: w * 3.0)
            g = tf.gradients(z, w)[0]
    finally:
        tf.enable_control_flow_v2()
    with tf.Session(trio.target("worker", 0)) as s:
        s.run(w.initializer)
        assert s.run([z, g]) == [0.25, 1.0]
        s.run(w.assign(2.0))
        assert s.run([z, g]) == [6.0, 3.0]


def test_make_callable(tf, local):
    x = tf.placeholder(tf.float32, [])
    with tf.Session(local.target("local")) as s:
        f = s.make_callable([x * 2.0, x + 1.0], [x])
        for i in range(20):
            assert f(float(i)) == [2.0 * i, 1.0 + i]


def test_session_waits_for_tasks(tf, make_cluster):
    """Tasks may start in any order: a session waits for those that are not there yet."""
    c = make_cluster({"ps": 1, "worker": 1}, start=False)
    c["worker", 0].start()
    c["worker", 0].wait_ready()
    with tf.device("/job:ps/task:0"):
        x = tf.constant(4.0)
    got = []

    def client():
        with tf.Session(c.target("worker"), graph=x.graph) as s:
            got.append(s.run(x))
    t = threading.Thread(target=client, daemon=True)
    t.start()
    time.sleep(1)
    assert not got
    c["ps", 0].start()
    t.join(ENDS)
    assert got == [4.0]


def test_session_that_waits_ends_at_the_timeout(tf, make_cluster):
    c = make_cluster({"ps": 1, "worker": 1}, start=False)
    c["worker", 0].start()
    c["worker", 0].wait_ready()
    with tf.Session(c.target("worker"), config=tf.ConfigProto(operation_timeout_in_ms=500)) as s:
        with pytest.raises(tf.errors.DeadlineExceededError):
            s.run(tf.constant(1))
