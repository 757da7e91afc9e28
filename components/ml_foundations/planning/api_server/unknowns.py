"""Facts about pods that planning does not know or model, so that a verdict is undetermined."""

from collections.abc import Iterator, Set

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    section,
    texts,
)
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.kubernetes.words import names, verb
from ml_foundations.planning.api_server.cluster import SYSTEM_PRIORITIES, Cluster
from ml_foundations.planning.api_server.pod_groups import is_grouped
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import SHARED_HOSTNAME
from ml_foundations.planning.model.refusals import Refusal, beyond_planning
from ml_foundations.planning.model.workloads import PodSet, Workload, differing_labels, is_stored

_DEFAULT_SCHEDULER = "default-scheduler"
_GATES_OF_KUEUE = "kueue.x-k8s.io/"
_LONGEST_NAME = 52
"""A StatefulSet's name, a dash and a hash of 10 digits are a label of at most 63 characters."""
_LONGEST_NAME_OF_ONE = 61
"""The same with a hash of one digit."""
_SECRETS_OF_ACCOUNT = "kubernetes.io/enforce-mountable-secrets"
_NETWORKS_REMEDY = (
    "Declare each Network of type Device and its GKENetworkParamSet, with vpc and vpcSubnet as "
    "networkConfig.additionalNodeNetworkConfigs of the pool has them (GpuNodePool: "
    "additional_networks). A Node has them in status.allocatable, as "
    "networking.gke.io.networks/NAME."
)


def unknown_facts(
    cluster: Cluster,
    workload: Workload,
    pod_set: PodSet,
    pod: PodClass,
    indistinct_keys: Set[str],
    networks: str,
) -> Iterator[Refusal]:
    """Yield a doubt for each fact about a set of pods that planning does not know.

    ``indistinct_keys`` are the labels that differ between pods of one workload, if the pods are too
    many to list. ``networks`` are those that the interfaces need and that some node may lack.
    """
    yield from _unknown_scheduling(cluster, workload, pod)
    if networks:
        message = f"its interfaces need nodes in the networks {networks}"
        yield beyond_planning(
            f"metadata.annotations.{labels.GKE_INTERFACES}",
            f"{message}, and not all nodes that accept it are known to have them",
            _NETWORKS_REMEDY,
        )
    yield from _unknown_objects(cluster, workload, pod_set, pod.spec)
    yield from _unknown_owner(workload, pod_set)
    yield from _unknown_topology(cluster, indistinct_keys, pod)
    yield from cluster.volumes.unknowns(pod.spec, workload)


def _unknown_scheduling(cluster: Cluster, workload: Workload, pod: PodClass) -> Iterator[Refusal]:
    """Yield fields of a pod by which something other than the scheduler's rules decides."""
    spec = pod.spec
    gates = [str(gate.get("name")) for gate in items(spec, "schedulingGates")]
    # Kueue adds its gates to templates, and lifts them when it has placed the pods.
    if not all(workload.queue and gate.startswith(_GATES_OF_KUEUE) for gate in gates):
        message = "its scheduling gates are lifted by somebody else"
        yield beyond_planning("schedulingGates", message, "Remove the gates to have it judged.")
    node = spec.get("nodeName")
    if workload.kind != "DaemonSet" and node and node in map(name_of, cluster.by_kind["Node"]):
        message = f"it names the node {node}, whose kubelet decides, and no scheduler"
        remedy = "Select the node by its labels to have it judged."
        yield beyond_planning("nodeName", message, remedy)
    scheduler = spec.get("schedulerName", _DEFAULT_SCHEDULER)
    if scheduler != _DEFAULT_SCHEDULER:
        message = f"the scheduler {scheduler} follows its own rules"
        remedy = "Use the default scheduler to have it judged."
        yield beyond_planning("schedulerName", message, remedy)


def unknown_claims(cluster: Cluster, workload: Workload, spec: Manifest) -> Iterator[Refusal]:
    """Yield the doubt about devices that planning cannot count."""
    classes = cluster.devices.classes(spec, workload.namespace)
    gap = cluster.devices.not_followed
    why = f"planning does not follow {gap}" if gap else "their drivers decide which node has them"
    message = f"it claims devices of {classes}, and {why}"
    remedy = (
        "Check it by a rehearsal, or request the devices as an extended resource if their "
        "driver offers one."
    )
    if domains := cluster.devices.domains(spec, workload.namespace):
        channel = f"a channel of ComputeDomain {names(domains)}"
        message = f"it claims {channel}, whose controller decides which nodes have one"
        remedy = "Check it on the cluster."
    if missing := cluster.devices.missing(spec, workload.namespace):
        are_missing = f"{names(missing)} {verb(len(missing), 'is', 'are')} not shown"
        message = f"it claims devices, and {are_missing} in resource.k8s.io/v1"
        remedy = f"Declare {names(missing)}."
    yield beyond_planning("resourceClaims", message, remedy, only_refuses=True)


