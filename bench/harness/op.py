"""Operations alone: 100 instances of one in a step on one task, less a step that only reads their inputs.

Both servers run the same graph in turn; the shortest of their steps count, which a busy machine disturbs least. The
session's configuration keeps both from rewriting the graph. Matrix products and convolutions are also compared with
oneDNN's bare primitive for them (build/primitive_bench): as many calls as a step has operations, by as many threads,
which sleep before and wake the caller after them. It runs in turn with the servers, and its shortest step counts, too:
machines change their speed within seconds, and something shorter than a step would find a better moment. For the same
reason such a case takes four times as many rounds: both sides shall have met the machine at its best.
"""
import json
import os
import subprocess
import sys
import time

import peer
from harness import op_cases, servers
from harness.figures import OP_GOAL, SHARE_GOAL, figure

INSTANCES = 100
NOISE_US = 0.01
ROUNDS, FEWEST_ROUNDS, LONG_S = 6, 3, 2.0
SHARE_FACTOR = 4  # of all three, where shares are measured


class Side:
    """A server, and one step of its."""

    def __init__(self, server):
        self.cluster = peer.Cluster(server, {"local": 1})
        self.session = None

    def open(self, t, graph, op, empty):
        self.session = t.Session(self.cluster.target("local"), graph=graph, config=peer.plain_config(t))
        with graph.as_default():
            self.session.run(t.global_variables_initializer())
        self.op, self.empty = self.session.make_callable([op]), self.session.make_callable([empty])
        self.steps, self.empty_steps, self.cpu = [], [], 0.0
        self.run(self.op, [])
        self.run(self.empty, [])

    def run(self, step, times):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)

    def measure(self, seconds):
        """For about so long: the step and the empty one in turn."""
        until, first = time.perf_counter() + seconds, len(self.steps)
        while len(self.steps) == first or time.perf_counter() < until:
            cpu = servers.cpu_s(self.cluster)
            self.run(self.op, self.steps)
            self.cpu += servers.cpu_s(self.cluster) - cpu
            self.run(self.empty, self.empty_steps)

    def op_us(self):
        """Not less than 0.01: that would be noise."""
        return max((min(self.steps) - min(self.empty_steps)) / INSTANCES * 1e6, NOISE_US)

    def cpu_us(self):
        return self.cpu / len(self.steps) / INSTANCES * 1e6

    def close(self, t):
        if self.session:
            self.session.close()
            self.session = None
            t.Session.reset(self.cluster.target("local"))


def build(t, build_case, size):
    graph = t.Graph()
    with graph.as_default():
        inputs = op_cases.Inputs(t)
        make = build_case(inputs, size)
        op = t.group(*[make(i) for i in range(INSTANCES)])
        empty = t.group(*inputs.reads)
    return graph, op, empty


class Bare:
    """Steps of the bare primitive of a case; says nothing where there is none, or it is not built."""

    def __init__(self, options, name, size):
        self.program = os.path.join(options.build, "primitive_bench")
        has_one = name in op_cases.PRIMITIVES and os.path.exists(self.program)
        self.arguments = op_cases.PRIMITIVES[name](size) if has_one else None
        self.calls_us = []

    def measure(self, seconds):
        if self.arguments:
            out = subprocess.check_output(
                [self.program, "--seconds", str(seconds), "--calls", str(INSTANCES)] + self.arguments)
            self.calls_us.append(json.loads(out.decode())["best"] / 1e3)

    def call_us(self):
        return min(self.calls_us) if self.calls_us else None


def measure(t, sides, bare, name, size, quick):
    graph, op, empty = build(t, op_cases.CASES[name], size)
    try:
        for s in sides:
            s.open(t, graph, op, empty)
        began, factor = time.perf_counter(), SHARE_FACTOR if bare.arguments else 1
        for i in range(1 if quick else ROUNDS * factor):
            for s in sides + [bare]:
                s.measure(0.001 if quick else 0.06)
            if i + 1 >= FEWEST_ROUNDS * factor and time.perf_counter() - began > LONG_S * factor:
                break
        ours, theirs = sides
        figures = [s.op_us() for s in sides]
        if NOISE_US in figures:
            print("%s: an empty step took as long" % name, file=sys.stderr)
        return figure(figures[0], "us", "lower", None if NOISE_US in figures else figures[1], cpu_us=round(ours.cpu_us(), 3),
                      tensorflow_cpu_us=round(theirs.cpu_us(), 3))
    finally:
        for s in sides:
            s.close(t)


def wanted(options):
    return [name for name in op_cases.CASES
            if not options.only or any(o in name + "/" + s for o in options.only for s in op_cases.SIZES)]


def run(options, add):
    t = peer.tf1()
    slow, below = [], []
    sides = [Side(servers.tensord(options)), Side(servers.TENSORFLOW)]
    try:
        for name in wanted(options):
            for size, size_name in enumerate(op_cases.SIZES):
                full = "%s/%s" % (name, size_name)
                if not any(o in full for o in options.only or (["/small"] if options.quick else [""])):
                    continue
                bare = Bare(options, name, size)
                try:
                    f = measure(t, sides, bare, name, size, options.quick)
                except t.errors.OpError as e:
                    print("%s: %s" % (full, e.message), file=sys.stderr)
                    continue
                add(full, f)
                if f.get("ratio", 1) * OP_GOAL < 1:
                    slow.append((f["ratio"], full))
                if bare.call_us():
                    share = figure(100 * bare.call_us() / f["value"], "%", "higher", bare_us=round(bare.call_us(), 3))
                    add(full + ", of bare oneDNN", share)
                    if share["value"] < SHARE_GOAL:
                        below.append((share["value"], full))
    finally:
        for s in sides:
            s.cluster.__exit__()
    for ratio, full in sorted(slow):
        print("over %.1f x of TensorFlow's time: %-50s %.2f x" % (OP_GOAL, full, 1 / ratio))
    for share, full in sorted(below):
        print("below %d %% of bare oneDNN: %-50s %.0f %%" % (SHARE_GOAL, full, share))
