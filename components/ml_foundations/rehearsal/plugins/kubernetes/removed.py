"""API versions that Kubernetes has removed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ml_foundations.catalog.tables import rows


def warning(api_version: str, kind: str) -> str:
    """What to say of a kind of a version that is no longer served; nothing where it may be."""
    if not (row := _removed().get((api_version, kind))):
        return ""
    instead = f"Use {row['instead']}/{kind} instead" if row["instead"] else "Nothing takes its place"
    return f"{api_version}/{kind} was removed in Kubernetes {row['removed in']}. {instead}"


@cache
def _removed() -> Mapping[tuple[str, str], Mapping[str, str]]:
    found = rows("removed.csv", "ml_foundations.rehearsal.plugins.kubernetes")
    return {(row["apiVersion"], kind): row for row in found for kind in row["kinds"].split()}
