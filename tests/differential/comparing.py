"""Comparing: planning's verdict on a case, and what the replica's scheduler and API server did with it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ml_foundations.planning import Verdict, judge

from tests.differential.case import (
    GANG,
    MAX_NODES,
    PLACEHOLDER,
    WORKLOAD_KINDS,
    Case,
    Document,
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
    declared = {
        document["metadata"]["name"] for document in documents if document["kind"] == "Namespace"
    }
    used = {document["metadata"].get("namespace") for document in documents} - declared - {None}
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in sorted(used)
    ]
    # The oracle makes the namespaces that a case uses, and gives nodes their host names as kubelets do.
    verdicts = judge([*map(_with_host_name, documents), *made])
    return verdicts.workloads[0].verdict if len(verdicts.workloads) == 1 else verdicts.stack


def _with_host_name(document: Document) -> Document:
    metadata = document["metadata"]
    if document["kind"] != "Node" or MAX_NODES in metadata.get("annotations", {}):
        return document
    return {
        **document,
        "metadata": {**metadata, "labels": {HOSTNAME: metadata["name"], **metadata["labels"]}},
    }


def _is_placed(workload: Document, outcome: Outcome) -> bool:
    """A plain Job needs one pod at a time to make progress; every other workload needs all of its pods."""
    gang = workload["metadata"].get("annotations", {}).get(GANG) == "true"
    plain = workload["kind"] == "CronJob" or (workload["kind"] == "Job" and not gang)
    return outcome.scheduled >= (min(1, outcome.expected) if plain else outcome.expected)


# --- Which rule decides


def deciding_rules(case: Case) -> tuple[str, ...]:
    """The rules that a case which cannot fit would fit without, each taken away alone."""
    return tuple(
        rule
        for rule in WITHOUT
        if verdict_on(without(rule, case.documents)) is not Verdict.CANNOT_FIT
    )


def without(rule: str, documents: tuple[Document, ...]) -> tuple[Document, ...]:
    """The documents with nothing left for a rule to say."""
    changed = copy.deepcopy(documents)
    return tuple(document for document in changed if WITHOUT[rule](document))


def _offering(*resources: str) -> Callable[[Document], bool]:
    """Nodes with plenty of some resources."""

    def change(document: Document) -> bool:
        if document["kind"] == "Node":
            document["status"]["allocatable"] |= dict.fromkeys(resources, "1000Ti")
        return True

    return change


def _nodes_without(key: str) -> Callable[[Document], bool]:
    def change(document: Document) -> bool:
        if document["kind"] == "Node":
            document["spec"].pop(key, None)
        return True

    return change


def _pods_without(*path: str) -> Callable[[Document], bool]:
    """Pods without a field of their spec."""

    def change(document: Document) -> bool:
        if document["kind"] in WORKLOAD_KINDS:
            spec = pod_template(document)["spec"]
            for key in path[:-1]:
                spec = spec.get(key, {})
            spec.pop(path[-1], None)
        return True

    return change


def _no_selector(document: Document) -> bool:
    if document["kind"] in WORKLOAD_KINDS:
        pod_template(document)["spec"]["nodeSelector"] = {"case": PLACEHOLDER}
    return True


def _no_ports(document: Document) -> bool:
    if document["kind"] in WORKLOAD_KINDS:
        for container in pod_template(document)["spec"]["containers"]:
            container.pop("ports", None)
    return True


def _no_overhead(document: Document) -> bool:
    if document["kind"] == "RuntimeClass":
        document.pop("overhead", None)
    return _pods_without("overhead")(document)


def _no(kind: str, *names: str) -> Callable[[Document], bool]:
    return lambda document: document["kind"] != kind or document["metadata"]["name"] not in names


def _no_agent(document: Document) -> bool:
    return document["kind"] != "DaemonSet" or document["metadata"]["name"] != "agent"


WITHOUT: dict[str, Callable[[Document], bool]] = {
    "resources": _offering("cpu", "memory", "ephemeral-storage"),
    "gpus": _offering(GPU),
    "pod-count": _offering("pods"),
    "init-containers": _pods_without("initContainers"),
    "overhead": _no_overhead,
    "node-selector": _no_selector,
    "node-affinity": _pods_without("affinity", "nodeAffinity"),
    "taints": _nodes_without("taints"),
    "unschedulable": _nodes_without("unschedulable"),
    "topology-spread": _pods_without("topologySpreadConstraints"),
    "pod-anti-affinity": _pods_without("affinity", "podAntiAffinity"),
    "pod-affinity": _pods_without("affinity", "podAffinity"),
    "daemon-overhead": _no_agent,
    "host-ports": _no_ports,
    "quota": _no("ResourceQuota", "team"),
    "object-quota": _no("ResourceQuota", "objects"),
    "limit-range": _no("LimitRange", "limits"),
    "default-requests": _no("LimitRange", "defaults"),
    "volumes": _pods_without("volumes"),
}
"""How to take each rule out of a document; whether to keep the document."""
