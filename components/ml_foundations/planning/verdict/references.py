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
    texts,
)
from ml_foundations.kubernetes.trees import is_mapping, unknown_paths
from ml_foundations.planning.api_server.fields import NAMESPACED_KINDS
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.field_catalog import Makes
from ml_foundations.planning.model.decisions import together
from ml_foundations.planning.model.declared import full_name, kind_and_name, named_values, of_kind
from ml_foundations.planning.model.workloads import Workload, claim_templates, is_stored
from ml_foundations.planning.rules.findings import Finding, error, warning
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


class _Reference(NamedTuple):
    """A field of an object that names a second object."""

    path: str
    kind: str
    namespace: Any
    """The namespace of the object; empty for a kind that has none."""
    name: Any
    is_needed: bool = True


def with_references(
    verdicts: Verdicts,
    objects: Sequence[Manifest],
    declared: "DeclaredObjects",
    *,
    in_own_cluster: bool,
    in_manifests: bool = False,
    accepted: Collection[str] = (),
) -> Verdicts:
    """Return the verdicts with the findings of the rules ``reference`` and ``secret``.

    Args:
        verdicts: The verdicts without them.
        objects: The Kubernetes objects that are declared.
        declared: The names of these objects.
        in_own_cluster: Whether the program makes the cluster and shows all that is in it.
        in_manifests: Whether manifests are judged: if they have Namespaces, they have all.
        accepted: The rules whose errors the user accepts.
    """
    if not in_own_cluster and not of_kind(objects, "Namespace"):
        return verdicts
    is_complete = in_own_cluster or in_manifests

    def missing(about: str, references: Iterable[_Reference]) -> list[Finding]:
        lacking: list[_Reference] = []
        for reference in references:
            # In a cluster that exists, only namespaces are known to be all declared.
            if (in_own_cluster or reference.kind == "Namespace") and declared.lacks(reference):
                lacking.append(reference)
        # Without its namespace, nothing in it can exist: the others follow from that.
        namespaces = [reference for reference in lacking if reference.kind == "Namespace"]
        reported = namespaces or lacking
        return [declared.finding(about, lack, is_complete=is_complete) for lack in reported]

    workloads: list[WorkloadVerdict] = []
    findings: list[Finding] = []
    judged: set[str] = set()
    for judged_workload in verdicts.workloads:
        about = str(judged_workload.workload)
        judged.add(about)
        of_workload = missing(about, _of_workload(judged_workload.workload))
        workloads.append(judged_workload.with_reasons(of_workload, accepted))
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
        """The kinds of objects whose names are not known."""
        for manifest in objects:
            kind = manifest["kind"]
            namespace = _namespace(manifest)
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
        self._made = _makeable(objects)

    def lacks(self, reference: _Reference) -> bool:
        """Return whether no object has the name, of namespaces that the program alone fills."""
        kind = reference.kind
        namespace = reference.namespace
        name = reference.name
        if not isinstance(namespace, str) or not isinstance(name, str):
            return False
        declared = (*self._names[kind, namespace], *_EVERYWHERE.get(kind, ()))
        return self.shows(namespace) and not _matches(name, declared)

    def shows(self, namespace: str) -> bool:
        """Return whether the program alone fills a namespace."""
        return namespace not in self._charts and not _matches(namespace, _SYSTEM)

    def finding(self, about: str, reference: _Reference, *, is_complete: bool) -> Finding:
        """Return the finding on a reference to an object that does not exist."""
        kind = reference.kind
        name = reference.name
        known = [known for known in self._names[kind, reference.namespace] if "*" not in known]
        namespaces_with_it: list[str] = []
        for (declared_kind, namespace), declared_names in self._names.items():
            if declared_kind == kind and name in declared_names:
                namespaces_with_it.append(namespace)
        field = reference.path.rpartition(".")[2]
        where = f" in namespace {reference.namespace}" if reference.namespace else ""
        message = f"{field} names the {kind} {name}, which is not declared{where}"
        declare = f"Declare the {kind} {name}{where}"
        if near := get_close_matches(name, sorted(known), n=1):
            message = f"{message}: did you mean {near[0]}?"
            declare = f"Write {near[0]}, or declare the {kind} {name}{where}"
        elif namespaces_with_it:
            message = f"{message}: namespace {min(namespaces_with_it)} has one"
        rule = "reference"
        remedy = f"{declare}."
        if kind in ("Secret", "ConfigMap"):
            rule = "secret"
            accept = "If another system makes it, accept this rule."
            remedy = f"{declare}, or set optional: true. {accept}"
        # It is an error if all objects are shown, and none of them may create this one.
        is_certain = is_complete and reference.is_needed and not self.may_be_made(kind)
        return (error if is_certain else warning)(rule, about, reference.path, message, remedy)

    def may_be_made(self, kind: str) -> bool:
        """Return whether an object of a kind has an unknown name, or may be created by another."""
        return kind in self._unknown or not self._made.isdisjoint(("*", plural(kind)))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    for pattern in patterns:
        if name == pattern or ("*" in pattern and fnmatchcase(name, pattern)):
            return True
    return False


