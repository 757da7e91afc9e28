"""Models of the valid arguments, if some are invalid, so that one message has all errors.

A spec checks combinations of arguments only if each argument is valid. After an error, the valid
arguments are therefore checked again, without the invalid arguments. A check that reads an invalid
argument ends there, because its result would depend on it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError, create_model

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")
Location: TypeAlias = tuple[int | str, ...]


class FieldsError(ValueError):
    """Arguments that do not go together: each the name of a field, and why."""

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in errors))
        self.errors = errors


class InvalidArgumentError(Exception):
    """A check reads an argument that is invalid, which another error reports."""


class ArgumentError(NamedTuple):
    """An error in arguments, from pydantic or from a spec's own checks."""

    location: Location
    """The fields, keys and indices that lead to the argument."""
    type: str
    """The type of the error in pydantic's words."""
    message: str
    input: Any
    context: Mapping[str, Any]


@dataclass
class _Check:
    """A validation that goes on after an error, and the combinations that it finds invalid."""

    by_alias: bool
    by_name: bool
    found: list[tuple[BaseModel, FieldsError]] = field(
        default_factory=list[tuple[BaseModel, FieldsError]]
    )


class _Part:
    """A model without its invalid fields."""

    __slots__ = ()

    invalid: ClassVar[frozenset[str]]
    """The fields that must not be read."""

    def __getattribute__(self, name: str) -> Any:
        if name in type(self).invalid:
            raise InvalidArgumentError(name)
        return super().__getattribute__(name)

    @property
    def model_fields_set(self) -> set[str]:
        """The fields that are given, also those that are invalid."""
        return cast("Any", super()).model_fields_set | self.invalid

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the fields.

        Raises:
            InvalidArgumentError: One of them is invalid.
        """
        if self.invalid:
            raise InvalidArgumentError(", ".join(sorted(self.invalid)))
        return cast("Any", super()).model_dump(**options)


def validated(
    spec: type[S], given: Any, *, by_alias: bool, by_name: bool
) -> tuple[S | None, list[ArgumentError]]:
    """Return the model of arguments and all errors in them.

    Reading an invalid argument of the model raises InvalidArgumentError. The model is None if
    nothing is valid.
    """
    try:
        return spec.model_validate(given, by_alias=by_alias, by_name=by_name), []
    except ValidationError as error:
        errors = errors_in(error)
    check = _Check(by_alias, by_name)
    try:
        model = spec.model_validate(given, by_alias=by_alias, by_name=by_name, context=check)
    except ValidationError:
        return None, errors
    combinations = {id(part): error for part, error in check.found}
    reported = {(item.location, str(item.context.get("error"))) for item in errors}
    for location, part in specs_in(model):
        error = combinations.get(id(part))
        if error and (location, str(error)) not in reported:
            errors.append(ArgumentError(location, "value_error", "", None, {"error": error}))
    return model, errors


def errors_in(error: ValidationError) -> list[ArgumentError]:
    """Return the errors that pydantic has found."""
    return [
        ArgumentError(item["loc"], item["type"], item["msg"], item["input"], item.get("ctx", {}))
        for item in error.errors()
    ]


def valid_part(spec: type[S], given: Any, check: Callable[[Any], S], context: Any) -> S:
    """Return the checked model of arguments; after errors, perhaps that of the valid ones.

    Args:
        spec: The model.
        given: Its arguments.
        check: Returns the model, and raises an error if an argument is invalid.
        context: The context of the validation.

    Raises:
        ValidationError: The validation ends at errors, or no field is valid.
    """
    if not isinstance(context, _Check):
        return check(given)
    try:
        return check(given)
    except ValidationError as error:
        if not isinstance(given, dict):
            raise
        arguments = dict(cast("dict[str, Any]", given))
        invalid = _remove_invalid(spec, arguments, error)
    except InvalidArgumentError:  # a field's own check reads another field
        arguments = {}
        invalid = set(spec.model_fields)
    part = _part_of(spec, frozenset(invalid)) if invalid else spec
    return part.model_validate(
        arguments, by_alias=context.by_alias, by_name=context.by_name, context=context
    )


@cache
def _part_of(spec: type[S], invalid: frozenset[str]) -> type[S]:
    """Return a model with fields that may have any value, but cannot be read."""
    base: Any = spec if issubclass(spec, _Part) else (_Part, spec)
    fields: Any = dict.fromkeys(invalid, (Any, None))
    part = create_model(spec.__name__, __base__=base, **fields)
    cast("Any", part).invalid = invalid | getattr(spec, "invalid", frozenset[str]())
    return cast("type[S]", part)


def _remove_invalid(
    spec: type[BaseModel], arguments: dict[str, Any], error: ValidationError
) -> set[str]:
    """Remove what is invalid from arguments, and return the fields that must not be read.

    Raises:
        ValidationError: Something else than a field is invalid.
    """
    invalid: set[str] = set()
    for item in error.errors():
        name, *rest = item["loc"] or ("",)
        field_info = spec.model_fields.get(str(name))
        if item["type"] == "extra_forbidden" and not rest:
            del arguments[str(name)]
        elif field_info is None:
            raise error
        elif rest[1:] == ["[key]"]:
            key = str(name) if name in arguments else str(field_info.alias)
            arguments[key] = {k: v for k, v in arguments[key].items() if k != rest[0]}
        else:
            invalid.add(str(name))
    for name in invalid:
        arguments.pop(name, None)
        arguments.pop(str(spec.model_fields[name].alias), None)
    return invalid


def raise_or_note(model: BaseModel, errors: list[tuple[str, str]], context: Any) -> None:
    """Raise the combinations of fields that are invalid, or note them if the validation goes on.

    The fields that they name cannot be read any more.

    Raises:
        FieldsError: There is one, and the validation ends at errors.
    """
    if not errors:
        return
    if not isinstance(context, _Check):
        raise FieldsError(errors)
    context.found.append((model, FieldsError(errors)))
    named = {re.split(r"[.\[]", path)[0] for path, _ in errors}
    invalid = named & type(model).model_fields.keys()
    object.__setattr__(model, "__class__", _part_of(type(model), frozenset(invalid)))


def while_valid(errors: Iterable[T]) -> Iterator[T]:
    """Yield errors until one depends on an invalid argument."""
    try:
        yield from errors
    except InvalidArgumentError:
        return


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models inside a type such as list[Model], dict[str, Model] or Model | None.

    There are several if the type is a choice of models.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def specs_in(
    value: Any, location: Location = (), *, is_choice: bool = False
) -> Iterator[tuple[Location, BaseModel]]:
    """Yield the models in a value, each with its location as pydantic reports it."""
    if isinstance(value, BaseModel):
        kind = type(value)
        location = (*location, kind.__name__) if is_choice else location
        yield location, value
        for name, info in kind.model_fields.items():
            several = len(models_in(info.annotation)) > 1
            yield from specs_in(value.__dict__[name], (*location, name), is_choice=several)
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from specs_in(item, (*location, key), is_choice=is_choice)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from specs_in(item, (*location, index), is_choice=is_choice)
