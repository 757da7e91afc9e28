"""Volumes and the nodes that they let pods run on: zones, topologies, attachable disks."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from ml_foundations.catalog.disks import (
    PD_CSI,
    ClassFacts,
    billed_storage,
    class_facts,
    disk_types_of,
)
from ml_foundations.catalog.gke_kinds import missing_drivers, own_classes
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, name_of, section
from ml_foundations.kubernetes.quantities import Amounts, milli, whole_number
from ml_foundations.kubernetes.trees import UNKNOWN, as_key, unknown_paths
from ml_foundations.planning.model import storage
from ml_foundations.planning.model.declared import full_name, key_of
from ml_foundations.planning.model.free_volumes import FreeVolumes, Need
from ml_foundations.planning.model.nodes import NodeClass, machine_of
from ml_foundations.planning.model.performance import IdentityMap
from ml_foundations.planning.model.refusals import Refusal, beyond_planning
from ml_foundations.planning.model.storage import StorageClasses, access_modes
from ml_foundations.planning.model.workloads import Workload, ordinals

_OPTS_IN = "hostNetworkPodKSA"
"""The attribute by which a bucket is mounted by the pod's account on the node's network."""
_ZONAL_PROVISIONERS = (PD_CSI, "kubernetes.io/gce-pd")
_PASSING = {
    *("emptyDir", "ephemeral", "hostPath", "gitRepo", "image"),
    *("configMap", "secret", "projected", "downwardAPI"),
}
"""The volumes that end with a pod or a node, or that no program writes to."""


class Stored(NamedTuple):
    """Volumes that are made for a claim, or for the claims of a StatefulSet's pods."""

    claim: Manifest
    storage_class: Manifest
    billed: Mapping[str, int]
    """The amounts that are billed for one volume, the GiB of its type first; empty if unknown."""
    number: int
    owner: Workload | None
    """The StatefulSet; None for a claim that is declared."""

    def __str__(self) -> str:
        size = ""
        if self.billed:
            kind, gib = next(iter(self.billed.items()))
            size = f" ({gib} GiB of {kind})"
        if self.owner:
            return f"claim {name_of(self.claim)} of {self.owner}{size}"
        namespace, name = key_of(self.claim)
        return f"claim {namespace}/{name}{size}"


class _PodVolume(NamedTuple):
    """A volume of a pod, as CSI drivers see it."""

    path: str
    described: str
    sources: list[Manifest]
    """Each volume that it may be; empty for one that is not made yet."""

    @property
    def drivers(self) -> list[Manifest]:
        """The ``csi`` of each volume that it may be; empty for one without."""
        return [section(source, "csi") for source in self.sources]

    def of_driver(self, driver: str) -> list[Manifest]:
        return [csi for csi in self.drivers if csi.get("driver") == driver]


