"""API versions that Kubernetes has removed."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path


def warning(api_version: str, kind: str) -> str:
    """What to say of a kind of a version that is no longer served; nothing where it may be."""
    if not (row := _removed().get((api_version, kind))):
        return ""
    instead = f"Use {row['instead']}/{kind} instead" if row["instead"] else "Nothing takes its place"
    return f"{api_version}/{kind} was removed in Kubernetes {row['removed in']}. {instead}"


@cache
def _removed() -> dict[tuple[str, str], dict[str, str]]:
    with Path(__file__).with_name("removed.csv").open() as file:
        return {(row["apiVersion"], kind): row for row in csv.DictReader(file) for kind in row["kinds"].split()}
