"""Where volumes let pods run: zones and nodes of volumes, topologies of classes, disks that machines attach."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_foundations.catalog.disks import PD_CSI, ClassFacts, billed_storage, class_facts
from ml_foundations.catalog.gke_kinds import missing_drivers, own_classes
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.quantities import Amounts, milli
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.planning.model.free_volumes import (
    FreeVolumes,
    Need,
    access_modes,
    claim_of,
    is_large_enough,
    out_of_reach,
)
from ml_foundations.planning.model.nodes import NodeClass, machine_of
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.workloads import Workload, ordinals

_OPTS_IN = "hostNetworkPodKSA"
"""The attribute by which a bucket is mounted by the pod's account on the node's network."""
_IN_EVERY_ZONE = "enable-multi-zone-provisioning"
"""The parameter of a class whose volumes are a disk in each zone (GKE, "Hyperdisk ML")."""
_ZONAL_PROVISIONERS = (PD_CSI, "kubernetes.io/gce-pd")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class Stored(NamedTuple):
    """Volumes that are made for a claim, or for the claims of a StatefulSet's pods."""

    claim: Manifest
    storage_class: Manifest
    billed: Mapping[str, int]
    """The amounts that are billed for one volume, the GiB of its type first; empty if they are not known."""
    number: int
    owner: Workload | None
    """The StatefulSet; None for a claim that is declared."""

    def __str__(self) -> str:
        name, size = (
            name_of(self.claim),
            next((f" ({n} GiB of {kind})" for kind, n in self.billed.items()), ""),
        )
        return (
            f"claim {name} of {self.owner}{size}"
            if self.owner
            else f"claim {namespace_of(self.claim)}/{name}{size}"
        )


