"""Values that the API server takes and that no container runs with: images without a valid name, too little memory."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ml_foundations.kubernetes.objects import Manifest, items, namespace_of, section
from ml_foundations.kubernetes.quantities import WHOLE, milli
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.planning.api_server.defaults import admitted
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.model.decisions import Verdict, together
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.workloads import GROUPS, PodSet, is_stored
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.findings import Severity
from ml_foundations.planning.verdict.verdicts import Verdicts, WorkloadVerdict

_MIB = 1024 * 1024 * WHOLE
_IMPOSSIBLE, _TOO_LITTLE = 1 * _MIB, 6 * _MIB
"""A container's memory, in thousandths of bytes: the first is less than any runtime needs to start its process.

The second is Docker's minimum, set because runc often fails with less (moby, pull request 41168; kubernetes, issue
124841). containerd, which GKE uses, checks no minimum.
"""
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])"
_TAG = r"\w[\w.-]{0,127}"
_DIGEST = r"(?:sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128}|(?!sha256:|sha512:)[A-Za-z][A-Za-z0-9+._-]*:[a-fA-F0-9]{32,})"
_IMAGE = re.compile(
    rf"(?:{_HOST}(?::\d+)?/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@{_DIGEST})?", re.ASCII
)
"""The names of images that the kubelet reads (distribution/reference, grammar)."""


def with_values(
    verdicts: Verdicts, objects: Iterable[Manifest], accepted: Collection[str] = ()
) -> Verdicts:
    """Return the verdicts with those on values that no container runs with: rule ``impossible-value``.

    Args:
        verdicts: The verdicts without them.
        objects: The Kubernetes objects that are declared, with the LimitRanges whose defaults pods get.
        accepted: The rules whose errors the user accepts.
    """
    shown = [*objects]
    ranges = [
        each for each in shown if each["kind"] == "LimitRange" and not field_catalog.notes(each)
    ]
    is_changed = any(str(each["kind"]).startswith("Mutating") for each in shown)
    workloads = tuple(
        _judged(each, ranges, accepted, is_changed=is_changed) for each in verdicts.workloads
    )
    stack = together([verdicts.stack, *(each.verdict for each in workloads)])
    return replace(verdicts, workloads=workloads, stack=stack)


def _judged(
    item: WorkloadVerdict,
    limit_ranges: Sequence[Manifest],
    accepted: Collection[str],
    *,
    is_changed: bool,
) -> WorkloadVerdict:
    """Return the verdict on a workload with what is found of its values."""
    workload = item.workload
    if is_stored(workload.manifest):
        return item
    own_ranges = [each for each in limit_ranges if namespace_of(each) == workload.namespace]
    refusals: list[Refusal] = []
    for pods in workload.pods:
        if pods.count or workload.kind == "DaemonSet":
            refusals += [*_of_images(pods), *_of_folders(pods)]
            refusals += (
                () if workload.unknown else _of_amounts(admitted(pods.spec, own_ranges), pods.path)
            )
    may_change = is_changed and any(each.rule == "unknown-admission" for each in item.reasons)
    is_certain = workload.kind in GROUPS and not may_change
    found = [
        explain.finding(
            each, Verdict.CANNOT_FIT if each.certain and is_certain else Verdict.FITS, workload
        )
        for each in refusals
    ]
    errors = tuple(each for each in found if each.severity is Severity.ERROR)
    warnings = tuple(each for each in found if each.severity is not Severity.ERROR)
    is_refused = any(each.rule not in accepted for each in errors)
    return replace(
        item,
        verdict=Verdict.CANNOT_FIT if is_refused else item.verdict,
        reasons=(*item.reasons, *errors),
        warnings=(*item.warnings, *warnings),
    )


def _of_images(pods: PodSet) -> Iterator[Refusal]:
    """Yield what is wrong with the names of images that the pods run or mount."""
    spec = section(pods.template, "spec")
    places = [
        (f"{key}[{index}]", container, "image")
        for key in ("initContainers", "containers")
        for index, container in enumerate(items(spec, key))
    ]
    for index, volume in enumerate(items(spec, "volumes")):
        source: Any = volume.get("image") if is_mapping(volume) else None
        places += [(f"volumes[{index}].image", source, "reference")]
    for path, holder, key in places:
        image: Any = holder.get(key) if is_mapping(holder) else None
        if isinstance(image, str) and (why := wrong_image(image)):
            yield told("no-image-name", f"{pods.path}.{path}.{key}", image=image, why=why)


def wrong_image(image: str) -> str:
    """Return why the kubelet does not read the name of an image; empty if it does.

    Example: ``wrong_image("Team/app")`` is empty, as Team may be a host; ``wrong_image("App")`` is "has upper case in
    the repository".
    """
    if not image:
        return "is empty"
    if _IMAGE.fullmatch(image):
        return ""
    if any(character.isspace() for character in image):
        return "has a space"
    if re.search(r"[${}<>]", image):
        return "has a placeholder that nobody has filled in"
    if _IMAGE.fullmatch(image.lower()):
        return "has upper case in the repository"
    return "does not read as host/repository:tag@digest"


def _of_amounts(spec: Manifest, at: str) -> Iterator[Refusal]:
    """Yield the amounts of memory and disk that are too small, of pods as the API server stores them."""
    holders = [
        (f"{key}[{index}].resources", section(container, "resources"))
        for key in ("initContainers", "containers")
        for index, container in enumerate(items(spec, key))
    ]
    holders += [("resources", section(spec, "resources"))]
    for path, resources in holders:
        for name in ("memory", "ephemeral-storage"):
            for field in ("limits", "requests"):
                amount: Any = section(resources, field).get(name)
                refusal = _too_small(
                    f"{at}.{path}.{field}.{name}",
                    amount,
                    is_memory_limit=name + field == "memorylimits",
                )
                if refusal:
                    yield refusal
                    break  # the request is what the limit is, or has the same mistake


def _of_folders(pods: PodSet) -> Iterator[Refusal]:
    """Yield the sizes of empty folders that are too small."""
    for index, volume in enumerate(
        filter(is_mapping, items(section(pods.template, "spec"), "volumes"))
    ):
        size: Any = section(volume, "emptyDir").get("sizeLimit")
        path = f"{pods.path}.volumes[{index}].emptyDir.sizeLimit"
        refusal = None if size is UNKNOWN else _too_small(path, size, is_memory_limit=False)
        if refusal:
            yield refusal


def _too_small(path: str, given: Any, *, is_memory_limit: bool) -> Refusal | None:
    """Return what is wrong with an amount of bytes; zero is no limit."""
    amount = milli(given)
    if not 0 < amount < (_TOO_LITTLE if is_memory_limit else _IMPOSSIBLE):
        return None
    name = "too-little-memory" if is_memory_limit else "too-few-bytes"
    certain = is_memory_limit and amount < _IMPOSSIBLE
    field = path.rpartition("resources.")[2].rpartition("emptyDir.")[2]
    return told(
        name, path, certain=certain, field=field, given=given, bytes=f"{amount / WHOLE:,.10g}"
    )
