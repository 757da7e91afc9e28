"""The least that a node pool is given."""

from typing import Any

POOL: Any = {
    "project": "project",
    "location": "us-central1",
    "cluster_name": "c",
    "node_service_account": "s",
    "machine_type": "a2-highgpu-1g",
    "max_nodes": 2,
    "zones": ["us-central1-a"],
}
