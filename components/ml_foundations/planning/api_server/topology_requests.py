"""What pods request of Kueue's topology by annotations, and what Kueue's webhook refuses.

Follows pkg/controller/jobframework/tas.go and tas_validation.go of Kueue v0.19.2.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

from ml_foundations.kinds.kind_files import queue_of
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of
from ml_foundations.kubernetes.reading import ReadError, embedded_json
from ml_foundations.kubernetes.text_formats import FALSE_TEXTS, QUALIFIED_NAME, TRUE_TEXTS
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.scheduler.topology import UNCONSTRAINED, Slices, TopologyRequest

_KEYS = (
    *labels.KUEUE_TOPOLOGY.values(),
    *(labels.KUEUE_SLICE_LEVEL, labels.KUEUE_SLICE_SIZE, labels.KUEUE_SLICES, labels.KUEUE_GROUP),
)
_LEVELS = (*list(labels.KUEUE_TOPOLOGY.values())[:2], labels.KUEUE_SLICE_LEVEL)
"""The annotations with the label of a level."""
_MOST_LAYERS = 3
RULE = "queue-topology"


def topology_request(pods: PodSet) -> TopologyRequest | None:
    """Return what pods with valid annotations request; None if they request no topology."""
    annotations = _annotations(pods)
    layers = tuple(_layers(annotations))
    group = annotations.get(labels.KUEUE_GROUP)
    for mode, key in labels.KUEUE_TOPOLOGY.items():
        if key in annotations:
            level = None if mode == UNCONSTRAINED else annotations[key]
            return TopologyRequest(mode, level, layers, group)
    return TopologyRequest(UNCONSTRAINED, None, layers) if layers else None


def refused_requests(pod_sets: Sequence[PodSet]) -> Iterator[Refusal]:
    """Yield why Kueue's webhook refuses the topology that the sets of a workload request."""
    for pods in pod_sets:
        annotations = _annotations(pods)
        unknown = [key for key in _KEYS if annotations.get(key) is UNKNOWN]
        for key in unknown:
            yield doubt(RULE, _path(pods), f"{key} is not known yet", "Set it to a plain value.")
        if unknown:
            return
        yield from _as_refusals(pods, _faults(annotations, pods.count))
    yield from _refused_groups(pod_sets)


def refused_annotations(workload: Workload) -> Iterator[Refusal]:
    """Yield what Kueue's webhooks refuse about the annotations of a workload without a queue."""
    is_alone = bool(queue_of(workload.kind).gate)
    for pods in workload.queued_sets:
        annotations = _annotations(pods)
        if not any(annotations.get(key) is UNKNOWN for key in _KEYS):
            faults = list(_refused(annotations))
            largest = max((layer.size for layer in _layers(annotations)), default=0)
            if largest > pods.count and not is_alone:
                faults.append((f"a slice has {largest} of {pods.count} pods", "Set fewer."))
            yield from _as_refusals(pods, faults)
    if not is_alone:
        yield from _refused_groups(workload.queued_sets)


def _as_refusals(pods: PodSet, faults: Iterable[tuple[str, str]]) -> Iterator[Refusal]:
    for fault, remedy in faults:
        yield Refusal(RULE, _path(pods), f"Kueue refuses the topology: {fault}", remedy)


def _refused_groups(pod_sets: Sequence[PodSet]) -> Iterator[Refusal]:
    """Yield groups that are not of a leader and workers (ValidatePodSetGroupingTopology)."""
    groups: defaultdict[str, list[PodSet]] = defaultdict(list)
    for pods in pod_sets:
        if labels.KUEUE_GROUP in (annotations := _annotations(pods)):
            groups[annotations[labels.KUEUE_GROUP]].append(pods)
    for name, members in groups.items():
        if fault := _group_fault(members):
            remedy = "Give the same name and level to a leader of one pod and its workers."
            message = f"Kueue refuses the group {name}: {fault}"
            yield Refusal(RULE, _path(members[0]), message, remedy)


def _annotations(pods: PodSet) -> dict[str, Any]:
    """Return the annotations of a template; the API server drops those that are null."""
    annotations = annotations_of(pods.template)
    return {key: value for key, value in annotations.items() if value is not None}


def _path(pods: PodSet) -> str:
    return f"{pods.path.removesuffix('.spec')}.metadata.annotations"


