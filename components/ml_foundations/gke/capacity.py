"""Where a pool's machines come from: on demand, spot, a reservation, or Dynamic Workload Scheduler."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pulumi_gcp as gcp

from ml_foundations.catalog.machine_types import MACHINE_TYPES

if TYPE_CHECKING:
    from ml_foundations.gke.node_pool import NodePoolSettings

RESERVATION_KEY = "compute.googleapis.com/reservation-name"
"""The label by which a node names its reservation (Compute Engine, "Consume reserved instances")."""

RESERVATION = re.compile(r"(projects/[^/]+/reservations/)?[a-z][-a-z0-9]*(/reservationBlocks/[-a-z0-9]+)?")
FLEX_START_SECONDS = 7 * 86400
"""The longest that a node of flex-start runs (GKE, "About GPU provisioning with flex-start")."""

COMPACT_WITH_FLEX_START = ("a3-ultragpu", "a4-highgpu")
"""Families that are placed compactly with flex-start (cluster-toolkit, gke-node-pool)."""


def errors(pool: NodePoolSettings) -> Iterator[tuple[str, str]]:
    """What does not go together in where the machines come from."""
    yield from _purchase(pool)
    yield from _reservation(pool)
    yield from _flex_start(pool)
    yield from _queued(pool)
    yield from _placement(pool)


def _purchase(pool: NodePoolSettings) -> Iterator[tuple[str, str]]:
    """Whether Google sells the machine type in the way that was chosen."""
    machine = MACHINE_TYPES[pool.machine_type]
    ways = {"on-demand": "neither", "spot": "spot", "flex-start": "flex_start", "reservation": "a reservation"}
    chosen = _way(pool)
    # Flex-start is to be had for most machines; the catalog says so only where there is little else.
    unlisted = chosen == "flex-start" and "on-demand" in machine.purchase
    if chosen not in machine.purchase and not unlisted:
        field = {"spot": "spot", "flex-start": "flex_start", "reservation": "reservation"}.get(chosen, "machine_type")
        choice = " or ".join(ways[way] for way in machine.purchase)
        yield field, f"{machine.name} cannot be had by {chosen.replace('on-demand', 'plain demand')}; say {choice}"


def _way(pool: NodePoolSettings) -> str:
    if pool.spot:
        return "spot"
    if pool.flex_start or pool.queued_provisioning:
        return "flex-start"
    return "reservation" if pool.reservation not in (None, "none") else "on-demand"


def _reservation(pool: NodePoolSettings) -> Iterator[tuple[str, str]]:
    reservation = pool.reservation
    if reservation in (None, "none"):
        return
    if not RESERVATION.fullmatch(reservation):
        form = "a name, or projects/PROJECT/reservations/NAME, each with /reservationBlocks/BLOCK for a block of it"
        yield "reservation", f'is "{reservation}"; write any, none, {form}'
    for field in ("spot", "flex_start", "queued_provisioning"):
        if getattr(pool, field):
            yield "reservation", f"is {reservation}, but nodes of {field} come from no reservation; leave one out"
    if reservation != "any" and not pool.zones:
        yield "zones", "are needed with a reservation: it is in one zone"


def _flex_start(pool: NodePoolSettings) -> Iterator[tuple[str, str]]:
    if pool.flex_start and pool.spot:
        yield "flex_start", "and spot are two ways to buy a machine; choose one"
    if pool.flex_start and pool.auto_repair:
        yield "auto_repair", "is true, but GKE does not repair nodes of flex_start; leave it out"
    if pool.flex_start and pool.min_nodes and not pool.queued_provisioning:
        yield "min_nodes", f"is {pool.min_nodes}, but nodes of flex_start come when pods wait for them: say 0"
    if pool.flex_start and (pool.max_run_seconds or 0) > FLEX_START_SECONDS:
        yield "max_run_seconds", f"is {pool.max_run_seconds}; nodes of flex_start run {FLEX_START_SECONDS} at the most"


def _queued(pool: NodePoolSettings) -> Iterator[tuple[str, str]]:
    if not pool.queued_provisioning:
        return
    if pool.spot:
        yield "queued_provisioning", "and spot are two ways to buy a machine; choose one"
    if pool.min_nodes:
        yield "min_nodes", f"is {pool.min_nodes}, but queued nodes come with the request that waits for them: say 0"
    if pool.compact_placement:
        yield "compact_placement", "is not for GPUs with queued_provisioning; leave one of them out"
    if pool.location_policy == "BALANCED":
        yield "location_policy", "is BALANCED, but queued nodes are taken where there are any: say ANY"
    if pool.limits == "zone":
        yield "limits", "are per zone, but queued_provisioning needs them for the whole pool: say total"


def _placement(pool: NodePoolSettings) -> Iterator[tuple[str, str]]:
    if pool.placement_policy and not pool.compact_placement:
        yield "placement_policy", "names a policy of compact placement; set compact_placement too"
    if not pool.compact_placement:
        return
    if len(pool.zones or []) != 1:
        yield "compact_placement", "puts the nodes close together, and so into one zone: say which in zones"
    if pool.upgrade.strategy == "BLUE_GREEN":
        yield "compact_placement", "does not go with BLUE_GREEN upgrades; say SURGE"
    if pool.flex_start and MACHINE_TYPES[pool.machine_type].family not in COMPACT_WITH_FLEX_START:
        families = " and ".join(COMPACT_WITH_FLEX_START)
        yield "compact_placement", f"goes with flex_start on {families} machines only; leave one of them out"


def reservation_arguments(
    pool: NodePoolSettings,
) -> gcp.container.NodePoolNodeConfigReservationAffinityArgsDict | None:
    """The reservation_affinity of a pool; without one GKE takes any open reservation that matches."""
    name = pool.reservation
    if name == "none" or pool.spot or pool.flex_start or pool.queued_provisioning:
        return {"consume_reservation_type": "NO_RESERVATION"}
    if name is None:
        return None
    if name == "any":
        return {"consume_reservation_type": "ANY_RESERVATION"}
    return {"consume_reservation_type": "SPECIFIC_RESERVATION", "key": RESERVATION_KEY, "values": [name]}


def placement_arguments(pool: NodePoolSettings) -> gcp.container.NodePoolPlacementPolicyArgsDict | None:
    """The placement_policy of a pool."""
    return {"type": "COMPACT", "policy_name": pool.placement_policy} if pool.compact_placement else None
