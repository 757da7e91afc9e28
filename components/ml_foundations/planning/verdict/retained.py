"""What stays on Google Cloud after a Pulumi stack is deleted, and goes on to cost: volumes and snapshots."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ml_foundations.catalog.charges import HOURS_PER_MONTH
from ml_foundations.kubernetes.objects import Manifest, name_of, namespace_of, section
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.model.refusals import told
from ml_foundations.planning.model.volumes import Stored
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.cost import piece
from ml_foundations.planning.verdict.findings import Finding

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
    """Yield what outlives the stack; ``kept`` are the objects that Pulumi leaves (``retain_on_delete``)."""
    claims = {
        (namespace_of(each), name_of(each))
        for each in kept
        if each.get("kind") == "PersistentVolumeClaim"
    }
    for each in stored:
        if why := _why(each, claims):
            cost = piece(str(each), region, each.billed, most=each.number)
            per_hour = cost.per_hour_max
            yield Retained(cost.name, why, None if per_hour is None else per_hour * HOURS_PER_MONTH)
    for each in objects:
        if each.get("kind") == "VolumeSnapshotClass" and each.get("deletionPolicy") == "Retain":
            yield Retained(
                f"snapshots of class {name_of(each)}", "the class has deletionPolicy Retain", None
            )


def lost_with_namespaces(
    stored: Iterable[Stored], objects: Iterable[Manifest], kept: Iterable[Manifest]
) -> Iterator[Finding]:
    """Yield the claims that Pulumi keeps, in declared namespaces that it deletes, which take their claims along."""
    left = [*kept]
    of_claims = {
        (namespace_of(each), name_of(each))
        for each in left
        if each.get("kind") == "PersistentVolumeClaim"
    }
    deleted = {name_of(each) for each in objects if each.get("kind") == "Namespace"}
    deleted -= {name_of(each) for each in left if each.get("kind") == "Namespace"}
    for each in stored:
        namespace, name = namespace_of(each.claim), name_of(each.claim)
        is_kept = each.owner is None and (namespace, name) in of_claims
        if is_kept and namespace in deleted and each.storage_class.get("reclaimPolicy") != "Retain":
            about = f"PersistentVolumeClaim {namespace}/{name}"
            yield explain.finding(
                told("namespace-takes-claims", object=about, namespace=namespace), Verdict.FITS
            )


def _why(stored: Stored, kept: Iterable[tuple[str, str]]) -> str:
    """Return why the volumes of a claim stay; empty if they go."""
    if stored.storage_class.get("reclaimPolicy") == "Retain":
        return "its class has reclaimPolicy Retain"
    if stored.owner is None:
        is_kept = (namespace_of(stored.claim), name_of(stored.claim)) in kept
        return "Pulumi keeps the claim (retain_on_delete)" if is_kept else ""
    policy = section(stored.owner.manifest, "spec", "persistentVolumeClaimRetentionPolicy").get(
        "whenDeleted"
    )
    return "" if policy == "Delete" else "a StatefulSet keeps the claims of its pods"


def as_lines(found: Sequence[Retained]) -> list[str]:
    """Return what outlives the stack for people, the dearest first, at most five by name."""
    known = sum((each.per_month or Decimal(0) for each in found), Decimal(0))
    ordered = sorted(found, key=lambda each: each.per_month or Decimal(0), reverse=True)
    lines = (
        [f"After pulumi destroy, this stays on Google Cloud for {known:,.0f} USD a month:"]
        if found
        else []
    )
    for each in ordered[:_MOST_NAMED]:
        price = (
            "a price that is not known" if each.per_month is None else f"{each.per_month:,.0f} USD"
        )
        lines.append(f"  {each.object}, {price}: {each.why}")
    return lines + ([f"  and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else [])
