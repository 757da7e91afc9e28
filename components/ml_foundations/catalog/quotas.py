"""The quotas of Google Cloud by what takes from them."""

from collections.abc import Mapping
from functools import cache

from ml_foundations.catalog.tables import rows


def quota(kind: str, name: str) -> Mapping[str, str]:
    """Return the row of the quota that a thing takes from, such as a gpu of the type nvidia-l4."""
    return _quotas().get(f"{kind}/{name}") or _quotas()[f"{kind}/*"]


@cache
def _quotas() -> Mapping[str, Mapping[str, str]]:
    return {row["what"]: row for row in rows("quotas.csv")}
