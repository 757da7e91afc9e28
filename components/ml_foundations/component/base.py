"""The base of every component: it checks the arguments, declares the parts, and publishes."""

import inspect
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast, get_args

import pulumi

from ml_foundations.component.spec import ComponentSpec, check

PACKAGE = "ml-foundations"

S = TypeVar("S", bound=ComponentSpec)
A = TypeVar("A", bound=Mapping[str, Any])


class Component(pulumi.ComponentResource, Generic[S, A]):
    """A component whose arguments are the spec ``S``, written as ``A``. Its parts become its children.

    Each public annotation of a subclass is an output: the attribute of that name of the spec, unless ``publish`` says
    otherwise.
    """

    def __init_subclass__(cls) -> None:
        """Give a component a constructor of its own: Pulumi's component host reads the type of ``args`` there."""
        super().__init_subclass__()
        inherited: Any = cls.__init__

        def construct(self: Any, name: str, args: Any, opts: pulumi.ResourceOptions | None = None) -> None:
            inherited(self, name, args, opts)

        if Component in cls.__bases__:
            construct.__annotations__["args"] = _arguments(cls)[1]
            cls.__init__ = construct

    def __init__(self, name: str, args: A, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the component and its parts.

        Args:
            name: Its name, and the beginning of the names of its parts.
            args: The arguments. In place of them, a spec has been checked already.
            opts: Options of the component.

        Raises:
            ArgumentsError: An argument is wrong; nothing is declared then.
        """
        kind = type(self).__name__
        is_checked = isinstance(args, ComponentSpec)
        spec = cast("S", args) if is_checked else self._checked(f"{kind} {name}", name, args)
        for warning in spec.advice():
            pulumi.log.warn(f"{kind} {name}: {warning}")
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
        """What is published beside attributes of the spec: outputs of the parts, by name; ``made`` has them by role."""
        return {}

    @classmethod
    def spec_type(cls) -> type[S]:
        """The spec, from the class's declaration."""
        return _arguments(cls)[0]

    @classmethod
    def _checked(cls, title: str, name: str, args: Mapping[str, Any]) -> S:
        spec = cls.spec_type()
        if spec.name_field and args.get(spec.name_field) is None:
            args = {**args, spec.name_field: name}
        return check(spec, title, args)


def _arguments(component: type) -> tuple[Any, Any]:
    """The two types that stand in a component's declaration."""
    (base,) = cast("Any", component).__orig_bases__
    return get_args(base)


def _annotated(base: type) -> list[str]:
    is_ours = issubclass(base, Component) and base is not Component
    return [key for key in inspect.get_annotations(cast("type", base)) if is_ours and not key.startswith("_")]
