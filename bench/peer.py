#!/usr/bin/env python3
"""Measures a TensorFlow cluster from the outside, through the unmodified TensorFlow client.

The same client code drives any server that speaks TensorFlow's protocol, so two servers
are compared on the same work, in turn, in one run:

    python peer.py --server tf --server 'build/tensord --cluster_spec={cluster} --job_name={job} --task_index={task}'

`tf` starts the TensorFlow that is installed in this Python (tf.train.Server) in a process per task.
A case's figure is the median of its repetitions; figures are ratios to the first server.
"""
import argparse, json, os, shlex, signal, socket, statistics, subprocess, sys, tempfile, time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

TF_SERVER = r"""
import os, sys, json
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf
c, j, t = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tf.compat.v1.train.Server(c, job_name=j, task_index=t).join()
"""


def free_ports(n):
    """n TCP ports that were free a moment ago."""
    socks = [socket.socket() for _ in range(n)]
    for s in socks:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return ports


class Cluster:
    """A process per task, started from a server command template, or from a JSON object of one per job."""

    def __init__(self, server, jobs):
        ports = iter(free_ports(sum(jobs.values())))
        self.spec = {j: ["localhost:%d" % next(ports) for _ in range(n)] for j, n in jobs.items()}
        flat = ",".join("%s|%s" % (j, ";".join(a)) for j, a in self.spec.items())
        self.procs, self.log = {}, tempfile.TemporaryFile()
        began, execed = time.perf_counter(), {}
        for job, addrs in self.spec.items():
            kind = json.loads(server)[job] if server.startswith("{") else server
            for task in range(len(addrs)):
                if kind == "tf":
                    cmd = [sys.executable, "-c", TF_SERVER, json.dumps(self.spec), job, str(task)]
                else:
                    cmd = [w.format(cluster=flat, job=job, task=task) for w in shlex.split(kind)]
                self.procs[job, task] = subprocess.Popen(cmd, stdout=self.log, stderr=self.log)
                execed[job, task] = time.perf_counter()     # Popen returns when exec is done
        for (job, task), p in self.procs.items():
            host, port = self.spec[job][task].split(":")
            while True:
                if p.poll() is not None:
                    self.log.seek(0)
                    sys.exit("server %s/%d exited:\n%s" % (job, task, self.log.read().decode()[-2000:]))
                try:
                    socket.create_connection((host, int(port)), 1).close()
                    break
                except OSError:
                    time.sleep(0.0005)
            self.accept_s = time.perf_counter() - execed[job, task]     # of the last task waited for
        self.start_s = time.perf_counter() - began

    def target(self, job, task=0):
        return "grpc://" + self.spec[job][task]

    def status_kb(self, job, task, key):
        with open("/proc/%d/status" % self.procs[job, task].pid) as f:
            return next(int(l.split()[1]) for l in f if l.startswith(key))

    def cpu_s(self):
        """CPU seconds used so far by all servers."""
        tick, total = os.sysconf("SC_CLK_TCK"), 0
        for p in self.procs.values():
            with open("/proc/%d/stat" % p.pid) as f:
                v = f.read().rsplit(")", 1)[1].split()
            total += int(v[11]) + int(v[12])
        return total / tick

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for p in self.procs.values():
            p.send_signal(signal.SIGKILL)
        for p in self.procs.values():
            p.wait()


def cpu_us_per_call(cluster, fn, cpu_s=1.0, wall_s=10.0):
    """CPU microseconds of all servers per call of fn, over enough calls for the clock's 10 ms ticks."""
    began, cpu, n = time.perf_counter(), cluster.cpu_s(), 0
    while cluster.cpu_s() - cpu < cpu_s and time.perf_counter() - began < wall_s:
        for _ in range(100):
            fn()
        n += 100
    return (cluster.cpu_s() - cpu) / n * 1e6


