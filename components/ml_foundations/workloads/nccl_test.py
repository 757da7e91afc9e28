"""The benchmark of a pool's network between GPUs, as the acceptance test of the pool."""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import pulumi
from pydantic import Field, ValidationError, model_validator
from typing_extensions import override

from ml_foundations.catalog.fabric_pods import (
    NCCL_BANDWIDTHS,
    NCCL_TEST_IMAGES,
    FabricTest,
    fabric_pods,
)
from ml_foundations.catalog.machine_types import gpu_by_name
from ml_foundations.component.base import OptionalChild
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.types import NonEmpty, Quantity
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.typed_args import NcclTestComponent
from ml_foundations.workloads.gpu_fabric import GpuFabric
from ml_foundations.workloads.several_nodes import SeveralNodesSpec

_TOLERANCE = 0.9
"""The part of the known bandwidth that a good pool reaches."""


class NcclTestSpec(SeveralNodesSpec):
    """Arguments of an NcclTest."""

    image: NonEmpty = ""
    """The container image. By default, Google's image with the NCCL tests for the network."""
    gpus: int = Field(0, ge=0)
    """GPUs of each pod. By default, all of a node."""
    cpu: Quantity | None = "64"
    """CPU that each pod requests. The default is 64, a third of the smallest node with such a
    network. The namespace's default limit, such as 500m, would slow the test down."""
    memory: Quantity | None = "512Gi"
    """Memory that each pod requests and may use. The default is 512Gi."""
    benchmark: Literal["all_gather", "all_reduce", "alltoall", "reduce_scatter"] = "all_gather"
    """The collective operation: all_gather, all_reduce, alltoall or reduce_scatter. The default is
    all_gather."""
    minimum_bus_bandwidth: float | None = Field(None, gt=0)
    """The bus bandwidth in GB/s below which the test fails. By default, 90 % of what Google's
    documentation shows for all_gather; without a known value, any bandwidth is enough."""
    backoff_limit: int | None = Field(0, ge=0)
    """Failures of single pods that are retried. The default is 0."""
    run_seconds: int = Field(3600, ge=1)
    """The most seconds that the benchmark may run, from the time when all pods run. Waiting for
    nodes does not count. The default is 3600."""
    active_deadline_seconds: int | None = Field(None, ge=1)
    """The most seconds from the start of the Job, in which its pods may still wait for nodes. By
    default, only run_seconds limits it."""

    @model_validator(mode="before")
    @classmethod
    def _of_the_network(cls, given: Any) -> Any:
        """Complete the arguments by those that follow from gpu_fabric."""
        with suppress(ValidationError, AttributeError):
            fabric = GpuFabric.model_validate(given.get("gpu_fabric") or given.get("gpuFabric"))
            derived = {"gpus": fabric.gpus_per_node, "image": NCCL_TEST_IMAGES[fabric.kind]}
            return derived | without_none(given)
        return given

    @property
    def expected_bus_bandwidth(self) -> float | None:
        """The known bus bandwidth in GB/s."""
        if len(self.models) != 1 or self.benchmark != "all_gather":
            return None
        return NCCL_BANDWIDTHS.get(gpu_by_name(self.models[0]).accelerator_type)

    @property
    def required_bus_bandwidth(self) -> float:
        """The bus bandwidth in GB/s that it must reach."""
        expected = self.expected_bus_bandwidth or 0
        return self.minimum_bus_bandwidth or round(expected * _TOLERANCE, 1)

    @property
    def test(self) -> FabricTest:
        """The benchmark in the image; any of them without gpu_fabric, which is an error."""
        kind = self.gpu_fabric.kind if self.gpu_fabric else "rdma"
        return fabric_pods()[kind].test

    @property
    @override
    def program(self) -> list[str] | None:
        return ["bash", "-c", _script(self)]

    @property
    @override
    def own_annotations(self) -> dict[str, str]:
        return {**super().own_annotations, labels.RUN_SECONDS: str(self.run_seconds)}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.gpu_fabric is None:
            reason = "is required: set gpu_network of the pool, and pass the pool"
            yield "gpu_fabric", f"{reason} or its output gpu_fabric"
            return
        yield from super().errors()
        for field in ("command", "arguments"):
            if getattr(self, field) is not None:
                yield field, "belongs to the benchmark; leave it out, or use a DistributedTraining"
        if self.nodes < 2:
            yield "nodes", f"is {self.nodes}, and the network is between nodes; set it to 2 or more"
        elif not self.fabric.is_used:
            whole = self.gpu_fabric.gpus_per_node
            yield "gpus", f"is {self.gpus}, and whole nodes have {whole}; leave it out"

    @override
    def warnings(self) -> Iterator[str]:
        yield from super().warnings()
        if not self.required_bus_bandwidth:
            what = f"{self.benchmark} of {' or '.join(self.models) or 'any GPU'}"
            fix = "Set minimum_bus_bandwidth, or read the log"
            yield f"the bus bandwidth of {what} is not known, so any passes. {fix}"


