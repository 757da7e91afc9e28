"""Admission: what the API server stores of workloads and their pods, and what it rejects."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

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
from ml_foundations.kubernetes.quantities import Amounts, millis, times, total
from ml_foundations.planning.api_server import (
    checkpoints,
    defaults,
    interfaces,
    limits,
    pod_security,
    validation,
)
from ml_foundations.planning.api_server.adoption import adoptions
from ml_foundations.planning.api_server.cluster import SYSTEM_PRIORITIES, Cluster
from ml_foundations.planning.api_server.queue_admission import QueueAdmission
from ml_foundations.planning.api_server.quotas import Quota
from ml_foundations.planning.api_server.unknowns import (
    selector_keys,
    unknown_claims,
    unknown_facts,
)
from ml_foundations.planning.model import exclusive, workloads
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    AdmittedPodSet,
    AdmittedWorkload,
    GrowthStops,
    InTurns,
    Outcome,
    Verdict,
    needed_claims,
)
from ml_foundations.planning.model.equivalence import equivalence_key
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import EXPENDABLE_BELOW, NodeClass, comes_on_request
from ml_foundations.planning.model.performance import unique
from ml_foundations.planning.model.refusals import Refusal, beyond_planning, doubt
from ml_foundations.planning.model.workloads import PodSet, Workload, workload_kinds

_LEVEL = "pod-security.kubernetes.io/enforce"
_COUNTED_OTHERWISE = frozenset({"Node", "PersistentVolumeClaim", "ResourceQuota"})
"""Kinds besides workloads that quotas count by other rules, or not at all."""


class Admission:
    """The API server of a cluster: completes the pods of workloads, charges quotas, and rejects.

    Attributes:
        quotas: The ResourceQuotas by namespace.
    """

    def __init__(self, cluster: Cluster, objects: Sequence[Manifest]) -> None:
        """Look up what admission compares workloads with. Quotas count the declared objects."""
        self._cluster = cluster
        self._adoptions = adoptions(cluster)
        namespaces = cluster.by_kind["Namespace"]
        self._namespaces = set(map(name_of, namespaces))
        self._stored_namespaces = set(map(name_of, filter(workloads.is_stored, namespaces)))
        # Who enforces restricted in one namespace may do so in another.
        levels = [labels_of(namespace).get(_LEVEL) for namespace in namespaces]
        self._strictest = "restricted" if "restricted" in levels else "baseline"
        self._some_come_on_request = any(map(comes_on_request, cluster.declared))
        self._plain: dict[tuple[bytes, bytes] | bytes, AdmittedWorkload] = {}
        """Workloads without a remark, by their equivalence keys and by the shapes in these keys."""

        selected: set[str] = set()
        for workload in cluster.workloads:
            for pods in workload.pods:
                selected.update(selector_keys(pods.spec))
        self._single_pods: dict[Workload, Sequence[PodSet]] = {}
        """The pods of workloads whose pods differ in a label that some selector looks at."""
        self._indistinct_keys: set[str] = set()
        """The labels of other such workloads, with too many pods to list."""
        for workload in cluster.workloads:
            keys = workloads.differing_labels(workload) & selected
            if keys and (pod_sets := workloads.single_pods(workload)):
                self._single_pods[workload] = pod_sets
            else:
                self._indistinct_keys |= keys
        self._queue_admission = QueueAdmission(cluster)
        self._selected = {labels.KUEUE_QUEUE, labels.KUEUE_PRIORITY, *selected}
        for pod in (*chain(*cluster.running.values()), *cluster.replaced):
            self._selected.update(selector_keys(pod.spec))

        self._declared = {"kube-system", *self._namespaces}
        for kind in cluster.by_kind.keys() - workload_kinds() - {"Node"}:
            self._declared.update(map(namespace_of, cluster.by_kind[kind]))
        counted = [
            item for item in objects if item["kind"] not in _COUNTED_OTHERWISE | workload_kinds()
        ]
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
            unknown: list[Refusal] = []
            for path in workload.unknown:
                message = f"{path} is not known yet"
                unknown.append(doubt("unknown-value", path, message, f"Give {path} a plain value."))
            return self._with_claims(workload, outcome=Outcome.refused(unknown))
        if workload in self._cluster.fully_running:
            return self._with_claims(workload, outcome=Outcome.of(Verdict.FITS))
        # Messages about adoptions and single pods name this workload alone.
        if str(workload) in self._adoptions or workload in self._single_pods:
            return self._admit(workload)
        key = equivalence_key(workload, self._selected, self._declared)
        if key is None:
            return self._admit(workload)
        if key in self._plain:
            return self._plain[key].copy_for(workload)
        # Whether nodes come for a ProvisioningRequest depends on the requested resources.
        shape, _ = key
        like = None if self._some_come_on_request else self._plain.get(shape)
        admitted = self._admit(workload, like)
        if admitted.is_plain:
            self._plain[key] = self._plain[shape] = admitted
        return admitted

    def _with_claims(
        self,
        workload: Workload,
        pod_sets: Sequence[AdmittedPodSet] = (),
        outcome: Outcome = NOTHING_DECIDED,
    ) -> AdmittedWorkload:
        volumes = self._cluster.volumes
        claims = volumes.claims_of(workload)
        existing = volumes.own_claims(workload)
        return AdmittedWorkload(workload, pod_sets, claims, existing, outcome=outcome)

    def _admit(self, workload: Workload, like: AdmittedWorkload | None = None) -> AdmittedWorkload:
        """Complete the pods, check all rules, and charge the queue and the quotas.

        If ``like`` is a plain workload that differs in its name and amounts alone, only the rules
        about amounts are checked.
        """
        if like:
            [pod_set] = workload.pods
            [(_, plain_pod)] = like.pod_sets
            created, stored = self._completed(workload, pod_set)
            specs = {"spec": stored, "created_spec": created}
            names = {"name": str(workload), "namespace": workload.namespace}
            pod = plain_pod.of(**names, **specs, labels=pod_set.labels)
            outcome = _refused_pods(pod_set, self._of_amounts(workload, pod_set, stored))
            copied = AdmittedWorkload(workload, (AdmittedPodSet(pod_set, pod),), outcome=outcome)
            return self._with_queue_and_quota_decisions(copied)
        invalid = validation.refusals(workload)
        outcome = Outcome.refused(invalid)
        if workload.kind == "JobSet":
            outcome += Outcome.refused(exclusive.refusals(workload.manifest))
        if any("ffinity" in path or "topologySpread" in path for _, path, *_ in invalid):
            # An invalid selector cannot be compared with labels.
            return self._with_claims(workload, outcome=outcome)
        declared_sets = self._single_pods.get(workload, workload.pods)
        pod_sets = [self._pods(workload, declared_set) for declared_set in declared_sets]
        for pod_set, pod in pod_sets:
            outcome += self._checked_pods(workload, pod_set, pod)
        admitted = self._with_claims(workload, pod_sets)
        outcome += Outcome.refused(self._ambiguities(workload)) + self._checked_claims(admitted)
        return self._with_queue_and_quota_decisions(admitted.with_outcome(outcome))

    def _ambiguities(self, workload: Workload) -> Iterator[Refusal]:
        """Yield reasons that make it uncertain which pods a workload has, or which defaults."""
        for message in self._adoptions.get(str(workload), ()):
            yield beyond_planning("metadata.labels", message, "Give them separate labels.")
        if resources := ", ".join(defaults.ambiguous_defaults(self._limit_ranges(workload))):
            differ = f"LimitRanges of {workload.namespace} give different defaults for {resources}"
            message = f"{differ}; which one wins is undefined"
            remedy = "Keep one LimitRange that gives defaults."
            yield doubt("limit-range-defaults", "LimitRange.spec.limits", message, remedy)

    def _checked_claims(self, admitted: AdmittedWorkload) -> Outcome:
        """Return the outcome for the claims that are created for pods, or that pods mount."""
        volumes = self._cluster.volumes
        outcome = NOTHING_DECIDED
        limit_ranges = self._limit_ranges(admitted.workload)
        made = unique(claim for _, pod in admitted.pod_sets for claim in pod.made_claims)
        for claim in (*made, *admitted.claims):
            prefix = f"the API server refuses the claim {name_of(claim)}: "
            refused = limits.claim_refusals(claim, limit_ranges)
            outcome += _refused_below("PersistentVolumeClaim.spec", refused, prefix)
            for refusal in volumes.class_refusals(claim):
                # An uncertain one is about a volume that is larger than the claim.
                decide = Outcome.refused if refusal.certain else Outcome.warned
                outcome += decide([refusal])
        if admitted.workload.kind != "DaemonSet":
            scarce = list(volumes.shortage(needed_claims([admitted])))
            if not scarce:
                in_all = volumes.shortage(needed_claims([admitted], in_all=True))
                scarce = [refusal._replace(certain=False) for refusal in in_all]
            outcome += Outcome.refused(scarce)
        return outcome

    def _with_queue_and_quota_decisions(self, admitted: AdmittedWorkload) -> AdmittedWorkload:
        """Return a workload with the decisions of its queue and of its namespace's quotas."""
        workload = admitted.workload
        if workload.queue is not None:
            admitted = self._queue_admission.decide(admitted, workload.queue)
        outcome = admitted.outcome + self._queue_admission.without_queue(workload)
        for quota in self.quotas.get(workload.namespace, []):
            charges = quota.objects_charges([admitted])
            exceeded = quota.exceeded(charges.at_first)
            outcome += Outcome.refused(exceeded)
            contested = quota.exceeded(charges.with_other_claims)
            contested = contested or quota.exceeded(charges.in_all, in_all=True)
            if contested and not exceeded:
                outcome += Outcome.of(Verdict.UNDETERMINED, *contested)
            outcome += _charged_pods(admitted, quota)
        return admitted.with_outcome(outcome)

    def _completed(self, workload: Workload, pod_set: PodSet) -> tuple[Manifest, Manifest]:
        """Return the spec of pods as their controller creates them, and as they are stored."""
        cluster = self._cluster
        namespace = workload.namespace
        is_daemon = workload.kind == "DaemonSet"
        created = dict(pod_set.spec)
        if "priorityClassName" not in created and cluster.default_priority is not None:
            created["priorityClassName"] = name_of(cluster.default_priority)
        if is_daemon:
            tolerations = defaults.daemon_tolerations(created)
            created["tolerations"] = [*items(created, "tolerations"), *tolerations]
        changed: Manifest = created
        is_there = workload.kind == "Pod" and workloads.is_stored(workload.manifest)
        if cluster.is_gke and not is_there:  # GKE's webhooks change new pods
            of_namespace = cluster.namespaces.get(namespace, {})
            changed = defaults.with_default_class(changed, of_namespace, is_daemon=is_daemon)
            changed = defaults.with_gke_tolerations(changed)
            buckets = cluster.volumes.buckets(section(pod_set.template, "spec"), namespace)
            changed = defaults.with_injected(changed, annotations_of(pod_set.template), buckets)
        # The API server's own plugins act before webhooks and again after them.
        stored = cluster.stored(changed, namespace)
        requested, _ = self._interfaces(pod_set, stored)
        if requested:
            stored = cluster.stored(interfaces.with_requests(changed, requested), namespace)
        return created, stored

    def _limit_ranges(self, workload: Workload) -> Sequence[Manifest]:
        return self._cluster.limit_ranges.get(workload.namespace, ())

    def _interfaces(self, pod_set: PodSet, spec: Manifest) -> tuple[list[str], str]:
        """Return the requests of pods for interfaces in node networks, and unknown networks."""
        annotation = annotations_of(pod_set.template).get(labels.GKE_INTERFACES)
        if not annotation:
            return [], ""
        return interfaces.requests(annotation, spec, self._cluster.declared)

    def _claimed_interfaces(self, workload: Workload, spec: Manifest) -> Amounts | None:
        """Return the interfaces that pods claim, or None if planning cannot count their claims."""
        if not spec.get("resourceClaims"):
            return {}
        nodes = interfaces.accepting_nodes(spec, self._cluster.declared)
        return self._cluster.devices.interfaces(spec, workload.namespace, nodes)

    def _pods(self, workload: Workload, pod_set: PodSet) -> AdmittedPodSet:
        """Return a pod set as the scheduler sees it; a DaemonSet's with its number of pods."""
        cluster = self._cluster
        volumes = self._cluster.volumes
        created, stored = self._completed(workload, pod_set)
        pod = cluster.pod_class(
            str(workload),
            workload.namespace,
            pod_set.labels,
            stored,
            recreated=workload.replaces_evicted,
            one_per_node=workload.kind == "DaemonSet",
            created_spec=created,
            claimed=self._claimed_interfaces(workload, stored) or {},
            made_claims=volumes.made_claims(stored, workload),
            volumes=volumes.requests(stored, workload),
            volume_refusals=self._node_refusals(stored, workload, pod_set),
        )
        if workload.kind == "DaemonSet":
            count = sum(place.count for place in cluster.accepting(pod))
            pod_set = replace(pod_set, count=count)
        return AdmittedPodSet(pod_set, pod)

    def _checked_pods(self, workload: Workload, pod_set: PodSet, pod: PodClass) -> Outcome:
        """Return the refusals of a set of pods by the API server, and their unknown facts."""
        cluster = self._cluster
        spec = pod.spec
        namespace = workload.namespace
        outcome = NOTHING_DECIDED
        refused = list(validation.refused_label_keys(spec, {}))
        refused += self._of_amounts(workload, pod_set, spec)
        if pod_set.count:
            namespace_labels = cluster.namespaces.get(namespace, {})
            refused += validation.refused_label_keys(spec, pod_set.labels)
            refused += self._against_classes(pod_set, spec)
            refused += pod_security.refusals(namespace_labels, pod_set.template)
            outcome += _refused_below(pod_set.path, self._beyond_namespace(workload, pod_set, pod))
        outcome += _refused_pods(pod_set, refused)
        more = list(cluster.volumes.without_driver(pod_set.template, namespace))
        more += cluster.volumes.without_sidecar(pod_set.template, namespace)
        if spec.get("resourceClaims"):
            more += cluster.devices.refusals(spec, namespace, self._nodes_for(pod))
        written = section(pod_set.template, "spec")
        if checkpoints.are_mounted(written):
            kept = cluster.by_kind[checkpoints.KIND]
            is_known = cluster.is_declared
            more += checkpoints.refusals(written, self._nodes_for(pod), kept, is_known=is_known)
        if annotation := annotations_of(pod_set.template).get(labels.GKE_INTERFACES):
            more += interfaces.refusals(annotation, spec, cluster.declared)
        if self._claimed_interfaces(workload, spec) is None:
            more += unknown_claims(cluster, workload, spec)
        _, networks = self._interfaces(pod_set, spec)
        more += unknown_facts(cluster, workload, pod_set, pod, self._indistinct_keys, networks)
        return outcome + _refused_below(pod_set.path, more)

    def _nodes_for(self, pod: PodClass) -> list[NodeClass]:
        """Return the nodes that accept pods or may; all, if none does."""
        cluster = self._cluster
        groups = [*cluster.accepting(pod), *cluster.possibly_accepting(pod)]
        return [group.node for group in groups or cluster.node_groups]

    def _of_amounts(self, workload: Workload, pod_set: PodSet, spec: Manifest) -> Iterable[Refusal]:
        """Yield refusals of the amounts in a template, and in its admitted spec."""
        if workload.kind != "Pod":
            yield from limits.invalid_resources(pod_set.spec)
        if pod_set.count:
            # Without these, admission only copies limits to requests.
            limit_ranges = self._limit_ranges(workload)
            if limit_ranges or spec.get("resources") or workload.kind == "Pod":
                yield from limits.invalid_resources(spec)
            yield from limits.out_of_range(spec, limit_ranges)

    def _node_refusals(
        self, spec: Manifest, workload: Workload, pods: PodSet
    ) -> Callable[[NodeClass], list[Refusal]] | None:
        """Return the rules about nodes that the scheduler does not check, if there are any.

        They are about disks that do not attach, and about nodes that the autoscaler does not add.
        """
        of_volumes = self._cluster.volumes.refusals(spec, workload)
        if workload.kind == "DaemonSet":
            return of_volumes
        if self._cluster.priority(spec)[0] < EXPENDABLE_BELOW:
            return lambda node: [*(of_volumes(node) if of_volumes else ()), *_not_added(node)]
        keys = annotations_of(pods.template)
        asks = any(key.endswith("/consume-provisioning-request") for key in keys)
        if asks or not self._some_come_on_request:
            return of_volumes
        queues = self._cluster.queues
        missing = queues.not_provisioned(workload.namespace, workload.queue, pods.spec)
        if missing is None:
            return of_volumes

        def with_requests(node: NodeClass) -> list[Refusal]:
            refused = of_volumes(node) if of_volumes else []
            return [*refused, missing] if comes_on_request(node) else refused

        return with_requests

    def _beyond_namespace(
        self, workload: Workload, pods: PodSet, pod: PodClass
    ) -> Iterable[Refusal]:
        """Yield rules that an undeclared namespace, or GKE for critical pods, may enforce.

        GKE gives kube-system a quota for critical pods (NVIDIA/gpu-operator issue 660), and no Pod
        Security level that its agents break.
        """
        namespace = workload.namespace
        priority = pod.spec.get("priorityClassName")
        if namespace == "kube-system" or (
            workload.kind == "Pod" and workloads.is_stored(workload.manifest)
        ):
            return
        is_declared = namespace in self._namespaces
        if not is_declared:
            level = self._strictest
            remedy = f"Add the Namespace {namespace} to what is judged."
            for rule, path, *_ in [*pod_security.refusals({_LEVEL: level}, pods.template)][:1]:
                breaks = f"{path or 'an annotation'} breaks the Pod Security level {level}"
                message = f"{breaks}; whether {namespace} enforces it is not known"
                yield doubt(rule, path, message, remedy, only_refuses=True)
        quotas = self.quotas.get(namespace, [])
        has_quota = any(quota.is_for_class_of(pod) for quota in quotas)
        if self._cluster.is_gke and priority in SYSTEM_PRIORITIES and not has_quota:
            # The export of a cluster may leave out its quotas; a new namespace has none.
            is_new = is_declared and namespace not in self._stored_namespaces
            is_certain = is_new or "kube-system" in self.quotas
            admits = f"GKE admits pods of {priority} in {namespace}"
            message = f"{admits} under a quota for that class only, and there is none"
            declaration = f"a ResourceQuota there whose scopeSelector names {priority}"
            remedy = f"Declare {declaration}, or choose another class."
            refusal = Refusal("critical-pods", "priorityClassName", message, remedy, is_certain)
            yield refusal._replace(only_refuses=True)

    def _against_classes(self, pods: PodSet, spec: Manifest) -> Iterable[Refusal]:
        """Yield pod fields that conflict with the pod's PriorityClass or RuntimeClass."""
        name = spec.get("priorityClassName") or ""
        classes = self._cluster.priority_classes
        if not name or name in SYSTEM_PRIORITIES or name in classes:
            declared = classes.get(name, {})
            value = SYSTEM_PRIORITIES.get(name, declared.get("value", 0))
            policy = declared.get("preemptionPolicy") or "PreemptLowerPriority"
            for field, given in (("priority", value), ("preemptionPolicy", policy)):
                if spec.get(field) not in (None, given):
                    message = f"{field} is {spec[field]}, and its priority class gives {given}"
                    remedy = f"Leave {field} to the PriorityClass."
                    yield Refusal("priority-class", field, message, remedy)
        template = section(pods.template, "spec")
        runtime_name = spec.get("runtimeClassName")
        runtime = self._cluster.runtime_classes.get(runtime_name or "", {})
        of_class = millis(section(runtime, "overhead", "podFixed"))
        is_known = bool(runtime) or not runtime_name
        overhead = template.get("overhead")
        if is_known and overhead is not None and millis(section(template, "overhead")) != of_class:
            message = "its overhead is not that of its runtime class"
            remedy = "Leave overhead to the RuntimeClass."
            yield Refusal("runtime-class", "overhead", message, remedy)
        for key, value in section(runtime, "scheduling", "nodeSelector").items():
            if section(template, "nodeSelector").get(key, value) != value:
                message = f"its runtime class selects nodes with {key}={value}"
                remedy = f"Leave {key} to the RuntimeClass."
                yield Refusal("runtime-class", f"nodeSelector.{key}", message, remedy)


