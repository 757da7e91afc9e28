"""List images, charts and prices that were checked long ago: ``python -m tools.outdated``."""

import csv
from datetime import date, timedelta
from typing import NamedTuple

from ml_foundations.catalog.tables import rows

from tools import ROOT

MOST_AGE = timedelta(days=90)
"""The age of a check after which an entry is listed."""


class Version(NamedTuple):
    """A row of images.csv: an image or a chart, and the date of its last check."""

    name: str
    version: str
    digest: str
    checked: date
    source: str
    note: str

    @property
    def references(self) -> set[str]:
        """The ways in which an image may be named: by its tag, and by tag and digest."""
        tagged = f"{self.name}:{self.version}" if self.version else self.name
        return {tagged, f"{tagged}@{self.digest}"} if self.digest else {tagged}


def versions() -> list[Version]:
    """Return the images and charts of the package, stacks, examples and docs."""
    with (ROOT / "tools" / "images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [Version(**{**row, "checked": date.fromisoformat(row["checked"])}) for row in rows]


def prices() -> list[Version]:
    """Return the tables of prices, one for each source and date."""
    tables: set[tuple[str, str, str]] = set()
    for table in ("prices.csv", "charges.csv"):
        tables.update((table, row["source"], row["source_date"]) for row in rows(table))
    return [
        Version(table, "", "", date.fromisoformat(checked), source, "")
        for table, source, checked in sorted(tables)
    ]


def outdated(today: date) -> list[Version]:
    """Return the entries that were last checked more than 90 days ago, oldest first."""
    checked = [*versions(), *prices()]
    old = [entry for entry in checked if today - entry.checked > MOST_AGE]
    return sorted(old, key=lambda entry: entry.checked)


def main() -> None:
    """Print a line for each outdated entry."""
    entries = outdated(date.today())
    for entry in entries:
        name = f"{entry.name} {entry.version}".rstrip()
        print(f"{name}: checked {entry.checked}, {entry.source}. {entry.note}".rstrip(" ."))
    if not entries:
        print(f"every image, chart and price was checked in the last {MOST_AGE.days} days")


if __name__ == "__main__":
    main()
