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


_TEXTS = {row["name"]: row for row in rows("refusals.csv", "ml_foundations.planning.model", delimiter=";")}


def told(name: str, path: str = "", /, *, certain: bool | None = None, object: str = "", **values: object) -> Refusal:
    """A refusal in the words of the table beside this module; what is beyond planning is not certain."""
    row = _TEXTS[name]
    message, remedy = row["message"].format_map(values), row["remedy"].format_map(values)
    is_certain = row["rule"] != "beyond-planning" if certain is None else certain
    return Refusal(row["rule"], path, message, remedy, is_certain, object)


def invalid(path: str, wrong: str, about: str = "") -> Refusal:
    """The API server refuses an object for what is wrong with a field."""
    return Refusal("invalid", path, f"the API server refuses it: {path} {wrong}", "Correct it.", object=about)
