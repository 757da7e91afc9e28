"""Generators of what follows from the components' specs; ``python -m codegen`` runs them all."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ml_foundations.component.spec import ComponentSpec, Spec

# Only what is generated has the docstrings of arguments: programs would read their own source for nothing.
for base in (Spec, ComponentSpec):
    base.model_config["use_attribute_docstrings"] = True
ROOT = Path(__file__).parents[1]


def write(files: Mapping[Path, str]) -> None:
    """Write what is generated; with the argument --check end the program instead if a file is not current."""
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if stale and "--check" in sys.argv:
        sys.exit(
            f"not current: {', '.join(str(path.relative_to(ROOT)) for path in stale)}; run: make generate"
        )
    for path in stale:
        path.write_text(files[path])
