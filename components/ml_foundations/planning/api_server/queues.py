"""Kueue's queues: whether a ClusterQueue can ever admit a workload, and to which flavor."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter

from ml_foundations.catalog.kueue import PROVISIONING_CLASS, ignores_claims
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    name_of,
    namespace_of,
    section,
    text_of,
    texts,
)
from ml_foundations.kubernetes.quantities import Amounts, format_milli
from ml_foundations.kubernetes.selectors import (
    REQUIRED,
    required_node_affinity,
    selects_node,
)
from ml_foundations.kubernetes.tolerations import untolerated_taints
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning.api_server.cohorts import NOTHING, Cohorts, Taken, flavors_of
from ml_foundations.planning.model.decisions import QueueUsage
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.model.resources import PODS, pod_requests

_REQUESTER = "kueue.x-k8s.io/provisioning-request"
"""The controller of AdmissionChecks that request nodes."""
_ON_REQUEST = "its nodes come only for a ProvisioningRequest"


class Queues:
    """The declared LocalQueues, ClusterQueues, ResourceFlavors and AdmissionChecks."""

    def __init__(self, by_kind: Mapping[str, Sequence[Manifest]]) -> None:
        local_queues = by_kind.get("LocalQueue", ())
        self._local = {(namespace_of(queue), name_of(queue)): queue for queue in local_queues}
        self._cluster = by_name(by_kind.get("ClusterQueue", ()))
        self._cohorts = Cohorts(self._cluster.values(), by_kind.get("Cohort", ()))
        self._flavors = by_name(by_kind.get("ResourceFlavor", ()))
        self._checks = by_name(by_kind.get("AdmissionCheck", ()))
        self._configs = by_name(by_kind.get("ProvisioningRequestConfig", ()))
        self._excluded: tuple[str, ...] = ()
        self._transformed: set[str] = set()
        configurations = by_kind.get("Configuration", ())
        settings = [document["resources"] for document in configurations]
        self._ignores_claims = any(map(ignores_claims, configurations))
        self._is_unknown = any(unknown_paths(settings))
        self._maps_claims = self._is_unknown or not settings
        for resources in [] if self._is_unknown else settings:
            self._excluded += tuple(resources.get("excludeResourcePrefixes") or ())
            for transformation in items(resources, "transformations"):
                self._transformed.add(str(transformation.get("input")))
            self._maps_claims |= bool(items(resources, "deviceClassMappings"))

    def refused_claims(self, classes: str, path: str) -> Iterator[Refusal]:
        """Yield why Kueue never starts pods that claim devices of classes."""
        if self._ignores_claims:
            return
        message = f"Kueue does not start pods that claim devices of {classes}, without a quota"
        off = "without KueueDRAIntegration and KueueDRARejectWorkloadsWhenDRADisabled"
        run = f"Run Kueue {off} (featureGates), as a TrainingQueue does"
        count = "let it count them (resources.deviceClassMappings of its Configuration)"
        remedy = f"{run}, {count}, or use no queue."
        path = f"{path}.resourceClaims"
        is_certain = not self._maps_claims
        yield Refusal("queue-claims", path, message, remedy, is_certain)

    def counted(self, requests: Amounts) -> Amounts:
        """Return the requests that Kueue counts: its configuration may exclude prefixes."""
        excluded = self._excluded
        return {name: requests[name] for name in requests if not name.startswith(excluded)}

    def _may_change(self, resource: str) -> bool:
        """Return whether Kueue's configuration may make it count another resource instead."""
        return self._is_unknown or resource in self._transformed

    def cluster_queue(self, namespace: str, queue: str) -> Manifest | None:
        """Return the ClusterQueue of a LocalQueue; None if one of them is not declared."""
        local = self._local.get((namespace, queue))
        return self._cluster.get(section(local, "spec").get("clusterQueue", "")) if local else None

    def flavors_in(self, namespace: str, queue: str) -> list[Manifest]:
        """Return the declared flavors of a LocalQueue's ClusterQueue."""
        flavors = flavors_of(self.cluster_queue(namespace, queue) or {})
        names = [flavor["name"] for _, flavor in flavors]
        return [self._flavors[name] for name in names if name in self._flavors]

    def not_provisioned(self, namespace: str, name: str | None, spec: Manifest) -> Refusal | None:
        """Return why no AdmissionCheck requests nodes from GKE for pods that wait in a LocalQueue.

        Return None if a check requests them. Of several reasons, return an uncertain one.
        """
        queue = self.cluster_queue(namespace, name) if name else None
        reasons: list[Refusal] = []
        for check in self.checks_of(queue or {}, spec):
            reason = self._not_requested(check, spec)
            if reason is None:
                return None
            reasons.append(reason)
        message = f"{_ON_REQUEST}, and nothing declared creates one"
        flavor = "a TrainingQueue whose flavor for the pool has queued_provisioning"
        remedy = f"Put it in a queue of {flavor}."
        is_certain = not name or queue is not None
        no_request = Refusal("queued-nodes", "tolerations", message, remedy, is_certain)
        return min(reasons, key=lambda reason: reason.certain, default=no_request)

    def checks_of(self, queue: Manifest, template: Manifest | None = None) -> list[str]:
        """Return the AdmissionChecks of a ClusterQueue.

        With a template, return only those for flavors that accept its pods.
        """
        flavors: set[str] = set()
        for group, flavor in flavors_of(queue):
            if template is None or self._accepts_pods(flavor["name"], group, template):
                flavors.add(flavor["name"])
        spec = section(queue, "spec")
        names = texts(spec, "admissionChecks")
        for check in items(section(spec, "admissionChecksStrategy"), "admissionChecks"):
            of_flavors = texts(check, "onFlavors")
            if not of_flavors or flavors.intersection(of_flavors):
                names.append(text_of(check, "name"))
        return names

    def _not_requested(self, name: str, spec: Manifest) -> Refusal | None:
        """Return why an AdmissionCheck does not request nodes from GKE for pods; None if it does.

        Follows pkg/controller/admissionchecks of Kueue.
        """
        check = section(self._checks.get(name, {}), "spec")
        config = self._configs.get(str(section(check, "parameters").get("name")))
        is_requester = check.get("controllerName") == _REQUESTER
        if not is_requester or config is None or any(unknown_paths(config)):
            message = f"{_ON_REQUEST}, and whether AdmissionCheck {name} creates one is not known"
            objects = f"it, of {_REQUESTER}, and its ProvisioningRequestConfig"
            remedy = f"Declare {objects}, with plain values."
            return doubt("queued-nodes", "tolerations", message, remedy)
        requested_class = section(config, "spec").get("provisioningClassName")
        managed = str(section(config, "spec").get("managedResources") or "")
        is_managed = not managed or any(f"'{name}'" in managed for name in pod_requests(spec))
        if requested_class == PROVISIONING_CLASS and is_managed:
            return None
        of_class = f"one of the class {requested_class} for {managed or 'all'} alone"
        creates = f"ProvisioningRequestConfig {name_of(config)} creates {of_class}"
        message = f"{_ON_REQUEST}, and {creates}"
        remedy = f"Set its class to {PROVISIONING_CLASS}, for a resource that the pods request."
        return Refusal("queued-nodes", "tolerations", message, remedy)

    def not_known(self, queue: Manifest) -> Iterator[Refusal]:
        """Yield refusals for undeclared objects without which a ClusterQueue admits nothing."""
        flavors = [flavor["name"] for _, flavor in flavors_of(queue)]
        missing = [f"ResourceFlavor {name}" for name in flavors if name not in self._flavors]
        for name in self.checks_of(queue):
            controller = section(self._checks.get(name, {}), "spec").get("controllerName")
            if name not in self._checks:
                missing.append(f"AdmissionCheck {name}")
            elif controller != _REQUESTER:
                check = f"AdmissionCheck {name} of ClusterQueue {name_of(queue)}"
                message = (
                    f"{check} is of the controller {controller}, which planning does not follow"
                )
                remedy = "Leave the check out to have the rest judged, or check it by a rehearsal."
                yield doubt("queue", "metadata.labels", message, remedy)
        for what in missing if flavors else ["resource group"]:
            without = f"without its {what}, which is not declared"
            message = f"ClusterQueue {name_of(queue)} admits nothing {without}"
            yield doubt("queue", "metadata.labels", message, f"Declare the {what}.")

    def refusals(self, usages: Iterable[QueueUsage]) -> Iterator[Refusal]:
        """Yield resources that no flavor has enough of for a template and those before it."""
        usages = [*usages]
        used = Counter[tuple[str, str, str]]()
        certain = not any(self._cohorts.is_unknown(queue) for queue, *_ in usages)
        for queue, path, spec, requests in usages:
            covered: set[str] = set()
            for group in items(section(queue, "spec"), "resourceGroups"):
                requested = _covered(group, requests)
                covered.update(requested)
                if not requested:
                    continue
                flavors = self._flavors_for(group, spec)
                # Templates before this one may have another flavor.
                certain &= len(flavors) < 2 or not used
                if not flavors:
                    yield _no_flavor(queue, path)
                    continue
                if fitting := self._with_enough(queue, flavors, requested, used):
                    for name, amount in requested.items():
                        used[name_of(queue), fitting[0], name] += amount
                    continue
                # If only a resource that Kueue may count otherwise is short, nothing is certain.
                sure = {name: requested[name] for name in requested if not self._may_change(name)}
                if not self._with_enough(queue, flavors, sure, used):
                    requested = sure
                # The message is about the resource with the highest share of what is available.
                shares: list[tuple[float, str, int]] = []
                for name, amount in requested.items():
                    available = partial(self._cohorts.available, queue, resource=name, taken=used)
                    most = max(map(available, flavors))
                    shares.append((amount / max(most, 1), name, most))
                _, name, most = max(shares, key=itemgetter(0))
                is_certain = certain and not self._may_change(name)
                yield _exceeded(queue, path, name, requests[name], most, certain=is_certain)
            for name in sorted(requests.keys() - covered - {PODS}):
                yield _not_covered(queue, path, name, certain=not self._may_change(name))
            for name in sorted(self._transformed & requests.keys())[:1]:
                then = "what it counts then is not known"
                message = f"Kueue's configuration transforms {name}, and {then}"
                remedy = "Check it by a rehearsal."
                yield doubt("queue-quota", path, message, remedy, only_refuses=True)

    def _with_enough(
        self, queue: Manifest, flavors: Iterable[str], requested: Amounts, used: Taken = NOTHING
    ) -> list[str]:
        """Return the flavors in which a queue has enough of each wanted resource."""
        sufficient = list(flavors)
        for name, amount in requested.items():
            available = partial(self._cohorts.available, queue, resource=name, taken=used)
            sufficient = [flavor for flavor in sufficient if amount <= available(flavor)]
        return sufficient

    def offer(self, usage: QueueUsage, resource: str) -> tuple[str, frozenset[str], int] | None:
        """Return the queue, its flavors that accept pods, and how much of a resource they have.

        Return None if the queue does not count the resource, or if the amount is not known.
        """
        queue, _, template, requests = usage
        groups = items(section(queue, "spec"), "resourceGroups")
        group = next((group for group in groups if resource in _covered(group, requests)), None)
        if group is None or self._may_change(resource) or self._cohorts.is_unknown(queue):
            return None
        flavors = frozenset(self._flavors_for(group, template))
        most = sum(self._cohorts.available(queue, flavor, resource) for flavor in flavors)
        return name_of(queue), flavors, most

    @property
    def flavor_labels(self) -> list[Manifest]:
        """The labels by which each flavor selects nodes."""
        return [section(flavor, "spec", "nodeLabels") for flavor in self._flavors.values()]

    def admitted(self, spec: Manifest, usage: QueueUsage) -> list[Manifest]:
        """Return a pod's spec with the labels and tolerations of each flavor that may admit it.

        These are the flavors with enough, or if none has enough, those that accept the pod.
        """
        queue, _, template, requests = usage
        specs = [spec]
        for group in items(section(queue, "spec"), "resourceGroups"):
            covered = _covered(group, requests)
            if not covered:
                continue
            flavors = self._flavors_for(group, template)
            usable = self._with_enough(queue, flavors, covered) or flavors
            declared = [self._flavors[name] for name in usable if name in self._flavors]
            specs = [_with_flavor(flavor, spec) for spec, flavor in product(specs, declared)]
        return specs

    def accepting(self, queue: Manifest, requests: Amounts, spec: Manifest) -> list[list[str]]:
        """Return the flavors that accept pods, for each group of resources that they request."""
        groups = items(section(queue, "spec"), "resourceGroups")
        return [self._flavors_for(group, spec) for group in groups if _covered(group, requests)]

    def _flavors_for(self, group: Manifest, template: Manifest) -> list[str]:
        """Return the flavors of a group that accept pods of a template."""
        accepting: list[str] = []
        for flavor in items(group, "flavors"):
            name = flavor.get("name")
            if name is not None and self._accepts_pods(name, group, template):
                accepting.append(name)
        return accepting

    def _accepts_pods(self, name: str, group: Manifest, spec: Manifest) -> bool:
        """Return whether a flavor accepts pods: by its taints and the labels of its group.

        Follows checkFlavorForPodSets in Kueue's pkg/scheduler/flavorassigner.
        """
        if name not in self._flavors:
            return True
        flavor = section(self._flavors[name], "spec")
        keys: set[str] = set()
        for member in items(group, "flavors"):
            named = self._flavors.get(member.get("name", ""), {})
            keys.update(section(named, "spec", "nodeLabels"))
        tolerations = [*items(spec, "tolerations"), *items(flavor, "tolerations")]
        if untolerated_taints(tolerations, items(flavor, "nodeTaints")):
            return False
        node: Manifest = {"metadata": {"labels": section(flavor, "nodeLabels")}}
        return selects_node(_selection_by(keys, spec), node)


