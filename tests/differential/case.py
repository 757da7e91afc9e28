"""A case: the documents that planning judges and that the replica runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

PLACEHOLDER = "case0"
"""Stands in every name and label that keeps a case apart from the others in the same control plane."""
WORKLOAD_KINDS = ("Pod", "Job", "CronJob", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
MAX_NODES = "ml-foundations/max-nodes"
GANG = "ml-foundations/gang"


@dataclass(frozen=True)
class Case:
    """Documents that carry the placeholder, and the rule that the generator meant to decide."""

    rule: str
    documents: tuple[Document, ...]

    @property
    def workloads(self) -> list[Document]:
        return [document for document in self.documents if document["kind"] in WORKLOAD_KINDS]

    def placed(self, identity: str) -> list[Document]:
        """The documents under an identity of their own: ``identity`` replaces the placeholder everywhere."""
        return json.loads(json.dumps(self.documents).replace(PLACEHOLDER, identity))

    def __str__(self) -> str:
        return yaml.safe_dump_all(self.documents, sort_keys=False)

    def alone(self, workload: Document) -> Case:
        """The same case with one workload and none of the others."""
        others = {id(other) for other in self.workloads if other is not workload}
        return Case(
            self.rule, tuple(document for document in self.documents if id(document) not in others)
        )

    def parts(self) -> list[Case]:
        """What is compared: each workload alone, and all of them together."""
        if len(self.workloads) < 2:
            return [self]
        return [*(self.alone(workload) for workload in self.workloads), self]


def cluster_wide(version: str, kind: str, name: str, **fields: Any) -> Document:
    """Return an object without a namespace."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def pod_template(workload: Document) -> Document:
    """The object whose ``metadata`` and ``spec`` are those of the workload's pods."""
    match workload["kind"]:
        case "Pod":
            return workload
        case "CronJob":
            return workload["spec"]["jobTemplate"]["spec"]["template"]
        case _:
            return workload["spec"]["template"]


def isolated(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Keep the nodes and the pods of a case to each other: the placeholder becomes a node label and a node selector."""
    result = [copy.deepcopy(document) for document in documents]
    for document in result:
        if document["kind"] == "Node":
            document["metadata"].setdefault("labels", {})["case"] = PLACEHOLDER
        elif document["kind"] in WORKLOAD_KINDS:
            pod_template(document)["spec"].setdefault("nodeSelector", {})["case"] = PLACEHOLDER
    return tuple(result)


def write(case: Case, path: Path, comment: str) -> None:
    """Write a case as a stream of YAML documents that ``python -m ml_foundations.planning`` reads as it is."""
    lines = [f"# rule: {case.rule}", *(f"# {line}" for line in comment.splitlines())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n---\n" + str(case))


def read(path: Path) -> Case:
    """Read a case that ``write`` wrote."""
    text = path.read_text()
    rule = text.partition("\n")[0].removeprefix("# rule: ")
    return Case(
        rule, tuple(document for document in yaml.load_all(text, yaml.CSafeLoader) if document)
    )
