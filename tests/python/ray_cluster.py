"""A Ray cluster of two nodes on this machine, for test_batch_ray.py: prints its address, then does what it is told, a word a line.

stop: the workers of the second node stand still in the middle of what they do, as on a machine that is about to fail
kill: the second node is gone, with all its processes
"""

import json
import os
import signal
import sys

import ray.cluster_utils
from system import command_words, processes_below


def is_worker(process):
    return "--worker" in command_words(process)


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
