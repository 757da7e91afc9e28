"""The state of a rehearsal as data: pools, workloads, quotas, and what was only recorded."""

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ml_foundations.catalog.versions import DRA_DRIVER, GPU_OPERATOR, NFS_PROVISIONER
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import RELEASE, labels_of, name_of, namespace_of, section
from ml_foundations.planning.model.resources import gpus, pod_requests
from ml_foundations.planning.verdict.findings import Finding
from ml_foundations.planning.verdict.network_policies import Network
from ml_foundations.planning.verdict.placeholders import placeholder_findings
from ml_foundations.planning.verdict.retained import Retained
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud import addons, operator
from ml_foundations.rehearsal.cloud.autoscaler import is_busy
from ml_foundations.rehearsal.cloud.nodes import is_simulated
from ml_foundations.rehearsal.cloud.replica import within
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report import workloads
from ml_foundations.rehearsal.report.deployed import deployed
from ml_foundations.rehearsal.report.workloads import Workload

_LINKS = "https://www.googleapis.com/"
_SIMULATED = {
    GPU_OPERATOR.name: "its labels and GPUs are simulated",
    DRA_DRIVER.name: "its ResourceSlices are simulated",
    NFS_PROVISIONER.name: "its volumes are simulated",
}
"""What a rehearsal has in place of a chart that it only records."""


@dataclass(frozen=True)
class Quota:
    """A ResourceQuota: what it allows and what is used."""

    namespace: str
    name: str
    hard: dict[str, str]
    used: dict[str, str]


@dataclass(frozen=True)
class Report:
    """The state of one rehearsal, as data."""

    stack: str
    pools: list[dict[str, Any]]
    workloads: list[Workload]
    quotas: list[Quota]
    recorded: list[dict[str, str]]
    placeholders: list[str]
    """The keys of encrypted configuration values, for which the program got a placeholder."""
    calls: list[str] = field(default_factory=list[str])
    """Namespaces that a server lets in, and whether their own network policies let them out to it."""
    retained: tuple[Retained, ...] = ()
    """What would stay on Google Cloud after the stack is deleted."""
    errors: tuple[Finding, ...] = ()
    """What the proof finds as an error on the deployed stack, whether or not its pods run here."""
    to_replace: list[str] = field(default_factory=list[str])
    """The values that a preview for Google Cloud refuses, such as networks of documentation, and what has each."""

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self), indent=2, default=float)

    @property
    def unwell(self) -> list[Workload]:
        """The workloads that neither run nor have run to completion."""
        return [workload for workload in self.workloads if not workload.is_well]


def collect(rehearsal: Rehearsal) -> Report:
    """Read the replicas and the simulated Google Cloud."""
    first, *others = map(_of_replica, rehearsal.replicas)
    for other in others:
        for part in ("pools", "workloads", "quotas", "recorded", "calls"):
            getattr(first, part).extend(getattr(other, part))
    return replace(first, to_replace=_to_replace(rehearsal))


def _to_replace(rehearsal: Rehearsal) -> list[str]:
    """Return each placeholder of what is deployed once, with the first object that has it."""
    resources, _ = deployed(rehearsal)
    found = placeholder_findings(resources)
    by_value = {finding.message.split('"')[1]: finding.object for finding in reversed(list(found))}
    # A link to what the stack makes has the project in it, which is listed already.
    own = {value: owner for value, owner in by_value.items() if not value.startswith(_LINKS)}
    return sorted(f"{value} ({owner})" for value, owner in own.items())


def _of_replica(rehearsal: Rehearsal) -> Report:
    api, store = Api(Access(rehearsal.kubeconfig)), Store(rehearsal)
    declared = store.pools()
    recorded = [{"type": entry["type"], "name": entry["name"]} for entry in store.recorded()]
    nodes = api.get("/api/v1/nodes")["items"]
    pods = api.get("/api/v1/pods", labelSelector=addons.OTHERS)["items"]
    history = store.get("ran_on", {})
    pool_by_node = {node: pool for nodes in history.values() for node, pool in nodes.items()}
    pool_by_node |= {name_of(node): pool_of(node) for node in nodes}
    found = workloads.collect(
        api, pods, history, store.get("unplaced", {}), _without_operator(rehearsal, api, declared)
    )
    return Report(
        stack=rehearsal.stack,
        pools=[
            pool | {"name": within(rehearsal, pool["name"])}
            for pool in _pools(nodes, pods, declared)
        ],
        workloads=[
            replace(
                row,
                namespace=within(rehearsal, row.namespace),
                pools=dict(Counter(pool_by_node.get(node, "") for node in row.nodes)),
            )
            for row in found
        ],
        quotas=[
            replace(quota, namespace=within(rehearsal, quota.namespace)) for quota in _quotas(api)
        ],
        recorded=recorded + _recorded_releases(rehearsal),
        placeholders=read_json(rehearsal.placeholders, []),
        calls=_calls(api),
    )


