"""Classes of Pulumi's SDKs, each imported by itself: its package would import the hundreds that lie beside it.

Of a program's processor time, that was a quarter.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


@cache
def class_of(path: str) -> Any:
    """A class of an SDK by its path, such as ``pulumi_gcp.compute.Network``; None where there is none."""
    from pydantic.alias_generators import to_snake  # what takes no class, such as a plugin, does without pydantic

    package, _, name = path.rpartition(".")
    import_module(package.partition(".")[0])
    with bare_packages(package), suppress(ModuleNotFoundError):
        file = name if package.startswith("pulumi_kubernetes") else to_snake(name)
        return getattr(import_module(f"{package}.{file}"), name)
    with suppress(ModuleNotFoundError):
        return getattr(import_module(package), name, None)
    return None


@contextmanager
def bare_packages(*names: str) -> Generator[None]:
    """Let the modules of these packages be imported without running the packages' own ``__init__``."""
    top, before = PathFinder.find_spec(names[0].partition(".")[0]), {name: sys.modules.get(name) for name in names}
    # A package that is there whole is of this type; one that is to be imported lazily is of another.
    if top is None or type(before[names[0]]) is ModuleType:
        yield
        return
    for name in names:
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")[1:])) for folder in top.submodule_search_locations or ()]
    try:
        yield
    finally:
        # A later import of the package gets all of it, with the modules that are already loaded.
        for name, package in before.items():
            bare = sys.modules.pop(name)
            if package is not None:
                sys.modules[name] = package
                # Not those that are named as their classes, whose place in the package they would take.
                for key, value in vars(bare).items():
                    if isinstance(value, ModuleType) and key.islower():
                        setattr(package, key, value)
