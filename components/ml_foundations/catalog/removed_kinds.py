"""Kinds of Kubernetes in versions that it no longer serves."""

from functools import cache
from typing import NamedTuple

from ml_foundations.catalog.tables import rows


class Removal(NamedTuple):
    """A removed kind, and what to write instead, as sentences without full stops."""

    what: str
    fix: str


def removal(api_version: str, kind: str) -> str:
    """Return the message that Kubernetes has removed a kind; empty if it may be served."""
    return ". ".join(removal_of(api_version, kind) or ())


@cache
def removal_of(api_version: str, kind: str) -> Removal | None:
    """Return the removal of a kind from Kubernetes; None if it may be served."""
    for row in rows("removed_kinds.csv"):
        if row["apiVersion"] == api_version and kind in row["kinds"].split():
            replacement = row["instead"]
            fix = f"Use {replacement}/{kind} instead" if replacement else "It has no replacement"
            what = f"{api_version}/{kind} was removed in Kubernetes {row['removed in']}"
            return Removal(what, fix)
    return None
