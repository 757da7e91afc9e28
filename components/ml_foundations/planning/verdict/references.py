"""Names of objects that do not exist, with the nearest name of one that does."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    labels_of,
    name_of,
    namespace_of,
    plural,
    section,
)
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, joined
from ml_foundations.planning.api_server.fields import NAMESPACED_KINDS
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.model.decisions import Verdict, together
from ml_foundations.planning.model.refusals import told
from ml_foundations.planning.model.workloads import Workload, is_stored
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.verdicts import Verdicts, WorkloadVerdict

_ROWS = list(rows("references.csv", "ml_foundations.planning.verdict"))
_SYSTEM = (
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "gke-managed-*",
    "gke-gmp-system",
    "gmp-*",
)
"""The namespaces that GKE makes and fills (GKE, "Managed Service for Prometheus", for gmp-)."""
_EVERYWHERE: Mapping[str, Sequence[str]] = {
    "ConfigMap": ("kube-root-ca.crt",),
    "Namespace": ("default", *_SYSTEM),
    "PriorityClass": ("system-*", "gmp-*"),
    "ServiceAccount": ("default",),
}
"""The objects that every cluster has."""
_ALL_RIGHTS = {"admin", "cluster-admin", "edit"}
"""The roles of every cluster that allow to create Secrets, claims and the like."""


class _Reference(NamedTuple):
    path: str
    kind: str
    namespace: Any
    """The namespace of the object; empty for a kind that has none."""
    name: Any
    is_needed: bool = True


def with_references(
    verdicts: Verdicts,
    objects: Sequence[Manifest],
    *,
    in_own_cluster: bool,
    in_manifests: bool = False,
    charts: Collection[str] = (),
    accepted: Collection[str] = (),
) -> Verdicts:
    """Return the verdicts with those on names of objects that do not exist: rules ``reference`` and ``secret``.

    Args:
        verdicts: The verdicts without them.
        objects: The Kubernetes objects that are declared.
        in_own_cluster: Whether the program makes the cluster and shows all that is in it.
        in_manifests: Whether manifests are judged: if they have Namespaces, they have all.
        charts: The namespaces of the program's Helm releases, whose objects are not shown.
        accepted: The rules whose errors the user accepts.
    """
    shows_namespaces = any(each["kind"] == "Namespace" for each in objects)
    if not in_own_cluster and not shows_namespaces:
        return verdicts
    there = _Objects(objects, charts)
    kinds = {"Namespace", *(("WorkloadPriorityClass", "LocalQueue") if in_own_cluster else ())}
    kinds |= {row["kind"] for row in _ROWS} if in_own_cluster else set()
    is_complete = in_own_cluster or in_manifests

    def found_in(about: str, references: Iterable[_Reference]) -> list[Finding]:
        missing = [each for each in references if each.kind in kinds and there.lacks(each)]
        of_namespace = [each for each in missing if each.kind == "Namespace"]
        return [
            there.finding(about, each, is_complete=is_complete) for each in of_namespace or missing
        ]

    found = [
        found_in(str(each.workload), _of_workload(each.workload)) for each in verdicts.workloads
    ]
    workloads = [_worse(*each, accepted) for each in zip(verdicts.workloads, found, strict=True)]
    judged = {str(each.workload) for each in verdicts.workloads}
    named = (
        (f"{each['kind']} {_full_name(each)}", each) for each in objects if not is_stored(each)
    )
    more = [
        f for about, each in named if about not in judged for f in found_in(about, _of_object(each))
    ]
    of_all = [finding for each in found for finding in each] + more
    stack = together([verdicts.stack, *(_verdict(each, accepted) for each in of_all)])
    return replace(
        verdicts, workloads=tuple(workloads), stack=stack, reasons=(*verdicts.reasons, *more)
    )


def _verdict(finding: Finding, accepted: Collection[str]) -> Verdict:
    if finding.rule in accepted:
        return Verdict.FITS
    return Verdict.CANNOT_FIT if finding.severity is Severity.ERROR else Verdict.UNDETERMINED


def _worse(
    item: WorkloadVerdict, found: Sequence[Finding], accepted: Collection[str]
) -> WorkloadVerdict:
    """Return the verdict on a workload with what is found of its references."""
    verdict = together([item.verdict, *(_verdict(each, accepted) for each in found)])
    return replace(item, verdict=verdict, reasons=(*item.reasons, *found))


class _Objects:
    """The objects that are declared, or that somebody who is declared makes."""

    def __init__(self, objects: Sequence[Manifest], charts: Collection[str]) -> None:
        self._charts = charts
        self._names: defaultdict[tuple[str, str], set[Any]] = defaultdict(set)
        self._unknown: set[str] = set()
        for each in objects:
            kind, namespace = each["kind"], _namespace(each)
            name: Any = name_of(each)
            if not isinstance(namespace, str) or not isinstance(name, str) or not name:
                self._unknown.add(kind)
                continue
            self._names[kind, namespace].add(name)
            if is_stored(each) and namespace:
                self._names["Namespace", ""].add(namespace)
            if kind == "StatefulSet":
                self._add_claims(each)
        self._names["Namespace", ""].update(charts)
        self._makers = [*_makers(objects)]

    def _add_claims(self, stateful_set: Manifest) -> None:
        for claim in filter(
            is_mapping, items(section(stateful_set, "spec"), "volumeClaimTemplates")
        ):
            pattern = f"{name_of(claim)}-{name_of(stateful_set)}-*"
            self._names["PersistentVolumeClaim", _namespace(stateful_set)].add(pattern)

    def lacks(self, reference: _Reference) -> bool:
        """Return whether no object has the name; of namespaces that others fill, that is not known."""
        _, kind, namespace, name, _ = reference
        if not isinstance(namespace, str) or not isinstance(name, str):
            return False
        if namespace in self._charts or _matches(namespace, _SYSTEM):
            return False
        return not _matches(name, (*self._names[kind, namespace], *_EVERYWHERE.get(kind, ())))

    def finding(self, about: str, reference: _Reference, *, is_complete: bool) -> Finding:
        """Return what to say of a reference to an object that is not there."""
        path, kind, namespace, name, is_needed = reference
        can_be_made = kind in self._unknown or any(
            "*" in made or plural(kind) in made for made in self._makers
        )
        is_certain = is_complete and is_needed and not can_be_made
        names = {each for each in self._names[kind, namespace] if "*" not in each}
        near = get_close_matches(name, sorted(names), n=1)
        elsewhere = sorted(
            of for (of_kind, of), known in self._names.items() if of_kind == kind and name in known
        )
        where = f" in namespace {namespace}" if namespace else ""
        hint = (
            f": did you mean {near[0]}?"
            if near
            else f": namespace {elsewhere[0]} has one"
            if elsewhere
            else ""
        )
        fix = f"Write {near[0]}, or declare" if near else "Declare"
        values = {
            "field": path.rpartition(".")[2],
            "kind": kind,
            "name": name,
            "where": where,
            "hint": hint,
            "fix": fix,
        }
        row = "missing-secret" if kind in ("Secret", "ConfigMap") else "missing-object"
        refusal = told(row, path, certain=is_certain, object=about, **values)
        return explain.finding(refusal, Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(
        name == pattern or ("*" in pattern and fnmatchcase(name, pattern)) for pattern in patterns
    )


def _makers(objects: Iterable[Manifest]) -> Iterator[set[str]]:
    """Yield the resources that somebody in the cluster may create, "*" for any: controllers, and who has a role for it.

    Example: an ExternalSecret has a controller that makes Secrets, and a Role with the verb create lets an agent do so.
    """
    for each in objects:
        _, reason = field_catalog.kind_of(str(each.get("apiVersion")), each["kind"])
        if reason in ("planning does not know this kind", "what it brings or changes is not shown"):
            yield {"*"}
        for rule in (
            filter(is_mapping, items(each, "rules"))
            if each["kind"] in ("Role", "ClusterRole")
            else ()
        ):
            if {"*", "create", str(UNKNOWN)}.intersection(map(str, items(rule, "verbs"))):
                yield {
                    "*" if resource is UNKNOWN else str(resource)
                    for resource in items(rule, "resources")
                }
        if str(section(each, "roleRef").get("name")) in _ALL_RIGHTS:
            subjects = (
                is_mapping(subject) and subject.get("kind") for subject in items(each, "subjects")
            )
            yield {"*"} if "ServiceAccount" in subjects else set()


def _namespace(manifest: Manifest) -> Any:
    return namespace_of(manifest) if manifest["kind"] in NAMESPACED_KINDS else ""


def _full_name(manifest: Manifest) -> str:
    return "/".join(filter(None, (str(_namespace(manifest)), str(name_of(manifest)))))


def _of_workload(workload: Workload) -> Iterator[_Reference]:
    """Yield what a workload and its pods name."""
    if is_stored(workload.manifest):
        return
    yield from _of_object(workload.manifest)
    if queue := workload.queue:
        yield _Reference(
            f"metadata.labels.{labels.KUEUE_QUEUE}", "LocalQueue", workload.namespace, queue
        )
        if rank := labels_of(workload.manifest).get(labels.KUEUE_PRIORITY):
            yield _Reference(
                f"metadata.labels.{labels.KUEUE_PRIORITY}", "WorkloadPriorityClass", "", rank
            )
    for pods in workload.pods:
        own = {
            f"{workload.name}-{volume.get('name')}"
            for volume in items(pods.spec, "volumes")
            if "ephemeral" in volume
        }
        for each in _named_in("pod", section(pods.template, "spec"), pods.path, workload.namespace):
            if each.name not in own:
                yield each


def _of_object(manifest: Manifest) -> Iterator[_Reference]:
    namespace = _namespace(manifest)
    if namespace:
        yield _Reference("metadata.namespace", "Namespace", "", namespace)
    yield from _named_in(manifest["kind"], manifest, "", namespace)


def _named_in(of: str, tree: Manifest, at: str, namespace: str) -> Iterator[_Reference]:
    """Yield the names of the table in a tree, but those that may be missing (``optional``)."""
    for keys, kind, is_needed in _paths(of):
        for path, holder, name in _values(tree, keys, at):
            if name and not holder.get("optional"):
                yield _Reference(
                    path, kind, namespace if kind in NAMESPACED_KINDS else "", name, is_needed
                )


@cache
def _paths(of: str) -> list[tuple[tuple[str, ...], str, bool]]:
    found = (row for row in _ROWS if row["of"] == of)
    return [(tuple(row["path"].split(".")), row["kind"], row["needed"] == "yes") for row in found]


def _values(tree: Manifest, keys: Sequence[str], at: str) -> Iterator[tuple[str, Manifest, Any]]:
    """Yield the values below some keys, with their paths and what holds them; "key[]" is each item of a list."""
    key, rest = keys[0].removesuffix("[]"), keys[1:]
    path = joined(at, key) if at else key
    if keys[0] != key:
        for index, item in enumerate(items(tree, key)):
            if is_mapping(item):
                yield from _values(item, rest, f"{path}[{index}]")
    elif not rest:
        yield path, tree, tree.get(key)
    elif below := section(tree, key):
        yield from _values(below, rest, path)
