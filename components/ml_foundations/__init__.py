"""GPU infrastructure for ML on Kubernetes, as Pulumi components.

Names are loaded when they are first used: importing the package costs nothing. Type checkers read
``__init__.pyi``.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

COMPONENTS = dict(
    row.split(",") for row in Path(__file__).with_name("components.csv").read_text().split()
)
"""Every component and its module. The component host, the schema, the types and the pages follow
from it."""

OTHERS = {"KnownOutput": "component.outputs", "Mount": "typed_args", "Proof": "proof"}
"""What else programs use, and its module."""

__all__ = [*COMPONENTS, *(f"{name}Args" for name in COMPONENTS), *OTHERS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name.endswith("Args"):
        return getattr(import_module(f"{__name__}.typed_args"), name)
    if name in OTHERS:
        return getattr(import_module(f"{__name__}.{OTHERS[name]}"), name)
    if name not in COMPONENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{COMPONENTS[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "COMPONENTS", "__version__"]