def _unknown_objects(
    cluster: Cluster, workload: Workload, pod_set: PodSet, spec: Manifest
) -> Iterator[Refusal]:
    """Yield classes and accounts that pods name and that are not declared, or limit them."""
    runtime = spec.get("runtimeClassName")
    if runtime and runtime not in cluster.runtime_classes:
        message = f"the runtime class {runtime} may add overhead and a node selector"
        remedy = f"Declare the RuntimeClass {runtime}."
        yield beyond_planning("runtimeClassName", message, remedy)
    priority = spec.get("priorityClassName")
    if priority and priority not in {**cluster.priority_classes, **SYSTEM_PRIORITIES}:
        message = f"the priority class {priority} is not declared"
        remedy = f"Declare the PriorityClass {priority}."
        yield beyond_planning("priorityClassName", message, remedy)
    template = section(pod_set.template, "spec")
    name = template.get("serviceAccountName") or template.get("serviceAccount") or "default"
    account = cluster.service_accounts.get((workload.namespace, name))
    if account is None and name not in ("default", UNKNOWN):
        message = f"the service account {name} is not declared"
        remedy = f"Declare the ServiceAccount {name}."
        yield beyond_planning("serviceAccountName", message, remedy, only_refuses=True)
    if account and annotations_of(account).get(_SECRETS_OF_ACCOUNT) == "true":
        message = f"the service account {name} lets its pods use some secrets only"
        remedy = f"Drop the annotation {_SECRETS_OF_ACCOUNT}."
        yield beyond_planning("serviceAccountName", message, remedy, only_refuses=True)


def _unknown_topology(
    cluster: Cluster, indistinct_keys: Set[str], pod: PodClass
) -> Iterator[Refusal]:
    """Yield labels of pods and nodes that affinity looks at and that are not known."""
    if not indistinct_keys.isdisjoint(selector_keys(pod.spec)):
        message = "a selector matches only some pods of one workload"
        yield beyond_planning("affinity", message, "Select the pods by a common label.")
    keys = {rule.key for rule in (*pod.affinity, *pod.anti_affinity, *pod.spread)}
    if keys & {labels.HOSTNAME, SHARED_HOSTNAME} and cluster.lacks_host_names:
        message = f"some Nodes lack the label {labels.HOSTNAME}, which kubelets give them"
        yield beyond_planning("affinity", message, "Give all Nodes the label.")
    for key in keys - {labels.HOSTNAME}:
        nodes = [group.node for group in cluster.node_groups]
        if any(node.labels.get(key) is UNKNOWN and not node.zones for node in nodes):
            message = f"the label {key} of some nodes is not known"
            yield beyond_planning("affinity", message, "Declare the pools' zones.")


def _unknown_owner(workload: Workload, pod_set: PodSet) -> Iterator[Refusal]:
    """Yield reasons why the controller or the owner of a workload may not run its pods."""
    remedy = f"Give it a name of at most {_LONGEST_NAME} characters."
    length = len(str(workload.name)) if workload.kind == "StatefulSet" else 0
    if length > _LONGEST_NAME_OF_ONE:
        message = "its name and a hash are too long for the label that its controller gives"
        yield Refusal("invalid", "", f"{message} its pods", remedy)
    elif length > _LONGEST_NAME:
        message = "its name and a hash may be too long for what its controller makes"
        yield beyond_planning("", message, remedy, only_refuses=True)
    owners = section(workload.manifest, "metadata").get("ownerReferences")
    if owners and not is_stored(workload.manifest):
        message = "it has an owner, without which it is removed"
        remedy = "Leave them out to have it judged."
        yield beyond_planning("metadata.ownerReferences", message, remedy)
    if workload.deadline == 0:
        message = "its deadline is over at once"
        yield beyond_planning("", message, "Give it more activeDeadlineSeconds.", only_refuses=True)
    is_followed = workload.kind == "Pod" and workload.queue
    if is_grouped(pod_set.template) and not is_followed:
        message = "Kueue may admit its pods as a pod group"
        yield beyond_planning("metadata.annotations", message, "Leave the group to Kueue's kinds.")
    declared = labels_of(pod_set.template)
    replaced = {key for key in declared if pod_set.labels.get(key) != declared[key]}
    if by_controller := replaced | (declared.keys() & differing_labels(workload)):
        message = f"its controller gives the label {min(by_controller)} itself"
        yield beyond_planning("metadata.labels", message, "Leave it out of the template.")


def selector_keys(spec: Manifest) -> Iterator[str]:
    """Yield the keys of pod labels that a pod's affinity and spread constraints look at."""
    terms = [*items(spec, "topologySpreadConstraints")]
    for kind in ("podAffinity", "podAntiAffinity"):
        terms += items(section(spec, "affinity", kind), REQUIRED)
    for term in terms:
        selector = section(term, "labelSelector")
        yield from section(selector, "matchLabels")
        yield from (requirement["key"] for requirement in items(selector, "matchExpressions"))
        yield from texts(term, "matchLabelKeys")
        yield from texts(term, "mismatchLabelKeys")
