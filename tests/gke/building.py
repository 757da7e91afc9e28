"""The least that a node pool is given, and a maintenance window."""

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

WEEKEND_8H = {
    "start_time": "2026-01-03T02:00:00Z",
    "end_time": "2026-01-03T10:00:00Z",
    "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU",
}
