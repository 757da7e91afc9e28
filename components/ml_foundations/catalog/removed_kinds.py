"""Kinds of Kubernetes in versions that it no longer serves."""

from functools import cache

from ml_foundations.catalog.tables import rows


@cache
def removal(api_version: str, kind: str) -> str:
    """Return the message that Kubernetes has removed a kind; empty if it may be served."""
    for row in rows("removed_kinds.csv"):
        if row["apiVersion"] == api_version and kind in row["kinds"].split():
            replacement = row["instead"]
            fix = f"Use {replacement}/{kind} instead" if replacement else "It has no replacement"
            return f"{api_version}/{kind} was removed in Kubernetes {row['removed in']}. {fix}"
    return ""
