"""The files that describe kinds of workloads.

A new kind of this package is one file in ``kinds``, with its fields in ``input/fields.yaml``. A
user's kind is one file in a folder that the user names (docs/teach-the-proof-a-kind.md). No folder
is read without that: whoever may add a file to the current folder would change verdicts.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from ml_foundations.kubernetes import regular_files
from ml_foundations.kubernetes.objects import section
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.kubernetes.reading import ReadError, embedded_yaml, type_of
from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.kubernetes.trees import is_mapping, map_leaves
from ml_foundations.kubernetes.words import shown
from ml_foundations.planning.model.described_kinds import (
    AddedContainer,
    DescribedKind,
    DescribedTemplate,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

P = ParamSpec("P")
V = TypeVar("V")
FOLDER_VARIABLE = "ML_FOUNDATIONS_KINDS"
"""The variable with the folder of the user's descriptions, unless ``use`` names one."""
BUILT_IN: Mapping[str, str] = {
    **dict.fromkeys(("Pod", "ReplicationController"), ""),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), "apps"),
    **dict.fromkeys(("Job", "CronJob"), "batch"),
    "JobSet": "jobset.x-k8s.io",
}
"""The API groups of the kinds that no file describes."""
# The types of a path grow with the square of its length. No kind that is known has seven names.
_MOST_NAMES = 32
_PATH = re.compile(rf"[A-Za-z][\w-]*(\.[A-Za-z][\w-]*){{0,{_MOST_NAMES - 1}}}")
_NAMES = {
    "kind": re.compile("[A-Z][A-Za-z0-9]{0,62}"),
    "group": re.compile(r"[a-z0-9][a-z0-9.-]{0,252}"),
    "version": re.compile("[a-z][a-z0-9]{0,62}"),
}
_CONDITION = re.compile(f"{_PATH.pattern}=.+")
_PATHS = "a list of paths, such as [spec.template]"
_REQUIRED = {
    **dict.fromkeys(("kind", "group"), ", as in apiVersion: group/version"),
    "pods": ": a list with the templates of the kind's pods",
    "template": f": {_PATHS}",
    "container": ": a container as in a pod's spec",
    "when": ": a path and values, such as spec.mode=A|B",
}
_FORMS = {
    **dict.fromkeys(("dataclass_type", "dict_type", "mapping_type"), "a mapping"),
    **dict.fromkeys(("frozen_set_type", "tuple_type", "sequence_str"), "a list"),
}
"""What a value must be, by the type of pydantic's error."""


class KindError(SystemExit):
    """Descriptions of kinds are invalid. It ends the program; each error names file and key."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


@dataclass
class _Choice:
    """The folder of the user's kinds, empty for none, and its name in messages."""

    folder: str = os.environ.get(FOLDER_VARIABLE, "")
    title: str = folder


_choice = _Choice()
_caches: list[Any] = []


def cached_per_kinds(function: Callable[P, V]) -> Callable[P, V]:
    """Return a function that computes each result once, until ``use`` chooses other kinds."""
    cached = cache(function)
    _caches.append(cached)
    return cast("Callable[P, V]", cached)


def use(folder: str, title: str = "") -> None:
    """Judge with the kinds that the files in a folder describe; with none if it is empty.

    Messages name the folder by its title.

    Raises:
        KindError: There is no such folder, or a description is invalid.
    """
    _choice.folder = folder
    _choice.title = title or folder
    for cached in _caches:
        cached.cache_clear()
    user_kinds()


def files_used() -> tuple[str, ...]:
    """Return the files with the user's kinds."""
    return tuple(_described())


@cached_per_kinds
def described_kinds() -> Mapping[str, DescribedKind]:
    """Return the described kinds by name: those of this package, and those of the user.

    Raises:
        KindError: A description of the user is invalid.
    """
    return {**_package_kinds(), **user_kinds()}


@cache
def _package_kinds() -> Mapping[str, DescribedKind]:
    folder = files("ml_foundations.planning.model").joinpath("kinds")
    texts = sorted((file.name, file.read_text()) for file in folder.iterdir())
    descriptions = [embedded_yaml(text) for _, text in texts]
    by_kind = {description["kind"]: description for description in descriptions}
    for description in descriptions:
        if "cluster" in description:
            _add_cluster(description, by_kind["RayCluster"])
    return {kind: _package_kind(description) for kind, description in by_kind.items()}


def _add_cluster(description: dict[str, Any], cluster: Mapping[str, Any]) -> None:
    """Add the pods of the RayCluster that a controller makes of a field of an object."""
    field = description.pop("cluster")

    def moved(value: Any) -> Any:
        return re.sub(r"^spec\b", field, value) if isinstance(value, str) else value

    pods = map_leaves(cluster["pods"], moved)
    head = pods[0]
    head["containers"] = description.pop("head_containers", []) + head["containers"]
    description["pods"] += pods
    description["own_labels"] += cluster["own_labels"]


def _package_kind(description: dict[str, Any]) -> DescribedKind:
    pods: list[DescribedTemplate] = []
    for entry in description.pop("pods"):
        added = [AddedContainer(**container) for container in entry.pop("containers", ())]
        pods.append(DescribedTemplate(**entry, containers=added))
    own_labels = frozenset(description.pop("own_labels"))
    return DescribedKind(pods=tuple(pods), own_labels=own_labels, **description)


@cached_per_kinds
def user_kinds() -> Mapping[str, DescribedKind]:
    """Return the kinds that the user describes, by name.

    Raises:
        KindError: There is no such folder, or a description is invalid.
    """
    return {kind.kind: kind for kind in _described().values()}


