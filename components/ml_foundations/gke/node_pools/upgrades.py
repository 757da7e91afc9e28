"""The way that the nodes of a pool are upgraded: a few at a time, or a new set next to the old."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.spec import Spec

_MOST_AT_ONCE = 20
"""The most nodes that GKE upgrades at once (GKE, "Node upgrade strategies")."""


class Upgrade(Spec):
    """The way that the nodes of a pool are upgraded."""

    strategy: Literal["SURGE", "BLUE_GREEN"] = "SURGE"
    """SURGE (a few nodes at a time) or BLUE_GREEN (a new set of nodes next to the old). The default
    is SURGE."""
    max_surge: int | None = Field(default=None, ge=0)
    """For SURGE: nodes that may be added at once. The default is 1: a new node is bought before an
    old one is given back. For GPU nodes of a reservation it is 0, as the reservation keeps the
    place of an old node and may have no other."""
    max_unavailable: int | None = Field(default=None, ge=0)
    """For SURGE: nodes that may be missing at once. The default is 0, or 1 if max_surge is 0."""
    batch_nodes: int | None = Field(default=None, ge=1)
    """For BLUE_GREEN: old nodes that are drained at a time. The default is 1."""
    batch_soak_seconds: int | None = Field(default=None, ge=0)
    """For BLUE_GREEN: seconds to wait after each batch. By default, GKE decides."""
    soak_seconds: int | None = Field(default=None, ge=0, le=7 * 86400)
    """For BLUE_GREEN: seconds that the old nodes remain after the last drain. By default, GKE uses
    an hour."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if (self.max_surge or 0) + (self.max_unavailable or 0) > _MOST_AT_ONCE:
            reason = f"are more than {_MOST_AT_ONCE} together; GKE upgrades no more at once"
            yield "max_surge", f"and max_unavailable {reason}"
        if self.max_surge == self.max_unavailable == 0:
            reason = "is 0, and so is max_surge: no node could be upgraded; raise one of them"
            yield "max_unavailable", reason
        surge = ("max_surge", "max_unavailable")
        blue_green = ("batch_nodes", "batch_soak_seconds", "soak_seconds")
        for field in blue_green if self.strategy == "SURGE" else surge:
            if field in self.model_fields_set:
                fix = "leave it out, or change the strategy"
                yield field, f"is not for the strategy {self.strategy}; {fix}"


def upgrade_arguments(upgrade: Upgrade, *, surges: bool) -> dict[str, Any]:
    """Return the upgrade_settings of a pool; by default, new nodes come first if it ``surges``."""
    if upgrade.strategy == "BLUE_GREEN":
        batch_soak = _duration(upgrade.batch_soak_seconds)
        soak = _duration(upgrade.soak_seconds)
        rollout = {"batchNodeCount": upgrade.batch_nodes or 1, "batchSoakDuration": batch_soak}
        settings = {"standardRolloutPolicy": rollout, "nodePoolSoakDuration": soak}
        return {"strategy": upgrade.strategy, "blueGreenSettings": settings}
    surge = upgrade.max_surge
    unavailable = upgrade.max_unavailable
    if surge is None:
        surge = int(surges) if unavailable is None else int(unavailable == 0)
    if unavailable is None:
        unavailable = int(surge == 0)
    return {"strategy": upgrade.strategy, "maxSurge": surge, "maxUnavailable": unavailable}


def _duration(seconds: int | None) -> str | None:
    return None if seconds is None else f"{seconds}s"
