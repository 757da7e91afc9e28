"""Streams of YAML or JSON documents, parsed; those of a live cluster are tens of megabytes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, cast

import yaml
import yaml12

_LARGE = 500_000
"""Characters from which on a stream is worth a second parser."""
_AT_ONCE = 1_000_000
"""Characters of a list that are parsed at once: what is parsed takes many times the room of its text."""
_SCALAR = (
    "(?:[yY]es|YES|[nN]o|NO|[oO]n|ON|[oO]ff|OFF|="  # booleans, and a default value
    "|[-+]?0[0-9_]+|[-+]?0[bo][0-7_]+|[-+]?[0-9][0-9.]*_[0-9._]*"  # octal, binary, with underscores
    "|[-+]?[0-9]+(?::[0-9.]+)+|[-+]?[0-9.]+[eE][-+]?[0-9]+)"  # to the base of sixty, with an exponent
)
_END = " *\r?(?: #.*)?$"
_OTHERWISE = [re.compile(pattern, re.MULTILINE) for pattern in (f": {_SCALAR}{_END}", f"- {_SCALAR}{_END}", "<<", "!!")]
"""Values that YAML 1.1, as kubectl reads it, and YAML 1.2 read otherwise. Each begins with a literal: that is fast."""
_LIST = re.compile(r"\A(?:---\s*\n)?(?:(?:apiVersion|kind): \w+\n)*items:\n(?P<indent> *)(?=- )")
"""How kubectl, and others, begin a list."""
_UNREAD = (("metadata", "managedFields"), ("status", "images"))
"""Fields that decide nothing and are the larger part of what a live cluster prints."""
_MOST_DOCUMENTS = 60_000
"""With more small ones than these, planning takes more than half a gigabyte of memory."""
_DEEPEST = 500
"""Levels of nesting: far more would end the process, in its parsers. No object of Kubernetes has a tenth of them."""
_MOST_ALIASED = 100_000
"""Values that aliases may stand for: aliases of aliases come to billions in a few lines."""
Loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
"""YAML as Kubernetes reads it: keys are text, and so are dates."""
Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if "timestamp" not in pair[0]]
    for first, pairs in Loader.yaml_implicit_resolvers.items()
}


def _mapping(loader: Any, node: Any) -> Iterator[dict[str, Any]]:
    """A mapping whose keys are text, as kubectl makes them: true, not True."""
    found: dict[str, Any] = {}
    yield found
    for key, value in loader.construct_mapping(node).items():
        found[key if isinstance(key, str) else json.dumps(key, default=str).strip('"')] = value


Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse(text: str) -> list[tuple[int, str, Any]]:
    """Each document of a stream, with its number, and each item of a list, with its path in the document.

    Large streams are read by parsers that are faster than PyYAML wherever both find the same.

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
    if len(text) > _LARGE and "\n%" not in text:
        try:
            seen: dict[str, str] = {}
            parsed = _of_list(text, match) if (match := _LIST.match(text)) else _flattened(_of_parts(text))
            return [(number, path, _compact(document, seen)) for number, path, document in parsed]
        except (ValueError, yaml.YAMLError):
            pass
    require_bounded(text)
    return list(_flattened(yaml.load_all(text, Loader=Loader)))


def problem(error: Exception) -> str:
    """What a parser says is wrong, in a line: without the text itself, and a name of its own for it."""
    text = re.sub(r":\n.*\n *\^", "", str(error))
    return re.sub(r' in "<[a-z ]+>",', ", at", " ".join(text.split()))


def _compact(tree: Any, seen: dict[str, str]) -> Any:
    """A tree with one object for equal keys and strings, which takes two thirds of the memory."""
    if isinstance(tree, dict):
        return {_compact(key, seen): _compact(value, seen) for key, value in cast("dict[str, Any]", tree).items()}
    if isinstance(tree, list):
        return [_compact(each, seen) for each in cast("list[Any]", tree)]
    return seen.setdefault(tree, tree) if isinstance(tree, str) else tree


