"""Errors about arguments, all at once: the path of each, its value, and what is allowed."""

import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import date
from importlib import import_module
from typing import Any, NamedTuple, get_args, get_origin

import pulumi
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from ml_foundations import COMPONENTS
from ml_foundations.component._pulumi_internals import input_types
from ml_foundations.component.partial import ArgumentError, FieldsError, models_in
from ml_foundations.component.refused import MissingOutput
from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.spelling import did_you_mean, nearest_names
from ml_foundations.kubernetes.trees import map_leaves
from ml_foundations.kubernetes.words import number

_MOST_LISTED = 5
"""The most allowed values that a message lists."""

_TYPES = {
    "bool": "true or false",
    "dict": "a mapping",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "model": "a mapping",
    "string": "a text",
    "tuple": "a list",
}
"""The types of pydantic's errors, in words."""
_SHOWN = (str, int, float, date, type(None))
"""The types of values that a message shows. Any other's text may be an address in memory."""
_PATTERNS = {
    "^/": "an absolute path, such as /data",
    "^(/|tcp$)": "a path that begins with /, or tcp",
    "^[^/]": "a name in the catalog, such as Qwen/Qwen3-8B, or a relative path",
    "^[A-Za-z_][A-Za-z0-9_]*$": "letters, digits and underscores, without a digit in front",
    "^[A-Za-z0-9][-A-Za-z0-9_.]*$": "letters, digits, dashes, underscores and dots",
    "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "lower case letters and digits, with dashes between them",
    "^[1-9][0-9]*%?$": "a number above 0 or a percentage, such as 10%",
    r"^\d+(ms|s|m)$": "a duration, such as 15s",
    r"^\d+\.\d+\.\d+$": "a version, such as 2.52.0",
    r"^1\.\d+(\.\d+(-gke\.\d+)?)?$": "a version, such as 1.34 or 1.34.1-gke.100",
    r"^[0-9a-fA-F.:]+/\d{1,3}$": "a CIDR block, such as 10.0.0.0/20",
    r"^gke-security-groups@.+\..+$": "gke-security-groups@ and your domain",
    r"^([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]$": "a project ID, such as my-project",
    r"^(projects/[^/]+/)?global/images/(family/)?[^/]+$": "[projects/PROJECT/]global/images/NAME",
}
"""The patterns of arguments, in words."""

STACK_FILE_PAGE = "docs/stack-file.md"


class ArgumentsError(pulumi.InputPropertiesError, pulumi.RunError):
    """Invalid arguments of a component, all in its message.

    It is a RunError, so it ends a program without a traceback.
    """

    def __init__(
        self,
        component: str,
        errors: Iterable[ArgumentError],
        spec: type[BaseModel],
        spell: Callable[[str], str] = str,
        more: Sequence[tuple[str, str]] = (),
    ) -> None:
        explained = explain(errors, spec, spell)
        details: list[pulumi.InputPropertyErrorDetails] = [
            {"property_path": path, "reason": reason} for path, reason in [*more, *explained]
        ]
        self.title = f"{component}: {number(len(details), 'invalid argument')}:"
        lines = [self.title]
        lines += [f"  {item['property_path']}: {item['reason']}" for item in details]
        super().__init__(printable.lines(lines), details)