class Volumes:
    """The claims, volumes and storage classes that are declared.

    Attributes:
        claims: The claims, as the API server stores them.
    """

    def __init__(
        self, by_kind: Mapping[str, Sequence[Manifest]], gke: Manifest | None = None
    ) -> None:
        # The drivers that the cluster is known to lack, and the setting that brings each.
        brought = set(map(name_of, by_kind.get("CSIDriver", ())))
        self._lacks = {
            driver: setting
            for driver, setting in missing_drivers(gke).items()
            if driver not in brought
        }
        self._volumes = {name_of(volume): volume for volume in by_kind.get("PersistentVolume", ())}
        declared = {name_of(c): c for c in by_kind.get("StorageClass", ())}
        self._classes = {name_of(c): c for c in own_classes(gke)} | declared
        # Of several, the one that was created last: GKE's own is older than those of a program.
        defaults = _defaults(declared) or _defaults(self._classes)
        self._default = defaults[0] if len(defaults) == 1 else None
        self.claims = [
            self.with_default_class(claim) for claim in by_kind.get("PersistentVolumeClaim", ())
        ]
        self._claims = {(namespace_of(claim), name_of(claim)): claim for claim in self.claims}
        kept = filter(None, map(claim_of, self._volumes.values()))
        self._kept = {
            key: {"metadata": {"namespace": key[0], "name": key[1]}} for key in kept
        } | self._claims
        self._free = FreeVolumes(self._volumes.values(), self._classes)

    def settle(self, workloads: Sequence[Workload], nodes: Sequence[NodeClass]) -> list[NodeClass]:
        """Learn which claims compete for free volumes; the nodes, with the volumes that only they reach."""
        return self._free.settle(self._needs(workloads, sum(node.count for node in nodes)), nodes)

    def _needs(self, workloads: Sequence[Workload], everywhere: int) -> Iterable[Need]:
        mounts = Counter[tuple[str, str]]()
        owners: dict[tuple[str, str], set[str]] = {}
        for workload in workloads:
            for pods in workload.pods:
                count = everywhere if workload.kind == "DaemonSet" else pods.count
                for claim in self.made_claims(pods.spec, workload):
                    yield Need(claim, count, frozenset({str(workload)}))
                for claim in self._mounted(pods.spec, workload.namespace) if count else ():
                    key = workload.namespace, name_of(claim)
                    mounts[key] += count
                    owners.setdefault(key, set()).add(str(workload))
        for key, claim in self._claims.items():
            if self._volume_of(claim) is None and (mounts[key] or not self._free.waits(claim)):
                yield Need(claim, 1, frozenset(owners.get(key, ())), is_shared=mounts[key] > 1)

    def requests(self, spec: Manifest, workload: Workload) -> Amounts:
        """What each pod takes of the free volumes that only one node reaches, by their names as a resource."""
        return (
            {} if self.own_claims(workload) else self._free.requests(self._unbound(spec, workload))
        )

    def shortage(self, claims: Iterable[tuple[Manifest, int]]) -> Iterable[Refusal]:
        """Claims that get no volume for certain, where so many of each kind need one at once."""
        known = (
            each
            for each in claims
            if self._volume_of(each[0]) is None and not any(self._not_known_of(each[0]))
        )
        return self._free.shortage(known)

    def with_default_class(self, claim: Manifest) -> Manifest:
        """A claim as the API server stores it: one that names no class gets the default one."""
        spec = section(claim, "spec")
        if self._default is None or spec.get("storageClassName") is not None:
            return claim
        return {**claim, "spec": {**spec, "storageClassName": self._default}}

    def claims_of(self, workload: Workload) -> list[Manifest]:
        """The declared claims that a workload's pods mount."""
        names = {name for pods in workload.pods for name in claim_names(pods.spec)}
        return [
            claim
            for name in sorted(names)
            if (claim := self._claims.get((workload.namespace, name)))
        ]

    def exclusive_claims(self, spec: Manifest, namespace: str) -> frozenset[str]:
        """The claims of a pod that only one pod may use at a time."""
        return frozenset(
            f"{namespace}/{name}"
            for name in claim_names(spec)
            if "ReadWriteOncePod" in access_modes(self._claims.get((namespace, name), {}))
        )

    def is_of_one_node(self, claim: Manifest) -> bool:
        """Return whether a claim's disk is attached to one node at a time, for certain."""
        volume = section(self._volume_of(claim) or {}, "spec")
        driver = section(volume, "csi").get("driver") or self._free.class_of(claim).get(
            "provisioner"
        )
        is_disk = driver in _ZONAL_PROVISIONERS or "gcePersistentDisk" in volume
        return is_disk and set(access_modes(claim)) == {"ReadWriteOnce"}

    def gets_a_zone(self, claim: Manifest) -> bool:
        """Whether a claim's volume is made in the zone of the first pod that mounts it."""
        provisioner = self._free.class_of(claim).get("provisioner")
        return (
            self._volume_of(claim) is None
            and self._free.waits(claim)
            and provisioner in _ZONAL_PROVISIONERS
        )

    def own_claims(self, workload: Workload) -> list[Manifest]:
        """The claims of a StatefulSet's pods that are there already, or for which a volume is kept."""
        stems = {f"{name_of(each)}-{workload.name}" for each in workload.claims}
        parts = {
            key: str(key[1]).rpartition("-") for key in self._kept if key[0] == workload.namespace
        }
        own = [key for key, (stem, _, end) in parts.items() if stem in stems and end.isdecimal()]
        return [self._kept[key] for key in own if int(parts[key][2]) in ordinals(workload)]

    def refusals(
        self, spec: Manifest, workload: Workload
    ) -> Callable[[NodeClass], list[Refusal]] | None:
        """Why volumes keep pods from nodes, as a function of the node; None for pods without such volumes."""
        claims = [*self._mounted(spec, workload.namespace), *self.made_claims(spec, workload)]
        own = self.own_claims(workload)
        if not claims:
            return None
        # Each volume that is there already is of one pod, and which one a node takes is not known.
        return lambda node: [
            refusal._replace(certain=False) if own else _as_known(refusal, node)
            for claim in (*claims, *own)
            for refusal in self._refused(claim, workload, node)
        ]

    def without_sidecar(self, template: Manifest, namespace: str) -> Iterable[Refusal]:
        """Buckets that a pod never mounts: GKE adds the sidecar that does so to pods with its annotation only.

        The scheduler does not look at that (GoogleCloudPlatform/gcs-fuse-csi-driver, pkg/webhook).
        """
        spec = section(template, "spec")
        annotated = annotations_of(template).get(labels.GCS_FUSE_VOLUMES, "")
        containers = (*items(spec, "containers"), *items(spec, "initContainers"))
        is_there = any(container.get("name") == labels.GCS_FUSE_SIDECAR for container in containers)
        if is_there or annotated is UNKNOWN or str(annotated).lower() == "true":
            return
        for path, what, found in self._csi_volumes(spec, namespace):
            are_buckets = [each.get("driver") == labels.GCS_FUSE_DRIVER for each in found]
            if any(are_buckets):
                what += " is" if all(are_buckets) else " may be"
                yield told(
                    "bucket-sidecar",
                    path,
                    certain=all(are_buckets),
                    what=what,
                    key=labels.GCS_FUSE_VOLUMES,
                )

    def by_the_nodes_account(self, template: Manifest, namespace: str) -> Iterable[Refusal]:
        """Buckets of pods on their node's network: there they are read as the node's account, unless a volume opts in.

        Source: GoogleCloudPlatform/gcs-fuse-csi-driver, docs/authentication.md.
        """
        for path, what, found in self._csi_volumes(section(template, "spec"), namespace):
            buckets = [each for each in found if each.get("driver") == labels.GCS_FUSE_DRIVER]
            if any(
                section(each, "volumeAttributes").get(_OPTS_IN) not in ("true", UNKNOWN)
                for each in buckets
            ):
                yield told("bucket-on-host-network", path, what=what, opts_in=_OPTS_IN)

    def without_driver(self, template: Manifest, namespace: str) -> Iterable[Refusal]:
        """Volumes that a pod never mounts, since the cluster lacks their driver."""
        for path, what, found in self._csi_volumes(section(template, "spec"), namespace):
            lacking = [driver for each in found if (driver := each.get("driver")) in self._lacks]
            if lacking:
                # On its node's network, a pod mounts a bucket without GKE's metadata server.
                certain = len(lacking) == len(found) and not section(template, "spec").get(
                    "hostNetwork"
                )
                yield self._lacking(lacking[0], path, what)._replace(certain=certain)

    def _csi_volumes(
        self, spec: Manifest, namespace: str
    ) -> Iterator[tuple[str, str, list[Manifest]]]:
        """The volumes of a pod: the path, what it is, and the csi of each volume that it may be; empty without."""
        for index, mounted in enumerate(items(spec, "volumes")):
            name = section(mounted, "persistentVolumeClaim").get("claimName")
            claim = self._claims.get((namespace, name)) if name else None
            sources = (
                [mounted]
                if claim is None
                else [section(volume, "spec") for volume in self._may_get(claim)]
            )
            what = f"the claim {name}" if name else f"the volume {mounted.get('name')}"
            yield f"volumes[{index}]", what, [section(source, "csi") for source in sources]

    def _lacking(self, driver: str, path: str, what: str, about: str = "") -> Refusal:
        return told(
            "missing-driver",
            path,
            object=about,
            what=what,
            driver=driver,
            lacks=self._lacks[driver],
        )

    def unused(self, workloads: Iterable[Workload]) -> list[Manifest]:
        """The declared claims that no pod of some workloads mounts."""
        used = {id(claim) for workload in workloads for claim in self.claims_of(workload)}
        return [claim for claim in self.claims if id(claim) not in used]

    def stored(self, workloads: Iterable[Workload]) -> Iterator[Stored]:
        """Yield the volumes that are made for claims, without those for which one exists."""
        own = ((claim, found.pods[0].count, found) for found in workloads for claim in found.claims)
        for claim, count, owner in (*((claim, 1, None) for claim in self.claims), *own):
            storage_class, spec = self._free.class_of(claim), section(claim, "spec")
            size = section(spec, "resources", "requests").get("storage")
            if not storage_class or spec.get("volumeName") or self._volume_of(claim):
                continue
            parameters = section(storage_class, "parameters")
            is_known = isinstance(size, str) and not any(unknown_paths(parameters))
            driver = storage_class.get("provisioner")
            of = PD_CSI if driver in _ZONAL_PROVISIONERS else driver
            billed: Mapping[str, int] = (
                billed_storage(of, parameters, milli(size)) if is_known else {}
            )
            yield Stored(claim, storage_class, billed, count * copies_of(storage_class), owner)

    def class_that_makes(self, claim: Manifest) -> Manifest:
        """Return the storage class that makes a claim's volume; empty if the volume exists, or no class is known."""
        return {} if self._volume_of(claim) else self._free.class_of(self.with_default_class(claim))

    def class_refusals(self, claim: Manifest) -> Iterable[Refusal]:
        """Why the driver of a claim's class gives it no volume; where it gives a larger one, that is not certain."""
        spec, name, storage_class = (
            section(claim, "spec"),
            name_of(claim),
            self._free.class_of(claim),
        )
        if any(unknown_paths(spec)):
            return
        wanted = section(spec, "resources", "requests").get("storage")
        facts = _facts(storage_class, milli(wanted))
        volume, driver = self._volume_of(claim), storage_class.get("provisioner")
        is_made = volume is None and not spec.get("volumeName") and not self._free.satisfying(claim)
        if not is_made and section(volume or {}, "spec", "csi").get("driver") != driver:
            return
        about = (
            f"PersistentVolumeClaim {namespace_of(claim)}/{name}" if claim in self.claims else ""
        )
        if is_made and driver in self._lacks:
            yield self._lacking(driver, "spec.storageClassName", f"the claim {name}", about)
        if facts is None:
            return
        said: dict[str, Any] = {"name": name, "of": name_of(storage_class)}
        for mode in access_modes(claim) if spec.get("volumeMode") != "Block" else ():
            if mode not in facts.access_modes:
                others = [
                    n
                    for n, c in self._classes.items()
                    if (f := _facts(c)) and mode in f.access_modes
                ]
                said |= {
                    "modes": " or ".join(facts.access_modes),
                    "others": " or ".join(others) or "none is declared",
                }
                yield told(
                    "class-without-mode", "spec.accessModes", object=about, mode=mode, **said
                )
        path = "spec.resources.requests.storage"
        if not is_made or not wanted:
            return
        said |= {
            "wanted": wanted,
            "least": facts.smallest,
            "most": facts.largest,
            "step": facts.step,
        }
        if facts.largest and milli(wanted) > milli(facts.largest):
            yield told("class-of-smaller", path, certain=False, object=about, **said)
        elif facts.smallest and milli(wanted) < milli(facts.smallest):
            yield told("class-of-larger", path, certain=not facts.raises, object=about, **said)
        elif facts.step and milli(wanted) % milli(facts.step):
            times = -(-milli(wanted) // milli(facts.step))
            yield told(
                "class-in-steps", path, certain=not facts.raises, object=about, times=times, **said
            )

    def not_known(self, spec: Manifest, workload: Workload) -> Iterable[Refusal]:
        """What is not declared of a pod's volumes, and would decide."""
        own = {name_of(claim) for claim in workload.claims}
        for name in claim_names(spec):
            if (workload.namespace, name) not in self._claims and name not in own:
                yield told("unknown-claim", "volumes", claim=name)
        # The scheduler waits for ever where the claim of a pod's own volume is another's.
        for made in _ephemeral_claims(spec) if workload.kind == "Pod" else ():
            name = name_of(made).replace("<pod>", str(workload.name))
            claim = self._claims.get((workload.namespace, name))
            if claim and not section(claim, "metadata").get("ownerReferences"):
                yield told("claim-declared-too", "volumes", claim=name)
        for claim in self._unbound(spec, workload):
            yield from self._not_known_of(claim)
        for claim in self.own_claims(workload):
            if "spec" not in claim or (
                self._volume_of(claim) is None and not self._free.is_made(claim)
            ):
                yield told("half-a-volume", "volumes", claim=name_of(claim))

    def _unbound(self, spec: Manifest, workload: Workload) -> list[Manifest]:
        claims = (*self._mounted(spec, workload.namespace), *self.made_claims(spec, workload))
        return [claim for claim in claims if self._volume_of(claim) is None]

    def _not_known_of(self, claim: Manifest) -> Iterable[Refusal]:
        name, spec = name_of(claim), section(claim, "spec")
        wanted = spec.get("storageClassName")
        found = self._classes.get(wanted or "")
        if self._volumes and (path := next(iter(unknown_paths(spec)), "")):
            yield told("unknown-field-of-claim", "volumes", field=path, claim=name)
        elif bound := spec.get("volumeName"):
            if bound in self._volumes:
                return
            yield told("unknown-volume", "volumes", bound=bound, name=name)
        elif found is None and not (wanted == "" and self._volumes):
            yield told(
                "unknown-class" if wanted else "no-class", "volumes", wanted=wanted, claim=name
            )
        elif (
            found is not None
            and not self._free.satisfying(claim)
            and found.get("volumeBindingMode") != "WaitForFirstConsumer"
            and found.get("provisioner") in _ZONAL_PROVISIONERS
        ):
            yield told("zone-before-pod", "volumes", wanted=wanted, name=name)

    def made_claims(self, spec: Manifest, workload: Workload) -> tuple[Manifest, ...]:
        """The claims that are made for each pod: of a StatefulSet's templates, and of generic ephemeral volumes."""
        return *workload.claims, *map(self.with_default_class, _ephemeral_claims(spec))

    def _mounted(self, spec: Manifest, namespace: str) -> list[Manifest]:
        """The declared claims of a pod, each once."""
        names = dict.fromkeys(claim_names(spec))
        return [claim for name in names if (claim := self._claims.get((namespace, name)))]

    def _volume_of(self, claim: Manifest) -> Manifest | None:
        """The volume that a claim is bound to, or will be: both, or the volume alone, name the other."""
        name = section(claim, "spec").get("volumeName")
        if name and section(claim, "status").get("phase") == "Bound":
            return self._volumes.get(name)
        for volume in self._volumes.values():
            is_mine = claim_of(volume) == (namespace_of(claim), name_of(claim))
            if is_mine and (
                name == name_of(volume) or (not name and is_large_enough(volume, claim))
            ):
                return volume
        return None

    def _may_get(self, claim: Manifest) -> list[Manifest]:
        """The volume of a claim, or those of which it gets one; one that is made is empty."""
        perhaps_made = self._free.is_made(claim) or any(self._not_known_of(claim))
        free = (self._volumes[name] for name in self._free.satisfying(claim))
        return [volume] if (volume := self._volume_of(claim)) else [*free, *([{}] * perhaps_made)]

    def _refused(self, claim: Manifest, workload: Workload, node: NodeClass) -> Iterable[Refusal]:
        volume = self._volume_of(claim)
        storage_class = self._free.class_of(claim)
        if volume is not None:
            yield from out_of_reach(volume, node, name_of(claim))
            storage_class = self._free.class_of(volume) or storage_class
        elif not any(self._not_known_of(claim)):
            yield from self._free.refusals(claim, workload, node)
        yield from _disk_refused(storage_class, node)


def _defaults(classes: Mapping[str, Manifest]) -> list[str]:
    return [
        name
        for name, found in classes.items()
        if annotations_of(found).get(_DEFAULT_CLASS) == "true"
    ]


def _facts(storage_class: Manifest, wanted: int = 0) -> ClassFacts | None:
    return class_facts(
        storage_class.get("provisioner"), section(storage_class, "parameters"), wanted
    )


def _as_known(refusal: Refusal, node: NodeClass) -> Refusal:
    """A zone that nobody has said may be the right one."""
    is_open = node.labels.get(labels.ZONE) is UNKNOWN and not node.zones
    return refusal._replace(certain=False) if is_open and refusal.rule == "volume-zone" else refusal


def _ephemeral_claims(spec: Manifest) -> Iterable[Manifest]:
    """The claims of generic ephemeral volumes, with the names of pod and volume (Kubernetes, "Ephemeral Volumes")."""
    for volume in items(spec, "volumes"):
        if template := section(volume, "ephemeral", "volumeClaimTemplate"):
            named = {**section(template, "metadata"), "name": f"<pod>-{volume.get('name')}"}
            yield {**template, "metadata": named}


def allowed_zones(storage_class: Manifest) -> Sequence[str]:
    """The zones that a class of disks allows; none where it allows all."""
    parts = items(storage_class, "allowedTopologies")
    terms = [term for part in parts for term in items(part, "matchLabelExpressions")]
    return [zone for term in terms if term["key"] == labels.GKE_ZONE for zone in term["values"]]


def copies_of(storage_class: Manifest) -> int:
    """Return how many disks are made for a claim: one, or one in each zone."""
    is_in_every_zone = section(storage_class, "parameters").get(_IN_EVERY_ZONE) == "true"
    return max(len(allowed_zones(storage_class)), 1) if is_in_every_zone else 1


def claim_names(spec: Manifest) -> list[str]:
    """The claims that a pod names."""
    return [
        name
        for v in items(spec, "volumes")
        if (name := section(v, "persistentVolumeClaim").get("claimName"))
    ]


def _disk_refused(storage_class: Manifest, node: NodeClass) -> Iterable[Refusal]:
    """Disks that the node's machine type is known not to attach; the scheduler does not look at that."""
    parameters, machine = section(storage_class, "parameters"), machine_of(node)
    disk_type = parameters.get("type")
    if machine is None or disk_type is None or storage_class.get("provisioner") != PD_CSI:
        return
    is_regional = parameters.get("replication-type") == "regional-pd"
    attaches = machine.attaches(disk_type, regional=is_regional)
    if not attaches:
        disk_type = f"regional {disk_type}" if is_regional else disk_type
        verb = "does not attach" if attaches is False else "is not known to attach"
        others, of = ", ".join(machine.disk_types), name_of(storage_class)
        said: dict[str, Any] = {
            "machine": machine.name,
            "verb": verb,
            "disk": disk_type,
            "of": of,
            "others": others,
        }
        yield told("disk-type", "volumes", certain=attaches is False, **said)
