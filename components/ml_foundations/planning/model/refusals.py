"""What keeps something from running, in words."""

from typing import NamedTuple

from ml_foundations.catalog.tables import rows


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
    only_refuses: bool = False
    """Whether what is not known can refuse pods, and can make none fit that would not fit without it."""


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
"""What may keep pods from being created, or from nodes, and adds nothing that helps them, such as a toleration."""


def told(
    name: str, path: str = "", /, *, certain: bool | None = None, object: str = "", **values: object
) -> Refusal:
    """A refusal in the words of the table beside this module; what is beyond planning is not certain."""
    row = _TEXTS[name]
    message, remedy = row["message"].format_map(values), row["remedy"].format_map(values)
    is_certain = row["rule"] != "beyond-planning" if certain is None else certain
    return Refusal(row["rule"], path, message, remedy, is_certain, object, name in _ONLY_REFUSE)


def invalid(path: str, wrong: str, about: str = "") -> Refusal:
    """The API server refuses an object for what is wrong with a field."""
    return Refusal(
        "invalid", path, f"the API server refuses it: {path} {wrong}", "Correct it.", object=about
    )
