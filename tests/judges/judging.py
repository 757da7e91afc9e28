"""Ask the API server with the webhooks of all controllers, and controllers by their loops; compare planning with the answers."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ml_foundations.planning import Severity, Verdict
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.control_plane import controllers
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain

from codegen import definitions
from tests.differential import control_plane
from tests.differential.acceptance import proof
from tests.differential.acceptance.generator import Object, Schema
from tests.differential.acceptance.proof import REFUSING, ROOMY, Server
from tests.judges import edits, operators

DRY_RUN = "?dryRun=All&fieldValidation=Strict"
RAY = ("RayCluster", "RayJob", "RayService")
WITH_TEMPLATES = (*RAY, "LeaderWorkerSet", "DisaggregatedSet")
"""Kinds whose controllers make pods of each template."""
RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")
"""Kinds whose templates become pods by TrainJobs."""
QUEUE = "kueue.x-k8s.io/queue-name"
COPIED = ("labels", "annotations", "finalizers")
"""What controllers copy of a template's metadata."""
OF_QUEUES = "queue-topology"
"""The rule of planning for topologies: also for those that Kueue accepts and places nowhere."""
LATER = re.compile(
    "the same groupName|its name and a hash are too long|resourceClaims of Training|spec.serveService"
    "|spec.roles.* whole number of 32 bits"
)
"""Refusals by KubeRay's own webhook, which is off by default, of pods with what their controllers add, of the Service that
KubeRay makes once applications run, and of numbers that the controller of DisaggregatedSets, which has no webhook, cannot read."""
TOO_LARGE = re.compile("status code 413|the server rejected our request due to an error")
"""An object that a controller makes is too large, of more pods than there is room for."""
NO_VERSION = "no version"
"""Planning says nothing of versions that it does not know: a later controller may serve them."""
NOT_SHOWN = re.compile("error looking up service account|FailedDeleteWorkerPod")
"""Planning does not say what is missing in a cluster whose objects it is not shown, such as a service account or a pod
that a RayCluster names for deletion."""
AT_ONCE = 8


@dataclass(frozen=True)
class Judgement:
    """What planning and the controllers say of an object."""

    seed: int
    document: Object
    words: str
    """Those of the refusal; empty if the object is accepted."""
    errors: tuple[tuple[str, str, str], ...]
    """Planning's refusals: rule, path and message."""
    verdict: Verdict
    doubts: int = 0
    """Its refusals that are warnings, next to fields whose effect it does not know."""
    crash: str = ""

    @property
    def is_wrong(self) -> bool:
        if self.crash:
            return True
        if self.words.startswith((operators.UNANSWERED, NO_VERSION)):
            return False
        if NOT_SHOWN.search(self.words):
            return False
        if TOO_LARGE.search(self.words):
            return self.verdict is Verdict.FITS
        if self.words:
            is_refused = self.verdict is Verdict.CANNOT_FIT and self.doubts
            return not self.errors and self.is_decided and not is_refused
        return any(
            rule != OF_QUEUES and not LATER.search(message) for rule, _, message in self.errors
        )

    @property
    def is_decided(self) -> bool:
        return self.verdict is not Verdict.UNDETERMINED

    @property
    def reason(self) -> str:
        """The refusal without what is of this object alone."""
        return _plain(self.words)

    def __str__(self) -> str:
        kind = f"{self.seed} {self.document['apiVersion']} {self.document['kind']}"
        if self.crash:
            return f"{kind} crashes planning: {self.crash}"
        if self.words:
            return f"{kind} is refused: {self.words[-600:]}"
        return f"{kind} is accepted, planning: {self.errors[0]}"


@cache
def surroundings() -> list[Object]:
    """What the objects find in the cluster."""
    return yaml.safe_load((edits.HERE / "surroundings.yaml").read_text())


@cache
def roomy() -> Object:
    """A node for everything, in one domain of each level."""
    labels = ROOMY["metadata"]["labels"] | {"cloud/block": "b", "cloud/rack": "r"}
    return ROOMY | {"metadata": ROOMY["metadata"] | {"labels": labels}}


@contextmanager
def running(folder: Path) -> Iterator[Rehearsal]:
    """A control plane with all controllers, for as long as the context lasts."""
    with control_plane.running(folder) as rehearsal:
        try:
            install(rehearsal)
            yield rehearsal
        finally:
            controllers.stop(rehearsal)


def install(rehearsal: Rehearsal) -> None:
    """Start all controllers, and create what the objects find in the cluster."""
    api = Api(Access(rehearsal.kubeconfig))
    kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for module in (definitions.POOLS, definitions.GATEWAYS):
        for file in definitions.files(module):
            api.create(kinds, yaml.load(file.read_text(), yaml.CSafeLoader))
    for controller in controllers.CONTROLLERS:
        controllers.start(rehearsal, toolchain.ensure(), controller, {})


async def prepare(server: Server, schema: Schema) -> None:
    """Create what the objects find in the cluster."""
    for document in surroundings():
        _, words = await server.create(schema, document)
        assert not words, words
    while not await server.has("/api/v1/namespaces/crew/serviceaccounts/default"):
        await asyncio.sleep(0.1)


async def judge(rehearsal: Rehearsal, seeds: Sequence[int]) -> list[Judgement]:
    """Ask and judge the objects of some seeds."""
    async with proof.connect(rehearsal) as server:
        schema = await server.schema()
        await prepare(server, schema)
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(seed: int) -> Judgement:
            async with turns:
                document = edits.case(schema, seed)
                words = await refused(server, schema, document, seed)
                return compared(seed, document, words)

        return await asyncio.gather(*map(one, seeds))


