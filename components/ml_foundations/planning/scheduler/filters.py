"""The kube-scheduler's filters of one pod on one node: why the node refuses the pod.

They cover node name, cordoned nodes, node selector and required node affinity, taints and volumes,
and shared GPUs, which nodes refuse themselves. The modules that place pods decide about free
resources and about the effects of other pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import WHOLE, format_milli, whole_number
from ml_foundations.kubernetes.selectors import required_node_affinity, unmet, wanted_values
from ml_foundations.kubernetes.tolerations import described_taint, untolerated_taints
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Cause, Refusal, beyond_planning, doubt

_Unmet = tuple[Manifest, Mapping[str, Any], bool]
"""A requirement, the values of the node that it is about, and whether these are known."""


def refusals(pod: PodClass, node: NodeClass) -> list[Refusal]:
    """Return why nodes of a class refuse pods, without the rules that the pods ignore."""
    reasons: list[Refusal] = []
    if lacking := sorted(node.lacks & pod.requests.keys()):
        reasons += [Refusal("resources", "", f"it has no {name}") for name in lacking]
    elif node.made_by:
        reasons.append(_made_or_not(pod, node))
    elif node.unknown:
        for fact in node.unknown:
            message = f"its {fact.name} is not known yet"
            reasons.append(doubt("unknown-value", "", message)._replace(cause=fact.cause))
    else:
        reasons += [*spec_refusals(pod.spec, node), *_shared_gpus(pod, node)]
        if pod.volume_refusals:
            reasons += pod.volume_refusals(node)
    return [refusal for refusal in reasons if refusal.rule not in pod.ignored]


def _made_or_not(pod: PodClass, node: NodeClass) -> Refusal:
    """Return why no such node is made for pods, or perhaps none.

    A ComputeClass with the name default may be that of all pods without a class (GKE, "Apply
    ComputeClasses to Pods by default").
    """
    of_class = node.labels.get(labels.COMPUTE_CLASS)
    if pod.one_per_node:
        return Refusal("nodes", "", "no node is made for pods of a DaemonSet")
    if of_class and of_class not in (wanted_values(pod.spec, labels.COMPUTE_CLASS) or ["default"]):
        message = f"it is made for pods that select the ComputeClass {of_class}"
        return Refusal("node-selector", f"nodeSelector.{labels.COMPUTE_CLASS}", message)
    message = f"{node.made_by} has nodes made, and planning does not know which"
    remedy = "Declare the nodes, or check it by a rehearsal."
    return beyond_planning("", message, remedy)


def is_wanted_on(pod: PodClass, node: NodeClass) -> bool:
    """Return whether a DaemonSet's controller creates a pod for a node."""
    if node.unknown:
        return False
    # Only the node's name, affinity and taints decide that.
    reasons = spec_refusals(pod.created_spec or pod.spec, node)
    return all(refusal.rule in pod.ignored for refusal in reasons)


def spec_refusals(spec: Manifest, node: NodeClass) -> list[Refusal]:
    """Return why nodes refuse pods by the nodes' names, labels and taints."""
    reasons: list[Refusal] = []
    requested = spec.get("nodeName")
    name = name_of(node.manifest)
    if requested and name is UNKNOWN:
        message = f"the node {requested} may be one of this pool"
        reasons.append(Refusal("node-name", "nodeName", message, certain=False))
    elif requested and requested != name:
        message = f"the pod names the node {requested}"
        reasons.append(Refusal("node-name", "nodeName", message))
    is_cordoned = section(node.manifest, "spec").get("unschedulable")
    tolerations = items(spec, "tolerations")
    if is_cordoned and untolerated_taints(tolerations, [labels.UNSCHEDULABLE_TAINT]):
        message = "the node is cordoned (unschedulable)"
        reasons.append(Refusal("node-unschedulable", "tolerations", message))
    for key, value in section(spec, "nodeSelector").items():
        if (actual := node.labels.get(key)) != value:
            message = f"node selector {key}={value}: the node has {_shown(node.labels, key)}"
            path = f"nodeSelector.{key}"
            is_known = actual is not UNKNOWN
            reasons.append(Refusal("node-selector", path, message, certain=is_known))
    return [*reasons, *_node_affinity(spec, node), *_taints(tolerations, node)]


def _node_affinity(spec: Manifest, node: NodeClass) -> Iterable[Refusal]:
    """Yield the refusal of required node affinity: a node must match one of its terms."""
    required = required_node_affinity(spec)
    if required is None:
        return
    unmet_terms = [unmet(term, node.manifest) for term in items(required, "nodeSelectorTerms")]
    if not all(unmet_terms):
        return
    texts: list[str] = []
    is_certain = True
    cause = None
    for requirements in unmet_terms:
        texts.append(" and ".join(map(_described, requirements)))
        is_certain &= any(is_known for *_, is_known in requirements)
        for requirement, values, _ in requirements:
            if requirement.get("key") == labels.GPU_PRODUCT not in values:
                cause = Cause.NO_GPU_PRODUCT
    described = "; or ".join(texts) or "it has no term, which matches no node"
    message = f"required node affinity: {described}"
    path = "affinity.nodeAffinity"
    yield Refusal("node-affinity", path, message, certain=is_certain, cause=cause)


def _described(unmet_requirement: _Unmet) -> str:
    requirement, values_of_node, _ = unmet_requirement
    if not requirement:
        return "an empty term matches no node"
    key = requirement["key"]
    values = ", ".join(map(str, requirement.get("values") or []))
    described = f"{key} {requirement.get('operator')}{f' [{values}]' if values else ''}"
    return f"{described} (the node has {_shown(values_of_node, key)})"


def _shown(values_of_node: Mapping[str, Any], key: str) -> str:
    return f"{key}={values_of_node[key]}" if key in values_of_node else f"no {key}"


def _taints(tolerations: Sequence[Manifest], node: NodeClass) -> Iterable[Refusal]:
    for taint in untolerated_taints(tolerations, node.declared_taints):
        message = f"untolerated taint {described_taint(taint)}"
        yield Refusal("taint", "tolerations", message, certain=node.keeps(taint))
    for taint in node.taints:
        if taint.get("effect") != "NoExecute":
            continue
        for toleration in tolerations:
            if toleration.get("tolerationSeconds") is None:
                continue
            if not untolerated_taints([toleration], [taint]):
                message = f"it tolerates the taint {described_taint(taint)} for some seconds only"
                yield Refusal("taint", "tolerations.tolerationSeconds", message, certain=False)
                break


def _shared_gpus(pod: PodClass, node: NodeClass) -> Iterable[Refusal]:
    """Yield the refusal of GKE's device plugin: a container gets one shared GPU."""
    strategy = node.labels.get(labels.GKE_SHARING_STRATEGY)
    if not strategy or pod.most_gpus <= WHOLE:
        return
    # If MPS shares the node's only GPU, a container gets several parts of it. Source:
    # GoogleCloudPlatform/container-engine-accelerators, pkg/gpu/nvidia/gpusharing/gpusharing.go.
    if strategy == "mps":
        parts_of_a_gpu = whole_number(node.labels.get(labels.GKE_SHARED_CLIENTS), 1)
        if node.allocatable.get(labels.GPU_RESOURCE, 0) <= parts_of_a_gpu * WHOLE:
            return
    gpus = format_milli(pod.most_gpus)
    message = f"GKE gives a container one shared GPU, and it asks for {gpus}"
    yield Refusal("shared-gpu", "containers", message)
