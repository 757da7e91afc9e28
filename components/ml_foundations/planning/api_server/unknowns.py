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
)
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server.cluster import SYSTEM_PRIORITIES, Cluster
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import SHARED_HOSTNAME
from ml_foundations.planning.model.refusals import Refusal, beyond_planning
from ml_foundations.planning.model.workloads import PodSet, Workload, differing_labels, is_stored

_DEFAULT_SCHEDULER = "default-scheduler"
_LONGEST_NAME = 52
"""A StatefulSet's name, a dash and a hash of 10 digits are a label of at most 63 characters."""
_LONGEST_NAME_OF_ONE = 61
"""The same with a hash of one digit."""
_SECRETS_OF_ACCOUNT = "kubernetes.io/enforce-mountable-secrets"


class Unknowns:
    """The unknown facts about the pods of a cluster's workloads."""

    def __init__(self, cluster: Cluster, indistinct_keys: Set[str]) -> None:
        """Store the cluster and the labels.

        Args:
            cluster: The objects in the cluster before the workloads.
            indistinct_keys: The labels that differ between pods of one workload, if the pods are
                too many to list.
        """
        self._cluster = cluster
        self._indistinct_keys = indistinct_keys

    def refusals(
        self, workload: Workload, pod_set: PodSet, pod: PodClass, networks: str
    ) -> Iterator[Refusal]:
        """Yield an uncertain refusal for each unknown fact.

        Args:
            workload: The workload.
            pod_set: One of its sets of pods.
            pod: The class of these pods.
            networks: The networks that their interfaces need and that some node may lack.
        """
        yield from self._unknown_scheduling(workload, pod)
        if networks:
            yield _unknown_networks(networks)
        yield from self._unknown_objects(workload, pod_set, pod.spec)
        yield from _unknown_owner(workload, pod_set)
        yield from self._unknown_topology(pod)
        yield from self._cluster.volumes.unknowns(pod.spec, workload)

    def _unknown_scheduling(self, workload: Workload, pod: PodClass) -> Iterator[Refusal]:
        """Yield fields of a pod by which something other than the scheduler's rules decides."""
        spec, cluster = pod.spec, self._cluster
        if spec.get("schedulingGates"):
            yield beyond_planning(
                "schedulingGates",
                "its scheduling gates are lifted by somebody else",
                "Remove the gates to have it judged.",
            )
        node = spec.get("nodeName")
        if workload.kind != "DaemonSet" and node and node in map(name_of, cluster.by_kind["Node"]):
            yield beyond_planning(
                "nodeName",
                f"it names the node {node}, whose kubelet decides, and no scheduler",
                "Select the node by its labels to have it judged.",
            )
        scheduler = spec.get("schedulerName", _DEFAULT_SCHEDULER)
        if scheduler != _DEFAULT_SCHEDULER:
            yield beyond_planning(
                "schedulerName",
                f"the scheduler {scheduler} follows its own rules",
                "Use the default scheduler to have it judged.",
            )
        if spec.get("resourceClaims"):
            classes = cluster.devices.classes(spec, workload.namespace)
            yield beyond_planning(
                "resourceClaims",
                f"it claims devices of {classes}, and their drivers decide which node has them",
                "Check it by a rehearsal, or request the devices as an extended resource if their"
                " driver offers one.",
                only_refuses=True,
            )

    def _unknown_objects(
        self, workload: Workload, pod_set: PodSet, spec: Manifest
    ) -> Iterator[Refusal]:
        """Yield classes and accounts that pods name and that are not declared, or limit them."""
        cluster = self._cluster
        runtime = spec.get("runtimeClassName")
        if runtime and runtime not in cluster.runtime_classes:
            yield beyond_planning(
                "runtimeClassName",
                f"the runtime class {runtime} may add overhead and a node selector",
                f"Declare the RuntimeClass {runtime}.",
            )
        priority = spec.get("priorityClassName")
        known_priorities = (cluster.priority_classes, SYSTEM_PRIORITIES)
        if priority and not any(priority in known for known in known_priorities):
            yield beyond_planning(
                "priorityClassName",
                f"the priority class {priority} is not declared",
                f"Declare the PriorityClass {priority}.",
            )
        template = section(pod_set.template, "spec")
        name = template.get("serviceAccountName") or template.get("serviceAccount") or "default"
        account = cluster.service_accounts.get((workload.namespace, name))
        if account is None and name not in ("default", UNKNOWN):
            yield beyond_planning(
                "serviceAccountName",
                f"the service account {name} is not declared",
                f"Declare the ServiceAccount {name}.",
                only_refuses=True,
            )
        if account and annotations_of(account).get(_SECRETS_OF_ACCOUNT) == "true":
            yield beyond_planning(
                "serviceAccountName",
                f"the service account {name} lets its pods use some secrets only",
                f"Drop the annotation {_SECRETS_OF_ACCOUNT}.",
                only_refuses=True,
            )

    def _unknown_topology(self, pod: PodClass) -> Iterator[Refusal]:
        """Yield labels of pods and nodes that affinity looks at and that are not known."""
        if not self._indistinct_keys.isdisjoint(selector_keys(pod.spec)):
            yield beyond_planning(
                "affinity",
                "a selector matches only some pods of one workload",
                "Select the pods by a common label.",
            )
        keys = {rule.key for rule in (*pod.affinity, *pod.anti_affinity, *pod.spread)}
        if keys & {labels.HOSTNAME, SHARED_HOSTNAME} and self._cluster.lacks_host_names:
            yield beyond_planning(
                "affinity",
                f"some Nodes lack the label {labels.HOSTNAME}, which kubelets give them",
                "Give all Nodes the label.",
            )
        for key in keys - {labels.HOSTNAME}:
            nodes = [group.node for group in self._cluster.node_groups]
            if any(node.labels.get(key) is UNKNOWN and not node.zones for node in nodes):
                yield beyond_planning(
                    "affinity",
                    f"the label {key} of some nodes is not known",
                    "Declare the pools' zones.",
                )


def _unknown_networks(networks: str) -> Refusal:
    return beyond_planning(
        f"metadata.annotations.{labels.GKE_INTERFACES}",
        f"its interfaces need nodes in the networks {networks}, and not all nodes that"
        " accept it are known to have them",
        "Declare each Network of type Device and its GKENetworkParamSet, with vpc and"
        " vpcSubnet as networkConfig.additionalNodeNetworkConfigs of the pool has them"
        " (GpuNodePool: additional_networks). A Node has them in status.allocatable, as"
        " networking.gke.io.networks/NAME.",
    )


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
        yield beyond_planning(
            "metadata.ownerReferences",
            "it has an owner, without which it is removed",
            "Leave them out to have it judged.",
        )
    if workload.deadline == 0:
        yield beyond_planning(
            "",
            "its deadline is over at once",
            "Give it more activeDeadlineSeconds.",
            only_refuses=True,
        )
    declared = labels_of(pod_set.template)
    replaced = {key for key in declared if pod_set.labels.get(key) != declared[key]}
    if by_controller := replaced | (declared.keys() & differing_labels(workload)):
        yield beyond_planning(
            "metadata.labels",
            f"its controller gives the label {min(by_controller)} itself",
            "Leave it out of the template.",
        )


def selector_keys(spec: Manifest) -> Iterator[str]:
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
