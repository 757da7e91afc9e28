"""Containers with GPUs whose loader does not look for libraries where GKE mounts its driver."""

import re
from collections.abc import Iterator, Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.workloads import PodSet

_VARIABLE = "LD_LIBRARY_PATH"
_PATH = "/usr/local/nvidia/lib64"
"""The folder of GKE's driver (container-engine-accelerators, cmd/nvidia_gpu, ``-container-path``).
The images of CUDA have it in the variable, except those of 12.8 and 12.9."""
_WITHOUT_PATH = re.compile(r"(^|/)vllm-openai:v0\.(9|10)\.")
"""Images of CUDA 12.8 that were not corrected: vllm issue 18859, and pull request 25766 after
v0.10.2. The image of v0.23.0 has the folder, and so have those of CUDA 13."""

_PUBLISHED = re.compile(r"(docker\.io/)?vllm/")


def driver_not_found(pods: PodSet, nodes: Sequence[NodeClass]) -> Iterator[Refusal]:
    """Yield containers with GPUs that do not find the driver on nodes with GKE's own."""
    versions = [node.labels.get(labels.GKE_GPU_DRIVER_VERSION) for node in nodes]
    if not any(version in ("default", "latest") for version in versions):
        return
    for index, container in enumerate(items(section(pods.template, "spec"), "containers")):
        # GKE mounts the driver only in containers with GPUs.
        has_gpus = labels.GPU_RESOURCE in section(container, "resources", "limits")
        if has_gpus and (why := _missing(container)):
            where = f"and GKE's own driver is in {_PATH}: CUDA finds no GPU"
            remedy = f"Set {_VARIABLE} to {_PATH}:/usr/local/cuda/lib64."
            path = f"{pods.path}.containers[{index}].env"
            yield Refusal("driver-path", path, f"{why}, {where}", remedy)


def _missing(container: Manifest) -> str:
    """Return why the folder is missing in a container's variable; empty if it may be there."""
    variables = items(container, "env")
    values = [item.get("value") for item in variables if item.get("name") == _VARIABLE]
    if _PATH in str([container.get("command"), container.get("args")]):
        return ""
    for value in values[-1:]:
        # Kubernetes knows no variable of the image. Another variable may have the folder.
        folders = value.replace(f"$({_VARIABLE})", "") if isinstance(value, str) else _PATH
        is_missing = _PATH not in folders and "$(" not in folders
        return f"its {_VARIABLE} ({value}) replaces that of the image" if is_missing else ""
    image = str(container.get("image"))
    is_without = _WITHOUT_PATH.search(image) and not items(container, "envFrom")
    # An image of another registry may have been changed.
    like = "" if _PUBLISHED.match(image) else "is named like one that "
    return f"the image {image} {like}sets no {_VARIABLE} for it" if is_without else ""
