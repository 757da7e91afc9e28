"""The tables of agreement in docs/proof.md: each stands between two comments and is written by a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.support.checkout import CHECKOUT

PAGE = CHECKOUT / "docs" / "proof.md"


def write(name: str, command: str, text: str, page: Path = PAGE) -> None:
    """Put the table of one generator in its place, with the command that made it and today's date.

    Raises:
        ValueError: the page has no place for it.
    """
    before, opening, rest = page.read_text().partition(f"<!-- {name} -->\n")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    if not (opening and closing):
        raise ValueError(f"{page} has no place for the table {name}")
    today = datetime.now(UTC).date().isoformat()
    page.write_text(
        f"{before}{opening}On {today}, `{command}` printed:\n\n{text}\n{closing}{after}"
    )
