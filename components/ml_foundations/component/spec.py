"""Checked arguments: a frozen model that declares each argument with constraint and default."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from typing_extensions import override

from ml_foundations.component.children import ChildResource
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.objects import ObjectArgument
from ml_foundations.component.overrides import object_errors, selector_errors
from ml_foundations.component.partial import raise_or_note, valid_part, validated, while_valid
from ml_foundations.kubernetes.merging import Overrides, overridden, without_none


class Spec(BaseModel):
    """Checked arguments, without unknown ones. The docstring under a field documents it.

    Python programs write an argument as ``max_nodes``, stack files as ``maxNodes``.
    """

    objects: ClassVar[Mapping[str, ObjectArgument]] = {}
    """Arguments of Python programs that are components, in place of others."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        loc_by_alias=False,
    )

    def given(self) -> Any:
        """Return the arguments that the user set, without defaults."""
        return self.model_dump(exclude_unset=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_nothing(cls, given: Any) -> Any:
        return without_none(cast("dict[str, Any]", given)) if isinstance(given, dict) else given

    def errors(self) -> Iterator[tuple[str, str]]:
        """Yield each combination of fields that is invalid: the name of a field, and the reason."""
        yield from ()

    @model_validator(mode="after")
    def _has_no_errors(self, info: ValidationInfo) -> Self:
        raise_or_note(self, list(while_valid(self._all_errors())), info.context)
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _with_valid_fields(
        cls, given: Any, check: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        return valid_part(cls, given, check, info.context)

    def _all_errors(self) -> Iterator[tuple[str, str]]:
        """Yield all errors: the spec's own, and those that all specs of its kind share."""
        yield from self.errors()


class ComponentSpec(Spec):
    """The checked arguments of a component, and what it is made of."""

    name_field: ClassVar[str | None] = None
    """The argument that is the component's name unless it is given."""
    config_defaults: ClassVar[Mapping[str, str]] = {}
    """The arguments that Pulumi's configuration sets unless the program does, and the key of
    each."""

    def children(self) -> Iterable[ChildResource]:
        """Return the children of the component, each after those that it depends on."""
        raise NotImplementedError

    def warnings(self) -> Iterable[str]:
        """Return warnings about arguments that are valid but seldom intended."""
        return ()

    def declared_children(self) -> list[ChildResource]:
        """Return the children, with the user's ``overrides`` merged over their manifests."""
        overrides: Overrides = getattr(self, "overrides", {})
        declared: list[ChildResource] = []
        for child in self.children():
            if child.manifest:
                child = replace(child, declared=overridden(child.manifest, overrides))
            declared.append(child)
        return declared

    def overridable_kinds(self) -> dict[str, str]:
        """Return the kinds that ``overrides`` may name, and the API version of each."""
        manifests = [child.manifest for child in self.children() if child.manifest]
        return {manifest["kind"]: manifest["apiVersion"] for manifest in manifests}

    @override
    def _all_errors(self) -> Iterator[tuple[str, str]]:
        yield from super()._all_errors()
        overrides: Overrides = getattr(self, "overrides", {})
        if not overrides:
            return
        versions = self.model_copy(update={"overrides": {}}).overridable_kinds()
        errors: list[tuple[str, str]] = []
        for kind, fields in overrides.items():
            if kind in versions:
                errors += object_errors(versions[kind], kind, fields)
            else:
                reason = f"is not a kind that is created. Set one of {', '.join(versions)}"
                errors.append((f"overrides.{kind}", reason))
        yield from sorted(errors) or selector_errors(self.manifests(), overrides)

    def manifests(self) -> list[dict[str, Any]]:
        """Return the Kubernetes objects of the component."""
        return [dict(child.manifest) for child in self.declared_children() if child.manifest]


S = TypeVar("S", bound=Spec)


def check(
    spec: type[S], component: str, args: Mapping[str, Any], more: Sequence[tuple[str, str]] = ()
) -> S:
    """Return the arguments of a component, of a type and name, as its checked spec.

    ``more`` are errors that were found before: the path of each argument, and the reason.

    Raises:
        ArgumentsError: An argument is invalid. The message lists every one with its path, its value
            and what is allowed.
    """
    checked, errors = validated(spec, dict(args), by_alias=False, by_name=True)
    if errors or more or checked is None:
        raise ArgumentsError(component, errors, spec, more=more)
    return checked
