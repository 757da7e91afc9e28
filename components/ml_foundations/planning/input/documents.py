"""Streams of YAML documents as manifests, checked as far as planning reads them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of, name_of, section
from ml_foundations.kubernetes.reading import ReadError, type_of
from ml_foundations.kubernetes.words import shown
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.streams import parse
from ml_foundations.planning.model.nodes import MAX_NODES, MIN_NODES


class UnreadableError(ValueError):
    """Input that cannot be judged; each error names file, document and field."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


def read(text: str, file: str) -> list[Manifest]:
    """Return the manifests of a stream of YAML documents; a List gives its items.

    Messages name the stream by its file.

    Raises:
        UnreadableError: It is no YAML, or a field that planning reads is wrong; names every one.
    """
    try:
        parsed = parse(text)
    except ReadError as error:
        raise UnreadableError([f"{file}: {error}"]) from None
    manifests: list[Manifest] = []
    errors: list[str] = []
    for number, path, manifest in parsed:
        try:
            # A path ends with a dot, or is empty for a whole object.
            places = [((path + field).rstrip("."), reason) for field, reason in _errors(manifest)]
            wrong = [f"{place}: {reason}" if place else reason for place, reason in places]
        except RecursionError:
            wrong = [f"{path or 'it'} nests too deeply"]
        errors += [f"{file}: document {number}: {error}" for error in wrong]
        if not wrong:
            manifests.append(manifest)
    if errors:
        raise UnreadableError(errors)
    return manifests


def _errors(manifest: Any) -> Iterable[tuple[str, str]]:
    """Return the paths of invalid fields that planning reads, with the reasons."""
    if not isinstance(manifest, Mapping):
        # Not the value: it may be another file's, such as a token.
        return [("", f"must be a Kubernetes object, not {type_of(manifest)}")]
    document = field_catalog.as_stored(cast("Manifest", manifest))
    names = {key: document.get(key) for key in ("apiVersion", "kind")}
    wrong_names = {key: name for key, name in names.items() if not (name and isinstance(name, str))}
    if wrong_names:
        return [(key, _no_name(name)) for key, name in wrong_names.items()]
    if not field_catalog.is_judged(document):
        # Planning may look objects of these kinds up by name.
        metadata = section(document, "metadata")
        return [
            (f"metadata.{key}", _no_name(metadata[key]))
            for key in ("name", "namespace")
            if isinstance(metadata.get(key), dict | list)
        ]
    wrong = {note.path: note.reason for note in field_catalog.notes(document) if note.is_error}
    if not wrong.keys() & {"metadata", "metadata.annotations"}:
        wrong |= dict(_wrong_annotations(document))
        if not name_of(document) and not section(document, "metadata").get("generateName"):
            wrong["metadata.name"] = "is required"
    return wrong.items()


def _no_name(value: Any) -> str:
    if value in (None, ""):
        return "is required"
    return f"must be a string in quotes, not {shown(value)}"


def _wrong_annotations(document: Manifest) -> Iterable[tuple[str, str]]:
    """Yield invalid values of the annotations that planning itself defines."""
    for name, value in annotations_of(document).items():
        if name in (MAX_NODES, MIN_NODES):
            is_valid = isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value)
            allowed = 'a whole number below a billion in quotes, such as "4"'
        elif name == labels.HOURLY_PRICE:
            is_valid = isinstance(value, str) and not field_catalog.wrong_quantity(value)
            allowed = 'an amount in quotes, such as "1.25"'
        else:
            continue
        if not is_valid:
            reason = f"must be {allowed}, not {shown(value)}"
            yield f"metadata.annotations.{name}", reason
