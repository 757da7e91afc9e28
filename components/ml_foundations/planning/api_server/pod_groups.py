"""Groups of Pods that Kueue admits together (kueue v0.19.2, pkg/controller/jobs/pod)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.model.refusals import Refusal, doubt

_FAST = "kueue.x-k8s.io/pod-group-fast-admission"
"""The annotation with which Kueue does not wait for all pods of a group."""
_COUNT_PATH = f"metadata.annotations.{labels.KUEUE_POD_COUNT}"


class PodGroups:
    """The groups of the Pods that are shown."""

    def __init__(self, pods: Iterable[Manifest]) -> None:
        self._members: defaultdict[tuple[str, str], list[Manifest]] = defaultdict(list)
        self._incomplete: dict[tuple[str, str, int], list[Refusal]] = {}
        for pod in pods:
            if (name := group_of(pod)) and section(pod, "status").get("phase") != "Failed":
                self._members[namespace_of(pod), name].append(pod)

    def members(self, pod: Manifest) -> Sequence[Manifest]:
        """Return the pods of a pod's group, itself included; none if it is in no group."""
        return self._members.get((namespace_of(pod), group_of(pod)), ())

    def refusals(self, pod: Manifest) -> Iterator[Refusal]:
        """Yield why Kueue refuses a pod of a group, or never admits the group."""
        name = group_of(pod)
        count = annotations_of(pod).get(labels.KUEUE_POD_COUNT)
        if UNKNOWN in (name, count):
            yield doubt("queue", _COUNT_PATH, "its pod group is not known yet", "Use plain values.")
        elif not is_grouped(pod):
            return
        elif not name or count is None:
            message = "Kueue refuses a pod with one of pod-group-name and pod-group-total-count"
            yield Refusal("queue", _COUNT_PATH, message, "Set both, or none.")
        elif not re.fullmatch(r"\+?[1-9]\d{0,8}", str(count)):
            message = f"Kueue refuses {labels.KUEUE_POD_COUNT}: {count}"
            yield Refusal("queue", _COUNT_PATH, message, "Set it to the number of pods.")
        elif _FAST not in annotations_of(pod):  # what it decides is not known
            key = namespace_of(pod), name, int(str(count))
            if key not in self._incomplete:
                self._incomplete[key] = [*_incomplete(name, key[-1], self.members(pod))]
            yield from self._incomplete[key]


def group_of(pod: Manifest) -> str:
    """Return the name of a pod's group; "" if it is in none."""
    of_pod = annotations_of(pod).get(labels.KUEUE_POD_GROUP)
    return of_pod or labels_of(pod).get(labels.KUEUE_POD_GROUP) or ""


def is_grouped(template: Manifest) -> bool:
    """Return whether pods of a template say that they belong to a group."""
    return bool(group_of(template)) or labels.KUEUE_POD_COUNT in annotations_of(template)


def _incomplete(name: str, count: int, members: Sequence[Manifest]) -> Iterator[Refusal]:
    """Yield why Kueue never admits a group of so many pods, or not these."""
    of_all = {str(annotations_of(pod).get(labels.KUEUE_POD_COUNT)) for pod in members}
    queues = {str(labels_of(pod).get(labels.KUEUE_QUEUE)) for pod in members}
    if len(of_all) > 1 or len(queues) > 1:
        message = f"the pods of group {name} have different queues or total counts"
        remedy = "Give them the same queue and the same count."
        yield Refusal("queue", _COUNT_PATH, f"Kueue never admits it: {message}", remedy)
    elif len(members) < count:
        message = f"group {name} has {len(members)} of its {count} pods"
        remedy = f"Declare all {count} pods, or set {labels.KUEUE_POD_COUNT} to {len(members)}."
        yield Refusal("queue", _COUNT_PATH, f"Kueue never admits it: {message}", remedy)
    elif len(members) > count:
        newest = f"Kueue deletes the newest of the {len(members)} pods of group {name}"
        remedy = f"Set {labels.KUEUE_POD_COUNT} to {len(members)}."
        kept = ", ".join(sorted(str(name_of(pod)) for pod in members)[:5])
        yield doubt("queue", _COUNT_PATH, f"{newest}, which has {count}: {kept}", remedy)
