"""Levels of the nodes' topology in arguments, and their labels of nodes."""

from typing import Annotated

from pydantic import AfterValidator

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.spelling import did_you_mean


def level_label(level: str) -> str:
    """Return the label of nodes of a level: a level is a name or the label itself."""
    return labels.TOPOLOGY_LEVELS.get(level, level)


def known_level(level: str) -> str:
    """Return a level that is a name of GKE's or a label; raise ValueError for another word."""
    if "/" not in level and level not in labels.TOPOLOGY_LEVELS:
        names = ", ".join(labels.TOPOLOGY_LEVELS)
        known = f"Set {names} or the key of a node label, such as example.com/rack"
        unknown = f'there is no level "{level}".'
        nearest = did_you_mean(level, labels.TOPOLOGY_LEVELS)
        raise ValueError(" ".join(filter(None, [unknown, nearest, known])))
    return level


TopologyLevel = Annotated[str, AfterValidator(known_level)]
"""A level by GKE's name, such as sub-block, or the key of a node label."""
