"""Values that the API server accepts and no container runs with: image names, little memory."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_foundations.kubernetes.objects import Manifest, items, namespace_of, section
from ml_foundations.kubernetes.quantities import WHOLE, milli
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server.defaults import admitted
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.model.workloads import PodSet, groups, is_stored
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_MIB = 1024 * 1024 * WHOLE
_IMPOSSIBLE = 1 * _MIB
_TOO_LITTLE = 6 * _MIB
"""A container's memory, in thousandths of bytes.

The first is less than any runtime needs to start its process. The second is Docker's minimum, set
because runc often fails with less (moby, pull request 41168; kubernetes, issue 124841). containerd,
which GKE uses, checks no minimum.
"""
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])"
_TAG = r"\w[\w.-]{0,127}"
_DIGEST = (
    r"(?:sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128}"
    r"|(?!sha256:|sha512:)[A-Za-z][A-Za-z0-9+._-]*:[a-fA-F0-9]{32,})"
)
_IMAGE = re.compile(
    rf"(?:{_HOST}(?::\d+)?/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@{_DIGEST})?", re.ASCII
)
"""The names of images that the kubelet reads (distribution/reference, grammar)."""


class _Value(NamedTuple):
    """A value that no container runs with."""

    path: str
    message: str
    remedy: str
    is_certain: bool = True


@rule(
    "impossible-value",
    Severity.ERROR,
    "Images have names that nodes read, and containers the memory that they need to start.",
    source=("distribution/reference v0.6.0; moby, pull request 41168; kubernetes, issue 124841"),
    example="""
        apiVersion: v1
        kind: Pod
        metadata: {name: train}
        spec:
          containers: [{name: train, image: "Team App:1"}]
    """,
)
def impossible_values(stack: Stack) -> Iterator[Finding]:
    """Yield the values of each workload that no container runs with."""
    # Pods get defaults from the LimitRanges among the objects.
    limit_ranges = [item for item in stack.of_kind("LimitRange") if not field_catalog.notes(item)]
    is_changed = any(item["kind"].startswith("Mutating") for item in stack.objects)
    for workload, _, reasons in stack.workloads:
        if is_stored(workload.manifest):
            continue
        ranges = [item for item in limit_ranges if namespace_of(item) == workload.namespace]
        values: list[_Value] = []
        is_made_later = workload.kind == "DaemonSet"
        by_path = {pods.path: pods for pods in workload.pods if pods.count or is_made_later}
        for pods in by_path.values():
            values += [*_images(pods), *_folders(pods)]
            if not workload.unknown:
                values += _amounts(admitted(pods.spec, ranges), pods.path)
        may_change = is_changed and any(reason.rule == "unknown-admission" for reason in reasons)
        is_known = workload.kind in groups() and not may_change
        for value in values:
            severe = error if value.is_certain and is_known else warning
            yield severe("impossible-value", str(workload), value.path, value.message, value.remedy)


def _containers(spec: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Yield all containers of a pod with their paths."""
    for key in ("initContainers", "containers"):
        for index, container in enumerate(items(spec, key)):
            yield f"{key}[{index}]", container


def _images(pods: PodSet) -> Iterator[_Value]:
    """Yield what is invalid about the names of images that the pods run or mount."""
    spec = section(pods.template, "spec")
    holders = [(path, container, "image") for path, container in _containers(spec)]
    for index, volume in enumerate(items(spec, "volumes")):
        holders.append((f"volumes[{index}].image", section(volume, "image"), "reference"))
    for path, holder, key in holders:
        image: Any = holder.get(key)
        if isinstance(image, str) and (why := wrong_image(image)):
            message = (
                f'the image "{image}" {why}: the kubelet does not read such a name, so the '
                "container never starts"
            )
            remedy = "Name the image as host/repository:tag, with lower case in the repository."
            yield _Value(f"{pods.path}.{path}.{key}", message, remedy)


def wrong_image(image: str) -> str:
    """Return why the kubelet does not read the name of an image; empty if it does.

    Example: ``wrong_image("Team/app")`` is empty, as Team may be a host; ``wrong_image("App")`` is
    "has upper case in the repository".
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


def _amounts(spec: Manifest, at: str) -> Iterator[_Value]:
    """Yield the amounts of memory and disk that are too small, of a spec that has its defaults."""
    holders = [(f"{path}.resources", section(c, "resources")) for path, c in _containers(spec)]
    holders.append(("resources", section(spec, "resources")))
    for path, resources in holders:
        for name in ("memory", "ephemeral-storage"):
            for field in ("limits", "requests"):
                amount: Any = section(resources, field).get(name)
                is_memory_limit = (name, field) == ("memory", "limits")
                where = f"{at}.{path}.{field}.{name}"
                if value := _too_small(where, amount, is_memory_limit=is_memory_limit):
                    yield value
                    break  # the request is what the limit is, or has the same mistake


def _folders(pods: PodSet) -> Iterator[_Value]:
    """Yield the sizes of empty folders that are too small."""
    volumes = items(section(pods.template, "spec"), "volumes")
    for index, volume in enumerate(volumes):
        size: Any = section(volume, "emptyDir").get("sizeLimit")
        path = f"{pods.path}.volumes[{index}].emptyDir.sizeLimit"
        if size is not UNKNOWN and (value := _too_small(path, size, is_memory_limit=False)):
            yield value


def _too_small(path: str, quantity: Any, *, is_memory_limit: bool) -> _Value | None:
    """Return an amount of bytes that nothing runs with; zero means no limit."""
    amount = milli(quantity)
    if not 0 < amount < (_TOO_LITTLE if is_memory_limit else _IMPOSSIBLE):
        return None
    field = path.rpartition("resources.")[2].rpartition("emptyDir.")[2]
    message = f"{field} is {quantity}, which is {amount / WHOLE:,.10g} bytes"
    if is_memory_limit:
        message += ", and a container needs 6 MiB or more to start"
    remedy = "Write the amount with its unit, such as 512Mi or 16Gi."
    is_certain = is_memory_limit and amount < _IMPOSSIBLE
    return _Value(path, message, remedy, is_certain)
