"""Workloads on their way into the cluster: what the API server makes of their pods, and what it refuses."""

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
    AdmittedWorkload,
    GrowthStops,
    Verdict,
    in_turns,
    needed_claims,
)
from ml_foundations.planning.model.equivalence import likeness
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import (
    EXPENDABLE_BELOW,
    SHARED_HOSTNAME,
    NodeClass,
    comes_on_request,
)
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.resources import PODS, pod_requests
from ml_foundations.planning.model.workloads import (
    WORKLOAD_KINDS,
    PodSet,
    Workload,
    is_stored,
    one_by_one,
    told_apart,
)

_DEFAULT_SCHEDULER = "default-scheduler"
_NodeRefusals = Callable[[NodeClass], list[Refusal]]
_MOST_WAYS = 16
"""As many choices of flavors are judged one by one."""
_LONGEST_NAME = 52
"""With a dash and a hash of 10 digits (of one: 61), the name of a StatefulSet is a label of its pods: 63 characters."""
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
"""What the DaemonSet controller lets its pods tolerate."""
_NOT_BESIDE = frozenset({*WORKLOAD_KINDS, "Node", "PersistentVolumeClaim", "ResourceQuota"})
"""What quotas count otherwise, or not."""
_ON_HOST_NETWORK = (
    {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"},
)
"""What else it lets them tolerate on the network of their nodes."""


class Admission:
    """The API server of a cluster: completes the pods of workloads, charges quotas, and refuses.

    Attributes:
        quotas: The ResourceQuotas by namespace.
    """

    def __init__(self, cluster: Cluster, objects: Sequence[Manifest]) -> None:
        self._cluster = cluster
        self._adoptions = adoptions(cluster)
        self._namespaces = {*map(name_of, cluster.by_kind["Namespace"])}
        # Who enforces restricted in one namespace may do so in another.
        levels = {labels_of(each).get(_LEVEL) for each in cluster.by_kind["Namespace"]}
        self._strictest = "restricted" if "restricted" in levels else "baseline"
        self._some_come_on_request = any(map(comes_on_request, cluster.declared))
        mentioned = {
            key
            for workload in cluster.workloads
            for pods in workload.pods
            for key in _selector_keys(pods.spec)
        }
        apart = [
            (each, found) for each in cluster.workloads if (found := told_apart(each) & mentioned)
        ]
        self._one_by_one = {
            id(workload): sets for workload, _ in apart if (sets := one_by_one(workload))
        }
        self._not_apart = {
            key for each, found in apart if id(each) not in self._one_by_one for key in found
        }
        there = chain(*cluster.running.values(), cluster.replaced)
        self._ranks = {*map(name_of, cluster.by_kind["WorkloadPriorityClass"])}
        self._selected = {
            labels.KUEUE_QUEUE,
            labels.KUEUE_PRIORITY,
            *mentioned,
            *(key for pod in there for key in _selector_keys(pod.spec)),
        }
        self._known: dict[tuple[bytes, bytes] | bytes | None, AdmittedWorkload] = {}
        others = (
            each
            for kind in cluster.by_kind.keys() - WORKLOAD_KINDS - {"Node"}
            for each in cluster.by_kind[kind]
        )
        self._declared = {"kube-system", *self._namespaces, *map(namespace_of, others)}
        objects = [each for each in objects if each["kind"] not in _NOT_BESIDE]
        self.quotas: dict[str, list[Quota]] = {}
        for manifest in cluster.by_kind["ResourceQuota"]:
            self.quotas.setdefault(namespace_of(manifest), []).append(
                Quota(manifest, cluster, objects)
            )

    def admit(self, workload: Workload) -> AdmittedWorkload:
        """Make the pods' classes, or decide what the API server and values that are not known decide."""
        is_told_apart = str(workload) in self._adoptions or id(workload) in self._one_by_one
        key = (
            None
            if is_told_apart or workload.unknown
            else likeness(workload, self._selected, self._declared)
        )
        if key in self._known:
            return self._known[key].copy_for(workload)
        like = None if self._some_come_on_request else self._known.get(key and key[0])
        candidate = self._admit_alike(workload, like) if like else self._admit(workload)
        if key and candidate.is_plain:
            self._known[key] = self._known[key[0]] = candidate
        return candidate

    def _admit_alike(self, workload: Workload, like: AdmittedWorkload) -> AdmittedWorkload:
        """Admit a workload that is like a plain one but for its amounts: only what these decide is looked at."""
        [pod_set], [(_, alike)] = workload.pods, like.pod_sets
        declared, spec = self._completed(workload, pod_set)
        whose = {"name": str(workload), "namespace": workload.namespace, "labels": pod_set.labels}
        candidate = AdmittedWorkload(
            workload, [(pod_set, alike.of(**whose, spec=spec, declared_spec=declared))]
        )
        _refuse_pods(candidate, pod_set, self._of_amounts(workload, pod_set, spec))
        self._charge(candidate)
        return candidate

    def _admit(self, workload: Workload) -> AdmittedWorkload:
        volumes = self._cluster.volumes
        candidate = AdmittedWorkload(
            workload,
            claims=volumes.claims_of(workload),
            existing_claims=volumes.own_claims(workload),
        )
        if workload.unknown:
            about = [
                ("unknown-value", path, f"{path} is not known yet") for path in workload.unknown
            ]
            candidate.refuse(
                Refusal(*each, f"Give {each[1]} a plain value.", certain=False) for each in about
            )
            return candidate
        if id(workload) in self._cluster.fully_running:
            candidate.decide(Verdict.FITS)
            return candidate
        limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
        invalid = validation.refusals(workload)
        candidate.refuse(invalid)
        if workload.kind == "JobSet":
            candidate.refuse(exclusive.refusals(workload.manifest))
        if any("ffinity" in each.path or "topologySpread" in each.path for each in invalid):
            return candidate  # such a selector may be no selector at all
        for pod_set in self._one_by_one.get(id(workload), workload.pods):
            self._admit_pods(candidate, pod_set)
        taken = self._adoptions.get(str(workload), ())
        candidate.refuse(
            told("taken-over", "metadata.labels", message=message) for message in taken
        )
        if ambiguous := ambiguous_defaults(limit_ranges):
            values = {"namespace": workload.namespace, "names": ", ".join(ambiguous)}
            candidate.refuse(
                [told("several-defaults", "LimitRange.spec.limits", certain=False, **values)]
            )
        made = {id(claim): claim for _, pod in candidate.pod_sets for claim in pod.made_claims}
        for claim in (*made.values(), *candidate.claims):
            prefix = f"the API server refuses the claim {name_of(claim)}: "
            refused = claim_refusals(claim, limit_ranges)
            candidate.refuse(_below("PersistentVolumeClaim.spec", each, prefix) for each in refused)
            for each in self._cluster.volumes.class_refusals(claim):
                if each.certain:
                    candidate.refuse([each])
                else:  # the volume is larger than the claim
                    candidate.warnings.append(each)
        if workload.kind != "DaemonSet":
            scarce = [*volumes.shortage(needed_claims([candidate]))]
            in_all = volumes.shortage(needed_claims([candidate], in_all=True))
            candidate.refuse(scarce or (each._replace(certain=False) for each in in_all))
        self._charge(candidate)
        return candidate

    def _charge(self, candidate: AdmittedWorkload) -> None:
        """Ask the queue that a workload waits in, and the quotas of its namespace."""
        workload = candidate.workload
        if workload.queue is not None:
            self._queue(candidate, workload.queue)
        for quota in self.quotas.get(workload.namespace, []):
            now, beside, in_all = quota.objects_charges([candidate])
            candidate.refuse(exceeded := quota.exceeded(now))
            contested = quota.exceeded(beside) or quota.exceeded(in_all, in_all=True)
            if contested and not exceeded:
                candidate.decide(Verdict.UNDETERMINED, *contested)
            _charge_pods(candidate, quota)
        candidate.is_refused = candidate.verdict is Verdict.CANNOT_FIT

    def _completed(self, workload: Workload, pod_set: PodSet) -> tuple[Manifest, Manifest]:
        """The spec of pods as their controller declares it, and as the API server stores it."""
        declared = self._with_controller_fields(workload, pod_set)
        limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
        stored = admitted(declared, limit_ranges, self._cluster.runtime_classes)
        requested, _ = self._interfaces(pod_set, stored)
        if not requested:
            return declared, stored
        declared = interfaces.with_requests(declared, requested)
        return declared, admitted(declared, limit_ranges, self._cluster.runtime_classes)

    def _interfaces(self, pod_set: PodSet, spec: Manifest) -> tuple[list[str], str]:
        """Return what pods request for interfaces in networks of their nodes, and the networks that are not known."""
        annotation = annotations_of(pod_set.template).get(labels.GKE_INTERFACES)
        return (
            interfaces.requests(annotation, spec, self._cluster.declared)
            if annotation
            else ([], "")
        )

    def _admit_pods(self, candidate: AdmittedWorkload, pod_set: PodSet) -> None:
        workload, volumes = candidate.workload, self._cluster.volumes
        declared, spec = self._completed(workload, pod_set)
        pod = self._cluster.pod_class(
            str(workload),
            workload.namespace,
            pod_set.labels,
            spec,
            recreated=workload.replaces_evicted,
            one_per_node=workload.kind == "DaemonSet",
            declared_spec=declared,
            made_claims=volumes.made_claims(spec, workload),
            volumes=volumes.requests(spec, workload),
            volume_refusals=self._node_refusals(spec, workload, pod_set),
        )
        if workload.kind == "DaemonSet":
            pod_set = replace(
                pod_set, count=sum(place.count for place in self._cluster.accepting(pod))
            )
        candidate.pod_sets.append((pod_set, pod))
        refused = [
            *validation.refused_label_keys(spec, {}),
            *self._of_amounts(workload, pod_set, spec),
        ]
        if pod_set.count:
            refused += validation.refused_label_keys(spec, pod_set.labels)
            refused += self._against_classes(pod_set, spec)
            refused += pod_security.refusals(
                self._cluster.namespaces.get(workload.namespace, {}), pod_set.template
            )
            candidate.refuse(
                _below(pod_set.path, e) for e in self._beyond_namespace(workload, pod_set, pod)
            )
        _refuse_pods(candidate, pod_set, refused)
        found = [*volumes.without_driver(pod_set.template, workload.namespace)]
        found += volumes.without_sidecar(pod_set.template, workload.namespace)
        if spec.get("resourceClaims"):
            places = [
                *self._cluster.accepting(pod),
                *self._cluster.possibly_accepting(pod),
            ] or self._cluster.places
            found += self._cluster.devices.refusals(
                spec, workload.namespace, [place.node for place in places]
            )
        found += self._not_known(workload, pod_set, pod)
        candidate.refuse(_below(pod_set.path, each) for each in found)

    def _of_amounts(self, workload: Workload, pod_set: PodSet, spec: Manifest) -> Iterable[Refusal]:
        """Why the API server refuses what pods request, of the template and of an admitted spec."""
        if workload.kind != "Pod":
            yield from invalid_resources(pod_set.spec)
        if pod_set.count:
            # Without these, admission only writes limits down as requests.
            limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
            if limit_ranges or spec.get("resources") or workload.kind == "Pod":
                yield from invalid_resources(spec)
            yield from out_of_range(spec, limit_ranges)

    def _node_refusals(
        self, spec: Manifest, workload: Workload, pods: PodSet
    ) -> _NodeRefusals | None:
        """What the scheduler does not look at: disks that do not attach, and nodes that nobody asks for."""
        of_volumes = self._cluster.volumes.refusals(spec, workload)
        if self._cluster.priority(spec)[0] < EXPENDABLE_BELOW and workload.kind != "DaemonSet":
            return lambda node: [*(of_volumes(node) if of_volumes else ()), *_not_made(node)]
        annotations = section(pods.template, "metadata", "annotations")
        asks = any(key.endswith("/consume-provisioning-request") for key in annotations)
        if asks or workload.kind == "DaemonSet" or not self._some_come_on_request:
            return of_volumes
        if (
            missing := self._cluster.queues.not_provisioned(
                workload.namespace, workload.queue, pods.spec
            )
        ) is None:
            return of_volumes
        return lambda node: [
            *(of_volumes(node) if of_volumes else ()),
            *([missing] * comes_on_request(node)),
        ]

    def _with_controller_fields(self, workload: Workload, pod_set: PodSet) -> Manifest:
        """The spec as the workload's controller completes it, with the name of the default priority class."""
        spec = dict(pod_set.spec)
        if "priorityClassName" not in spec and self._cluster.default_priority is not None:
            spec["priorityClassName"] = name_of(self._cluster.default_priority)
        if workload.kind == "DaemonSet":
            of_host = _ON_HOST_NETWORK if spec.get("hostNetwork") else ()
            spec["tolerations"] = [*items(spec, "tolerations"), *_DAEMON_TOLERATIONS, *of_host]
        return (
            with_gcsfuse(spec, annotations_of(pod_set.template)) if self._cluster.is_gke else spec
        )

    def _not_known(self, workload: Workload, pod_set: PodSet, pod: PodClass) -> Iterable[Refusal]:
        """What decides about the pods and is beyond these rules."""
        spec, cluster = pod.spec, self._cluster
        if spec.get("schedulingGates"):
            yield told("gates", "schedulingGates")
        node = spec.get("nodeName")
        if (
            workload.kind != "DaemonSet"
            and node
            and any(name_of(each) == node for each in cluster.by_kind["Node"])
        ):
            yield told("named-node", "nodeName", node=node)
        scheduler = spec.get("schedulerName", _DEFAULT_SCHEDULER)
        if scheduler != _DEFAULT_SCHEDULER:
            yield told("other-scheduler", "schedulerName", scheduler=scheduler)
        if spec.get("resourceClaims"):
            classes = cluster.devices.classes(spec, workload.namespace)
            yield told("device-claims", "resourceClaims", classes=classes)
        _, networks = self._interfaces(pod_set, spec)
        if networks:
            yield told(
                "pod-networks", f"metadata.annotations.{labels.GKE_INTERFACES}", networks=networks
            )
        runtime = spec.get("runtimeClassName")
        if runtime and runtime not in cluster.runtime_classes:
            yield told("unknown-runtime-class", "runtimeClassName", runtime=runtime)
        priority = spec.get("priorityClassName")
        if (
            priority
            and priority not in cluster.priority_classes
            and priority not in SYSTEM_PRIORITIES
        ):
            yield told("unknown-priority-class", "priorityClassName", priority=priority)
        given = section(pod_set.template, "spec")
        account = given.get("serviceAccountName") or given.get("serviceAccount") or "default"
        found = cluster.service_accounts.get((workload.namespace, account))
        if found is None and account not in ("default", UNKNOWN):
            yield told("unknown-account", "serviceAccountName", account=account)
        if found and annotations_of(found).get(_SECRETS_OF_ACCOUNT) == "true":
            yield told(
                "some-secrets",
                "serviceAccountName",
                account=account,
                annotation=_SECRETS_OF_ACCOUNT,
            )
        if workload.kind == "StatefulSet" and len(str(workload.name)) > _LONGEST_NAME:
            yield told(
                "too-long-name" if len(str(workload.name)) > 61 else "long-name",
                longest_name=_LONGEST_NAME,
            )
        if section(workload.manifest, "metadata").get("ownerReferences") and not is_stored(
            workload.manifest
        ):
            yield told("owner", "metadata.ownerReferences")
        if workload.deadline == 0:
            yield told("no-time")
        own = labels_of(pod_set.template)
        if taken := {key for key in own if pod_set.labels.get(key) != own[key]} | (
            own.keys() & told_apart(workload)
        ):
            yield told("own-label", "metadata.labels", taken=min(taken))
        if not self._not_apart.isdisjoint(_selector_keys(spec)):
            yield told("told-apart", "affinity")
        keys = {each.key for each in (*pod.affinity, *pod.anti_affinity, *pod.spread)}
        if keys & {labels.HOSTNAME, SHARED_HOSTNAME} and cluster.lacks_host_names:
            yield told("no-host-names", "affinity", hostname=labels.HOSTNAME)
        for key in keys - {labels.HOSTNAME}:
            if any(
                place.node.labels.get(key) is UNKNOWN and not place.node.zones
                for place in cluster.places
            ):
                yield told("unknown-label", "affinity", label=key)
        yield from cluster.volumes.unknowns(spec, workload)

    def _beyond_namespace(
        self, workload: Workload, pods: PodSet, pod: PodClass
    ) -> Iterable[Refusal]:
        """What a namespace may enforce that is not declared; on GKE, critical pods without a quota for them."""
        namespace, name = workload.namespace, pod.spec.get("priorityClassName")
        if namespace == "kube-system" or (workload.kind == "Pod" and is_stored(workload.manifest)):
            return  # it has GKE's own such quota (NVIDIA/gpu-operator issue 660), and no level that its agents break
        is_declared = namespace in self._namespaces
        level = self._strictest
        for broken in (
            [] if is_declared else [*pod_security.refusals({_LEVEL: level}, pods.template)][:1]
        ):
            path, remedy = (
                broken.path or "an annotation",
                f"Add the Namespace {namespace} to what is judged.",
            )
            message = f"{path} breaks the Pod Security level {level}; whether {namespace} enforces it is not known"
            yield broken._replace(message=message, remedy=remedy, certain=False, only_refuses=True)
        quotas = self.quotas.get(namespace, [])
        if (
            self._cluster.is_gke
            and name in SYSTEM_PRIORITIES
            and not any(q.is_for_class_of(pod) for q in quotas)
        ):
            # What was exported of a cluster may leave out its quotas, GKE's own among them; of a new namespace, none.
            there = [
                is_stored(each)
                for each in self._cluster.by_kind["Namespace"]
                if name_of(each) == namespace
            ]
            has_quotas = (is_declared and not any(there)) or "kube-system" in self.quotas
            values = {"priority": name, "namespace": namespace}
            yield told("no-critical-quota", "priorityClassName", certain=has_quotas, **values)

    def _against_classes(self, pods: PodSet, spec: Manifest) -> Iterable[Refusal]:
        """What a pod may not say beside its PriorityClass and its RuntimeClass, which say it."""
        cluster, given = self._cluster, section(pods.template, "spec")
        name = spec.get("priorityClassName")
        if not name or name in SYSTEM_PRIORITIES or name in cluster.priority_classes:
            found = cluster.priority_classes.get(name or "", {})
            value = SYSTEM_PRIORITIES.get(name or "", found.get("value", 0))
            policy = found.get("preemptionPolicy") or "PreemptLowerPriority"
            for key, wanted in (("priority", value), ("preemptionPolicy", policy)):
                if spec.get(key) not in (None, wanted):
                    yield told(
                        "against-priority-class", key, field=key, spec=spec[key], wanted=wanted
                    )
        runtime = cluster.runtime_classes.get(spec.get("runtimeClassName") or "", {})
        fixed = millis(section(runtime, "overhead", "podFixed"))
        if (
            given.get("overhead") is not None
            and millis(section(given, "overhead")) != fixed
            and (runtime or not spec.get("runtimeClassName"))
        ):
            yield told("against-overhead", "overhead")
        for key, value in section(runtime, "scheduling", "nodeSelector").items():
            if section(given, "nodeSelector").get(key, value) != value:
                yield told("against-node-selector", f"nodeSelector.{key}", field=key, value=value)

    def _counted(self, workload: Workload, pods: PodSet, pod: PodClass) -> Amounts:
        """Return what Kueue counts for one pod.

        Of Jobs and JobSets it counts the template, with defaults and overhead (Kueue, pkg/workload/resources.go).
        Webhooks change pods later, and so only the other kinds, whose pods it counts themselves.
        """
        spec = pod.spec
        if workload.kind in ("Job", "CronJob", "JobSet"):
            limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
            spec = admitted(pods.spec, limit_ranges, self._cluster.runtime_classes)
        return {name: amount for name, amount in pod_requests(spec).items() if amount} | {
            PODS: WHOLE
        }

    def _queue(self, candidate: AdmittedWorkload, name: str) -> None:
        """Ask the quotas of the queue that the workload waits in."""
        namespace, queues = candidate.workload.namespace, self._cluster.queues
        rank = labels_of(candidate.workload.manifest).get(labels.KUEUE_PRIORITY)
        if isinstance(rank, str) and rank and rank not in self._ranks:
            path = f"metadata.labels.{labels.KUEUE_PRIORITY}"
            candidate.refuse([told("no-queue-priority", path, certain=False, rank=rank)])
        queue = queues.cluster_queue(namespace, name)
        if queue is None:
            candidate.refuse(
                [
                    told(
                        "no-queue",
                        "metadata.labels",
                        certain=False,
                        queue=name,
                        namespace=namespace,
                    )
                ]
            )
            return
        if not queues.accepts(queue, self._cluster.namespaces[namespace]):
            is_known, values = (
                namespace in self._namespaces,
                {"queue": name_of(queue), "namespace": namespace},
            )
            candidate.refuse([told("closed-queue", "metadata.labels", certain=is_known, **values)])
        candidate.refuse(queues.not_known(queue))
        candidate.refuse(_partial_admission_refusals(candidate.workload))
        candidate.queue_usage = [
            (
                queue,
                pods.count_path,
                pods.spec,
                times(
                    queues.counted(self._counted(candidate.workload, pods, pod)),
                    _least(candidate, pods),
                ),
            )
            for pods, pod in candidate.pod_sets
        ]
        candidate.refuse(queues.refusals(candidate.queue_usage))
        of_sets = [
            [(pods, replace(pod, spec=spec)) for spec in queues.admitted(pod.spec, draw)]
            for (pods, pod), draw in zip(candidate.pod_sets, candidate.queue_usage, strict=True)
        ]
        if prod(map(len, of_sets)) <= _MOST_WAYS:
            candidate.flavor_choices = [*product(*of_sets)]
        for index, ways in enumerate(of_sets):
            rooms = [
                sum(place.count * place.room(pod) for place in self._cluster.accepting(pod))
                for _, pod in ways
            ]
            if len(ways) == 1:
                candidate.pod_sets[index] = ways[0]
            elif (
                min(rooms, default=0) < candidate.required_pods(candidate.pod_sets[index][0])
                and not candidate.reasons
            ):
                candidate.refuse([told("several-flavors", "metadata.labels")])


def _least(candidate: AdmittedWorkload, pods: PodSet) -> int:
    """Return the fewest pods that Kueue admits: with partial admission it starts a Job with some of its pods."""
    least = annotations_of(candidate.workload.manifest).get(labels.KUEUE_LEAST, "")
    least = "1" if least is UNKNOWN else least
    is_partial = candidate.workload.kind == "Job" and str(least).isdecimal()
    return min(int(least), pods.count) if is_partial else pods.count


def _partial_admission_refusals(workload: Workload) -> Iterator[Refusal]:
    """Yield that a Job's fewest pods are not fewer than all (Kueue, jobs/job/job_webhook.go)."""
    value = annotations_of(workload.manifest).get(labels.KUEUE_LEAST)
    parallelism = section(workload.manifest, "spec").get("parallelism", 1)
    if value is None or workload.kind != "Job" or not isinstance(parallelism, int):
        return
    if not (str(value).isdecimal() and 0 < int(value) < parallelism):
        key, is_known, most = labels.KUEUE_LEAST, value is not UNKNOWN, parallelism - 1
        yield told(
            "no-partial-admission",
            "metadata.annotations",
            certain=is_known,
            key=key,
            value=value,
            most=most,
        )


def _refuse_pods(candidate: AdmittedWorkload, pod_set: PodSet, refused: Iterable[Refusal]) -> None:
    of_pods = (
        _below(pod_set.path, each, "the API server refuses the pods: ")
        for each in dict.fromkeys(refused)
    )
    candidate.refuse(of_pods)


def _charge_pods(candidate: AdmittedWorkload, quota: Quota) -> None:
    """Count the pods of a workload alone against a quota, and warn where it stops more pods than at first."""
    workload, covered = (
        candidate.workload,
        [(s, pod) for s, pod in candidate.pod_sets if s.count and quota.covers(pod)],
    )
    for pod_set, pod in covered:
        candidate.refuse(_below(pod_set.path, each) for each in quota.refusals(pod))
    exceeded = quota.exceeded(quota.pods_charge(candidate))
    most = (
        quota.most_pods(covered[0][1], covered[0][0].count)
        if exceeded and not workload.all_at_once
        else 0
    )
    if most:
        candidate.warnings.append(
            in_turns(covered[0][0], most, f"ResourceQuota {name_of(quota.manifest)} allows")
        )
    is_in_turns = workload.may_start_in_parts and not any(
        quota.exceeded(pod.charge) for _, pod in covered
    )
    for each in exceeded if not most else ():
        candidate.decide(Verdict.UNDETERMINED if is_in_turns else Verdict.CANNOT_FIT, each)
    if not exceeded:
        for pod_set, pod in candidate.pod_sets[:1]:
            for rule, count in workload.ceilings if quota.covers(pod) else ():
                found = quota.exceeded(times(pod.charge, count))
                candidate.warnings += [
                    GrowthStops(rule, pod_set, pod, count, each) for each in found
                ]


def _selector_keys(spec: Manifest) -> Iterable[str]:
    """The keys of labels that a pod's affinity and spreading look at."""
    affinity = section(spec, "affinity")
    terms = (
        term
        for kind in ("podAffinity", "podAntiAffinity")
        for term in items(section(affinity, kind), REQUIRED)
    )
    for term in (*terms, *items(spec, "topologySpreadConstraints")):
        selector = section(term, "labelSelector")
        yield from section(selector, "matchLabels")
        yield from (requirement["key"] for requirement in items(selector, "matchExpressions"))
        yield from term.get("matchLabelKeys") or ()
        yield from term.get("mismatchLabelKeys") or ()


def _below(path: str, refusal: Refusal, prefix: str = "") -> Refusal:
    return refusal._replace(path=f"{path}.{refusal.path}", message=f"{prefix}{refusal.message}")


def _not_made(node: NodeClass) -> Iterable[Refusal]:
    """Nodes that the autoscaler makes, but not for pods of so low a priority."""
    if node.is_template and node.fewest < node.count:
        yield told(
            "no-node-is-made", "priorityClassName", certain=not node.fewest, least=EXPENDABLE_BELOW
        )
