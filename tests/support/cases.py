"""Tables of cases in YAML: short where the arguments are nested."""

from typing import Any

import pytest
from ml_foundations.kubernetes.reading import documents


def cases(table: str) -> list[Any]:
    """The cases of a parametrized test: by its id, the list of a case's arguments."""
    [rows] = documents(table, unique_keys=True)
    return [pytest.param(*arguments, id=name) for name, arguments in rows.items()]
