"""GPUs that a workload claims by dynamic resource allocation (DRA)."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import accelerator
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.selectors import devices

GPU_CLAIM = "gpus"
"""The name by which a pod and its container know their claim of GPUs."""


class GpuClaim(Spec):
    """A claim of GPUs by dynamic resource allocation (DRA), instead of by the device plugin."""

    device_class: str = Field(labels.GPU_DEVICE_CLASS, min_length=1)
    """The DeviceClass. The default is gpu.nvidia.com, a class of NVIDIA's DRA driver."""
    selectors: list[str] = []
    """CEL expressions that each GPU must meet, in addition to gpu, such as
    device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0."""
    template: Name | None = None
    """An existing ResourceClaimTemplate, such as one of DeviceClasses. By default, one is
    created."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.template is not None and self.model_fields_set & {"device_class", "selectors"}:
            yield "template", "already selects the GPUs; leave device_class and selectors out"

    def devices(self, models: Sequence[str], gpus: int) -> dict[str, Any]:
        """Return the devices of a pod's claim: of models by their names, or of any model."""
        # GPU Feature Discovery's label has dashes for spaces. DRA publishes the name itself.
        name = f'device.attributes["{labels.GPU_DEVICE_CLASS}"].productName.replace(" ", "-")'
        products = dict.fromkeys(accelerator(model).product for model in models)
        is_product = " || ".join(f'{name} == "{product}"' for product in products)
        conditions = [*([is_product] if is_product else []), *self.selectors]
        request = {"name": "gpu", "exactly": devices(self.device_class, gpus, conditions)}
        return {"requests": [request]}