def explain(
    errors: Iterable[ArgumentError], spec: type[BaseModel], spell: Callable[[str], str] = str
) -> Iterator[tuple[str, str]]:
    """Yield each error as its path and a reason, which has the value and a fix.

    ``spell`` writes the names of fields.
    """
    for item in errors:
        location = item.location
        cause = item.context.get("error")
        path, model, page = _place(location, spec, spell)
        if isinstance(item.input, MissingOutput):
            continue  # its component reports the error
        if isinstance(cause, FieldsError):
            for field, reason in cause.errors:
                yield (
                    f"{path}.{_spelled(field, model, spell)}".lstrip("."),
                    _spelled(reason, model, spell),
                )
        elif item.type == "extra_forbidden":
            section, model, page = _place(location[:-1], spec, spell)
            yield (
                f"{section}.{location[-1]}".lstrip("."),
                _unknown_argument(str(location[-1]), model, page, spell),
            )
        elif isinstance(item.input, pulumi.Output):
            fix = f"Give a plain value. {page} lists the arguments that may be Outputs"
            if location[0] == "env" and "secret_env" in spec.model_fields:
                fix = f"Put it into a Secret, and name that and its key in {spell('secret_env')}"
            yield path, f"is an Output, but must be known at preview. {fix}"
        elif item.type == "missing":
            _, model, _ = _place(location[:-1], spec, spell)
            yield path, _missing(str(location[-1]), model, in_python=spell is str)
        else:
            yield path, _reason(item, model, page)


def _missing(field: str, model: type[BaseModel], *, in_python: bool) -> str:
    """Return that an argument is required, and what can set it instead."""
    configured: Mapping[str, str] = getattr(model, "config_defaults", {})
    if field in configured:
        return f"is required. Set {configured[field]} in the stack file (Pulumi.<stack>.yaml)"
    # Only Python's components accept objects.
    objects: Mapping[str, Any] = getattr(model, "objects", {}) if in_python else {}
    setters = [name for name, argument in objects.items() if field in argument.outputs]
    return f"is required. Set {field} or {' or '.join(setters)}" if setters else "is required"


def _reason(item: ArgumentError, model: type[BaseModel], page: str) -> str:
    """Return what is wrong with a value, as pydantic reports it."""
    context = item.context
    value = item.input
    allowed = re.findall("'(.*?)'", str(context.get("expected")))
    if item.type == "string_too_long":
        return f"has {len(value)} characters, and {context['max_length']} are allowed"
    if item.type == "string_too_short" and not value:
        return "must not be empty"
    if len(allowed) > _MOST_LISTED:
        return f"{shown(value)} {unknown(str(value), allowed, f'See {page}')}"
    if "secret_env" in item.location:  # what was given may be the secret itself
        return (
            "must be the name of a Secret and a key in it, such as {name: hugging-face, key: token}"
        )
    if words := _PATTERNS.get(context.get("pattern", "")):
        return f"must be {words}, not {shown(value)}"
    expected, _, fault = item.type.partition("_")
    if expected in _TYPES and fault in ("type", "parsing", "from_float"):
        reason = f"must be {_TYPES[expected]}, not {shown(value)}"
        return ". ".join(filter(None, [reason, _type_fix(item, expected, model, page)]))
    cause = context.get("error")
    message = item.message if cause is None else str(cause)
    message = message if message[:2].isupper() else message[0].lower() + message[1:]
    is_quoted = isinstance(value, str) and repr(value) in message
    return message if is_quoted else f"{message} (got {shown(value)})"


def _type_fix(item: ArgumentError, expected: str, model: type[BaseModel], page: str) -> str:
    """Return how to write a value of another type than the expected one, or nothing."""
    value = item.input
    if isinstance(value, pulumi.Resource):
        objects: Mapping[str, Any] = getattr(model, "objects", {})
        for name, argument in objects.items():
            if expected == "model" and type(value).__name__ in argument.components:
                return f'Pass it as {{"{name}": …}}'
        field = next(part for part in reversed(item.location) if isinstance(part, str))
        valid = {"dict": dict, "list": list, "model": dict, "string": str}.get(expected, ())
        known = {name: getattr(output, "value", None) for name, output in vars(value).items()}
        outputs = [name for name, output in known.items() if isinstance(output, valid)]
        if near := nearest_names(field, outputs):
            return f"Pass its output {near[0]}"
        if expected == "string" and hasattr(value, "metadata"):
            return 'Pass its output metadata["name"]'
    if expected in ("list", "tuple"):
        return f"Write {_words(value)}" if isinstance(value, str) else "Write it in brackets: […]"
    if item.location[0] == "env" and isinstance(value, Mapping):
        return "The key of a Secret is given by secret_env"
    return f"See {page}" if expected == "model" else ""


