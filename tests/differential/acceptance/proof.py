"""Asks the API server about cases by dry runs, several at a time, and compares what it says with planning's verdicts."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from ml_foundations.planning import Severity, Verdict, judge
from ml_foundations.rehearsal.control_plane import configuration, controllers
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain

from tests.differential import control_plane
from tests.differential.acceptance.generator import Schema, case
from tests.factories import claim, cluster_wide, deployment, template

Object = dict[str, Any]
CONNECTIONS = 8
AT_ONCE = 500
OWN_GROUPS = ("jobset.x-k8s.io", "kueue.x-k8s.io")
"""Webhooks of these are about the cases; others would look at every pod."""
NAMESPACES = {
    "crew": {},
    "aside": {},
    "strict": {"pod-security.kubernetes.io/enforce": "restricted"},
}
LABELS = {
    "Deployment": {"pod-template-hash": "h"},
    "StatefulSet": {"controller-revision-hash": "h"},
    "DaemonSet": {"controller-revision-hash": "h"},
}
"""What controllers add to the labels of pods, as far as the cases ask for it."""
REFUSING = frozenset(
    {
        *("invalid", "pod-security", "priority-class", "runtime-class", "limit-range-max"),
        *("request-above-limit", "extended-resource-limit", "extended-resource-fraction"),
    }
)
"""The rules of the API server; others are about room."""
MUCH = dict.fromkeys(("cpu", "pods", "nvidia.com/gpu"), "1k")
MUCH |= dict.fromkeys(("memory", "hugepages-2Mi", "ephemeral-storage"), "1Ti")
ROOMY = cluster_wide("v1", "Node", "n", status={"allocatable": MUCH})
ROOMY["metadata"]["labels"] = {"kubernetes.io/hostname": "n", "zone": "a", "a": "b", "size": "5"}
WEB = deployment("web", 1, template(containers=[{"name": "main", "image": "i"}]))
WEB["metadata"]["namespace"] = "web"


def surroundings() -> list[Object]:
    """What the cases find in the cluster."""
    spaces = [cluster_wide("v1", "Namespace", name) for name in NAMESPACES]
    for space in spaces:
        space["metadata"]["labels"] = NAMESPACES[space["metadata"]["name"]]
    urgent = cluster_wide("scheduling.k8s.io/v1", "PriorityClass", "urgent", value=100)
    boxed = cluster_wide("node.k8s.io/v1", "RuntimeClass", "boxed", handler="h")
    disks = cluster_wide("storage.k8s.io/v1", "StorageClass", "c", provisioner="d.example.com")
    disks |= {"volumeBindingMode": "WaitForFirstConsumer"}
    modes = (("c", "Filesystem"), ("b", "Block"))
    claims = [claim(name, storageClassName="c", volumeMode=mode) for name, mode in modes]
    for made in claims:
        made["metadata"]["namespace"] = "crew"
    return [*spaces, urgent, boxed, disks, *claims]


_NOT_IN_DRY_RUNS = {f"spec.ports[{index}].nodePort" for index in range(9)}
_NOT_IN_DRY_RUNS |= {"spec.healthCheckNodePort"}
"""The API server takes no port of the nodes in a dry run, and asks for none from 30000 to 32767."""


@dataclass(frozen=True)
class Comparison:
    """What planning and the API server say of a case."""

    documents: Sequence[Object]
    words: str
    """Those of the API server's refusal."""
    errors: tuple[tuple[str, str], ...]
    """Planning's refusals: path and message."""
    verdict: Verdict
    crash: str = ""

    @property
    def is_wrong(self) -> bool:
        if self.errors and not self.words and {path for path, _ in self.errors} <= _NOT_IN_DRY_RUNS:
            return False
        return bool(self.crash) or (
            bool(self.words) != bool(self.errors) and self.verdict is not Verdict.UNDETERMINED
        )

    @property
    def kind(self) -> str:
        """The kind of the object, or both."""
        return "+".join(sorted({each["kind"] for each in self.documents}))

    @property
    def shape(self) -> str:
        """What kind of disagreement it is."""
        if self.crash:
            return f"{self.kind} crashes planning: {self.crash}"
        if self.words:
            said = json.loads(self.words)
            whole = {"message": said["message"][-160:]}
            cause = (said.get("details", {}).get("causes") or [whole])[0]
            what = f"{_plain(cause.get('field', ''))}: {_plain(cause['message'])[:110]}"
            return f"{self.kind} fits: {what}"
        path, message = self.errors[0]
        return f"{self.kind} refused: {_plain(path)}: {_plain(message)[:110]}"


def _plain(text: str) -> str:
    """A text without names and numbers."""
    text = re.sub(r"\[\d+\]", "[]", text)
    return re.sub(r'"[^"]*"|\b\d+\b|x{9,}', "_", text)


