"""Streams of YAML or JSON documents, parsed; those of a live cluster are tens of megabytes."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, cast

import yaml

from ml_foundations.kubernetes.objects import Manifest
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
_DEEPEST = 500
"""Levels of nesting: far more would crash the parsers. Kubernetes' objects have a tenth."""
_MOST_ALIASED = 100_000
"""The most values that aliases may repeat. Aliases of aliases repeat billions in a few lines."""
Loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
"""YAML as Kubernetes reads it: keys are text, and so are dates."""
_kept: dict[Any, list[Any]] = {}
for _first, _pairs in Loader.yaml_implicit_resolvers.items():
    _kept[_first] = [pair for pair in _pairs if "timestamp" not in pair[0]]
Loader.yaml_implicit_resolvers = _kept


def _mapping(loader: Any, node: Any) -> Iterator[dict[str, Any]]:
    """Yield a mapping whose keys are text, as kubectl converts them: true, not True."""
    mapping: dict[str, Any] = {}
    yield mapping
    for key, value in loader.construct_mapping(node).items():
        text = key if isinstance(key, str) else json.dumps(key, default=str).strip('"')
        mapping[sys.intern(text)] = value  # separate keys would be a fifth of the memory


Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse(text: str) -> list[tuple[int, str, Any]]:
    """Return each document of a stream with its number, and each item of a list with its path.

    Raises:
        yaml.YAMLError: It is no YAML, or nests without bounds.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return list(_flattened([json.loads(text)]))
        except (ValueError, RecursionError):
            pass
    if text.count("\n---") > _MOST_DOCUMENTS:
        raise yaml.YAMLError(f"it has more than {_MOST_DOCUMENTS:,} documents: judge them in parts")
    require_bounded(text)
    return _of_list(text) or list(_flattened(yaml.load_all(text, Loader=Loader)))


def problem(error: Exception) -> str:
    """Return the error of a parser in a line, without the text and the parser's name for it."""
    text = re.sub(r":\n.*\n *\^", "", str(error))
    return re.sub(r' in "<[a-z ]+>",', ", at", " ".join(text.split()))


def require_bounded(text: str) -> None:
    """Raise an error for YAML that would crash parsers or readers of their results.

    Raises:
        yaml.YAMLError: It nests too deeply, its aliases repeat too many values, or it is invalid.
    """
    sizes: dict[Any, int] = {}
    opened: list[list[Any]] = [["", 0]]
    aliased = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append([event.anchor, 1])
            # Until its end is read: an alias inside of it would never end.
            sizes[event.anchor] = _MOST_ALIASED + 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = opened.pop()
            sizes[anchor] = size
            opened[-1][1] += size
        elif isinstance(event, yaml.AliasEvent):
            aliased += sizes.get(event.anchor, 1)
            opened[-1][1] += sizes.get(event.anchor, 1)
        else:
            opened[-1][1] += 1
        if len(opened) > _DEEPEST:
            raise yaml.YAMLError(f"it nests more than {_DEEPEST} levels deep")
        if aliased > _MOST_ALIASED:
            raise yaml.YAMLError("it has too many aliases")


def _of_list(text: str) -> list[tuple[int, str, Any]]:
    """Return the items of a list that kubectl prints; nothing for other streams or invalid YAML.

    Each is parsed alone: for a whole document, PyYAML needs thirty times the memory of its text.
    """
    match = _LIST.fullmatch(text)
    if match is None:
        return []
    try:
        others: dict[str, Any] = yaml.load(match["before"] + match["after"], Loader=Loader) or {}
        parts = re.split(rf"(?<=\n)(?={match['dash']})", match["items"])
        items = [_pruned(item) for part in parts for item in yaml.load(part, Loader=Loader)]
        return list(_flattened([{"items": items, **others}]))
    except (TypeError, ValueError, yaml.YAMLError):
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
