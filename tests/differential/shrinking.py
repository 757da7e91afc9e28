"""Shrinking: from a case on which planning and the replica disagree to a small one on which they still do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any

from tests.differential.case import MAX_NODES, WORKLOAD_KINDS, Case, Document, pod_template

COUNTS = ("replicas", "parallelism", "completions")
MOST_CANDIDATES = 150
"""How many smaller cases one control plane tries at a time."""


def shrink(case: Case, failing: Callable[[Sequence[Case]], Sequence[bool]]) -> Case:
    """The smallest case that can be reached by leaving things out one by one while it still fails.

    Args:
        case: A case that fails.
        failing: Tells for each of some cases whether it fails; they are tried all at once, since each try costs a batch.
    """
    while True:
        candidates = list(_smaller(case))[:MOST_CANDIDATES]
        failed = [*compress(candidates, failing(candidates))]
        if not failed:
            return case
        case = min(failed, key=lambda candidate: len(str(candidate)))


def _smaller(case: Case) -> Iterable[Case]:
    """Cases with one thing less."""
    for index, document in enumerate(case.documents):
        if len(case.workloads) > 1 or document["kind"] not in WORKLOAD_KINDS:
            yield Case(case.rule, case.documents[:index] + case.documents[index + 1 :])
        for changed in _smaller_documents(document):
            yield Case(case.rule, (*case.documents[:index], changed, *case.documents[index + 1 :]))


def _smaller_documents(document: Document) -> Iterable[Document]:
    if document["kind"] == "Node":
        yield from _with_less(document, ["spec"])
        yield from _with_less(document, ["metadata", "labels"], keep=("case",))
        if MAX_NODES in document["metadata"].get("annotations", {}):
            changed = copy.deepcopy(document)
            del changed["metadata"]["annotations"]
            yield changed
    elif document["kind"] in WORKLOAD_KINDS:
        for key in COUNTS:
            if document["spec"].get(key, 0) > 1:
                changed = copy.deepcopy(document)
                changed["spec"][key] -= 1
                yield changed
        yield from _smaller_pods(document)
    elif document["kind"] == "ResourceQuota":
        yield from _with_less(document, ["spec", "hard"])
        yield from _with_less(document, ["spec"], keep=("hard",))


def _smaller_pods(document: Document) -> Iterable[Document]:
    template = pod_template(document)
    kept = ("containers", "restartPolicy", "nodeSelector")
    for spec in _with_less(template["spec"], [], keep=kept):
        changed = copy.deepcopy(document)
        pod_template(changed)["spec"] = spec
        yield changed


def _with_less(tree: Document, path: Sequence[str], keep: Sequence[str] = ()) -> Iterable[Document]:
    """Copies of a tree with one key or one list item less, anywhere below a path."""
    for place in _places(_at(tree, path), keep):
        changed = copy.deepcopy(tree)
        holder = _at(changed, [*path, *place[:-1]])
        del holder[place[-1]]
        yield changed


def _places(tree: Any, keep: Sequence[str] = ()) -> Iterable[list[Any]]:
    for key, value in _items(tree):
        if key in keep:
            continue
        yield [key]
        for rest in _places(value):
            if rest[-1] in _OPTIONAL or isinstance(rest[-1], int):
                yield [key, *rest]


def _items(tree: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(tree, dict):
        return tree.items()
    return enumerate(tree) if isinstance(tree, list) else ()


def _at(tree: Any, path: Iterable[Any]) -> Any:
    for key in path:
        tree = tree.get(key, {}) if isinstance(tree, dict) else tree[key]
    return tree


_OPTIONAL = frozenset(
    {
        *("annotations", "effect", "hostIP", "limits", "matchFields", "minDomains", "protocol"),
        *("nodeAffinity", "nodeAffinityPolicy", "nodeTaintsPolicy", "podAffinity"),
        *("podAntiAffinity", "tolerationSeconds"),
    }
)
"""Fields that an object is valid without."""
