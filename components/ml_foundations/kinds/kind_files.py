"""The files that describe kinds of workloads.

A new kind of this package is one file in this folder. A user's kind is one file in a folder that
the user names (docs/teach-the-proof-a-kind.md). No folder is read without that: whoever may add a
file to the current folder would change verdicts.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from ml_foundations.kinds.kind import (
    AddedContainer,
    DescribedTemplate,
    FieldConstraint,
    Kind,
    Queue,
)
from ml_foundations.kubernetes import regular_files
from ml_foundations.kubernetes.objects import section
from ml_foundations.kubernetes.packaged_yaml import packaged_yaml
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.kubernetes.reading import ReadError, embedded_yaml, type_of
from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.kubernetes.trees import is_mapping, map_leaves
from ml_foundations.kubernetes.words import shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

P = ParamSpec("P")
V = TypeVar("V")
FOLDER_VARIABLE = "ML_FOUNDATIONS_KINDS"
"""The variable with the folder of the user's descriptions, unless ``use`` names one."""
# The types of a path grow with the square of its length. No kind that is known has seven names.
_MOST_NAMES = 32
_PATH = re.compile(rf"[A-Za-z][\w-]*(\.[A-Za-z][\w-]*){{0,{_MOST_NAMES - 1}}}")
_FIELD = re.compile(rf"[A-Za-z][\w-]*(\[\])?(\.[A-Za-z][\w-]*(\[\])?){{0,{_MOST_NAMES - 1}}}")
"""The path of a field that may be in items of lists."""
_NAMES = {
    "kind": re.compile("[A-Z][A-Za-z0-9]{0,62}"),
    "group": re.compile(r"[a-z0-9][a-z0-9.-]{0,252}"),
    "version": re.compile("[a-z][a-z0-9]{0,62}"),
}
_CONDITION = re.compile(f"{_PATH.pattern}=.+")
_SPEC = re.compile(r"(^|[ !])spec\b")
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
_HOLDERS = {
    "pods": DescribedTemplate,
    **dict.fromkeys(("containers", "head_containers"), AddedContainer),
    "constraints": FieldConstraint,
    "queue": Queue,
}
"""The keys whose values have their own keys."""
_TEXTS = frozenset(("labels", "states", "embeds", "queue", "constraints"))
"""The keys whose values have other texts than paths."""


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
def kinds() -> Mapping[str, Kind]:
    """Return all kinds by name: those of this package, and those of the user.

    Raises:
        KindError: A description of the user is invalid.
    """
    return {**package_kinds(), **user_kinds()}


@cached_per_kinds
def described_kinds() -> Mapping[str, Kind]:
    """Return the kinds whose pods are described, and not computed by a function."""
    return {name: kind for name, kind in kinds().items() if kind.pods}


def kind_named(name: str) -> Kind:
    """Return a kind by name. If no file describes it, nothing else is known."""
    return kinds().get(name) or Kind(name, group="", pods=())


def queue_of(kind: str) -> Queue:
    """Return how Kueue queues a kind."""
    return kind_named(kind).queue or Queue()


@cache
def package_kinds() -> Mapping[str, Kind]:
    """Return the kinds of this package by name."""
    by_name: dict[str, Kind] = {}
    for name, description in _descriptions().items():
        values = _with_embedded(description)
        pods: list[DescribedTemplate] = []
        for entry in values.pop("pods"):
            added = [AddedContainer(**container) for container in entry.get("containers", ())]
            pods.append(DescribedTemplate(**{**entry, "containers": added}))
        values["own_labels"] = frozenset(values["own_labels"])
        values["constraints"] = [FieldConstraint(**row) for row in values.get("constraints", ())]
        if "queue" in values:
            values["queue"] = Queue(**values["queue"])
        by_name[name] = Kind(pods=tuple(pods), **values)
    return by_name


@cache
def _descriptions() -> Mapping[str, dict[str, Any]]:
    folder = files("ml_foundations.kinds")
    listed = sorted((file.name, file) for file in folder.iterdir() if file.name.endswith(".yaml"))
    descriptions = [packaged_yaml(file.read_text()) for _, file in listed]
    return {description["kind"]: description for description in descriptions}


