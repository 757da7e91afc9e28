"""The files that describe kinds of workloads.

A new kind of this package is one file in ``kinds``, with its fields in ``input/fields.yaml``. A
user's kind is one file in the folder ``kinds`` next to the program
(docs/teach-the-proof-a-kind.md).
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.planning.model.described_kinds import DescribedKind, DescribedPods

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FOLDER_VARIABLE = "ML_FOUNDATIONS_KINDS"
"""The variable with the folder of the user's descriptions. The default is kinds."""
BUILT_IN: Mapping[str, str] = {
    **dict.fromkeys(("Pod", "ReplicationController"), ""),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), "apps"),
    **dict.fromkeys(("Job", "CronJob"), "batch"),
    "JobSet": "jobset.x-k8s.io",
}
"""The API groups of the kinds that no file describes."""
_PATH = re.compile(r"[A-Za-z][\w-]*(\.[A-Za-z][\w-]*)*")
_CONDITION = re.compile(rf"{_PATH.pattern}=.+")
_PATHS = "a list of paths, such as [spec.template]"
_REQUIRED = {
    **dict.fromkeys(("kind", "group"), ", as in apiVersion: group/version"),
    "pods": ": a list with the templates of the kind's pods",
    "template": f": {_PATHS}",
}
_FORMS = {
    **dict.fromkeys(("dataclass_type", "dict_type", "mapping_type"), "a mapping"),
    **dict.fromkeys(("frozen_set_type", "tuple_type", "sequence_str"), "a list"),
}
"""What a value must be, by the type of pydantic's error."""


class KindError(SystemExit):
    """A description of a kind is invalid. It ends the program; the message names file and key."""


@cache
def described_kinds() -> Mapping[str, DescribedKind]:
    """Return the described kinds by name: those of this package, and those of the user.

    Raises:
        KindError: A description of the user is invalid.
    """
    return {**_package_kinds(), **user_kinds()}


@cache
def _package_kinds() -> Mapping[str, DescribedKind]:
    kinds: dict[str, DescribedKind] = {}
    folder = files("ml_foundations.planning.model").joinpath("kinds")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        kind = _package_kind(yaml.safe_load(file.read_text()))
        kinds[kind.kind] = kind
    return kinds


def _package_kind(description: dict[str, Any]) -> DescribedKind:
    pods = tuple(DescribedPods(**pods) for pods in description.pop("pods"))
    own_labels = frozenset(description.pop("own_labels"))
    return DescribedKind(pods=pods, own_labels=own_labels, **description)


@cache
def user_kinds() -> Mapping[str, DescribedKind]:
    """Return the kinds that the user describes, by name.

    Raises:
        KindError: A description is invalid.
    """
    kinds: dict[str, DescribedKind] = {}
    described_in = dict.fromkeys((*BUILT_IN, *_package_kinds()), "planning")
    for file in sorted(Path(os.environ.get(FOLDER_VARIABLE, "kinds")).glob("*.yaml")):
        kind = _user_kind(file)
        errors = [*_mistakes(kind)]
        if kind.kind in described_in:
            errors.append(f"kind: {kind.kind} is known already, from {described_in[kind.kind]}")
        if errors:
            raise _error(file, errors)
        kinds[kind.kind] = kind
        described_in[kind.kind] = str(file)
    return kinds


def _error(file: Path, errors: list[str]) -> KindError:
    return KindError("\n".join(f"{file}: {error}" for error in errors))


def _user_kind(file: Path) -> DescribedKind:
    """Return the kind that a file describes; raise a KindError if a key or a type is invalid."""
    from pydantic import TypeAdapter, ValidationError  # 0.1 s, for users with kinds only

    try:
        description: Any = yaml.safe_load(file.read_text()) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _error(file, [f"is invalid YAML: {' '.join(str(error).split())}"]) from None
    try:
        return TypeAdapter(DescribedKind).validate_python(description)
    except ValidationError as error:
        raise _error(file, list(map(_explained, error.errors()))) from None


def _explained(error: "ErrorDetails") -> str:
    """Return the path of an invalid key, and what is wrong there."""
    *parents, last = error["loc"] or ("the file",)
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in (*parents, last))
    path = path.lstrip(".")
    kind = error["type"]
    if kind == "unexpected_keyword_argument":
        known = fields(DescribedPods if parents else DescribedKind)
        fix = did_you_mean(str(last), [field.name for field in known])
        return f"{path} is not a key of a description. {fix}".rstrip()
    if kind == "missing":
        return f"{path} is required{_REQUIRED[str(last)]}"
    if kind == "string_type":
        is_path = bool(parents) and "labels" not in parents
        form = "a path, such as spec.replicas" if is_path else "text (numbers in quotes)"
        return f"{path} must be {form}, not {error['input']!r}"
    message = error["msg"].removeprefix("Input should be ")
    wanted = _PATHS if last == "template" else _FORMS.get(kind, message)
    return f"{path} must be {wanted}, not {error['input']!r}"


def _mistakes(kind: DescribedKind) -> Iterator[str]:
    """Yield what is invalid about a user's kind whose keys and types are valid."""
    if not kind.version:
        yield "version is required, as in apiVersion: group/version"
    if not any(pods.template for pods in kind.pods):
        yield "pods: no entry has a template; add one, such as {template: [spec.template]}"
    if kind.exclusive and not kind.key_label:
        yield "key_label is required with exclusive: the label that only a replica's pods share"
    yield from _condition_errors("ends", kind.ends)
    yield from _condition_errors("service_per_replica", kind.service_per_replica)
    numbers = {"replicas": [kind.replicas], "surge": [kind.surge]}
    yield from _path_errors("", {**numbers, "harmless": kind.harmless})
    for index, pods in enumerate(kind.pods):
        prefix = f"pods[{index}]."
        if len(pods.bounds) not in (0, 2):
            yield f"{prefix}bounds must be two paths: of the least and of the most number"
        yield from _condition_errors(f"{prefix}unless", pods.unless)
        single = {"each": [pods.each], "count": [pods.count], "times": [pods.times]}
        lists = {"template": pods.template, "bounds": pods.bounds}
        values = {"labels_from": [*pods.labels_from.values()]}
        yield from _path_errors(prefix, {**single, **lists, **values})


def _condition_errors(key: str, condition: str) -> Iterator[str]:
    if condition and not _CONDITION.fullmatch(condition):
        yield f"{key} must be a path and values, such as spec.mode=A|B, not {condition!r}"


def _path_errors(prefix: str, paths: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for key, given in paths.items():
        for path in filter(None, given):
            if not _PATH.fullmatch(path):
                fix = "each has the path of a list" if "[" in path else "such as spec.template"
                yield f"{prefix}{key} must be names with dots between them, not {path!r}; {fix}"
