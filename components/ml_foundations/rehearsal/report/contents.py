"""The state of a rehearsal as data: pools, workloads, quotas and recorded resources."""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ml_foundations.catalog.versions import DRA_DRIVER, GPU_OPERATOR, NFS_PROVISIONER
from ml_foundations.kubernetes import labels, printable
from ml_foundations.kubernetes.objects import RELEASE, labels_of, name_of, namespace_of, section
from ml_foundations.planning.model.resources import gpus, pod_requests
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.rules.network import Network
from ml_foundations.planning.rules.objects import placeholders_of
from ml_foundations.planning.verdict.retained import Retained
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud import operator
from ml_foundations.rehearsal.cloud.autoscaler import is_busy
from ml_foundations.rehearsal.cloud.cluster import OTHERS
from ml_foundations.rehearsal.cloud.nodes import gpus_of, is_simulated
from ml_foundations.rehearsal.cloud.replica import within
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report import disruptions, workloads
from ml_foundations.rehearsal.report.deployed import deployed
from ml_foundations.rehearsal.report.disruptions import Disruption
from ml_foundations.rehearsal.report.purchases import Purchase, purchases
from ml_foundations.rehearsal.report.workloads import Workload

_SIMULATED = {
    GPU_OPERATOR.name: "its labels and GPUs are simulated",
    DRA_DRIVER.name: "its ResourceSlices are simulated",
    NFS_PROVISIONER.name: "its volumes are simulated",
}
"""What a rehearsal does instead of installing a chart."""


@dataclass(frozen=True)
class Quota:
    """A ResourceQuota: its limits and its use."""

    namespace: str
    name: str
    hard: dict[str, str]
    used: dict[str, str]


@dataclass(frozen=True)
class Seen:
    """The nodes of a replica, and its pods except those of GKE. To read them takes long."""

    replica: Rehearsal
    nodes: list[Object]
    pods: list[Object]


@dataclass(frozen=True)
class Report:
    """The state of one rehearsal, as data."""

    stack: str
    pools: list[dict[str, Any]]
    workloads: list[Workload]
    quotas: list[Quota]
    recorded: list[dict[str, str]]
    placeholders: list[str]
    """The keys of encrypted configuration values. The program got a placeholder for each."""
    calls: list[str] = field(default_factory=list[str])
    """The calls between namespaces that network policies allow or prevent."""
    retained: tuple[Retained, ...] = ()
    """The resources that ``pulumi destroy`` would keep on Google Cloud."""
    purchases: list[Purchase] = field(default_factory=list[Purchase])
    """The nodes of workloads that may be bought in several ways, next to the first choice."""
    errors: tuple[Finding, ...] = ()
    """The errors of the proof on the deployed stack, whether or not its pods run here."""
    refuted: tuple[Finding, ...] = ()
    """The errors of the proof about workloads that have completed here: the proof was wrong."""
    information: tuple[Finding, ...] = ()
    """What is good to know about the deployed stack, such as the requests that a server holds."""
    to_replace: list[str] = field(default_factory=list[str])
    """Placeholders that a preview for Google Cloud refuses, each with a resource that uses it."""
    disruption: Disruption | None = None
    """The last disruption of nodes by ``disrupt``."""
    seen: list[Seen] = field(default_factory=list[Seen], compare=False, repr=False)
    """What it was made of, for the page."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON and the page, without what it was made of."""
        data = asdict(replace(self, seen=[], workloads=[]))
        del data["seen"]
        for name in ("errors", "refuted", "information"):
            data[name] = [finding.to_dict() for finding in getattr(self, name)]
        data["workloads"] = [row.to_dict() for row in self.workloads]
        return data

    def to_json(self) -> str:
        """Return the report as JSON."""
        return printable.as_json(self.to_dict(), default=float)

    @property
    def unwell(self) -> list[Workload]:
        """Return the workloads that neither run nor have completed."""
        return [workload for workload in self.workloads if not workload.is_well]


def collect(rehearsal: Rehearsal) -> Report:
    """Read the replicas and the simulated Google Cloud."""
    report, *reports = map(_read_replica, rehearsal.replicas)
    for replica in reports:
        report.pools.extend(replica.pools)
        report.workloads.extend(replica.workloads)
        report.quotas.extend(replica.quotas)
        report.recorded.extend(replica.recorded)
        report.calls.extend(replica.calls)
        report.purchases.extend(replica.purchases)
        report.seen.extend(replica.seen)
    last = disruptions.last(rehearsal)
    return replace(report, to_replace=_to_replace(rehearsal), disruption=last)


def _to_replace(rehearsal: Rehearsal) -> list[str]:
    """Return each placeholder of the deployed stack once, with one resource that has it."""
    resources = [item.resource for item in deployed(rehearsal)]
    users: dict[str, str] = {}
    # The state lists resources in the order in which they were made, which differs between runs.
    for finding in sorted(placeholders_of(resources), key=lambda finding: finding.object):
        # A link to a resource of the stack contains the placeholder of its project.
        if not finding.value.startswith("https://www.googleapis.com/"):
            users.setdefault(finding.value, finding.object)
    return sorted(f"{value} ({user})" for value, user in users.items())


