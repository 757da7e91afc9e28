"""What a rehearsal shows: the node pools and their GPUs, the workloads, the quotas, and what was only recorded."""

from __future__ import annotations

import http
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ml_foundations.catalog.versions import DRA_DRIVER, GPU_OPERATOR, NFS_PROVISIONER
from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.planning.input.program import RELEASE
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError, Object, owners
from ml_foundations.rehearsal.cloud import overview
from ml_foundations.rehearsal.layout import Rehearsal

JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"

STEADY = {"Completed", "Failed", "Ready", "Scheduled", "Suspended"}
"""Workload states that do not change by waiting."""

GOOD = {"Completed", "Ready", "Running", "Scheduled"}
"""Workload states with which a rehearsal has succeeded."""

SIMULATED = {
    GPU_OPERATOR.name: "its labels and GPUs are simulated",
    DRA_DRIVER.name: "its ResourceSlices are simulated",
    NFS_PROVISIONER.name: "its volumes are simulated",
}
"""What a rehearsal has in place of a chart that it only records."""

SYSTEM_NAMESPACES = ("kube-", "gke-", "gmp-")


@dataclass(frozen=True)
class Workload:
    """A workload, its state, the nodes that its pods run or ran on, and why it does not run."""

    namespace: str
    kind: str
    name: str
    state: str
    nodes: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def is_well(self) -> bool:
        """Whether it runs, has run to completion, or rests as declared: a queue suspends Jobs, but no CronJob."""
        return self.state in GOOD or (self.kind, self.state) == ("CronJob", "Suspended")


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

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self), indent=2)

    @property
    def unwell(self) -> list[Workload]:
        """The workloads that neither run nor have run to completion."""
        return [workload for workload in self.workloads if not workload.is_well]


def collect(rehearsal: Rehearsal) -> Report:
    """Read the replica and the simulated Google Cloud."""
    api = Api(Access(rehearsal.kubeconfig))
    return Report(
        stack=rehearsal.stack,
        pools=overview.pools(rehearsal),
        workloads=_workloads(api, overview.history(rehearsal), overview.pools_without_operator(rehearsal)),
        quotas=_quotas(api),
        recorded=overview.recorded(rehearsal) + _recorded_releases(rehearsal),
    )


def _quotas(api: Api) -> list[Quota]:
    return [
        Quota(
            quota["metadata"]["namespace"],
            quota["metadata"]["name"],
            quota["status"].get("hard") or quota["spec"].get("hard") or {},
            quota["status"].get("used") or {},
        )
        for quota in api.get("/api/v1/resourcequotas")["items"]
        if not _is_system(quota["metadata"]["namespace"])
    ]


def _recorded_releases(rehearsal: Rehearsal) -> list[dict[str, str]]:
    releases = (json.loads(path.read_text()) for path in sorted(rehearsal.releases_dir.glob("*.json")))
    return [
        {
            "type": RELEASE,
            "name": f"{r['namespace']}/{r['name']}",
            "instead": SIMULATED.get(r["chart"]) or r["instead"],
        }
        for r in releases
        if not r["installed"]
    ]


def _workloads(api: Api, history: list[dict[str, Any]], without_operator: list[str]) -> list[Workload]:
    def ours(path: str) -> list[Object]:
        return [item for item in api.get(path)["items"] if not _is_system(item["metadata"]["namespace"])]

    pods, jobs = ours("/api/v1/pods"), ours("/apis/batch/v1/jobs")
    unattached = {event["involvedObject"]["uid"]: event["message"] for event in _warnings(api, "FailedAttachVolume")}
    seen = _Evidence(pods, _warnings(api, "FailedCreate"), history, without_operator, unattached)
    rows = [
        *(_job(job, seen) for job in _declared(jobs)),
        *(_cron_job(cron, _owned_by(cron, jobs), seen) for cron in _declared(ours("/apis/batch/v1/cronjobs"))),
        *(_job_set(item, _owned_by(item, jobs), seen) for item in _declared(_where_served(ours, JOB_SETS))),
        *(_replicas("Deployment", item, seen) for item in _declared(ours("/apis/apps/v1/deployments"))),
        *(_replicas("ReplicaSet", item, seen) for item in _declared(ours("/apis/apps/v1/replicasets"))),
        *(_replicas("StatefulSet", item, seen) for item in _declared(ours("/apis/apps/v1/statefulsets"))),
        *(_daemon_set(item, seen) for item in _declared(ours("/apis/apps/v1/daemonsets"))),
        *(_pod(pod, seen) for pod in _declared(pods)),
    ]
    return sorted(rows, key=lambda row: (row.namespace, row.kind, row.name))


def _where_served(list_items: Callable[[str], list[Object]], path: str) -> list[Object]:
    """The objects of a kind that not every cluster has."""
    try:
        return list_items(path)
    except ApiError as error:
        if error.status == http.HTTPStatus.NOT_FOUND:
            return []
        raise


def _declared(items: list[Object]) -> list[Object]:
    """Those of the items that somebody declared: no other object made them."""
    return [item for item in items if not owners(item)]


