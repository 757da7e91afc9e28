"""The rules of planning by their ids, as stack files and policy packs name them."""

from collections.abc import Mapping

from ml_foundations.catalog.tables import rows

_ROWS = rows("rules.csv", "ml_foundations.planning.verdict")
RULES: Mapping[str, str] = {row["rule"]: row["wants"] for row in _ROWS}
"""What each rule wants."""
