"""A server whose replicas are groups of pods on several nodes: a LeaderWorkerSet."""

import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.types import MAX_LABEL, Name
from ml_foundations.kubernetes import labels as known
from ml_foundations.kubernetes.objects import Manifest, api_object
from ml_foundations.workloads.fabric import PodFabric
from ml_foundations.workloads.fabric_rules import fabric_errors, fabric_warnings, used_fabric
from ml_foundations.workloads.gpu_fabric import GpuFabric
from ml_foundations.workloads.pod_template import pod_template
from ml_foundations.workloads.serving import ServerSpec

LEADERS = {known.LWS_WORKER_INDEX: "0"}
"""The label that LeaderWorkerSet gives to leaders alone."""
_HASH = "-5d9f8c7b64"
"""What the controller of StatefulSets adds to a name in a label of its pods."""
_LEADER = "$(LWS_LEADER_ADDRESS)"
_SIZE = "$(LWS_GROUP_SIZE)"
_INDEX = "$(LWS_WORKER_INDEX)"
"""Variables that LeaderWorkerSet puts first in each container, so that arguments may use them."""
_RAY_SCRIPT = "/vllm-workspace/examples/online_serving/multi-node-serving.sh"
"""vLLM's script, which starts Ray and waits for the group (vllm, examples/online_serving)."""
_RPC_PORT = 5555
_SERVE = ["vllm", "serve"]
_TENSOR = ("--tensor-parallel-size", "-tp", "--tensor-parallel")
_PIPELINE = ("--pipeline-parallel-size", "-pp", "--pipeline-parallel")
_LOCAL_ENGINES = ("--data-parallel-size-local", "-dpl")
_ENGINES = ("--data-parallel-size", "-dp")
_ELSEWHERE = ("--distributed-executor-backend", "--nnodes", "--data-parallel-address")
"""Arguments with which an engine may use GPUs of other pods."""
_OWN_ARGUMENT = re.compile(
    r"--(nnodes|node-rank|master-addr|master-port|headless|distributed-executor-backend"
    r"|data-parallel-(size|size-local|address|rpc-port|start-rank))(=|$)"
)
"""The arguments of vLLM that a launcher sets (vLLM, docs/serving)."""


