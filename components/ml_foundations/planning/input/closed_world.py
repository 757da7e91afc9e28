"""A closed world: whatever planning does not know of the documents makes verdicts undetermined.

This is the step after reading: it sorts the documents into those that planning judges, those that
decide nothing about pods, and those that it does not know.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ml_foundations.catalog.kueue import mounted_configuration
from ml_foundations.catalog.removed_kinds import removal_of
from ml_foundations.kubernetes.labels import UNRESOLVED
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.admission_objects import AdmissionObjects
from ml_foundations.planning.input.field_catalog import Gap, Note
from ml_foundations.planning.input.made_nodes import made_nodes
from ml_foundations.planning.model import workloads
from ml_foundations.planning.model.owners import Key, is_made, object_key
from ml_foundations.planning.model.performance import IdentityMap
from ml_foundations.planning.model.refusals import Refusal, beyond_planning, doubt, invalid
from ml_foundations.planning.model.workloads import PodSet, Workload

_DESCRIBE = "describe the kind (docs/teach-the-proof-a-kind.md)"
_REMEDY = "Leave it out to have the rest judged, or check it by a rehearsal."
_JUDGED_HARMLESS_KINDS = frozenset(
    {
        *("AdmissionCheck", "APIService", "AutoscalingMetric", "CheckpointConfiguration"),
        *("Cohort", "Configuration", "NetworkPolicy", "ProvisioningRequestConfig"),
        *("ResourceSlice", "ServiceAccount", "Topology", "WorkloadPriorityClass"),
    }
)
"""Harmless kinds that planning reads: by their names, or because they request nodes or devices."""


class ClassifiedDocuments:
    """Documents by what planning knows of them.

    Attributes:
        judged: Those of the kinds that planning judges, or judges by, without unknown values.
        harmless: Those of the kinds that decide nothing about pods.
        foreign: Workloads of unknown kinds that have a pod template. They count as one pod.
        unknown: Refusals for the other objects of kinds that planning does not know.
        undescribed: All objects of kinds that planning does not know.
        malformed: Workloads with values of the wrong type, such as a word for a number.
        refused: Refusals for other objects of that sort.
        made_nodes: The nodes that objects have made for pods that wait.
        admission: Webhooks, policies and definitions, which may reject or change what they match.
    """

    def __init__(self, documents: Iterable[Manifest]) -> None:
        """Classify documents. An object without a name gets one.

        If documents declare an object twice and differ, one of them is classified, and every
        verdict is undetermined.
        """
        self.judged: list[Manifest] = []
        self.harmless: list[Manifest] = []
        self.foreign: list[Workload] = []
        self.unknown: list[Refusal] = []
        self.undescribed: list[Manifest] = []
        self.malformed: list[tuple[Workload, list[Refusal]]] = []
        self.refused: list[Refusal] = []
        self._admission: list[Manifest] = []
        self._shown: set[Key] = set()
        """The objects by kind, namespace and name."""
        self._declared = IdentityMap[Manifest, Manifest]()
        self._notes = IdentityMap[Manifest, list[Note]]()
        self._about_claims: list[Refusal] = []
        self._in_namespace = defaultdict[str, list[Refusal]](list)
        self._has_namespaced = False
        unique, self._everywhere = _without_duplicates(_with_names(documents))
        self.made_nodes = [*made_nodes(unique)]
        self._shown.update(map(object_key, unique))
        for document in unique:
            self._add(document)
        self.admission = AdmissionObjects(self.judged, self._admission)
        # A webhook or a policy may reject harmless objects, too.
        harmless = self.harmless if self._admission else []
        for document in itertools.filterfalse(workloads.is_stored, harmless):
            kind = document["kind"]
            name = name_of(document)
            as_workload = Workload(kind, namespace_of(document), name, document, ())
            for matching in self.admission.matching(as_workload):
                self.unknown.append(_unknown_admission(matching, f"may refuse {kind} {name}"))

    def as_declared(self, document: Manifest) -> Manifest:
        """Return a judged document with the unknown values that it was declared with."""
        return self._declared.get(document, document)

    def unknowns(self, workload: Workload) -> list[Refusal]:
        """Return what planning does not know of a workload, or of what decides about it.

        With a value instead of each of them, the workload may have any verdict.
        """
        changing = self.admission.matching(workload, "Mutating")
        in_namespace = self._in_namespace.get(workload.namespace, ())
        if all(map(_keeps_istio_out, workload.pods)):
            in_namespace = [note for note in in_namespace if not note.path.endswith(_BY_ISTIO)]
        return [
            *self._own_unknowns(workload),
            *in_namespace,
            *self._everywhere,
            *(self._about_claims if _has_claims(workload) else ()),
            *(_unknown_admission(document, "may refuse or change it") for document in changing),
        ]

    def possible_rejections(self, workload: Workload) -> list[Refusal]:
        """Return what may reject a workload and changes nothing."""
        validating = self.admission.matching(workload, "Validating")
        return [_unknown_admission(document, "may refuse it") for document in validating]

    def _own_unknowns(self, workload: Workload) -> Iterator[Refusal]:
        if workload in self.foreign:
            document = workload.manifest
            facts = field_catalog.kind_of(str(document.get("apiVersion")), document["kind"])
            yield _unknown_kind(document, facts.reason)
            return
        for note in self._notes.get(workload.manifest, []):
            if note.reason is not Gap.NOT_YET:  # admission reports those
                yield as_refusal(note)
        values = {
            "metadata": workload.manifest["metadata"],
            "metadata.labels": section(workload.manifest, "metadata").get("labels"),
            "metadata.namespace": workload.namespace if self._has_namespaced else None,
        }
        for path, value in values.items():
            if value is UNKNOWN:
                yield as_refusal(Note(path, Gap.NOT_YET, is_error=False))

    def _add(self, document: Manifest) -> None:
        kind = document["kind"]
        version = str(document.get("apiVersion"))
        if removal_of(version, kind) and not workloads.is_stored(document):
            self._add_removed(document)
            return
        category, reason, _ = field_catalog.kind_of(version, kind)
        if category in (field_catalog.HARMLESS, field_catalog.UNKNOWN_KIND):
            is_read = kind in _JUDGED_HARMLESS_KINDS
            notes = field_catalog.notes(document) if is_read else []
            notes = [note for note in notes if note.is_error]
            notes = notes or field_catalog.wrong_metadata(document)
        else:
            notes = field_catalog.notes(document)
        if any(note.is_error for note in notes):
            self._add_malformed(document, notes, category)
        elif category == field_catalog.HARMLESS:
            (self.judged if kind in _JUDGED_HARMLESS_KINDS else self.harmless).append(document)
            configuration = mounted_configuration(document)
            if configuration:
                self.judged.append(configuration)
            if unreadable := (configuration or document).get("unreadable"):
                self.unknown.append(doubt("unknown-field", "data", str(unreadable), _REMEDY))
        elif category == field_catalog.ADMISSION:
            self._admission.append(document)
        elif category == field_catalog.UNKNOWN_KIND:
            self._add_unknown(document, reason)
        elif category == field_catalog.WORKLOADS and not workloads.is_running(document):
            self.judged.append(document)
            self._notes[document] = notes
        else:
            self._add_judged(document, notes, category)

    def _add_removed(self, document: Manifest) -> None:
        """Add an object in a version that is no longer served: no workload is judged by it."""
        if document["kind"] not in workloads.workload_kinds():
            self.harmless.append(document)
            return
        name = name_of(document)
        workload = Workload(document["kind"], namespace_of(document), name, document, ())
        self.malformed.append((workload, [*removed(document)]))

    def _add_unknown(self, document: Manifest, reason: str) -> None:
        # What a known workload's controller has made, such as a Workload of Kueue, decides nothing.
        if is_made(document, self._shown):
            return
        self.undescribed.append(document)
        if document["kind"] == "ComputeDomain":
            self.judged.append(document)  # its controller makes templates that pods name
        # A template of a TrainJob is a part of what its runtime makes.
        why = annotations_of(document).get(UNRESOLVED)
        pods = () if why else tuple(_pod_templates(document, ""))
        if not pods:
            fix = "check it by a rehearsal" if why else _DESCRIBE
            self.unknown.append(_unknown_kind(document, str(why or reason), fix))
            return
        group = str(document.get("apiVersion")).rpartition("/")[0]
        kind = f"{document['kind']}.{group}".rstrip(".")
        self.foreign.append(
            Workload(kind, namespace_of(document), name_of(document), document, pods)
        )

    def _add_judged(self, document: Manifest, notes: list[Note], category: str) -> None:
        """Add an object that decides about workloads; its notes concern those."""
        # A pod that runs has its node, whatever its labels and annotations are.
        if document["kind"] == "Pod":
            notes = [note for note in notes if not note.path.startswith("metadata.")]
        if not notes and category == field_catalog.CLUSTER:
            self.judged.append(document)
            return
        metadata = document.get("metadata")
        if any(note.reason is Gap.NOT_YET for note in notes):
            known = _without_unknowns(document)
            known["metadata"] = {} if metadata is UNKNOWN else metadata
            self._declared[known] = document
            document = known
        namespace = namespace_of(document)
        if namespace is UNKNOWN:
            notes = [*notes, Note("metadata.namespace", Gap.NOT_YET, is_error=False)]
        self.judged.append(document)
        about = f"{document['kind']} {name_of(document)}"
        refusals = [as_refusal(note, about) for note in notes]
        if not workloads.is_stored(document):
            no_field = [note for note in notes if note.reason is Gap.NO_FIELD]
            self.unknown += [as_refusal(note, about) for note in no_field]
        # Notes make only those workloads undetermined that the object can concern.
        if category == field_catalog.NAMESPACED and UNKNOWN not in (metadata, namespace):
            self._has_namespaced = True
            self._in_namespace[namespace] += refusals
        elif document["kind"] == "Namespace":
            self._in_namespace[name_of(document)] += refusals
        elif document["kind"] in ("PersistentVolume", "PersistentVolumeClaim"):
            self._about_claims += refusals
        else:
            self._everywhere += refusals

    def _add_malformed(self, document: Manifest, notes: Iterable[Note], category: str) -> None:
        kind = document["kind"]
        fields = section(document, "metadata").items()
        metadata = {key: value for key, value in fields if isinstance(value, str)}
        bare = {"apiVersion": document["apiVersion"], "kind": kind, "metadata": metadata}
        is_workload = category == field_catalog.WORKLOADS
        about = "" if is_workload else f"{kind} {name_of(bare)}"
        refusals = [invalid(note.path, note.reason, about) for note in notes if note.is_error]
        if is_workload:
            workload = Workload(kind, namespace_of(bare), name_of(bare), bare, ())
            self.malformed.append((workload, refusals))
        else:
            self.refused += refusals


def _with_names(documents: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield the objects; one with a generateName gets a name like the API server's."""
    counts = Counter[str]()
    for document in map(field_catalog.as_stored, documents):
        metadata = section(document, "metadata")
        base = metadata.get("generateName")
        if isinstance(base, str) and base and not metadata.get("name"):
            counts[base] += 1
            # Five characters, after at most 58 (apiserver, pkg/storage/names).
            name = f"{base[:58]}{counts[base]:x>5}"
            document = {**document, "metadata": {**metadata, "name": name}}
        yield document


