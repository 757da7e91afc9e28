"""Kueue's queues: whether the nominal quotas of a ClusterQueue can ever admit a workload, and where it is sent then."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog.kueue import PROVISIONING_CLASS
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.kubernetes.quantities import Amounts, format_milli
from ml_foundations.kubernetes.selectors import (
    REQUIRED,
    required_node_affinity,
    selects,
    selects_node,
)
from ml_foundations.kubernetes.tolerations import untolerated_taints
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning.api_server.cohorts import Cohorts, flavors_of
from ml_foundations.planning.model.decisions import QueueUsage
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.resources import PODS, pod_requests

_REQUESTER = "kueue.x-k8s.io/provisioning-request"


class Queues:
    """The LocalQueues, ClusterQueues, ResourceFlavors and AdmissionChecks that are declared."""

    def __init__(self, by_kind: Mapping[str, Sequence[Manifest]]) -> None:
        self._local = {
            (namespace_of(queue), name_of(queue)): queue for queue in by_kind.get("LocalQueue", ())
        }
        self._cluster = {name_of(queue): queue for queue in by_kind.get("ClusterQueue", ())}
        self._cohorts = Cohorts(self._cluster.values(), by_kind.get("Cohort", ()))
        self._flavors = {name_of(flavor): flavor for flavor in by_kind.get("ResourceFlavor", ())}
        self._checks = {name_of(check): check for check in by_kind.get("AdmissionCheck", ())}
        counting = [each["resources"] for each in by_kind.get("Configuration", ())]
        self._is_unknown = any(any(unknown_paths(each)) for each in counting)
        known = [] if self._is_unknown else counting
        self._excluded = tuple(
            prefix for each in known for prefix in each.get("excludeResourcePrefixes") or ()
        )
        changes = (each for resources in known for each in items(resources, "transformations"))
        self._transformed = {str(each.get("input")) for each in changes}
        self._configs = {
            name_of(config): config for config in by_kind.get("ProvisioningRequestConfig", ())
        }

    def counted(self, requests: Amounts) -> Amounts:
        """Return the requests that Kueue counts: its configuration may exclude resources by their prefix."""
        return {
            name: amount for name, amount in requests.items() if not name.startswith(self._excluded)
        }

    def _may_change(self, resource: str) -> bool:
        """Return whether Kueue's configuration may have it count something else than a resource that pods request."""
        return self._is_unknown or resource in self._transformed

    def cluster_queue(self, namespace: str, queue: str) -> Manifest | None:
        """The ClusterQueue behind a LocalQueue; None where one of them is not declared."""
        local = self._local.get((namespace, queue))
        return self._cluster.get(section(local, "spec").get("clusterQueue", "")) if local else None

    def not_provisioned(self, namespace: str, name: str | None, spec: Manifest) -> Refusal | None:
        """Why no AdmissionCheck asks GKE for the nodes of pods that wait in a LocalQueue; None where one does."""
        queue = self.cluster_queue(namespace, name) if name else None
        found = [self._not_requested(check, spec) for check in self._checks_of(queue or {}, spec)]
        nothing = told("no-request", "tolerations", certain=not name or queue is not None)
        return (
            min(filter(None, found), key=lambda each: each.certain, default=nothing)
            if all(found)
            else None
        )

    def _checks_of(self, queue: Manifest, template: Manifest | None = None) -> Iterable[str]:
        """The AdmissionChecks of a ClusterQueue; those for flavors that take pods of a template."""
        spec, flavors = (
            section(queue, "spec"),
            [(flavor["name"], group) for group, flavor in flavors_of(queue)],
        )
        taken = {
            name
            for name, group in flavors
            if template is None or self._takes_pods(name, group, template)
        }
        checks = items(section(spec, "admissionChecksStrategy"), "admissionChecks")
        named = (
            each["name"]
            for each in checks
            if not each.get("onFlavors") or taken & {*each["onFlavors"]}
        )
        return *(spec.get("admissionChecks") or ()), *named

    def _not_requested(self, name: str, spec: Manifest) -> Refusal | None:
        """Why an AdmissionCheck does not ask GKE for the nodes of pods (Kueue, pkg/controller/admissionchecks)."""
        check = section(self._checks.get(name, {}), "spec")
        found = self._configs.get(str(section(check, "parameters").get("name")))
        if check.get("controllerName") != _REQUESTER or found is None or any(unknown_paths(found)):
            return told(
                "request-not-known", "tolerations", certain=False, name=name, requester=_REQUESTER
            )
        config = section(found, "spec")
        asked, managed = (
            config.get("provisioningClassName"),
            str(config.get("managedResources") or ""),
        )
        if asked == PROVISIONING_CLASS and (
            not managed or any(f"'{each}'" in managed for each in pod_requests(spec))
        ):
            return None
        said: dict[str, Any] = {"name": name_of(found), "asked": asked, "managed": managed or "all"}
        return told("request-of-another-class", "tolerations", wanted=PROVISIONING_CLASS, **said)

    def takes(self, queue: Manifest, namespace: Mapping[str, Any]) -> bool:
        """Whether a ClusterQueue takes workloads of a namespace with these labels; without a selector, of none."""
        return selects(section(queue, "spec").get("namespaceSelector"), namespace)

    def not_known(self, queue: Manifest) -> Iterable[Refusal]:
        """What a ClusterQueue admits nothing without, where it is not declared: flavors, and checks of Kueue's own."""
        flavors = {flavor["name"]: group for group, flavor in flavors_of(queue)}
        known = {
            n
            for n, check in self._checks.items()
            if section(check, "spec").get("controllerName") == _REQUESTER
        }
        missing = [f"ResourceFlavor {name}" for name in flavors if name not in self._flavors]
        missing += [
            f"AdmissionCheck {name} of {_REQUESTER}"
            for name in self._checks_of(queue)
            if name not in known
        ]
        for what in missing if flavors else ["resource group"]:
            yield told(
                "inactive-queue", "metadata.labels", certain=False, queue=name_of(queue), what=what
            )

    def refusals(self, draws: Iterable[QueueUsage]) -> Iterable[Refusal]:
        """Resources of which no flavor that takes a template has enough, beside what the draws before it take."""
        taken, draws = Counter[tuple[str, str, str]](), [*draws]
        certain = not any(self._cohorts.is_unknown(queue) for queue, *_ in draws)
        for queue, path, spec, requests in draws:
            covered: set[str] = set()
            for group in items(section(queue, "spec"), "resourceGroups"):
                names = _covered(group, requests)
                covered.update(names)
                flavors = [
                    f["name"]
                    for f in items(group, "flavors")
                    if names and self._takes_pods(f["name"], group, spec)
                ]
                left = {
                    (f, name): self._cohorts.available(queue, f, name, taken)
                    for f in flavors
                    for name in names
                }
                fitting = [
                    f for f in flavors if all(requests[name] <= left[f, name] for name in names)
                ]
                sure = [name for name in names if not self._may_change(name)]
                if flavors and not any(
                    all(requests[name] <= left[f, name] for name in sure) for f in flavors
                ):
                    names = sure
                certain &= (
                    len(flavors) < 2 or not taken
                )  # else those before it may have taken another flavor
                if names and not flavors:
                    yield told("no-flavor", path, queue=name_of(queue))
                elif names and not fitting:
                    most = {name: max(left[f, name] for f in flavors) for name in names}
                    name = max(names, key=lambda each: requests[each] / max(most[each], 1))
                    is_certain = certain and not self._may_change(name)
                    yield _refused(
                        queue, path, name, requests[name], most[name], certain=is_certain
                    )
                taken.update(
                    {
                        (name_of(queue), f, name): requests[name]
                        for f in fitting[:1]
                        for name in names
                    }
                )
            for name in sorted(requests.keys() - covered - {PODS}):
                yield _refused(
                    queue, path, name, requests[name], 0, certain=not self._may_change(name)
                )
            if changed := sorted(self._transformed & requests.keys()):
                yield told("transformed", path, certain=False, resource=changed[0])

    def offer(self, draw: QueueUsage, resource: str) -> tuple[str, frozenset[str], int] | None:
        """Return the queue, its flavors that take pods, and how much of a resource these have at most.

        None if the queue does not count the resource, or if its most is not known.
        """
        queue, _, template, requests = draw
        groups = items(section(queue, "spec"), "resourceGroups")
        group = next((each for each in groups if resource in _covered(each, requests)), None)
        if group is None or self._may_change(resource) or self._cohorts.is_unknown(queue):
            return None
        names = [each["name"] for each in items(group, "flavors")]
        flavors = frozenset(name for name in names if self._takes_pods(name, group, template))
        return (
            name_of(queue),
            flavors,
            sum(self._cohorts.available(queue, name, resource) for name in flavors),
        )

    def admitted(self, spec: Manifest, draw: QueueUsage) -> list[Manifest]:
        """Return a pod's spec with the labels and tolerations of each flavor that has enough, or else that takes it.

        It is empty if no flavor that is declared takes the pod.
        """
        found, (queue, _, template, requests) = [spec], draw
        for group in items(section(queue, "spec"), "resourceGroups"):
            if not _covered(group, requests):
                continue
            taking = [
                f["name"]
                for f in items(group, "flavors")
                if self._takes_pods(f["name"], group, template)
            ]
            usable = self._usable(queue, group, template, requests) or taking
            flavors = [
                section(self._flavors[name], "spec") for name in usable if name in self._flavors
            ]
            found = [_with(flavor, each) for each in found for flavor in flavors]
        return found

    def _takes_pods(self, name: str, group: Manifest, spec: Manifest) -> bool:
        """Whether a flavor takes pods of a template: by its taints, and by labels that flavors of its group have.

        Follows checkFlavorForPodSets in Kueue's pkg/scheduler/flavorassigner.
        """
        own = section(self._flavors.get(name, {}), "spec")
        flavors = [
            section(self._flavors.get(each["name"], {}), "spec") for each in items(group, "flavors")
        ]
        keys = {key for each in flavors for key in section(each, "nodeLabels")}
        tolerations = [*items(spec, "tolerations"), *items(own, "tolerations")]
        is_tolerated = not untolerated_taints(tolerations, items(own, "nodeTaints"))
        node: Manifest = {"metadata": {"labels": section(own, "nodeLabels")}}
        return name not in self._flavors or (
            is_tolerated and selects_node(_about(keys, spec), node)
        )

    def _usable(
        self, queue: Manifest, group: Manifest, template: Manifest, requests: Amounts
    ) -> list[str]:
        """The flavors of a group that take pods of a template and have enough of every resource they cover."""
        return [
            flavor["name"]
            for flavor in items(group, "flavors")
            if self._takes_pods(flavor["name"], group, template)
            and all(
                requests[name] <= self._cohorts.available(queue, flavor["name"], name)
                for name in _covered(group, requests)
            )
        ]


