"""When GKE upgrades the nodes of a pool, by the maintenance policies of pool and cluster."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning.model.nodes import NodeUpgrade

_OF_NODES = ("NO_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES")
"""The scopes of exclusions in which GKE upgrades no nodes (GKE, "Maintenance windows and
exclusions")."""


def node_upgrade(pool: Manifest, cluster: Mapping[str, Any]) -> NodeUpgrade | None:
    """Return when GKE may drain nodes of a pool; None if it never does, or if that is not known."""
    is_short_lived = section(pool, "nodeConfig").get("flexStart") or pool.get("queuedProvisioning")
    if is_short_lived or section(pool, "management").get("autoUpgrade") is False:
        return None
    # The policy of a pool may keep its nodes, whatever that of the cluster is.
    for pool_policy in items(pool, "maintenancePolicies"):
        until_end_of_support = items(pool_policy, "exclusionUntilEndOfSupports")
        if any(exclusion.get("enabled") for exclusion in until_end_of_support):
            return None
    policy: Any = cluster.get("maintenancePolicy") or {}
    if any(unknown_paths([policy, pool.get("maintenancePolicies")])):
        return None
    exclusions = items(policy, "maintenanceExclusions")
    excluded = [0.0, *map(_excluded_seconds, exclusions)]
    recurrence = section(policy, "recurringWindow").get("recurrence")
    start = section(policy, "dailyMaintenanceWindow").get("startTime")
    window = recurrence or (f"FREQ=DAILY from {start}" if start else None)
    when = f"in the maintenance window {window}" if window else "at any time"
    return None if max(excluded) == float("inf") else NodeUpgrade(when, max(excluded))


def _excluded_seconds(exclusion: Manifest) -> float:
    """Return for how long an exclusion keeps GKE from upgrading nodes; 0 if it does not."""
    options = section(exclusion, "exclusionOptions")
    if options.get("scope", "NO_UPGRADES") not in _OF_NODES:
        return 0
    if options.get("endTimeBehavior"):
        return float("inf")
    try:
        times = [datetime.fromisoformat(exclusion[f"{end}Time"]) for end in ("start", "end")]
        return (times[1] - times[0]).total_seconds()
    except (KeyError, TypeError, ValueError):
        return 0  # GKE refuses it
