"""Names of objects that do not exist, with the nearest name of one that does."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
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
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning.api_server.fields import NAMESPACED_KINDS
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.field_catalog import Makes
from ml_foundations.planning.model.decisions import together
from ml_foundations.planning.model.declared import full_name, kind_and_name, named_values, of_kind
from ml_foundations.planning.model.workloads import Workload, claim_templates, is_stored
from ml_foundations.planning.rules.findings import Finding, error, warning
from ml_foundations.planning.verdict.verdicts import Verdicts, WorkloadVerdict, verdict_of

_OF_KUBERNETES = ("kube-system", "kube-public", "kube-node-lease")
_SYSTEM = (*_OF_KUBERNETES, "gke-managed-*", "gke-gmp-system", "gmp-*")
"""The namespaces that GKE makes and fills (GKE, "Managed Service for Prometheus", for gmp-)."""
_IN_DUMPS = ("default", "kube-system")
"""The stored Namespaces that show that a cluster's are all there."""
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
    field: str
    """The last key of the path, which may have dots itself."""
    kind: str
    namespace: Any
    """The namespace of the object; empty for a kind that has none."""
    name: Any
    is_needed: bool = True


class _Field(NamedTuple):
    """A row of references.csv: where a kind names an object of another kind."""

    keys: Sequence[str]
    kind: str
    is_needed: bool


_FIELDS: defaultdict[str, list[_Field]] = defaultdict(list)
"""The rows by the kind that names, or "pod" for the spec of pods."""
for _row in rows("references.csv", "ml_foundations.planning.verdict"):
    _keys = _row["path"].split(".")
    _FIELDS[_row["of"]].append(_Field(_keys, _row["kind"], is_needed=_row["needed"] == "yes"))


def with_references(
    verdicts: Verdicts,
    objects: Sequence[Manifest],
    declared: "DeclaredObjects",
    *,
    in_own_cluster: bool,
    in_manifests: bool,
    accepted: Collection[str],
) -> Verdicts:
    """Return the verdicts with the findings of the rules ``reference`` and ``secret``.

    In a program's own cluster, a name that does not exist is an error, unless something may create
    the object. In manifests, so is the name of a Namespace if they have all Namespaces of a
    cluster. Otherwise, it is a warning.

    Args:
        verdicts: The verdicts without them.
        objects: The Kubernetes objects that are declared.
        declared: The names of these objects.
        in_own_cluster: Whether the program makes the cluster and shows all that is in it: then
            objects of all kinds are looked up. Otherwise, only Namespaces are, if any is declared
            that not every cluster has.
        in_manifests: Whether manifests are judged.
        accepted: The rules whose errors the user accepts.
    """
    shown = of_kind(objects, "Namespace")
    is_dump = {str(name_of(item)) for item in shown if is_stored(item)}.issuperset(_IN_DUMPS)
    names = [str(name_of(item)) for item in shown]
    shows_some = not all(_matches(name, _EVERYWHERE["Namespace"]) for name in names)
    if not (in_own_cluster or shows_some or is_dump):
        return verdicts
    is_complete = in_own_cluster or (in_manifests and is_dump)

    def findings_on(about: str, references: Iterable[_Reference]) -> list[Finding]:
        looked_up = [item for item in references if in_own_cluster or item.kind == "Namespace"]
        undeclared = list(filter(declared.lacks, looked_up))
        # Without its namespace, nothing in it can exist: these references follow from that.
        if any(reference.kind == "Namespace" for reference in undeclared):
            undeclared = [reference for reference in undeclared if not reference.namespace]
        return [declared.finding(about, item, is_complete=is_complete) for item in undeclared]

    workloads: list[WorkloadVerdict] = []
    of_workloads: list[Finding] = []
    judged: set[str] = set()
    for item in verdicts.workloads:
        about = str(item.workload)
        findings = findings_on(about, _of_workload(item.workload))
        workloads.append(item.with_reasons(findings, accepted))
        of_workloads += findings
        judged.add(about)
    of_objects: list[Finding] = []
    for manifest in objects:
        about = full_name(manifest) if _namespace(manifest) else kind_and_name(manifest)
        if about not in judged and not is_stored(manifest):
            of_objects += findings_on(about, _of_object(manifest))
    verdict = verdict_of((*of_workloads, *of_objects), accepted)
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
        """The namespaces that Helm charts fill."""
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
            for template in claim_templates(manifest):
                claim = f"{name_of(template)}-{name}-*"
                self._names["PersistentVolumeClaim", namespace].add(claim)
        self._names["Namespace", ""].update(charts)
        self._made = _makeable(objects)

    def lacks(self, reference: _Reference) -> bool:
        """Return whether no object has the name, in a namespace that the program alone fills."""
        namespace = reference.namespace
        name = reference.name
        if not isinstance(namespace, str) or not isinstance(name, str):
            return False  # one of them is not known
        kind = reference.kind
        declared = (*self._names[kind, namespace], *_EVERYWHERE.get(kind, ()))
        return self.shows(namespace) and not _matches(name, declared)

    def shows(self, namespace: str) -> bool:
        """Return whether the program alone fills a namespace."""
        return namespace not in self._charts and not _matches(namespace, _SYSTEM)

    def finding(self, about: str, reference: _Reference, *, is_complete: bool) -> Finding:
        """Return the finding on a reference to an object that does not exist."""
        kind = reference.kind
        name = reference.name
        known = [item for item in self._names[kind, reference.namespace] if "*" not in item]
        elsewhere: list[str] = []
        for (declared_kind, namespace), declared_names in self._names.items():
            if declared_kind == kind and name in declared_names:
                elsewhere.append(namespace)
        where = f" in namespace {reference.namespace}" if reference.namespace else ""
        message = f"{reference.field} names the {kind} {name}, which is not declared{where}"
        declare = f"Declare the {kind} {name}{where}"
        if near := get_close_matches(name, sorted(known), n=1):
            message = f"{message} (did you mean {near[0]}?)"
            declare = f"Write {near[0]}, or declare the {kind} {name}{where}"
        elif elsewhere:
            message = f"{message}: namespace {min(elsewhere)} has one"
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


