"""Wrong arguments, told all at once: the path of each, its value, and what is allowed."""

import difflib
import operator
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache, reduce
from typing import Any, cast, get_args

import pulumi
from pydantic import BaseModel, ValidationError

from ml_foundations.catalog.tables import rows


class FieldsError(ValueError):
    """Arguments that do not go together: each the name of a field, and why."""

    def __init__(self, found: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in found))
        self.found = found


class ArgumentsError(pulumi.InputPropertiesError, pulumi.RunError):
    """Wrong arguments of a component, all in its message. As a RunError it ends a program without a traceback."""

    def __init__(
        self,
        component: str,
        error: ValidationError | None,
        spec: type[BaseModel],
        spell: Callable[[str], str] = str,
        more: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.given = component, error, spec
        explained = explain(error, spec, spell) if error else ()
        details: list[pulumi.InputPropertyErrorDetails] = [
            {"property_path": path, "reason": reason} for path, reason in [*more, *explained]
        ]
        lines = "".join(f"\n  {item['property_path']}: {item['reason']}" for item in details)
        super().__init__(f"{component}: {len(details)} wrong argument(s):{lines}", details)


def explain(
    error: ValidationError, spec: type[BaseModel], spell: Callable[[str], str] = str
) -> Iterator[tuple[str, str]]:
    """Each error as its path and a reason that names the value and the way out; ``spell`` writes names of fields."""
    for item in error.errors():
        location = item["loc"]
        path, model = _place(location, spec, spell)
        message = item["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        context = item.get("ctx", {})
        cause = context.get("error")
        if isinstance(cause, FieldsError):
            for field, reason in cause.found:
                yield f"{path}.{_spelled(field, model, spell)}".lstrip("."), _spelled(reason, model, spell)
        elif item["type"] == "extra_forbidden":
            known = sorted(map(spell, _place(location[:-1], spec, spell)[1].model_fields))
            more = " Other fields of the PodSpec go into pod_overrides." if "pod_overrides" in known else ""
            yield path, f"{unknown(str(location[-1]), known)}{more}"
        elif isinstance(item["input"], pulumi.Output):
            yield path, f"is an Output; it must be known at preview: {_instead(location, spec)}"
        elif item["type"] == "missing":
            yield path, "is required"
        elif item["type"] == "string_too_long":
            yield path, f"has {len(item['input'])} characters, and {context['max_length']} are allowed"
        elif "secret_env" in location:  # what was given may be the secret itself
            yield path, "must be the name of a Secret and a key in it, such as {name: hugging-face, key: token}"
        else:
            yield path, f"{message} (got {item['input']!r})"


def taken(field: str, values: Sequence[str], others: Container[str] = ()) -> Iterator[tuple[str, str]]:
    """The values of a list that stand in it before, or that others have; {} in the field's path is a value's index."""
    for index, value in enumerate(values):
        if value in others or value in values[:index]:
            yield field.format(index), f"{value} is taken; choose another"


def apart(spec: BaseModel) -> Iterator[tuple[str, str]]:
    """The arguments that do not go together, by the tables of rules: the field to change, and the reason."""
    for row in _rules(type(spec)):
        if all(_holds(spec, term) for term in row["when"].split()):
            yield row["field"], row["reason"].format(spec)


@cache
def _rules(kind: type[BaseModel]) -> list[Mapping[str, str]]:
    """The rules of a spec and of those that it inherits from, each in the table of its room."""
    rooms = {base.__name__: base.__module__.rpartition(".")[0] for base in kind.__mro__}
    ours = ((name, room) for name, room in rooms.items() if room.startswith("ml_foundations."))
    return [row for name, room in ours for row in rows("rules.csv", room, "|") if row["of"] == name]


def _holds(spec: BaseModel, term: str) -> bool:
    """Whether a condition holds, of a field or property that may be.

    It is ``word``, ``word=value``, ``word!=value``, or a comparison with a number or another word, as ``word<other``.
    Values with a meaning are None, nothing (false or empty, too) and given (by the program).
    """
    word, sign, value = _TERM.fullmatch(term).groups()  # pyright: ignore[reportOptionalMemberAccess]
    found = _value(spec, word)
    if compare := _COMPARED.get(sign):
        other = int(value) if value.isdecimal() else _value(spec, value)
        return found is not None and other is not None and compare(found, other)
    if not sign:
        return bool(found)
    meant = {"None": found is None, "nothing": not found, "given": word in spec.model_fields_set}
    is_text = not isinstance(found, pulumi.Output) and str(found) == value
    return meant.get(value, is_text) != (sign == "!=")


_TERM = re.compile("([^=!<>]+)([=!<>]*)(.*)")
_COMPARED = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


def _value(spec: BaseModel, word: str) -> Any:
    def below(of: Any, name: str) -> Any:
        return cast("Mapping[str, Any]", of).get(name) if isinstance(of, Mapping) else getattr(of, name, None)

    return reduce(below, word.split("."), cast("Any", spec))


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models inside of list[Model], dict[str, Model] or Model | None; more than one in a choice of models."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def _instead(location: tuple[int | str, ...], spec: type[BaseModel]) -> str:
    """What to give in place of an Output."""
    if location[0] == "env" and "secret_env" in spec.model_fields:
        return "put it into a Secret, and name that and its key in secret_env"
    return "give a plain value (its page says what may be an Output)"


def unknown(key: str, known: list[str]) -> str:
    """The reason of a name that is not among the known ones."""
    near = difflib.get_close_matches(key, known, n=2)
    return f"is not known. Did you mean {' or '.join(near)}?" if near else f"is not known. Known: {', '.join(known)}"


def _place(
    location: tuple[int | str, ...], model: type[BaseModel], spell: Callable[[str], str]
) -> tuple[str, type[BaseModel]]:
    """The path of a place in a model, and the model that is there."""
    path = ""
    choices = {model.__name__: model}
    for part in location:
        if len(choices) > 1 and part in choices:
            choices = {str(part): choices[str(part)]}
            continue
        fields = next(iter(choices.values())).model_fields if choices else {}
        if part in fields:
            choices = {found.__name__: found for found in models_in(fields[str(part)].annotation)}
        path += f"[{part}]" if isinstance(part, int) else f".{spell(part) if part in fields else part}"
    return path.lstrip("."), next(iter(choices.values()), model)


def _spelled(text: str, model: type[BaseModel], spell: Callable[[str], str]) -> str:
    """A text with the names of the model's fields as the user writes them."""
    names = sorted((name for name in model.model_fields if spell(name) != name), key=len, reverse=True)
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: spell(found[0]), text) if names else text