def by_name(objects: Iterable[Manifest]) -> dict[str, Manifest]:
    """Return objects by their names."""
    return {name_of(document): document for document in objects}


def _with_flavor(flavor: Manifest, spec: Manifest) -> Manifest:
    added = section(flavor, "spec")
    selector = {**section(spec, "nodeSelector"), **section(added, "nodeLabels")}
    tolerations = [*items(spec, "tolerations"), *items(added, "tolerations")]
    return {**spec, "nodeSelector": selector, "tolerations": tolerations}


def _selection_by(keys: set[str], spec: Manifest) -> Manifest:
    """Return the node selector and node affinity of a pod as far as they are about some labels."""
    terms: list[Manifest] = []
    for term in items(required_node_affinity(spec) or {}, "nodeSelectorTerms"):
        expressions = items(term, "matchExpressions")
        expressions = [expression for expression in expressions if expression["key"] in keys]
        terms.append({"matchExpressions": expressions})
    # A term about other labels only accepts any flavor.
    is_limited = terms and all(map(itemgetter("matchExpressions"), terms))
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}} if is_limited else {}
    selector = {key: value for key, value in section(spec, "nodeSelector").items() if key in keys}
    return {"nodeSelector": selector, "affinity": affinity}


def _no_flavor(queue: Manifest, path: str) -> Refusal:
    requires = "the labels that its pods select and the taints that they tolerate"
    message = f"no flavor of ClusterQueue {name_of(queue)} has {requires}"
    remedy = "Correct the node selector or the tolerations, or add a flavor for such nodes."
    return Refusal("queue", path, message, remedy)


