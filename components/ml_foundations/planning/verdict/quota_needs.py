"""The quotas of Google Cloud that declared nodes, disks and addresses take from."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ml_foundations.catalog import disks
from ml_foundations.catalog.pools import CLUSTER
from ml_foundations.catalog.quotas import quota
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, section
from ml_foundations.kubernetes.quantities import milli, parse_quantity, whole_number
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.input import program
from ml_foundations.planning.input.node_pools import from_node_pool
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.model.declared import of_kind, of_type
from ml_foundations.planning.model.nodes import NodeClass, comes_on_request, machine_of
from ml_foundations.planning.model.storage import copies_of
from ml_foundations.planning.model.volumes import Volumes
from ml_foundations.planning.model.workloads import claim_templates

_GLOBAL = "all regions"
_OPEN = "region not known"
_REGIONAL = "at most includes the second copy of regional disks; whether it counts is unverified"
_RESERVED = "taken when the reservation is made, in the project that owns it"
_NOT_COUNTED = "not counted: too little is known of these nodes"
_UNVERIFIED = "unverified: no source has this quota for it"


@dataclass(frozen=True)
class QuotaNeed:
    """The need of a quota in a region, with the fewest and with the most nodes."""

    region: str
    name: str
    """As `gcloud compute regions describe` prints it, or its id in the Cloud Quotas API."""
    at_least: int
    at_most: int
    unit: str
    note: str = ""

    def plus(self, second: "QuotaNeed") -> "QuotaNeed":
        """Return the sum of both."""
        least = self.at_least + second.at_least
        most = self.at_most + second.at_most
        notes = dict.fromkeys(filter(None, (self.note, second.note)))
        return replace(self, at_least=least, at_most=most, note="; ".join(notes))


_Needs = dict[tuple[str, str, bool], QuotaNeed]
"""Needs by region, quota and whether they are of a reservation."""


def quota_needs(
    resources: Iterable[Resource], existing: Sequence[Resource] = ()
) -> tuple[QuotaNeed, ...]:
    """Return what a program's nodes, claims and addresses take from quotas, least and most."""
    # At most includes nodes that an upgrade adds. The speed of disks is counted for Hyperdisk ML
    # only. Nodes that too little is known about have a separate row.
    declared = list(resources)
    clusters = of_type(declared, CLUSTER)
    nodes = program.nodes_of(declared, existing)
    if not clusters:
        # The nodes of a cluster that the program does not make have their quota already.
        nodes = [node for node in nodes if node.unknown != program.NO_LIST]
    regions = {_region(cluster.get("location")) for cluster in clusters}
    regions = regions or {*map(_region_of, nodes)}
    region = regions.pop() if len(regions) == 1 else _OPEN
    volumes = _of_claims(program.objects_of(declared), clusters, region)
    addresses: list[QuotaNeed] = []
    for nat in of_type(declared, program.NAT):
        place = region if clusters or nodes else _region(nat.get("region"))
        addresses.append(_need("address/nat", place, 1, 1))
    # Every project has the quota for one network.
    networks = len(of_type(declared, program.NETWORK))
    more = [_need("network/all", _GLOBAL, networks, networks)] if networks > 1 else []
    sums = _summed([*_of_nodes(nodes), *volumes, *addresses, *more])
    # GKE removes this pool before it makes the others, so that it is not added to them.
    removed: list[NodeClass] = []
    for cluster in clusters:
        if cluster.get("removeDefaultNodePool"):
            for pool in program.own_pools({**cluster, "removeDefaultNodePool": False}):
                removed.append(replace(from_node_pool(pool, cluster), surge=0))
    for key, first in _summed(_of_nodes(removed)).items():
        need = sums.get(key, first)
        least = max(need.at_least, first.at_least)
        most = max(need.at_most, first.at_most)
        sums[key] = replace(need, at_least=least, at_most=most)
    return tuple(sums[key] for key in sorted(sums))


def quota_of_nodes(nodes: Iterable[NodeClass]) -> tuple[QuotaNeed, ...]:
    """Return what nodes take from quotas, as far as their labels show it."""
    return added(_of_nodes(nodes))


def added(needs: Iterable[QuotaNeed]) -> tuple[QuotaNeed, ...]:
    """Return the sums of needs, such as those of several clusters."""
    sums = _summed(needs)
    return tuple(sums[key] for key in sorted(sums))


def summary(needs: Sequence[QuotaNeed]) -> str:
    """Return how many quotas there are, and the largest of GPUs or else of vCPUs."""
    regional = [need for need in needs if need.region != _GLOBAL]
    gpus = [need for need in regional if need.unit == "GPUs"]
    vcpus = [need for need in regional if need.unit == "vCPUs"]
    most = max(gpus or vcpus or regional or needs, key=lambda need: need.at_most)
    example = f"{most.at_most} {most.name} in {most.region}"
    return f"{number(len(needs), 'quota')} of Google Cloud, such as {example}"


def _summed(needs: Iterable[QuotaNeed]) -> _Needs:
    sums: _Needs = {}
    for need in needs:
        key = need.region, need.name, need.note == _RESERVED
        if need.at_most:
            sums[key] = sums[key].plus(need) if key in sums else need
    return sums


