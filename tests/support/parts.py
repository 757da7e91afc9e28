"""What a component is made of, as its spec declares it."""

from typing import Any

from ml_foundations.component.children import CloudResource
from ml_foundations.component.spec import ComponentSpec


def manifest_of(spec: ComponentSpec, kind: str) -> dict[str, Any]:
    """The object of a kind, of which the component makes one."""
    [found] = [manifest for manifest in spec.manifests() if manifest["kind"] == kind]
    return found


def values_of(spec: ComponentSpec) -> Any:
    """The values of the component's Helm release."""
    clouds = [
        part.declared
        for part in spec.declared_children()
        if isinstance(part.declared, CloudResource)
    ]
    [values] = [cloud.inputs["values"] for cloud in clouds if "values" in cloud.inputs]
    return values
