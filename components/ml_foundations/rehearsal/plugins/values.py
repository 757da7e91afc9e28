"""Property values: in plain Python, and on Pulumi's wire.

They are dicts, lists, strings, numbers and booleans. A value that is not known before the update is ``UNKNOWN``; an
output that must be kept secret is wrapped in ``Secret``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import struct_pb2

Properties = dict[str, Any]

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key that marks special values on Pulumi's wire (pulumi/pulumi, sdk/go/common/resource/sig)."""
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
_OUTPUT_SIGNATURE = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN_ON_THE_WIRE = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


class _Unknown:
    """The type of UNKNOWN."""

    def __repr__(self) -> str:
        return "<unknown>"

    def __deepcopy__(self, memo: Any) -> _Unknown:
        # There is but one: it is told by its identity.
        return self


UNKNOWN = _Unknown()
"""A value that is known only after the update."""


@dataclass(frozen=True)
class Secret:
    """An output that Pulumi encrypts in its state and hides in its display."""

    value: Any


def read_struct(struct: struct_pb2.Struct, nulls: bool = False) -> Properties:
    """A protobuf struct as a dict, without null properties; ``nulls`` keeps those below the top level."""
    return {key: _read(value, nulls) for key, value in struct.fields.items() if not _is_null(value)}


def _read(value: struct_pb2.Value, nulls: bool) -> Any:
    match value.WhichOneof("kind"):
        case "string_value":
            return UNKNOWN if value.string_value == UNKNOWN_ON_THE_WIRE else value.string_value
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "bool_value":
            return value.bool_value
        case "list_value":
            return [_read(item, nulls) for item in value.list_value.values]
        case "struct_value":
            fields = value.struct_value.fields.items()
            return _read_special({key: _read(item, nulls) for key, item in fields if nulls or not _is_null(item)})
        case _:
            return None


def _is_null(value: struct_pb2.Value) -> bool:
    return value.WhichOneof("kind") == "null_value"


def _read_special(properties: Properties) -> Any:
    """Unwrap secrets and outputs; other marked values (assets) stay as they are."""
    if properties.get(SIGNATURE) == SECRET_SIGNATURE:
        return properties.get("value")
    if properties.get(SIGNATURE) == _OUTPUT_SIGNATURE:
        return properties.get("value", UNKNOWN)
    return properties


def write_struct(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """A dict as a protobuf struct."""
    return struct_pb2.Struct(fields={key: _write(value) for key, value in properties.items()})


def _write(value: Any) -> struct_pb2.Value:
    if value is UNKNOWN:
        return struct_pb2.Value(string_value=UNKNOWN_ON_THE_WIRE)
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(value, Secret):
        return _write({SIGNATURE: SECRET_SIGNATURE, "value": value.value})
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, int | float):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, Mapping):
        return struct_pb2.Value(struct_value=write_struct(value))
    if isinstance(value, list | tuple):
        return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_write(item) for item in value]))
    raise TypeError(f"no property value: {value!r}")


def has_unknown(value: Any) -> bool:
    """Whether any part of a value is not known yet."""
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(has_unknown(item) for item in value)
    return value is UNKNOWN