def _read_replica(rehearsal: Rehearsal) -> Report:
    api = Api(Access(rehearsal.kubeconfig))
    store = Store(rehearsal)
    declared = store.pools()
    nodes = api.get("/api/v1/nodes")["items"]
    pods = api.get("/api/v1/pods", labelSelector=OTHERS)["items"]
    job_nodes = store.get("ran_on", {})
    unplaced = store.get("unplaced", {})
    pool_by_node: dict[str, str] = {}
    # The nodes of ended Jobs may be gone. The store has kept their pools.
    for pools in job_nodes.values():
        pool_by_node |= pools
    pool_by_node |= {name_of(node): pool_of(node) for node in nodes}
    rows: list[Workload] = []
    # The GPUs of these pools are missing if the GPU Operator is not installed.
    without_operator = [name for name, pool in declared.items() if pool.is_left_to_operator]
    if without_operator:
        releases = api.get("/api/v1/secrets", labelSelector=operator.HELM_SECRETS)["items"]
        if operator.find(rehearsal, map(operator.read_release, releases)):
            without_operator = []
    for row in workloads.collect(api, pods, job_nodes, unplaced, without_operator):
        pools = Counter(pool_by_node.get(node, "") for node in row.nodes)
        rows.append(replace(row, namespace=within(rehearsal, row.namespace), pools=dict(pools)))
    recorded = [{"type": entry["type"], "name": entry["name"]} for entry in store.recorded()]
    return Report(
        stack=rehearsal.stack,
        pools=_pools(rehearsal, nodes, pods, declared),
        workloads=rows,
        quotas=_quotas(rehearsal, api),
        recorded=recorded + _recorded_releases(rehearsal),
        placeholders=read_json(rehearsal.placeholders, []),
        calls=_calls(api),
        purchases=list(purchases(api, declared, rows)),
        seen=[Seen(rehearsal, nodes, pods)],
    )


def _calls(api: Api) -> list[str]:
    """Return the calls between namespaces that network policies declare."""
    objects: list[Object] = []
    policies = "/apis/networking.k8s.io/v1/networkpolicies"
    for kind, path in (("Namespace", "/api/v1/namespaces"), ("NetworkPolicy", policies)):
        objects += [{"kind": kind, **item} for item in api.get(path)["items"]]
    calls = Network(objects).calls()
    return sorted({call.text for call in calls if not workloads.is_system(call.caller)})


def pool_of(node: Object) -> str:
    """Return the pool of a node, or its machine type if it has none."""
    node_labels = labels_of(node)
    return node_labels.get(labels.GKE_NODE_POOL) or node_labels.get(labels.INSTANCE_TYPE) or "other"


def _pools(
    rehearsal: Rehearsal, nodes: list[Object], pods: list[Object], declared: dict[str, Pool]
) -> list[dict[str, Any]]:
    """Return the node pools. Copied nodes without a pool are grouped by their machine type."""
    # A pool of the user's own cluster may have the name of a declared pool, so it is another key.
    by_pool: dict[tuple[str, bool], list[Object]] = {(name, True): [] for name in declared}
    for node in nodes:
        by_pool.setdefault((pool_of(node), is_simulated(node)), []).append(node)
    used: Counter[str] = Counter()
    for pod in filter(is_busy, pods):
        used[pod["spec"]["nodeName"]] += gpus(pod_requests(pod["spec"]))
    rows: list[dict[str, Any]] = []
    for (name, simulated), members in by_pool.items():
        row: dict[str, Any] = {"name": within(rehearsal, name), "nodes": len(members)}
        if simulated and (pool := declared.get(name)):
            row |= {"machine_type": pool.machine_type}
            row |= {"min_nodes": pool.min_nodes, "max_nodes": pool.max_nodes}
        else:
            row |= {"machine_type": labels_of(members[0]).get(labels.INSTANCE_TYPE, "")}
            row |= {"min_nodes": len(members), "max_nodes": len(members)}
        row["gpus"] = sum(map(gpus_of, members))
        row["gpus_in_use"] = sum(used[name_of(node)] for node in members)
        rows.append(row)
    return rows


def _quotas(rehearsal: Rehearsal, api: Api) -> list[Quota]:
    quotas: list[Quota] = []
    for item in workloads.of_users(api.get("/api/v1/resourcequotas")["items"]):
        # The controller manager writes the status of a new quota a moment later.
        hard = section(item, "status", "hard") or section(item, "spec", "hard")
        namespace = within(rehearsal, namespace_of(item))
        used = section(item, "status", "used")
        quotas.append(Quota(namespace, name_of(item), dict(hard), dict(used)))
    return quotas


def _recorded_releases(rehearsal: Rehearsal) -> list[dict[str, str]]:
    """Return the Helm releases that were recorded but not installed."""
    recorded: list[dict[str, str]] = []
    for path in sorted(rehearsal.releases_dir.glob("*.json")):
        release = read_json(path, {})
        if not release["installed"]:
            name = f"{release['namespace']}/{release['name']}"
            instead = _SIMULATED.get(release["chart"]) or release["instead"]
            recorded.append({"type": RELEASE, "name": name, "instead": instead})
    return recorded