def _with_embedded(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description with the pods that controllers make of the specs in its fields."""
    made = {"pods": [], "own_labels": [], **description}
    for field, kind in description.get("embeds", {}).items():

        def moved(value: Any, field: str = field) -> Any:
            return _SPEC.sub(rf"\1{field}", value) if isinstance(value, str) else value

        embedded = _descriptions()[kind]
        head, *others = map_leaves(embedded["pods"], moved)
        containers = [*description.get("head_containers", ()), *head.get("containers", ())]
        made["pods"] = [*made["pods"], {**head, "containers": containers}, *others]
        made["own_labels"] = [*made["own_labels"], *embedded["own_labels"]]
        held = [
            given for given in embedded.get("constraints", ()) if given.keys() & {"at", "condition"}
        ]
        made["constraints"] = [*map_leaves(held, moved), *made.get("constraints", ())]
    return made


@cached_per_kinds
def user_kinds() -> Mapping[str, Kind]:
    """Return the kinds that the user describes, by name.

    Raises:
        KindError: There is no such folder, or a description is invalid.
    """
    return {kind.kind: kind for kind in _described().values()}


@cached_per_kinds
def _described() -> Mapping[str, Kind]:
    """Return the kinds that the user describes, by file."""
    kinds: dict[str, Kind] = {}
    described_in = dict.fromkeys(package_kinds(), "ML Foundations")
    folder = Path(_choice.folder)
    try:
        files = regular_files.below(folder, (".yaml", ".yml")) if _choice.folder else []
    except ReadError as error:
        raise KindError([str(error)]) from None
    if _choice.folder and not files:
        raise KindError([f"{_choice.title}: it has no file that describes a kind (.yaml or .yml)"])
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


def _user_kind(file: Path, name: str) -> Kind:
    """Return the kind that a file describes; raise a KindError if a key or a type is invalid."""
    from pydantic import TypeAdapter, ValidationError  # 0.1 s, for users with kinds only

    try:
        description = embedded_yaml(regular_files.read(file, Path(_choice.folder)))
    except ReadError as error:
        raise _error(name, [f"cannot be read: {error}"]) from None
    if not is_mapping(description):  # not the value: it may be another file's
        raise _error(name, [f"the file must be a mapping, not {type_of(description)}"])
    kind = TypeAdapter(Kind)
    try:
        if description.get("embeds"):
            # The pods may all be of the embedded kind.
            embeds = kind.validate_python({"pods": (), **description}).embeds
            if errors := [*_embedding_errors(embeds)]:
                raise _error(name, errors)
            description = _with_embedded(description)
        return kind.validate_python(description)
    except ValidationError as error:
        raise _error(name, list(map(_explained, error.errors()))) from None


def _embedding_errors(embeds: Mapping[str, str]) -> Iterator[str]:
    # Only one level is followed: a RayJob's own cluster would be missing.
    known = [
        name
        for name, kind in package_kinds().items()
        if kind.pods and not kind.replicas and not kind.embeds
    ]
    for field, kind in embeds.items():
        if kind not in known:
            yield f"embeds.{field} must be {' or '.join(known)}, not {shown(kind)}"
    yield from _path_errors("", {"embeds": [*embeds]})


def _explained(error: "ErrorDetails") -> str:
    """Return the path of an invalid key, and what is wrong there."""
    *parents, last = error["loc"] or ("the file",)
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in (*parents, last))
    path = path.lstrip(".")
    kind = error["type"]
    if kind == "unexpected_keyword_argument":
        [holder] = [_HOLDERS[key] for key in parents if key in _HOLDERS][-1:] or [Kind]
        known = fields(holder)
        fix = did_you_mean(str(last), [field.name for field in known])
        return f"{path} is not a key of a description. {fix}".rstrip()
    if kind == "missing":
        return f"{path} is required{_REQUIRED.get(str(last), '')}"
    if kind == "string_type":
        is_path = bool(parents) and _TEXTS.isdisjoint(parents)
        form = "a path, such as spec.replicas" if is_path else "text (numbers in quotes)"
        return f"{path} must be {form}, not {shown(error['input'])}"
    message = error["msg"].removeprefix("Input should be ")
    form = _PATHS if last == "template" else _FORMS.get(kind, message)
    return f"{path} must be {form}, not {shown(error['input'])}"


def _mistakes(kind: Kind) -> Iterator[str]:
    """Yield what is invalid about a user's kind whose keys and types are valid."""
    if not kind.version:
        yield "version is required, as in apiVersion: group/version"
    for key, form in _NAMES.items():
        if (name := getattr(kind, key)) and not form.fullmatch(name):
            yield f"{key} must be as in apiVersion: group/version and kind, not {shown(name)}"
    for key in ("template", "adopts"):
        if getattr(kind, key):
            yield f"{key} is for kinds whose pods planning computes. Leave it out, and give pods"
    if not any(pods.template for pods in kind.pods):
        yield "pods: no entry has a template; add one, such as {template: [spec.template]}"
    if kind.exclusive and not kind.key_label:
        yield "key_label is required with exclusive: the label that only a replica's pods share"
    yield from _condition_errors("ends", kind.ends)
    yield from _condition_errors("service_per_replica", kind.service_per_replica)
    numbers = {"replicas": [kind.replicas], "surge": [kind.surge], "claims": [kind.claims]}
    yield from _path_errors("", {**numbers, "state": [kind.state]})
    named = ("harmless", "read", "required", "known_values", "least")
    of_fields = {key: [*getattr(kind, key)] for key in named}
    of_fields["unknown"] = [path for paths in kind.unknown.values() for path in paths]
    yield from _path_errors("", of_fields, _FIELD)
    for index, pods in enumerate(kind.pods):
        prefix = f"pods[{index}]."
        if len(pods.bounds) not in (0, 2):
            yield f"{prefix}bounds must be two paths: of the least and of the most number"
        yield from _condition_errors(f"{prefix}unless", pods.unless)
        single = {"each": [pods.each], "count": [pods.count], "times": [pods.times]}
        lists = {"template": pods.template, "bounds": pods.bounds}
        values = {"labels_from": [*pods.labels_from.values()]}
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
            try:
                parse_quantity(amount)
            except ValueError:
                form = "a quantity, such as 500m or 2Gi"
                yield f"{path}: resources.{part}.{name} must be {form}, not {shown(amount)}"


def _condition_errors(key: str, condition: str) -> Iterator[str]:
    if condition and not _CONDITION.fullmatch(condition):
        yield f"{key} must be a path and values, such as spec.mode=A|B, not {shown(condition)}"


def _path_errors(
    prefix: str, paths: Mapping[str, Sequence[str]], pattern: re.Pattern[str] = _PATH
) -> Iterator[str]:
    for key, given in paths.items():
        for path in filter(None, given):
            if not pattern.fullmatch(path):
                fix = "each has the path of a list" if "[" in path else "such as spec.template"
                form = f"names with dots between them, at most {_MOST_NAMES}"
                yield f"{prefix}{key} must be {form}, not {shown(path)}; {fix}"