def tf1():
    import tensorflow as tf
    t = tf.compat.v1
    t.disable_eager_execution()
    t.disable_resource_variables()
    t.logging.set_verbosity(t.logging.ERROR)
    return t


def plain_config(t):
    """A session config without graph rewriting, so that the nodes that are written are the nodes that run."""
    c = t.ConfigProto()
    c.graph_options.rewrite_options.disable_meta_optimizer = True
    c.graph_options.optimizer_options.opt_level = t.OptimizerOptions.L0
    c.graph_options.optimizer_options.do_constant_folding = False
    return c


def rate(fn, seconds=2.0, warm=3):
    """Calls per second of fn, and the latency percentiles of single calls in microseconds."""
    for _ in range(warm):
        fn()
    lat, end = [], time.perf_counter() + seconds
    while True:
        a = time.perf_counter()
        fn()
        b = time.perf_counter()
        lat.append(b - a)
        if b > end:
            break
    lat.sort()
    return {"per_s": len(lat) / sum(lat), "p50_us": lat[len(lat) // 2] * 1e6, "p99_us": lat[int(len(lat) * .99)] * 1e6}


# --- cases: each takes a server and returns {figure name: value} -----------------------------------

def case_start(server):
    """Start of one task: exec to accepting a connection, to a first session, and its resident memory."""
    t = tf1()
    with Cluster(server, {"local": 1}) as c:
        with t.Session(c.target("local"), graph=t.Graph()) as s:
            s.list_devices()
        return {"accept_ms": c.accept_s * 1e3, "idle_rss_mb": c.status_kb("local", 0, "VmRSS") / 1024,
                "threads": c.status_kb("local", 0, "Threads")}


def case_null_step(server):
    """A step that does nothing, on one task."""
    t = tf1()
    with Cluster(server, {"local": 1}) as c, t.Graph().as_default():
        op = t.no_op()
        with t.Session(c.target("local")) as s:
            call = s.make_callable([op])
            r = rate(call)
            r["server_cpu_us"] = cpu_us_per_call(c, call)
            return r


def case_null_step_fanout(server, ps=8):
    """A step that reads a scalar from each of 8 ps tasks on one worker (the null step of the OSDI'16 paper)."""
    t = tf1()
    with Cluster(server, {"ps": ps, "worker": 1}) as c, t.Graph().as_default():
        v = []
        for i in range(ps):
            with t.device("/job:ps/task:%d" % i):
                v.append(t.get_variable("v%d" % i, initializer=1.0))
        with t.device("/job:worker/task:0"):
            op = t.group(*[t.identity(x) for x in v])
        with t.Session(c.target("worker"), config=plain_config(t)) as s:
            s.run(t.global_variables_initializer())
            call = s.make_callable([op])
            r = rate(call)
            r["server_cpu_us"] = cpu_us_per_call(c, call)
            return r


def case_transfer(server):
    """One tensor from ps to worker a step, by size: GB/s."""
    t, out = tf1(), {}
    with Cluster(server, {"ps": 1, "worker": 1}) as c, t.Graph().as_default():
        ops = []
        for kb in (4, 64, 1024, 16384, 131072, 1048576):
            with t.device("/job:ps/task:0"):
                v = t.get_variable("v%d" % kb, [kb * 256], initializer=t.zeros_initializer())
                x = t.identity(v)
            with t.device("/job:worker/task:0"):
                ops.append((kb, t.group(t.slice(x, [0], [1]))))
        with t.Session(c.target("worker"), config=plain_config(t)) as s:
            s.run(t.global_variables_initializer())
            for kb, op in ops:
                r = rate(s.make_callable([op]), seconds=2.0)
                out["%dKB_GBps" % kb] = kb * 1024 * r["per_s"] / 1e9
                if kb in (4, 64):
                    out["%dKB_p50_us" % kb] = r["p50_us"]
        out["worker_peak_rss_mb"] = c.status_kb("worker", 0, "VmHWM") / 1024
        out["ps_peak_rss_mb"] = c.status_kb("ps", 0, "VmHWM") / 1024
    return out


def case_fetch_feed(server):
    """64 MiB between the client and the server: feed and fetch, GB/s."""
    import numpy as np
    t = tf1()
    with Cluster(server, {"local": 1}) as c, t.Graph().as_default():
        p = t.placeholder(t.float32, [None]); fed = t.group(t.slice(p, [0], [1]))
        v = t.get_variable("v", [16 << 20], initializer=t.zeros_initializer())
        with t.Session(c.target("local"), config=plain_config(t)) as s:
            s.run(v.initializer)
            a = np.zeros(16 << 20, np.float32)
            f = rate(lambda: s.run(fed, {p: a}), 3.0)
            g = rate(lambda: s.run(v), 3.0)
        return {"feed_GBps": a.nbytes * f["per_s"] / 1e9, "fetch_GBps": a.nbytes * g["per_s"] / 1e9}


def case_executor(server):
    """Nodes a second: a chain, a wide fan and a loop, of ops that do nothing, on one task."""
    t, out = tf1(), {}
    n = 20000
    with Cluster(server, {"local": 1}) as c:
        for shape in ("chain", "wide", "identity_chain"):
            with t.Graph().as_default():
                if shape == "chain":
                    op = t.no_op()
                    for _ in range(n):
                        with t.control_dependencies([op]):
                            op = t.no_op()
                elif shape == "wide":
                    op = t.group(*[t.no_op() for _ in range(n)])
                else:
                    x = t.zeros([])
                    for _ in range(n):
                        x = t.identity(x)
                    op = x.op
                with t.Session(c.target("local"), config=plain_config(t)) as s:
                    a = time.perf_counter()
                    s.run(op)
                    out[shape + "_first_run_s"] = time.perf_counter() - a
                    r = rate(s.make_callable([op]), 2.0)
                    out[shape + "_Mnodes_per_s"] = n * r["per_s"] / 1e6
        with t.Graph().as_default():
            loop = t.while_loop(lambda i: i < 20000, lambda i: i + 1, [t.constant(0)])
            with t.Session(c.target("local"), config=plain_config(t)) as s:
                r = rate(s.make_callable([loop.op]), 2.0)
                out["while_Miter_per_s"] = 20000 * r["per_s"] / 1e6
    return out


def train(server, build, workers=2, ps=1, seconds=6.0):
    """Between-graph training: a client process per worker, all with variables on ps; steps a second in all."""
    with Cluster(server, {"ps": ps, "worker": workers}) as c:
        cmd = [sys.executable, os.path.abspath(__file__), "--client", build, "--seconds", str(seconds)]
        procs = [subprocess.Popen(cmd + ["--target", c.target("worker", i), "--task", str(i), "--ps", str(ps)],
                                  stdout=subprocess.PIPE) for i in range(workers)]
        got = [json.loads(p.communicate()[0].decode().strip().splitlines()[-1]) for p in procs]
        return {"steps_per_s": sum(g["steps_per_s"] for g in got), "final_loss": max(g["loss"] for g in got),
                "server_cpu_ms_per_step": c.cpu_s() / sum(g["steps"] for g in got) * 1e3,
                "ps_peak_rss_mb": c.status_kb("ps", 0, "VmHWM") / 1024,
                "worker_peak_rss_mb": c.status_kb("worker", 0, "VmHWM") / 1024}


def digits():
    """The handwritten digits that scikit-learn carries: 1,797 images of 8 x 8."""
    from sklearn.datasets import load_digits
    d = load_digits()
    return (d.data / 16.0).astype("float32"), d.target.astype("int64")


def model_softmax(t):
    x, y = digits(); x, y = t.constant(x[:256]), t.constant(y[:256])
    w, b = t.get_variable("w", [64, 10]), t.get_variable("b", [10])
    loss = t.reduce_mean(t.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=t.matmul(x, w) + b))
    return loss, t.train.GradientDescentOptimizer(0.1)


def model_mlp(t):
    x, y = digits(); h, y = t.constant(x[:128]), t.constant(y[:128])
    for i, (a, n) in enumerate(((64, 512), (512, 512), (512, 512), (512, 10))):
        w, b = t.get_variable("w%d" % i, [a, n]), t.get_variable("b%d" % i, [n], initializer=t.zeros_initializer())
        h = t.matmul(h, w) + b
        h = t.nn.relu(h) if n != 10 else h
    loss = t.reduce_mean(t.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h))
    return loss, t.train.AdamOptimizer(1e-3)


