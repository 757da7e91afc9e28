"""The declared resources and objects by type, kind and name, and their names in messages."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.trees import joined


def of_type(resources: Iterable[tuple[str, Manifest]], type_: str) -> list[Manifest]:
    """Return the inputs of the resources of one of Pulumi's types."""
    return [inputs for declared_type, inputs in resources if declared_type == type_]


def of_kind(objects: Iterable[Manifest], kind: str) -> list[Manifest]:
    """Return the objects of a kind."""
    return [manifest for manifest in objects if manifest["kind"] == kind]


def key_of(manifest: Manifest) -> tuple[str, str]:
    """Return the namespace and the name of an object: only one of its kind has both."""
    return namespace_of(manifest), name_of(manifest)


def kind_and_name(manifest: Manifest) -> str:
    """Return an object as ``Kind name``."""
    return f"{manifest['kind']} {name_of(manifest)}"


def full_name(manifest: Manifest) -> str:
    """Return an object as ``Kind namespace/name``."""
    return f"{written_kind(manifest)} {namespace_of(manifest)}/{name_of(manifest)}"


def written_kind(manifest: Manifest) -> str:
    """Return the kind that the user wrote: a controller may make the object of another."""
    return annotations_of(manifest).get(labels.MADE_FROM, manifest["kind"])


def named_values(
    tree: Manifest, keys: Sequence[str], at: str
) -> Iterator[tuple[str, Manifest, Any]]:
    """Yield the values below some keys, with their paths and what holds them."""
    key = keys[0].removesuffix("[]")
    rest = keys[1:]
    path = joined(at, key) if at else key
    # "key[]" means each item of a list.
    if keys[0] != key:
        for index, item in enumerate(items(tree, key)):
            yield from named_values(item, rest, f"{path}[{index}]")
    elif not rest:
        yield path, tree, tree.get(key)
    elif below := section(tree, key):
        yield from named_values(below, rest, path)
