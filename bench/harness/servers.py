"""Servers to measure, as bench/peer.py starts them, and what they use."""
import os

import peer


def tensord(options):
    return os.path.join(options.build, "tensord") + " --cluster_spec={cluster} --job_name={job} --task_index={task}"


TENSORFLOW = "tf"


def cpu_s(cluster):
    """CPU seconds of all servers of a peer.Cluster, to the nanosecond (its own cpu_s() counts in ticks of 10 ms)."""
    total = 0
    for process in cluster.procs.values():
        tasks = "/proc/%d/task" % process.pid
        for thread in os.listdir(tasks):
            try:
                with open("%s/%s/schedstat" % (tasks, thread)) as f:
                    total += int(f.read().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass  # it ended; what it used is lost
    return total / 1e9
