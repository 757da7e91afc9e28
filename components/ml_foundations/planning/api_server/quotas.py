"""ResourceQuotas as the API server counts them: the use of a workload, and what is left."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from ml_foundations.kubernetes.objects import (
    Manifest,
    api_object,
    items,
    name_of,
    namespace_of,
    plural,
    section,
)
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, millis, times, total
from ml_foundations.kubernetes.quotas import OF_CLAIMS, scoped_to, uncounted
from ml_foundations.kubernetes.selectors import PREFERRED, REQUIRED, selects
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import AdmittedWorkload, QuotaExceeded, Verdict
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import is_pod_level
from ml_foundations.planning.model.workloads import GROUPS, Workload, is_stored

_OBJECT_COUNTS = {
    kind: [f"count/{kind.lower()}s.{group}".rstrip(".")]
    for kind, group in GROUPS.items()
    if kind != "Pod"
}
_OBJECT_COUNTS["ReplicationController"].append("replicationcontrollers")
"""The names under which quotas count a workload itself."""
_MADE_COUNTS: Mapping[str, str] = {
    "Deployment": "count/replicasets.apps",
    "StatefulSet": "count/controllerrevisions.apps",
    "DaemonSet": "count/controllerrevisions.apps",
    "CronJob": "count/jobs.batch",
    "JobSet": "count/jobs.batch",
}
"""The name under which quotas count the objects that a controller creates before its pods."""
_REQUIRED = {
    (field, resource) for field in ("", "requests", "limits") for resource in ("cpu", "memory")
}
"""Fields that every container must set if a quota counts them."""
_OF_NAMESPACE = api_object("v1", "ConfigMap", {"name": "kube-root-ca.crt"})
"""A ConfigMap that every namespace has."""


class Quota:
    """A ResourceQuota, with its use before the workloads: by its status or the existing objects.

    Attributes:
        manifest: The ResourceQuota.
        hard: The allowed amounts, in thousandths, by the names under which Kubernetes counts.
        taken: The used amounts.
        beside: The charge of each object that is neither a workload nor a claim.
    """

    def __init__(self, manifest: Manifest, cluster: Cluster, objects: Iterable[Manifest]) -> None:
        self.manifest = manifest
        self._scopes = list(_scopes(manifest))
        hard = section(manifest, "spec", "hard").items()
        of = scoped_to(section(manifest, "spec"))
        counted = {name: most for name, most in hard if not uncounted(name, of)}
        self.hard = millis({name: most for name, most in counted.items() if most is not UNKNOWN})
        self._required: list[tuple[str, str]] = []
        for key in self.hard:
            field, _, resource = key.rpartition(".")
            if (field, resource) in _REQUIRED:
                self._required.append((field or "requests", resource))
        self._used = millis(section(manifest, "status", "used"))
        namespace = namespace_of(manifest)
        self._claims: dict[str, Manifest] = {}
        charges: list[Amounts] = []
        for claim in cluster.volumes.claims:
            if namespace_of(claim) == namespace and self._has(claim):
                if section(claim, "status"):
                    charges.append(_claim_charge(claim))
                else:
                    self._claims[name_of(claim)] = claim
        self.beside = self._charges_of(objects)
        # The used amounts include pods that are charged once more with their workload.
        counted = cluster.replaced if self._used else chain.from_iterable(cluster.running.values())
        pods = total(
            pod.charge for pod in counted if pod.namespace == namespace and self.covers(pod)
        )
        if self._used:
            self.taken = {
                name: max(0, amount - pods.get(name, 0)) for name, amount in self._used.items()
            }
        else:
            self.taken = total((pods, *charges))

    def _charges_of(self, objects: Iterable[Manifest]) -> dict[str, Amounts]:
        """Return the charges of the objects in the namespace that the status does not count."""
        charges: dict[str, Amounts] = {}
        if self._scopes:
            return charges
        has_config_map = False
        for document in objects:
            if namespace_of(document) != namespace_of(self.manifest):
                continue
            if self._used and is_stored(document):
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
        """Return whether the quota counts a claim."""
        return all(_is_claim_in_scope(requirement, claim) for requirement in self._scopes)

    def is_for_class_of(self, pod: PodClass) -> bool:
        """Return whether it has a scope for the priority class of a pod."""
        return any(
            scope["scopeName"] == "PriorityClass" and _in_scope(scope, pod.spec)
            for scope in self._scopes
        )

    def pods_charge(self, candidate: AdmittedWorkload, most: int | None = None) -> Amounts:
        """Return the charge of a workload's pods; of each set of pods, of at most ``most``."""
        covered = [(pod_set.count, pod) for pod_set, pod in candidate.pod_sets if self.covers(pod)]
        return total(
            times(pod.charge, count if most is None else min(most, count)) for count, pod in covered
        )

    def own_charge(self, candidates: Iterable[AdmittedWorkload]) -> Amounts:
        """Return the charge of the workloads themselves, even if their pods run in turns."""
        charges: list[Amounts] = []
        if not self._scopes:
            for workload in (candidate.workload for candidate in candidates):
                if not (self._used and is_stored(workload.manifest)):
                    charges.append(dict.fromkeys(_OBJECT_COUNTS.get(workload.kind, ()), WHOLE))
        return total(charges)

    def objects_charges(
        self, candidates: Sequence[AdmittedWorkload]
    ) -> tuple[Amounts, Amounts, Amounts]:
        """Return the charge of the other objects of workloads, and of declared claims they mount.

        Return three charges: at first, at first if all other declared claims exist before, and in
        all, with the objects that ended pods leave and those claims.
        """
        own_charge, other_claims = self.own_charge(candidates), self.other_claims(candidates)
        claims = [_claim_charge(self._claims[name]) for name in self._mounted(candidates)]

        def charge(*, in_all: bool) -> Amounts:
            objects: list[Amounts] = []
            new_claims: list[Amounts] = []
            for candidate in candidates:
                is_charged = bool(self._used) and is_stored(candidate.workload.manifest)
                if not self._scopes:
                    objects.append(_objects_charge(candidate, is_charged, in_all=in_all))
                for claim, count in candidate.made_claims(in_all=in_all):
                    if self._has(claim):
                        new_claims.append(times(_claim_charge(claim), count))
            return total((own_charge, *objects, *new_claims, *claims))

        now, in_all = charge(in_all=False), charge(in_all=True)
        now_with_claims = {key: now[key] + other_claims.get(key, 0) for key in now}
        in_all_with_claims = {key: in_all[key] + other_claims.get(key, 0) for key in in_all}
        return now, now_with_claims, in_all_with_claims

    def charge(self, candidates: Sequence[AdmittedWorkload]) -> Amounts:
        """Return the charge of workloads in all."""
        return total((*map(self.pods_charge, candidates), self.objects_charges(candidates)[0]))

    def other_claims(self, candidates: Sequence[AdmittedWorkload]) -> Amounts:
        """Return the charge of the declared claims that none of some workloads mounts."""
        mounted = self._mounted(candidates)
        return total(
            _claim_charge(claim) for name, claim in self._claims.items() if name not in mounted
        )

    def _mounted(self, candidates: Sequence[AdmittedWorkload]) -> set[str]:
        mounted: set[str] = set()
        for candidate in candidates:
            mounted.update(map(name_of, (*candidate.claims, *candidate.existing_claims)))
        return mounted & self._claims.keys()

    def crowded(self, charge: Amounts) -> tuple[Verdict, list[QuotaExceeded]]:
        """Return the quota that other objects exceed; they may exist if the status counts some."""
        hard = self.hard.keys()
        names = [name for name, amounts in self.beside.items() if amounts.keys() & hard]
        beside = total(self.beside[name] for name in names)
        charge = total((beside, charge))
        verdict = Verdict.UNDETERMINED if self._used else Verdict.CANNOT_FIT
        return verdict, self.exceeded({name: charge[name] for name in beside}, names)

    def exceeded(
        self,
        charge: Mapping[str, int],
        workloads: Iterable[Workload | str] = (),
        *,
        in_all: bool = False,
    ) -> list[QuotaExceeded]:
        """Return the resources for which a charge exceeds the quota, at once or in all."""
        names, exceeded = tuple(workloads), list[QuotaExceeded]()
        for resource, amount in charge.items():
            hard = self.hard.get(resource)
            if hard is None:
                continue
            free = hard - self.taken.get(resource, 0)
            if amount > max(0, free):
                exceeded.append(
                    QuotaExceeded(self.manifest, resource, amount, free, hard, names, in_all)
                )
        return exceeded

    def most_pods(self, pod: PodClass, wanted: int) -> int:
        """Return how many pods of a class the quota accepts."""
        for name, amount in pod.charge.items():
            if name in self.hard and amount:
                wanted = min(wanted, max(0, self.hard[name] - self.taken.get(name, 0)) // amount)
        return wanted

    def refusals(self, pod: PodClass) -> Iterable[Refusal]:
        """Yield refusals for containers without fields that a quota on cpu or memory requires."""
        spec = pod.spec
        of_pod = (*section(spec, "resources", "requests"), *section(spec, "resources", "limits"))
        if any(map(is_pod_level, of_pod)):
            return
        for field, resource in self._required:
            for container in (*items(spec, "containers"), *items(spec, "initContainers")):
                if resource not in section(container, "resources", field):
                    path, name = f"{field}.{resource}", container.get("name", "")
                    yield Refusal(
                        "quota-requires",
                        "containers",
                        f"ResourceQuota {name_of(self.manifest)} makes every container set {path}, "
                        f"and container {name} does not",
                        f"Set resources.{path} of container {name}, or give a default in a "
                        "LimitRange.",
                    )


def _objects_charge(candidate: AdmittedWorkload, is_there: bool, *, in_all: bool) -> Amounts:
    """Return the charge of the objects that are created for a workload, except for claims."""
    workload, objects = candidate.workload, dict[str, int]()
    # A CronJob creates its Jobs even without pods.
    is_made = workload.kind == "CronJob" or any(pod_set.count for pod_set, _ in candidate.pod_sets)
    if (created := _MADE_COUNTS.get(workload.kind)) and is_made and not is_there:
        network = section(workload.manifest, "spec", "network")
        if workload.kind == "JobSet" and network.get("enableDNSHostnames", True):
            # A headless Service, for the pods' names.
            objects |= dict.fromkeys(("services", "count/services"), WHOLE)
        count = 0
        for job in items(section(workload.manifest, "spec"), "replicatedJobs"):
            replicas = job.get("replicas")
            count += 1 if replicas is None else replicas
        objects[created] = (count or 1) * WHOLE
    if in_all:
        pod_sets = (pod_set for pod_set, _ in candidate.pod_sets)
        count = sum(candidate.required_pods(pod_set, in_all=True) for pod_set in pod_sets)
        objects["count/pods"] = count * WHOLE
    return objects


def _object_charge(document: Manifest) -> Amounts:
    """Return the charge of an object that is neither a workload nor a claim."""
    spec, name = section(document, "spec"), plural(document["kind"])
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
    charge = {
        "persistentvolumeclaims": WHOLE,
        "count/persistentvolumeclaims": WHOLE,
        "requests.storage": storage,
    }
    if storage_class := spec.get("storageClassName"):
        prefix = f"{storage_class}.storageclass.storage.k8s.io"
        charge |= {f"{prefix}/requests.storage": storage, f"{prefix}/persistentvolumeclaims": WHOLE}
    return charge


def _scopes(quota: Manifest) -> Iterable[Manifest]:
    spec = section(quota, "spec")
    plain: Sequence[str] = spec.get("scopes") or []
    yield from ({"scopeName": scope, "operator": "Exists"} for scope in plain)
    yield from items(section(spec, "scopeSelector"), "matchExpressions")


def _in_scope(requirement: Manifest, spec: Manifest) -> bool:
    match requirement["scopeName"]:
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


def _is_claim_in_scope(requirement: Manifest, claim: Manifest) -> bool:
    """Return whether a claim is in a scope, by its class or the next one (pvcMatchesScopeFunc)."""
    status = section(claim, "status")
    target = section(status, "modifyVolumeStatus").get("targetVolumeAttributesClassName")
    wanted = section(claim, "spec").get("volumeAttributesClassName")
    classes = [*filter(None, (wanted, status.get("currentVolumeAttributesClassName"), target))]
    is_of_claims = requirement["scopeName"] == OF_CLAIMS
    return is_of_claims and any(_is_selected(requirement, name) for name in classes or [None])


def _is_selected(requirement: Manifest, name: str | None) -> bool:
    """Return whether the operator of a scope accepts a class's name; None if there is no class."""
    return selects(
        {"matchExpressions": [{**requirement, "key": "class"}]}, {"class": name} if name else {}
    )


def _is_best_effort(spec: Manifest) -> bool:
    """Return whether a pod asks for neither cpu nor memory: the quality of service BestEffort."""
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
    terms: list[Manifest] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = section(spec, "affinity", kind)
        terms += items(affinity, REQUIRED)
        terms += (section(weighted, "podAffinityTerm") for weighted in items(affinity, PREFERRED))
    return any(
        term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms
    )