def require_bounded(text: str) -> None:
    """Refuse YAML that parsers, or what reads their results, would not survive.

    Raises:
        yaml.YAMLError: It nests too deeply, its aliases stand for too much, or it is no YAML.
    """
    opening = sum(text.count(bracket) for bracket in "[{") - text.count("[]") - text.count("{}")
    brackets = re.findall(r"[\[\]{}]", text) if opening >= _DEEPEST else []
    depths = accumulate(1 if each in "[{" else -1 for each in brackets)
    is_long = f"\n{' ' * _DEEPEST}" in text or max(map(len, text.split("\n"))) >= 2 * _DEEPEST
    nests = is_long and re.search(rf"\n {{{_DEEPEST}}}|(?:[-?:][ \t]+){{{_DEEPEST}}}", text)
    if not nests and not re.search(r"\*(?<=[ \t\[,]\*)\w", text) and max(depths, default=0) < _DEEPEST:
        return
    sizes: dict[Any, int] = {}
    opened: list[list[Any]] = [["", 0]]
    aliased = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append([event.anchor, 1])
            sizes[event.anchor] = _MOST_ALIASED + 1  # until its end: an alias inside of it would never end
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = opened.pop()
            sizes[anchor] = size
            opened[-1][1] += size
        elif isinstance(event, yaml.AliasEvent):
            aliased += sizes.get(event.anchor, 1)
            opened[-1][1] += sizes.get(event.anchor, 1)
        else:
            opened[-1][1] += 1
        if len(opened) > _DEEPEST or aliased > _MOST_ALIASED:
            what = f"nests more than {_DEEPEST} levels deep" if len(opened) > _DEEPEST else "has too many aliases"
            raise yaml.YAMLError(f"it {what}")


def _of_list(text: str, beginning: re.Match[str]) -> Iterator[tuple[int, str, Any]]:
    """The items of a list: each begins with a dash in the same column, where nothing else may, nor before it."""
    dash = rf"\n{beginning['indent']}- "
    start, index = beginning.start("indent"), 0
    end = _next(text, start, r"\n[^\s-]")
    while start < end:
        cut = min(end, _next(text, min(start + _AT_ONCE, end), dash))
        [items] = _documents(text[start:cut])
        for item in items:
            yield from ((1, path, each) for path, each in _below(item, f"items[{index}]."))
            index += 1
        start = cut
    [rest] = _documents(text[: beginning.start("indent")] + text[end:])
    if not str(rest.get("kind", "")).endswith("List"):
        raise ValueError("no list")


def _of_parts(text: str) -> Iterator[Any]:
    """The documents of a stream: each begins with three dashes in the first column, where nothing else may."""
    start = 0
    while start < len(text):
        cut = _next(text, min(start + _AT_ONCE, len(text)), r"\n---\s")
        yield from _documents(text[start:cut])
        start = cut


def _documents(text: str) -> Iterator[Any]:
    """The documents of a part of a large stream."""
    require_bounded(text)
    if any(pattern.search(text) for pattern in _OTHERWISE):
        return yaml.load_all(text, Loader=Loader)
    return iter(yaml12.parse_yaml(text, multi=True))


def _next(text: str, start: int, pattern: str) -> int:
    """Where the next line of a pattern begins; the end of the text where there is none."""
    found = re.compile(pattern).search(text, start)
    return found.start() + 1 if found else len(text)


def _flattened(documents: Iterable[Any]) -> Iterator[tuple[int, str, Any]]:
    for number, document in enumerate(documents, start=1):
        yield from ((number, path, item) for path, item in _below(document, ""))


def _below(document: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A document with its path; of a list its items, and of lists in it theirs."""
    items = cast("Mapping[str, Any]", document).get("items") if isinstance(document, Mapping) else None
    if isinstance(items, list) and str(cast("Mapping[str, Any]", document).get("kind", "")).endswith("List"):
        for index, item in enumerate(cast("list[Any]", items)):
            yield from _below(item, f"{path}items[{index}].")
    elif document is not None or path:
        yield path, _pruned(document)


def _pruned(document: Any) -> Any:
    for holder, field in _UNREAD if isinstance(document, dict) else ():
        if isinstance(found := cast("dict[str, Any]", document).get(holder), dict):
            cast("dict[str, Any]", found).pop(field, None)
    return cast("Any", document)
