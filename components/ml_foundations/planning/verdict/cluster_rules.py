"""Findings about rules that GKE states for a whole cluster, judged over all of its node pools."""

from collections.abc import Callable, Iterator, Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input import program
from ml_foundations.planning.input.networks import last_part
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.model.declared import of_type
from ml_foundations.planning.verdict.findings import Finding, warning


def cluster_findings(resources: Sequence[Resource]) -> Iterator[Finding]:
    """Yield what the pools of a cluster, taken together, do not keep to."""
    clusters = of_type(resources, program.CLUSTER)
    by_cluster: dict[str, list[Manifest]] = {}
    for pool in of_type(resources, program.NODE_POOL):
        name = "" if len(clusters) == 1 else pool.get("cluster")
        if name is not UNKNOWN:
            by_cluster.setdefault(last_part(name), []).append(pool)
    for pools in by_cluster.values():
        for rule in CLUSTER_RULES.values():
            yield from rule(pools)


def _claimed_and_named(pools: Sequence[Manifest]) -> Iterator[Finding]:
    """Yield a pool whose pods claim interfaces, if those of another pool name them.

    Source: GKE, "Allocate network resources by using GKE managed DRANET", as llm-d's skill
    create-gke-infra-llm-d quotes it.
    """
    claiming: list[Manifest] = []
    for pool in pools:
        profile = section(pool, "networkConfig").get("acceleratorNetworkProfile")
        driver = section(pool, "nodeConfig", "labels").get(labels.GKE_NETWORK_DRA_DRIVER)
        if profile == "auto" or driver == "true":
            claiming.append(pool)
    for other in pools if claiming else ():
        if items(section(other, "networkConfig"), "additionalNodeNetworkConfigs"):
            named = (
                f"its pods claim interfaces (DRANET), and those of pool {other.get('name')} name"
            )
            message = f"{named} them: in one cluster, GKE does not support both"
            instead = "set the same gpu_network for all (multi-network)"
            remedy = f"Put one of the pools into another cluster, or {instead}."
            about = f"NodePool {claiming[0].get('name')}"
            yield warning("dranet-or-networks", about, "networkConfig", message, remedy)
            return


CLUSTER_RULES: dict[str, Callable[[Sequence[Manifest]], Iterator[Finding]]] = {
    "dranet-or-networks": _claimed_and_named,
}
"""The rules, each over all pools of one cluster."""
