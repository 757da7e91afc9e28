"""How a component checks its arguments: a frozen model, and every error at once, each with its path."""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Self, TypeVar, cast, get_args

import pulumi
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from ml_foundations.gke.machine_types import UnknownNameError, gpu_by_name, machine_type
from ml_foundations.planning.quantity import format_quantity, parse_quantity

MAX_LABEL = 63
"""The longest DNS label, and so the longest name of most objects (RFC 1123)."""


class ContradictionsError(ValueError):
    """Arguments that do not go together: each the name of a field, and why."""

    def __init__(self, found: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in found))
        self.found = found


class Spec(BaseModel):
    """Checked arguments: nothing unknown, nothing changes. Fields of type ``Any`` may hold Pulumi outputs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        pulumi.InputPropertiesError: an argument is wrong; the message lists every wrong one with path, value and
            what is allowed.
    """
    try:
        return spec.model_validate(dict(args))
    except ValidationError as error:
        details = [{"property_path": path, "reason": reason} for path, reason in explain(error, spec)]
        lines = "".join(f"\n  {item['property_path']}: {item['reason']}" for item in details)
        raise pulumi.InputPropertiesError(f"{component}: {len(details)} wrong argument(s):{lines}", details) from None  # pyright: ignore[reportArgumentType]


def explain(error: ValidationError, spec: type[BaseModel]) -> Iterable[tuple[str, str]]:
    """Each error as its path and a reason that names the value and the way out."""
    for item in error.errors():
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
        message = item["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, ContradictionsError):
            yield from ((f"{path}.{field}".lstrip("."), reason) for field, reason in cause.found)
        elif isinstance(item["input"], pulumi.Output):
            yield path, "is an Output; it must be known at preview: give a plain value"
        elif item["type"] == "extra_forbidden":
            yield path, _unknown(str(item["loc"][-1]), _fields_at(spec, item["loc"][:-1]))
        elif item["type"] == "missing":
            yield path, "is required"
        elif item["type"] == "string_too_long":
            allowed = item.get("ctx", {}).get("max_length")
            yield path, f"has {len(item['input'])} characters, and {allowed} are allowed"
        else:
            yield path, f"{message} (got {item['input']!r})"


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=2)
    return f"is not known. Did you mean {' or '.join(near)}?" if near else f"is not known. Known: {', '.join(known)}"


def _fields_at(spec: Any, location: tuple[int | str, ...]) -> list[str]:
    """The fields of the model at a place inside a model, under the names that the input uses."""
    for part in location:
        spec = _model_in(_inputs(spec)[part]) if part in _inputs(spec) else spec
    return sorted(map(str, _inputs(spec)))


def _inputs(spec: Any) -> dict[int | str, Any]:
    """The annotation of each input of a model."""
    return {field.alias or name: field.annotation for name, field in spec.model_fields.items()}


def _model_in(annotation: Any) -> Any:
    """The model inside of list[Model], dict[str, Model] or Model | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return cast("Any", annotation)
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


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
        return gpu_by_name(value).product
    except UnknownNameError as error:
        raise ValueError(str(error)) from None


def _machine_type(value: str) -> str:
    try:
        return machine_type(value).name
    except UnknownNameError as error:
        raise ValueError(str(error)) from None


Name = Annotated[str, AfterValidator(_name)]
"""A name of a Kubernetes object: lower case letters, digits and dashes, 63 characters at most."""

Quantity = Annotated[str, BeforeValidator(_positive_quantity)]
"""An amount as Kubernetes writes it: 500m, 2, 16Gi. More than zero; made canonical."""

GpuProduct = Annotated[str, AfterValidator(_gpu_product)]
"""A GPU by any of its names; it becomes the label value that GPU Feature Discovery publishes."""

MachineTypeName = Annotated[str, AfterValidator(_machine_type)]
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
