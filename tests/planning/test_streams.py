"""Streams are read alike as a whole and in parts: lists item by item, dates and keys as text."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_foundations.kubernetes import reading
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.planning.input import streams

CHECKOUT = Path(__file__).parents[2]
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
ODD_SCALARS = st.sampled_from(["yes", "017", "1:30", "1e3", "|"])
SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | NAMES | ODD_SCALARS
KEYS = NAMES.map(lambda name: f"key{name}")
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(KEYS, TREES, min_size=1, max_size=4), min_size=1, max_size=4)


def as_list(objects: list[Any]) -> str:
    listed = {"apiVersion": "v1", "items": objects, "kind": "List"}
    return yaml.safe_dump(listed, allow_unicode=True)


def as_stream(objects: list[Any]) -> str:
    return yaml.safe_dump_all(objects, allow_unicode=True)


DUMPED = pytest.mark.parametrize("dumped", [as_list, as_stream])
"""Objects as kubectl prints them, or one document each."""


@pytest.fixture
def without_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> Iterator[Any]:
        raise AssertionError("PyYAML was asked")

    monkeypatch.setattr(yaml, "load_all", refuse)


def as_a_whole(text: str) -> list[tuple[int, str, Any]]:
    return list(streams._flattened(reading.documents(text)))


@given(objects=OBJECTS)
@settings(max_examples=200, deadline=None)
def test_whatever_pyyaml_writes_is_read_alike_as_a_whole_and_in_parts(objects: list[Any]) -> None:
    listed = {"apiVersion": "v1", "items": objects, "kind": "List"}
    for text in (yaml.safe_dump(listed), yaml.safe_dump_all(objects)):
        assert streams.parse(text) == as_a_whole(text)


@pytest.mark.parametrize(
    "file", sorted((CHECKOUT / "tests" / "golden").glob("*.yaml")), ids=lambda file: file.name
)
def test_files_are_read_alike(file: Path) -> None:
    assert streams.parse(file.read_text()) == as_a_whole(file.read_text())


@pytest.mark.parametrize("date", ["2026-01-01", "2026-13-45", "2001-12-14T21:59:43Z"])
def test_a_date_is_text(date: str) -> None:
    assert streams.parse(f"kind: Node\na: {date}\n") == [(1, "", {"kind": "Node", "a": date})]


@DUMPED
def test_an_item_of_a_list_may_have_text_that_looks_like_one(
    dumped: Callable[[list[Any]], str],
) -> None:
    uid = "4e5b1c2d-0b1a-4e11-9e10-0e1a2b3c4d5e"
    heads = [{"kind": "Node", "metadata": {"name": f"node-{n}", "uid": uid}} for n in range(9)]
    objects = [head | {"text": "a\n- b\n--- c"} for head in heads]
    assert [item for _, _, item in streams.parse(dumped(objects))] == objects


def test_the_items_of_a_list_are_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load = yaml.load_all
    monkeypatch.setattr(
        yaml, "load_all", lambda text, **given: read.append(text) or load(text, **given)
    )
    text = "apiVersion: v1\nitems:\n- kind: A\n  a: yes\n- kind: B\nkind: List\n"
    assert len(streams.parse(text)) == 2
    assert read == ["apiVersion: v1\nkind: List\n", "- kind: A\n  a: yes\n", "- kind: B\n"]


@pytest.mark.parametrize(
    "line",
    [
        *("a: yes", "a: 017", "a: 1_000", "a: 1:30", "a:\n- off", "a: !!str 1", "<<: {a: 1}"),
        *("a: 0b1", "a: 1e3", "a: no # not yet", "a: 1\na: 2"),
    ],
)
def test_yaml_1_1_is_read_in_lists_and_in_streams(line: str) -> None:
    indented = line.replace("\n", "\n  ")
    for text in (
        f"kind: Node\n{line}\nb: 1\n",
        f"items:\n- kind: Node\n  b: 1\n  {indented}\nkind: List\n",
    ):
        assert streams.parse(text) == as_a_whole(text)


@pytest.mark.parametrize(
    "text", ["a: [", "a: 1\n b: 2\n", "apiVersion: v1\nitems:\n- a: 1\n- {b\nkind: List\n", "{"]
)
def test_what_is_no_yaml_is_an_error(text: str) -> None:
    with pytest.raises(ReadError):
        streams.parse(text)


def test_documents_and_items_have_their_numbers() -> None:
    text = "# first\n---\nkind: A\n---\n---\nkind: ThingList\nitems:\n- kind: B\n- kind: C\n"
    found = [
        (1, "", {"kind": "A"}),
        (3, "items[0].", {"kind": "B"}),
        (3, "items[1].", {"kind": "C"}),
    ]
    assert streams.parse(text) == found == as_a_whole(text)


def test_json_is_read_as_json(without_pyyaml: None) -> None:
    found = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "A", "value": "yes"}]}
    assert streams.parse(json.dumps(found)) == [(1, "items[0].", {"kind": "A", "value": "yes"})]


@DUMPED
def test_what_decides_nothing_and_takes_most_room_is_dropped(
    dumped: Callable[[list[Any]], str],
) -> None:
    metadata, images = {"name": "a", "managedFields": [{}]}, [{"names": ["b"]}]
    node = {"kind": "Node", "metadata": metadata, "status": {"images": images}}
    [(_, _, item)] = streams.parse(dumped([node]))
    assert item == {"kind": "Node", "metadata": {"name": "a"}, "status": {}}


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: B\n",
        "kind: List\nitems:\n  - kind: A\n    text: |\n      - a\n  - kind: B\n",
        "items:\n- kind: A\nkind: List\n---\n- kind: B\n",
        "items:\n- kind: A\nkind: List\n---\nkind: ThingList\nitems:\n- kind: B\n",
        "items:\n- kind: A\n  a: &a\n  - 1\n- kind: B\n  a: *a\nkind: List\n",
        'items:\n- kind: A\n  text: "a\n- b"\nkind: List\n',
        "items:\n\n- kind: A\n\n- kind: B\n# no more\nkind: List\n",
        "items:\n- kind: A\nkind: Thing\n",
        "items:\n- kind: A\nitems: []\nkind: List\n",
        "items:\n- kind: A\n# no more\n---\nkind: List\n",
        "items:\n# none\nkind: List",
        "items:\n-\n  kind: A\n- kind: B\nkind: List\n",
        "kind: A\na: yes\n---\nkind: B\nb: '1'\n",
    ],
)
def test_lists_are_read_alike_however_they_begin_and_end(text: str) -> None:
    assert streams.parse(text) == as_a_whole(text)


def test_more_documents_than_memory_has_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "_MOST_DOCUMENTS", 2)
    text = "---\na: 1\n---\na: 2\n"
    assert len(streams.parse(text)) == 2
    with pytest.raises(ReadError, match="more than 2 documents"):
        streams.parse(f"{text}---\na: 3\n---\na: 4\n")
