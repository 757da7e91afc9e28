"""Pulumi's protocol: the stubs that the SDK carries, without the SDK.

Each ``pulumi`` command starts a language host twice and every plugin once. Importing the whole SDK would take half of
such a start, and answering calls needs none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType


@contextmanager
def _bare_packages(*names: str) -> Iterator[None]:
    """Let the modules of these packages be imported without running the packages' own ``__init__``."""
    top = PathFinder.find_spec(names[0])
    if top is None or names[0] in sys.modules:
        yield
        return
    folders = list(top.submodule_search_locations or [])
    for name in names:
        package = ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")[1:])) for folder in folders]
        sys.modules[name] = package
    try:
        yield
    finally:
        # A later import of the SDK gets all of it, with the stubs that are already loaded.
        for name in names:
            del sys.modules[name]


with _bare_packages("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
    from pulumi.runtime.proto import (
        engine_pb2,
        engine_pb2_grpc,
        language_pb2,
        language_pb2_grpc,
        plugin_pb2,
        provider_pb2,
        provider_pb2_grpc,
        status_pb2,
    )

__all__ = [
    "engine_pb2",
    "engine_pb2_grpc",
    "language_pb2",
    "language_pb2_grpc",
    "plugin_pb2",
    "provider_pb2",
    "provider_pb2_grpc",
    "status_pb2",
]
