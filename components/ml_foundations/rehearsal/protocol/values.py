"""Property values: in plain Python, and on Pulumi's wire.

They are dicts, lists, strings, numbers and booleans. A value that is not known before the update is ``UNKNOWN``; an
output that must be kept secret is wrapped in ``Secret``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from google.protobuf import struct_pb2

from ml_foundations.kubernetes.trees import UNKNOWN, map_leaves

Properties = dict[str, Any]

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key that marks special values on Pulumi's wire (pulumi/pulumi, sdk/go/common/resource/sig)."""
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
_OUTPUT_SIGNATURE = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_REDACTED = "[secret]"
UNKNOWN_ON_THE_WIRE = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


@dataclass(frozen=True)
class Secret:
    """An output that Pulumi encrypts in its state and hides in its display."""

    value: Any


def read_struct(struct: struct_pb2.Struct, nulls: bool = False) -> Properties:
    """A protobuf struct as a dict, without null properties; ``nulls`` keeps those below the top level."""
    return {key: _read(value, nulls) for key, value in struct.items() if value is not None}


def _read(value: Any, nulls: bool) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, struct_pb2.ListValue):
        return [_read(item, nulls) for item in value]
    if isinstance(value, struct_pb2.Struct):
        return _read_special(
            {key: _read(item, nulls) for key, item in value.items() if nulls or item is not None}
        )
    return UNKNOWN if value == UNKNOWN_ON_THE_WIRE else value


def _read_special(properties: Properties) -> Any:
    """Unwrap secrets and outputs; other marked values (assets) stay as they are."""
    if properties.get(SIGNATURE) == SECRET_SIGNATURE:
        return properties.get("value")
    if properties.get(SIGNATURE) == _OUTPUT_SIGNATURE:
        return properties.get("value", UNKNOWN)
    return properties


def kept_secret(value: Any, given: Any) -> Any:
    """A value with what was secret where it was given, at the same path, kept secret."""
    if isinstance(given, struct_pb2.Struct):
        if SIGNATURE in given.fields:
            is_secret = given[SIGNATURE] == SECRET_SIGNATURE
            return Secret(value) if is_secret and not isinstance(value, Secret) else value
        if isinstance(value, Mapping):
            return {
                key: kept_secret(item, given[key]) if key in given.fields else item
                for key, item in value.items()
            }
    if isinstance(given, struct_pb2.ListValue) and isinstance(value, list):
        known = [kept_secret(item, source) for item, source in zip(value, given, strict=False)]
        return known + value[len(known) :]
    return value


def redacted(value: Any) -> Any:
    """A value as it may be written down: without what is secret."""
    return map_leaves(value, lambda part: _REDACTED if isinstance(part, Secret) else part)


def restored(value: Any, known: Any) -> Any:
    """A value that was written down, with what is secret as it is known elsewhere."""
    if isinstance(value, Mapping) and isinstance(known, Mapping):
        return {key: restored(item, known.get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(known, list):
        return [restored(item, other) for item, other in zip_longest(value, known[: len(value)])]
    return known if value == _REDACTED and known is not None else value


def write_struct(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """A dict as a protobuf struct."""
    struct = struct_pb2.Struct()
    struct.update(_plain(properties))
    return struct


def _plain(value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN_ON_THE_WIRE
    if isinstance(value, Secret):
        return {SIGNATURE: SECRET_SIGNATURE, "value": _plain(value.value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
