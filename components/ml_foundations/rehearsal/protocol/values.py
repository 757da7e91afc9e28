"""Property values as Python values and in Pulumi's gRPC messages.

They are dicts, lists, strings, numbers and booleans. A value that is not known before the update is
``UNKNOWN``. An output that must stay secret is wrapped in ``Secret``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from google.protobuf import struct_pb2

from ml_foundations.kubernetes.trees import UNKNOWN, map_leaves

Properties = dict[str, Any]

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key that marks special values in messages (pulumi/pulumi, sdk/go/common/resource/sig)."""
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
_OUTPUT_SIGNATURE = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_REDACTED = "[secret]"
UNKNOWN_ON_THE_WIRE = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


@dataclass(frozen=True)
class Secret:
    """An output that Pulumi encrypts in its state and hides in its display."""

    value: Any


def read_struct(struct: struct_pb2.Struct, nulls: bool = False) -> Properties:
    """Return a protobuf struct as a dict; ``nulls`` keeps nulls below the top level."""
    return {key: _read(value, nulls) for key, value in struct.items() if value is not None}


def _read(value: Any, nulls: bool) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, struct_pb2.ListValue):
        return [_read(item, nulls) for item in value]
    if not isinstance(value, struct_pb2.Struct):
        return UNKNOWN if value == UNKNOWN_ON_THE_WIRE else value
    items = value.items()
    properties = {key: _read(item, nulls) for key, item in items if nulls or item is not None}
    signature = properties.get(SIGNATURE)
    if signature == SECRET_SIGNATURE:
        return properties.get("value")
    if signature == _OUTPUT_SIGNATURE:
        return properties.get("value", UNKNOWN)
    return properties  # Other marked values, such as assets, stay as they are.


def kept_secret(value: Any, source: Any) -> Any:
    """Return a value, with a ``Secret`` at each path at which the source has a secret.

    ``source`` is a message's struct, in which secrets are marked.
    """
    if isinstance(source, struct_pb2.Struct):
        if SIGNATURE in source.fields:
            is_secret = source[SIGNATURE] == SECRET_SIGNATURE
            return Secret(value) if is_secret and not isinstance(value, Secret) else value
        if isinstance(value, Mapping):
            known = [key for key in value if key in source.fields]
            return {**value, **{key: kept_secret(value[key], source[key]) for key in known}}
    if isinstance(source, struct_pb2.ListValue) and isinstance(value, list):
        marked = list(map(kept_secret, value, source))
        return marked + value[len(marked) :]
    return value


def redacted(value: Any) -> Any:
    """Return a value as it may be written to a file: without its secrets."""
    return map_leaves(value, lambda part: _REDACTED if isinstance(part, Secret) else part)


def restored(value: Any, original: Any) -> Any:
    """Return a redacted value with the secrets of the original at the same paths."""
    if isinstance(value, Mapping) and isinstance(original, Mapping):
        return {key: restored(item, original.get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(original, list):
        return [restored(*pair) for pair in zip_longest(value, original[: len(value)])]
    return original if value == _REDACTED and original is not None else value


def write_struct(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return a dict as a protobuf struct."""
    struct = struct_pb2.Struct()
    struct.update(_as_message(properties))
    return struct


def _as_message(value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN_ON_THE_WIRE
    if isinstance(value, Secret):
        return {SIGNATURE: SECRET_SIGNATURE, "value": _as_message(value.value)}
    if isinstance(value, Mapping):
        return {key: _as_message(item) for key, item in value.items()}
    return list(map(_as_message, value)) if isinstance(value, list | tuple) else value
