"""Refusals: what keeps something from running, in words."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """A reason why the API server, a node or something else keeps pods from running."""

    rule: str
    path: str
    """The field that decides, below the pod's spec."""
    message: str
    remedy: str = ""
    certain: bool = True
    """Whether it is refused; otherwise something that is not known decides."""
    object: str = ""
    """The object that it is about, if that is not the workload."""
    only_refuses: bool = False
    """Whether the unknown value can only refuse pods: no value of it makes more pods fit."""


def invalid(path: str, fault: str, about: str = "") -> Refusal:
    """Return the API server's refusal of an object for an invalid field."""
    message = f"the API server refuses it: {path or 'it'} {fault}"
    return Refusal("invalid", path, message, "Correct it.", object=about)


def doubt(
    rule: str, path: str, message: str, remedy: str = "", *, only_refuses: bool = False
) -> Refusal:
    """Return a refusal that depends on something unknown."""
    return Refusal(rule, path, message, remedy, certain=False, only_refuses=only_refuses)


def beyond_planning(path: str, message: str, remedy: str, *, only_refuses: bool = False) -> Refusal:
    """Return the doubt about something that decides and that planning does not model."""
    return doubt("beyond-planning", path, message, remedy, only_refuses=only_refuses)
