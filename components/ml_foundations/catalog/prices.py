"""List prices of machine types and of the GPUs of N1 machines, by region, read from prices.csv."""

from collections.abc import Mapping
from decimal import Decimal
from functools import cache

from ml_foundations.catalog.tables import rows


def list_price(name: str, region: str, *, spot: bool = False) -> Decimal | None:
    """US dollars for an hour, on demand or as Spot VM; None where the list has none: no other region stands in.

    It is of a machine type, or of the accelerator type of an attached GPU, in a region such as us-central1; that of a
    Spot VM is the one at the date of the list.
    """
    amount = _prices().get((name, "spot" if spot else "on-demand"), {}).get(region)
    return Decimal(amount) if amount else None


@cache
def _prices() -> Mapping[tuple[str, str], Mapping[str, str]]:
    return {(row["name"], row["purchase"]): row for row in rows("prices.csv")}