def _with(flavor: Manifest, spec: Manifest) -> Manifest:
    selector = {**section(spec, "nodeSelector"), **section(flavor, "nodeLabels")}
    return {
        **spec,
        "nodeSelector": selector,
        "tolerations": [*items(spec, "tolerations"), *items(flavor, "tolerations")],
    }


def _about(keys: set[str], spec: Manifest) -> Manifest:
    """What a pod's spec wants of some labels of nodes."""
    terms = [
        {
            "matchExpressions": [
                each for each in items(term, "matchExpressions") if each["key"] in keys
            ]
        }
        for term in items(required_node_affinity(spec) or {}, "nodeSelectorTerms")
    ]
    selector = {key: value for key, value in section(spec, "nodeSelector").items() if key in keys}
    affinity = (
        {REQUIRED: {"nodeSelectorTerms": terms}}
        if all(term["matchExpressions"] for term in terms)
        else {}
    )
    return {"nodeSelector": selector, "affinity": {"nodeAffinity": affinity if terms else {}}}


def _refused(
    queue: Manifest, path: str, resource: str, wanted: int, most: int, *, certain: bool = True
) -> Refusal:
    amounts = {
        "wanted": format_milli(wanted),
        "most": format_milli(most),
        "short": format_milli(wanted - most),
    }
    return told(
        "queue-quota", path, certain=certain, resource=resource, queue=name_of(queue), **amounts
    )


def _covered(group: Manifest, requests: Amounts) -> list[str]:
    """The resources of a group that are requested."""
    covered: list[str] = group.get("coveredResources") or []
    return [name for name in covered if name in requests]