class Volumes:
    """The claims, volumes and storage classes that are declared.

    Attributes:
        claims: The claims, as the API server stores them.
    """

    def __init__(
        self, by_kind: Mapping[str, Sequence[Manifest]], gke: Manifest | None = None
    ) -> None:
        self._missing_drivers = dict(missing_drivers(gke))
        """The drivers that the cluster is known to lack, and the setting that installs each."""
        for driver in by_kind.get("CSIDriver", ()):
            self._missing_drivers.pop(name_of(driver), None)
        self._volumes = {name_of(volume): volume for volume in by_kind.get("PersistentVolume", ())}
        of_gke = {name_of(c): c for c in own_classes(gke)}
        declared = {name_of(c): c for c in by_kind.get("StorageClass", ())}
        self._classes = StorageClasses(of_gke, declared)
        self.with_default_class = self._classes.with_default
        self.claims = list(map(self.with_default_class, by_kind.get("PersistentVolumeClaim", ())))
        self._claims = {key_of(claim): claim for claim in self.claims}
        self._existing: dict[tuple[str, str], Manifest] = {}
        """The declared claims, and stand-ins for those that a volume is kept for."""
        for key in filter(None, map(storage.claim_of, self._volumes.values())):
            namespace, name = key
            self._existing[key] = {"metadata": {"namespace": namespace, "name": name}}
        self._existing |= self._claims
        self._of_groups = defaultdict[tuple[str, str], list[tuple[str, Manifest]]](list)
        self._numbered = defaultdict[tuple[str, str], list[tuple[str, Manifest]]](list)
        """These by their namespace and the name without a number, as StatefulSets name claims."""
        for (namespace, name), claim in self._existing.items():
            stem, _, number = str(name).rpartition("-")
            self._numbered[namespace, stem].append((number, claim))
            # Each group of pods has a StatefulSet, whose name ends in the number of the group.
            stem, _, group = stem.rpartition("-")
            if group.isdecimal():
                self._of_groups[namespace, stem].append((number, claim))
        self._kept = defaultdict[tuple[str, str], list[Manifest]](list)
        """The volumes that are kept for a claim, by its namespace and name."""
        for volume in self._volumes.values():
            if key := storage.claim_of(volume):
                self._kept[key].append(volume)
        self._sources_of = cache(self._find_sources)
        self._free = FreeVolumes(self._volumes.values(), self._classes)

    def settle(self, workloads: Sequence[Workload], nodes: Sequence[NodeClass]) -> list[NodeClass]:
        """Note the claims that compete for free volumes.

        Returns:
            The nodes, with the volumes that only they reach as a resource.
        """
        return self._free.settle(self._needs(workloads, sum(node.count for node in nodes)), nodes)

    def _needs(self, workloads: Sequence[Workload], nodes: int) -> Iterable[Need]:
        """Yield the claims that are not bound, of workloads on so many nodes."""
        mounts = Counter[tuple[str, str]]()
        owners: dict[tuple[str, str], set[str]] = {}
        for workload in workloads:
            for pods in workload.pods:
                count = nodes if workload.kind == "DaemonSet" else pods.count
                for claim in self.made_claims(pods.spec, workload):
                    yield Need(claim, count, frozenset({str(workload)}))
                for claim in self._mounted(pods.spec, workload.namespace) if count else ():
                    key = workload.namespace, name_of(claim)
                    mounts[key] += count
                    owners.setdefault(key, set()).add(str(workload))
        for key, claim in self._claims.items():
            is_needed = mounts[key] or not self._classes.waits(claim)
            if is_needed and self._volume_of(claim) is None:
                yield Need(claim, 1, frozenset(owners.get(key, ())), is_shared=mounts[key] > 1)

    def requests(self, spec: Manifest, workload: Workload) -> Amounts:
        """Return what each pod takes of the free volumes that only one node reaches."""
        if self.own_claims(workload):
            return {}
        return self._free.requests(self._unbound(spec, workload))

    def shortage(self, claims: Iterable[tuple[Manifest, int]]) -> Iterable[Refusal]:
        """Return the refusal of claims if there are too few volumes for certain."""
        # All these claims need a volume at the same time, each as often as its number.
        unbound: list[tuple[Manifest, int]] = []
        for claim, number in claims:
            if self._volume_of(claim) is None and not any(self._unknowns_of(claim)):
                unbound.append((claim, number))
        return self._free.shortage(unbound)

    def claims_of(self, workload: Workload) -> list[Manifest]:
        """Return the declared claims that a workload's pods mount."""
        names: set[str] = set()
        for pods in workload.pods:
            names.update(storage.claim_names(pods.spec))
        return self._declared(workload.namespace, sorted(names))

    def _mounted(self, spec: Manifest, namespace: str) -> list[Manifest]:
        """Return the declared claims of a pod, each once."""
        return self._declared(namespace, dict.fromkeys(storage.claim_names(spec)))

    def _declared(self, namespace: str, names: Iterable[str]) -> list[Manifest]:
        claims = (self._claims.get((namespace, name)) for name in names)
        return [claim for claim in claims if claim]

    def exclusive_claims(self, spec: Manifest, namespace: str) -> frozenset[str]:
        """Return the claims of a pod that only one pod may use at a time."""
        exclusive: set[str] = set()
        for claim in self._mounted(spec, namespace):
            if "ReadWriteOncePod" in access_modes(claim):
                exclusive.add(f"{namespace}/{name_of(claim)}")
        return frozenset(exclusive)

    def is_of_one_node(self, claim: Manifest) -> bool:
        """Return whether a claim's disk is attached to one node at a time, for certain."""
        volume = section(self._volume_of(claim) or {}, "spec")
        driver = section(volume, "csi").get("driver")
        provisioner = driver or self._classes.of(claim).get("provisioner")
        is_disk = provisioner in _ZONAL_PROVISIONERS or "gcePersistentDisk" in volume
        return is_disk and set(access_modes(claim)) == {"ReadWriteOnce"}

    def gets_a_zone(self, claim: Manifest) -> bool:
        """Return whether a claim's volume is made in the zone of the first pod that mounts it."""
        if self._volume_of(claim) is not None or not self._classes.waits(claim):
            return False
        return self._classes.of(claim).get("provisioner") in _ZONAL_PROVISIONERS

    def own_claims(self, workload: Workload) -> list[Manifest]:
        """Return the existing claims of StatefulSets' pods: declared, or with a volume kept."""
        stems = dict.fromkeys(f"{name_of(claim)}-{workload.name}" for claim in workload.claims)
        claims: list[Manifest] = []
        for stem in stems:
            key = workload.namespace, stem
            of_groups = self._of_groups.get(key, ()) if workload.groups else ()
            for number, claim in (*self._numbered.get(key, ()), *of_groups):
                if number.isdecimal() and whole_number(number, -1) in ordinals(workload):
                    claims.append(claim)
        return claims

    def refusals(
        self, spec: Manifest, workload: Workload
    ) -> Callable[[NodeClass], list[Refusal]] | None:
        """Return a function from a node to why volumes keep pods off it; None without volumes."""
        claims = [*self._mounted(spec, workload.namespace), *self.made_claims(spec, workload)]
        if not claims:
            return None
        existing = self.own_claims(workload)

        def on_node(node: NodeClass) -> list[Refusal]:
            refusals: list[Refusal] = []
            for claim in (*claims, *existing):
                for refusal in self._refused(claim, workload, node):
                    # Each existing volume is of one pod, and which one a node takes is not known.
                    # A node whose zone is not known may be in that of the volume.
                    is_zone_open = node.labels.get(labels.ZONE) is UNKNOWN and not node.zones
                    is_open = bool(existing) or (is_zone_open and refusal.rule == "volume-zone")
                    refusals.append(refusal._replace(certain=False) if is_open else refusal)
            return refusals

        return on_node

    def without_sidecar(self, template: Manifest, namespace: str) -> Iterable[Refusal]:
        """Yield the refusal of buckets that a pod never mounts for want of GKE's sidecar."""
        spec = section(template, "spec")
        # GKE adds it to pods with an annotation only, and the scheduler does not read that. Source:
        # GoogleCloudPlatform/gcs-fuse-csi-driver, pkg/webhook.
        annotated = annotations_of(template).get(labels.GCS_FUSE_VOLUMES, "")
        containers = (*items(spec, "containers"), *items(spec, "initContainers"))
        has_sidecar = any(c.get("name") == labels.GCS_FUSE_SIDECAR for c in containers)
        if has_sidecar or annotated is UNKNOWN or str(annotated).lower() == "true":
            return
        for volume in self._pod_volumes(spec, namespace):
            buckets = volume.of_driver(labels.GCS_FUSE_DRIVER)
            if not buckets:
                continue
            is_certain = len(buckets) == len(volume.drivers)
            bucket = f"{volume.described} {'is' if is_certain else 'may be'} a bucket"
            message = f"{bucket}, and its pods lack the annotation by which GKE adds its sidecar"
            annotation = f'{labels.GCS_FUSE_VOLUMES}: "true"'
            remedy = f"Set fuse: true on the mount; in manifests, annotate the pods {annotation}."
            yield Refusal("bucket-sidecar", volume.path, message, remedy, is_certain)

    def by_the_nodes_account(self, template: Manifest, namespace: str) -> Iterable[Refusal]:
        """Yield the refusal of buckets of pods on their node's network."""
        for volume in self._pod_volumes(section(template, "spec"), namespace):
            # Such pods read a bucket as the node's account, unless the volume opts in to their own.
            # Source: GoogleCloudPlatform/gcs-fuse-csi-driver, docs/authentication.md.
            for bucket in volume.of_driver(labels.GCS_FUSE_DRIVER):
                if section(bucket, "volumeAttributes").get(_OPTS_IN) in ("true", UNKNOWN):
                    continue
                unmounted = "pods with hostNetwork do not mount by their own service account"
                message = f"{volume.described} is a bucket, which {unmounted}"
                option = f'{_OPTS_IN}: "true" in its volumeAttributes'
                remedy = f"Set {option}, or leave hostNetwork out."
                yield Refusal("bucket-identity", volume.path, message, remedy)
                break

    def without_driver(self, template: Manifest, namespace: str) -> Iterable[Refusal]:
        """Yield the refusal of volumes whose driver the cluster lacks: they are never mounted."""
        for volume in self._pod_volumes(section(template, "spec"), namespace):
            drivers = [csi.get("driver", "") for csi in volume.drivers]
            missing = [driver for driver in drivers if driver in self._missing_drivers]
            if missing:
                # On its node's network, a pod mounts a bucket without GKE's metadata server.
                on_host_network = section(template, "spec").get("hostNetwork")
                certain = len(missing) == len(drivers) and not on_host_network
                refusal = self._missing_driver(missing[0], volume.path, volume.described)
                yield refusal._replace(certain=certain)

    def _pod_volumes(self, spec: Manifest, namespace: str) -> Iterator[_PodVolume]:
        for index, volume in enumerate(items(spec, "volumes")):
            name = section(volume, "persistentVolumeClaim").get("claimName")
            claim = self._claims.get((namespace, name)) if name else None
            described = f"the claim {name}" if name else f"the volume {volume.get('name')}"
            sources = [volume] if claim is None else self._may_get(claim)
            yield _PodVolume(f"volumes[{index}]", described, sources)

    def buckets(self, spec: Manifest, namespace: str) -> Iterator[Manifest]:
        """Yield the buckets that a pod mounts, or may mount, as volumes."""
        for volume in self._pod_volumes(spec, namespace):
            for source in volume.sources:
                if section(source, "csi").get("driver") == labels.GCS_FUSE_DRIVER:
                    yield source

    def _missing_driver(self, driver: str, path: str, described: str, about: str = "") -> Refusal:
        setting = self._missing_drivers[driver]
        needed = f"the driver {driver}, which the cluster has with {setting} only"
        remedy = f"Enable {setting}, or use another kind of volume."
        return Refusal("csi-driver", path, f"{described} needs {needed}", remedy, object=about)

    def unmounted(self, workloads: Iterable[Workload]) -> list[Manifest]:
        """Return the declared claims that no pod of some workloads mounts."""
        mounted: IdentityMap[Manifest, None] = IdentityMap()
        for workload in workloads:
            for claim in self.claims_of(workload):
                mounted[claim] = None
        return [claim for claim in self.claims if claim not in mounted]

    def stored(self, workloads: Iterable[Workload]) -> Iterator[Stored]:
        """Yield the volumes that are made for claims, without those for which one exists."""
        claims: list[tuple[Manifest, int, Workload | None]] = [(c, 1, None) for c in self.claims]
        for workload in workloads:
            for claim in workload.claims:
                claims.append((claim, sum(pods.count for pods in workload.pods), workload))
        for claim, count, owner in claims:
            storage_class = self._classes.of(claim)
            has_volume = section(claim, "spec").get("volumeName") or self._volume_of(claim)
            if storage_class and not has_volume:
                number = count * storage.copies_of(storage_class)
                yield Stored(claim, storage_class, _billed(claim, storage_class), number, owner)

    def class_that_makes(self, claim: Manifest) -> Manifest:
        """Return the storage class that makes a claim's volume; empty if there is none."""
        return {} if self._volume_of(claim) else self._classes.of(self.with_default_class(claim))

    def class_refusals(self, claim: Manifest) -> Iterable[Refusal]:
        """Yield why the driver of a claim's class makes no such volume, or only a larger one."""
        spec = section(claim, "spec")
        name = name_of(claim)
        storage_class = self._classes.of(claim)
        if any(unknown_paths(spec)):
            return
        volume = self._volume_of(claim)
        driver = storage_class.get("provisioner")
        is_bound = bool(volume is not None or spec.get("volumeName"))
        is_made = not is_bound and not self._free.satisfying(claim)
        if not is_made and section(volume or {}, "spec", "csi").get("driver") != driver:
            return
        about = ""
        if claim in self.claims:
            about = full_name(claim)
        if is_made and driver in self._missing_drivers:
            path = "spec.storageClassName"
            yield self._missing_driver(driver, path, f"the claim {name}", about)
        size = section(spec, "resources", "requests").get("storage")
        facts = _facts(storage_class, milli(size))
        if facts is None:
            return
        yield from self._mode_refusals(claim, facts, about)
        if is_made and size:
            # If the driver makes a larger volume instead, nothing is refused for certain.
            yield from _size_refusals(claim, name_of(storage_class), size, facts, about)

    def _mode_refusals(self, claim: Manifest, facts: ClassFacts, about: str) -> Iterable[Refusal]:
        for mode in access_modes(claim):
            if mode in facts.access_modes or section(claim, "spec").get("volumeMode") == "Block":
                continue
            able: list[str] = []
            for name, storage_class in self._classes.by_name.items():
                if (others := _facts(storage_class)) and mode in others.access_modes:
                    able.append(name)
            modes = " or ".join(facts.access_modes)
            declared = " or ".join(able)
            actual = f"volumes of the class {storage.class_name(claim)} are {modes}"
            message = f"the claim {name_of(claim)} asks for {mode}, and {actual}"
            others = f"for a class that has {mode}: {declared or 'none is declared'}"
            remedy = f"Ask for another access mode, or {others}."
            yield Refusal("volume-class", "spec.accessModes", message, remedy, object=about)

    def unknowns(self, spec: Manifest, workload: Workload) -> Iterable[Refusal]:
        """Yield what is not declared of a pod's volumes, and would decide."""
        of_templates = set(map(name_of, workload.claims))
        for name in storage.claim_names(spec):
            if (workload.namespace, name) not in self._claims and name not in of_templates:
                message = f"the claim {name} is not declared"
                yield _undeclared(message, f"Declare the PersistentVolumeClaim {name}.")
        # The scheduler waits for ever if the claim of a pod's own volume is another's.
        for made in _ephemeral_claims(spec) if workload.kind == "Pod" else ():
            name = name_of(made).replace("<pod>", str(workload.name))
            claim = self._claims.get((workload.namespace, name))
            if claim and not section(claim, "metadata").get("ownerReferences"):
                message = f"the claim {name} is declared too"
                remedy = "Give the pod or its volume another name."
                yield beyond_planning("volumes", message, remedy)
        for claim in self._unbound(spec, workload):
            yield from self._unknowns_of(claim)
        for claim in self.own_claims(workload):
            has_volume = self._volume_of(claim) or self._classes.makes_volume(claim)
            if "spec" not in claim or not has_volume:
                message = f"of the claim {name_of(claim)} and its volume only one is declared"
                remedy = "Declare both, or leave both to the StatefulSet."
                yield beyond_planning("volumes", message, remedy)

    def _unbound(self, spec: Manifest, workload: Workload) -> list[Manifest]:
        claims = (*self._mounted(spec, workload.namespace), *self.made_claims(spec, workload))
        return [claim for claim in claims if self._volume_of(claim) is None]

    def _unknowns_of(self, claim: Manifest) -> Iterable[Refusal]:
        """Yield what is not known of an unbound claim, and would decide where its volume is."""
        name = name_of(claim)
        spec = section(claim, "spec")
        class_name = spec.get("storageClassName")
        storage_class = self._classes.of(claim)
        if self._volumes and (path := next(iter(unknown_paths(spec)), "")):
            message = f"{path} of claim {name} is not known yet"
            yield _undeclared(message, f"Set {path} to a plain value.")
        elif bound := spec.get("volumeName"):
            if as_key(bound) not in self._volumes:
                message = f"the volume {bound} of claim {name} is not declared"
                yield _undeclared(message, f"Declare the PersistentVolume {bound}.")
        elif storage.class_name(claim) not in self._classes.by_name:
            if class_name:
                message = f"the storage class {class_name} of claim {name} is not declared"
                yield _undeclared(message, f"Declare the StorageClass {class_name}.")
            elif class_name is None or not self._volumes:
                lacks = "names no storage class"
                missing = "default StorageClass"
                if class_name is not None:
                    lacks = 'has storageClassName ""'
                    missing = "PersistentVolume without a class"
                message = f"claim {name} {lacks}, and no {missing} is declared"
                remedy = f"Set its spec.storageClassName to a class, or declare a {missing}."
                yield _undeclared(message, remedy)
        elif (
            storage_class.get("volumeBindingMode") != "WaitForFirstConsumer"
            and storage_class.get("provisioner") in _ZONAL_PROVISIONERS
            and not self._free.satisfying(claim)
            # It has no choice with one zone, or with a disk in each.
            and len(storage.allowed_zones(storage_class)) != storage.copies_of(storage_class)
        ):
            early = "picks a zone before there is a pod"
            remedy = "Name a class with volumeBindingMode: WaitForFirstConsumer."
            yield _undeclared(f"the storage class {class_name} of claim {name} {early}", remedy)

    def made_claims(self, spec: Manifest, workload: Workload) -> tuple[Manifest, ...]:
        """Return the claims that are made for each pod: of templates, and of ephemeral volumes."""
        return *workload.claims, *map(self.with_default_class, _ephemeral_claims(spec))

    def _volume_of(self, claim: Manifest) -> Manifest | None:
        """Return the volume that a claim is bound to, or will be."""
        name = section(claim, "spec").get("volumeName")
        if name and section(claim, "status").get("phase") == "Bound":
            return self._volumes.get(str(name))
        # Either both name each other, or the volume alone names the claim.
        namespace, claim_name = key_of(claim)
        for volume in self._kept.get((str(namespace), str(claim_name)), ()):
            if name == name_of(volume) or (not name and storage.is_large_enough(volume, claim)):
                return volume
        return None

    def _may_get(self, claim: Manifest) -> list[Manifest]:
        """Return how the volumes are mounted that a claim may get; empty for one that is made."""
        if volume := self._volume_of(claim):
            return [_source(volume)]
        sources = self._sources_of(self._free.satisfying(claim))
        is_made = self._classes.makes_volume(claim) or any(self._unknowns_of(claim))
        return [*sources, {}] if is_made else sources

    def _find_sources(self, volumes: frozenset[str]) -> list[Manifest]:
        """Return how some volumes are mounted, equal ones once."""
        sources = (_source(self._volumes[name]) for name in volumes)
        return list({as_key(source): source for source in sources}.values())

    def _refused(self, claim: Manifest, workload: Workload, node: NodeClass) -> Iterable[Refusal]:
        volume = self._volume_of(claim)
        storage_class = self._classes.of(claim)
        if volume is not None:
            yield from storage.reach_refusals(volume, node, name_of(claim))
            storage_class = self._classes.of(volume) or storage_class
        elif not any(self._unknowns_of(claim)):
            yield from self._free.refusals(claim, workload, node)
        yield from _disk_refused(storage_class, node)


