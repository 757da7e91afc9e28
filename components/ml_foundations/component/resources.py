"""Going: `Part` declares what these two helped to declare."""

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
from pydantic.alias_generators import to_snake


def arguments(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for the class of the manifest's kind; apiVersion and kind are the class's own."""
    return {to_snake(key): value for key, value in manifest.items() if key not in ("apiVersion", "kind")}


def child_options(parent: pulumi.Resource, **options: Any) -> pulumi.ResourceOptions:
    """Options of a child resource."""
    return pulumi.ResourceOptions(parent=parent, **options)


def unknown_kinds(overrides: Mapping[str, Mapping[str, Any]], kinds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Overrides of kinds that the component does not make: the field, and why."""
    for kind in sorted(overrides.keys() - set(kinds)):
        yield f"overrides.{kind}", f"no such object is made, as the other arguments are. Made are: {', '.join(kinds)}"
