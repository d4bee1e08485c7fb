"""Each task of a running cluster is killed in turn: every call ends with the right error in time, and a task that came
back is used again."""
import threading
import time

import pytest
from cluster_fixture import ENDS, wait_until

GONE_MS = 5000  # of calls whose own master is gone: they end by their timeout
SEEN_MS = 15000  # of a call that is to be seen everywhere before its master goes


def build(tf):
    """A training step over all three tasks, and a step that is never done."""
    with tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", [4], initializer=tf.ones_initializer(), use_resource=False)
    parts = []
    for i in range(2):
        with tf.device("/job:worker/task:%d" % i):
            parts.append(tf.reduce_sum(w * float(i + 1)))
    loss = tf.add_n(parts)
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    tf.disable_control_flow_v2()

    def body(x):
        with tf.device("/job:ps/task:0"):
            y = x + 1.0
        with tf.device("/job:worker/task:1"):
            return y - 1.0
    with tf.device("/job:worker/task:0"):
        endless = tf.while_loop(lambda x: x < 1.0, body, [tf.constant(0.0)])
    tf.enable_control_flow_v2()
    return loss, step, endless, tf.global_variables_initializer()


def session(tf, cluster, timeout_ms=200000):
    """With a limit: closing a session of a server that is gone would not end without."""
    return tf.Session(cluster.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=timeout_ms))


def close(tf, s):
    """Now, while its master is there, and not when Python collects it."""
    try:
        s.close()
    except tf.errors.OpError:
        pass


class Call(threading.Thread):
    """One call in a thread: what it ended with."""

    def __init__(self, s, fetch, options=None):
        super().__init__(daemon=True)
        self.session, self.fetch, self.options, self.error = s, fetch, options, None
        self.start()

    def run(self):
        try:
            self.session.run(self.fetch, options=self.options)
        except Exception as e:  # pylint: disable=broad-except
            self.error = e

    def ended(self):
        self.join(ENDS)
        assert not self.is_alive(), "the call has not ended"
        return self.error


def expect_recovery(tf, cluster, init, loss, step):
    """A new session works again, on the tasks as they are now."""
    end = time.time() + ENDS
    while True:
        s = session(tf, cluster, 60000)
        try:
            s.run(init)
            assert s.run(loss) == 12.0
            s.run(step)
            s.close()
            return
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError):
            close(tf, s)
            assert time.time() < end, "no recovery"
            time.sleep(0.2)


def seen_everywhere(cluster, start):
    """A call that has been seen to run on every task; on a slow machine not the first one."""
    while True:
        call = start()
        wait_until(lambda: not call.is_alive() or all(t.steps()[1] for t in cluster.tasks.values()), what="the step runs")
        if call.is_alive():
            return call
        assert "Deadline" in type(call.error).__name__, repr(call.error)


@pytest.mark.parametrize("job,index", [("ps", 0), ("worker", 1), ("worker", 0)])
def test_killed_and_restarted(tf, make_cluster, job, index):
    c = make_cluster({"ps": 1, "worker": 2})
    loss, step, endless, init = build(tf)
    s = session(tf, c)
    s.run(init)
    assert s.run(loss) == 12.0
    is_master = (job, index) == ("worker", 0)
    gone = tf.RunOptions(timeout_in_ms=GONE_MS) if is_master else None
    call = seen_everywhere(c, lambda: Call(s, endless, tf.RunOptions(timeout_in_ms=SEEN_MS) if is_master else None))
    c[job, index].kill()
    error = call.ended()
    expected = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.CancelledError)
    assert isinstance(error, expected[:3]), repr(error)
    # steps of the old session fail, too, and in time
    error = Call(s, loss, gone).ended()
    assert isinstance(error, expected[:3]), repr(error)
    c[job, index].restart()
    error = Call(s, loss).ended()
    assert isinstance(error, expected[:3] + (tf.errors.FailedPreconditionError,)), repr(error)
    expect_recovery(tf, c, init, loss, step)
    Call(s, loss).ended()
    close(tf, s)