def _of_nodes(nodes: Iterable[NodeClass]) -> Iterator[QuotaNeed]:
    for node in nodes:
        machine = machine_of(node)
        given = node.labels
        if machine is None:
            if node.unknown:
                yield QuotaNeed(_OPEN, node.name, 0, node.count, "nodes", _NOT_COUNTED)
            continue
        family = machine.name.partition("-")[0]
        vcpus = machine.vcpus
        gpu = given.get(labels.GKE_ACCELERATOR) or machine.gpu
        disk = given.get(labels.GKE_BOOT_DISK)
        gpus = whole_number(given.get(labels.GKE_ACCELERATOR_COUNT), machine.gpu_count)
        bought = {f"vcpu/{family}": vcpus, f"gpu/{gpu}": gpus}
        stored = {f"disk/{disk}": node.disk_gib, f"local-ssd/{family}": node.local_ssd_gib}
        everywhere = {"vcpus/all": vcpus, "gpus/all": gpus}
        is_spot = "true" in (given.get(labels.GKE_SPOT), given.get(labels.GKE_FLEX_START))
        is_spot = is_spot or comes_on_request(node)
        for what, amount in ({"instance/all": 1} | bought | stored | everywhere).items():
            region = _GLOBAL if what in everywhere else _region_of(node)
            most = amount * (node.count + node.surge)
            need = _need(what, region, amount * node.fewest, most, preemptible=is_spot)
            is_reserved = what in bought and labels.GKE_RESERVATION in given
            yield replace(need, note=_RESERVED) if is_reserved else need


def _need(what: str, region: str, least: int, most: int, *, preemptible: bool = False) -> QuotaNeed:
    kind, _, name = what.partition("/")
    row = quota(kind, name)
    column = "preemptible" if preemptible else "standard"
    written = row[column].replace("{name}", name.upper().replace("-", "_"))
    note = _UNVERIFIED if column in row["unverified"] else ""
    return QuotaNeed(region, written, least, most, row["unit"], note)


def _region_of(node: NodeClass) -> str:
    return _region(node.labels.get(labels.REGION))


def _region(location: Any) -> str:
    return "-".join(location.split("-")[:2]) if isinstance(location, str) and location else _OPEN


def _of_claims(
    objects: Sequence[Manifest], clusters: Sequence[Manifest], region: str
) -> Iterator[QuotaNeed]:
    """Yield what the disks and shares of claims take, one for each pod of a StatefulSet."""
    by_kind: dict[str, list[Manifest]] = {}
    for kind in ("PersistentVolumeClaim", "PersistentVolume", "StorageClass"):
        by_kind[kind] = of_kind(objects, kind)
    volumes = Volumes(by_kind, clusters[0] if len(clusters) == 1 else None)
    claims = [(claim, 1) for claim in volumes.claims]
    for manifest in objects:
        if templates := claim_templates(manifest):
            spec = section(manifest, "spec")
            # Of a LeaderWorkerSet, a replica is a group.
            sizes = [spec.get("replicas"), section(spec, "leaderWorkerTemplate").get("size")]
            count = math.prod(int(size) for size in sizes if isinstance(size, (int, float)))
            claims += [(claim, count) for claim in templates]
    for claim, count in claims:
        gib = _whole(section(claim, "spec", "resources", "requests").get("storage"), 1 << 30)
        for need in _of_volume(volumes.class_that_makes(claim), gib, region):
            yield replace(need, at_least=need.at_least * count, at_most=need.at_most * count)


def _of_volume(storage_class: Manifest, gib: int, region: str) -> Iterator[QuotaNeed]:
    parameters = section(storage_class, "parameters")
    driver = storage_class.get("provisioner")
    if gib:
        # What the driver makes may be larger than what is requested.
        with suppress(ValueError):
            billed = disks.billed_storage(driver, parameters, milli(f"{gib}Gi"))
            gib = next(iter(billed.values()), gib)
    if driver == disks.FILESTORE_CSI:
        tier = str(parameters.get("tier") or "standard").lower()
        taken = max(gib, int(quota("filestore", tier)["smallest"] or 0))
        yield _need(f"filestore/{tier}", region, taken, taken)
    elif driver == disks.LUSTRE_CSI:
        yield _need("lustre/*", region, gib, gib)
    elif driver in (disks.PD_CSI, "kubernetes.io/gce-pd"):
        type_ = str(parameters.get("type") or "pd-standard")
        copies = copies_of(storage_class)
        need = _need(f"disk/{type_}", region, gib * copies, gib * copies)
        is_regional = parameters.get("replication-type") == "regional-pd"
        yield replace(need, at_most=2 * gib, note=_REGIONAL) if is_regional else need
        if type_ == disks.BILLED_BY_SPEED:
            mib = copies * _whole(parameters.get("provisioned-throughput-on-create"), 1 << 20)
            yield _need(f"throughput/{type_}", region, mib, mib)


def _whole(quantity: Any, unit: int) -> int:
    """Return a quantity in whole units, rounded up; 0 if there is none, or it is not known."""
    try:
        return math.ceil(parse_quantity(quantity) / unit)
    except ValueError:
        return 0
