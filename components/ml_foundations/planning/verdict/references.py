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
    name_of,
    namespace_of,
    plural,
    section,
    texts,
)
from ml_foundations.kubernetes.trees import is_mapping, joined, unknown_paths
from ml_foundations.planning.api_server.fields import NAMESPACED_KINDS
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.model.decisions import together
from ml_foundations.planning.model.declared import full_name, kind_and_name, of_kind
from ml_foundations.planning.model.workloads import Workload, claim_templates, is_stored
from ml_foundations.planning.verdict.findings import Finding, error, warning
from ml_foundations.planning.verdict.verdicts import Verdicts, WorkloadVerdict, verdict_of

_ROWS = list(rows("references.csv", "ml_foundations.planning.verdict"))
_OF_KUBERNETES = ("kube-system", "kube-public", "kube-node-lease")
_SYSTEM = (*_OF_KUBERNETES, "gke-managed-*", "gke-gmp-system", "gmp-*")
"""The namespaces that GKE makes and fills (GKE, "Managed Service for Prometheus", for gmp-)."""
_EVERYWHERE: Mapping[str, Sequence[str]] = {
    "ComputeClass": ("Accelerator", "Balanced", "Performance", "Scale-Out", "autopilot*", "gke*"),
    "ConfigMap": ("kube-root-ca.crt",),
    "Namespace": ("default", *_SYSTEM),
    "PriorityClass": ("system-*", "gmp-*"),
    "ServiceAccount": ("default",),
}
"""The objects that every cluster has."""
_ALL_RIGHTS = {"admin", "cluster-admin", "edit"}
"""The roles of every cluster that allow to create Secrets, claims and the like."""


_MAKES_ANYTHING = ("planning does not know this kind", "what it installs or changes is not shown")
"""The notes of the field catalog on kinds whose controllers may create any object."""


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
    """Return the verdicts with the findings of the rules ``reference`` and ``secret``.

    Args:
        verdicts: The verdicts without them.
        objects: The Kubernetes objects that are declared.
        in_own_cluster: Whether the program makes the cluster and shows all that is in it.
        in_manifests: Whether manifests are judged: if they have Namespaces, they have all.
        charts: The namespaces of the program's Helm releases, whose objects are not shown.
        accepted: The rules whose errors the user accepts.
    """
    if not in_own_cluster and not of_kind(objects, "Namespace"):
        return verdicts
    declared = DeclaredObjects(objects, charts)
    kinds = {"Namespace"}
    if in_own_cluster:
        kinds |= {"ComputeClass", "LocalQueue", "WorkloadPriorityClass"}
        kinds |= {row["kind"] for row in _ROWS}
    is_complete = in_own_cluster or in_manifests

    def is_checked(reference: _Reference) -> bool:
        return reference.kind in kinds

    def missing(about: str, references: Iterable[_Reference]) -> list[Finding]:
        lacking = list(filter(declared.lacks, filter(is_checked, references)))
        # Without its namespace, nothing in it can exist: the others follow from that.
        namespaces = [reference for reference in lacking if reference.kind == "Namespace"]
        reported = namespaces or lacking
        return [declared.finding(about, item, is_complete=is_complete) for item in reported]

    workloads: list[WorkloadVerdict] = []
    findings: list[Finding] = []
    judged: set[str] = set()
    for item in verdicts.workloads:
        about = str(item.workload)
        judged.add(about)
        of_workload = missing(about, _of_workload(item.workload))
        workloads.append(item.with_reasons(of_workload, accepted))
        findings += of_workload
    of_objects: list[Finding] = []
    for manifest in objects:
        about = full_name(manifest) if _namespace(manifest) else kind_and_name(manifest)
        if about not in judged and not is_stored(manifest):
            of_objects += missing(about, _of_object(manifest))
    verdict = verdict_of((*findings, *of_objects), accepted)
    return replace(
        verdicts,
        workloads=tuple(workloads),
        stack=together([verdicts.stack, verdict]),
        reasons=(*verdicts.reasons, *of_objects),
    )


class DeclaredObjects:
    """The declared objects, and the kinds of objects that a declared one may create."""

    def __init__(self, objects: Sequence[Manifest], charts: Collection[str]) -> None:
        self._charts = charts
        self._names: defaultdict[tuple[str, str], set[Any]] = defaultdict(set)
        self._unknown: set[str] = set()
        for manifest in objects:
            kind, namespace = manifest["kind"], _namespace(manifest)
            name: Any = name_of(manifest)
            if not isinstance(namespace, str) or not isinstance(name, str) or not name:
                self._unknown.add(kind)
                continue
            self._names[kind, namespace].add(name)
            if is_stored(manifest) and namespace:
                self._names["Namespace", ""].add(namespace)
            for template in filter(is_mapping, claim_templates(manifest)):
                claims = self._names["PersistentVolumeClaim", namespace]
                claims.add(f"{name_of(template)}-{name}-*")
        self._names["Namespace", ""].update(charts)
        self._made = set[str]().union(*_makers(objects))
        """The resources that declared objects may create."""

    def lacks(self, reference: _Reference) -> bool:
        """Return whether no object has the name, of namespaces that the program alone fills."""
        _, kind, namespace, name, _ = reference
        if not isinstance(namespace, str) or not isinstance(name, str):
            return False
        if not self.shows(namespace):
            return False
        return not _matches(name, (*self._names[kind, namespace], *_EVERYWHERE.get(kind, ())))

    def shows(self, namespace: str) -> bool:
        """Return whether the program alone fills a namespace."""
        return namespace not in self._charts and not _matches(namespace, _SYSTEM)

    def finding(self, about: str, reference: _Reference, *, is_complete: bool) -> Finding:
        """Return the finding on a reference to an object that does not exist."""
        path, kind, namespace, name, is_needed = reference
        # It is an error if all objects are shown, and none of them may create this one.
        is_certain = is_complete and is_needed and not self.may_be_made(kind)
        names = [known for known in self._names[kind, namespace] if "*" not in known]
        near = get_close_matches(name, sorted(names), n=1)
        having: list[str] = []
        for (known_kind, known_namespace), known_names in self._names.items():
            if known_kind == kind and name in known_names:
                having.append(known_namespace)
        where = f" in namespace {namespace}" if namespace else ""
        message = f"{path.rpartition('.')[2]} names the {kind} {name}, which is not declared{where}"
        if near:
            message += f": did you mean {near[0]}?"
        elif having:
            message += f": namespace {min(having)} has one"
        fix = f"Write {near[0]}, or declare" if near else "Declare"
        rule, remedy = "reference", f"{fix} the {kind} {name}{where}"
        if kind in ("Secret", "ConfigMap"):
            rule, made_elsewhere = "secret", "If another system makes it, accept this rule"
            remedy = f"{remedy}, or set optional: true. {made_elsewhere}"
        severe = error if is_certain else warning
        return severe(rule, about, path, message, f"{remedy}.")

    def may_be_made(self, kind: str) -> bool:
        """Return whether an object of a kind has an unknown name, or may be created by another."""
        return kind in self._unknown or not self._made.isdisjoint(("*", plural(kind)))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    for pattern in patterns:
        if name == pattern or ("*" in pattern and fnmatchcase(name, pattern)):
            return True
    return False


