"""Comparing: planning's verdict on a case, and what the replica's scheduler and API server did with it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ml_foundations.planning import Verdict, judge

from tests.differential.case import (
    GANG,
    MAX_NODES,
    PLACEHOLDER,
    WORKLOAD_KINDS,
    Case,
    Document,
    cluster_wide,
    pod_template,
)
from tests.differential.generator import GPU, HOSTNAME
from tests.differential.oracle import Outcome


@dataclass(frozen=True)
class Comparison:
    """One case, judged and tried.

    Attributes:
        rule: The rule that the generator meant to decide.
        kinds: The kinds of the workloads; more than one where they were judged together.
        verdict: What planning says.
        placed: Whether every pod that counts found its place.
        decided_by: The rules without which a case that cannot fit would fit.
    """

    rule: str
    kinds: tuple[str, ...]
    verdict: str
    placed: bool
    decided_by: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        return self.verdict == Verdict.UNDETERMINED or (self.verdict == Verdict.FITS) == self.placed


def compare(case: Case, outcomes: Sequence[Outcome]) -> Comparison:
    """Judge a case, and compare the verdict with the outcomes of its workloads, in the same order."""
    verdict = verdict_on(case.documents)
    placed = all(_is_placed(*pair) for pair in zip(case.workloads, outcomes, strict=True))
    kinds = tuple(sorted(workload["kind"] for workload in case.workloads))
    decided_by = deciding_rules(case) if verdict is Verdict.CANNOT_FIT else ()
    rule = "volumes" if case.rule.startswith("volume-") else case.rule
    return Comparison(rule, kinds, str(verdict), placed, decided_by)


def verdict_on(documents: tuple[Document, ...]) -> Verdict:
    """Planning's verdict: the workload's own where there is one, else that on the stack."""
    spaces = [document for document in documents if document["kind"] == "Namespace"]
    declared = {space["metadata"]["name"] for space in spaces}
    used = {document["metadata"].get("namespace") for document in documents} - declared - {None}
    made = [cluster_wide("v1", "Namespace", name) for name in sorted(used)]
    # The oracle makes the namespaces that a case uses, and gives nodes their host names as kubelets do.
    verdicts = judge([*map(_with_host_name, documents), *made])
    return verdicts.workloads[0].verdict if len(verdicts.workloads) == 1 else verdicts.stack


def _with_host_name(document: Document) -> Document:
    metadata = document["metadata"]
    if document["kind"] != "Node" or MAX_NODES in metadata.get("annotations", {}):
        return document
    labels = {HOSTNAME: metadata["name"], **metadata["labels"]}
    return {**document, "metadata": {**metadata, "labels": labels}}


def _is_placed(workload: Document, outcome: Outcome) -> bool:
    """A plain Job needs one pod at a time to make progress; every other workload needs all of its pods."""
    gang = workload["metadata"].get("annotations", {}).get(GANG) == "true"
    plain = workload["kind"] == "CronJob" or (workload["kind"] == "Job" and not gang)
    return outcome.scheduled >= (min(1, outcome.expected) if plain else outcome.expected)


# --- Which rule decides


def deciding_rules(case: Case) -> tuple[str, ...]:
    """The rules that a case which cannot fit would fit without, each taken away alone."""
    verdicts = {rule: verdict_on(without(rule, case.documents)) for rule in WITHOUT}
    return tuple(rule for rule in WITHOUT if verdicts[rule] is not Verdict.CANNOT_FIT)


def without(rule: str, documents: tuple[Document, ...]) -> tuple[Document, ...]:
    """The documents with nothing left for a rule to say."""
    changed = copy.deepcopy(documents)
    return tuple(document for document in changed if WITHOUT[rule](document))


def _nodes(change: Callable[[Document], Any]) -> Callable[[Document], bool]:
    """Change nodes, and keep every document."""

    def changed(document: Document) -> bool:
        if document["kind"] == "Node":
            change(document)
        return True

    return changed


def _pods(change: Callable[[Document], Any]) -> Callable[[Document], bool]:
    """Change the specs of pods, and keep every document."""

    def changed(document: Document) -> bool:
        if document["kind"] in WORKLOAD_KINDS:
            change(pod_template(document)["spec"])
        return True

    return changed


def _offering(*resources: str) -> Callable[[Document], bool]:
    """Nodes with plenty of some resources."""
    plenty = dict.fromkeys(resources, "1000Ti")
    return _nodes(lambda node: node["status"]["allocatable"].update(plenty))


def _nodes_without(key: str) -> Callable[[Document], bool]:
    return _nodes(lambda node: node["spec"].pop(key, None))


def _pods_without(key: str) -> Callable[[Document], bool]:
    return _pods(lambda spec: spec.pop(key, None))


def _without_affinity(kind: str) -> Callable[[Document], bool]:
    return _pods(lambda spec: spec.get("affinity", {}).pop(kind, None))


def _without_ports(spec: Document) -> None:
    for container in spec["containers"]:
        container.pop("ports", None)


def _no_overhead(document: Document) -> bool:
    if document["kind"] == "RuntimeClass":
        document.pop("overhead", None)
    return _pods_without("overhead")(document)


def _no(kind: str, *names: str) -> Callable[[Document], bool]:
    return lambda document: document["kind"] != kind or document["metadata"]["name"] not in names


WITHOUT: dict[str, Callable[[Document], bool]] = {
    "resources": _offering("cpu", "memory", "ephemeral-storage"),
    "gpus": _offering(GPU),
    "pod-count": _offering("pods"),
    "init-containers": _pods_without("initContainers"),
    "overhead": _no_overhead,
    "node-selector": _pods(lambda spec: spec.update(nodeSelector={"case": PLACEHOLDER})),
    "node-affinity": _without_affinity("nodeAffinity"),
    "taints": _nodes_without("taints"),
    "unschedulable": _nodes_without("unschedulable"),
    "topology-spread": _pods_without("topologySpreadConstraints"),
    "pod-anti-affinity": _without_affinity("podAntiAffinity"),
    "pod-affinity": _without_affinity("podAffinity"),
    "daemon-overhead": _no("DaemonSet", "agent"),
    "host-ports": _pods(_without_ports),
    "quota": _no("ResourceQuota", "team"),
    "object-quota": _no("ResourceQuota", "objects"),
    "limit-range": _no("LimitRange", "limits"),
    "default-requests": _no("LimitRange", "defaults"),
    "volumes": _pods_without("volumes"),
}
"""How to take each rule out of a document; whether to keep the document."""
