"""The base of every component: it checks the arguments, declares the parts, and publishes."""

import inspect
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast, get_args

import pulumi

from ml_foundations.component.spec import ComponentSpec, check

PACKAGE = "ml-foundations"

S = TypeVar("S", bound=ComponentSpec)


class Component(pulumi.ComponentResource, Generic[S]):
    """A component whose arguments are the spec ``S``. Its parts become its children.

    Each public annotation of a subclass is an output: the attribute of that name of the spec, unless ``publish`` says
    otherwise.
    """

    def __init__(self, name: str, args: Mapping[str, Any] | S, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the component and its parts.

        Args:
            name: Its name, and the beginning of the names of its parts.
            args: The arguments. A spec has been checked already.
            opts: Options of the component.

        Raises:
            ArgumentsError: An argument is wrong; nothing is declared then.
        """
        kind = type(self).__name__
        spec = self._checked(f"{kind} {name}", name, args) if isinstance(args, Mapping) else args
        super().__init__(f"{PACKAGE}:index:{kind}", name, {}, opts)
        made: dict[str, pulumi.Resource] = {}
        for part in spec.declared_parts():
            made[part.role] = part.declare(name, self, made)
        outputs = [key for base in type(self).__mro__ for key in _annotated(base)]
        published = {key: getattr(spec, key) for key in outputs if hasattr(spec, key)} | self.publish(spec, made)
        for key, value in published.items():
            setattr(self, key, value)
        self.register_outputs(published)

    def publish(self, spec: S, made: Mapping[str, Any]) -> dict[str, Any]:
        """What is published beside attributes of the spec: outputs of the parts, by name.

        Args:
            spec: The checked arguments.
            made: The children, by role.
        """
        return {}

    @classmethod
    def spec_type(cls) -> type[S]:
        """The spec, from the class's declaration."""
        (base,) = cast("Any", cls).__orig_bases__
        return cast("type[S]", get_args(base)[0])

    @classmethod
    def _checked(cls, title: str, name: str, args: Mapping[str, Any]) -> S:
        spec = cls.spec_type()
        if spec.name_field and args.get(spec.name_field) is None:
            args = {**args, spec.name_field: name}
        return check(spec, title, args)


def _annotated(base: type) -> list[str]:
    is_ours = issubclass(base, Component) and base is not Component
    return [key for key in inspect.get_annotations(cast("type", base)) if is_ours and not key.startswith("_")]
