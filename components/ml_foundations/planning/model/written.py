"""The fields of objects that controllers make, as fields of the objects that the user wrote."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of


class WrittenField(NamedTuple):
    """A field that the user wrote, and the object that has it if that is another."""

    path: str
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.path} of {self.owner}" if self.owner else self.path


WrittenFields = Mapping[str, WrittenField]
"""Of an object that a controller makes, its fields, as prefixes, with those that the user wrote."""


def as_annotation(fields: WrittenFields) -> str:
    """Return fields as the annotation of an object, which ``written_fields`` reads."""
    return json.dumps(fields)


def written_fields(manifest: Manifest) -> WrittenFields:
    """Return the fields of an object that a controller makes; none of one that the user wrote."""
    annotation = annotations_of(manifest).get(labels.WRITTEN_FIELDS)
    return _parsed(annotation) if isinstance(annotation, str) else {}


@lru_cache
def _parsed(annotation: str) -> WrittenFields:
    fields: Mapping[str, tuple[str, str]] = json.loads(annotation)
    return {made: WrittenField(*written) for made, written in fields.items()}


def written_path(path: str, fields: WrittenFields) -> str:
    """Return the field that the user wrote for one that is made, or the same."""
    made = max(filter(path.startswith, fields), key=len, default=None)
    # A field with its owner is one that the user wrote already.
    if made is None or " of " in path:
        return path
    written = fields[made]
    return str(written._replace(path=f"{written.path}{path.removeprefix(made)}"))
