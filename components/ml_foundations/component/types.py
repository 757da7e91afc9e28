"""Types of arguments: what each allows, and what it makes of what was given."""

import re
from collections.abc import Callable
from decimal import Decimal
from ipaddress import IPv4Network
from typing import Annotated, Any, cast

import pulumi
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from ml_foundations.catalog.locations import REGION, is_region, is_zone, region_of
from ml_foundations.catalog.machine_types import MACHINE_TYPES, accelerator
from ml_foundations.kubernetes.quantities import canonical_quantity, parse_quantity

MAX_LABEL = 63
"""The longest DNS label, and so the longest name of most objects (RFC 1123)."""


class InputOf:
    """A mark of a value that may be an Output, with the type that it then has."""

    def __init__(self, type_: type) -> None:
        self.type = type_

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check what is plain; neither check nor copy an output."""
        written = core_schema.plain_serializer_function_ser_schema(lambda value: value)
        return core_schema.no_info_wrap_validator_function(
            _unless_output, handler(source), serialization=written
        )


def _unless_output(value: Any, check: Callable[[Any], Any]) -> Any:
    return cast("Any", value) if isinstance(value, pulumi.Output) else check(value)


InputStr = Annotated[Any, InputOf(str)]
"""A string that may be an output of another resource."""

InputText = Annotated[str, InputOf(str)]
"""The same where it is only handed on: the code that reads it must not look inside."""

NonEmpty = Annotated[str, Field(min_length=1), InputOf(str)]
"""A string that is only handed on, of one character at least."""


def concat(*parts: Any) -> Any:
    """Return texts joined into one, which is an Output if any of them is."""
    has_output = any(isinstance(part, pulumi.Output) for part in parts)
    return pulumi.Output.concat(*parts) if has_output else "".join(parts)


def derived(name: str, suffix: str, limit: int = MAX_LABEL) -> str:
    """Make a name from another, within the limit of its kind.

    Raises:
        ValueError: It would be too long; the message says by how much.
    """
    full = concat(name, suffix)
    if isinstance(full, str) and len(full) > limit:
        reason = f'"{full}" has {len(full)} characters, and {limit} are allowed'
        raise ValueError(f'{reason}: shorten "{name}"')
    return full


def _plain(value: object) -> object:
    """Refuse what a type would write as text: an Output prints a warning then."""
    if isinstance(value, str | int | float | Decimal | IPv4Network):
        return value
    raise ValueError("must be a single value, known at preview")


Cidr = Annotated[IPv4Network, BeforeValidator(_plain)]
"""A range of addresses, such as 10.0.0.0/20."""


_OF_BYTES = ("memory", "scratch", "size", "storage", "volume")
"""The last words of arguments that are numbers of bytes."""


def _positive_quantity(value: object, info: ValidationInfo) -> str:
    text = canonical_quantity(value)
    amount = parse_quantity(text)
    if amount <= 0:
        raise ValueError("must be more than 0")
    if amount < 1024 and (info.field_name or "").endswith(_OF_BYTES):
        number = re.match("[0-9.]*", text)
        raise ValueError(f"is {text} bytes. Did you mean {number and number[0]}Gi?")
    return text


def _name(value: str) -> str:
    if len(value) > MAX_LABEL:
        raise ValueError(f"has {len(value)} characters, and {MAX_LABEL} are allowed")
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", value):
        characters = "lower case letters, digits and dashes"
        raise ValueError(f"must be {characters}, from a letter on, without a dash at the end")
    return value


Name = Annotated[str, AfterValidator(_name)]
"""A name of a Kubernetes object: lower case letters, digits and dashes, 63 characters at most."""

InputName = Annotated[Name, InputOf(str)]
"""The same, or an output; the code that reads it must not look inside."""


def _region(value: str) -> str:
    if is_zone(value):
        raise ValueError(f"{value} is a zone; write {region_of(value)}")
    if not is_region(value):
        raise ValueError(f"must be a region, such as us-central1, not {value!r}")
    return value


Region = Annotated[
    str, AfterValidator(_region), WithJsonSchema({"type": "string", "pattern": f"^{REGION}$"})
]
"""The name of a region of Google Cloud."""


def _bucket_name(value: str) -> str:
    # With dots, 222 characters are allowed, with 63 between two dots. "_" is each bucket that
    # Cloud Storage FUSE may read.
    pattern = r"_|[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]"
    if not re.fullmatch(pattern, value) or max(map(len, value.split("."))) > MAX_LABEL:
        characters = "3 to 63 lower case letters, digits, dashes, underscores and dots"
        raise ValueError(f"is {value!r}; a name of a bucket has {characters}, and no gs://")
    return value


BucketName = Annotated[str, AfterValidator(_bucket_name), InputOf(str)]
"""The name of a Cloud Storage bucket (Cloud Storage, "Bucket names"), or an output."""

Quantity = Annotated[
    str,
    BeforeValidator(_positive_quantity),
    BeforeValidator(_plain),
    WithJsonSchema({"type": ["string", "number"], "minLength": 1}),
]
"""An amount as Kubernetes writes it: 500m, 2, 16Gi. More than zero; made canonical."""


def _gpu_name(name: str) -> str:
    return accelerator(name).name


GpuName = Annotated[str, AfterValidator(_gpu_name)]
"""A GPU by any of its names; it becomes the one name by which its labels are derived."""


def _gpu_names(value: object) -> str | list[str]:
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("must be a GPU model, or a list of accepted models")
    gpus = [_gpu_name(name) for name in cast("list[str]", names)]
    return gpus if isinstance(value, list) else gpus[0]


GpuNames = Annotated[str | list[str], BeforeValidator(_gpu_names)]
"""One GPU model or several accepted ones, each by any of its names."""

_MACHINE_TYPES = {"type": "string", "examples": sorted(MACHINE_TYPES)}
MachineTypeName = Annotated[str, WithJsonSchema(_MACHINE_TYPES)]
"""A machine type of Compute Engine."""