def _refused_pods(pod_set: PodSet, refused: Iterable[Refusal]) -> Outcome:
    """Return the API server's refusals of pods, each once."""
    return _refused_below(pod_set.path, dict.fromkeys(refused), "the API server refuses the pods: ")


def _charged_pods(admitted: AdmittedWorkload, quota: Quota) -> Outcome:
    """Return the decision of a quota about the pods of a single workload.

    It is a warning if the quota admits only some pods of a Job at a time, or stops a rollout or
    an autoscaler.
    """
    workload = admitted.workload
    outcome = NOTHING_DECIDED
    covered = [(pods, pod) for pods, pod in admitted.pod_sets if pods.count and quota.covers(pod)]
    for pod_set, pod in covered:
        outcome += _refused_below(pod_set.path, quota.refusals(pod))
    exceeded = quota.exceeded(quota.pods_charge(admitted))
    if not exceeded:
        return outcome + _stopped_growth(admitted, quota)
    if not workload.all_at_once:
        pod_set, pod = covered[0]
        if most := quota.most_pods(pod, pod_set.count):
            limit = f"ResourceQuota {name_of(quota.manifest)} allows"
            return outcome + Outcome.warned([InTurns(pod_set, most, most, limit)])
    # A Job with a pod that alone exceeds the quota never ends, so it cannot wait for its turn.
    one_fits = not any(quota.exceeded(pod.charge) for _, pod in covered)
    may_wait = workload.may_start_in_parts and one_fits
    verdict = Verdict.UNDETERMINED if may_wait else Verdict.CANNOT_FIT
    return outcome + Outcome.of(verdict, *exceeded)


