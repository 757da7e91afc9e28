"""Prices of what is billed besides machines: storage, clusters, addresses and Cloud NAT."""

from decimal import Decimal

from ml_foundations.catalog.tables import rows

HOURS_PER_MONTH = 730
"""A year's hours by twelve, as cloud price lists count a month."""
STAND_IN = "us-central1"
"""The region whose price counts, and is marked, if a region's price is not known."""
_CHARGES = {row["name"]: row for row in rows("charges.csv")}


def charge(name: str, region: str) -> tuple[Decimal, bool] | None:
    """Return US dollars per hour for a row of ``charges.csv``, and whether it is another region's.

    None is for a row that the table does not have.
    """
    row = _CHARGES.get(name)
    if row is None:
        return None
    known = row["everywhere"] or row.get(region)
    hours = HOURS_PER_MONTH if row["unit"] == "GiB-month" else 1
    return Decimal(known or row[STAND_IN]) / hours, not known