def model_cnn(t):
    x, y = digits(); h, y = t.reshape(t.constant(x[:128]), [-1, 8, 8, 1]), t.constant(y[:128])
    for i, (a, n) in enumerate(((1, 32), (32, 64))):
        h = t.nn.relu(t.nn.conv2d(h, t.get_variable("k%d" % i, [3, 3, a, n]), [1, 1, 1, 1], "SAME"))
        h = t.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    h = t.reshape(h, [-1, 256])
    h = t.nn.relu(t.matmul(h, t.get_variable("w", [256, 128])))
    loss = t.reduce_mean(t.nn.sparse_softmax_cross_entropy_with_logits(
        labels=y, logits=t.matmul(h, t.get_variable("w2", [128, 10]))))
    return loss, t.train.MomentumOptimizer(0.01, 0.9)


def model_embedding(t):
    table = t.get_variable("table", [1000000, 32], initializer=t.zeros_initializer())
    ids = t.random_uniform([4096], 0, 1000000, t.int32)
    e = t.nn.embedding_lookup(table, ids)
    loss = t.reduce_mean(t.square(e - 1.0))
    return loss, t.train.AdagradOptimizer(0.1)


def model_many_variables(t):
    x = t.ones([8, 32])
    for i in range(300):
        x = t.tanh(t.matmul(x, t.get_variable("w%d" % i, [32, 32])))
    return t.reduce_mean(t.square(x)), t.train.GradientDescentOptimizer(0.01)


