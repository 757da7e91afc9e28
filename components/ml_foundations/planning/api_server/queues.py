"""Kueue's queues: whether the nominal quotas of a ClusterQueue can ever admit a workload, and where it is sent then."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog.kueue import PROVISIONING_CLASS
from ml_foundations.kubernetes.manifests import Manifest, items, name_of, namespace_of, section, unknown_paths
from ml_foundations.kubernetes.quantities import Amounts, format_milli, milli
from ml_foundations.kubernetes.selectors import REQUIRED, required_node_affinity, selects, selects_node
from ml_foundations.kubernetes.tolerations import untolerated_taints
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import PODS, pod_requests

_REQUESTER = "kueue.x-k8s.io/provisioning-request"


class Queues:
    """The LocalQueues, ClusterQueues, ResourceFlavors and AdmissionChecks that are declared."""

    def __init__(self, by_kind: Mapping[str, Sequence[Manifest]]) -> None:
        self._local = {(namespace_of(queue), name_of(queue)): queue for queue in by_kind.get("LocalQueue", ())}
        self._cluster = {name_of(queue): queue for queue in by_kind.get("ClusterQueue", ())}
        self._flavors = {name_of(flavor): flavor for flavor in by_kind.get("ResourceFlavor", ())}
        self._checks = {name_of(check): check for check in by_kind.get("AdmissionCheck", ())}
        self._configs = {name_of(config): config for config in by_kind.get("ProvisioningRequestConfig", ())}

    def cluster_queue(self, namespace: str, queue: str) -> Manifest | None:
        """The ClusterQueue behind a LocalQueue; None where one of them is not declared."""
        local = self._local.get((namespace, queue))
        return self._cluster.get(section(local, "spec").get("clusterQueue", "")) if local else None

    def not_provisioned(self, namespace: str, name: str | None, spec: Manifest) -> Refusal | None:
        """Why no AdmissionCheck asks GKE for the nodes of pods that wait in a LocalQueue; None where one does."""
        queue = self.cluster_queue(namespace, name) if name else None
        found = [self._not_requested(check, spec) for check in self._checks_of(queue or {}, spec)]
        remedy = "Put it in a queue of a TrainingQueue whose flavor for the pool says queued_provisioning."
        nothing = _no_request("nothing declared makes one", remedy, certain=not name or queue is not None)
        return min(filter(None, found), key=lambda each: each.certain, default=nothing) if all(found) else None

    def _checks_of(self, queue: Manifest, template: Manifest) -> Iterable[str]:
        """The AdmissionChecks of a ClusterQueue for flavors that take pods of a template."""
        spec = section(queue, "spec")
        flavors = [(each["name"], group) for group in items(spec, "resourceGroups") for each in items(group, "flavors")]
        taken = {name for name, group in flavors if self._takes_pods(name, group, template)}
        checks = items(section(spec, "admissionChecksStrategy"), "admissionChecks")
        named = (each["name"] for each in checks if not each.get("onFlavors") or taken & {*each["onFlavors"]})
        return *(spec.get("admissionChecks") or ()), *named

    def _not_requested(self, name: str, spec: Manifest) -> Refusal | None:
        """Why an AdmissionCheck does not ask GKE for the nodes of pods (Kueue, pkg/controller/admissionchecks)."""
        check = section(self._checks.get(name, {}), "spec")
        found = self._configs.get(str(section(check, "parameters").get("name")))
        if check.get("controllerName") != _REQUESTER or found is None or any(unknown_paths(found)):
            remedy = f"Declare it, of {_REQUESTER}, and its ProvisioningRequestConfig, with plain values."
            return _no_request(f"whether AdmissionCheck {name} makes one is not known", remedy, certain=False)
        config = section(found, "spec")
        asked, managed = config.get("provisioningClassName"), str(config.get("managedResources") or "")
        if asked == PROVISIONING_CLASS and (not managed or any(f"'{each}'" in managed for each in pod_requests(spec))):
            return None
        why = f"ProvisioningRequestConfig {name_of(found)} makes one of the class {asked} for {managed or 'all'} alone"
        return _no_request(why, f"Let it make one of {PROVISIONING_CLASS} for a resource that the pods request.")

    def takes(self, queue: Manifest, namespace: Mapping[str, Any]) -> bool:
        """Whether a ClusterQueue takes workloads of a namespace with these labels; without a selector, of none."""
        return selects(section(queue, "spec").get("namespaceSelector"), namespace)

    def refusals(self, queue: Manifest, spec: Manifest, requests: Amounts) -> Iterable[Refusal]:
        """Resources of which no flavor that takes a template ever has enough; their path is left empty."""
        covered: set[str] = set()
        for group in items(section(queue, "spec"), "resourceGroups"):
            names = _covered(group, requests)
            covered.update(names)
            flavors = [flavor for flavor in items(group, "flavors") if self._takes_pods(flavor["name"], group, spec)]
            if names and not flavors:
                yield _taken_by_none(queue)
            elif names and not self._usable(queue, group, spec, requests):
                most = {name: max((self._most(queue, f, name) for f in flavors), default=0) for name in names}
                name = max(names, key=lambda each: requests[each] / max(most[each], 1))
                yield _refused(queue, name, requests[name], most[name])
        for name in sorted(requests.keys() - covered - {PODS}):
            yield _refused(queue, name, requests[name], 0)

    def admitted(self, spec: Manifest, queue: Manifest, template: Manifest, requests: Amounts) -> Manifest:
        """A pod's spec as Kueue admits it, where one flavor alone can: with the flavor's labels and tolerations."""
        for group in items(section(queue, "spec"), "resourceGroups"):
            usable = self._usable(queue, group, template, requests)
            if len(usable) != 1 or usable[0] not in self._flavors:
                continue
            flavor = section(self._flavors[usable[0]], "spec")
            spec = {
                **spec,
                "nodeSelector": {**section(spec, "nodeSelector"), **section(flavor, "nodeLabels")},
                "tolerations": [*items(spec, "tolerations"), *items(flavor, "tolerations")],
            }
        return spec

    def _takes_pods(self, name: str, group: Manifest, spec: Manifest) -> bool:
        """Whether a flavor takes pods of a template: by its taints, and by labels that flavors of its group have.

        Follows checkFlavorForPodSets in Kueue's pkg/scheduler/flavorassigner.
        """
        own = section(self._flavors.get(name, {}), "spec")
        flavors = [section(self._flavors.get(each["name"], {}), "spec") for each in items(group, "flavors")]
        keys = {key for each in flavors for key in section(each, "nodeLabels")}
        tolerations = [*items(spec, "tolerations"), *items(own, "tolerations")]
        is_tolerated = not untolerated_taints(tolerations, items(own, "nodeTaints"))
        node: Manifest = {"metadata": {"labels": section(own, "nodeLabels")}}
        return name not in self._flavors or (is_tolerated and selects_node(_about(keys, spec), node))

    def _usable(self, queue: Manifest, group: Manifest, template: Manifest, requests: Amounts) -> list[str]:
        """The flavors of a group that take pods of a template and have enough of every resource they cover."""
        return [
            flavor["name"]
            for flavor in items(group, "flavors")
            if self._takes_pods(flavor["name"], group, template)
            and all(requests[name] <= self._most(queue, flavor, name) for name in _covered(group, requests))
        ]

    def _most(self, queue: Manifest, flavor: Manifest, resource: str) -> int:
        """What a queue may use of a flavor at most: its own, and what the others of its cohort lend."""
        own, limit, _ = quota_of(flavor, resource)
        cohort = _cohort(queue)
        if cohort is None:
            return own
        lent = 0
        for other in self._cluster.values():
            if other is queue or _cohort(other) != cohort:
                continue
            for group in items(section(other, "spec"), "resourceGroups"):
                for offered in items(group, "flavors"):
                    if offered["name"] == flavor["name"]:
                        nominal, _, lending = quota_of(offered, resource)
                        lent += nominal if lending is None else min(nominal, lending)
        return own + (lent if limit is None else min(lent, limit))


def _about(keys: set[str], spec: Manifest) -> Manifest:
    """What a pod's spec wants of some labels of nodes."""
    terms = [
        {"matchExpressions": [each for each in items(term, "matchExpressions") if each["key"] in keys]}
        for term in items(required_node_affinity(spec) or {}, "nodeSelectorTerms")
    ]
    selector = {key: value for key, value in section(spec, "nodeSelector").items() if key in keys}
    affinity = {REQUIRED: {"nodeSelectorTerms": terms}} if all(term["matchExpressions"] for term in terms) else {}
    return {"nodeSelector": selector, "affinity": {"nodeAffinity": affinity if terms else {}}}


