"""Findings about the GPU Operator: a container toolkit that stops its nodes, and drivers that do not fit their GPUs."""

from collections.abc import Iterator, Sequence

from ml_foundations.catalog import versions
from ml_foundations.catalog.machine_types import gpu_model
from ml_foundations.catalog.operator_nodes import CONFIG_SOURCE, CONTAINERD_2_SINCE, Operator
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.trees import Unknown
from ml_foundations.planning.input.program import Resource, operator_of, values_of
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.verdict.findings import Finding, Severity


def gpu_operator_findings(
    resources: Sequence[Resource], nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    """Yield what keeps nodes from advertising GPUs: rules ``container-toolkit`` and ``gpu-driver``."""
    operator, values = operator_of(resources), values_of(resources, versions.GPU_OPERATOR)
    if not isinstance(operator, Operator) or values is None or isinstance(values, Unknown):
        return
    if Operator.of(values).breaks_networking:
        yield _container_toolkit(is_certain=operator.breaks_networking)
    for node in nodes:
        yield from _gpu_driver(operator, node)


def _container_toolkit(*, is_certain: bool) -> Finding:
    when = "" if is_certain else f"if the cluster has GKE {CONTAINERD_2_SINCE} or later, "
    message = (
        f"{when}its container toolkit replaces the settings of containerd by ones without GKE's "
        "network plugin: no pod starts on its nodes, and they never advertise GPUs"
    )
    remedy = f"Set {CONFIG_SOURCE} to file in toolkit.env (a GpuOperator does), or disable toolkit."
    severity = Severity.ERROR if is_certain else Severity.WARNING
    return Finding("container-toolkit", severity, "GPU Operator", "toolkit.env", message, remedy)


def _gpu_driver(operator: Operator, node: NodeClass) -> Iterator[Finding]:
    """Judge one pool; only on Ubuntu does the operator install the driver."""
    is_left_to_operator = node.labels.get(labels.GKE_NO_DEVICE_PLUGIN) == "true"
    if not is_left_to_operator or node.labels.get(labels.GKE_OS_DISTRIBUTION) != "ubuntu":
        return
    model = gpu_model(str(node.labels.get(labels.GKE_ACCELERATOR)), node.labels)
    fault = operator.driver_fault(model.architecture) if model else ""
    if model is None or not fault:
        return
    message = f"its GPUs are {model.accelerator_type} ({model.architecture}), and {fault}"
    remedy = (
        "Set driver.version (driver.kernelModuleType) of the GPU Operator, or use driver installer."
    )
    yield Finding("gpu-driver", Severity.ERROR, f"NodePool {node.name}", "driver", message, remedy)
