"""Shortcuts for speed: comparing by bytes or by identity, and the garbage collector off.

No other module of planning uses bytes, ``id()`` or ``gc``. Most classes of planning compare by
identity (``eq=False``), so their objects are keys of dictionaries. Manifests are dictionaries and
need an ``IdentityMap``.
"""

import gc
import marshal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Generic, TypeVar

_MAX_CACHED_BYTES = 1000
K = TypeVar("K")
V = TypeVar("V")


def fingerprint(tree: Any) -> bytes | None:
    """Return a tree of plain values as bytes that equal trees share; None with other values."""
    # Thousands of workloads and nodes are of a few kinds, and comparing bytes is faster than
    # comparing trees. Later versions of the format depend on how many variables refer to a value.
    try:
        return marshal.dumps(tree, 2)
    except ValueError:
        return None  # such as UNKNOWN


def cached_by_content(function: Callable[..., V]) -> Callable[..., V]:
    """Return a function of a name and a value that computes its result once for equal values.

    Of 50,000 Nodes and pods, a few hundred have different specs. Values of 1,000 bytes or more,
    such as the status of a real node with its images, are rarely equal and would fill memory:
    they are computed each time.
    """

    @lru_cache(maxsize=16384)
    def of_bytes(name: str, data: bytes, decides: bool) -> V:
        return function(name, marshal.loads(data), decides=decides)

    def cached(name: str, value: Any, *, decides: bool) -> V:
        data = fingerprint(value)
        if data is None or len(data) >= _MAX_CACHED_BYTES:
            return function(name, value, decides=decides)
        return of_bytes(name, data, decides)

    return cached


class IdentityMap(Generic[K, V]):
    """Values by object, for objects that have no hash, such as manifests.

    Equal objects have separate values. The map keeps its objects alive, so that none of them shares
    its identity with a later one.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[K, V]] = {}

    def __setitem__(self, key: K, value: V) -> None:
        self._pairs[id(key)] = key, value

    def __contains__(self, key: K) -> bool:
        return id(key) in self._pairs

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self._pairs.values())

    def items(self) -> Iterable[tuple[K, V]]:
        """Return the objects with their values, in the order in which they were added."""
        return self._pairs.values()

    def get(self, key: K, default: V) -> V:
        """Return the value of an object, or a default if it has none."""
        return self._pairs.get(id(key), (key, default))[1]

    def setdefault(self, key: K, default: V) -> V:
        """Return the value of an object; if it has none, give it the default first."""
        return self._pairs.setdefault(id(key), (key, default))[1]


def identity(item: object) -> int:
    """Return a key that no other object has as long as this one exists."""
    return id(item)


def unique(objects: Iterable[K]) -> list[K]:
    """Return each object once, in the order of first appearance; equal objects are separate."""
    return list({id(item): item for item in objects}.values())


@contextmanager
def without_garbage_collector() -> Generator[None]:
    """Switch the garbage collector off for a while."""
    # It takes a quarter of the time of judging, and finds nothing: everything is kept to the end.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
