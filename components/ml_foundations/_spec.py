"""How a component checks its arguments: a frozen model, and every error at once, each with its path."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar, cast, get_args

import pulumi
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ml_foundations.gke.machine_types import UnknownNameError, gpu_by_name, machine_type
from ml_foundations.planning.quantity import parse_quantity

MAX_LABEL = 63
"""The longest DNS label, and so the longest name of most objects (RFC 1123)."""


class Spec(BaseModel):
    """Checked arguments: nothing unknown, nothing changes. Fields of type ``Any`` may hold Pulumi outputs."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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
        if item["type"] == "extra_forbidden":
            yield path, _unknown(str(item["loc"][-1]), _fields_at(spec, item["loc"][:-1]))
        elif item["type"] == "missing":
            yield path, "is required"
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


def _quantity(value: object) -> str:
    text = str(value)
    if parse_quantity(text) <= 0:
        raise ValueError("must be more than 0")
    return text


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


Name = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=MAX_LABEL)]
"""A name of a Kubernetes object: lower case letters, digits and dashes, 63 characters at most."""

Quantity = Annotated[str, BeforeValidator(_quantity)]
"""An amount as Kubernetes writes it: 500m, 2, 16Gi. More than zero."""

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
