"""The rules of planning by their ids, as stack files and policy packs name them."""

from __future__ import annotations

from collections.abc import Mapping

RULES: Mapping[str, str] = {
    "resources": "Each pod finds a node that has what it requests.",
    "nodes": "There are enough nodes for all pods that must run at once.",
    "no-nodes": "There are nodes.",
    "taint": "Pods tolerate the taints of their nodes.",
    "node-selector": "The node selector matches labels that nodes have.",
    "node-affinity": "The node affinity matches existing nodes.",
    "node-name": "The node that a pod names exists.",
    "node-unschedulable": "Pods avoid cordoned nodes.",
    "pod-affinity": "Pods find the pods that their affinity requires.",
    "pod-anti-affinity": "Host ports and anti-affinity leave a place for each pod.",
    "topology-spread": "Spread constraints leave a place for each pod.",
    "volume-access": "A volume that one node at a time may attach is mounted by pods of one node.",
    "volume-zone": "Nodes reach the zones of their pods' volumes.",
    "device-claim": "Some node has the devices that a pod claims.",
    "disk-type": "The machine type attaches the volume's type of disk.",
    "competition": "Workloads that run at the same time leave room for each other.",
    "preemption": "Pods find room without evicting others.",
    "runs-in-turns": "The pods of a Job all run at once.",
    "rollout-surge": "A rollout has room for its additional pods.",
    "autoscaling-ceiling": "The autoscaler's maximum has room.",
    "daemon-set-room": "Every node has room for the pods of DaemonSets.",
    "daemon-set-spread": "The pods of a DaemonSet do not exclude each other.",
    "daemon-set-without-nodes": "A DaemonSet has nodes to run on.",
    "quota": "A workload stays within the quotas of its namespace.",
    "quota-sum": "All workloads of a namespace together stay within its quotas.",
    "quota-requires": "Containers set what a quota requires.",
    "limit-range-min": "Containers and claims request at least the LimitRange's minimum.",
    "limit-range-max": "Containers and claims request at most the LimitRange's maximum.",
    "limit-range-ratio": "Limits exceed requests by at most the LimitRange's ratio.",
    "limit-range-defaults": "The LimitRanges of a namespace agree in their defaults.",
    "request-above-limit": "No request is above its limit.",
    "extended-resource-limit": "Extended resources, such as GPUs, have requests equal to limits.",
    "extended-resource-fraction": "Extended resources, such as GPUs, are whole numbers.",
    "queue": "The queue that a workload waits in is declared.",
    "queue-quota": "The quotas of a queue admit the workload.",
    "queue-capacity": "Queues promise no more GPUs than nodes have and quotas allow.",
    "beyond-planning": "Nothing decides that these rules do not cover.",
    "unknown-value": "Values that decide are known at preview.",
    "monthly-budget": "The nodes cost no more than the budget.",
}
"""What each rule wants."""