class GroupedServerSpec(ServerSpec):
    """Arguments of servers whose replicas may have several nodes."""

    deployment_name: Name | None = None
    """The name of the Deployment, or of the LeaderWorkerSet. By default, service_name."""
    replicas: int = Field(1, ge=0)
    """The number of pods, or of groups. The default is 1. 0 stops a server without autoscaling
    whose replicas have one node. With autoscaling, the fewest."""
    nodes: int = Field(1, ge=1)
    """Nodes of each replica. The default is 1.

    With more, each replica is a group of pods, one on a node: a leader, which answers requests, and
    its workers. They are a LeaderWorkerSet, which needs a LeaderWorkerSetController. A group is
    scaled, updated and restarted as a whole.
    """
    launcher: Literal["vllm", "vllm-ray", "vllm-data-parallel", "none"] | None = None
    """How the pods of a group start: vllm, vllm-ray, vllm-data-parallel or none.

    vllm adds the arguments of vLLM's own processes (--nnodes, --node-rank, --headless). vllm-ray
    starts Ray by vLLM's script, which the image must have. vllm-data-parallel runs an engine for
    each --tensor-parallel-size GPUs. none changes nothing: arguments may use $(LWS_LEADER_ADDRESS),
    $(LWS_GROUP_SIZE) and $(LWS_WORKER_INDEX). The default is vllm.
    """
    gpu_fabric: GpuFabric | None = None
    """The network between the GPUs of its nodes, such as GpuNodePool.gpu_fabric.

    Pods of a group that request all GPUs of a node get it, as those of a DistributedTraining do:
    they run as root, in a namespace of the Pod Security level privileged.
    """
    rendezvous_port: int = Field(29500, ge=1, le=65535)
    """The port of a leader for the processes of its group. The default is 29500."""
    surge: bool = False
    """Start a new pod or group before an old one stops in a rollout. It needs spare GPUs. The
    default is false."""

    @property
    def deployment(self) -> str:
        """The name of the Deployment or of the LeaderWorkerSet."""
        return self.deployment_name or self.workload_name

    @property
    def is_grouped(self) -> bool:
        """Return whether each replica has several nodes."""
        return self.nodes > 1

    @property
    @override
    def fabric(self) -> PodFabric:
        return used_fabric(self.gpu_fabric, self.nodes, self.gpus)

    @property
    def connected_nodes(self) -> int:
        """The nodes whose pods exchange data."""
        return self.nodes

    @property
    @override
    def serving_labels(self) -> dict[str, str]:
        return self.app_labels | (LEADERS if self.is_grouped else {})

    @property
    @override
    def program(self) -> list[str] | None:
        # A fabric's script comes before a command, also before the image's own, which is vLLM's.
        is_vllm = self.is_grouped and self.started_by != "none"
        needs_command = is_vllm and self.fabric.script is not None
        return self.fabric.command(self.command or (_SERVE if needs_command else None))

    @property
    def started_by(self) -> str:
        """The launcher."""
        return self.launcher or "vllm"

    @property
    def parallel(self) -> tuple[int, int] | None:
        """The tensor and the pipeline parallel size; None if an argument is not known yet."""
        words = self._words
        return None if words is None else (_size(words, _TENSOR), _size(words, _PIPELINE))

    @property
    def _words(self) -> list[str] | None:
        """The command and the arguments; None if a word is not known yet."""
        given: list[Any] = [*(self.command or []), *(self.arguments or [])]
        if not all(isinstance(word, str) for word in given):
            return None
        # A script is one word of the command.
        return [part for word in given for part in word.split()]

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from self._size_errors()
        if self.is_grouped:
            yield from self.peer_name_errors()
            yield from self._group_errors()
            yield from self._launch_errors()
            yield from self.parallel_errors()
            yield from fabric_errors(self)
        elif self.launcher is not None:
            yield "launcher", "starts a group of pods, and nodes is 1; set nodes, or leave it out"

    @override
    def warnings(self) -> Iterator[str]:
        yield from fabric_warnings(self, self.connected_nodes)

    def _group_errors(self) -> Iterator[tuple[str, str]]:
        longest = MAX_LABEL - len(f"-{self.most_replicas - 1}{_HASH}")
        if len(self.deployment) > longest:
            reason = f"is {self.deployment}, and a group adds its number and a hash"
            yield "deployment_name", f"{reason}: set it to at most {longest} characters"
        if self.topology_slices:
            reason = "divides the pods of a workload, and a group is placed as a whole"
            yield "topology_slices", f"{reason}; leave it out, and set topology"
        for container in self.overrides_of("containers", self.container_name):
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if container.get(probe):
                    reason = "is for all pods, and workers answer no requests: set probes instead"
                    yield f"pod_overrides.containers.{probe}", reason

    @property
    def most_replicas(self) -> int:
        """The most pods or groups that there ever are."""
        return self.replicas

    def script_errors(self, argument: str, other_fix: str = "") -> Iterator[tuple[str, str]]:
        """Yield a command to which an argument of the component cannot add arguments."""
        if "-c" in (self.command or [])[:2]:
            reason = f"is a script, to which the {argument} cannot add arguments"
            yield "command", f"{reason}; set command to [vllm, serve]{other_fix}"

    def _launch_errors(self) -> Iterator[tuple[str, str]]:
        if self.started_by == "none":
            return
        if self.rendezvous_port in self.port_numbers.values():
            reason = f"is {self.rendezvous_port}, which serves already; choose another"
            yield "rendezvous_port", reason
        yield from self.script_errors("launcher", ", or launcher to none")
        arguments: list[Any] = self.arguments or []
        for index, word in enumerate(arguments):
            if isinstance(word, str) and _OWN_ARGUMENT.match(word):
                reason = f"{word} is set by the launcher {self.started_by}; leave it out"
                yield f"arguments[{index}]", reason

    def _size_errors(self) -> Iterator[tuple[str, str]]:
        """Yield parallel sizes for more GPUs than a replica has: vLLM does not start.

        Source: vllm, config/parallel.py. Other launchers of groups have their own errors, and with
        some arguments the GPUs may be elsewhere.
        """
        words = self._words
        for names in (_TENSOR, _PIPELINE, _ENGINES):
            value = _given(words or [], names)
            # Scripts have quotes and variables.
            is_plain = value is not None and re.fullmatch(r"[-+.\w]*", value)
            if is_plain and not re.fullmatch("0*[1-9][0-9]*", str(value)):
                yield "arguments", f"{names[0]} is {value!r}; set it to a whole number from 1 on"
        if words is None or not self.gpus or (self.is_grouped and self.started_by != "none"):
            return
        if any(word.replace("_", "-").startswith(_ELSEWHERE) for word in words):
            return
        # Each engine has its own GPUs. Those of a group may be on several nodes.
        engines = 1 if self.is_grouped else _size(words, _LOCAL_ENGINES, _size(words, _ENGINES))
        sizes = (_size(words, _TENSOR), _size(words, _PIPELINE), engines)
        required = prod(sizes)
        present = self.nodes * self.gpus
        if required > present:
            parallel = "tensor, pipeline and data parallel sizes are {}, {} and {}".format(*sizes)
            fix = f"set gpus to {-(-required // self.nodes)}, or smaller sizes"
            yield "arguments", f"{parallel}: {required} GPUs, and a replica has {present}; {fix}"

    def parallel_errors(self) -> Iterator[tuple[str, str]]:
        """Yield parallel sizes that do not use the GPUs of a replica."""
        if self.started_by == "none" or self.parallel is None:
            return
        if not self.gpus:
            yield "gpus", "is 0, and a group of vLLM needs GPUs; set it to those of a node"
            return
        tensor, pipeline = self.parallel
        product = tensor * pipeline
        of_group = self.nodes * self.gpus
        has = f"tensor times pipeline parallel is {tensor} times {pipeline}"
        # On one node, vLLM may run several engines, with arguments of its own.
        if self.started_by == "vllm-data-parallel" or not self.is_grouped:
            if product <= self.gpus and self.gpus % product:
                fix = f"set --tensor-parallel-size to a divisor of {self.gpus}"
                yield "arguments", f"{has}, which does not divide the {self.gpus} GPUs; {fix}"
        elif product != of_group:
            sizes = f"--tensor-parallel-size={self.gpus} and --pipeline-parallel-size={self.nodes}"
            group = f"a group has {of_group} GPUs ({self.nodes} nodes of {self.gpus})"
            yield "arguments", f"{has} = {product}, but {group}; set {sizes}"

    def leader_worker_set(self, leader: dict[str, Any], pod: dict[str, Any]) -> Manifest:
        """Return the LeaderWorkerSet, with more fields of the leader's container and of its pod."""
        templates = {
            "leaderTemplate": self._template(leader | _launch(self, is_leader=True), pod),
            "workerTemplate": self._template(_launch(self, is_leader=False)),
        }
        rollout = {"maxSurge": 0, "maxUnavailable": self.max_unavailable}
        if self.surge:
            rollout = {"maxSurge": 1, "maxUnavailable": 0}
        spec = {
            "replicas": self.replicas,
            # A pod that gives up while others wait for a node restarts alone: a new group would
            # give back the nodes that are there.
            "leaderWorkerTemplate": {
                "size": self.nodes,
                "restartPolicy": "RecreateGroupAfterStart",
                **templates,
            },
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rollout},
            # Otherwise its headless Service would have the name of the Service for requests.
            "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
        }
        awaited = {"pulumi.com/waitFor": "condition=Available"}
        metadata = self.metadata(name=self.deployment, annotations=awaited)
        return api_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", metadata, spec=spec)

    def _template(
        self, container: dict[str, Any], pod: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        template = pod_template(self, "Always", container, pod=pod)
        if self.topology not in (None, "unconstrained"):
            # Otherwise Kueue looks for a domain for the leader, and for another for its workers.
            group = {known.KUEUE_GROUP: self.workload_name}
            template["metadata"]["annotations"] = group | template["metadata"]["annotations"]
        return template


def _launch(spec: GroupedServerSpec, *, is_leader: bool) -> dict[str, Any]:
    """Return the command and the arguments of a leader, or of a worker."""
    given = spec.program_arguments or []
    # The script's own 300 s are less than GKE needs to buy the last node of a group.
    patience = f"--ray_init_timeout={spec.patience_seconds}"
    match spec.started_by:
        case "vllm":
            master = [f"--master-addr={_LEADER}", f"--master-port={spec.rendezvous_port}"]
            ranks = [f"--nnodes={_SIZE}", f"--node-rank={_INDEX}", *master]
            rest = ranks if is_leader else [*ranks, "--headless"]
            return {"args": [*given, "--distributed-executor-backend=mp", *rest]}
        case "vllm-ray" if is_leader:
            start = f"bash {_RAY_SCRIPT} leader --ray_cluster_size=$LWS_GROUP_SIZE {patience}"
            return _script(spec, f'{start} && exec "$@"', given)
        case "vllm-ray":
            worker = ["worker", f"--ray_address={_LEADER}", patience]
            return {"command": spec.fabric.command(["bash", _RAY_SCRIPT]), "args": worker}
        case "vllm-data-parallel":
            tensor, pipeline = spec.parallel or (1, 1)
            local = spec.gpus // (tensor * pipeline)
            sizes = [f"--data-parallel-size={spec.nodes * local}"]
            sizes += [f"--data-parallel-size-local={local}", f"--data-parallel-address={_LEADER}"]
            more = [*given, *sizes, f"--data-parallel-rpc-port={_RPC_PORT}"]
            rank = f"--data-parallel-start-rank=$((LWS_WORKER_INDEX * {local}))"
            return _script(spec, f'exec "$@" {rank}', more if is_leader else [*more, "--headless"])
        case _:
            return {}


def _script(spec: GroupedServerSpec, script: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return a shell that runs the server's command with its arguments, after or with others."""
    shell = spec.fabric.command(["sh", "-c", script, "server"])
    return {"command": shell, "args": [*(spec.command or _SERVE), *arguments]}


def _given(words: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value of an argument with one of these names; of several, the last.

    vLLM takes underscores for dashes, and argparse a name without its end.
    """
    value_given: str | None = None
    for index, word in enumerate(words):
        name, separator, value = word.partition("=")
        if name.replace("_", "-") in names:
            value_given = value if separator else "".join(words[index + 1 : index + 2])
    return value_given


def _size(words: Sequence[str], names: Sequence[str], default: int = 1) -> int:
    """Return the number that is given for an argument with one of these names, or the default."""
    value = _given(words, names) or ""
    return int(value) or default if value.isdecimal() else default
