"""Stack files that differ from ours, what settings say to them, and what the proof says to what they declare."""

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

import pulumi
import pytest
import settings as settings
import yaml

from tests.support import recording
from tests.support.checkout import CHECKOUT

STACKS = CHECKOUT / "stacks"


@cache
def _config(stack: str) -> dict[str, Any]:
    return yaml.load((STACKS / f"Pulumi.{stack}.yaml").read_text(), yaml.CSafeLoader)["config"]


def sections(stack: str = "dev") -> dict[str, Any]:
    """The sections of one of our stack files."""
    config = copy.deepcopy(_config(stack))
    ours = [key for key in config if key.startswith("ml-foundations:")]
    return {
        "project": config["gcp:project"],
        **{key.partition(":")[2]: config[key] for key in ours},
    }


OWN = {
    "ml-foundations-dev": "acme-ml-dev",
    "ml-foundations-staging": "acme-ml-staging",
    "ml-foundations-prod": "acme-ml-prod",
    "203.0.113.0/24": "34.91.7.0/24",
    "@example.com": "@acme-ml.ai",
}
"""What a user writes for each placeholder of our stack files."""


def with_own_values(text: str) -> str:
    """The text of a stack file with values of a user's own in place of the placeholders."""
    for placeholder, own in OWN.items():
        text = text.replace(placeholder, own)
    return text


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The dev stack with values changed, each by its path."""
    return with_changes(sections(), *changes)


def with_changes(given: dict[str, Any], *changes: tuple[str, Any]) -> dict[str, Any]:
    """A stack file with values changed, each by its path."""
    for path, value in changes:
        *parents, last = path.split(".")
        node = given
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    return given


def errors(given: Mapping[str, Any]) -> str:
    """What the settings refuse."""
    with pytest.raises(ValueError) as caught:
        settings.parse(dict(given))
    return str(caught.value)


def refusal(given: Mapping[str, Any]) -> str:
    """What the proof says to the program of the stacks; nothing where it refuses nothing."""
    # Without the stack's budget, which other pools would exceed.
    sections = {
        key: value
        for key, value in given.items()
        if key not in ("project", "proof") and value is not None
    }
    config = {
        "gcp:project": given["project"],
        **{f"ml-foundations:{key}": value for key, value in sections.items()},
    }
    try:
        recording.changed_stack("dev", config)
    except pulumi.RunError as refused:
        return str(refused)
    return ""
