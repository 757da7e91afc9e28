"""The longest names of kinds whose controllers lengthen them (``name_limits.csv``)."""

from collections.abc import Mapping

from ml_foundations.catalog.tables import rows

MOST_CHARACTERS: Mapping[str, int] = {
    row["kind"]: int(row["most"]) for row in rows("name_limits.csv")
}
"""The most characters in the name of an object, by its kind."""