def _makers(objects: Iterable[Manifest]) -> Iterator[set[str]]:
    """Yield the resources that an object lets somebody create; "*" means any."""
    for manifest in objects:
        _, reason = field_catalog.kind_of(str(manifest.get("apiVersion")), manifest["kind"])
        if reason in _MAKES_ANYTHING:
            yield {"*"}
        if manifest["kind"] in ("Role", "ClusterRole"):
            for rule in items(manifest, "rules"):
                # Example: an ExternalSecret has a controller that makes Secrets, and a Role with
                # the verb create lets an agent create its resources.
                if any(unknown_paths(rule)):
                    yield {"*"}
                elif {"*", "create"}.intersection(texts(rule, "verbs")):
                    yield {*texts(rule, "resources")}
        if str(section(manifest, "roleRef").get("name")) in _ALL_RIGHTS:
            subjects = items(manifest, "subjects")
            if any(subject.get("kind") == "ServiceAccount" for subject in subjects):
                yield {"*"}


def _namespace(manifest: Manifest) -> Any:
    return namespace_of(manifest) if manifest["kind"] in NAMESPACED_KINDS else ""


def _of_workload(workload: Workload) -> Iterator[_Reference]:
    """Yield what a workload and its pods name."""
    if is_stored(workload.manifest):
        return
    yield from _of_object(workload.manifest)
    if queue := workload.queue:
        path = "metadata.labels."
        namespace = workload.namespace
        yield _Reference(path + labels.KUEUE_QUEUE, "LocalQueue", namespace, queue)
        own_labels = section(workload.manifest, "metadata", "labels")
        if rank := own_labels.get(labels.KUEUE_PRIORITY):
            yield _Reference(path + labels.KUEUE_PRIORITY, "WorkloadPriorityClass", "", rank)
    for pods in workload.pods:
        own_claims: set[str] = set()
        for volume in items(pods.spec, "volumes"):
            if "ephemeral" in volume:
                own_claims.add(f"{workload.name}-{volume.get('name')}")
        spec = section(pods.template, "spec")
        if name := section(spec, "nodeSelector").get(labels.COMPUTE_CLASS):
            path = f"{pods.path}.nodeSelector.{labels.COMPUTE_CLASS}"
            yield _Reference(path, "ComputeClass", "", name, is_needed=False)
        for reference in _named_in("pod", spec, pods.path, workload.namespace):
            if reference.name not in own_claims:
                yield reference


def _of_object(manifest: Manifest) -> Iterator[_Reference]:
    namespace = _namespace(manifest)
    if namespace:
        yield _Reference("metadata.namespace", "Namespace", "", namespace)
    yield from _named_in(manifest["kind"], manifest, "", namespace)


def _named_in(of: str, tree: Manifest, at: str, namespace: str) -> Iterator[_Reference]:
    """Yield the names of the table in a tree, but those that may be missing (``optional``)."""
    for keys, kind, is_needed in _paths(of):
        for path, holder, name in named_values(tree, keys, at):
            if name and not holder.get("optional"):
                where = namespace if kind in NAMESPACED_KINDS else ""
                yield _Reference(path, kind, where, name, is_needed)


@cache
def _paths(of: str) -> list[tuple[tuple[str, ...], str, bool]]:
    paths: list[tuple[tuple[str, ...], str, bool]] = []
    for row in _ROWS:
        if row["of"] == of:
            paths.append((tuple(row["path"].split(".")), row["kind"], row["needed"] == "yes"))
    return paths


def named_values(
    tree: Manifest, keys: Sequence[str], at: str
) -> Iterator[tuple[str, Manifest, Any]]:
    """Yield the values below some keys, with their paths and what holds them."""
    key, rest = keys[0].removesuffix("[]"), keys[1:]
    path = joined(at, key) if at else key
    # "key[]" means each item of a list.
    if keys[0] != key:
        for index, item in enumerate(items(tree, key)):
            if is_mapping(item):
                yield from named_values(item, rest, f"{path}[{index}]")
    elif not rest:
        yield path, tree, tree.get(key)
    elif below := section(tree, key):
        yield from named_values(below, rest, path)