async def refused(server: Server, schema: Schema, document: Object, seed: int) -> str:
    """The words with which an object is refused; empty if it is accepted."""
    kind = document["apiVersion"], document["kind"]
    if kind not in schema.paths:
        return f"{NO_VERSION} {kind[0]} of {kind[1]}"
    answer, words = await server.create(schema, document, DRY_RUN)
    below = [*_pods(answer)] if answer else []
    if answer and document["kind"] in operators.KINDS:
        words, made = await operators.refused(server, schema, document, f"r{seed}")
        if kind[1] in RAY and not words and QUEUE in document["metadata"].get("labels", ()):
            # Kueue suspends it, and KubeRay makes no pods until it is admitted.
            words, _ = await operators.refused(server, schema, _unqueued(document), f"u{seed}")
        below += [job for job_set in made for job in proof.made(job_set)]
    for pod in below:
        words = words or await _refused_below(server, schema, pod)
    return operators.message(words)


def _unqueued(document: Object) -> Object:
    """An object without its queue."""
    labels = {key: value for key, value in document["metadata"]["labels"].items() if key != QUEUE}
    return document | {"metadata": document["metadata"] | {"labels": labels}}


async def _refused_below(server: Server, schema: Schema, document: Object) -> str:
    """The words with which an object of a controller is refused, or its pods."""
    answer, words = await server.create(schema, document, "?dryRun=All")
    for pod in proof.made(answer) if answer else ():
        words = words or await _refused_below(server, schema, pod)
    return operators.message(words)


def _pods(owner: Object) -> Iterable[Object]:
    """What controllers make of an object: pods of its templates, or Jobs with pods."""
    if owner["kind"] in RUNTIMES:
        return
    if owner["kind"] not in WITH_TEMPLATES:
        yield from proof.made(owner)
        return
    if owner["kind"] == "LeaderWorkerSet":
        pods = owner["spec"]["leaderWorkerTemplate"]
        for template in (pods["workerTemplate"], pods.get("leaderTemplate")):
            if template is not None:
                yield _stateful_set(owner, template)
    for template in _templates(owner.get("spec")):
        given = template.get("metadata") or {}
        metadata = {key: given[key] for key in COPIED if key in given} | {"name": "w-0"}
        metadata["namespace"] = owner["metadata"]["namespace"]
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _stateful_set(owner: Object, template: Object) -> Object:
    """What the controller of a LeaderWorkerSet makes: a StatefulSet of its leaders or workers."""
    pods = owner["spec"]["leaderWorkerTemplate"]
    metadata = (template.get("metadata") or {}) | {"labels": {"lws": "w"}}
    spec = {"serviceName": "w", "selector": {"matchLabels": {"lws": "w"}}}
    spec |= {"template": template | {"metadata": metadata}}
    spec |= {"volumeClaimTemplates": pods.get("volumeClaimTemplates") or []}
    named = {"name": "w", "namespace": owner["metadata"]["namespace"]}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": named, "spec": spec}


def _templates(value: Any) -> Iterator[Object]:
    """The templates of pods in a value; a group without replicas counts as if it had some."""
    if isinstance(value, list):
        for item in value:
            yield from _templates(item)
    elif isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and "containers" in value["spec"]:
            yield value
            return
        for below in value.values():
            yield from _templates(below)


def compared(seed: int, document: Object, words: str) -> Judgement:
    """Compare what planning says of an object with the words of a refusal."""
    name = document["metadata"].get("name")
    own = f"{document['kind']} {document['metadata'].get('namespace')}/{name}"
    try:
        verdicts = judge_documents([*surroundings(), roomy(), document])
    except Exception as error:
        return Judgement(seed, document, words, (), Verdict.FITS, crash=repr(error))
    errors: list[tuple[str, str, str]] = []
    doubts = 0
    for finding in verdicts.findings:
        if _is_refusing(finding.rule, finding.message):
            if finding.severity is Severity.ERROR:
                errors.append((finding.rule, finding.path, finding.message))
            else:
                doubts += 1
    said = [judged.verdict for judged in verdicts.workloads if str(judged.workload) == own]
    return Judgement(seed, document, words, tuple(errors), (said or [verdicts.stack])[0], doubts)


def _is_refusing(rule: str, message: str) -> bool:
    return rule in REFUSING or message.startswith("Kueue refuses")


def _plain(text: str) -> str:
    """A text without names, numbers and values."""
    text = text.partition(" is invalid: ")[2] or text
    text = re.sub(r"\[\w+\]", "[]", text)
    text = re.sub(r'"[^"]*"', "_", text)
    return re.sub(r"(: Invalid value: )\S+:", r"\1_:", re.sub(r"\d+|x{9,}|a{9,}", "_", text))[:160]


def report(found: Iterable[Judgement]) -> str:
    """Figures by kind, and the reasons of the refusals."""
    counts: dict[str, Counter[str]] = {}
    reasons = Counter[str]()
    for judgement in found:
        word = "refused" if judgement.words else "accepted"
        for name in (judgement.document["kind"], "all"):
            row = counts.setdefault(name, Counter())
            row.update(["objects", word])
            row["undetermined"] += not judgement.is_decided
            row["wrong"] += judgement.is_wrong
        if judgement.words:
            reasons[judgement.reason] += 1
    columns = ("objects", "accepted", "refused", "undetermined", "wrong")
    lines = [f"| kind | {' | '.join(columns)} |", "|-|" + "-:|" * len(columns)]
    for name in sorted(counts, key=lambda name: (name == "all", name)):
        lines.append(f"| {name} | {' | '.join(f'{counts[name][key]:,}' for key in columns)} |")
    lines += ["", "| refused with | times |", "|-|-:|"]
    lines += [f"| {_cell(reason)} | {times:,} |" for reason, times in reasons.most_common(60)]
    return "\n".join(lines)


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
