"""A Ray cluster of two nodes on this machine, for test_batch_ray.py: prints its address, then does what it is told, a word a line.

stop: the workers of the second node stand still in the middle of what they do, as on a machine that is about to fail
kill: the second node is gone, with all its processes
"""

import json
import os
import pathlib
import signal
import sys

import ray.cluster_utils


def parents():
    """process → its parent, of all that run."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            pass  # it has ended meanwhile
    return found


def processes_below(root):
    below, known = [root], parents()
    for process in below:
        below += [child for child, parent in known.items() if parent == process]
    return below


def is_worker(process):
    try:
        return b"--worker" in pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def send(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


cluster = ray.cluster_utils.Cluster(
    initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
)
second = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
cluster.wait_for_nodes()
print(json.dumps({"address": cluster.address}), flush=True)
own = []
for line in sys.stdin:
    if line.strip() == "stop":
        own = processes_below(second.all_processes["raylet"][0].process.pid)
        workers = [process for process in own if is_worker(process)]
        send(workers, signal.SIGSTOP)
        print(json.dumps({"stopped": workers}), flush=True)
    else:
        send([process for process in own if process != own[0]], signal.SIGKILL)
        cluster.remove_node(second, allow_graceful=False)
        print(json.dumps({"killed": True}), flush=True)
cluster.shutdown()