def _calls(api: Api) -> list[str]:
    """Read the calls between namespaces that network policies declare."""
    kinds = {
        "Namespace": "/api/v1/namespaces",
        "NetworkPolicy": "/apis/networking.k8s.io/v1/networkpolicies",
    }
    objects = [
        {"kind": kind, **item} for kind, path in kinds.items() for item in api.get(path)["items"]
    ]
    return sorted(
        {call.text for call in Network(objects).calls() if not workloads.is_system(call.caller)}
    )


def pool_of(node: Object) -> str:
    """The pool of a node, or the machine type of one that has none."""
    found = labels_of(node)
    return found.get(labels.GKE_NODE_POOL) or found.get(labels.INSTANCE_TYPE) or "other"


def _pools(
    nodes: list[Object], pods: list[Object], declared: dict[str, Pool]
) -> list[dict[str, Any]]:
    """The node pools with their nodes and GPUs; copied nodes of no pool by their machine type."""
    by_pool: defaultdict[tuple[str, bool], list[Object]] = defaultdict(
        list, {(name, True): [] for name in declared}
    )
    for node in nodes:
        # A pool of one's own cluster may have the name of one that is declared, and has its own place.
        by_pool[pool_of(node), is_simulated(node)].append(node)
    used: Counter[str] = Counter()
    for pod in filter(is_busy, pods):
        used[pod["spec"]["nodeName"]] += gpus(pod_requests(pod["spec"]))
    return [
        {
            "name": name,
            "machine_type": pool.machine_type
            if pool
            else labels_of(mine[0]).get(labels.INSTANCE_TYPE, ""),
            "nodes": len(mine),
            "min_nodes": pool.min_nodes if pool else len(mine),
            "max_nodes": pool.max_nodes if pool else len(mine),
            "gpus": sum(
                int(section(node, "status", "capacity").get(labels.GPU_RESOURCE, 0))
                for node in mine
            ),
            "gpus_in_use": sum(used[name_of(node)] for node in mine),
        }
        for (name, simulated), mine in by_pool.items()
        for pool in [declared.get(name) if simulated else None]
    ]


def _without_operator(rehearsal: Rehearsal, api: Api, declared: dict[str, Pool]) -> list[str]:
    """The node pools that have no GPUs because they leave them to the GPU Operator, and it is not installed."""
    left = [name for name, pool in declared.items() if pool.is_left_to_operator]
    releases = (
        api.get("/api/v1/secrets", labelSelector=operator.HELM_SECRETS)["items"] if left else []
    )
    return [] if operator.find(rehearsal, map(operator.read_release, releases)) else left


def _quotas(api: Api) -> list[Quota]:
    found = [
        each
        for each in api.get("/api/v1/resourcequotas")["items"]
        if not workloads.is_system(namespace_of(each))
    ]
    limits = [
        (each, section(each, "status", "hard") or section(each, "spec", "hard")) for each in found
    ]
    return [
        Quota(namespace_of(q), name_of(q), dict(hard), dict(section(q, "status", "used")))
        for q, hard in limits
    ]


def _recorded_releases(rehearsal: Rehearsal) -> list[dict[str, str]]:
    releases = (read_json(path, {}) for path in sorted(rehearsal.releases_dir.glob("*.json")))
    found = (
        (r, _SIMULATED.get(r["chart"]) or r["instead"]) for r in releases if not r["installed"]
    )
    return [
        {"type": RELEASE, "name": f"{r['namespace']}/{r['name']}", "instead": instead}
        for r, instead in found
    ]