def client(args):
    """One worker's client process: builds its graph, trains for some seconds, prints a JSON line."""
    t = tf1()
    with t.Graph().as_default():
        with t.device(t.train.replica_device_setter(ps_tasks=args.ps, worker_device="/job:worker/task:%d" % args.task)):
            loss, opt = globals()["model_" + args.client](t)
            step = opt.minimize(loss, global_step=t.train.get_or_create_global_step())
        with t.Session(args.target) as s:
            if args.task == 0:
                s.run(t.global_variables_initializer())
            else:
                ready = t.report_uninitialized_variables()
                while len(s.run(ready)):
                    time.sleep(0.05)
            call = s.make_callable([step, loss])
            for _ in range(5):
                call()
            n, a = 0, time.perf_counter()
            while time.perf_counter() - a < args.seconds:
                _, l = call()
                n += 1
            print(json.dumps({"steps_per_s": n / (time.perf_counter() - a), "steps": n, "loss": float(l)}))


def case_train_softmax(server): return train(server, "softmax")
def case_train_mlp(server): return train(server, "mlp")
def case_train_cnn(server): return train(server, "cnn")
def case_train_embedding(server): return train(server, "embedding")
def case_train_many_variables(server): return train(server, "many_variables", ps=2)


def case_big_graph(server):
    """A graph of 40,001 nodes: session creation (graph upload) and first step."""
    t = tf1()
    with Cluster(server, {"local": 1}) as c, t.Graph().as_default():
        x = t.ones([4])
        for _ in range(10000):
            x = (x + 1.0) * 0.5
        with t.Session(c.target("local"), config=plain_config(t)) as s:
            a = time.perf_counter(); s.list_devices(); s.run(t.no_op()); b = time.perf_counter()
            s.run(x.op); d = time.perf_counter()
            return {"upload_s": b - a, "first_step_s": d - b}


