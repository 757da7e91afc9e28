"""How a component checks its arguments: a frozen model, and every error at once, each with its path."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Self, TypeVar, cast, get_args

import pulumi
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from ml_foundations.catalog.machine_types import MACHINE_TYPES, UnknownNameError, machine_type, product_by_name
from ml_foundations.kubernetes.quantities import format_quantity, parse_quantity

MAX_LABEL = 63
"""The longest DNS label, and so the longest name of most objects (RFC 1123)."""


class ContradictionsError(ValueError):
    """Arguments that do not go together: each the name of a field, and why."""

    def __init__(self, found: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in found))
        self.found = found


class ArgumentsError(pulumi.InputPropertiesError, pulumi.RunError):
    """Wrong arguments of a component. As a RunError it ends a program without a traceback."""


class Spec(BaseModel):
    """Checked arguments: nothing unknown, nothing changes. Fields of type ``Any`` may hold Pulumi outputs.

    Python programs write an argument as ``max_nodes``, stack files as ``maxNodes``.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, loc_by_alias=False
    )

    def given(self) -> Any:
        """The arguments that were given, as a component takes them; without defaults."""
        return self.model_dump(exclude_unset=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_nothing(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {key: value for key, value in cast("dict[str, Any]", given).items() if value is not None}

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """What each field allows and the whole does not: the name of a field, and why."""
        yield from ()

    @model_validator(mode="after")
    def _no_contradictions(self) -> Self:
        if found := list(self.contradictions()):
            raise ContradictionsError(found)
        return self


S = TypeVar("S", bound=Spec)


def check(spec: type[S], component: str, args: Mapping[str, Any]) -> S:
    """The arguments of a component as its checked spec.

    Raises:
        ArgumentsError: an argument is wrong; the message lists every wrong one with path, value and
            what is allowed.
    """
    try:
        return spec.model_validate(dict(args), by_alias=False, by_name=True)
    except ValidationError as error:
        details: list[pulumi.InputPropertyErrorDetails] = [
            {"property_path": path, "reason": reason} for path, reason in explain(error, spec)
        ]
        lines = "".join(f"\n  {item['property_path']}: {item['reason']}" for item in details)
        raise ArgumentsError(f"{component}: {len(details)} wrong argument(s):{lines}", details) from None


def explain(
    error: ValidationError, spec: type[BaseModel], spell: Callable[[str], str] = str
) -> Iterable[tuple[str, str]]:
    """Each error as its path and a reason that names the value and the way out; ``spell`` writes names of fields."""
    for item in error.errors():
        location = item["loc"]
        path, model = _place(location, spec, spell)
        message = item["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        context = item.get("ctx", {})
        cause = context.get("error")
        if isinstance(cause, ContradictionsError):
            for field, reason in cause.found:
                yield f"{path}.{_spelled(field, model, spell)}".lstrip("."), _spelled(reason, model, spell)
        elif isinstance(item["input"], pulumi.Output):
            yield path, "is an Output; it must be known at preview: give a plain value"
        elif item["type"] == "extra_forbidden":
            known = sorted(map(spell, _place(location[:-1], spec, spell)[1].model_fields))
            yield path, _unknown(str(location[-1]), known)
        elif item["type"] == "missing":
            yield path, "is required"
        elif item["type"] == "string_too_long":
            yield path, f"has {len(item['input'])} characters, and {context['max_length']} are allowed"
        else:
            yield path, f"{message} (got {item['input']!r})"


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=2)
    return f"is not known. Did you mean {' or '.join(near)}?" if near else f"is not known. Known: {', '.join(known)}"


def _place(
    location: tuple[int | str, ...], model: type[BaseModel], spell: Callable[[str], str]
) -> tuple[str, type[BaseModel]]:
    """The path of a place in a model, and the model that is there."""
    path = ""
    choices = {model.__name__: model}
    for part in location:
        if len(choices) > 1 and part in choices:
            choices = {str(part): choices[str(part)]}
            continue
        fields = next(iter(choices.values())).model_fields if choices else {}
        if part in fields:
            choices = {found.__name__: found for found in models_in(fields[str(part)].annotation)}
        path += f"[{part}]" if isinstance(part, int) else f".{spell(part) if part in fields else part}"
    return path.lstrip("."), next(iter(choices.values()), model)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models inside of list[Model], dict[str, Model] or Model | None; more than one in a choice of models."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def _spelled(text: str, model: type[BaseModel], spell: Callable[[str], str]) -> str:
    """A text with the names of the model's fields as the user writes them."""
    names = sorted((name for name in model.model_fields if spell(name) != name), key=len, reverse=True)
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: spell(found[0]), text) if names else text


def quantity(value: object) -> str:
    """A quantity as the API server writes it back, so that a refresh finds no difference: 1, not 1000m.

    Raises:
        ValueError: it is no quantity.
    """
    text = str(value)
    amount = parse_quantity(text)
    if text.endswith("i") and amount.denominator == 1 and amount >= 1024:
        return format_quantity(amount)
    billionths = math.ceil(amount * 10**9)
    for suffix, power in (("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0), ("m", -3), ("u", -6)):
        whole = Fraction(billionths, 10 ** (power + 9))
        if billionths and whole.denominator == 1:
            return f"{whole}{suffix}"
    return f"{billionths}n" if billionths else "0"


def _positive_quantity(value: object) -> str:
    text = quantity(value)
    if parse_quantity(text) <= 0:
        raise ValueError("must be more than 0")
    return text


def _name(value: str) -> str:
    if len(value) > MAX_LABEL:
        raise ValueError(f"has {len(value)} characters, and {MAX_LABEL} are allowed")
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", value):
        raise ValueError("must be lower case letters, digits and dashes, from a letter on, with no dash at the end")
    return value


def _gpu_product(value: str) -> str:
    try:
        return product_by_name(value)
    except UnknownNameError as error:
        raise ValueError(str(error)) from None


def _machine_type(value: str) -> str:
    try:
        return machine_type(value).name
    except UnknownNameError as error:
        raise ValueError(str(error)) from None


Name = Annotated[str, AfterValidator(_name)]
"""A name of a Kubernetes object: lower case letters, digits and dashes, 63 characters at most."""

Quantity = Annotated[
    str, BeforeValidator(_positive_quantity), WithJsonSchema({"type": ["string", "number"], "minLength": 1})
]
"""An amount as Kubernetes writes it: 500m, 2, 16Gi. More than zero; made canonical."""

GpuProduct = Annotated[str, AfterValidator(_gpu_product)]
"""A GPU by any of its names; it becomes the label value that GPU Feature Discovery publishes."""

MachineTypeName = Annotated[
    str, AfterValidator(_machine_type), WithJsonSchema({"type": "string", "enum": sorted(MACHINE_TYPES)})
]
"""A machine type of the catalog."""


def derived(name: str, suffix: str, limit: int = MAX_LABEL) -> str:
    """A name made from another, within the limit of its kind.

    Raises:
        ValueError: it would be too long; the message says by how much.
    """
    full = f"{name}{suffix}"
    if len(full) > limit:
        raise ValueError(f'"{full}" has {len(full)} characters, and {limit} are allowed: shorten "{name}"')
    return full
