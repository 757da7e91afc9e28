"""The oracle: runs cases on a replica's real API server and scheduler and reads what became of their workloads.

It knows nothing of planning. All nodes of a batch are ready, and all quotas, limits and volumes settled, before the
first pod is created. The answer is read when the scheduler has nothing left to try.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from ml_foundations.rehearsal.control_plane import configuration
from ml_foundations.rehearsal.layout import Rehearsal

from tests.differential.case import MAX_NODES, WORKLOAD_KINDS, Document, pod_template

CONNECTIONS = 16
SETTLE_SECONDS = 300
"""Far more than a batch needs: a longer wait means that the oracle does not understand what it sees."""
QUIET_POLLS = 2
POLL_SECONDS = 0.5
"""Each poll makes the API server write out every pod."""

CLUSTER_KINDS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}
NAMESPACED_KINDS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
    "LimitRange": "/api/v1/namespaces/{}/limitranges",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
}
CONSTRAINTS = ("LimitRange", "ResourceQuota", "ServiceAccount")
Key = tuple[str, str, str]
"""Kind, namespace and name of a workload."""


class OracleError(Exception):
    """The control plane gave no answer that can be read."""


@dataclass
class Outcome:
    """What became of one workload."""

    expected: int
    """Pods that should run at once, by the workload's own spec."""
    created: int = 0
    scheduled: int = 0
    refused: str = ""
    """The API server's words, where it refused the workload or one of its pods."""
    unschedulable: str = ""
    """The scheduler's words about one of the pods that it could not place."""
    waiting: int = field(default=0, repr=False)
    """Pods of which the scheduler has said nothing yet."""
    unready: int = field(default=0, repr=False)
    """Pods that are placed and do not run yet."""


def _workloads(documents: Sequence[Document]) -> list[Document]:
    return [document for document in documents if document["kind"] in WORKLOAD_KINDS]


def key_of(document: Document) -> Key:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


