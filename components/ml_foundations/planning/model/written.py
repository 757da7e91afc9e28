"""The fields of objects that controllers make, as fields of the objects that the user wrote."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of
from ml_foundations.kubernetes.reading import ReadError, embedded_json


class WrittenField(NamedTuple):
    """A field that the user wrote, and the object that has it if that is another."""

    path: str
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.path} of {self.owner}" if self.owner else self.path


WrittenFields = Mapping[str, WrittenField]
"""Of an object that a controller makes, its fields, as prefixes, with those that the user wrote."""


def as_annotation(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts as the annotation of an object, which ``rows_of`` reads."""
    return json.dumps([list(row) for row in rows])


def rows_of(annotation: Any, columns: int) -> list[Sequence[str]]:
    """Return the rows of an annotation; none if a user wrote it in another form."""
    try:
        rows = embedded_json(annotation)
    except ReadError:
        return []
    read: list[Sequence[str]] = []
    for row in cast("list[Any]", rows) if isinstance(rows, list) else ():
        texts = cast("list[Any]", row) if isinstance(row, list) else []
        if [type(text) for text in texts] == [str] * columns:
            read.append(texts)
    return read


def written_annotation(fields: WrittenFields) -> str:
    """Return fields as the annotation of an object, which ``written_fields`` reads."""
    return as_annotation((made, *written) for made, written in fields.items())


def written_fields(manifest: Manifest) -> WrittenFields:
    """Return the fields of an object that a controller makes; none of one that the user wrote."""
    annotation = annotations_of(manifest).get(labels.WRITTEN_FIELDS)
    return _parsed(annotation) if isinstance(annotation, str) else {}


@lru_cache
def _parsed(annotation: str) -> WrittenFields:
    return {made: WrittenField(path, owner) for made, path, owner in rows_of(annotation, 3)}


def written_path(path: str, fields: WrittenFields) -> str:
    """Return the field that the user wrote for one that is made, or the same."""
    made = max(filter(path.startswith, fields), key=len, default=None)
    # A field with its owner is one that the user wrote already.
    if made is None or " of " in path:
        return path
    written = fields[made]
    return str(written._replace(path=f"{written.path}{path.removeprefix(made)}"))
