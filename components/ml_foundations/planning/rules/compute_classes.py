"""ComputeClasses: priorities without a node pool, and pools without their class."""

from collections.abc import Iterator, Sequence
from typing import Any

from ml_foundations.catalog import compute_classes
from ml_foundations.catalog.gke_kinds import begins_before
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.planning.input import program
from ml_foundations.planning.model.declared import kind_and_name
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_BY_REASON = {
    "NodePoolNotExist": ("compute-class", "Name a node pool with autoscaling that is declared."),
    "NapDisabledAndNoMatchingNodegroups": (
        "compute-class",
        "Give a node pool the class (compute_class), with the properties of a priority.",
    ),
    "NodepoolWillNeverScaleUp": (
        "compute-class",
        "Add it to the pools of the class, or change the class of the pool.",
    ),
    "CrdLabelNotMatching": (
        "compute-class-pool",
        "Set compute_class of the pool, which adds label and taint.",
    ),
    "TaintMissing": (
        "compute-class-pool",
        "Set compute_class of the pool, which adds label and taint.",
    ),
    "TaintValueNotMatching": (
        "compute-class-pool",
        "Give label and taint the same class: set compute_class of the pool alone.",
    ),
}
"""The rule and the remedy of each reason in the status of a ComputeClass."""
_ABOUT_ALL_POOLS = ("NodePoolNotExist", "NapDisabledAndNoMatchingNodegroups")


@rule(
    "compute-class",
    Severity.ERROR,
    (
        "Each priority of a ComputeClass has node pools, and each node pool of the class has a "
        "priority."
    ),
    source='GKE, "About custom compute classes"; GoogleCloudPlatform/compute-class-api',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        ---
        apiVersion: cloud.google.com/v1
        kind: ComputeClass
        metadata: {name: gpus}
        spec: {priorities: [{nodepools: [gpus]}]}
    """,
)
@rule(
    "compute-class-pool",
    Severity.ERROR,
    "Node pools that a ComputeClass names carry its label and its taint.",
    source='GKE, "About custom compute classes"; GoogleCloudPlatform/compute-class-api',
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        ---
        type: gcp:container/nodePool:NodePool
        name: gpus
        autoscaling: {maxNodeCount: 4}
        ---
        apiVersion: cloud.google.com/v1
        kind: ComputeClass
        metadata: {name: gpus}
        spec: {priorities: [{nodepools: [gpus]}]}
    """,
)
@rule(
    "scale-up-anyway",
    Severity.WARNING,
    "A ComputeClass with GPUs adds no nodes without GPUs.",
    source='GKE, "About custom compute classes"; GoogleCloudPlatform/compute-class-api',
    example="""
        apiVersion: cloud.google.com/v1
        kind: ComputeClass
        metadata: {name: gpus}
        spec:
          priorities: [{gpu: {type: nvidia-l4, count: 1}}]
          whenUnsatisfiable: ScaleUpAnyway
    """,
)
def classes_and_pools(stack: Stack) -> Iterator[Finding]:
    """Yield what is wrong with the ComputeClasses of a program and the node pools in them."""
    if not stack.is_program:
        return
    cluster = stack.shown_clusters[0] if len(stack.shown_clusters) == 1 else None
    pools_of_cluster = program.own_pools(cluster) if cluster else ()
    pools: list[Manifest] = []
    for pool in (*pools_of_cluster, *stack.node_pools):
        of_cluster: Any = (cluster or {}).get("nodeLocations")
        zones: Any = pool.get("nodeLocations") or of_cluster or UNKNOWN
        pools.append({**pool, "nodeLocations": zones})
    # The pools of a cluster that exists already are not all shown, nor are those that GKE makes.
    is_complete = cluster is not None and not cluster.get("enableAutopilot")
    is_complete &= not section(cluster or {}, "clusterAutoscaling").get("enabled")
    for compute_class in stack.of_kind(compute_classes.KIND):
        if any(unknown_paths(compute_class)):
            continue
        if cluster is not None and begins_before(cluster, compute_classes.SINCE):
            message = f"its cluster begins with an older GKE than it needs: {compute_classes.SINCE}"
            remedy = f"Set minMasterVersion {compute_classes.SINCE} or later, or leave it out."
            yield error("version", kind_and_name(compute_class), "apiVersion", message, remedy)
        yield from _class_findings(compute_class, pools, is_complete=is_complete)
        yield from _other_nodes(compute_class, pools)


def _class_findings(
    compute_class: Manifest, pools: Sequence[Manifest], *, is_complete: bool
) -> Iterator[Finding]:
    about = kind_and_name(compute_class)
    for index, priority in enumerate(compute_classes.priorities(compute_class)):
        for field, reason in compute_classes.refused_fields(priority):
            path = f"spec.priorities[{index}].{field}"
            yield error("compute-class", about, path, f"{field} {reason}", "Change or remove it.")
    for condition in compute_classes.conditions(compute_class, pools):
        rule, remedy = _BY_REASON[condition.reason]
        if is_complete or condition.reason not in _ABOUT_ALL_POOLS:
            yield error(rule, about, "spec.priorities", condition.message, remedy)
    if not is_complete or compute_classes.creates_pools(compute_class):
        return
    members = [pool for pool in pools if _may_be_in(compute_class, pool)]
    for index, priority in enumerate(compute_classes.priorities(compute_class)):
        differences = {
            str(pool.get("name")): compute_classes.differences(priority, pool) for pool in members
        }
        if "nodepools" not in priority and members and all(differences.values()):
            words = [f"{name} has another {' and '.join(of)}" for name, of in differences.items()]
            message = f"no node pool of the class matches this priority: {', '.join(words)}"
            remedy = "Change the priority so that it equals a pool, or name pools (pools)."
            yield error("compute-class", about, f"spec.priorities[{index}]", message, remedy)


def _may_be_in(compute_class: Manifest, pool: Manifest) -> bool:
    return compute_classes.class_of(pool) in (name_of(compute_class), UNKNOWN)


def _other_nodes(compute_class: Manifest, pools: Sequence[Manifest]) -> Iterator[Finding]:
    """Yield the class of GPU nodes that also adds nodes without GPUs."""
    if not compute_classes.scales_up_anyway(compute_class):
        return
    priorities = compute_classes.priorities(compute_class)
    has_gpus = any(priority.get("gpu") for priority in priorities)
    for pool in pools:
        is_member = _may_be_in(compute_class, pool)
        has_gpus |= is_member and bool(items(section(pool, "nodeConfig"), "guestAccelerators"))
    if has_gpus:
        message = (
            "if no priority has nodes, GKE adds nodes of E2 machines, which are paid for, and pods "
            "with GPUs still wait"
        )
        remedy = "Set DoNotScaleUp (when_unsatisfiable)."
        about = kind_and_name(compute_class)
        yield warning("scale-up-anyway", about, "spec.whenUnsatisfiable", message, remedy)