class Oracle:
    """One replica's control plane, ready to run batch after batch."""

    def __init__(self, rehearsal: Rehearsal, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._metrics = f"https://{configuration.LOOPBACK}:{configuration.ports(rehearsal)['kubeSchedulerPort']}/metrics"

    async def run(
        self, cases: Sequence[list[Document]], order: random.Random
    ) -> list[list[Outcome]]:
        """Run placed cases together, and return for each the outcomes of its workloads, in order.

        Args:
            cases: The documents of each case, each under an identity of its own.
            order: Shuffles the order in which workloads are created.

        Raises:
            OracleError: an object that workloads need was refused, or the batch did not settle.
        """
        documents = [document for case in cases for document in expanded(case)]
        await self._prepare(documents)
        workloads = _workloads(documents)
        order.shuffle(workloads)
        outcomes = {key_of(workload): Outcome(_expected(workload)) for workload in workloads}
        await _all(self._create_workload(each, outcomes[key_of(each)]) for each in workloads)
        await self._settle(workloads, outcomes)
        keys = [[key_of(_endless(document)) for document in _workloads(case)] for case in cases]
        return [[outcomes[key] for key in of_case] for of_case in keys]

    # --- Before the pods

    async def _prepare(self, documents: Sequence[Document]) -> None:
        by_kind: dict[str, list[Document]] = {}
        for document in documents:
            by_kind.setdefault(document["kind"], []).append(document)
        namespaces = {document["metadata"].get("namespace") for document in documents} - {None}
        spaces = by_kind.setdefault("Namespace", [])
        for name in namespaces - {space["metadata"]["name"] for space in spaces}:
            spaces.append({"kind": "Namespace", "metadata": {"name": name}})
        for kinds in (CLUSTER_KINDS, CONSTRAINTS):
            needed = [each for kind in kinds for each in by_kind.get(kind, [])]
            refusals = [*filter(None, await asyncio.gather(*map(self._create, needed)))]
            if refusals:
                raise OracleError(f"the API server refused what workloads need: {refusals[:5]}")
        await self._wait_for(self._constraints_known, by_kind, namespaces)
        claims = by_kind.get("PersistentVolumeClaim", [])
        refused = await asyncio.gather(*map(self._create, claims))
        taken = [claim for claim, said in zip(claims, refused, strict=True) if not said]
        by_kind["PersistentVolumeClaim"] = taken
        await self._wait_for(self._nodes_and_claims_ready, by_kind)

    async def _wait_for(self, condition: Any, *args: Any) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while missing := await condition(*args):
            if time.monotonic() > deadline:
                raise OracleError(f"not ready after {SETTLE_SECONDS} s: {missing[:5]}")
            await asyncio.sleep(POLL_SECONDS)

    async def _constraints_known(
        self, by_kind: Mapping[str, list[Document]], namespaces: set[str]
    ) -> list[str]:
        """Pods need their namespace's service account, claims a volume's phase, and a quota counts by its status."""
        accounts = await self._list("/api/v1/serviceaccounts")
        missing = namespaces - {account["metadata"]["namespace"] for account in accounts}
        if by_kind.get("ResourceQuota"):
            quotas = await self._list("/api/v1/resourcequotas")
            known = {_place(quota) for quota in quotas if "hard" in quota["status"]}
            missing |= {
                "/".join(place) for place in {*map(_place, by_kind["ResourceQuota"])} - known
            }
        if by_kind.get("PersistentVolume"):
            volumes = await self._list("/api/v1/persistentvolumes")
            pending = [volume for volume in volumes if volume["status"]["phase"] == "Pending"]
            missing |= {volume["metadata"]["name"] for volume in pending}
        return sorted(missing)

    async def _nodes_and_claims_ready(self, by_kind: Mapping[str, list[Document]]) -> list[str]:
        """New nodes carry a taint until a controller has seen them ready; a claim is bound, or it is said why not."""
        declared = {node["metadata"]["name"]: node for node in by_kind.get("Node", [])}
        nodes = {node["metadata"]["name"]: node for node in await self._list("/api/v1/nodes")}
        found = declared.keys() & nodes.keys()
        missing = [name for name in found if not _is_settled(nodes[name], declared[name])]
        if wanted := {_place(claim) for claim in by_kind.get("PersistentVolumeClaim", [])}:
            claims, events = await asyncio.gather(
                *map(self._list, ("/api/v1/persistentvolumeclaims", "/api/v1/events"))
            )
            about = [event["involvedObject"] for event in events if _is_about_claim(event)]
            said = {_place({"metadata": metadata}) for metadata in about}
            said |= {_place(claim) for claim in claims if claim["status"].get("phase") == "Bound"}
            missing += ["/".join(place) for place in wanted - said]
        return missing

    # --- Pods

    async def _create_workload(self, workload: Document, outcome: Outcome) -> None:
        outcome.refused = await self._create(workload)

    async def _settle(self, workloads: Sequence[Document], outcomes: dict[Key, Outcome]) -> None:
        """Wait until nothing has changed for a while and the scheduler has no pod left to try."""
        deadline = time.monotonic() + SETTLE_SECONDS
        quiet, before = 0, None
        while quiet < QUIET_POLLS:
            if time.monotonic() > deadline:
                unanswered = [key for key in outcomes if not _is_answered(key, outcomes)]
                open_ends = [(key, outcomes[key]) for key in unanswered[:5]] or "pods in the queue"
                raise OracleError(f"not settled after {SETTLE_SECONDS} s: {open_ends}")
            await asyncio.sleep(POLL_SECONDS)
            if not await self._scheduler_is_idle():
                quiet = 0
                continue
            await self._observe(workloads, outcomes)
            now = repr(outcomes)
            answered = all(_is_answered(key, outcomes) for key in outcomes)
            quiet = quiet + 1 if answered and now == before else 0
            before = now

    async def _scheduler_is_idle(self) -> bool:
        async with self._session.get(self._metrics) as response:
            text = await response.text()
        line = r'^scheduler_pending_pods\{queue="(\w+)"\} (\S+)'
        pending = dict(re.findall(line, text, re.MULTILINE))
        return float(pending.get("active", 0)) == float(pending.get("backoff", 0)) == 0

    async def _observe(self, workloads: Sequence[Document], outcomes: dict[Key, Outcome]) -> None:
        """Count the pods of every workload anew."""
        pods, daemons = await asyncio.gather(
            self._list("/api/v1/pods"), self._list("/apis/apps/v1/daemonsets")
        )
        for outcome in outcomes.values():
            outcome.created = outcome.scheduled = outcome.waiting = outcome.unready = 0
        for daemon in daemons:
            key = ("DaemonSet", *_place(daemon))
            if key in outcomes and "observedGeneration" in daemon["status"]:
                outcomes[key].expected = daemon["status"]["desiredNumberScheduled"]
        for pod in pods:
            if outcome := outcomes.get(_workload_of(pod)):
                _count(pod, outcome)
        answers = [(each, key_of(each)) for each in workloads]
        short = [(each, key) for each, key in answers if not _is_answered(key, outcomes)]
        await _all(
            self._ask_why(each, outcomes[key]) for each, key in short if not outcomes[key].waiting
        )

    async def _ask_why(self, workload: Document, outcome: Outcome) -> None:
        """Learn why pods are missing: ask the API server whether it would take one more, without creating it.

        Controllers report refusals as events, which they drop when there are many.
        """
        for document in _next_objects(workload):
            outcome.refused = outcome.refused or await self._create(document, "?dryRun=All")
        if outcome.refused:
            outcome.expected = abs(outcome.expected)

    # --- HTTP

    async def _create(self, document: Document, options: str = "") -> str:
        """Create an object; return the words with which the API server refuses it, else nothing."""
        async with self._session.post(_collection(document) + options, json=document) as response:
            if response.status == 201:
                return ""
            message = (await response.json())["message"]
        if response.status in (403, 422):
            return message
        raise OracleError(f"the API server answered {response.status}: {message}")

    async def _list(self, path: str) -> list[Document]:
        """List objects, as the API server's cache knows them."""
        async with self._session.get(path, params={"resourceVersion": "0"}) as response:
            response.raise_for_status()
            return (await response.json())["items"] or []


@asynccontextmanager
async def connect(rehearsal: Rehearsal) -> AsyncIterator[Oracle]:
    """Connect to a replica that runs."""
    access = configuration.credentials(rehearsal)
    context = ssl.create_default_context(cafile=str(access.ca))
    context.load_cert_chain(access.cert, access.key)
    # The scheduler's own certificate is made at start and signed by nobody; only metrics are read there.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context)
    # On one machine, compressing costs more than it saves.
    headers = {"Accept-Encoding": "identity"}
    session = aiohttp.ClientSession(access.server, connector=connector, headers=headers)
    async with session:
        yield Oracle(rehearsal, session)


async def _all(tasks: Iterable[Awaitable[Any]]) -> None:
    await asyncio.gather(*tasks)


def _collection(document: Document) -> str:
    kind = document["kind"]
    if kind in CLUSTER_KINDS:
        return CLUSTER_KINDS[kind]
    return NAMESPACED_KINDS[kind].format(document["metadata"]["namespace"])


def _place(document: Document) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["name"]


# --- Documents as the cluster gets them


def expanded(documents: Iterable[Document]) -> list[Document]:
    """Templates become nodes, and pods are kept from finishing."""
    result: list[Document] = []
    for document in documents:
        if document["kind"] == "Node":
            result += _nodes(document)
        elif document["kind"] in WORKLOAD_KINDS:
            result.append(_endless(document))
        else:
            result.append(document)
    return result


def _nodes(template: Document) -> list[Document]:
    """A node, or as many nodes as the template stands for, each with its own name and host name; all are ready."""
    count = template["metadata"].get("annotations", {}).get(MAX_NODES)
    nodes: list[Document] = []
    for index in range(int(count or 1)):
        node = copy.deepcopy(template)
        metadata, status = node["metadata"], node.setdefault("status", {})
        if count:
            metadata["name"] += f"-{index}"
        if count or "kubernetes.io/hostname" not in metadata["labels"]:
            metadata["labels"]["kubernetes.io/hostname"] = metadata["name"]
        # A node that says its capacity alone offers all of it.
        status["capacity"] = status.get("allocatable") or status["capacity"]
        status["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        nodes.append(node)
    return nodes


def _endless(workload: Document) -> Document:
    """The workload with pods that never finish; the run that a CronJob would start stands for the CronJob."""
    workload = copy.deepcopy(workload)
    if workload["kind"] == "CronJob":
        job = workload["spec"]["jobTemplate"]
        workload = _made("batch/v1", "Job", workload["metadata"], spec=job["spec"])
    if workload["kind"] == "Job":
        metadata = pod_template(workload).setdefault("metadata", {})
        metadata.setdefault("annotations", {})["pod-complete.stage.kwok.x-k8s.io/delay"] = "24h"
    return workload


def _expected(workload: Document) -> int:
    """How many pods the workload runs at once; of a DaemonSet, only its controller knows."""
    spec = workload["spec"]
    match workload["kind"]:
        case "Pod":
            return 1
        case "Job":
            parallelism = spec.get("parallelism", 1)
            return min(parallelism, spec.get("completions", parallelism))
        case "DaemonSet":
            return -1
        case _:
            return spec.get("replicas", 1)


def _next_objects(workload: Document) -> list[Document]:
    """What the workload's controller would create next."""
    if workload["kind"] == "Pod":
        return []
    own = workload["metadata"]
    metadata = {"generateName": f"{own['name']}-", "namespace": own["namespace"]}
    template = pod_template(workload)
    pod = _made("v1", "Pod", template["metadata"] | metadata, spec=template["spec"])
    match workload["kind"]:
        case "Deployment":
            spec = {"replicas": 0, "selector": workload["spec"]["selector"], "template": template}
            return [pod, _made("apps/v1", "ReplicaSet", metadata, spec=spec)]
        case "StatefulSet" | "DaemonSet":
            revision = _made("apps/v1", "ControllerRevision", metadata, data={}, revision=1)
            claims = [
                _made("v1", "PersistentVolumeClaim", metadata, spec=claim["spec"])
                for claim in workload["spec"].get("volumeClaimTemplates", [])
            ]
            return [pod, revision, *claims]
        case _:
            return [pod]


def _made(version: str, kind: str, metadata: Document, **fields: Any) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


# --- Reading


def _is_about_claim(event: Document) -> bool:
    return event["involvedObject"]["kind"] == "PersistentVolumeClaim"


def _is_settled(node: Document, declared: Document) -> bool:
    """Whether the node has its own taints and no other; a cordoned one gets a taint that says so."""
    wanted = {taint["key"] for taint in declared.get("spec", {}).get("taints", [])}
    if declared.get("spec", {}).get("unschedulable"):
        wanted.add("node.kubernetes.io/unschedulable")
    return wanted == {taint["key"] for taint in node["spec"].get("taints", [])}


def _workload_of(pod: Document) -> Key:
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences", []):
        return _owner(owner, metadata["namespace"])
    return "Pod", metadata["namespace"], metadata["name"]


def _owner(reference: Document, namespace: str) -> Key:
    """The workload that an owner reference means: a Deployment's ReplicaSets are named after it, with a hash.

    The hash holds no vowels; names of workloads in cases end in one.
    """
    kind, name = reference["kind"], reference["name"]
    if kind == "ReplicaSet" and (match := re.fullmatch(r"(.+)-[bcdf-hj-np-tv-z0-9]{1,10}", name)):
        return "Deployment", namespace, match[1]
    return kind, namespace, name


def _count(pod: Document, outcome: Outcome) -> None:
    outcome.created += 1
    conditions = {condition["type"]: condition for condition in pod["status"].get("conditions", [])}
    if pod["spec"].get("nodeName"):
        outcome.scheduled += 1
        outcome.unready += conditions.get("Ready", {}).get("status") != "True"
    elif conditions.get("PodScheduled", {}).get("reason") == "Unschedulable":
        outcome.unschedulable = conditions["PodScheduled"]["message"]
    else:
        outcome.waiting += 1


def _is_answered(key: Key, outcomes: Mapping[Key, Outcome]) -> bool:
    """Whether every pod is placed or found unschedulable, and pods that do not exist were refused."""
    outcome = outcomes[key]
    if outcome.waiting or outcome.unready:
        return False
    if outcome.created == outcome.expected or outcome.refused:
        return True
    if key[0] == "Pod":
        return True  # another one took it over, or evicted it: nobody makes it anew
    # A StatefulSet creates a pod when the one before it runs.
    return key[0] == "StatefulSet" and outcome.created > outcome.scheduled
