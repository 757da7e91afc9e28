"""Names of a team's sections in a stack file, where a program passes the components themselves."""

from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.component.partial import InvalidArgumentError, validated
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.kubernetes.spelling import not_among
from pydantic.alias_generators import to_camel
from team import SECTIONS, Reference, references


def resolve(
    entry: dict[str, Any], spec: type[ComponentSpec], team: Mapping[str, Any], namespace: str
) -> Iterator[tuple[str, str]]:
    """Replace the names of sections by what their components publish to programs.

    For example, ``servers: [chat]`` becomes the pods of ``inferenceServices.chat``. Other values,
    such as the arguments of a ModelServer, stay. A key is removed if it names an invalid
    section or none. Yield the path of each name without a section, and the reason.
    """
    for reference in references(spec):
        key = to_camel(reference.argument)
        given: Any = entry.get(key)
        if reference.is_list != isinstance(given, list):
            continue
        items: list[Any] = given if isinstance(given, list) else [given]
        sections = team.get(to_camel(reference.section)) or {}
        published: dict[str, dict[str, Any]] = {}
        for index, name in enumerate(items):
            if not isinstance(name, str):
                continue
            published[name] = _published(reference, name, sections.get(name), namespace)
            if name not in sections:
                path = f"{key}[{index}]" if reference.is_list else key
                yield path, not_among(name, reference.component, sections)
        if {} in published.values():
            del entry[key]
        elif reference.is_list:
            entry[key] = [published[of][key] if isinstance(of, str) else of for of in items]
        elif published:
            (values,) = published.values()
            for of, value in values.items():
                if of != key and entry.get(of) not in (None, value):
                    yield of, f"is {entry[of]}, but follows from {key}; leave it out"
            entry.update(values)


def _published(reference: Reference, name: str, section: Any, namespace: str) -> dict[str, Any]:
    """Return the arguments that a section's component sets, or none if the section is invalid."""
    if not isinstance(section, dict):
        return {}
    spec = SECTIONS[reference.section]
    names = {"namespace": namespace, to_camel(spec.name_field or ""): name}
    component, _ = validated(spec, {**section, **names}, by_alias=True, by_name=False)
    try:
        outputs = {key: getattr(component, output) for key, output in reference.outputs.items()}
    except (AttributeError, InvalidArgumentError):  # it is None without any valid argument
        return {}
    return {to_camel(key): _in_file(value) for key, value in outputs.items()}


def _in_file(value: Any) -> Any:
    """Return arguments with the keys of a stack file."""
    return {to_camel(key): of for key, of in value.items()} if isinstance(value, dict) else value
