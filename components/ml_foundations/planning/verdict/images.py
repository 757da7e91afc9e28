"""Images that are named by a tag alone, which may be moved to another image."""

from collections.abc import Iterator
from typing import Any

from ml_foundations.kubernetes.objects import items, section
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.verdict.findings import Finding, Severity


def image_findings(workload: Workload) -> Iterator[Finding]:
    """Yield a warning for each image of a workload's pods that is named without a digest.

    An image that is never pulled is part of the node's own, and has none.
    """
    for pod_set in workload.pods:
        pod = section(pod_set.template, "spec")
        lists = [(key, items(pod, key)) for key in ("initContainers", "containers")]
        places = [(key, *place) for key, containers in lists for place in enumerate(containers)]
        for key, index, container in places:
            image: Any = container.get("image") if container is not UNKNOWN else UNKNOWN
            is_tagged = isinstance(image, str) and "@" not in image
            if is_tagged and container.get("imagePullPolicy") != "Never":
                path = f"{pod_set.path}.{key}[{index}].image"
                message = f"the image {image} has no digest: its tag may be moved to another image"
                remedy = "Name it as image:tag@sha256:…."
                yield Finding(
                    "image-digest", Severity.WARNING, str(workload), path, message, remedy
                )
