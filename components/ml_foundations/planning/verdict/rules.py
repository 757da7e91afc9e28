"""The rules of planning by their ids, as stack files and policy packs name them."""

from collections.abc import Mapping

from ml_foundations.catalog.tables import rows

RULES: Mapping[str, str] = {r["rule"]: r["wants"] for r in rows("rules.csv", "ml_foundations.planning.verdict")}
"""What each rule wants."""
