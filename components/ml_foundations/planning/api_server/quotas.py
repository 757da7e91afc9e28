"""ResourceQuotas as the API server counts them: the use of a workload, and what is left."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from ml_foundations.kinds.kind_files import kind_named
from ml_foundations.kubernetes.objects import (
    Manifest,
    api_object,
    items,
    name_of,
    namespace_of,
    plural,
    section,
)
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, milli, millis, times, total
from ml_foundations.kubernetes.quotas import OF_CLAIMS, scoped_to, uncounted
from ml_foundations.kubernetes.selectors import PREFERRED, REQUIRED, selects
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import AdmittedWorkload, QuotaExceeded, Verdict
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import is_pod_level
from ml_foundations.planning.model.workloads import Workload, is_stored

_OF_NAMESPACE = api_object("v1", "ConfigMap", {"name": "kube-root-ca.crt"})
"""A ConfigMap that every namespace has."""


class ObjectCharges(NamedTuple):
    """The charges of the objects of workloads, and of the declared claims that they mount."""

    at_first: Amounts
    with_other_claims: Amounts
    """At first, if all other declared claims exist before."""
    in_all: Amounts
    """With the objects that ended pods leave, and all declared claims."""


class Quota:
    """A ResourceQuota, with its use before the workloads: by its status or the existing objects.

    Attributes:
        manifest: The ResourceQuota.
        hard: The allowed amounts, in thousandths, by the names under which Kubernetes counts.
        taken: The used amounts.
        other_charges: The charge of each object that is neither a workload nor a claim.
    """

    def __init__(self, manifest: Manifest, cluster: Cluster, objects: Iterable[Manifest]) -> None:
        self.manifest = manifest
        spec = section(manifest, "spec")
        plain = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
        selected = items(section(spec, "scopeSelector"), "matchExpressions")
        self._scopes: list[Manifest] = [*plain, *selected]
        hard = section(spec, "hard").items()
        of = scoped_to(spec)
        self.hard: Amounts = {}
        for name, most in hard:
            if most is not UNKNOWN and not uncounted(name, of):
                self.hard[name] = milli(most)
        self._required: list[tuple[str, str]] = []
        """Fields that every container must set because the quota counts them."""
        for key in self.hard:
            field, _, resource = key.rpartition(".")
            if field in ("", "requests", "limits") and resource in ("cpu", "memory"):
                self._required.append((field or "requests", resource))
        self._used = millis(section(manifest, "status", "used"))
        namespace = namespace_of(manifest)
        self._claims: dict[str, Manifest] = {}
        charges: list[Amounts] = []
        for claim in cluster.volumes.claims:
            if namespace_of(claim) == namespace and self._has(claim):
                # A claim with a status exists: no workload is charged for it.
                if section(claim, "status"):
                    charges.append(_claim_charge(claim))
                else:
                    self._claims[name_of(claim)] = claim
        self.other_charges = self._charges_of(objects)
        # The used amounts include pods that are charged once more with their workload.
        pods = cluster.replaced if self._used else chain.from_iterable(cluster.running.values())
        covered = [pod for pod in pods if pod.namespace == namespace and self.covers(pod)]
        charge = total(pod.charge for pod in covered)
        self.taken = total((charge, *charges))
        if self._used:
            used = self._used.items()
            self.taken = {name: max(0, amount - charge.get(name, 0)) for name, amount in used}

    def _charges_of(self, objects: Iterable[Manifest]) -> dict[str, Amounts]:
        """Return the charges of the objects in the namespace that the status does not count."""
        charges: dict[str, Amounts] = {}
        if self._scopes:
            return charges
        has_config_map = False
        for document in objects:
            is_elsewhere = namespace_of(document) != namespace_of(self.manifest)
            if is_elsewhere or (self._used and is_stored(document)):
                continue
            kind = document["kind"]
            has_config_map |= kind == "ConfigMap"
            charges[f"{kind} {name_of(document)}"] = _object_charge(document)
        if has_config_map and not self._used:
            charges[f"ConfigMap {name_of(_OF_NAMESPACE)}"] = _object_charge(_OF_NAMESPACE)
        return charges

    def covers(self, pod: PodClass) -> bool:
        """Return whether a pod is in all scopes of the quota."""
        return all(_in_scope(requirement, pod.spec) for requirement in self._scopes)

    def _has(self, claim: Manifest) -> bool:
        """Return whether the quota counts a claim (pvcMatchesScopeFunc).

        A scope is about the class of the claim or the next one.
        """
        status = section(claim, "status")
        target = section(status, "modifyVolumeStatus").get("targetVolumeAttributesClassName")
        requested = section(claim, "spec").get("volumeAttributesClassName")
        current = status.get("currentVolumeAttributesClassName")
        classes = [*filter(None, (requested, current, target))] or [None]
        for requirement in self._scopes:
            if requirement["scopeName"] != OF_CLAIMS:
                return False
            if not any(_is_selected(requirement, name) for name in classes):
                return False
        return True

    def is_for_class_of(self, pod: PodClass) -> bool:
        """Return whether it has a scope for the priority class of a pod."""
        scopes = [scope for scope in self._scopes if scope["scopeName"] == "PriorityClass"]
        return any(_in_scope(scope, pod.spec) for scope in scopes)

    def pods_charge(self, candidate: AdmittedWorkload, most: int | None = None) -> Amounts:
        """Return the charge of a workload's pods; of each set of pods, of at most ``most``."""
        charges: list[Amounts] = []
        for pod_set, pod in candidate.pod_sets:
            if self.covers(pod):
                count = pod_set.count if most is None else min(most, pod_set.count)
                charges.append(times(pod.charge, count))
        return total(charges)

    def own_charge(self, candidates: Iterable[AdmittedWorkload]) -> Amounts:
        """Return the charge of the workloads themselves, even if their pods run in turns."""
        charges: list[Amounts] = []
        for candidate in () if self._scopes else candidates:
            workload = candidate.workload
            # Pods are charged as such.
            if workload.kind != "Pod" and not (self._used and is_stored(workload.manifest)):
                charges.append(_object_charge(workload.manifest))
        return total(charges)

    def objects_charges(self, candidates: Sequence[AdmittedWorkload]) -> ObjectCharges:
        """Return the charge of the objects of workloads, and of declared claims they mount."""
        now = self._objects_charge(candidates, in_all=False)
        in_all = self._objects_charge(candidates, in_all=True)
        with_others = dict(now)
        others = self.other_claims(candidates)
        # A quota that these workloads do not use is not theirs to exceed.
        for name, amount in others.items():
            if name in now:
                with_others[name] += amount
            if name in in_all:
                in_all[name] += amount
        return ObjectCharges(now, with_others, in_all)

    def _objects_charge(self, candidates: Sequence[AdmittedWorkload], *, in_all: bool) -> Amounts:
        charges = [self.own_charge(candidates)]
        claims = list[Amounts]()
        for candidate in candidates:
            is_charged = bool(self._used) and is_stored(candidate.workload.manifest)
            if not self._scopes:
                charges.append(_objects_charge(candidate, is_charged, in_all=in_all))
            for claim, count in candidate.made_claims(in_all=in_all):
                if self._has(claim):
                    claims.append(times(_claim_charge(claim), count))
        claims += (_claim_charge(self._claims[name]) for name in self._mounted(candidates))
        return total((*charges, *claims))

    def charge(self, candidates: Sequence[AdmittedWorkload]) -> Amounts:
        """Return the charge of workloads in all."""
        return total(
            (*map(self.pods_charge, candidates), self.objects_charges(candidates).at_first)
        )

    def other_claims(self, candidates: Sequence[AdmittedWorkload]) -> Amounts:
        """Return the charge of the declared claims that none of some workloads mounts."""
        mounted = self._mounted(candidates)
        others = [claim for name, claim in self._claims.items() if name not in mounted]
        return total(map(_claim_charge, others))

    def _mounted(self, candidates: Sequence[AdmittedWorkload]) -> set[str]:
        mounted: set[str] = set()
        for candidate in candidates:
            mounted.update(map(name_of, (*candidate.claims, *candidate.existing_claims)))
        return mounted & self._claims.keys()

    def crowded(self, charge: Amounts) -> tuple[Verdict, list[QuotaExceeded]]:
        """Return the quota that other objects exceed; they may exist if the status counts some."""
        hard = self.hard.keys()
        names = [name for name, amounts in self.other_charges.items() if amounts.keys() & hard]
        others = total(self.other_charges[name] for name in names)
        charge = total((others, charge))
        verdict = Verdict.UNDETERMINED if self._used else Verdict.CANNOT_FIT
        return verdict, self.exceeded({name: charge[name] for name in others}, names)

    def exceeded(
        self,
        charge: Mapping[str, int],
        workloads: Iterable[Workload | str] = (),
        *,
        in_all: bool = False,
    ) -> list[QuotaExceeded]:
        """Return the resources for which a charge exceeds the quota, at once or in all."""
        names = tuple(workloads)
        exceeded = list[QuotaExceeded]()
        for resource, amount in charge.items():
            if (hard := self.hard.get(resource)) is None:
                continue
            free = hard - self.taken.get(resource, 0)
            if amount > max(0, free):
                reason = QuotaExceeded(self.manifest, resource, amount, free, hard, names, in_all)
                exceeded.append(reason)
        return exceeded

    def most_pods(self, pod: PodClass, count: int) -> int:
        """Return how many pods of a class the quota accepts."""
        for name, amount in pod.charge.items():
            if name in self.hard and amount:
                count = min(count, max(0, self.hard[name] - self.taken.get(name, 0)) // amount)
        return count

    def refusals(self, pod: PodClass) -> Iterable[Refusal]:
        """Yield refusals for containers without fields that a quota on cpu or memory requires."""
        spec = pod.spec
        # With resources of the pod as a whole, containers need none.
        of_pod = (*section(spec, "resources", "requests"), *section(spec, "resources", "limits"))
        if any(map(is_pod_level, of_pod)):
            return
        for field, resource in self._required:
            for container in (*items(spec, "containers"), *items(spec, "initContainers")):
                if resource not in section(container, "resources", field):
                    path = f"{field}.{resource}"
                    holder = f"container {container.get('name', '')}"
                    quota = f"ResourceQuota {name_of(self.manifest)}"
                    message = f"{quota} makes every container set {path}, and {holder} does not"
                    remedy = f"Set resources.{path} of {holder}, or give a default in a LimitRange."
                    yield Refusal("quota-requires", "containers", message, remedy)


def _objects_charge(candidate: AdmittedWorkload, is_there: bool, *, in_all: bool) -> Amounts:
    """Return the charge of the objects that are created for a workload, except for claims."""
    workload = candidate.workload
    kind = kind_named(workload.kind)
    # Without pods, most controllers of Kubernetes create nothing. A CronJob creates its Jobs.
    is_made = workload.kind == "CronJob" or any(pod_set.count for pod_set, _ in candidate.pod_sets)
    created = dict[str, int]()
    if not is_there and (is_made or kind.pods):
        replicas = workload.groups or kind.replicas_of(workload.manifest)
        created = kind.objects_created(workload.manifest, replicas)
    if workload.kind == "JobSet" and created:
        jobs = items(section(workload.manifest, "spec"), "replicatedJobs")
        counts = [job.get("replicas") for job in jobs]
        made = sum(count if isinstance(count, int) else 1 for count in counts)
        created["count/jobs.batch"] = made or 1
        if not section(workload.manifest, "spec", "network").get("enableDNSHostnames", True):
            # There is no headless Service, for the pods' names.
            del created["services"], created["count/services"]
    objects = {name: count * WHOLE for name, count in created.items()}
    if in_all:
        objects["count/pods"] = 0
        for pod_set, _ in candidate.pod_sets:
            objects["count/pods"] += candidate.required_pods(pod_set, in_all=True) * WHOLE
    return objects


def _object_charge(document: Manifest) -> Amounts:
    """Return the charge of an object itself; that of a claim has more."""
    spec = section(document, "spec")
    name = plural(document["kind"])
    group = str(document.get("apiVersion")).rpartition("/")[0]
    charge = dict.fromkeys((name, f"count/{name}.{group}".rstrip(".")), WHOLE)
    has_node_ports = spec.get("allocateLoadBalancerNodePorts") is not False
    if spec.get("type") in ("LoadBalancer", "NodePort") and has_node_ports:
        charge["services.nodeports"] = len(items(spec, "ports")) * WHOLE
    if spec.get("type") == "LoadBalancer":
        charge["services.loadbalancers"] = WHOLE
    return charge


def _claim_charge(claim: Manifest) -> Amounts:
    """Return the charge of a PersistentVolumeClaim; with a class, also for the class."""
    spec = section(claim, "spec")
    storage = millis(section(spec, "resources", "requests")).get("storage", 0)
    charge = {"persistentvolumeclaims": WHOLE, "count/persistentvolumeclaims": WHOLE}
    charge["requests.storage"] = storage
    if storage_class := spec.get("storageClassName"):
        prefix = f"{storage_class}.storageclass.storage.k8s.io"
        charge |= {f"{prefix}/requests.storage": storage, f"{prefix}/persistentvolumeclaims": WHOLE}
    return charge


def _in_scope(requirement: Manifest, spec: Manifest) -> bool:
    match requirement["scopeName"]:
        # Kubernetes calls pods with a deadline Terminating, even if they run.
        case "Terminating" | "NotTerminating" as scope:
            return (spec.get("activeDeadlineSeconds") is None) == scope.startswith("Not")
        case "BestEffort" | "NotBestEffort" as scope:
            return _is_best_effort(spec) != scope.startswith("Not")
        case "PriorityClass":
            return _is_selected(requirement, spec.get("priorityClassName"))
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec)
        case _:
            return False


def _is_selected(requirement: Manifest, name: str | None) -> bool:
    """Return whether the operator of a scope accepts a class's name; None if there is no class."""
    # A scope has the operators of a label selector, so one compares the class like a label.
    expression = {**requirement, "key": "class"}
    return selects({"matchExpressions": [expression]}, {"class": name} if name else {})


def _is_best_effort(spec: Manifest) -> bool:
    """Return whether a pod asks for neither cpu nor memory: the quality of service BestEffort."""
    # If the pod as a whole has resources, those of its containers do not count (qos.go).
    holders = [spec]
    if not spec.get("resources"):
        holders = [*items(spec, "containers"), *items(spec, "initContainers")]
    for holder in holders:
        for field in ("requests", "limits"):
            amounts = millis(section(holder, "resources", field))
            if amounts.get("cpu") or amounts.get("memory"):
                return False
    return True


def _crosses_namespaces(spec: Manifest) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = section(spec, "affinity", kind)
        weighted = [section(term, "podAffinityTerm") for term in items(affinity, PREFERRED)]
        for term in (*items(affinity, REQUIRED), *weighted):
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False