def _stopped_growth(admitted: AdmittedWorkload, quota: Quota) -> Outcome:
    """Return warnings about rollouts and autoscalers that a quota stops."""
    workload = admitted.workload
    warnings = list[GrowthStops]()
    covered = [(pods, pod) for pods, pod in admitted.pod_sets if quota.covers(pod)]
    for rule, count in workload.ceilings if covered else ():
        charges = [times(pod.charge, workload.pods_of(pods, count)) for pods, pod in covered]
        for exceeded in quota.exceeded(total(charges)):
            groups = bool(workload.groups)
            warnings.append(GrowthStops(rule, *covered[0], count, exceeded, of_groups=groups))
    return Outcome.warned(warnings)


def _refused_below(path: str, refusals: Iterable[Refusal], prefix: str = "") -> Outcome:
    """Return the outcome of refusals whose paths begin at a field of the workload."""
    below: list[Refusal] = []
    for refusal in refusals:
        message = f"{prefix}{refusal.message}"
        below.append(refusal._replace(path=f"{path}.{refusal.path}", message=message))
    return Outcome.refused(below)


def _not_added(node: NodeClass) -> Iterable[Refusal]:
    """Yield a refusal if the autoscaler adds no nodes for pods of a priority below its limit."""
    if node.is_template and node.fewest < node.count:
        least = EXPENDABLE_BELOW
        message = f"its priority is below {least}, for which the autoscaler adds no node"
        remedy = f"Raise its priority to {least} or more, or let the pool keep nodes."
        is_certain = not node.fewest
        yield Refusal("expendable", "priorityClassName", message, remedy, is_certain)
