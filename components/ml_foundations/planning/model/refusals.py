"""Refusals: what keeps something from running, as data with its sentence."""

from enum import Enum, auto
from typing import NamedTuple


class Cause(Enum):
    """The cause on which a remedy depends, where the rule and the field do not show it."""

    NO_POOL_LIST = auto()
    """The program does not list the node pools of its cluster."""
    NOT_IN_CATALOG = auto()
    """The catalog lacks the machine type of a node pool."""
    NO_GPU_PRODUCT = auto()
    """The pods require a label that the GPU Operator gives to nodes, and the nodes lack it."""


class UnknownFact(NamedTuple):
    """Something about a node pool that is not known yet."""

    name: str
    """What it is, such as the path of a field."""
    cause: Cause | None = None


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
    cause: Cause | None = None
    workloads: tuple[str, ...] = ()
    """The workloads that its message names."""


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