def _without_duplicates(documents: Iterable[Manifest]) -> tuple[list[Manifest], list[Refusal]]:
    """Return each object once, and refusals for those that are declared twice and differ.

    A declared object replaces a stored one of the same name.
    """
    conflicts: list[Refusal] = []
    unique: dict[tuple[Any, ...], Manifest] = {}
    for document in documents:
        group = str(document.get("apiVersion")).rpartition("/")[0]
        namespace: Any = namespace_of(document)
        name: Any = name_of(document)
        is_named = name and isinstance(name, str) and isinstance(namespace, str)
        # Objects without a known name differ, even if they are equal.
        key = (group, document["kind"], namespace, name) if is_named else (object(),)
        if key in unique and workloads.is_stored(document):
            continue
        if key in unique and unique[key] != document and not workloads.is_stored(unique[key]):
            about = f"{document['kind']} {namespace}/{name}"
            message = "it is declared twice, and the two differ"
            remedy = "Rename one of them, or leave it out."
            conflict = beyond_planning("metadata.name", message, remedy)
            conflicts.append(conflict._replace(object=about))
        unique[key] = document
    return [*unique.values()], conflicts


def as_refusal(note: Note, about: str = "") -> Refusal:
    """Return a note on a field that planning does not know as a refusal."""
    path = f"{about}.{note.path}".lstrip(".")
    return doubt("unknown-field", path, f"{path}: {note.reason}", _REMEDY)