def _owned_by(owner: Object, items: list[Object]) -> list[Object]:
    """Those of the items that another object made."""
    return [item for item in items if owner["metadata"]["uid"] in owners(item)]


def _warnings(api: Api, reason: str) -> list[Object]:
    return api.get("/api/v1/events", fieldSelector=f"type=Warning,reason={reason}")["items"]


class _Evidence:
    """What tells where a workload's pods are, were, or why they are not."""

    def __init__(
        self,
        pods: list[Object],
        warnings: list[Object],
        history: list[dict[str, Any]],
        without_operator: list[str],
        unattached: dict[str, str],
    ) -> None:
        self._pods = pods
        self._warnings = warnings
        self._history = history
        self._without_operator = without_operator
        self._unattached = unattached

    def pods(self, workload: Object) -> list[Object]:
        selector = workload["spec"]["selector"].get("matchLabels") or {}
        return [
            pod
            for pod in self._pods
            if pod["metadata"]["namespace"] == workload["metadata"]["namespace"]
            and selector.items() <= pod["metadata"].get("labels", {}).items()
        ]

    def nodes(self, kind: str, workload: Object) -> list[str]:
        current = {node for pod in self.pods(workload) if (node := pod["spec"].get("nodeName"))}
        past = {
            entry["node"]
            for entry in self._history
            if kind == "Job"
            and (entry["namespace"], entry["owner_kind"], entry["owner_name"])
            == (workload["metadata"]["namespace"], kind, workload["metadata"]["name"])
        }
        return sorted(current | past)

    def reason(self, workload: Object) -> str:
        unscheduled = filter(None, (self.unscheduled(pod) for pod in self.pods(workload)))
        refused = (
            event["message"]
            for event in self._warnings
            if event["involvedObject"].get("namespace") == workload["metadata"]["namespace"]
            and _belongs(event["involvedObject"], workload)
        )
        return next(unscheduled, "") or next(refused, "")

    def _not_attached(self, pod: Object) -> str:
        return "" if pod["spec"].get("nodeName") else self._unattached.get(pod["metadata"]["uid"], "")

    def unscheduled(self, pod: Object) -> str:
        """Why a pod has no node: the cause where it is known, then the scheduler's words."""
        said = _unscheduled(pod) or self._not_attached(pod)
        if said and self._without_operator and _requests_gpus(pod):
            pools = ", ".join(self._without_operator)
            return f"The GPU Operator is not installed, and these pools leave their GPUs to it: {pools}. {said}"
        return said


def _belongs(involved: Object, workload: Object) -> bool:
    """Whether an event is about a workload, or about the ReplicaSet of a Deployment."""
    return involved.get("uid") == workload["metadata"]["uid"] or (
        involved["kind"] == "ReplicaSet" and involved["name"].rpartition("-")[0] == workload["metadata"]["name"]
    )


def _unscheduled(pod: Object) -> str:
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("message", "")
    return ""


def _requests_gpus(pod: Object) -> bool:
    return any(
        GPU_RESOURCE in container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]
    )


def _met(item: Object) -> dict[str, Object]:
    """The conditions of an object that are true, by type."""
    conditions: list[Object] = (item.get("status") or {}).get("conditions", [])
    return {condition["type"]: condition for condition in conditions if condition["status"] == "True"}


def _job(job: Object, seen: _Evidence) -> Workload:
    met = _met(job)
    if "Complete" in met:
        state, reason = "Completed", ""
    elif "Failed" in met:
        state, reason = "Failed", met["Failed"].get("message") or met["Failed"].get("reason", "")
    elif job["spec"].get("suspend"):
        state, reason = "Suspended", ""
    elif any(pod["status"]["phase"] == "Running" for pod in seen.pods(job)):
        state, reason = "Running", ""
    else:
        state, reason = "Pending", seen.reason(job)
    return _row("Job", job, state, seen.nodes("Job", job), reason)


def _cron_job(cron: Object, jobs: list[Object], seen: _Evidence) -> Workload:
    state = "Suspended" if cron["spec"].get("suspend") else "Scheduled"
    return _row("CronJob", cron, state, _nodes_of(jobs, seen), f"runs at {cron['spec']['schedule']}")


def _job_set(job_set: Object, jobs: list[Object], seen: _Evidence) -> Workload:
    """A JobSet, by its own conditions, or else by its Jobs: it runs when all of them do."""
    met = _met(job_set)
    rows = [_job(job, seen) for job in jobs]
    reason = ""
    if "Completed" in met:
        state = "Completed"
    elif "Failed" in met:
        state, reason = "Failed", met["Failed"].get("message", "")
    elif job_set["spec"].get("suspend"):
        state = "Suspended"
    elif rows and all(row.state in GOOD for row in rows):
        state = "Running"
    else:
        state, reason = "Pending", next((row.reason for row in rows if row.reason), "")
    return _row("JobSet", job_set, state, _nodes_of(jobs, seen), reason)


def _nodes_of(jobs: list[Object], seen: _Evidence) -> list[str]:
    return sorted({node for job in jobs for node in seen.nodes("Job", job)})


