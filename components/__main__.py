"""The package as a Pulumi plugin: every component, for programs in any of Pulumi's languages."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import ml_foundations
import pulumi
from ml_foundations.component._pulumi_internals import result_if_ready
from ml_foundations.component.base import Component
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.partial import validated
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.kubernetes.trees import map_leaves
from pulumi.provider import ConstructResult, Provider, main
from pydantic.alias_generators import to_camel, to_snake

SCHEMA = Path(__file__).with_name("schema.json")


class Host(Provider):
    """A provider that serves the package schema and constructs its components."""

    def __init__(self) -> None:
        super().__init__(ml_foundations.__version__, SCHEMA.read_text(encoding="utf-8"))

    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: Any,
        options: pulumi.ResourceOptions | None = None,
    ) -> ConstructResult:
        """Construct the component after the resources that its known values come from."""
        kind = resource_type.rpartition(":")[2]
        component: type[Component[Any]] = getattr(ml_foundations, kind)
        publishers: list[pulumi.Resource] = []
        values = map_leaves(inputs, lambda value: _plain(value, publishers))
        spec: Any = _checked(component, name, values, options)
        after = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=publishers))
        constructed = component(name, spec, after)
        return ConstructResult(constructed.urn, self._state(resource_type, constructed))

    def _state(self, resource_type: str, component: pulumi.ComponentResource) -> dict[str, Any]:
        """Return the component's outputs that are not None, by their names in the schema."""
        outputs = json.loads(self.schema or "")["resources"][resource_type].get("properties", {})
        state: dict[str, Any] = {}
        for name, declared in outputs.items():
            value: Any = getattr(component, to_snake(name), None)
            if value is not None:
                is_object = str(declared.get("$ref")).startswith("#/types/")
                state[name] = value.apply(_in_schema) if is_object else value
        return state


def _checked(
    component: type[Component[Any]],
    name: str,
    inputs: Mapping[str, Any],
    options: pulumi.ResourceOptions | None,
) -> ComponentSpec:
    """Check the inputs of a component, whose names are those of the schema.

    Raises:
        InputPropertiesError: An input is invalid. The engine lists the errors below the message.
    """
    spec: type[ComponentSpec] = component.spec_type()
    fields = {to_camel(field): field for field in spec.model_fields}
    args = {fields.get(key, key): value for key, value in inputs.items()}
    given = component.completed(name, args)
    checked, errors = validated(spec, given, by_alias=True, by_name=True)
    of_provider = component.provider_errors(options, given, {})
    more = [(to_camel(field), reason) for field, reason in of_provider]
    if errors or more or checked is None:
        title = f"{component.__name__} {name}"
        refused = ArgumentsError(title, errors, spec, to_camel, more=more)
        raise pulumi.InputPropertiesError(refused.title, refused.errors)
    return checked


def _in_schema(fields: Any) -> Any:
    """Return an object, or None, with its fields by their names in the schema."""
    return fields and {to_camel(name): field for name, field in fields.items()}


def _plain(value: Any, publishers: list[pulumi.Resource]) -> Any:
    """Return the value of a known Output, and add its resources to ``publishers``.

    Return other inputs as they are.

    The SDK passes every value of another resource as an Output, even if it is known.
    """
    if not isinstance(value, pulumi.Output):
        return value
    output = cast("pulumi.Output[Any]", value)
    if not result_if_ready(output.is_known()) or result_if_ready(output.is_secret()):
        return output
    publishers += result_if_ready(output.resources())
    return result_if_ready(output.future())


if __name__ == "__main__":
    main(Host(), sys.argv[1:])
