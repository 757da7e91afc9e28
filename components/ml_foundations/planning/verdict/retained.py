"""Volumes and snapshots that stay on Google Cloud after a Pulumi stack is deleted, and cost."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ml_foundations.catalog.charges import HOURS_PER_MONTH
from ml_foundations.kubernetes.objects import Manifest, name_of, section
from ml_foundations.planning.model.declared import key_of, of_kind
from ml_foundations.planning.model.volumes import Stored
from ml_foundations.planning.verdict.cost import piece

_MOST_NAMED = 5


@dataclass(frozen=True)
class Retained:
    """Storage that outlives the stack."""

    object: str
    why: str
    per_month: Decimal | None
    """US dollars for 730 hours; None if they are not known."""


def retained(
    stored: Iterable[Stored],
    objects: Iterable[Manifest],
    kept: Iterable[Manifest],
    region: str | None,
) -> Iterator[Retained]:
    """Yield what outlives the stack of its volumes and objects; Pulumi leaves those in ``kept``."""
    claims = set(map(key_of, of_kind(kept, "PersistentVolumeClaim")))
    for volume in stored:
        if why := _why(volume, claims):
            cost = piece(str(volume), region, volume.billed, most=volume.number)
            per_hour = cost.per_hour_max
            yield Retained(cost.name, why, None if per_hour is None else per_hour * HOURS_PER_MONTH)
    for snapshot_class in of_kind(objects, "VolumeSnapshotClass"):
        if snapshot_class.get("deletionPolicy") == "Retain":
            name = f"snapshots of class {name_of(snapshot_class)}"
            yield Retained(name, "the class has deletionPolicy Retain", None)


def _why(stored: Stored, kept: Iterable[tuple[str, str]]) -> str:
    """Return why the volumes of a claim stay; empty if they go."""
    if stored.storage_class.get("reclaimPolicy") == "Retain":
        return "its class has reclaimPolicy Retain"
    if stored.owner is None:
        is_kept = key_of(stored.claim) in kept
        return "Pulumi keeps the claim (retain_on_delete)" if is_kept else ""
    spec = section(stored.owner.manifest, "spec")
    policy = section(spec, "persistentVolumeClaimRetentionPolicy").get("whenDeleted")
    return "" if policy == "Delete" else "a StatefulSet keeps the claims of its pods"


def as_lines(retained: Sequence[Retained]) -> list[str]:
    """Return what outlives the stack for people, the dearest first, at most five by name."""
    if not retained:
        return []
    ordered = sorted(retained, key=lambda item: item.per_month or Decimal(0), reverse=True)
    known = sum((item.per_month or Decimal(0) for item in retained), Decimal(0))
    lines = [f"After pulumi destroy, this stays on Google Cloud for {known:,.0f} USD a month:"]
    for item in ordered[:_MOST_NAMED]:
        price = "an unknown price" if item.per_month is None else f"{item.per_month:,.0f} USD"
        lines.append(f"  {item.object}, {price}: {item.why}")
    if len(ordered) > _MOST_NAMED:
        lines.append(f"  and {len(ordered) - _MOST_NAMED} more")
    return lines
