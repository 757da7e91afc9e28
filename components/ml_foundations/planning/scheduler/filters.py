"""The kube-scheduler's filters of one pod on one node: why the node refuses the pod.

Covered: node name, cordoned nodes, node selector and required node affinity, taints and volumes; and shared GPUs, which
nodes refuse themselves. Room, and what other pods decide, is left to the modules that place pods.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.quantities import WHOLE, format_milli
from ml_foundations.kubernetes.selectors import required_node_affinity, unmet
from ml_foundations.kubernetes.tolerations import described_taint, untolerated_taints
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal, told


def refusals(pod: PodClass, node: NodeClass) -> list[Refusal]:
    """Return why nodes of a class refuse pods whatever room they have, without the rules that the pods ignore."""
    found = _refusals(pod, node)
    return (
        [refusal for refusal in found if refusal.rule not in pod.ignored] if pod.ignored else found
    )


def _refusals(pod: PodClass, node: NodeClass) -> list[Refusal]:
    if lacking := sorted(node.lacks & pod.requests.keys()):
        return [Refusal("resources", "", f"it has no {name}") for name in lacking]
    if node.unknown:
        return [
            Refusal("unknown-value", "", f"its {path} is not known yet", certain=False)
            for path in node.unknown
        ]
    found = [*spec_refusals(pod.spec, node), *_shared_gpus(pod, node)]
    return [*found, *pod.volume_refusals(node)] if pod.volume_refusals else found


def is_wanted_on(pod: PodClass, node: NodeClass) -> bool:
    """Whether a DaemonSet's controller makes a pod for a node: by name, affinity and taints alone."""
    return not node.unknown and all(
        r.rule in pod.ignored for r in spec_refusals(pod.declared_spec or pod.spec, node)
    )


def spec_refusals(spec: Manifest, node: NodeClass) -> list[Refusal]:
    """Return why nodes refuse pods by the nodes' names, labels and taints."""
    rules = (_node_name, _cordon, _node_selector, _node_affinity, _taints)
    return [refusal for rule in rules for refusal in rule(spec, node)]


def _node_name(spec: Manifest, node: NodeClass) -> Iterable[Refusal]:
    wanted, name = spec.get("nodeName"), name_of(node.manifest)
    if wanted and name is UNKNOWN:
        yield Refusal(
            "node-name", "nodeName", f"the node {wanted} may be one of this pool", certain=False
        )
    elif wanted and wanted != name:
        yield Refusal("node-name", "nodeName", f"the pod names the node {wanted}")


def _cordon(spec: Manifest, node: NodeClass) -> Iterable[Refusal]:
    tolerations, is_cordoned = (
        items(spec, "tolerations"),
        section(node.manifest, "spec").get("unschedulable"),
    )
    if is_cordoned and untolerated_taints(tolerations, [labels.UNSCHEDULABLE_TAINT]):
        yield Refusal("node-unschedulable", "tolerations", "the node is cordoned (unschedulable)")


def _node_selector(spec: Manifest, node: NodeClass) -> Iterable[Refusal]:
    for key, value in section(spec, "nodeSelector").items():
        if node.labels.get(key) != value:
            message = f"node selector {key}={value}: the node has {_shown(node.labels, key)}"
            yield Refusal(
                "node-selector",
                f"nodeSelector.{key}",
                message,
                certain=node.labels.get(key) is not UNKNOWN,
            )


def _node_affinity(spec: Manifest, node: NodeClass) -> Iterable[Refusal]:
    required = required_node_affinity(spec)
    if required is None:
        return
    against = [unmet(term, node.manifest) for term in items(required, "nodeSelectorTerms")]
    if all(against):
        texts = "; or ".join(
            " and ".join(_described(*each[:2]) for each in term) for term in against
        )
        message = f"required node affinity: {texts or 'it has no term, which matches no node'}"
        certain = all(any(known for *_, known in term) for term in against)
        yield Refusal("node-affinity", "affinity.nodeAffinity", message, certain=certain)


def _described(requirement: Manifest, values_of_node: Mapping[str, Any]) -> str:
    if not requirement:
        return "an empty term matches no node"
    values = ", ".join(map(str, requirement.get("values") or []))
    wanted = f"{requirement['key']} {requirement.get('operator')}{f' [{values}]' if values else ''}"
    return f"{wanted} (the node has {_shown(values_of_node, requirement['key'])})"


def _shown(of_node: Mapping[str, Any], key: str) -> str:
    return f"{key}={of_node[key]}" if key in of_node else f"no {key}"


def _taints(spec: Manifest, node: NodeClass) -> Iterable[Refusal]:
    for taint in untolerated_taints(items(spec, "tolerations"), node.declared_taints):
        yield Refusal(
            "taint",
            "tolerations",
            f"untolerated taint {described_taint(taint)}",
            certain=node.keeps(taint),
        )
    for taint in node.taints:
        if taint.get("effect") == "NoExecute" and any(
            each.get("tolerationSeconds") is not None and not untolerated_taints([each], [taint])
            for each in items(spec, "tolerations")
        ):
            message = f"it tolerates the taint {described_taint(taint)} for some seconds only"
            yield Refusal("taint", "tolerations.tolerationSeconds", message, certain=False)


def _shared_gpus(pod: PodClass, node: NodeClass) -> Iterable[Refusal]:
    """GKE's device plugin gives a container one shared GPU; of a single GPU that MPS shares, several parts.

    Source: GoogleCloudPlatform/container-engine-accelerators, pkg/gpu/nvidia/gpusharing/gpusharing.go.
    """
    strategy, clients = (
        node.labels.get(labels.GKE_SHARING_STRATEGY),
        node.labels.get(labels.GKE_SHARED_CLIENTS, 1),
    )
    is_one = (
        strategy == "mps" and node.allocatable.get(labels.GPU_RESOURCE, 0) <= int(clients) * WHOLE
    )
    if strategy and not is_one and pod.most_gpus > WHOLE:
        yield told("shared-gpus", "containers", most_gpus=format_milli(pod.most_gpus))
