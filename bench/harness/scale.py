"""Many tasks on one machine, and many clients: memory, start, sessions, steps; what an idle cluster costs."""
import json
import os
import subprocess
import sys
import time

import peer
from harness import servers
from harness.figures import figure

SIZES = (8, 32, 128, 512)
TENSORFLOW_MB = 400  # of memory that a task of TensorFlow's may come to need
IDLE_TASKS = 16
CLIENTS = (1, 8, 64, 200)


def available_mb():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable")) / 1024


def fits(tasks):
    """Whether TensorFlow is measured at that size."""
    return tasks <= 32 and tasks * TENSORFLOW_MB < available_mb()


def idle_percent(cluster, seconds):
    """Of one core, all tasks together."""
    time.sleep(min(seconds, 1.0))  # what a step left behind is over
    began, used = time.perf_counter(), servers.cpu_s(cluster)
    time.sleep(seconds)
    return 100 * (servers.cpu_s(cluster) - used) / (time.perf_counter() - began)


def over_all(t, tasks):
    """A step that reads a variable of every ps."""
    values = []
    for i in range(tasks):
        with t.device("/job:ps/task:%d" % i):
            values.append(t.get_variable("v%d" % i, initializer=1.0))
    with t.device("/job:worker/task:0"):
        return t.group(*[t.identity(v) for v in values])


def measure(server, tasks, quick):
    """Figures of a cluster of idle ps tasks and a worker: name -> (value, unit)."""
    with peer.Cluster(server, {"ps": tasks, "worker": 1}) as c:
        out = {"start": (c.start_s, "s")}
        t = peer.tf1()  # not earlier: a process that has TensorFlow is slow to fork
        with t.Graph().as_default():
            measure_session(t, c, tasks, 0.1 if quick else 2.0, out)
        out["memory of all"] = sum(c.status_kb(job, i, "VmRSS") for job, i in c.procs) / 1024.0, "MB"
        out["memory of the worker"] = c.status_kb("worker", 0, "VmRSS") / 1024.0, "MB"
        return out


def measure_session(t, c, tasks, seconds, out):
    op, nothing, init = over_all(t, tasks), t.no_op(), t.global_variables_initializer()
    with t.Session(c.target("worker"), config=peer.plain_config(t)) as s:
        began = time.perf_counter()
        s.run(nothing)
        out["session"] = time.perf_counter() - began, "s"
        s.run(init)
        began = time.perf_counter()
        s.run(op)
        out["first step over all"] = time.perf_counter() - began, "s"
        out["step over all, p50"] = peer.rate(s.make_callable([op]), seconds)["p50_us"], "us"
        out["null step, p50"] = peer.rate(s.make_callable([nothing]), seconds)["p50_us"], "us"
        out["idle CPU of all"] = idle_percent(c, seconds * 5), "% of a core"


def measure_apart(*arguments):
    """measure() in a process of its own, so that nothing is carried over."""
    code = "import sys, json; sys.path.insert(0, %r); from harness import scale; print(json.dumps(scale.measure(*%r)))"
    command = [sys.executable, "-c", code % (os.path.dirname(peer.__file__), arguments)]
    return json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL).decode().splitlines()[-1])


def load(server, options, clients, spread):
    """tensorctl bench: name -> (value, unit, better)."""
    command = [os.path.join(options.build, "tensorctl"), "bench", "--json", "--clients=%d" % clients,
               "--seconds=%g" % (0.2 if options.quick else 5)]
    with peer.Cluster(server, {"ps": 2, "worker": 1} if spread else {"worker": 1}) as c:
        found = json.loads(subprocess.check_output(command + [c.target("worker")]).decode())
    return {"steps": (found["steps_per_s"], "/s", "higher"), "p50": (found["p50_ms"] * 1e3, "us", "lower"),
            "p99": (found["p99_ms"] * 1e3, "us", "lower"),
            "p99 in p50s": (found["p99_ms"] / max(found["p50_ms"], 1e-3), "times", "lower")}


def many_tasks(options, wanted, add):
    for tasks in SIZES[:1] if options.quick else SIZES:
        name = "%d tasks" % tasks
        if not wanted(name):
            continue
        theirs = measure_apart(servers.TENSORFLOW, tasks, options.quick) if fits(tasks) and not options.quick else {}
        for what, (value, unit) in measure_apart(servers.tensord(options), tasks, options.quick).items():
            add("%s/%s" % (name, what), figure(value, unit, "lower", theirs.get(what, (None,))[0]))


def idle(options, wanted, add):
    name = "%d tasks/idle CPU of all" % IDLE_TASKS
    if options.quick or not wanted(name):
        return
    theirs = measure_apart(servers.TENSORFLOW, IDLE_TASKS, False)[name.split("/")[1]][0] if fits(IDLE_TASKS) else None
    ours, unit = measure_apart(servers.tensord(options), IDLE_TASKS, False)[name.split("/")[1]]
    add(name, figure(ours, unit, "lower", theirs))


def their_load(options, clients, spread):
    """TensorFlow's figures; none where its server gives up, as it may under hundreds of clients."""
    try:
        return load(servers.TENSORFLOW, options, clients, spread)
    except subprocess.CalledProcessError as e:
        if e.returncode != 1:  # 1: the server failed, and tensorctl said how; all else is tensorctl's own fault
            raise
        print("TensorFlow under %d clients: no figures" % clients, file=sys.stderr)
        return {}


def many_clients(options, wanted, add):
    for spread in (False, True):
        for clients in CLIENTS[:1] if options.quick else CLIENTS:
            name = "%d clients, %s" % (clients, "3 tasks" if spread else "1 task")
            if not wanted(name):
                continue
            theirs = {} if options.quick else their_load(options, clients, spread)
            for what, (value, unit, better) in load(servers.tensord(options), options, clients, spread).items():
                add("%s/%s" % (name, what), figure(value, unit, better, theirs.get(what, (None,))[0]))


def run(options, add):
    def wanted(name):
        return not options.only or any(o in name for o in options.only)

    many_tasks(options, wanted, add)
    idle(options, wanted, add)
    many_clients(options, wanted, add)
