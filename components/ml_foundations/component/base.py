"""The base of every component: it checks the arguments, declares the parts, and publishes."""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, get_args

import pulumi

from ml_foundations.component.spec import ComponentSpec, check

PACKAGE = "ml-foundations"

S = TypeVar("S", bound=ComponentSpec)


class Component(pulumi.ComponentResource, Generic[S]):
    """A component whose arguments are the spec ``S``: its parts become children, its annotations are what it publishes.

    Each public annotation of a subclass is an output: the attribute of that name of the spec, unless ``publish`` says
    otherwise.
    """

    spec_type: ClassVar[Any]
    """The spec, from the class's declaration."""

    def __init_subclass__(cls) -> None:
        """Note which spec the component has."""
        super().__init_subclass__()
        (cls.spec_type,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]

    def __init__(self, name: str, args: Mapping[str, Any] | S, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the component and its parts.

        Args:
            name: Its name, and the beginning of the names of its parts.
            args: The arguments; a spec has been checked already.
            opts: Options of the component.

        Raises:
            ArgumentsError: An argument is wrong; nothing is declared then.
        """
        kind = type(self).__name__
        spec = args if isinstance(args, self.spec_type) else self._checked(f"{kind} {name}", name, args)
        super().__init__(f"{PACKAGE}:index:{kind}", name, {}, opts)
        made: dict[str, pulumi.Resource] = {}
        for part in spec.declared_parts():
            made[part.role] = part.declare(name, self, made)
        published = {key: getattr(spec, key) for key in self._outputs() if hasattr(spec, key)}
        published |= self.publish(spec, made)
        for key, value in published.items():
            setattr(self, key, value)
        self.register_outputs(published)

    def publish(self, spec: S, made: Mapping[str, pulumi.Resource]) -> dict[str, Any]:
        """What is published beside attributes of the spec: outputs of the parts, by name."""
        return {}

    @classmethod
    def _checked(cls, title: str, name: str, args: Any) -> S:
        own = cls.spec_type.name_field
        return check(cls.spec_type, title, {own: name, **args} if own else args)

    @classmethod
    def _outputs(cls) -> list[str]:
        return [key for key in cls.__annotations__ if not key.startswith("_")]
