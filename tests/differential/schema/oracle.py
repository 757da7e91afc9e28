"""The second oracle: what becomes of cases on a real control plane, told from what its objects say of themselves.

It knows nothing of planning, nor of the first oracle. A workload runs when every pod that it wants is bound to a node
that exists and has started there, or has done its work. The answer is read when nothing is left to come: the
scheduler's and the controllers' queues are empty, no watch has brought anything since, every pod is started, finished or
found unschedulable, and whatever is missing would be refused.
"""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.differential.schema.client import Client
from tests.differential.schema.generator import pod_specs
from tests.differential.schema.openapi import Schema
from tests.differential.schema.values import CASE
from tests.differential.schema.wanted import DONE, Missing, missing_of

Object = dict[str, Any]
WATCHED = (
    "Namespace", "ServiceAccount", "Node", "Pod", "PersistentVolumeClaim", "ResourceQuota", "Job", "Deployment",
    "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "PersistentVolume", "ResourceClaim",
)  # fmt: skip
POLL_SECONDS = 0.25
MOST_LOOKS = 12
"""So often nothing happens and yet something should: the cases in question have no answer."""
AT_MOST_SECONDS = 300
"""What has not settled by then is no answer; it is counted as such."""
RESTLESS_SECONDS = 10
"""Where objects changed so lately when time was up, a controller may go on for ever."""


@dataclass
class Run:
    """One case in one order."""

    refused: dict[str, str] = field(default_factory=dict[str, str])
    """The documents that the API server refused, by kind and name, and its words."""
    waiting: dict[str, str] = field(default_factory=dict[str, str])
    """The workloads that do not run, by kind and name, and why."""
    unsettled: str = ""
    """What was still to come when the oracle gave up."""

    @property
    def runs(self) -> bool:
        """Whether all of the case was accepted and runs."""
        return not self.refused and not self.waiting


