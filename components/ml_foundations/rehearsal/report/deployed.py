"""The resources that a rehearsal has deployed, as the engine's state has them."""

from itertools import compress
from typing import Any

from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.program import Resource, is_judged, is_kept
from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.values import SIGNATURE


def deployed(rehearsal: Rehearsal) -> tuple[list[Resource], list[Resource]]:
    """Return the state's resources that matter to the proof, and those that Pulumi leaves; a secret is not known."""
    latest = read_json(stack.state_file(rehearsal), {}).get("checkpoint", {}).get("latest") or {}
    resources = [each for each in latest.get("resources") or [] if is_judged(each["type"]) and not each.get("delete")]
    found = [(each["type"], _plain(each.get("inputs", {}))) for each in resources]
    kept = (
        is_kept(each["type"], retained=each.get("retainOnDelete"), protected=each.get("protect")) for each in resources
    )
    return found, [*compress(found, kept)]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return UNKNOWN if SIGNATURE in value else {key: _plain(each) for key, each in value.items()}
    return [*map(_plain, value)] if isinstance(value, list) else value