def removed(document: Manifest, about: str = "") -> Iterator[Refusal]:
    """Yield the refusal of an object whose version Kubernetes no longer serves."""
    if gone := removal_of(str(document.get("apiVersion")), document["kind"]):
        message = f"the API server refuses it: {gone.what}"
        yield Refusal("invalid", "apiVersion", message, f"{gone.fix}.", object=about)


def _unknown_admission(document: Manifest, effect: str) -> Refusal:
    message = f"{document['kind']} {name_of(document)} {effect}"
    return doubt("unknown-admission", "kind", message, _REMEDY)


def _unknown_kind(document: Manifest, reason: str, fix: str = _DESCRIBE) -> Refusal:
    namespace = section(document, "metadata").get("namespace")
    name = name_of(document)
    kind = f"{document['kind']} ({document.get('apiVersion')})"
    full_name = f"{namespace}/{name}" if namespace and name else str(namespace or name)
    remedy = f"Its pods, if it creates any, are not counted: {fix}."
    if version := field_catalog.known_version(str(document.get("apiVersion")), document["kind"]):
        remedy = f"Write it as {version}, whose fields may differ."
    return doubt("unknown-kind", "kind", f"{kind} {full_name}: {reason}", remedy)


def _without_unknowns(tree: Any) -> Any:
    """Return a copy of a tree without its unknown values."""
    if isinstance(tree, Mapping):
        fields = cast("Manifest", tree).items()
        return {key: _without_unknowns(value) for key, value in fields if value is not UNKNOWN}
    if isinstance(tree, list):
        values = cast("list[Any]", tree)
        return [_without_unknowns(value) for value in values if value is not UNKNOWN]
    return tree


