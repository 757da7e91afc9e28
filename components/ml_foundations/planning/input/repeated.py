"""Resources that make what an earlier resource of the program makes: their creation fails."""

import os
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from ml_foundations.kubernetes.objects import Manifest, section
from ml_foundations.planning.input.clusters import PROVIDER, Declared, provider_of
from ml_foundations.planning.input.node_pools import RANDOM
from ml_foundations.planning.input.program import UNIQUE, Resource

OVERWRITING = {
    "upsertExistingObjects": "upsert_existing_objects",
    "renderYamlToDirectory": "render_yaml_to_directory",
}
"""The inputs of Kubernetes providers that create no object, or may overwrite one, with their names
in Python."""
_UPSERTS = "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"
"""The variable that lets all Kubernetes providers overwrite objects if it is ``true``."""
_PLACES = ("project", "location", "region", "cluster")
"""The inputs of Google's resources that tell resources of one name apart."""


class Repeated(NamedTuple):
    """A resource, and the names in the program of an earlier one that makes the same, and of it."""

    resource: Resource
    first: str
    second: str


def repeated(declared: Sequence[Declared]) -> Iterable[tuple[Hashable, Repeated]]:
    """Yield the resources that make what an earlier one makes, by key.

    They have the same provider, and all that identifies them is known and equal. Names that Pulumi
    or the API server generates differ.
    """
    creating = _creating(declared)
    firsts: dict[Hashable, Declared] = {}
    for item in declared:
        identity = _identity(*item.resource)
        is_object = item.resource[0].startswith("kubernetes:")
        is_certain = item.is_created and (not is_object or item.provider in creating)
        if identity is None or not is_certain:
            continue
        first = firsts.setdefault((item.provider, *identity), item)
        if first.key != item.key:
            yield item.key, Repeated(item.resource, first.name, item.name)


def _creating(declared: Sequence[Declared]) -> set[Hashable]:
    """Return the keys of the Kubernetes providers that overwrite nothing, as far as is known."""
    if os.environ.get(_UPSERTS):
        return set()
    creating: set[Hashable] = {""}
    overwriting: set[Hashable] = set()
    for item in declared:
        type_, inputs = item.resource
        if type_ == PROVIDER:
            # A default provider has a key of the engine, and resources name none.
            key = provider_of(f"{item.key}::") if isinstance(item.key, str) else item.key
            overwrites = any(inputs.get(field) is not None for field in OVERWRITING)
            (overwriting if overwrites else creating).add(key)
    return creating - overwriting


def _identity(type_: str, inputs: Manifest) -> tuple[Hashable, ...] | None:
    """Return what no two resources of a provider share; None if it is not known, or not unique."""
    if type_ in UNIQUE:
        name = inputs.get("name")
        place = (type_, *map(inputs.get, _PLACES))
    elif type_.startswith("kubernetes:") and not type_.endswith("Patch") and "kind" in inputs:
        metadata = section(inputs, "metadata")
        name = metadata.get("name")
        group = str(inputs.get("apiVersion")).rpartition("/")[0]
        # Without a namespace, it is that of the provider.
        place = ("", group, inputs["kind"], metadata.get("namespace"))
    else:
        return None
    is_known = isinstance(name, str) and RANDOM not in name
    is_clear = all(part is None or isinstance(part, str) for part in place)
    return (*place, name) if is_known and is_clear else None
