"""Reads the CSV files of the catalog. An empty cell is what is not known: None."""

import csv
from decimal import Decimal
from importlib.resources import files


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file beside this module."""
    lines = files("ml_foundations.catalog").joinpath(name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines))


def text(value: str) -> str | None:
    """A cell of text."""
    return value or None


def integer(value: str) -> int | None:
    """A cell with a whole number."""
    return int(value) if value else None


def decimal(value: str) -> Decimal | None:
    """A cell with an amount of money."""
    return Decimal(value) if value else None