LOST = re.compile(r"failed to call webhook: .*(EOF|connection reset by peer|connection refused)")
"""The API server's words if a webhook has just closed the connection, which is no answer about an object."""


class Server:
    """The API server of a control plane."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def schema(self) -> Schema:
        """What it publishes of itself."""
        paths = (await self.read("/openapi/v3"))["paths"]
        versions = [paths[path] for path in paths if re.search(r"/v\d\w*$", path)]
        return Schema([await self.read(found["serverRelativeURL"]) for found in versions])

    async def create(
        self, schema: Schema, document: Object, query: str = ""
    ) -> tuple[Object | None, str]:
        """Create an object. Returns it, or the words of refusal."""
        metadata = document["metadata"]
        path = schema.paths[document["apiVersion"], document["kind"]]
        path = path.replace("{namespace}", quote(str(metadata.get("namespace")), safe=""))
        for _ in range(4):
            try:
                async with self._session.post(path + query, data=json.dumps(document)) as response:
                    words = await response.text()
                    if response.status == 500 and LOST.search(words):
                        continue
                    if response.status == 409 and json.loads(words)["reason"] == "AlreadyExists":
                        return None, ""  # a deployment would change it
                    assert response.status in (201, 400, 403, 404, 409, 413, 422, 500), words
                    return (json.loads(words), "") if response.status == 201 else (None, words)
            except aiohttp.ServerDisconnectedError:
                continue  # a connection that the server has just closed, or a panic over this object
        return None, json.dumps({"message": "the API server or a webhook panics"})

    async def has(self, path: str) -> bool:
        """Whether an object is there."""
        async with self._session.get(path) as response:
            return response.status == 200

    async def delete(self, path: str) -> None:
        """Delete an object, whoever wants to do something before its end."""
        headers = {"Content-Type": "application/merge-patch+json"}
        body = json.dumps({"metadata": {"finalizers": None}})
        async with self._session.delete(path):
            pass
        async with self._session.patch(path, data=body, headers=headers):
            pass

    async def keep_webhooks(self, path: str, groups: Sequence[str]) -> None:
        """Remove webhooks of other groups than some, and those of a controller for another's."""
        for each in (await self.read(path))["items"]:
            name = each["metadata"]["name"]
            own = [group for group in groups if group.partition(".")[0] in name][:1]
            kept = [
                hook
                for hook in each["webhooks"]
                if all(rule["apiGroups"] == (own or [""]) for rule in hook["rules"])
            ]
            await self._patch(f"{path}/{name}", {"webhooks": kept})

    async def _patch(self, path: str, change: Object) -> None:
        body, headers = json.dumps(change), {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(path, data=body, headers=headers) as response:
            response.raise_for_status()

    async def find(self, path: str) -> Object | None:
        """An object; None if it is not there."""
        async with self._session.get(path) as response:
            return json.loads(await response.text()) if response.status == 200 else None

    async def read(self, path: str) -> Object:
        async with self._session.get(path) as response:
            response.raise_for_status()
            return json.loads(await response.text())


@asynccontextmanager
async def connect(rehearsal: Rehearsal) -> AsyncIterator[Server]:
    access = configuration.credentials(rehearsal)
    context = ssl.create_default_context(cafile=str(access.ca))
    context.load_cert_chain(access.cert, access.key)
    async with aiohttp.ClientSession(
        access.server,
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context),
        headers={"Accept-Encoding": "identity", "Content-Type": "application/json"},
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        yield Server(session)


async def prepare(server: Server, schema: Schema) -> None:
    """Create what the cases find in the cluster, and wait for what controllers make of it."""
    for document in surroundings():
        _, words = await server.create(schema, document)
        assert not words, words
    for name in NAMESPACES:
        while not await server.has(f"/api/v1/namespaces/{name}/serviceaccounts/default"):
            await asyncio.sleep(0.1)


def prove(count: int, folder: Path, first: int) -> tuple[int, str]:
    """Compare so many cases, beside the webhooks of JobSet and Kueue. Returns how many are wrong, and the table."""
    with control_plane.running(folder) as rehearsal:
        try:
            for controller in controllers.CONTROLLERS:
                controllers.start(rehearsal, toolchain.ensure(), controller, {})
            found = asyncio.run(_prove(rehearsal, count, first))
        finally:
            controllers.stop(rehearsal)
    text = summary(found)
    print(text)
    return sum(each.is_wrong for each in found), text


async def _prove(rehearsal: Rehearsal, count: int, first: int) -> list[Comparison]:
    found: list[Comparison] = []
    async with connect(rehearsal) as server:
        schema = await server.schema()
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            await server.keep_webhooks(f"/apis/admissionregistration.k8s.io/v1/{kind}", OWN_GROUPS)
        await prepare(server, schema)
        for start in range(first, first + count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, first + count))
            new = await compare(server, schema, [case(schema, number) for number in numbers])
            for number, each in zip(numbers, new, strict=True):
                if each.is_wrong:
                    print(f"case {number}: {each.shape}", flush=True)
            found += new
    return found