@cached_per_kinds
def _described() -> Mapping[str, DescribedKind]:
    """Return the kinds that the user describes, by file."""
    kinds: dict[str, DescribedKind] = {}
    described_in = dict.fromkeys((*BUILT_IN, *_package_kinds()), "planning")
    folder = Path(_choice.folder)
    try:
        files = regular_files.below(folder, (".yaml",)) if _choice.folder else []
    except ReadError as error:
        raise KindError([f"{_choice.title}: {error}"]) from None
    for file in files:
        name = str(Path(_choice.title, file.relative_to(folder)))
        kind = _user_kind(file, name)
        errors = [*_mistakes(kind)]
        if kind.kind in described_in:
            errors.append(f"kind: {kind.kind} is known already, from {described_in[kind.kind]}")
        if errors:
            raise _error(name, errors)
        kinds[name] = kind
        described_in[kind.kind] = name
    return kinds


def _error(file: str, errors: list[str]) -> KindError:
    return KindError([f"{file}: {error}" for error in errors])


def _user_kind(file: Path, name: str) -> DescribedKind:
    """Return the kind that a file describes; raise a KindError if a key or a type is invalid."""
    from pydantic import TypeAdapter, ValidationError  # 0.1 s, for users with kinds only

    try:
        description = embedded_yaml(regular_files.read(file, Path(_choice.folder)))
    except ReadError as error:
        raise _error(name, [f"cannot be read: {error}"]) from None
    if not is_mapping(description):  # not the value: it may be another file's
        raise _error(name, [f"the file must be a mapping, not {type_of(description)}"])
    try:
        return TypeAdapter(DescribedKind).validate_python(description)
    except ValidationError as error:
        raise _error(name, list(map(_explained, error.errors()))) from None


def _explained(error: "ErrorDetails") -> str:
    """Return the path of an invalid key, and what is wrong there."""
    *parents, last = error["loc"] or ("the file",)
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in (*parents, last))
    path = path.lstrip(".")
    kind = error["type"]
    if kind == "unexpected_keyword_argument":
        known = fields(DescribedTemplate if parents else DescribedKind)
        fix = did_you_mean(str(last), [field.name for field in known])
        return f"{path} is not a key of a description. {fix}".rstrip()
    if kind == "missing":
        return f"{path} is required{_REQUIRED[str(last)]}"
    if kind == "string_type":
        is_path = bool(parents) and "labels" not in parents
        form = "a path, such as spec.replicas" if is_path else "text (numbers in quotes)"
        return f"{path} must be {form}, not {shown(error['input'])}"
    message = error["msg"].removeprefix("Input should be ")
    form = _PATHS if last == "template" else _FORMS.get(kind, message)
    return f"{path} must be {form}, not {shown(error['input'])}"


def _mistakes(kind: DescribedKind) -> Iterator[str]:
    """Yield what is invalid about a user's kind whose keys and types are valid."""
    if not kind.version:
        yield "version is required, as in apiVersion: group/version"
    for key, form in _NAMES.items():
        if (name := getattr(kind, key)) and not form.fullmatch(name):
            yield f"{key} must be as in apiVersion: group/version and kind, not {shown(name)}"
    if not any(pods.template for pods in kind.pods):
        yield "pods: no entry has a template; add one, such as {template: [spec.template]}"
    if kind.exclusive and not kind.key_label:
        yield "key_label is required with exclusive: the label that only a replica's pods share"
    yield from _condition_errors("ends", kind.ends)
    yield from _condition_errors("service_per_replica", kind.service_per_replica)
    numbers = {"replicas": [kind.replicas], "surge": [kind.surge], "claims": [kind.claims]}
    yield from _path_errors("", {**numbers, "harmless": kind.harmless})
    for index, pods in enumerate(kind.pods):
        prefix = f"pods[{index}]."
        if len(pods.bounds) not in (0, 2):
            yield f"{prefix}bounds must be two paths: of the least and of the most number"
        yield from _condition_errors(f"{prefix}unless", pods.unless)
        single = {"each": [pods.each], "count": [pods.count], "times": [pods.times]}
        lists = {"template": pods.template, "bounds": pods.bounds}
        values = {"labels_from": [*pods.labels_from.values()]}
        values["fields_from"] = []
        for added in pods.containers:
            values["fields_from"] += added.fields_from.values()
        yield from _path_errors(prefix, {**single, **lists, **values})
        for container in pods.init_containers:
            yield from _quantity_errors(f"{prefix}init_containers", container)
        for added in pods.containers:
            yield from _condition_errors(f"{prefix}containers: when", added.when)
            paths = {"fields_from": [*added.fields_from.values()]}
            yield from _path_errors(f"{prefix}containers: ", paths)
            yield from _quantity_errors(f"{prefix}containers", added.container)


def _quantity_errors(path: str, container: Mapping[str, Any]) -> Iterator[str]:
    for part in ("requests", "limits"):
        for name, amount in section(container, "resources", part).items():
            if not _is_quantity(amount):
                form = "a quantity, such as 500m or 2Gi"
                yield f"{path}: resources.{part}.{name} must be {form}, not {shown(amount)}"


def _is_quantity(amount: Any) -> bool:
    try:
        parse_quantity(amount)
    except ValueError:
        return False
    return True


def _condition_errors(key: str, condition: str) -> Iterator[str]:
    if condition and not _CONDITION.fullmatch(condition):
        yield f"{key} must be a path and values, such as spec.mode=A|B, not {shown(condition)}"


def _path_errors(prefix: str, paths: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for key, given in paths.items():
        for path in filter(None, given):
            if not _PATH.fullmatch(path):
                fix = "each has the path of a list" if "[" in path else "such as spec.template"
                form = f"names with dots between them, at most {_MOST_NAMES}"
                yield f"{prefix}{key} must be {form}, not {shown(path)}; {fix}"
