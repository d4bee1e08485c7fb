"""What lasts shows: in tensorctl status while it does, and in the log once it has lasted for 10 s."""
import json
import subprocess
import threading

from cluster_fixture import ENDS, TENSORCTL, Cluster, wait_until


def status(target, *flags):
    """Asked again if the target was too busy: other tasks may be stopped, and are not to be waited for long."""
    for _ in range(100):
        r = subprocess.run([TENSORCTL, "status", target, "--timeout=3"] + list(flags), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, universal_newlines=True, timeout=ENDS)
        if r.returncode == 0:
            return r.stdout
    raise AssertionError(r.stderr)


def waits(target):
    """{job: [(kind, what)]} of all tasks that answer."""
    found = {}
    for t in json.loads(status(target, "--json"))["tasks"]:
        for w in t.get("waits", []):
            assert w["since_s"] >= 1
            found.setdefault(t["task"].split("/")[1][4:], []).append((w["kind"], w["for"]))
    return found


def has(found, job, kind, *parts):
    return any(k == kind and all(p in what for p in parts) for k, what in found.get(job, []))


def in_thread(f, *args):
    t = threading.Thread(target=f, args=args, daemon=True)
    t.start()
    return t


def test_step_that_hangs(tf):
    """The worker waits for a value of the parameter server, where a queue is empty."""
    with Cluster({"ps": 1, "worker": 1}, flags=("--log_level=debug",)) as c, tf.Graph().as_default():
        target = c.target("worker")
        with tf.device("/job:ps/task:0"):
            queue = tf.queue.FIFOQueue(10, tf.float32, shapes=[], name="jobs")
            job = queue.dequeue(name="next_job")
            put = queue.enqueue(1.0)
        with tf.device("/job:worker/task:0"):
            result = tf.add(job, 1.0, name="result")
        with tf.Session(target) as session:
            assert not waits(target)
            results = []
            hung = in_thread(lambda: results.append(session.run(result)))

            def seen():
                w = waits(target)
                return has(w, "ps", "op", 'QueueDequeueV2 "next_job"') and has(w, "ps", "recv", "next_job", "from /job:ps") and has(
                    w, "worker", "recv_tensor", "next_job", "from /job:ps") and has(w, "worker", "run", "/job:ps/replica:0/task:0")

            wait_until(seen, what="waits in the status")
            def told():
                text = status(target)
                return "/job:ps/replica:0/task:0 waits:" in text and "/job:worker/replica:0/task:0 waits:" in text

            wait_until(told, what="both tasks' waits in the text")
            line = "(op): QueueDequeueV2 \"next_job\""
            wait_until(lambda: line in c["ps", 0].output(), what="the wait in the log")
            wait_until(lambda: "(recv_tensor): " in c["worker", 0].output(), what="the receive in the log")
            session.run(put)
            hung.join(ENDS)
            assert results == [2.0]
            wait_until(lambda: not waits(target), what="nothing waits")
            assert c["ps", 0].output().count(line) == 1


def test_absent_task(tf):
    with Cluster({"ps": 1, "worker": 1}) as c, tf.Graph().as_default():
        c["ps", 0].kill()
        x = tf.constant(3)
        results = []

        def client():
            with tf.Session(c.target("worker"), graph=x.graph) as session:
                results.append(session.run(x))

        thread = in_thread(client)
        wait_until(lambda: has(waits(c.target("worker")), "worker", "task", "/job:ps/replica:0/task:0 to answer"), what="the wait")
        c["ps", 0].restart()
        thread.join(ENDS)
        assert results == [3]
        wait_until(lambda: not waits(c.target("worker")), what="nothing waits")


def test_task_that_does_not_compile(tf):
    """A parameter server is stopped in the middle of things: the plan of a new step waits for it."""
    with Cluster({"ps": 1, "worker": 1}) as c, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            x = tf.constant(3)
        with tf.device("/job:worker/task:0"):
            y = tf.constant(4)
        with tf.Session(c.target("worker")) as session:
            assert session.run(y) == 4
            c["ps", 0].suspend()
            results = []
            thread = in_thread(lambda: results.append(session.run(x)))
            wait_until(lambda: has(waits(c.target("worker")), "worker", "plan", "/job:ps/replica:0/task:0 to compile"), what="the wait")
            wait_until(lambda: "(plan): /job:ps/replica:0/task:0 to compile" in c["worker", 0].output(), what="the wait in the log")
            c["ps", 0].resume()
            thread.join(ENDS)
            assert results == [3]
            wait_until(lambda: not waits(c.target("worker")), what="nothing waits")
