"""Streams of YAML or JSON documents, parsed; those of a live cluster are tens of megabytes."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.kubernetes.reading import (
    ReadError,
    bounded_documents,
    json_value,
    require_bounded,
)
from ml_foundations.kubernetes.trees import is_mapping

_LIST = re.compile(
    r"(?P<before>(?:---\n)?(?:(?:apiVersion|kind): \w+\n)*)items:\n"
    r"(?=(?P<dash> *- ))(?P<items>(?:(?:- | ).*\n|\n)++)"
    r"(?P<after>(?:\w.*+\n?+(?:[\w ].*+\n?+)*+)?)"
)
"""A list as kubectl prints it."""
_IGNORED = (("metadata", "managedFields"), ("status", "images"))
"""Fields that decide nothing and are the larger part of what a live cluster prints."""
_MOST_DOCUMENTS = 60_000
"""With more small ones than these, planning takes more than half a gigabyte of memory."""


def parse(text: str) -> list[tuple[int, str, Any]]:
    """Return each document of a stream with its number, and each item of a list with its path.

    Raises:
        ReadError: It is no YAML, or has no bounds.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return list(_flattened([json_value(text)]))
        except ReadError:
            pass  # YAML in the style of JSON
    if text.count("\n---") > _MOST_DOCUMENTS:
        raise ReadError(f"it has more than {_MOST_DOCUMENTS:,} documents: judge them in parts")
    require_bounded(text)
    return _of_list(text) or list(_flattened(bounded_documents(text)))


def _of_list(text: str) -> list[tuple[int, str, Any]]:
    """Return the items of a list that kubectl prints; nothing for other streams or invalid YAML.

    Each is parsed alone: for a whole document, PyYAML needs thirty times the memory of its text.
    """
    match = _LIST.fullmatch(text)
    if match is None:
        return []
    try:
        [others] = bounded_documents(match["before"] + match["after"]) or [{}]
        parts = re.split(rf"(?<=\n)(?={match['dash']})", match["items"])
        items = [_pruned(item) for part in parts for item in bounded_documents(part)[0]]
        return list(_flattened([{"items": items, **(others or {})}]))
    except (IndexError, TypeError, ValueError):
        return []


def _flattened(documents: Iterable[Any]) -> Iterator[tuple[int, str, Any]]:
    for number, document in enumerate(documents, start=1):
        for path, item in _below(document, ""):
            yield number, path, item


def _below(document: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a document with its path, or the items of a list and of the lists in it."""
    holder: Manifest = document if is_mapping(document) else {}
    listed = holder.get("items")
    if isinstance(listed, list) and str(holder.get("kind", "")).endswith("List"):
        for index, item in enumerate(cast("list[Any]", listed)):
            yield from _below(item, f"{path}items[{index}].")
    elif document is not None or path:
        yield path, _pruned(document)


def _pruned(document: Any) -> Any:
    for holder, field in _IGNORED if isinstance(document, dict) else ():
        if isinstance(section := cast("dict[str, Any]", document).get(holder), dict):
            cast("dict[str, Any]", section).pop(field, None)
    return cast("Any", document)
