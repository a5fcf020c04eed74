"""A Ray cluster of two nodes on this machine, until standard input is closed.

    python -m experiments.scaling.two_nodes

prints its address.
"""

import sys
from typing import Any

from ray import cluster_utils


def main() -> None:
    """Starts the cluster, and ends it with the input."""
    size: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**size, "include_dashboard": False}
    )
    cluster.add_node(**size)
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
