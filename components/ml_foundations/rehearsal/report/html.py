"""HTML elements: whatever is not an element already is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; ``class_`` is the attribute class, ``aria_label`` is aria-label, and None leaves one out."""
    given = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    shown = "".join(f' {key}="{escape(str(value))}"' for key, value in given)
    return Html(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(children: Iterable[object]) -> Html:
    """Elements and texts one after another; a list stands for what is in it."""
    return Html("".join(_text(child) for child in children))


def _text(child: object) -> str:
    if isinstance(child, Html):
        return child
    if isinstance(child, list | tuple):
        return joined(child)
    return escape(str(child))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table whose first cells head their rows. On a narrow screen they become cards, and stay rows to a reader."""
    head = tag("tr", [tag("th", column, scope="col", role="columnheader") for column in columns], role="row")
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", role="rowheader"),
            [
                tag("td", cell, role="cell", data_label=column)
                for column, cell in zip(columns[1:], row[1:], strict=True)
            ],
            role="row",
        )
        for row in rows
    ]
    return tag(
        "table",
        tag("caption", title, class_="unseen"),
        tag("thead", head, role="rowgroup"),
        tag("tbody", body, role="rowgroup"),
        role="table",
    )


def folded(title: object, *children: object, is_open: bool = False) -> Html:
    """What opens by a click or by the keyboard."""
    return tag("details", tag("summary", title), *children, open="" if is_open else None)