def title(document: Object) -> str:
    metadata = document["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{document['kind']} {place}{metadata['name']}"


@dataclass
class _Instance:
    """A case under an identity of its own, in one order."""

    documents: list[Object]
    one_by_one: bool
    identity: str
    run: Run = field(default_factory=Run)
    created: list[Object] = field(default_factory=list[Object])
    """The workloads that were accepted."""

    @property
    def workloads(self) -> list[Object]:
        return [document for document in self.documents if any(pod_specs(document))]

    @property
    def namespaces(self) -> set[str]:
        spaces = [document for document in self.documents if document["kind"] == "Namespace"]
        return {document["metadata"]["name"] for document in spaces}

    @property
    def others(self) -> list[Object]:
        return [document for document in self.documents if not any(pod_specs(document))]


@dataclass(frozen=True)
class _Coming:
    """What a case still waits for; with the workload whose controller could create something."""

    instance: _Instance
    workload: Object | None
    why: str


class Oracle:
    """A control plane, ready to run one batch of cases."""

    def __init__(self, client: Client, schema: Schema) -> None:
        self._client, self._schema = client, schema
        self.seen: dict[str, dict[tuple[str, str], Object]] = {kind: {} for kind in WATCHED}
        self._changes = 0
        self._changed = dict[str, float]()
        """When something in a namespace changed last."""
        self._watches: list[asyncio.Task[None]] = []
        self._touched = 0

    async def run(
        self, cases: Sequence[Sequence[Object]], orders: Sequence[Sequence[Object]]
    ) -> list[tuple[Run, Run]]:
        """Run every case twice: as it stands, all at once, and in another order, one workload after the other.

        Args:
            cases: The documents of each case.
            orders: The same documents, in another order.
        """
        self._watches = watches = [asyncio.create_task(self._watch(kind)) for kind in WATCHED]
        try:
            first = [_instance(case, f"c{index}a", False) for index, case in enumerate(cases)]
            second = [_instance(case, f"c{index}b", True) for index, case in enumerate(orders)]
            await self._run([*first, *second])
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
        return [(one.run, other.run) for one, other in zip(first, second, strict=True)]

    async def _watch(self, kind: str) -> None:
        path = self._schema.kinds[kind].path(None).replace("/namespaces/None", "")
        async for namespace in self._client.watch(path, self.seen[kind]):
            self._changes += 1
            self._changed[namespace] = time.monotonic()

    def _require_watches(self) -> None:
        """Fail where a watch has ended: what it should tell would be missed."""
        for watch in self._watches:
            if watch.done():
                watch.result()

    async def _run(self, instances: list[_Instance]) -> None:
        await _all(self._create_others(instance) for instance in instances)
        await self._until(lambda: self._not_ready(instances))
        queues = [(instance, instance.workloads) for instance in instances]
        while any(workloads for _, workloads in queues):
            await _all(self._create_next(instance, workloads) for instance, workloads in queues)
            await self._settle([instance for instance, _ in queues if not instance.run.unsettled])

    # --- Creating

    async def _create_others(self, instance: _Instance) -> None:
        """Namespaces first: they are there when what is in them is created."""
        for document in instance.others:
            await self._create(instance, document)

    async def _create_next(self, instance: _Instance, workloads: list[Object]) -> None:
        """The next workload, or all of them at once."""
        for _ in range(min(len(workloads), 1 if instance.one_by_one else len(workloads))):
            workload = workloads.pop(0)
            if await self._create(instance, _quick(workload)):
                instance.created.append(workload)

    async def _create(self, instance: _Instance, document: Object) -> bool:
        path = self._path(document)
        made, refusal = await self._client.create(path, document)
        if refusal:
            instance.run.refused[_told(title(document), instance)] = _told(refusal, instance)
        elif made and document["kind"] == "CronJob":
            # What a CronJob will start once, as `kubectl create job --from` does it.
            job = document["spec"]["jobTemplate"]
            given = document["metadata"]
            metadata = {"name": given["name"], "namespace": given["namespace"]}
            run = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
            await self._create(instance, run | {"spec": job["spec"]})
        return not refusal

    def _path(self, document: Object) -> str:
        return self._schema.kinds[document["kind"]].path(document["metadata"].get("namespace"))

    def _not_ready(self, instances: Iterable[_Instance]) -> list[str]:
        """Nodes that still have a taint of the first moment, namespaces without account, quotas that do not count yet."""
        return [
            title(document)
            for instance in instances
            for document in instance.others
            if _told(title(document), instance) not in instance.run.refused
            and not self._is_ready(document)
        ]

    def _is_ready(self, document: Object) -> bool:
        name, space = document["metadata"]["name"], document["metadata"].get("namespace", "")
        match document["kind"]:
            case "Node":
                node = self.seen["Node"].get(("", name))
                return node is not None and _taints(node) == _taints(document) | _cordoned(document)
            case "Namespace":
                return (name, "default") in self.seen["ServiceAccount"]
            case "ResourceQuota":
                quota = self.seen["ResourceQuota"].get((space, name), {"status": {}})
                return "spec" in quota and quota["spec"].get("hard") == quota["status"].get("hard")
            case _:
                return True

    async def _until(self, missing: Any) -> None:
        deadline = time.monotonic() + AT_MOST_SECONDS
        while found := missing():
            self._require_watches()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready: {found[:5]}")
            await asyncio.sleep(POLL_SECONDS / 5)

    # --- Settling

    async def _settle(self, instances: Sequence[_Instance]) -> None:
        """Wait until nothing is to come, and note what does not run."""
        deadline = time.monotonic() + AT_MOST_SECONDS
        before, idle_looks, coming = -1, 0, list[_Coming]()
        claims, looks = self.seen["PersistentVolumeClaim"], self._client.claim_looks
        while idle_looks < MOST_LOOKS and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            self._require_watches()
            is_idle = await self._client.is_idle()
            waits = any(claim["status"].get("phase") == "Pending" for claim in claims.values())
            # A claim that waits is looked at once a second: each has had its turn.
            is_idle &= not waits or self._client.claim_looks > looks + 2 * len(claims)
            is_quiet, before = is_idle and before == self._changes, self._changes if is_idle else -1
            if is_quiet:
                coming = await self._coming(instances)
                if not coming:
                    return
                idle_looks += 1
                await _all(self._touch(item.workload) for item in coming if item.workload)
        if idle_looks < MOST_LOOKS:
            coming = [*await self._coming(instances), *self._restless(instances)]
        for item in coming:
            item.instance.run.unsettled = item.why
        await _all(self._give_up(instance) for instance in instances if instance.run.unsettled)

    def _restless(self, instances: Iterable[_Instance]) -> list[_Coming]:
        """The cases whose objects still change."""
        late = time.monotonic() - RESTLESS_SECONDS
        restless = {namespace for namespace, changed in self._changed.items() if changed > late}
        return [
            _Coming(each, None, "its objects go on changing")
            for each in instances
            if each.namespaces & restless
        ]

    async def _give_up(self, instance: _Instance) -> None:
        """Take the workloads away, so that other cases have their quiet."""
        for workload in instance.created:
            await self._client.delete(self._place(workload))

    async def _coming(self, instances: Sequence[_Instance]) -> list[_Coming]:
        """What is still to come: by the pods' own state, or because the API server would take what is missing."""
        coming: list[_Coming] = []
        pods = self._pods_by_namespace()
        asked: list[tuple[_Instance, Object, Missing]] = []
        for instance in instances:
            instance.run.waiting = {}
            for workload in instance.created:
                missing = missing_of(workload, self.seen, pods)
                if missing is DONE:
                    continue
                name = _told(title(workload), instance)
                instance.run.waiting[name] = _told(missing.why, instance)
                if missing.is_coming:
                    coming.append(_Coming(instance, None, f"{title(workload)}: {missing.why}"))
                elif missing.next:
                    asked.append((instance, workload, missing))
        refusals = await asyncio.gather(*(self._refusal(missing.next) for _, _, missing in asked))
        for (instance, workload, missing), refusal in zip(asked, refusals, strict=True):
            if refusal:
                instance.run.waiting[_told(title(workload), instance)] = _told(refusal, instance)
            else:
                why = f"{title(workload)}: {missing.why}, and would be accepted"
                coming.append(_Coming(instance, workload, why))
        return coming

    def _pods_by_namespace(self) -> dict[str, list[Object]]:
        pods: dict[str, list[Object]] = {}
        for (space, _), pod in self.seen["Pod"].items():
            pods.setdefault(space, []).append(pod)
        return pods

    async def _refusal(self, documents: Sequence[Object]) -> str:
        """Why the API server would not take one of some objects, without creating them."""
        for document in documents:
            _, refusal = await self._client.create(self._path(document), document, "?dryRun=All")
            if refusal:
                return refusal
        return ""

    async def _touch(self, workload: Object) -> None:
        """Controllers try again ever later: what they would do some day, they do when their object changes."""
        self._touched += 1
        await self._client.touch(self._place(workload), str(self._touched))

    def _place(self, workload: Object) -> str:
        """Where a workload is; of a CronJob, its one Job."""
        kind = "Job" if workload["kind"] == "CronJob" else workload["kind"]
        return f"{self._path(workload | {'kind': kind})}/{workload['metadata']['name']}"


async def _all(tasks: Iterable[Awaitable[Any]]) -> None:
    await asyncio.gather(*tasks)


def _instance(documents: Sequence[Object], identity: str, one_by_one: bool) -> _Instance:
    own = json.loads(json.dumps(documents).replace(CASE, identity))
    return _Instance(own, one_by_one, identity)


def _told(text: str, instance: _Instance) -> str:
    return text.replace(instance.identity, CASE)


def _quick(workload: Object) -> Object:
    """The workload with pods that do their work at once, where their work has an end."""
    workload = copy.deepcopy(workload)
    match workload["kind"]:
        case "Pod":
            template = workload
        case "CronJob":
            template = workload["spec"]["jobTemplate"]["spec"]["template"]
        case _:
            template = workload["spec"]["template"]
    metadata = template.setdefault("metadata", {})
    metadata.setdefault("annotations", {})["pod-complete.stage.kwok.x-k8s.io/delay"] = "1ms"
    return workload


def _taints(node: Object) -> set[str]:
    return {taint["key"] for taint in node.get("spec", {}).get("taints", ())}


def _cordoned(node: Object) -> set[str]:
    is_cordoned = node.get("spec", {}).get("unschedulable")
    return {"node.kubernetes.io/unschedulable"} if is_cordoned else set()