def _matches(name: str, patterns: Collection[str]) -> bool:
    """Return whether a name is one of some names, or matches one that has a ``*``."""
    return name in patterns or any("*" in item and fnmatchcase(name, item) for item in patterns)


def _makeable(objects: Iterable[Manifest]) -> set[str]:
    """Return the resources that some objects let somebody create; "*" means any.

    Makers are the controllers of kinds that planning does not know, such as an ExternalSecret's,
    agents with all rights, and agents with a Role that has the verb create.
    """
    resources: set[str] = set()
    for manifest in objects:
        facts = field_catalog.kind_of(str(manifest.get("apiVersion")), manifest["kind"])
        if facts.makes is Makes.ANYTHING or _gives_agents_all_rights(manifest):
            resources.add("*")
        if manifest["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in items(manifest, "rules"):
            if any(unknown_paths(rule)):
                resources.add("*")
            elif {"*", "create"}.intersection(texts(rule, "verbs")):
                resources.update(texts(rule, "resources"))
    return resources


def _gives_agents_all_rights(binding: Manifest) -> bool:
    """Return whether an object binds service accounts to a role with all rights."""
    if str(section(binding, "roleRef").get("name")) not in _ALL_RIGHTS:
        return False
    for subject in items(binding, "subjects"):
        # Users and groups of service accounts begin so (Kubernetes, "Using RBAC Authorization").
        is_agent = str(subject.get("name")).startswith(("system:serviceaccount", "system:authent"))
        if subject.get("kind") == "ServiceAccount" or is_agent:
            return True
    return False


def _namespace(manifest: Manifest) -> Any:
    return namespace_of(manifest) if manifest["kind"] in NAMESPACED_KINDS else ""


def _of_workload(workload: Workload) -> Iterator[_Reference]:
    """Yield what a workload and its pods name."""
    if is_stored(workload.manifest):
        return
    yield from _of_object(workload.manifest)
    if queue := workload.queue:
        holder = workload.manifest
        prefix = "metadata.labels."
        if labels.KUEUE_QUEUE not in labels_of(holder):  # the Jobs of a CronJob have the labels
            holder = section(holder, "spec", "jobTemplate")
            prefix = f"spec.jobTemplate.{prefix}"
        field = labels.KUEUE_QUEUE
        yield _Reference(f"{prefix}{field}", field, "LocalQueue", workload.namespace, queue)
        field = labels.KUEUE_PRIORITY
        if priority := labels_of(holder).get(field):
            yield _Reference(f"{prefix}{field}", field, "WorkloadPriorityClass", "", priority)
    for pods in workload.pods:
        # A Pod may mount the claims of its ephemeral volumes by their names, too.
        volumes = items(pods.spec, "volumes") if workload.kind == "Pod" else []
        ephemeral = [volume for volume in volumes if "ephemeral" in volume]
        made_claims = {f"{workload.name}-{volume.get('name')}" for volume in ephemeral}
        spec = section(pods.template, "spec")
        field = labels.COMPUTE_CLASS
        if name := section(spec, "nodeSelector").get(field):
            path = f"{pods.path}.nodeSelector.{field}"
            yield _Reference(path, field, "ComputeClass", "", name, is_needed=False)
        for reference in _named_in("pod", spec, pods.path, workload.namespace):
            if reference.kind != "PersistentVolumeClaim" or reference.name not in made_claims:
                yield reference


def _of_object(manifest: Manifest) -> Iterator[_Reference]:
    namespace = _namespace(manifest)
    if namespace:
        yield _Reference("metadata.namespace", "namespace", "Namespace", "", namespace)
    yield from _named_in(manifest["kind"], manifest, "", namespace)


def _named_in(of: str, tree: Manifest, at: str, namespace: str) -> Iterator[_Reference]:
    """Yield what the fields of references.csv name in an object, except what is optional."""
    for keys, kind, is_needed in _FIELDS.get(of, ()):
        for path, holder, name in named_values(tree, keys, at):
            if name and not holder.get("optional"):
                where = namespace if kind in NAMESPACED_KINDS else ""
                yield _Reference(path, keys[-1], kind, where, name, is_needed)
