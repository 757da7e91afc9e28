"""A closed world: whatever planning does not know of the documents makes verdicts undetermined.

``classify`` is the step after reading: it sorts the documents into those that planning judges,
those that decide nothing about pods, and those that it does not know.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ml_foundations.catalog.kueue import mounted_configuration
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.admission_objects import AdmissionObjects
from ml_foundations.planning.input.field_catalog import Note
from ml_foundations.planning.model.performance import IdentityMap
from ml_foundations.planning.model.refusals import Refusal, invalid
from ml_foundations.planning.model.workloads import (
    PodSet,
    Workload,
    is_running,
    is_stored,
    read_fields,
)

_REMEDY = "Leave it out to have the rest judged, or check it by a rehearsal."
_JUDGED_HARMLESS_KINDS = frozenset(
    {
        *("APIService", "AutoscalingMetric", "Configuration", "NetworkPolicy", "ResourceSlice"),
        *("ServiceAccount", "WorkloadPriorityClass"),
        *("AdmissionCheck", "ProvisioningRequestConfig", "Cohort"),
    }
)
"""Harmless kinds that planning reads: by their names, or because they request nodes or devices."""


@dataclass(frozen=True)
class ClassifiedDocuments:
    """Documents by what planning knows of them.

    Attributes:
        judged: Those of the kinds that planning judges, or judges by, without unknown values.
        harmless: Those of the kinds that decide nothing about pods.
        foreign: Workloads of unknown kinds that have a pod template. They count as one pod.
        unknown: Refusals for the other objects of kinds that planning does not know.
        malformed: Workloads with values of the wrong type, such as a word for a number.
        refused: Refusals for other objects of that sort.
        admission: Webhooks, policies and definitions, which may reject or change what they match.
    """

    judged: tuple[Manifest, ...]
    harmless: tuple[Manifest, ...]
    foreign: tuple[Workload, ...]
    unknown: tuple[Refusal, ...]
    malformed: tuple[tuple[Workload, list[Refusal]], ...]
    refused: tuple[Refusal, ...]
    admission: AdmissionObjects
    _declared: IdentityMap[Manifest, Manifest]
    _notes: IdentityMap[Manifest, list[Note]]
    _everywhere: tuple[Refusal, ...]
    _about_claims: tuple[Refusal, ...]
    _in_namespace: Mapping[str, list[Refusal]]
    _has_namespaced: bool

    def as_declared(self, document: Manifest) -> Manifest:
        """Return a judged document with the unknown values that it was declared with."""
        return self._declared.get(document, document)

    def unknowns(self, workload: Workload) -> list[Refusal]:
        """Return what planning does not know of a workload, or of what decides about it.

        With a value instead of each of them, the workload may have any verdict.
        """
        changing = self.admission.matching(workload, "Mutating", "CustomResource")
        return [
            *self._own_unknowns(workload),
            *self._in_namespace.get(workload.namespace, ()),
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
            yield _unknown_kind(workload.manifest)
            return
        for note in self._notes.get(workload.manifest, []):
            if note.reason != field_catalog.NOT_YET:  # admission reports those
                yield as_refusal(note)
        metadata = workload.manifest["metadata"]
        values = {
            "metadata": metadata,
            "metadata.labels": section(workload.manifest, "metadata").get("labels"),
            "metadata.namespace": workload.namespace if self._has_namespaced else None,
        }
        for path, value in values.items():
            if value is UNKNOWN:
                yield as_refusal(Note(path, field_catalog.NOT_YET, is_error=False))


def classify(documents: Iterable[Manifest]) -> ClassifiedDocuments:
    """Return documents by what planning knows of them.

    An object without a name gets one. If documents declare an object twice and differ, one of them
    is classified, and every verdict is undetermined.
    """
    unique, conflicts = _without_duplicates(_with_names(documents))
    classifier = _Classifier(everywhere=conflicts)
    for document in unique:
        classifier.add(document)
    return classifier.result()


@dataclass
class _Classifier:
    """The documents that are classified already; see ``ClassifiedDocuments``."""

    judged: list[Manifest] = field(default_factory=list[Manifest])
    harmless: list[Manifest] = field(default_factory=list[Manifest])
    admission: list[Manifest] = field(default_factory=list[Manifest])
    foreign: list[Workload] = field(default_factory=list[Workload])
    unknown: list[Refusal] = field(default_factory=list[Refusal])
    malformed: list[tuple[Workload, list[Refusal]]] = field(
        default_factory=list[tuple[Workload, list[Refusal]]]
    )
    refused: list[Refusal] = field(default_factory=list[Refusal])
    declared: IdentityMap[Manifest, Manifest] = field(
        default_factory=IdentityMap[Manifest, Manifest]
    )
    notes: IdentityMap[Manifest, list[Note]] = field(
        default_factory=IdentityMap[Manifest, list[Note]]
    )
    everywhere: list[Refusal] = field(default_factory=list[Refusal])
    about_claims: list[Refusal] = field(default_factory=list[Refusal])
    in_namespace: defaultdict[str, list[Refusal]] = field(default_factory=lambda: defaultdict(list))
    has_namespaced: bool = False

    def add(self, document: Manifest) -> None:
        """Classify a document."""
        kind = document["kind"]
        category, reason = field_catalog.kind_of(str(document.get("apiVersion")), kind)
        if category in (field_catalog.HARMLESS, field_catalog.UNKNOWN_KIND):
            notes = field_catalog.wrong_metadata(document)
        else:
            notes = field_catalog.notes(document)
        if any(note.is_error for note in notes):
            self._add_malformed(document, notes, category)
        elif category == field_catalog.HARMLESS:
            (self.judged if kind in _JUDGED_HARMLESS_KINDS else self.harmless).append(document)
            if configuration := mounted_configuration(document):
                self.judged.append(configuration)
        elif category == field_catalog.ADMISSION:
            self.admission.append(document)
        elif category == field_catalog.UNKNOWN_KIND:
            self._add_unknown(document, reason)
        elif category == field_catalog.WORKLOADS and not is_running(document):
            self.judged.append(document)
            self.notes[document] = notes
        else:
            self._add_judged(document, notes, category)

    def _add_unknown(self, document: Manifest, reason: str) -> None:
        pods = tuple(_pod_templates(document, ""))
        if not pods:
            self.unknown.append(_unknown_kind(document, reason))
            return
        group = str(document.get("apiVersion")).rpartition("/")[0]
        kind = f"{document['kind']}.{group}".rstrip(".")
        self.foreign.append(
            Workload(kind, namespace_of(document), name_of(document), document, pods)
        )

    def _add_judged(self, document: Manifest, notes: list[Note], category: str) -> None:
        """Add an object that decides about workloads; its notes concern those."""
        if not notes and category == field_catalog.CLUSTER:
            self.judged.append(document)
            return
        metadata = document.get("metadata")
        if any(note.reason == field_catalog.NOT_YET for note in notes):
            known = _without_unknowns(document)
            known["metadata"] = {} if metadata is UNKNOWN else metadata
            self.declared[known] = document
            document = known
        namespace = namespace_of(document)
        if namespace is UNKNOWN:
            notes = [*notes, Note("metadata.namespace", field_catalog.NOT_YET, is_error=False)]
        self.judged.append(document)
        about = f"{document['kind']} {name_of(document)}"
        refusals = [as_refusal(note, about) for note in notes]
        if not is_stored(document):
            no_field = [note for note in notes if note.reason == field_catalog.NO_FIELD]
            self.unknown += [as_refusal(note, about) for note in no_field]
        if category == field_catalog.NAMESPACED and UNKNOWN not in (metadata, namespace):
            self.has_namespaced = True
            self.in_namespace[namespace] += refusals
        elif document["kind"] == "Namespace":
            self.in_namespace[name_of(document)] += refusals
        elif document["kind"] in ("PersistentVolume", "PersistentVolumeClaim"):
            self.about_claims += refusals
        else:
            self.everywhere += refusals

    def _add_malformed(self, document: Manifest, notes: Iterable[Note], category: str) -> None:
        metadata: Manifest = {
            key: value
            for key, value in section(document, "metadata").items()
            if isinstance(value, str)
        }
        kind = document["kind"]
        bare = {"apiVersion": document["apiVersion"], "kind": kind, "metadata": metadata}
        is_workload = category == field_catalog.WORKLOADS
        about = "" if is_workload else f"{kind} {name_of(bare)}"
        refusals = [invalid(note.path, note.reason, about) for note in notes if note.is_error]
        if is_workload:
            workload = Workload(kind, namespace_of(bare), name_of(bare), bare, ())
            self.malformed.append((workload, refusals))
        else:
            self.refused += refusals

    def result(self) -> ClassifiedDocuments:
        """Return the classified documents, with the harmless ones that something may reject."""
        admission = AdmissionObjects.among(self.judged, self.admission)
        rejectable = self.harmless if self.admission else []
        for document in rejectable:
            if is_stored(document):
                continue
            kind, name = document["kind"], name_of(document)
            as_workload = Workload(kind, namespace_of(document), name, document, ())
            for matching in admission.matching(as_workload):
                self.unknown.append(_unknown_admission(matching, f"may refuse {kind} {name}"))
        return ClassifiedDocuments(
            judged=tuple(self.judged),
            harmless=tuple(self.harmless),
            foreign=tuple(self.foreign),
            unknown=tuple(self.unknown),
            malformed=tuple(self.malformed),
            refused=tuple(self.refused),
            admission=admission,
            _declared=self.declared,
            _notes=self.notes,
            _everywhere=tuple(self.everywhere),
            _about_claims=tuple(self.about_claims),
            _in_namespace=self.in_namespace,
            _has_namespaced=self.has_namespaced,
        )


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
        if key in unique and is_stored(document):
            continue
        if key in unique and unique[key] != document and not is_stored(unique[key]):
            about = (
                f"{document['kind']} {namespace}/{name}"
                if namespace
                else f"{document['kind']} {name}"
            )
            message = "it is declared twice, and the two differ"
            remedy = "Rename one of them, or leave it out."
            conflicts.append(
                Refusal(
                    "beyond-planning", "metadata.name", message, remedy, certain=False, object=about
                )
            )
        unique[key] = document
    return [*unique.values()], conflicts


def as_refusal(note: Note, about: str = "") -> Refusal:
    """Return a note on a field that planning does not know as a refusal."""
    path = f"{about}.{note.path}".lstrip(".")
    return Refusal("unknown-field", path, f"{path}: {note.reason}", _REMEDY, certain=False)


def _unknown_admission(document: Manifest, effect: str) -> Refusal:
    message = f"{document['kind']} {name_of(document)} {effect}"
    return Refusal("unknown-admission", "kind", message, _REMEDY, certain=False)


def _unknown_kind(document: Manifest, reason: str = "planning does not know this kind") -> Refusal:
    namespace, name = section(document, "metadata").get("namespace"), name_of(document)
    kind = f"{document['kind']} ({document.get('apiVersion')})"
    full_name = f"{namespace}/{name}" if namespace and name else str(namespace or name)
    remedy = "Its pods, if it creates any, are not counted: check it by a rehearsal."
    return Refusal("unknown-kind", "kind", f"{kind} {full_name}: {reason}", remedy, certain=False)


def _without_unknowns(tree: Any) -> Any:
    """Return a copy of a tree without its unknown values."""
    if isinstance(tree, Mapping):
        fields = cast("Manifest", tree).items()
        return {key: _without_unknowns(value) for key, value in fields if value is not UNKNOWN}
    if isinstance(tree, list):
        values = cast("list[Any]", tree)
        return [_without_unknowns(value) for value in values if value is not UNKNOWN]
    return tree


def _has_claims(workload: Workload) -> bool:
    """Return whether its pods mount claims, as far as their volumes are known."""
    if workload.claims:
        return True
    for pods in workload.pods:
        for volume in items(pods.spec, "volumes"):
            if is_mapping(volume) and volume.keys() & {"persistentVolumeClaim", "ephemeral"}:
                return True
    return False


def _pod_templates(tree: Any, path: str) -> Iterator[PodSet]:
    """Yield the pod templates in an object of an unknown kind, each as one pod."""
    if isinstance(tree, list):
        for index, item in enumerate(cast("list[Any]", tree)):
            yield from _pod_templates(item, f"{path}[{index}]")
    elif isinstance(tree, Mapping):
        holder = cast("Manifest", tree)
        spec = holder.get("spec")
        notes = field_catalog.notes_of("core.v1.PodSpec", spec)
        if not any(note.is_error or note.reason == field_catalog.NOT_YET for note in notes):
            fields = read_fields(cast("Manifest", spec))
            if not any(unknown_paths(fields)):
                spec_path = f"{path}.spec".lstrip(".")
                yield PodSet(holder, fields, labels_of(holder), 1, spec_path, path)
            return
        for key, item in holder.items():
            yield from _pod_templates(item, f"{path}.{key}".lstrip("."))