def _source(volume: Manifest) -> Manifest:
    """Return the fields of a volume that say how pods mount it."""
    spec = section(volume, "spec")
    return {key: spec[key] for key in ("csi", "mountOptions", "storageClassName") if key in spec}


def _undeclared(message: str, remedy: str) -> Refusal:
    """Return what is not known of a volume: it can keep pods off nodes, and help none."""
    return beyond_planning("volumes", message, remedy, only_refuses=True)


def _billed(claim: Manifest, storage_class: Manifest) -> Mapping[str, int]:
    size = section(claim, "spec", "resources", "requests").get("storage")
    parameters = section(storage_class, "parameters")
    if not isinstance(size, str) or any(unknown_paths(parameters)):
        return {}
    driver = storage_class.get("provisioner")
    driver = PD_CSI if driver in _ZONAL_PROVISIONERS else driver
    return billed_storage(driver, parameters, milli(size))


def _facts(storage_class: Manifest, size: int = 0) -> ClassFacts | None:
    driver = storage_class.get("provisioner")
    parameters = section(storage_class, "parameters")
    return class_facts(driver, parameters, size)


def _size_refusals(
    claim: Manifest, of_class: str, requested: str, facts: ClassFacts, about: str
) -> Iterable[Refusal]:
    """Yield the refusal of a claim's size, by the limits of its class."""
    size = milli(requested)
    is_certain = not facts.raises
    if facts.largest and size > milli(facts.largest):
        limit = f"at most {facts.largest}"
        remedy = f"Ask for {facts.largest} or less"
        is_certain = False
    elif facts.smallest and size < milli(facts.smallest):
        limit = f"at least {facts.smallest}"
        remedy = f"Ask for {facts.smallest} or more"
    elif facts.step and size % milli(facts.step):
        steps = -(-size // milli(facts.step))
        limit = f"multiples of {facts.step}"
        remedy = f"Ask for {steps} times {facts.step}"
    else:
        return
    asked = f"the claim {name_of(claim)} asks for {requested}"
    message = f"{asked}, and volumes of the class {of_class} have {limit}"
    path = "spec.resources.requests.storage"
    remedy = f"{remedy}, or for another class."
    yield Refusal("volume-class", path, message, remedy, is_certain, about)


def _ephemeral_claims(spec: Manifest) -> Iterable[Manifest]:
    for volume in items(spec, "volumes"):
        if template := section(volume, "ephemeral", "volumeClaimTemplate"):
            # The name is that of the pod and the volume (Kubernetes, "Ephemeral Volumes").
            metadata = {**section(template, "metadata"), "name": f"<pod>-{volume.get('name')}"}
            yield {**template, "metadata": metadata}


def _disk_refused(storage_class: Manifest, node: NodeClass) -> Iterable[Refusal]:
    """Yield the refusal of disks that the node's machine type does not attach, or may not."""
    parameters = section(storage_class, "parameters")
    machine = machine_of(node)
    is_of_disks = storage_class.get("provisioner") == PD_CSI and "type" in parameters
    if machine is None or not is_of_disks:
        return
    disk_types = disk_types_of(parameters)
    is_regional = parameters.get("replication-type") == "regional-pd"
    # The scheduler does not look at that: the pod is bound, and waits for its volume.
    attaches = [machine.attaches(disk_type, regional=is_regional) for disk_type in disk_types]
    if any(attaches):
        return
    is_certain = None not in attaches
    disk = " or ".join(disk_types)
    disk = f"regional {disk}" if is_regional else disk
    verb = "does not attach" if is_certain else "is not known to attach"
    disks = f"{disk} disks of storage class {name_of(storage_class)}"
    able = f"it attaches {', '.join(machine.disk_types)}"
    message = f"{machine.name} {verb} {disks}; {able}"
    yield Refusal("disk-type", "volumes", message, certain=is_certain)


def writes(spec: Manifest) -> bool:
    """Return whether a container may write to a volume that outlives the pod."""
    written: set[object] = set()
    for container in items(spec, "containers"):
        for mount in items(container, "volumeMounts"):
            if mount.get("readOnly") is not True:
                written.add(mount.get("name"))
    for volume in items(spec, "volumes"):
        is_read_only = any(section(volume, key).get("readOnly") is True for key in volume)
        if volume.get("name") in written and not is_read_only and _PASSING.isdisjoint(volume):
            return True
    return False
