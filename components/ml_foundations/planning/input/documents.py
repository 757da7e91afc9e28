"""Streams of YAML documents as manifests, checked as far as planning reads them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import yaml

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of, name_of, section
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.streams import parse, problem
from ml_foundations.planning.model.nodes import MAX_NODES, MIN_NODES


class UnreadableError(ValueError):
    """Input that cannot be judged; each error names file, document and field."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


def read(text: str, file: str) -> list[Manifest]:
    """The manifests of a stream of YAML documents; a List gives its items.

    Args:
        text: The stream.
        file: What to call it in messages.

    Raises:
        UnreadableError: It is no YAML, or a field that planning reads is wrong; names every one.
    """
    try:
        parsed = parse(text)
    except (yaml.YAMLError, ValueError) as error:  # a ValueError: a number that there is not
        raise UnreadableError([f"{file}: {problem(error)}"]) from None
    manifests: list[Manifest] = []
    errors: list[str] = []
    for number, path, manifest in parsed:
        try:
            wrong = [f"{path}{field}: {reason}" for field, reason in _errors(manifest)]
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
        return [("", f"must be a Kubernetes object, not {field_catalog.shown(manifest)}")]
    document = field_catalog.as_stored(cast("Manifest", manifest))
    missing = [
        key
        for key in ("apiVersion", "kind")
        if not isinstance(document.get(key), str) or not document[key]
    ]
    if missing or not field_catalog.is_judged(document):
        return [(key, "is required") for key in missing]
    wrong = {note.path: note.reason for note in field_catalog.notes(document) if note.is_error}
    if not wrong.keys() & {"metadata", "metadata.annotations"}:
        wrong |= dict(_wrong_annotations(document))
        if not name_of(document) and not section(document, "metadata").get("generateName"):
            wrong["metadata.name"] = "is required"
    return wrong.items()


def _wrong_annotations(document: Manifest) -> Iterable[tuple[str, str]]:
    """The annotations of planning's own that do not say what they must."""
    checks = {
        MAX_NODES: (re.compile("[0-9]+").fullmatch, 'a whole number in quotes, such as "4"'),
        MIN_NODES: (re.compile("[0-9]+").fullmatch, 'a whole number in quotes, such as "4"'),
        labels.HOURLY_PRICE: (_is_price, 'an amount in quotes, such as "1.25"'),
    }
    for name, value in annotations_of(document).items():
        if name in checks and not (isinstance(value, str) and checks[name][0](value)):
            yield (
                f"metadata.annotations.{name}",
                f"must be {checks[name][1]}, not {field_catalog.shown(value)}",
            )


def _is_price(value: str) -> bool:
    return not field_catalog.wrong_quantity(value)
