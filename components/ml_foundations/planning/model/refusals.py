"""What keeps something from running, in words."""

from typing import NamedTuple

from ml_foundations.catalog.tables import rows


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
    """What it is about, where that is not the workload."""
    only_refuses: bool = False
    """Whether the unknown value can only refuse pods: no value of it makes more pods fit."""


_TEXTS = {
    row["name"]: row for row in rows("refusals.csv", "ml_foundations.planning.model", delimiter=";")
}


_ONLY_REFUSE = frozenset(
    {
        *(
            "device-claims",
            "long-name",
            "no-critical-quota",
            "no-queue-priority",
            "no-time",
            "some-secrets",
            "unknown-account",
        ),
        *(
            "no-class",
            "open-volume",
            "scarce-volumes",
            "unknown-claim",
            "unknown-class",
            "unknown-field-of-claim",
        ),
        *(
            "queue-quota",
            "transformed",
            "unknown-volume",
            "waits-too-long",
            "zone-before-pod",
            "zone-of-the-first",
        ),
    }
)
"""Unknowns that may keep pods from being created or from nodes, and add nothing that helps."""


def told(
    name: str, path: str = "", /, *, certain: bool | None = None, object: str = "", **values: object
) -> Refusal:
    """Return a refusal in the words of the table; what is beyond planning is not certain."""
    row = _TEXTS[name]
    message, remedy = row["message"].format_map(values), row["remedy"].format_map(values)
    is_certain = row["rule"] != "beyond-planning" if certain is None else certain
    return Refusal(row["rule"], path, message, remedy, is_certain, object, name in _ONLY_REFUSE)


def invalid(path: str, wrong: str, about: str = "") -> Refusal:
    """Return the API server's refusal of an object for an invalid field."""
    return Refusal(
        "invalid", path, f"the API server refuses it: {path} {wrong}", "Correct it.", object=about
    )
