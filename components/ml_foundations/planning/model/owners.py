"""Owners of objects: what a controller has made counts with its owner, if that is shown too."""

from collections.abc import Iterable, Mapping

from ml_foundations.kinds.kind_files import described_kinds
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, labels_of, namespace_of, section
from ml_foundations.planning.model import workloads
from ml_foundations.planning.model.declared import key_of

Key = tuple[str, str, str]
"""The kind, the namespace and the name of a workload."""


def object_key(document: Manifest) -> Key:
    """Return the kind, namespace and name of an object, as texts."""
    namespace, name = key_of(document)
    return document["kind"], str(namespace), str(name)


def is_kubernetes_kind(reference: Manifest) -> bool:
    """Return whether a reference is to a workload of Kubernetes, not to another API's kind."""
    version = reference.get("apiVersion")
    group = workloads.groups().get(str(reference.get("kind")))
    return version is None or str(version).rpartition("/")[0] == group


def all_owners(document: Manifest, owners: Mapping[Key, set[Key]]) -> set[Key]:
    """Return the owners of an object, and theirs: a pod's Job, and the Job's JobSet."""
    reached: set[Key] = set()
    pending = [*owners_of(document)]
    while pending:
        owner = pending.pop()
        if owner not in reached:
            reached.add(owner)
            pending += owners.get(owner, ())
    return reached


def owners_of(document: Manifest) -> set[Key]:
    """Return the workloads that an object may belong to.

    A Deployment's ReplicaSet has the Deployment's name and the hash of the pods.
    """
    owners: set[Key] = set()
    namespace = str(namespace_of(document))
    for kind, described in described_kinds().items():
        if described.name_label and (name := labels_of(document).get(described.name_label)):
            owners.add((kind, namespace, str(name)))
    references = items(section(document, "metadata"), "ownerReferences")
    for owner in filter(is_kubernetes_kind, references):
        kind = str(owner.get("kind"))
        name = str(owner.get("name"))
        owners.add((kind, namespace, name))
        suffix = f"-{labels_of(document).get(labels.TEMPLATE_HASH)}"
        if kind == "ReplicaSet" and name.endswith(suffix):
            owners.add(("Deployment", namespace, name.removesuffix(suffix)))
    # A label that a user wrote may name the object itself.
    owners.discard(object_key(document))
    return owners


def without_owned(documents: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects of a cluster that none of its other objects has made."""
    documents = list(documents)
    shown = set(map(object_key, documents))
    return [document for document in documents if not is_made(document, shown)]


def is_made(document: Manifest, shown: set[Key]) -> bool:
    """Return whether one of some workloads has made a stored object."""
    return workloads.is_stored(document) and not owners_of(document).isdisjoint(shown)