def _makeable(objects: Iterable[Manifest]) -> set[str]:
    """Return the resources that some objects let somebody create; "*" means any.

    Example: an ExternalSecret has a controller that makes Secrets, and a Role with the verb create
    lets an agent create its resources.
    """
    resources: set[str] = set()
    for manifest in objects:
        facts = field_catalog.kind_of(str(manifest.get("apiVersion")), manifest["kind"])
        subjects = items(manifest, "subjects")
        is_of_agent = any(subject.get("kind") == "ServiceAccount" for subject in subjects)
        has_all_rights = str(section(manifest, "roleRef").get("name")) in _ALL_RIGHTS
        if facts.makes is Makes.ANYTHING or (has_all_rights and is_of_agent):
            resources.add("*")
        is_role = manifest["kind"] in ("Role", "ClusterRole")
        for rule in items(manifest, "rules") if is_role else ():
            if any(unknown_paths(rule)):
                resources.add("*")
            elif {"*", "create"}.intersection(texts(rule, "verbs")):
                resources.update(texts(rule, "resources"))
    return resources


def _namespace(manifest: Manifest) -> Any:
    return namespace_of(manifest) if manifest["kind"] in NAMESPACED_KINDS else ""


def _of_workload(workload: Workload) -> Iterator[_Reference]:
    """Yield what a workload and its pods name."""
    if is_stored(workload.manifest):
        return
    yield from _of_object(workload.manifest)
    if queue := workload.queue:
        path = f"metadata.labels.{labels.KUEUE_QUEUE}"
        yield _Reference(path, "LocalQueue", workload.namespace, queue)
        if rank := labels_of(workload.manifest).get(labels.KUEUE_PRIORITY):
            path = f"metadata.labels.{labels.KUEUE_PRIORITY}"
            yield _Reference(path, "WorkloadPriorityClass", "", rank)
    for pods in workload.pods:
        # A pod may mount the claims of its ephemeral volumes by their names, too.
        made_claims: set[str] = set()
        for volume in items(pods.spec, "volumes"):
            if "ephemeral" in volume:
                made_claims.add(f"{workload.name}-{volume.get('name')}")
        spec = section(pods.template, "spec")
        if name := section(spec, "nodeSelector").get(labels.COMPUTE_CLASS):
            path = f"{pods.path}.nodeSelector.{labels.COMPUTE_CLASS}"
            yield _Reference(path, "ComputeClass", "", name, is_needed=False)
        for reference in _named_in("pod", spec, pods.path, workload.namespace):
            if reference.kind != "PersistentVolumeClaim" or reference.name not in made_claims:
                yield reference


def _of_object(manifest: Manifest) -> Iterator[_Reference]:
    namespace = _namespace(manifest)
    if namespace:
        yield _Reference("metadata.namespace", "Namespace", "", namespace)
    yield from _named_in(manifest["kind"], manifest, "", namespace)


def _named_in(of: str, tree: Manifest, at: str, namespace: str) -> Iterator[_Reference]:
    """Yield the names of the table in a tree, but those that may be missing (``optional``)."""
    for keys, kind, is_needed in _fields(of):
        for path, holder, name in named_values(tree, keys, at):
            if name and not holder.get("optional"):
                where = namespace if kind in NAMESPACED_KINDS else ""
                yield _Reference(path, kind, where, name, is_needed)


class _Field(NamedTuple):
    """A row of references.csv: where a kind names an object of another kind."""

    keys: tuple[str, ...]
    kind: str
    is_needed: bool


@cache
def _fields(of: str) -> list[_Field]:
    fields: list[_Field] = []
    for row in _ROWS:
        if row["of"] == of:
            keys = tuple(row["path"].split("."))
            fields.append(_Field(keys, row["kind"], is_needed=row["needed"] == "yes"))
    return fields
