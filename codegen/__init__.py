"""Generators of what follows from the components' specs; ``python -m codegen`` runs them all."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ml_foundations.component.spec import ComponentSpec, Spec

# Only generators need the docstrings of arguments. A program would read its source for nothing.
for base in (Spec, ComponentSpec):
    base.model_config["use_attribute_docstrings"] = True
ROOT = Path(__file__).parents[1]


def write(files: Mapping[Path, str]) -> None:
    """Write generated files. With the argument --check, fail if a file is not current instead."""
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if stale and "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"not current: {names}. Run make generate")
    for path in stale:
        path.write_text(files[path])