_BY_ISTIO = ("labels.istio-injection", "labels.istio.io/rev")
"""The labels of a namespace by which Istio adds its proxy to pods."""


def _keeps_istio_out(pods: PodSet) -> bool:
    """Return whether Istio adds nothing to pods (istio pkg/kube/inject, injectRequired)."""
    chosen = {**annotations_of(pods.template), **labels_of(pods.template)}
    is_on_host = section(pods.template, "spec").get("hostNetwork") is True
    return is_on_host or chosen.get("sidecar.istio.io/inject") == "false"


def _has_claims(workload: Workload) -> bool:
    """Return whether its pods mount claims, as far as their volumes are known."""
    volumes = (volume for pods in workload.pods for volume in items(pods.spec, "volumes"))
    kinds = {"persistentVolumeClaim", "ephemeral"}
    return bool(workload.claims) or any(kinds & {*volume} for volume in filter(is_mapping, volumes))


def _pod_templates(tree: Any, path: str) -> Iterator[PodSet]:
    """Yield the pod templates in an object of an unknown kind, each as one pod."""
    if isinstance(tree, list):
        for index, item in enumerate(cast("list[Any]", tree)):
            yield from _pod_templates(item, f"{path}[{index}]")
    elif isinstance(tree, Mapping):
        holder = cast("Manifest", tree)
        spec = holder.get("spec")
        notes = field_catalog.notes_of("core.v1.PodSpec", spec)
        if not any(note.is_error or note.reason is Gap.NOT_YET for note in notes):
            fields = workloads.read_fields(cast("Manifest", spec))
            if not any(unknown_paths(fields)):
                spec_path = f"{path}.spec".lstrip(".")
                yield PodSet(holder, fields, labels_of(holder), 1, spec_path, path)
            return
        for key, item in holder.items():
            yield from _pod_templates(item, f"{path}.{key}".lstrip("."))
