"""CSV files of the package: those next to this module with each row as a dataclass."""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from fractions import Fraction
from functools import cache, partial
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

T = TypeVar("T")


def _numbers(text: str, number: Callable[[str], T]) -> Mapping[str, T]:
    pairs = (part.rsplit(":", 1) for part in text.split())
    return MappingProxyType({name: number(value) for name, value in pairs})


def _number_groups(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, part.split(":"))) for part in text.split())


_READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "bool": "yes".__eq__,
    "Fraction": Fraction,
    "Mapping[str, int]": partial(_numbers, number=int),
    "Mapping[str, Fraction]": partial(_numbers, number=Fraction),
    "tuple[str, ...]": lambda text: tuple(text.split()),
    "tuple[int, int]": lambda text: tuple(map(int, text.split("."))),
    "tuple[tuple[int, ...], ...]": _number_groups,
}
"""What a cell becomes, by the annotation of its field."""


def table(name: str, kind: type[T]) -> Mapping[str, T]:
    """Return the rows of a file by the value of their first column.

    The fields of the dataclass are columns; its module annotates them as text (``annotations``).
    """
    columns = {field.name: _reader(str(field.type)) for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    by_first_column: dict[str, T] = {}
    for row in rows(name):
        cells = {key: read(row[key]) for key, read in columns.items()}
        by_first_column[next(iter(cells.values()))] = kind(**cells)
    return MappingProxyType(by_first_column)


def rows(name: str, package: str = "ml_foundations.catalog") -> Iterator[Mapping[str, str]]:
    """Return the rows of a file as text, by column. Lines that begin with # are comments."""
    lines = files(package).joinpath(name).read_text(encoding="utf-8").splitlines()
    return csv.DictReader(line for line in lines if not line.startswith("#"))


def _reader(annotation: str) -> Callable[[str], Any]:
    """Return the function that converts a cell, by the annotation of its field."""
    # Most cells are as others above them.
    read = cache(_READERS[annotation.removesuffix(" | None")])
    return (lambda text: read(text) if text else None) if annotation.endswith(" | None") else read