def _faults(annotations: Manifest, count: int) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the annotations of a set of so many pods, and how to fix it."""
    yield from _refused(annotations)
    flag = annotations.get(labels.KUEUE_TOPOLOGY[UNCONSTRAINED])
    if flag in FALSE_TEXTS:
        # Kueue accepts false, and then finds no level that the pods request.
        key = labels.KUEUE_TOPOLOGY[UNCONSTRAINED]
        yield f"{key} is {flag}, which requests no level", 'Set it to "true".'
    above = count
    for layer in _layers(annotations):
        # Kueue accepts a set with pods beyond the last whole slice, and places these nowhere.
        if layer.size > count or above % layer.size:
            yield f"a slice has {layer.size} pods, which does not divide {above}", "Change one."
        above = layer.size


def _refused(annotations: Manifest) -> Iterator[tuple[str, str]]:
    """Yield what the webhook refuses about annotations (ValidateTASPodSetRequest)."""
    named = [key for key in labels.KUEUE_TOPOLOGY.values() if key in annotations]
    if len(named) > 1:
        yield f"it has {' and '.join(named)}", "Keep one of them."
    flag = annotations.get(labels.KUEUE_TOPOLOGY[UNCONSTRAINED], "true")
    if flag not in (*TRUE_TEXTS, *FALSE_TEXTS):
        key = labels.KUEUE_TOPOLOGY[UNCONSTRAINED]
        yield f"{key} is {flag}, which is not a boolean", 'Set it to "true".'
    levels = [str(annotations[key]) for key in _LEVELS if key in annotations]
    for level in (*levels, *(layer.level for layer in _layers(annotations))):
        if not QUALIFIED_NAME.matches(level):
            yield f"its level '{level}' cannot be a label of nodes", "Name a level of the topology."
    if (labels.KUEUE_SLICE_LEVEL in annotations) != (labels.KUEUE_SLICE_SIZE in annotations):
        both = f"{labels.KUEUE_SLICE_LEVEL} and {labels.KUEUE_SLICE_SIZE}"
        yield f"it has one of {both}", "Set both, or none."
    if labels.KUEUE_SLICES in annotations and labels.KUEUE_SLICE_LEVEL in annotations:
        yield f"it has {labels.KUEUE_SLICE_LEVEL} and {labels.KUEUE_SLICES}", "Keep one of them."
    yield from _layer_faults(annotations)
    if labels.KUEUE_GROUP in annotations:
        group = annotations[labels.KUEUE_GROUP]
        if group.isdecimal():
            yield f"{labels.KUEUE_GROUP} is {group}, a number", "Use a word."
        if annotations.keys() & {labels.KUEUE_SLICE_LEVEL, labels.KUEUE_SLICES}:
            yield f"{labels.KUEUE_GROUP} excludes slices", "Keep one of them."
        if not annotations.keys() & {*list(labels.KUEUE_TOPOLOGY.values())[:2]}:
            yield f"{labels.KUEUE_GROUP} needs a required or preferred level", "Set one."


def _layer_faults(annotations: Manifest) -> Iterator[tuple[str, str]]:
    key = labels.KUEUE_SLICES if labels.KUEUE_SLICES in annotations else labels.KUEUE_SLICE_SIZE
    layers = _layers(annotations)
    if key in annotations and not 0 < len(layers) <= _MOST_LAYERS:
        remedy = f"Use numbers from 1 on, in 1 to {_MOST_LAYERS} layers."
        yield f"{key} is {annotations[key]}", remedy
        return
    if len({layer.level for layer in layers}) < len(layers):
        yield f"{key} names a level twice", "Name each level once."
    for above, layer in pairwise(layers):
        if above.size % layer.size:
            yield (
                f"a slice has {layer.size} pods, which does not divide {above.size}",
                "Change one.",
            )


def _layers(annotations: Manifest) -> list[Slices]:
    """Return the layers of slices; none if the annotations are invalid."""
    if labels.KUEUE_SLICES in annotations:
        try:
            listed = embedded_json(annotations[labels.KUEUE_SLICES])
        except ReadError:
            return []
        entries = cast("list[Any]", listed) if isinstance(listed, list) else []
    else:
        level, size = map(annotations.get, (labels.KUEUE_SLICE_LEVEL, labels.KUEUE_SLICE_SIZE))
        is_whole = level is not None and re.fullmatch("[0-9]{1,9}", str(size))
        entries = [{"topology": level, "size": int(str(size))}] if is_whole else []
    layers: list[Slices] = []
    for entry in entries:
        size = entry.get("size") if is_mapping(entry) else None
        if not isinstance(size, int) or size < 1:
            return []
        layers.append(Slices(str(entry.get("topology")), size))
    return layers


def _group_fault(members: Sequence[PodSet]) -> str:
    if len(members) != 2:
        return f"it has {len(members)} sets of pods, and must have 2"
    if 1 not in [pods.count for pods in members]:
        return "none of its sets has one pod"
    first, second = map(topology_request, members)
    if first and second and (first.mode, first.level) != (second.mode, second.level):
        return "its sets request different levels"
    return ""
