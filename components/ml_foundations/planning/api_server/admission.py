"""Admission: what the API server stores of workloads and their pods, and what it rejects."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from math import prod

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, millis, times
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server import interfaces, pod_security, validation
from ml_foundations.planning.api_server.adoption import adoptions
from ml_foundations.planning.api_server.cluster import SYSTEM_PRIORITIES, Cluster
from ml_foundations.planning.api_server.defaults import admitted, ambiguous_defaults, with_gcsfuse
from ml_foundations.planning.api_server.limits import (
    claim_refusals,
    invalid_resources,
    out_of_range,
)
from ml_foundations.planning.api_server.quotas import Quota
from ml_foundations.planning.model import exclusive
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    AdmittedWorkload,
    GrowthStops,
    Outcome,
    PodSets,
    QueueUsage,
    Verdict,
    in_turns,
    needed_claims,
)
from ml_foundations.planning.model.equivalence import equivalence_key
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import (
    EXPENDABLE_BELOW,
    SHARED_HOSTNAME,
    NodeClass,
    comes_on_request,
)
from ml_foundations.planning.model.performance import unique
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import PODS, pod_requests
from ml_foundations.planning.model.workloads import (
    WORKLOAD_KINDS,
    PodSet,
    Workload,
    differing_labels,
    is_stored,
    single_pods,
)

_DEFAULT_SCHEDULER = "default-scheduler"
_NodeRefusals = Callable[[NodeClass], list[Refusal]]
_MOST_CHOICES = 16
"""The most combinations of flavors that are judged one by one."""
_LONGEST_NAME = 52
"""A StatefulSet's name, a dash and a hash of 10 digits are a label of at most 63 characters."""
_LONGEST_NAME_OF_ONE = 61
"""The same with a hash of one digit."""
_LEVEL = "pod-security.kubernetes.io/enforce"
_SECRETS_OF_ACCOUNT = "kubernetes.io/enforce-mountable-secrets"
_DAEMON_TOLERATIONS: tuple[Manifest, ...] = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for effect, keys in (
        ("NoExecute", ("not-ready", "unreachable")),
        ("NoSchedule", ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")),
    )
    for key in keys
)
"""The tolerations that the DaemonSet controller adds to its pods."""
_COUNTED_OTHERWISE = frozenset({*WORKLOAD_KINDS, "Node", "PersistentVolumeClaim", "ResourceQuota"})
"""Kinds that quotas count by other rules, or not at all."""
_ON_HOST_NETWORK = (
    {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"},
)
"""The tolerations that the controller also adds to pods in the network of their nodes."""


class Admission:
    """The API server of a cluster: completes the pods of workloads, charges quotas, and rejects.

    Attributes:
        quotas: The ResourceQuotas by namespace.
    """

    def __init__(self, cluster: Cluster, objects: Sequence[Manifest]) -> None:
        """Look up the objects that admission compares workloads with.

        Args:
            cluster: The objects in the cluster before the workloads.
            objects: All declared objects, which quotas count.
        """
        self._cluster = cluster
        self._adoptions = adoptions(cluster)
        self._namespaces = set(map(name_of, cluster.by_kind["Namespace"]))
        # Who enforces restricted in one namespace may do so in another.
        levels = {labels_of(namespace).get(_LEVEL) for namespace in cluster.by_kind["Namespace"]}
        self._strictest = "restricted" if "restricted" in levels else "baseline"
        self._ranks = set(map(name_of, cluster.by_kind["WorkloadPriorityClass"]))
        self._some_come_on_request = any(map(comes_on_request, cluster.declared))
        self._plain: dict[tuple[bytes, bytes] | bytes, AdmittedWorkload] = {}
        """Workloads without a remark, by their equivalence keys and by the shapes in these keys."""

        selectors: set[str] = set()
        for workload in cluster.workloads:
            for pods in workload.pods:
                selectors.update(_selector_keys(pods.spec))
        self._single_pods: dict[Workload, Sequence[PodSet]] = {}
        """The pods of workloads whose pods differ in a label that some selector looks at."""
        self._indistinct_keys: set[str] = set()
        """The labels that differ between pods of one workload, if the pods are too many to list."""
        for workload in cluster.workloads:
            if keys := differing_labels(workload) & selectors:
                if pod_sets := single_pods(workload):
                    self._single_pods[workload] = pod_sets
                else:
                    self._indistinct_keys |= keys
        self._selected = {labels.KUEUE_QUEUE, labels.KUEUE_PRIORITY, *selectors}
        for pod in (*chain(*cluster.running.values()), *cluster.replaced):
            self._selected.update(_selector_keys(pod.spec))

        self._declared = {"kube-system", *self._namespaces}
        for kind in cluster.by_kind.keys() - WORKLOAD_KINDS - {"Node"}:
            self._declared.update(map(namespace_of, cluster.by_kind[kind]))
        counted = [each for each in objects if each["kind"] not in _COUNTED_OTHERWISE]
        self.quotas: dict[str, list[Quota]] = {}
        for manifest in cluster.by_kind["ResourceQuota"]:
            quota = Quota(manifest, cluster, counted)
            self.quotas.setdefault(namespace_of(manifest), []).append(quota)

    def admit(self, workload: Workload) -> AdmittedWorkload:
        """Return a workload with its pods as they are stored, and what the API server rejects.

        One of several equivalent workloads is admitted, and its result is copied. Of workloads that
        differ in their amounts alone, only the rules about amounts are checked again.
        """
        if workload.unknown:
            unknown = Outcome.refused(map(_unknown_value, workload.unknown))
            return self._with_claims(workload, outcome=unknown)
        if workload in self._cluster.fully_running:
            return self._with_claims(workload, outcome=Outcome.of(Verdict.FITS))
        if str(workload) in self._adoptions or workload in self._single_pods:
            return self._admit(workload)
        key = equivalence_key(workload, self._selected, self._declared)
        if key is None:
            return self._admit(workload)
        if key in self._plain:
            return self._plain[key].copy_for(workload)
        # Whether nodes come for a ProvisioningRequest depends on the requested resources.
        like = None if self._some_come_on_request else self._plain.get(key[0])
        admitted = self._admit(workload, like)
        if admitted.is_plain:
            self._plain[key] = self._plain[key[0]] = admitted
        return admitted

    def _with_claims(
        self, workload: Workload, pod_sets: PodSets = (), outcome: Outcome = NOTHING_DECIDED
    ) -> AdmittedWorkload:
        volumes = self._cluster.volumes
        claims, existing = volumes.claims_of(workload), volumes.own_claims(workload)
        return AdmittedWorkload(workload, pod_sets, claims, existing, outcome=outcome)

    def _admit(self, workload: Workload, like: AdmittedWorkload | None = None) -> AdmittedWorkload:
        """Complete the pods, check all rules, and charge the queue and the quotas.

        Args:
            workload: The workload.
            like: A plain workload that differs in its name and amounts alone. Then only the rules
                about amounts are checked.
        """
        if like:
            [pod_set], [(_, plain_pod)] = workload.pods, like.pod_sets
            declared, stored = self._completed(workload, pod_set)
            name, namespace = str(workload), workload.namespace
            pod = plain_pod.of(
                name=name,
                namespace=namespace,
                labels=pod_set.labels,
                spec=stored,
                declared_spec=declared,
            )
            outcome = _refused_pods(pod_set, self._of_amounts(workload, pod_set, stored))
            return self._charge(AdmittedWorkload(workload, ((pod_set, pod),), outcome=outcome))
        invalid = list(validation.refusals(workload))
        outcome = Outcome.refused(invalid)
        if workload.kind == "JobSet":
            outcome += Outcome.refused(exclusive.refusals(workload.manifest))
        if any("ffinity" in each.path or "topologySpread" in each.path for each in invalid):
            # An invalid selector cannot be compared with labels.
            return self._with_claims(workload, outcome=outcome)
        pod_sets: list[tuple[PodSet, PodClass]] = []
        for declared_set in self._single_pods.get(workload, workload.pods):
            pod_set, pod = self._pods(workload, declared_set)
            pod_sets.append((pod_set, pod))
            outcome += self._checked_pods(workload, pod_set, pod)
        admitted = self._with_claims(workload, tuple(pod_sets))
        outcome += Outcome.refused(self._ambiguities(workload)) + self._checked_claims(admitted)
        return self._charge(admitted.with_outcome(outcome))

    def _ambiguities(self, workload: Workload) -> Iterator[Refusal]:
        """Yield reasons that make it uncertain which pods a workload has, or which defaults."""
        for message in self._adoptions.get(str(workload), ()):
            yield Refusal(
                rule="beyond-planning",
                path="metadata.labels",
                message=message,
                remedy="Give them separate labels.",
                certain=False,
            )
        limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
        if resources := ", ".join(ambiguous_defaults(limit_ranges)):
            differ = f"LimitRanges of {workload.namespace} give different defaults for {resources}"
            yield Refusal(
                rule="limit-range-defaults",
                path="LimitRange.spec.limits",
                message=f"{differ}; which one wins is undefined",
                remedy="Keep one LimitRange that gives defaults.",
                certain=False,
            )

    def _checked_claims(self, admitted: AdmittedWorkload) -> Outcome:
        """Return the outcome for the claims that are created for pods, or that pods mount."""
        volumes, outcome = self._cluster.volumes, NOTHING_DECIDED
        limit_ranges = self._cluster.limit_ranges.get(admitted.workload.namespace, [])
        made = unique(claim for _, pod in admitted.pod_sets for claim in pod.made_claims)
        for claim in (*made, *admitted.claims):
            prefix = f"the API server refuses the claim {name_of(claim)}: "
            refused = claim_refusals(claim, limit_ranges)
            outcome += Outcome.refused(
                _below("PersistentVolumeClaim.spec", each, prefix) for each in refused
            )
            for refusal in volumes.class_refusals(claim):
                if refusal.certain:
                    outcome += Outcome.refused([refusal])
                else:  # the volume is larger than the claim
                    outcome += Outcome.warned([refusal])
        if admitted.workload.kind != "DaemonSet":
            scarce = list(volumes.shortage(needed_claims([admitted])))
            if not scarce:
                in_all = volumes.shortage(needed_claims([admitted], in_all=True))
                scarce = [refusal._replace(certain=False) for refusal in in_all]
            outcome += Outcome.refused(scarce)
        return outcome

    def _charge(self, admitted: AdmittedWorkload) -> AdmittedWorkload:
        """Return a workload with the decisions of its queue and of its namespace's quotas."""
        workload = admitted.workload
        if workload.queue is not None:
            admitted = self._queued(admitted, workload.queue)
        outcome = admitted.outcome
        for quota in self.quotas.get(workload.namespace, []):
            now, with_others, in_all = quota.objects_charges([admitted])
            exceeded = quota.exceeded(now)
            outcome += Outcome.refused(exceeded)
            contested = quota.exceeded(with_others) or quota.exceeded(in_all, in_all=True)
            if contested and not exceeded:
                outcome += Outcome.of(Verdict.UNDETERMINED, *contested)
            outcome += _charged_pods(admitted, quota)
        return admitted.with_outcome(outcome)

    def _completed(self, workload: Workload, pod_set: PodSet) -> tuple[Manifest, Manifest]:
        """Return the spec of pods as their controller declares it, and as it is stored."""
        declared = self._with_controller_fields(workload, pod_set)
        limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
        stored = admitted(declared, limit_ranges, self._cluster.runtime_classes)
        requested, _ = self._interfaces(pod_set, stored)
        if not requested:
            return declared, stored
        declared = interfaces.with_requests(declared, requested)
        return declared, admitted(declared, limit_ranges, self._cluster.runtime_classes)

    def _interfaces(self, pod_set: PodSet, spec: Manifest) -> tuple[list[str], str]:
        """Return the requests of pods for interfaces in node networks, and unknown networks."""
        annotation = annotations_of(pod_set.template).get(labels.GKE_INTERFACES)
        if not annotation:
            return [], ""
        return interfaces.requests(annotation, spec, self._cluster.declared)

    def _pods(self, workload: Workload, pod_set: PodSet) -> tuple[PodSet, PodClass]:
        """Return a set of pods as the scheduler sees them; a DaemonSet's with their number."""
        cluster, volumes = self._cluster, self._cluster.volumes
        declared, stored = self._completed(workload, pod_set)
        pod = cluster.pod_class(
            str(workload),
            workload.namespace,
            pod_set.labels,
            stored,
            recreated=workload.replaces_evicted,
            one_per_node=workload.kind == "DaemonSet",
            declared_spec=declared,
            made_claims=volumes.made_claims(stored, workload),
            volumes=volumes.requests(stored, workload),
            volume_refusals=self._node_refusals(stored, workload, pod_set),
        )
        if workload.kind == "DaemonSet":
            count = sum(place.count for place in cluster.accepting(pod))
            pod_set = replace(pod_set, count=count)
        return pod_set, pod

    def _checked_pods(self, workload: Workload, pod_set: PodSet, pod: PodClass) -> Outcome:
        """Return the refusals of a set of pods by the API server, and their unknown facts."""
        cluster, spec, namespace = self._cluster, pod.spec, workload.namespace
        outcome = NOTHING_DECIDED
        refused = list(validation.refused_label_keys(spec, {}))
        refused += self._of_amounts(workload, pod_set, spec)
        if pod_set.count:
            namespace_labels = cluster.namespaces.get(namespace, {})
            refused += validation.refused_label_keys(spec, pod_set.labels)
            refused += self._against_classes(pod_set, spec)
            refused += pod_security.refusals(namespace_labels, pod_set.template)
            beyond = self._beyond_namespace(workload, pod_set, pod)
            outcome += Outcome.refused(_below(pod_set.path, each) for each in beyond)
        outcome += _refused_pods(pod_set, refused)
        more = list(cluster.volumes.without_driver(pod_set.template, namespace))
        more += cluster.volumes.without_sidecar(pod_set.template, namespace)
        if spec.get("resourceClaims"):
            node_groups = [*cluster.accepting(pod), *cluster.possibly_accepting(pod)]
            nodes = [group.node for group in node_groups or cluster.node_groups]
            more += cluster.devices.refusals(spec, namespace, nodes)
        more += self._unknowns(workload, pod_set, pod)
        return outcome + Outcome.refused(_below(pod_set.path, each) for each in more)

    def _of_amounts(self, workload: Workload, pod_set: PodSet, spec: Manifest) -> Iterable[Refusal]:
        """Yield refusals of the amounts in a template, and in its admitted spec."""
        if workload.kind != "Pod":
            yield from invalid_resources(pod_set.spec)
        if pod_set.count:
            # Without these, admission only copies limits to requests.
            limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
            if limit_ranges or spec.get("resources") or workload.kind == "Pod":
                yield from invalid_resources(spec)
            yield from out_of_range(spec, limit_ranges)

    def _node_refusals(
        self, spec: Manifest, workload: Workload, pods: PodSet
    ) -> _NodeRefusals | None:
        """Return the rules about nodes that the scheduler does not check, if there are any.

        They are about disks that do not attach, and about nodes that the autoscaler does not add.
        """
        of_volumes = self._cluster.volumes.refusals(spec, workload)
        if workload.kind == "DaemonSet":
            return of_volumes
        if self._cluster.priority(spec)[0] < EXPENDABLE_BELOW:
            return lambda node: [*(of_volumes(node) if of_volumes else ()), *_not_added(node)]
        annotations = section(pods.template, "metadata", "annotations")
        asks = any(key.endswith("/consume-provisioning-request") for key in annotations)
        if asks or not self._some_come_on_request:
            return of_volumes
        missing = self._cluster.queues.not_provisioned(
            workload.namespace, workload.queue, pods.spec
        )
        if missing is None:
            return of_volumes

        def with_requests(node: NodeClass) -> list[Refusal]:
            refused = of_volumes(node) if of_volumes else []
            return [*refused, missing] if comes_on_request(node) else refused

        return with_requests

    def _with_controller_fields(self, workload: Workload, pod_set: PodSet) -> Manifest:
        """Return the spec as its controller completes it, with the default priority class."""
        spec = dict(pod_set.spec)
        if "priorityClassName" not in spec and self._cluster.default_priority is not None:
            spec["priorityClassName"] = name_of(self._cluster.default_priority)
        if workload.kind == "DaemonSet":
            of_host = _ON_HOST_NETWORK if spec.get("hostNetwork") else ()
            spec["tolerations"] = [*items(spec, "tolerations"), *_DAEMON_TOLERATIONS, *of_host]
        if not self._cluster.is_gke:
            return spec
        return with_gcsfuse(spec, annotations_of(pod_set.template))

    def _unknowns(self, workload: Workload, pod_set: PodSet, pod: PodClass) -> Iterable[Refusal]:
        """Yield facts that decide about pods and that the rules of planning do not know."""
        yield from self._unknown_scheduling(workload, pod_set, pod)
        yield from self._unknown_objects(workload, pod_set, pod.spec)
        yield from self._unknown_owner(workload, pod_set)
        yield from self._unknown_topology(pod)
        yield from self._cluster.volumes.unknowns(pod.spec, workload)

    def _unknown_scheduling(
        self, workload: Workload, pod_set: PodSet, pod: PodClass
    ) -> Iterator[Refusal]:
        """Yield fields of a pod by which something other than the scheduler's rules decides."""
        spec, cluster = pod.spec, self._cluster
        if spec.get("schedulingGates"):
            yield _beyond(
                "schedulingGates",
                "its scheduling gates are lifted by somebody else",
                "Remove the gates to have it judged.",
            )
        node = spec.get("nodeName")
        if workload.kind != "DaemonSet" and node and node in map(name_of, cluster.by_kind["Node"]):
            yield _beyond(
                "nodeName",
                f"it names the node {node}, whose kubelet decides, and no scheduler",
                "Select the node by its labels to have it judged.",
            )
        scheduler = spec.get("schedulerName", _DEFAULT_SCHEDULER)
        if scheduler != _DEFAULT_SCHEDULER:
            yield _beyond(
                "schedulerName",
                f"the scheduler {scheduler} follows its own rules",
                "Use the default scheduler to have it judged.",
            )
        if spec.get("resourceClaims"):
            classes = cluster.devices.classes(spec, workload.namespace)
            yield _beyond(
                "resourceClaims",
                f"it claims devices of {classes}, and their drivers decide which node has them",
                "Check it by a rehearsal, or request the devices as an extended resource if their"
                " driver offers one.",
                only_refuses=True,
            )
        _, networks = self._interfaces(pod_set, spec)
        if networks:
            yield _beyond(
                f"metadata.annotations.{labels.GKE_INTERFACES}",
                f"its interfaces need nodes in the networks {networks}, and not all nodes that"
                " accept it are known to have them",
                "Declare each Network of type Device and its GKENetworkParamSet, with vpc and"
                " vpcSubnet as networkConfig.additionalNodeNetworkConfigs of the pool has them"
                " (GpuNodePool: additional_networks). A Node has them in status.allocatable, as"
                " networking.gke.io.networks/NAME.",
            )

    def _unknown_objects(
        self, workload: Workload, pod_set: PodSet, spec: Manifest
    ) -> Iterator[Refusal]:
        """Yield classes and accounts that pods name and that are not declared, or limit them."""
        cluster = self._cluster
        runtime = spec.get("runtimeClassName")
        if runtime and runtime not in cluster.runtime_classes:
            yield _beyond(
                "runtimeClassName",
                f"the runtime class {runtime} may add overhead and a node selector",
                f"Declare the RuntimeClass {runtime}.",
            )
        priority = spec.get("priorityClassName")
        known_priorities = (cluster.priority_classes, SYSTEM_PRIORITIES)
        if priority and not any(priority in known for known in known_priorities):
            yield _beyond(
                "priorityClassName",
                f"the priority class {priority} is not declared",
                f"Declare the PriorityClass {priority}.",
            )
        template = section(pod_set.template, "spec")
        name = template.get("serviceAccountName") or template.get("serviceAccount") or "default"
        account = cluster.service_accounts.get((workload.namespace, name))
        if account is None and name not in ("default", UNKNOWN):
            yield _beyond(
                "serviceAccountName",
                f"the service account {name} is not declared",
                f"Declare the ServiceAccount {name}.",
                only_refuses=True,
            )
        if account and annotations_of(account).get(_SECRETS_OF_ACCOUNT) == "true":
            yield _beyond(
                "serviceAccountName",
                f"the service account {name} lets its pods use some secrets only",
                f"Drop the annotation {_SECRETS_OF_ACCOUNT}.",
                only_refuses=True,
            )

    def _unknown_owner(self, workload: Workload, pod_set: PodSet) -> Iterator[Refusal]:
        """Yield reasons why the controller or the owner of a workload may not run its pods."""
        remedy = f"Give it a name of at most {_LONGEST_NAME} characters."
        length = len(str(workload.name)) if workload.kind == "StatefulSet" else 0
        if length > _LONGEST_NAME_OF_ONE:
            message = "its name and a hash are too long for the label that its controller gives"
            yield Refusal("invalid", "", f"{message} its pods", remedy)
        elif length > _LONGEST_NAME:
            message = "its name and a hash may be too long for what its controller makes"
            yield _beyond("", message, remedy, only_refuses=True)
        owners = section(workload.manifest, "metadata").get("ownerReferences")
        if owners and not is_stored(workload.manifest):
            yield _beyond(
                "metadata.ownerReferences",
                "it has an owner, without which it is removed",
                "Leave them out to have it judged.",
            )
        if workload.deadline == 0:
            yield _beyond(
                "",
                "its deadline is over at once",
                "Give it more activeDeadlineSeconds.",
                only_refuses=True,
            )
        declared = labels_of(pod_set.template)
        replaced = {key for key in declared if pod_set.labels.get(key) != declared[key]}
        if by_controller := replaced | (declared.keys() & differing_labels(workload)):
            yield _beyond(
                "metadata.labels",
                f"its controller gives the label {min(by_controller)} itself",
                "Leave it out of the template.",
            )

    def _unknown_topology(self, pod: PodClass) -> Iterator[Refusal]:
        """Yield labels of pods and nodes that affinity looks at and that are not known."""
        if not self._indistinct_keys.isdisjoint(_selector_keys(pod.spec)):
            yield _beyond(
                "affinity",
                "a selector matches only some pods of one workload",
                "Select the pods by a common label.",
            )
        keys = {rule.key for rule in (*pod.affinity, *pod.anti_affinity, *pod.spread)}
        if keys & {labels.HOSTNAME, SHARED_HOSTNAME} and self._cluster.lacks_host_names:
            yield _beyond(
                "affinity",
                f"some Nodes lack the label {labels.HOSTNAME}, which kubelets give them",
                "Give all Nodes the label.",
            )
        for key in keys - {labels.HOSTNAME}:
            nodes = [place.node for place in self._cluster.node_groups]
            if any(node.labels.get(key) is UNKNOWN and not node.zones for node in nodes):
                yield _beyond(
                    "affinity",
                    f"the label {key} of some nodes is not known",
                    "Declare the pools' zones.",
                )

    def _beyond_namespace(
        self, workload: Workload, pods: PodSet, pod: PodClass
    ) -> Iterable[Refusal]:
        """Yield rules that an undeclared namespace, or GKE for critical pods, may enforce.

        GKE gives kube-system a quota for critical pods (NVIDIA/gpu-operator issue 660), and no Pod
        Security level that its agents break.
        """
        namespace, priority = workload.namespace, pod.spec.get("priorityClassName")
        if namespace == "kube-system" or (workload.kind == "Pod" and is_stored(workload.manifest)):
            return
        is_declared = namespace in self._namespaces
        if not is_declared:
            level = self._strictest
            for broken in [*pod_security.refusals({_LEVEL: level}, pods.template)][:1]:
                field = broken.path or "an annotation"
                breaks = f"{field} breaks the Pod Security level {level}"
                yield broken._replace(
                    message=f"{breaks}; whether {namespace} enforces it is not known",
                    remedy=f"Add the Namespace {namespace} to what is judged.",
                    certain=False,
                    only_refuses=True,
                )
        quotas = self.quotas.get(namespace, [])
        has_quota = any(quota.is_for_class_of(pod) for quota in quotas)
        if self._cluster.is_gke and priority in SYSTEM_PRIORITIES and not has_quota:
            # The export of a cluster may leave out its quotas; a new namespace has none.
            namespaces = self._cluster.by_kind["Namespace"]
            stored = (is_stored(each) for each in namespaces if name_of(each) == namespace)
            has_quotas = (is_declared and not any(stored)) or "kube-system" in self.quotas
            admits = f"GKE admits pods of {priority} in {namespace}"
            yield Refusal(
                rule="critical-pods",
                path="priorityClassName",
                message=f"{admits} under a quota for that class only, and there is none",
                remedy=f"Declare a ResourceQuota there whose scopeSelector names {priority},"
                " or choose another class.",
                certain=has_quotas,
                only_refuses=True,
            )

    def _against_classes(self, pods: PodSet, spec: Manifest) -> Iterable[Refusal]:
        """Yield pod fields that conflict with the pod's PriorityClass or RuntimeClass."""
        name = spec.get("priorityClassName") or ""
        classes = self._cluster.priority_classes
        if not name or name in SYSTEM_PRIORITIES or name in classes:
            declared = classes.get(name, {})
            value = SYSTEM_PRIORITIES.get(name, declared.get("value", 0))
            policy = declared.get("preemptionPolicy") or "PreemptLowerPriority"
            for field, wanted in (("priority", value), ("preemptionPolicy", policy)):
                if spec.get(field) not in (None, wanted):
                    yield Refusal(
                        rule="priority-class",
                        path=field,
                        message=f"{field} is {spec[field]}, and its priority class gives {wanted}",
                        remedy=f"Leave {field} to the PriorityClass.",
                    )
        template, runtime_name = section(pods.template, "spec"), spec.get("runtimeClassName")
        runtime = self._cluster.runtime_classes.get(runtime_name or "", {})
        of_class = millis(section(runtime, "overhead", "podFixed"))
        is_known = bool(runtime) or not runtime_name
        overhead = template.get("overhead")
        if is_known and overhead is not None and millis(section(template, "overhead")) != of_class:
            yield Refusal(
                rule="runtime-class",
                path="overhead",
                message="its overhead is not that of its runtime class",
                remedy="Leave overhead to the RuntimeClass.",
            )
        for key, value in section(runtime, "scheduling", "nodeSelector").items():
            if section(template, "nodeSelector").get(key, value) != value:
                yield Refusal(
                    rule="runtime-class",
                    path=f"nodeSelector.{key}",
                    message=f"its runtime class selects nodes with {key}={value}",
                    remedy=f"Leave {key} to the RuntimeClass.",
                )

    def _counted(self, workload: Workload, pods: PodSet, pod: PodClass) -> Amounts:
        """Return the amounts that Kueue counts for one pod.

        For Jobs and JobSets, Kueue counts the template with defaults and overhead (Kueue,
        pkg/workload/resources.go), before webhooks change the pods. For other kinds it counts the
        pods as they are stored.
        """
        spec = pod.spec
        if workload.kind in ("Job", "CronJob", "JobSet"):
            limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
            spec = admitted(pods.spec, limit_ranges, self._cluster.runtime_classes)
        requests = {name: amount for name, amount in pod_requests(spec).items() if amount}
        return requests | {PODS: WHOLE}

    def _queued(self, waiting: AdmittedWorkload, name: str) -> AdmittedWorkload:
        """Return a workload with the decisions of the LocalQueue in which it waits.

        Kueue adds the node labels and tolerations of the flavor to which it admits the pods. If
        several flavors are possible, each must have the capacity for its pods.
        """
        workload, namespace = waiting.workload, waiting.workload.namespace
        queues = self._cluster.queues
        outcome = waiting.outcome + Outcome.refused(self._unknown_rank(workload))
        queue = queues.cluster_queue(namespace, name)
        if queue is None:
            missing = f"there is no LocalQueue {namespace}/{name} with its ClusterQueue"
            no_queue = Refusal(
                rule="queue",
                path="metadata.labels",
                message=f"it waits in the queue {name}, and {missing}",
                remedy=f"Declare LocalQueue {name} in namespace {namespace}.",
                certain=False,
            )
            return waiting.with_outcome(outcome + Outcome.refused([no_queue]))
        if not queues.accepts(queue, self._cluster.namespaces[namespace]):
            rejects = f"does not accept workloads of namespace {namespace}"
            closed = Refusal(
                rule="queue",
                path="metadata.labels",
                message=f"ClusterQueue {name_of(queue)} {rejects}",
                remedy="Let its namespaceSelector select the namespace.",
                certain=namespace in self._namespaces,
            )
            outcome += Outcome.refused([closed])
        outcome += Outcome.refused(queues.not_known(queue))
        outcome += Outcome.refused(_partial_admission_refusals(workload))
        usage: list[QueueUsage] = []
        for pods, pod in waiting.pod_sets:
            counted = queues.counted(self._counted(workload, pods, pod))
            requests = times(counted, _fewest_admitted(workload, pods))
            usage.append((queue, pods.count_path, pods.spec, requests))
        outcome += Outcome.refused(queues.refusals(usage))
        by_set: list[PodSets] = []
        for (pods, pod), draw in zip(waiting.pod_sets, usage, strict=True):
            specs = queues.admitted(pod.spec, draw)
            by_set.append(tuple([(pods, replace(pod, spec=spec)) for spec in specs]))
        choices = [*product(*by_set)] if prod(map(len, by_set)) <= _MOST_CHOICES else []
        pod_sets = list(waiting.pod_sets)
        for index, flavors in enumerate(by_set):
            if len(flavors) == 1:
                pod_sets[index] = flavors[0]
                continue
            capacities = [self._capacity(pod) for _, pod in flavors]
            required = waiting.required_pods(pod_sets[index][0])
            if min(capacities, default=0) < required and not outcome.reasons:
                several = _beyond(
                    "metadata.labels",
                    "Kueue may admit its pods to a flavor whose nodes do not accept all of them",
                    "Select the labels of one flavor.",
                )
                outcome += Outcome.refused([several])
        return replace(
            waiting,
            pod_sets=tuple(pod_sets),
            queue_usage=usage,
            flavor_choices=choices,
            outcome=outcome,
        )

    def _capacity(self, pod: PodClass) -> int:
        places = self._cluster.accepting(pod)
        return sum(place.count * place.room(pod) for place in places)

    def _unknown_rank(self, workload: Workload) -> Iterator[Refusal]:
        """Yield a WorkloadPriorityClass that a workload names and that is not declared."""
        rank = labels_of(workload.manifest).get(labels.KUEUE_PRIORITY)
        if isinstance(rank, str) and rank and rank not in self._ranks:
            missing = f"WorkloadPriorityClass does not exist, and {rank} is not declared"
            yield Refusal(
                rule="queue",
                path=f"metadata.labels.{labels.KUEUE_PRIORITY}",
                message=f"Kueue admits no workload whose {missing}",
                remedy=f"Declare the WorkloadPriorityClass {rank}.",
                certain=False,
                only_refuses=True,
            )


def _beyond(path: str, message: str, remedy: str, *, only_refuses: bool = False) -> Refusal:
    """Return an uncertain refusal by something that planning does not model."""
    return Refusal(
        "beyond-planning", path, message, remedy, certain=False, only_refuses=only_refuses
    )


def _unknown_value(path: str) -> Refusal:
    message = f"{path} is not known yet"
    return Refusal("unknown-value", path, message, f"Give {path} a plain value.", certain=False)


def _fewest_admitted(workload: Workload, pods: PodSet) -> int:
    """Return the fewest pods that Kueue admits: partial admission starts a Job with some pods."""
    fewest = annotations_of(workload.manifest).get(labels.KUEUE_LEAST, "")
    fewest = "1" if fewest is UNKNOWN else str(fewest)
    is_partial = workload.kind == "Job" and fewest.isdecimal()
    return min(int(fewest), pods.count) if is_partial else pods.count


def _partial_admission_refusals(workload: Workload) -> Iterator[Refusal]:
    """Yield a refusal if a Job's fewest pods are not fewer than all (jobs/job/job_webhook.go)."""
    key = labels.KUEUE_LEAST
    value = annotations_of(workload.manifest).get(key)
    parallelism = section(workload.manifest, "spec").get("parallelism", 1)
    if value is None or workload.kind != "Job" or not isinstance(parallelism, int):
        return
    if not (str(value).isdecimal() and 0 < int(value) < parallelism):
        allowed = f"a number from 1 to {parallelism - 1}"
        yield Refusal(
            rule="queue",
            path="metadata.annotations",
            message=f"Kueue refuses the Job: {key} is {value}, and must be {allowed}",
            remedy=f"Set it to {allowed}, or leave it out.",
            certain=value is not UNKNOWN,
        )


def _refused_pods(pod_set: PodSet, refused: Iterable[Refusal]) -> Outcome:
    """Return the API server's refusals of pods, each once."""
    prefix = "the API server refuses the pods: "
    return Outcome.refused(_below(pod_set.path, each, prefix) for each in dict.fromkeys(refused))


def _charged_pods(admitted: AdmittedWorkload, quota: Quota) -> Outcome:
    """Return the decision of a quota about the pods of a single workload.

    It is a warning if the quota admits only some pods of a Job at a time, or stops a rollout or
    an autoscaler.
    """
    workload, outcome = admitted.workload, NOTHING_DECIDED
    covered = [(pods, pod) for pods, pod in admitted.pod_sets if pods.count and quota.covers(pod)]
    for pod_set, pod in covered:
        outcome += Outcome.refused(_below(pod_set.path, each) for each in quota.refusals(pod))
    exceeded = quota.exceeded(quota.pods_charge(admitted))
    if not exceeded:
        return outcome + _stopped_growth(admitted, quota)
    if not workload.all_at_once:
        pod_set, pod = covered[0]
        if most := quota.most_pods(pod, pod_set.count):
            limit = f"ResourceQuota {name_of(quota.manifest)} allows"
            return outcome + Outcome.warned([in_turns(pod_set, most, limit)])
    one_fits = not any(quota.exceeded(pod.charge) for _, pod in covered)
    may_wait = workload.may_start_in_parts and one_fits
    verdict = Verdict.UNDETERMINED if may_wait else Verdict.CANNOT_FIT
    return outcome + Outcome.of(verdict, *exceeded)


def _stopped_growth(admitted: AdmittedWorkload, quota: Quota) -> Outcome:
    """Return warnings about rollouts and autoscalers that a quota stops."""
    warnings: list[GrowthStops] = []
    for pod_set, pod in admitted.pod_sets[:1]:
        for rule, count in admitted.workload.ceilings if quota.covers(pod) else ():
            for exceeded in quota.exceeded(times(pod.charge, count)):
                warnings.append(GrowthStops(rule, pod_set, pod, count, exceeded))
    return Outcome.warned(warnings)


def _selector_keys(spec: Manifest) -> Iterator[str]:
    """Yield the keys of pod labels that a pod's affinity and spread constraints look at."""
    terms = [*items(spec, "topologySpreadConstraints")]
    for kind in ("podAffinity", "podAntiAffinity"):
        terms += items(section(spec, "affinity", kind), REQUIRED)
    for term in terms:
        selector = section(term, "labelSelector")
        yield from section(selector, "matchLabels")
        yield from (requirement["key"] for requirement in items(selector, "matchExpressions"))
        yield from term.get("matchLabelKeys") or ()
        yield from term.get("mismatchLabelKeys") or ()


def _below(path: str, refusal: Refusal, prefix: str = "") -> Refusal:
    return refusal._replace(path=f"{path}.{refusal.path}", message=f"{prefix}{refusal.message}")


def _not_added(node: NodeClass) -> Iterable[Refusal]:
    """Yield a refusal if the autoscaler adds no nodes for pods of a priority below its limit."""
    if node.is_template and node.fewest < node.count:
        least = EXPENDABLE_BELOW
        yield Refusal(
            rule="expendable",
            path="priorityClassName",
            message=f"its priority is below {least}, for which the autoscaler adds no node",
            remedy=f"Raise its priority to {least} or more, or let the pool keep nodes.",
            certain=not node.fewest,
        )