def test_a_peer_that_dies_is_noticed_at_once(tf, make_cluster):
    """Not by a timeout: the connection's end says it."""
    c = make_cluster({"ps": 1, "worker": 2})
    loss, _, endless, init = build(tf)
    s = tf.Session(c.target("worker", 0))
    s.run(init)
    call = Call(s, endless)
    c["ps", 0].await_steps()
    c["ps", 0].kill()
    assert isinstance(call.ended(), (tf.errors.UnavailableError, tf.errors.AbortedError)), repr(call.error)
    assert isinstance(Call(s, loss).ended(), (tf.errors.UnavailableError, tf.errors.AbortedError))
    s.close()


def test_monitored_session_recovers(tf, make_cluster):
    """A worker's MonitoredSession goes on after its parameter server was restarted."""
    c = make_cluster({"ps": 1, "worker": 1})
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
        x = tf.get_variable("x", initializer=1.0, use_resource=False)
        global_step = tf.train.get_or_create_global_step()
        step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(x), global_step=global_step)
    creator = tf.train.ChiefSessionCreator(master=c.target("worker"))
    with tf.train.MonitoredSession(creator) as s:
        for _ in range(5):
            s.run(step)
        assert s.run(global_step) == 5
        c["ps", 0].restart()
        for _ in range(3):
            s.run(step)
        assert s.run(global_step) == 3  # the state was the parameter server's


def test_supervisor_recovers(tf, make_cluster, tmp_path):
    """A Supervisor's program asks for a session again, and goes on from the last checkpoint."""
    c = make_cluster({"ps": 1, "worker": 1})
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
        x = tf.get_variable("x", initializer=1.0, use_resource=False)
        global_step = tf.train.get_or_create_global_step()
        step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(x), global_step=global_step)
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), global_step=global_step, save_model_secs=0, save_summaries_secs=0)
    s = supervisor.prepare_or_wait_for_session(c.target("worker"))
    for _ in range(5):
        s.run(step)
    supervisor.saver.save(s, str(tmp_path / "model.ckpt"), global_step)
    s.run(step)
    c["ps", 0].restart()
    with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError)):
        s.run(step)
    s.close()
    s = supervisor.prepare_or_wait_for_session(c.target("worker"))
    assert s.run(global_step) == 5
    s.run(step)
    assert s.run(global_step) == 6
    supervisor.stop()


def test_idle_worker_may_die(tf, make_cluster):
    """A session that does not use a task goes on without it when device filters leave it out."""
    c = make_cluster({"ps": 1, "worker": 2})
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=2.0, use_resource=False)
    with tf.Session(c.target("worker", 0), config=config) as s:
        s.run(v.initializer)
        c["worker", 1].kill()
        assert s.run(v * 2.0) == 4.0
        with tf.Session(c.target("worker", 0), config=config) as t:
            assert t.run(v * 3.0) == 6.0


def test_client_that_vanishes_leaves_nothing_running(make_cluster, tmp_path):
    """A client is killed in the middle of a step; the server's work for it ends."""
    import subprocess
    import sys
    from cluster_fixture import wait_until
    c = make_cluster({"local": 1})
    script = ("import tensorflow as tf; t = tf.compat.v1; t.disable_eager_execution()\n"
              "loop = t.while_loop(lambda i: i >= 0, lambda i: (i + 1) %% 7, [t.constant(0)])\n"
              "s = t.Session(%r); s.run(t.constant(1)); print('ready', flush=True); s.run(loop)\n" % c.target("local"))
    p = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert p.stdout.readline() == b"ready\n"
    c["local", 0].await_steps()
    p.kill()
    p.wait()
    pid = c["local", 0].process.pid

    def ticks():
        with open("/proc/%d/stat" % pid) as f:
            v = f.read().rsplit(")", 1)[1].split()
        return int(v[11]) + int(v[12])

    def is_idle():
        before = ticks()
        time.sleep(0.5)
        return ticks() - before <= 3
    wait_until(is_idle, what="the server is idle again")