async def compare(
    server: Server, schema: Schema, cases: Iterable[Sequence[Object]]
) -> list[Comparison]:
    """What both say of some cases, each alone."""
    turns = asyncio.Semaphore(2 * CONNECTIONS)

    async def one(documents: Sequence[Object]) -> Comparison:
        async with turns:
            words = [await _refused(server, schema, document) for document in documents]
            return _compared(documents, max(words))

    return await asyncio.gather(*map(one, cases))


async def _refused(server: Server, schema: Schema, document: Object) -> str:
    """The words with which an object is refused, or what its controllers make of it."""
    answer, words = await server.create(schema, document, "?dryRun=All")
    for below in made(answer) if answer else ():
        words = words or await _refused(server, schema, below)
    return words


def made(owner: Object) -> Iterable[Object]:
    """What the controllers make of an object, as the API server has completed it: Jobs of CronJobs and JobSets, and pods."""
    kind, spec = owner["kind"], owner.get("spec") or {}
    if kind in ("CronJob", "JobSet"):
        replicated = spec.get("replicatedJobs") or ()
        jobs = [each["template"] for each in replicated if each.get("replicas") != 0]
        for job in [spec["jobTemplate"]] if kind == "CronJob" else jobs:
            given = job.get("metadata") or {}
            copied = {key: given[key] for key in ("labels", "annotations") if key in given}
            metadata = {**copied, "name": "w-0", "namespace": owner["metadata"]["namespace"]}
            made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
            yield made | {"spec": job["spec"]}
    elif "template" in spec and 0 not in map(spec.get, ("replicas", "parallelism", "completions")):
        made = spec["template"]
        given = made.get("metadata") or {}
        labels = {**(given.get("labels") or {}), **LABELS.get(kind, {})}
        copied = {key: given[key] for key in ("annotations", "finalizers") if key in given}
        metadata = {**copied, "name": "w-0", "namespace": owner["metadata"]["namespace"]}
        metadata["labels"] = labels
        claims = spec.get("volumeClaimTemplates") or ()
        names = dict.fromkeys(each["metadata"]["name"] for each in claims)
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": "c"}} for each in names]
        own = [each for each in made["spec"].get("volumes") or () if each.get("name") not in names]
        pod = {**made["spec"], "volumes": [*volumes, *own]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def _compared(documents: Sequence[Object], words: str) -> Comparison:
    try:
        verdicts = judge([*surroundings(), *_beside(), *documents])
    except Exception as error:
        where = error.__traceback__
        while where and where.tb_next:
            where = where.tb_next
        crash = f"{error!r} in {where.tb_frame.f_code.co_qualname if where else ''}"
        return Comparison(documents, words, (), Verdict.FITS, crash)
    own = [each for each in verdicts.workloads if str(each.workload) != "Deployment web/web"]
    found = [*verdicts.findings, *(reason for each in own for reason in each.reasons)]
    wrong = [each for each in found if each.severity is Severity.ERROR]
    errors = [(each.path, each.message) for each in wrong if each.rule in REFUSING]
    said = [each.verdict for each in own] or [verdicts.stack]
    verdict = Verdict.UNDETERMINED if Verdict.UNDETERMINED in said else said[0]
    return Comparison(documents, words, tuple(errors), verdict)


@cache
def _beside() -> tuple[Object, ...]:
    return (cluster_wide("v1", "Namespace", "web"), ROOMY, WEB)


def summary(found: Sequence[Comparison]) -> str:
    """Figures by kind, and the shapes of what is wrong."""
    by_kind: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in found:
        kinds = ["accepted" if not each.words else "refused"]
        kinds += ["undetermined"] if each.verdict is Verdict.UNDETERMINED else []
        kinds += [("wrong fit" if each.words else "wrong refusal")] if each.is_wrong else []
        for name in (each.kind if len(each.documents) == 1 else "two", "all"):
            by_kind[name].update(["cases", *kinds])
    columns = ("cases", "accepted", "refused", "undetermined", "wrong fit", "wrong refusal")
    lines = [f"| kind | {' | '.join(columns)} |", "|-|" + "-:|" * len(columns)]
    for kind in sorted(by_kind, key=lambda name: (name == "all", name)):
        lines.append(
            f"| {kind} | " + " | ".join(f"{by_kind[kind][column]:,}" for column in columns) + " |"
        )
    return "\n".join(lines)
