"""Imports run one way: a package or folder imports only what is above it in its list."""

import ast
from collections.abc import Iterator
from pathlib import Path

import ml_foundations
import pytest

ROOT = Path(ml_foundations.__file__).parent
COMPONENTS = ("gke", "gpu", "storage", "tenancy", "workloads")
LAYERS = {
    "": (
        "kubernetes",
        "catalog",
        "component",
        "kinds",
        "models",
        *COMPONENTS,
        "planning",
        "proof",
        "rehearsal",
    ),
    "planning": ("model", "input", "scheduler", "api_server", "rules", "verdict"),
    "rehearsal": ("tools", "control_plane", "cloud", "protocol", "plugins", "engine", "report"),
}
"""Packages and folders, each after those that it may import."""
PURE = ("kubernetes", "catalog", "kinds", "models", "planning")
"""Packages that know neither Pulumi nor components."""


def imports(file: Path) -> Iterator[list[str]]:
    """Yield the parts of the names of the package's own modules that a file imports."""
    for statement in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(statement, ast.ImportFrom) and statement.module:
            names = [f"{statement.module}.{alias.name}" for alias in statement.names]
        elif isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        for name in names:
            first, *path = name.split(".")
            if first == "ml_foundations" and path:
                yield path


def files(layer: Path) -> list[Path]:
    return [layer.with_suffix(".py")] if not layer.is_dir() else list(layer.rglob("*.py"))


@pytest.mark.parametrize("package", LAYERS)
def test_a_layer_imports_only_those_above_it(package: str) -> None:
    layers, depth = LAYERS[package], len(Path(package).parts)
    checked = [(layer, file) for layer in layers for file in files(ROOT / package / layer)]
    assert len(checked) > 30
    wrong = {
        f"{file.relative_to(ROOT)} imports {'.'.join(path)}"
        for layer, file in checked
        for path in imports(file)
        if path[:depth] == list(Path(package).parts)
        and path[depth] in layers[layers.index(layer) + 1 :]
    }
    assert not wrong


@pytest.mark.parametrize("package", PURE)
def test_a_pure_package_imports_pure_packages_alone(package: str) -> None:
    assert {path[0] for file in files(ROOT / package) for path in imports(file)} <= {*PURE}


def test_every_package_and_folder_has_its_place() -> None:
    for package, layers in LAYERS.items():
        folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert folders <= {*layers}