def _words(text: str) -> list[str]:
    """Return a text as a list: a command line by its words, as a shell reads them."""
    try:
        return shlex.split(text) or [text]
    except ValueError:
        return [text]


def duplicates(
    field: str, values: Sequence[str], others: Container[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield an error for each value that is repeated in a list or reserved.

    ``{}`` in ``field`` is replaced by the value's index.
    """
    for index, value in enumerate(values):
        if value in others or value in values[:index]:
            yield field.format(index), f"{value} is taken; choose another"


def shown(value: Any) -> str:
    """Return a value for a message.

    An Output in it, or any other object, is shown as its type, because its text would be a warning
    or an address in memory.
    """

    def shown_leaf(leaf: Any) -> Any:
        return leaf if isinstance(leaf, _SHOWN) else _Bare(f"<{type(leaf).__name__}>")

    return repr(map_leaves(value, shown_leaf))


class _Bare(str):
    __slots__ = ()
    __repr__ = str.__str__


def unknown(name: str, known: Iterable[str], where_listed: str) -> str:
    """Return why an unknown name is rejected: the nearest names, and the page that lists all."""
    return " ".join(filter(None, ["is not known.", did_you_mean(name, known), where_listed]))


def _unknown_argument(
    name: str, model: type[BaseModel], page: str, spell: Callable[[str], str]
) -> str:
    of_python = getattr(model, "objects", {}) if spell is str else {}
    known = [*map(spell, model.model_fields), *of_python]
    is_misspelt = to_camel(name).lower() in (to_camel(field).lower() for field in known)
    fix = ""
    if "pod_overrides" in model.model_fields and not is_misspelt:
        # The name may be in snake_case.
        pod_spec = import_module("pulumi_kubernetes.core.v1").PodSpecArgs
        if to_camel(name) in input_types(pod_spec):
            fix = f"It is a field of the PodSpec: put it into {spell('pod_overrides')}. "
    return unknown(name, known, f"{fix}See {page}")


class _Place(NamedTuple):
    """The place of an error: its path for the user, the model there, and the component's page."""

    path: str
    model: type[BaseModel]
    page: str


def _place(
    location: tuple[int | str, ...], spec: type[BaseModel], spell: Callable[[str], str]
) -> _Place:
    """Return the place of an error, from the location in which pydantic reports it."""
    path = ""
    page = _page([spec], STACK_FILE_PAGE)
    choices = [spec]
    is_key = False
    for part in location:
        if part == "[key]":  # pydantic's mark of a key of a mapping, after the key
            continue
        tagged = [model for model in choices if len(choices) > 1 and model.__name__ == part]
        if tagged:
            choices = tagged
            page = _page(tagged, page)
            continue
        fields = choices[0].model_fields if choices and not is_key else {}
        is_key = False
        if part in fields:
            annotation = fields[str(part)].annotation
            choices = models_in(annotation)
            is_key = dict in map(get_origin, (annotation, *get_args(annotation)))
            page = _page(choices, page)
        path += (
            f"[{part}]" if isinstance(part, int) else f".{spell(part) if part in fields else part}"
        )
    return _Place(path.lstrip("."), next(iter(choices), spec), page)


def _page(choices: Sequence[type[BaseModel]], default: str) -> str:
    """Return the page of the one component that a model belongs to, otherwise the default."""
    name = choices[0].__name__.removesuffix("Spec") if len(choices) == 1 else ""
    return f"docs/components/{name}.md" if name in COMPONENTS else default


def _spelled(text: str, model: type[BaseModel], spell: Callable[[str], str]) -> str:
    """Return a text with the names of the model's fields as the user writes them."""
    names = sorted(
        (name for name in model.model_fields if spell(name) != name), key=len, reverse=True
    )
    return (
        re.sub(rf"\b({'|'.join(names)})\b", lambda match: spell(match[0]), text) if names else text
    )