class NcclTest(NcclTestComponent[NcclTestSpec]):
    """A benchmark of the network between the GPUs of several nodes.

    It runs a test of NVIDIA's nccl-tests in Google's image, and its Job fails if the bus bandwidth
    is below the minimum. Run it on a new pool before the trainings.
    """

    job_name: KnownOutput[str]
    """The name of the Job or the JobSet."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    required_bus_bandwidth: KnownOutput[float]
    """The bus bandwidth in GB/s that it must reach. 0 if any is enough."""
    job = OptionalChild("job")
    """The Job. None if it is a JobSet."""
    job_set = OptionalChild("jobset")
    """The JobSet. None if it is a Job."""


def _script(spec: NcclTestSpec) -> str:
    """Return the script of all pods. The first one runs the benchmark, by ssh and MPI.

    Then it lets the other pods end. A success policy would delete these pods, and the controller of
    Jobs counts them as failed after a conflict: job_controller.go deletes before it notes success.
    """
    ssh = "ssh -p 222 -o StrictHostKeyChecking=no"
    exported = " ".join(f"-x {name}" for name in spec.fabric.env)
    # The command of each GPU's process, for one size of messages.
    test = spec.test
    cpus = ["taskset", "-c", test.cpus] if test.cpus else []
    size = ["-b", test.size, "-e", test.size, "-g", "1", "-w", "5", "-n", "20", "-c", "0"]
    rank = spec.fabric.command([*cpus, f"{test.folder}/{spec.benchmark}_perf", *size]) or []
    return f"""\
set -o pipefail
{test.ssh}
passed=${{TMPDIR:-/tmp}}/passed
if [ "$JOB_COMPLETION_INDEX" != 0 ]; then
  trap 'exit 1' TERM
  until [ -e "$passed" ]; do sleep 1; done
  exit
fi
hosts=${{TMPDIR:-/tmp}}/hosts
for ((index = 0; index < {spec.nodes}; index++)); do
  host={spec.pod_address("$index")}
  until {ssh} -o ConnectTimeout=5 "$host" true; do sleep 5; done
  echo "$host slots={spec.gpus}" >> "$hosts"
done
timeout {spec.run_seconds} \\
mpirun --allow-run-as-root --hostfile "$hosts" -np {spec.nodes * spec.gpus} --bind-to none \\
  --mca plm_rsh_agent "{ssh}" --mca plm_rsh_no_tree_spawn 1 --mca orte_keep_fqdn_hostnames 1 \\
  --mca btl tcp,self --mca btl_tcp_if_include eth0 {exported} \\
  {shlex.join(rank)} |
awk -v minimum={spec.required_bus_bandwidth} '
  {{ print; fflush() }}
  /Avg bus bandwidth/ {{ measured = $NF }}
  END {{
    if (measured + 0 > 0 && measured + 0 >= minimum) exit 0
    print "The bus bandwidth is " measured + 0 " GB/s. The minimum is " minimum " GB/s."
    exit 1
  }}' || exit
while read -r host _; do
  {ssh} -n "$host" touch "$passed" || exit
done < "$hosts"
"""