def _replicas(kind: str, item: Object, seen: _Evidence) -> Workload:
    status, wanted = item["status"], item["spec"]["replicas"]
    ready = status.get("readyReplicas", 0)
    updated = status.get("updatedReplicas", 0) if kind in ("Deployment", "StatefulSet") else ready
    nodes = seen.nodes(kind, item)
    if ready == updated == wanted and status.get("observedGeneration") == item["metadata"]["generation"]:
        return _row(kind, item, "Ready", nodes, f"{ready}/{wanted}")
    return _row(kind, item, "Pending", nodes, f"{ready}/{wanted} ready. {seen.reason(item)}".strip())


def _daemon_set(item: Object, seen: _Evidence) -> Workload:
    wanted, ready = item["status"].get("desiredNumberScheduled", 0), item["status"].get("numberReady", 0)
    state = "Ready" if ready == wanted else "Pending"
    return _row("DaemonSet", item, state, seen.nodes("DaemonSet", item), f"{ready}/{wanted}")


def _pod(pod: Object, seen: _Evidence) -> Workload:
    node, phase = pod["spec"].get("nodeName"), pod["status"]["phase"]
    state = "Completed" if phase == "Succeeded" else phase
    return _row("Pod", pod, state, [node] if node else [], seen.unscheduled(pod))


def _row(kind: str, item: Object, state: str, nodes: list[str], reason: str) -> Workload:
    return Workload(item["metadata"]["namespace"], kind, item["metadata"]["name"], state, nodes, reason)


def _is_system(namespace: str) -> bool:
    return namespace.startswith(SYSTEM_NAMESPACES)


def show(report: Report, rehearsal: Rehearsal, console: Console) -> None:
    """Print the report as tables, the answer first."""
    console.print(_verdict(report, rehearsal))
    console.print(Group(*_tables(report)))


def _verdict(report: Report, rehearsal: Rehearsal) -> Text:
    nodes = sum(pool["nodes"] for pool in report.pools)
    gpus = sum(pool["gpus"] for pool in report.pools)
    workloads, *rest = (
        f"{count} {what}{'' if count == 1 else 's'}"
        for count, what in ((len(report.workloads), "workload"), (nodes, "node"), (gpus, "GPU"))
    )
    room = ", ".join(rest)
    if not report.unwell:
        return Text(f"\n{rehearsal.title}: all is well: {workloads}, {room}\n", style="bold green")
    verb = "does" if len(report.unwell) == 1 else "do"
    said = f"\n{rehearsal.title}: {len(report.unwell)} of {workloads} {verb} not run, on {room}\n"
    if not nodes:
        bring = rehearsal.command("up", nodes="nodes.yaml")
        said += f"There is no node. Declare node pools, or bring copies of a cluster's: {bring}\n"
    return Text(said, style="bold red")


def _tables(report: Report) -> Iterable[RenderableType]:
    pools = _table("Node pools", "pool", "machine type", "nodes", "min-max", "GPUs", "GPUs in use")
    for pool in report.pools:
        bounds = f"{pool['min_nodes']}-{pool['max_nodes']}"
        pools.add_row(
            pool["name"],
            pool["machine_type"],
            str(pool["nodes"]),
            bounds,
            str(pool["gpus"]),
            str(pool["gpus_in_use"]),
        )
    yield pools

    workloads = _table("\nWorkloads", "namespace", "workload", "state", "nodes", "note")
    for row in report.workloads:
        style = "green" if row.is_well else "red"
        workloads.add_row(
            row.namespace,
            f"{row.kind} {row.name}",
            Text(row.state, style=style),
            "\n".join(row.nodes),
            row.reason,
        )
    yield workloads

    quotas = _table("\nQuotas (used / hard)", "namespace", "quota", *QUOTA_COLUMNS.values())
    for quota in report.quotas:
        quotas.add_row(quota.namespace, quota.name, *_quota_cells(quota))
    yield quotas

    if text := _recorded_text(report.recorded):
        yield Text(f"\n{text}", style="dim")


def _recorded_text(recorded: list[dict[str, str]]) -> str:
    """How many of each type, ``2 IAMMember, 1 Network``, and each chart; ``report --json`` has all names."""
    counts = Counter(item["type"].rpartition(":")[2] for item in recorded if item["type"] != RELEASE)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    charts = [f"{item['name'].rpartition('/')[2]} ({item['instead']})" for item in recorded if item["type"] == RELEASE]
    lines = (("Recorded only, not simulated", kinds), ("Recorded, chart not installed", ", ".join(charts)))
    return "\n".join(f"{title}: {text}" for title, text in lines if text)


QUOTA_COLUMNS = {
    f"requests.{GPU_RESOURCE}": "GPUs",
    "requests.cpu": "CPU",
    "requests.memory": "memory",
    "requests.storage": "storage",
    "pods": "pods",
    "count/jobs.batch": "Jobs",
    "persistentvolumeclaims": "claims",
}


def _quota_cells(quota: Quota) -> list[str]:
    return [f"{quota.used.get(key, '0')} / {quota.hard[key]}" if key in quota.hard else "-" for key in QUOTA_COLUMNS]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
