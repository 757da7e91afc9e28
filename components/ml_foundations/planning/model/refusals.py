"""What keeps something from running, in words."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Why the API server refuses an object, a node a pod, or something else keeps pods from running."""

    rule: str
    path: str
    """The field that decides, below the pod's spec."""
    message: str
    remedy: str = ""
    certain: bool = True
    """Whether it is refused; otherwise something that is not known decides."""
    object: str = ""
    """What it is about, where that is not the workload."""


def invalid(path: str, wrong: str, about: str = "") -> Refusal:
    """The API server refuses an object for what is wrong with a field."""
    return Refusal("invalid", path, f"the API server refuses it: {path} {wrong}", "Correct it.", object=about)
