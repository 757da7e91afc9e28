"""Quantities are exact, and what is not one is refused."""

from fractions import Fraction

import pytest
from ml_foundations.kubernetes.quantities import format_quantity, milli, parse_quantity, readable


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", 1),
        (2, 2),
        (0.5, Fraction(1, 2)),
        ("100m", Fraction(1, 10)),
        ("1500u", Fraction(1500, 10**6)),
        ("7n", Fraction(7, 10**9)),
        ("0.1", Fraction(1, 10)),
        (".5Gi", 2**29),
        ("1.", 1),
        ("1k", 1000),
        ("16Gi", 16 * 2**30),
        ("3M", 3 * 10**6),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", Fraction(12, 10)),
        (" 5", 5),  # the API server trims it
        ("+5", 5),
        ("-1Ki", -1024),
    ],
)
def test_parse(text: str | int | float, amount: Fraction | int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1K", "1e", "1.2.3", "five", "1mi", "1\n", "1e1Ki", "٣"]
)
def test_refuse(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["0", "1", "3Gi", "1500m", "1025", "5Ki", "250m"])
def test_format_says_what_was_parsed(text: str) -> None:
    assert format_quantity(parse_quantity(text)) == text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("1024", "1024"),
        ("8Ki", "8192"),
        ("16Ki", "16Ki"),
        ("1500m", "1500m"),
        ("-2Ki", "-2048"),
        ("1885335478Ki", "1798Gi"),
    ],
)
def test_people_read_small_amounts_as_numbers(given: str, shown: str) -> None:
    assert readable(milli(given)) == shown
