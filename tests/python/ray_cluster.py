"""A Ray cluster of two nodes on this machine, for test_batch_ray.py: prints its address, and kills the second node when told."""

import json
import sys

import ray.cluster_utils

cluster = ray.cluster_utils.Cluster(
    initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
)
second = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
cluster.wait_for_nodes()
print(json.dumps({"address": cluster.address}), flush=True)
for line in sys.stdin:
    cluster.remove_node(second, allow_graceful=False)
    print(json.dumps({"killed": True}), flush=True)
cluster.shutdown()