def case_checkpoint(server):
    """256 MB of variables: save and restore, GB/s."""
    t = tf1()
    with Cluster(server, {"ps": 1}) as c, t.Graph().as_default(), tempfile.TemporaryDirectory() as d:
        with t.device("/job:ps/task:0"):
            vs = [t.get_variable("v%d" % i, [4 << 20], initializer=t.ones_initializer()) for i in range(16)]
            saver = t.train.Saver(vs)
        with t.Session(c.target("ps")) as s:
            s.run(t.global_variables_initializer())
            w, r = [], []
            for i in range(3):
                a = time.perf_counter(); path = saver.save(s, d + "/m", global_step=i, write_meta_graph=False)
                b = time.perf_counter(); saver.restore(s, path); e = time.perf_counter()
                w.append(b - a); r.append(e - b)
            return {"save_GBps": .268 / statistics.median(w), "restore_GBps": .268 / statistics.median(r)}


def case_scale(server, ps=24):
    """A session over 24 ps tasks: memory of all, time to create the session, a step that touches every task."""
    t = tf1()
    with Cluster(server, {"ps": ps, "worker": 1}) as c, t.Graph().as_default():
        v = []
        for i in range(ps):
            with t.device("/job:ps/task:%d" % i):
                v.append(t.get_variable("v%d" % i, initializer=1.0))
        with t.device("/job:worker/task:0"):
            op = t.group(*[t.identity(x) for x in v])
        with t.Session(c.target("worker"), config=plain_config(t)) as s:
            a = time.perf_counter(); s.list_devices(); b = time.perf_counter()
            s.run(t.global_variables_initializer())
            r = rate(s.make_callable([op]))
            return {"all_start_s": c.start_s, "session_s": b - a, "step_p50_us": r["p50_us"],
                    "all_rss_mb": sum(c.status_kb("ps", i, "VmRSS") for i in range(ps)) / 1024}


CASES = {k[5:]: v for k, v in list(globals().items()) if k.startswith("case_")}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--server", action="append", help="'tf' or a command with {cluster} {job} {task}; repeat to compare")
    p.add_argument("--case", action="append", choices=sorted(CASES), help="default: all")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--json")
    p.add_argument("--client"); p.add_argument("--target"); p.add_argument("--task", type=int); p.add_argument("--ps", type=int)
    p.add_argument("--seconds", type=float)
    args = p.parse_args()
    if args.client:
        return client(args)
    servers, results = args.server or ["tf"], {}
    for case in args.case or CASES:
        runs = {s: [] for s in servers}
        for _ in range(args.runs):
            for s in servers:           # in turn, so that a drift of the machine falls on all alike
                # a process per measurement, so that no client state is carried over
                code = "import sys, json; sys.path.insert(0, %r); import peer; print(json.dumps(peer.CASES[%r](%r)))" % (
                    os.path.dirname(os.path.abspath(__file__)), case, s)
                r = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                if r.returncode:
                    print("%s failed on %s:\n%s" % (case, s, r.stderr.decode()[-1500:]), file=sys.stderr)
                    continue
                runs[s].append(json.loads(r.stdout.decode().strip().splitlines()[-1]))
        results[case] = {}
        for s in servers:
            if runs[s]:
                results[case][s] = {k: statistics.median(x[k] for x in runs[s]) for k in runs[s][0]}
        for k in (results[case].get(servers[0]) or {}):
            row = [results[case].get(s, {}).get(k) for s in servers]
            ratios = "".join("  x%.2f" % (v / row[0]) if v is not None and row[0] else "  -" for v in row[1:])
            print("%-22s %-28s %s%s" % (case, k, "  ".join("%12.4g" % v if v is not None else "%12s" % "-" for v in row), ratios), flush=True)
    if args.json:
        json.dump(results, open(args.json, "w"), indent=1)


if __name__ == "__main__":
    main()
