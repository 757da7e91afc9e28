"""Rows of tables of arguments that a component refuses, and the message with which it refuses them."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from ml_foundations.component.spec import ComponentSpec, check

Refused = tuple[dict[str, Any], tuple[str, ...]]


def refused(*words: str, **arguments: Any) -> Refused:
    """Return a row: the arguments, and the words of the message that refuses them."""
    return arguments, words


def refusal(construct: Callable[..., Any], *values: Any, **arguments: Any) -> str:
    """Return the message that refuses the arguments of a component."""
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        construct(*values, **arguments)
    return str(caught.value)


def lines_about(field: str, message: str) -> list[str]:
    """Return the lines of a message that are about a field, such as ``mounts[0].path``."""
    lines = [line.strip() for line in message.splitlines()]
    return [line for line in lines if line.startswith(f"{field}: ")]


def assert_refused(spec: type[ComponentSpec], given: dict[str, Any], *reasons: str) -> None:
    """Check that the arguments of a spec are refused with all of the reasons."""
    message = refusal(check, spec, spec.__name__.removesuffix("Spec"), given)
    for reason in reasons:
        assert reason in message, message
