"""Components as arguments, such as ``cluster=cluster`` instead of project, location and name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pulumi

from ml_foundations.component.errors import shown
from ml_foundations.component.outputs import unwrapped
from ml_foundations.component.partial import models_in
from ml_foundations.component.refused import MissingOutput

if TYPE_CHECKING:
    from ml_foundations.component.spec import Spec


class ObjectArgument(NamedTuple):
    """An argument of Python programs that is a component, in place of some of its outputs."""

    components: tuple[str, ...]
    """The names of the component classes that it accepts."""
    description: str
    """Its documentation."""
    outputs: Mapping[str, str] = {}
    """The arguments that it sets: the name of each argument, and of the component's output."""
    defaults: tuple[str, ...] = ()
    """Those of the arguments that a program may set next to the object, which then win."""
    gives_provider: bool = False
    """Whether it also gives the Kubernetes provider."""
    item: str = ""
    """The output that replaces each component of a list, if the argument is a list."""


IN_CLUSTER = ObjectArgument(
    ("GkeCluster",),
    "The GkeCluster. It provides the Kubernetes provider, which waits for the node pools that were "
    "declared earlier.",
    gives_provider=True,
)
"""The cluster that an object of Kubernetes is in."""

IN_PROJECT = ObjectArgument(
    ("GkeCluster",),
    "The GkeCluster. It sets project and provides the Kubernetes provider.",
    {"project": "project"},
    gives_provider=True,
)
"""The cluster of an object that also needs the project."""

TEAM = ObjectArgument(
    ("TeamNamespace",),
    "The TeamNamespace. It sets namespace and provides the Kubernetes provider.",
    {"namespace": "namespace"},
    gives_provider=True,
)
"""The team whose namespace an object is in."""

TEAM_OF_PODS = TEAM._replace(
    description=f"{TEAM.description} Its service account is the default of service_account.",
    outputs={**TEAM.outputs, "service_account": "service_account_name"},
    defaults=("service_account",),
)
"""The team of pods."""


_ADDED = ("node_selector", "tolerations")  # a program may add to what an object sets


@dataclass
class Expansion:
    """Arguments without objects, and what the objects were."""

    args: dict[str, Any]
    """The arguments, with the objects replaced by their outputs."""
    objects: dict[str, pulumi.ComponentResource] = field(default_factory=dict[str, Any])
    """The objects at the top level, by argument."""
    sources: list[pulumi.ComponentResource] = field(default_factory=list[Any])
    """The objects, also those in nested arguments, whose outputs are used."""
    errors: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The path of each argument that is invalid, and the reason."""

    def resources(self) -> list[pulumi.Resource]:
        """Return the children of the objects whose outputs are used."""
        children: list[pulumi.Resource] = []
        for source in self.sources:
            children += cast("Any", source).children.values()
        return children


def expanded(spec: type[Spec], args: Mapping[str, Any]) -> Expansion:
    """Replace each component among the arguments, also nested ones, by the outputs that it sets."""
    result = Expansion(dict(args))
    for name, argument in spec.objects.items():
        value = args.get(name)
        if argument.item:
            if isinstance(value, list):
                items = cast("list[Any]", value)
                result.args[name] = _replaced_items(result, name, argument, items)
            continue
        # Under the name of a field, such as volume of a mount, other values are the field's.
        is_field = name in spec.model_fields and not isinstance(value, pulumi.ComponentResource)
        if value is None or is_field:
            continue
        del result.args[name]
        if _is_accepted(argument, value):
            component = cast("pulumi.ComponentResource", value)
            result.objects[name] = component
            if argument.outputs:
                result.sources.append(component)
            for target, output in argument.outputs.items():
                _set(result, target, name, argument, getattr(component, output, None))
        else:
            result.errors.append((name, _wrong_type(argument, value)))
            for target in argument.outputs:
                result.args.setdefault(target, MissingOutput())
    for name, nested in nested_specs(spec):
        value = result.args.get(name)
        if not isinstance(value, list):
            continue
        result.args[name] = items = list(cast("list[Any]", value))
        for index, item in enumerate(items):
            if isinstance(item, Mapping):
                inner = expanded(nested, cast("Mapping[str, Any]", item))
                items[index] = inner.args
                result.sources += inner.sources
                for field, reason in inner.errors:
                    result.errors.append((f"{name}[{index}].{field}", reason))
    return result


def _set(result: Expansion, target: str, name: str, argument: ObjectArgument, value: Any) -> None:
    """Set an argument to the output of an object; what the program sets may add to it."""
    given = result.args.get(target)
    plain = unwrapped(given)[0]
    theirs = unwrapped(value)[0]
    if given is None:
        result.args[target] = value
    elif target in _ADDED and isinstance(plain, dict) and isinstance(theirs, dict):
        result.args[target] = {**value, **given}
        for key, label in cast("dict[str, Any]", theirs).items():
            if cast("dict[str, Any]", plain).get(key, label) != label:
                reason = f"is {shown(plain[key])}, and {name} sets {shown(label)}"
                result.errors.append((f"{target}.{key}", f"{reason}. Leave it out or {name}"))
    elif target in _ADDED and isinstance(plain, list) and isinstance(theirs, list):
        more = [item for item in given if unwrapped(item)[0] not in theirs]
        result.args[target] = [*value, *more]
    elif target not in argument.defaults:
        reason = f"is set, and {name} sets it too. Leave out {target} or {name}"
        result.errors.append((target, reason))


def _replaced_items(
    result: Expansion, name: str, argument: ObjectArgument, given: list[Any]
) -> list[Any]:
    """Return a list of values with each component replaced by its output."""
    values: list[Any] = []
    for index, value in enumerate(given):
        if not isinstance(value, pulumi.ComponentResource):
            values.append(value)
        elif _is_accepted(argument, value):
            result.objects[f"{name}[{index}]"] = value
            result.sources.append(value)
            values.append(getattr(value, argument.item, None))
        else:
            result.errors.append((f"{name}[{index}]", _wrong_type(argument, value)))
    return values


def _is_accepted(argument: ObjectArgument, value: Any) -> bool:
    return any(base.__name__ in argument.components for base in type(value).__mro__)


def _wrong_type(argument: ObjectArgument, value: Any) -> str:
    return f"must be a {' or a '.join(argument.components)}, not {shown(value)}"


@cache
def nested_specs(spec: type[Spec]) -> list[tuple[str, type[Spec]]]:
    """Return the arguments that are lists of specs with objects, and the spec of their items."""
    fields: list[tuple[str, type[Spec]]] = []
    for name, field_info in spec.model_fields.items():
        for nested in models_in(field_info.annotation):
            if getattr(nested, "objects", None):
                fields.append((name, cast("type[Spec]", nested)))
    return fields