def _not_covered(queue: Manifest, path: str, resource: str, *, certain: bool) -> Refusal:
    """Return the refusal of a workload with a resource that no group of a queue covers.

    Source: kueue pkg/scheduler/flavorassigner, "resource unavailable in ClusterQueue".
    """
    holder = f"ClusterQueue {name_of(queue)}"
    message = f"{holder} does not cover {resource}, which it requests: Kueue never admits it"
    cover = f"Add {resource} to coveredResources and the flavors of a group of {holder}"
    remedy = f"{cover}, exclude it (resources.excludeResourcePrefixes of Kueue), or leave it out."
    return Refusal("queue-quota", path, message, remedy, certain=certain, only_refuses=True)


def _exceeded(
    queue: Manifest, path: str, resource: str, request: int, most: int, *, certain: bool
) -> Refusal:
    """Return the refusal of a workload that requests more of a resource than a flavor may have."""
    short = format_milli(request - most)
    holder = f"ClusterQueue {name_of(queue)}"
    has = f"{holder} has {format_milli(most)} at most, borrowed ones included"
    needs = f"it needs {format_milli(request)} {resource} at once"
    message = f"{needs}, and one flavor of {has}: {short} too few"
    remedy = f"Raise nominalQuota of {resource} in {holder} by {short}, or request less."
    return Refusal("queue-quota", path, message, remedy, certain=certain, only_refuses=True)


def _covered(group: Manifest, requests: Amounts) -> Amounts:
    """Return the requests of resources that a group covers."""
    covered: list[str] = group.get("coveredResources") or []
    return {name: requests[name] for name in covered if name in requests}