def _no_request(why: str, remedy: str, *, certain: bool = True) -> Refusal:
    message = f"its nodes come only for a ProvisioningRequest, and {why}"
    return Refusal("queued-nodes", "tolerations", message, remedy, certain)


def _taken_by_none(queue: Manifest) -> Refusal:
    message = (
        f"no flavor of ClusterQueue {name_of(queue)} has the labels that its pods select and the taints they tolerate"
    )
    remedy = "Correct the node selector or the tolerations, or add a flavor for such nodes."
    return Refusal("queue", "", message, remedy)


def _refused(queue: Manifest, resource: str, wanted: int, most: int) -> Refusal:
    short = format_milli(wanted - most)
    message = (
        f"it needs {format_milli(wanted)} {resource} at once, and one flavor of ClusterQueue {name_of(queue)} has "
        f"{format_milli(most)} at most, borrowed ones included: {short} too few"
    )
    remedy = f"Raise nominalQuota of {resource} in ClusterQueue {name_of(queue)} by {short}, or ask for less."
    return Refusal("queue-quota", "", message, remedy)


def _cohort(queue: Manifest) -> str | None:
    spec = section(queue, "spec")
    return spec.get("cohortName") or spec.get("cohort")


def _covered(group: Manifest, requests: Amounts) -> list[str]:
    """The resources of a group that are requested."""
    covered: list[str] = group.get("coveredResources") or []
    return [name for name in covered if name in requests]


def quota_of(flavor: Manifest, resource: str) -> tuple[int, int | None, int | None]:
    """Nominal quota, borrowing limit and lending limit of a resource, in thousandths."""
    for quota in items(flavor, "resources"):
        if quota["name"] == resource:
            limits = [quota.get(key) for key in ("borrowingLimit", "lendingLimit")]
            borrowing, lending = (None if limit is None else milli(limit) for limit in limits)
            return milli(quota.get("nominalQuota", 0)), borrowing, lending
    return 0, None, None
