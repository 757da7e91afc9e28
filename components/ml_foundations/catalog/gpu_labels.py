"""The labels by which GPU nodes are selected: GPU Feature Discovery's, and GKE's own."""

from collections.abc import Iterator, Sequence
from typing import Any

from ml_foundations.catalog.machine_types import Accelerator
from ml_foundations.kubernetes import labels


def flavor_labels(gpu: Accelerator) -> dict[str, str]:
    """Return the labels that all nodes with these GPUs have, whoever labels them."""
    # GKE's label of sharing has the strategy, which a name does not have.
    node_labels = {labels.GPU_PRODUCT: gpu.product}
    if len(gpu.types) == 1:
        node_labels[labels.GKE_ACCELERATOR] = gpu.types[0]
    if gpu.partition:
        node_labels[labels.GKE_PARTITION_SIZE] = gpu.partition
    return node_labels


def gpu_terms(gpus: Sequence[Accelerator], *, by_gke: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield lists of label expressions. A node that meets all of one list has one of these GPUs."""
    if not by_gke:
        yield [_is_in(labels.GPU_PRODUCT, [gpu.product for gpu in gpus]), *beyond_product(gpus)]
        return
    # GKE has labels for type, partition and sharing, where GPU Feature Discovery has one product.
    for partition, shared in dict.fromkeys((gpu.partition, gpu.shared) for gpu in gpus):
        alike = [gpu for gpu in gpus if (gpu.partition, gpu.shared) == (partition, shared)]
        expressions = [
            _is_in(labels.GKE_ACCELERATOR, [name for gpu in alike for name in gpu.types])
        ]
        if partition:
            expressions.append(_is_in(labels.GKE_PARTITION_SIZE, [partition]))
        elif any(model.mig_profiles for gpu in alike for model in gpu.models):
            expressions.append({"key": labels.GKE_PARTITION_SIZE, "operator": "DoesNotExist"})
        operator = "Exists" if shared else "DoesNotExist"
        yield [*expressions, {"key": labels.GKE_SHARING_STRATEGY, "operator": operator}]


def beyond_product(gpus: Sequence[Accelerator]) -> list[dict[str, Any]]:
    """Return what nodes must have in addition to the product: A3 Mega shares that of A3 High."""
    if all(gpu.is_plain for gpu in gpus):
        return []
    return [_is_in(labels.GKE_ACCELERATOR, [name for gpu in gpus for name in gpu.types])]


def exact_terms(gpu: Accelerator) -> Iterator[list[dict[str, Any]]]:
    """Yield lists of expressions over the labels of GKE's nodes. Each matches only these GPUs."""
    # The product label alone is enough if no other accelerator type has the same one.
    of_type = _is_in(labels.GKE_ACCELERATOR, gpu.types)
    for term in gpu_terms([gpu], by_gke=False):
        yield term if gpu.name == gpu.product or of_type in term else [*term, of_type]
    yield from gpu_terms([gpu], by_gke=True)


def _is_in(key: str, values: Sequence[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(dict.fromkeys(values))}
