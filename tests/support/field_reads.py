"""Trees that note which of their fields are read, also fields that they lack."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any

Place = tuple[Any, ...]


class NotedFields(dict[str, Any]):
    """A mapping that notes the path of each field that is asked for."""

    def __init__(self, tree: dict[str, Any], reads: set[Place], path: Place) -> None:
        super().__init__({key: noting(tree[key], reads, (*path, key)) for key in tree})
        self._reads, self._path = reads, path

    def _note(self, key: Any) -> None:
        if isinstance(key, str):
            self._reads.add((*self._path, key))

    def get(self, key: Any, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def __getitem__(self, key: Any) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self._note(key)
            yield key

    def keys(self) -> Any:
        return KeysView(self)

    def values(self) -> Any:
        return ValuesView(self)

    def items(self) -> Any:
        return ItemsView(self)

    def __deepcopy__(self, memo: Any) -> NotedFields:
        return NotedFields(self, self._reads, self._path)


def noting(tree: Any, reads: set[Place], path: Place = ()) -> Any:
    """Return a copy of a tree that notes the path of each field that is read."""
    if isinstance(tree, dict):
        return NotedFields(tree, reads, path)
    if isinstance(tree, list):
        reads.update((*path, index) for index in range(len(tree)))
        return [noting(item, reads, (*path, index)) for index, item in enumerate(tree)]
    return tree
