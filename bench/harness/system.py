"""Clusters from outside: the cases of bench/peer.py with both servers, training also on mixed clusters."""
import json
import os
import subprocess
import sys
import tempfile

import peer
from harness import servers
from harness.figures import figure

QUICK = ("start", "null_step")


def unit_of(name):
    """Of a figure of peer.py: unit, and which way is better."""
    if name == "final_loss":
        return "", ""
    if name == "threads":
        return "threads", "lower"
    if name.endswith("ms_per_step"):
        return "ms", "lower"
    for end, unit in (("GBps", "GB/s"), ("Mnodes_per_s", "M/s"), ("Miter_per_s", "M/s"), ("per_s", "/s")):
        if name.endswith(end):
            return unit, "higher"
    return {"ms": "ms", "us": "us", "mb": "MB", "s": "s"}[name.rsplit("_", 1)[1]], "lower"


def clusters(options, case):
    """What is measured beside TensorFlow: name ("" for tensord alone) -> peer.py's --server."""
    found = {"": servers.tensord(options)}
    if case.startswith("train_"):
        for ours in ("ps", "worker"):
            jobs = {job: servers.tensord(options) if job == ours else servers.TENSORFLOW for job in ("ps", "worker")}
            found["tensord " + ours] = json.dumps(jobs)
    return found


def measure(options, case, measured):
    """peer.py's figures: server -> name -> value."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        command = [sys.executable, peer.__file__, "--case", case, "--runs", str(1 if options.quick else options.runs),
                   "--json", path]
        for server in [servers.TENSORFLOW] + list(measured.values()):
            command += ["--server", server]
        subprocess.check_call(command, stdout=subprocess.DEVNULL)
        with open(path) as f:
            return json.load(f)[case]


def run(options, add):
    for case in QUICK if options.quick else peer.CASES:
        if options.only and not any(o in case for o in options.only):
            continue
        measured = clusters(options, case)
        found = measure(options, case, measured)
        theirs = found.get(servers.TENSORFLOW, {})
        for cluster, server in measured.items():
            for name, value in found.get(server, {}).items():
                unit, better = unit_of(name)
                full = "%s/%s%s" % (case, name, ", " + cluster if cluster else "")
                add(full, figure(value, unit, better, theirs.get(name)))
