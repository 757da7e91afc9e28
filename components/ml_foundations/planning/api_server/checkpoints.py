"""Checkpoints in the memory of nodes: GKE mounts them where a CheckpointConfiguration selects.

See GKE, "Train large-scale machine learning models on GKE with Multi-Tier Checkpointing".
"""

from collections.abc import Iterator, Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.quantities import milli, readable
from ml_foundations.kubernetes.tolerations import untolerated_taints
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.kubernetes.words import names
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import pod_requests

KIND = "CheckpointConfiguration"


def are_mounted(spec: Manifest) -> bool:
    """Return whether pods mount checkpoints."""
    return any(map(_is_checkpoints, items(spec, "volumes")))


def refusals(
    spec: Manifest,
    nodes: Sequence[NodeClass],
    configurations: Sequence[Manifest],
    *,
    is_known: bool,
) -> Iterator[Refusal]:
    """Yield why pods do not get their checkpoints on nodes that accept them.

    It is certain if no node has them, and if ``is_known`` says that everything is declared.
    """
    specs = [section(configuration, "spec") for configuration in configurations]
    of_node: dict[NodeClass, list[Manifest]] = {}
    for node in nodes:
        of_node[node] = [selecting for selecting in specs if selects(selecting, node)]
    without = [node.name for node in nodes if not of_node[node]]
    volumes = filter(lambda volume: _is_checkpoints(volume[1]), enumerate(items(spec, "volumes")))
    for index, volume in volumes:
        path = f"volumes[{index}].csi.driver"
        what = f"the checkpoints {volume.get('name')}"
        if without:
            message = f"{what} are never mounted on {names(without)}: no configuration selects them"
            remedy = "Declare a CheckpointConfiguration for the pool of these nodes."
            is_certain = is_known and len(without) == len(nodes)
            yield Refusal("checkpoints", path, message, remedy, is_certain)
        requested = pod_requests(spec).get("memory", 0)
        for node, selecting in of_node.items():
            size = max(map(_size, selecting), default=0)
            room = node.allocatable.get("memory", 0) - requested
            if size > room:
                left = f"a pod of {readable(requested)} leaves {readable(max(0, room))}"
                message = f"{node.name} has no {readable(size)} of memory for {what}: {left}"
                remedy = "Lower inMemoryVolumeSize, or the memory that the pods request."
                yield Refusal("checkpoints", path, message, remedy, certain=False)


def _is_checkpoints(volume: Manifest) -> bool:
    return section(volume, "csi").get("driver") == labels.CHECKPOINT_DRIVER


def _size(configuration: Manifest) -> int:
    """Return the memory for checkpoints in thousandths of a byte; 0 if it is not known."""
    try:
        return milli(str(configuration.get("inMemoryVolumeSize", 0)))
    except ValueError:
        return 0


def selects(configuration: Manifest, node: NodeClass) -> bool:
    """Return whether the driver of a configuration runs on a node, or may."""
    selector = section(configuration, "nodeSelector")
    is_selected = all(
        UNKNOWN in (value, actual := node.labels.get(key)) or value == actual
        for key, value in selector.items()
    )
    tolerations = items(configuration, "tolerations")
    return is_selected and not any(untolerated_taints(tolerations, node.declared_taints))
