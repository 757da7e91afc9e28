"""Servers whose prompts are processed by other pods than their answers (prefill and decode)."""

import json
import re
from collections.abc import Iterator
from typing import Any, Self

from pydantic import Field, PrivateAttr
from typing_extensions import override

from ml_foundations.catalog import inference_gateways as facts
from ml_foundations.catalog.fabric_pods import CROSS_RAIL
from ml_foundations.catalog.versions import ROUTING_SIDECAR_IMAGE
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputText, Quantity
from ml_foundations.kubernetes import labels as known
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.workloads.fabric import PodFabric
from ml_foundations.workloads.fabric_rules import used_fabric
from ml_foundations.workloads.server_groups import GroupedServerSpec

_SIDECAR = "routing-proxy"
_KEEP_ALIVE_SECONDS = "120"
"""The sidecar keeps idle connections for 90 s, and a server that closes them before breaks requests
(llm-d, guides/pd-disaggregation)."""
_KV_ROLES = {facts.PREFILL: "kv_producer", facts.DECODE: "kv_consumer"}
_OWN_ARGUMENT = re.compile(r"--(port|kv-transfer-config)(=|$)")


class PrefillServers(Spec):
    """Pods that process prompts for the pods of an InferenceService, which then answer."""

    replicas: int = Field(1, ge=1)
    """The number of pods, or of groups. The default is 1."""
    nodes: int = Field(1, ge=1)
    """Nodes of each replica. The default is 1."""
    gpus: int | None = Field(None, ge=1)
    """GPUs of each pod. By default, those of the service."""
    cpu: Quantity | None = None
    """CPU that each pod requests. By default, that of the service."""
    memory: Quantity | None = None
    """Memory that each pod requests. By default, that of the service."""
    arguments: list[InputText] | None = None
    """Arguments of the command. By default, those of the service."""


class DividedServerSpec(GroupedServerSpec):
    """Arguments of servers that may have other pods for prompts than for answers."""

    prefill: PrefillServers | None = None
    """Pods that process prompts (prefill). The service's own pods then only answer (decode).

    vLLM moves its cache from one to the other by NIXL. The endpoint picker of an InferenceGateway
    chooses a pod of each for a long prompt; without one, prefill pods get no requests. By default,
    each pod does both.
    """
    _is_prefill: bool = PrivateAttr(default=False)

    @property
    def role(self) -> str | None:
        """The role of its pods: prefill or decode; None if they do both."""
        if self._is_prefill:
            return facts.PREFILL
        return None if self.prefill is None else facts.DECODE

    @property
    def role_labels(self) -> dict[str, str]:
        """The label by which an endpoint picker knows the role."""
        return {known.LLMD_ROLE: self.role} if self.role else {}

    @property
    def answering_labels(self) -> dict[str, str]:
        """The labels that only pods with the server's port have."""
        return {known.LLMD_SERVING: "true"} if self.role else {}

    @property
    def prefill_spec(self) -> Self | None:
        """The arguments of the pods that process prompts."""
        if self.prefill is None:
            return None
        given = without_none(self.prefill.model_dump())
        name = f"{self.deployment}-{facts.PREFILL}"
        alone = {"deployment_name": name, "prefill": None, "autoscaling": None}
        launched = {} if self.prefill.nodes > 1 else {"launcher": None}
        spec = self.model_copy(update={**given, **alone, **launched})
        spec._is_prefill = True
        return spec

    @property
    @override
    def pod_labels(self) -> dict[str, str]:
        return super().pod_labels | self.role_labels

    @property
    @override
    def serving_labels(self) -> dict[str, str]:
        return super().serving_labels | self.role_labels

    @property
    @override
    def scraped_labels(self) -> dict[str, str]:
        return self.app_labels | self.answering_labels if self.role else self.serving_labels

    @property
    @override
    def fabric(self) -> PodFabric:
        return used_fabric(self.gpu_fabric, self.connected_nodes, self.gpus)

    @property
    @override
    def connected_nodes(self) -> int:
        # NIXL moves caches by RDMA, also between pods of one node each. It cannot use TCPX.
        is_moved = self.role and self.gpu_fabric is not None and self.gpu_fabric.kind == "rdma"
        return max(self.nodes, 2 if is_moved else 1)

    @property
    @override
    def own_env(self) -> dict[str, dict[str, Any]]:
        if self.role is None:
            return super().own_env
        variables = {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": {
                "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}
            },
            "VLLM_NIXL_SIDE_CHANNEL_PORT": {"value": str(facts.NIXL_PORT)},
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": {"value": _KEEP_ALIVE_SECONDS},
        }
        if self.fabric.is_used:
            variables |= {name: {"value": value} for name, value in CROSS_RAIL.items()}
        return super().own_env | variables

    @property
    def engine_port(self) -> int:
        """The port that vLLM listens on; a decode pod's sidecar has the server's own."""
        return facts.ENGINE_PORT if self.role == facts.DECODE else self.port

    @property
    @override
    def program_arguments(self) -> list[Any] | None:
        if self.role is None:
            return super().program_arguments
        transfer = {"kv_connector": "NixlConnector", "kv_role": _KV_ROLES[self.role]}
        arguments = [f"--port={self.engine_port}", f"--kv-transfer-config={json.dumps(transfer)}"]
        return [*(super().program_arguments or []), *arguments]

    @override
    def target_port(self, name: str) -> int | str:
        # Kubernetes looks for the name among containers alone, and the sidecar is none of them.
        return self.port if self.role and name == self.port_name else name

    @override
    def container(self) -> dict[str, Any]:
        fields = super().container()
        if self.role:
            fields["ports"][0]["containerPort"] = self.engine_port
            nixl = {"name": "nixl", "containerPort": facts.NIXL_PORT, "protocol": "TCP"}
            fields["ports"].append(nixl)
        return fields

    def sidecars(self) -> dict[str, Any]:
        """Return the fields of a pod that answers: the sidecar that calls prefill pods."""
        if self.role != facts.DECODE:
            return {}
        security = {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        ports = [f"--port={self.port}", f"--vllm-port={facts.ENGINE_PORT}"]
        amounts = {"cpu": "1", "memory": "1Gi"}
        sidecar = {
            "name": _SIDECAR,
            "image": ROUTING_SIDECAR_IMAGE,
            "restartPolicy": "Always",
            "args": [*ports, "--kv-connector=nixlv2", "--secure-proxy=false"],
            "ports": [{"name": "sidecar", "containerPort": self.port, "protocol": "TCP"}],
            "resources": {"requests": amounts, "limits": amounts},
            "securityContext": security,
        }
        return {"initContainers": [sidecar]}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        prefill = self.prefill_spec
        if prefill is None:
            return
        yield from self._role_errors()
        reported = {*super().errors(), *self._role_errors()}
        for path, reason in [*GroupedServerSpec.errors(prefill), *prefill._role_errors()]:
            if (path, reason) not in reported:
                field = path.partition("[")[0]
                yield f"prefill.{path}" if field in PrefillServers.model_fields else path, reason
        for spec in (self, prefill):
            if spec.started_by == "none":
                reason = "is none, and prefill needs arguments of vLLM; choose another launcher"
                yield "launcher", reason
        claims = [(spec.claim_template(), spec.interfaces_template()) for spec in (self, prefill)]
        if claims[0] != claims[1]:
            yield "prefill.gpus", "claims other devices than gpus; set both to the same number"

    def _role_errors(self) -> Iterator[tuple[str, str]]:
        """Yield what contradicts the arguments that the component adds for a role."""
        if not self.is_grouped:
            yield from self.script_errors("argument prefill")
            yield from self.parallel_errors()
        for name, number in self.port_numbers.items():
            if number in (facts.ENGINE_PORT, facts.NIXL_PORT) or name == "nixl":
                field = "port" if number == self.port else "ports"
                ports = f"{facts.ENGINE_PORT} (vLLM) and {facts.NIXL_PORT} (nixl)"
                yield field, f"{name} ({number}) is taken: decode pods use {ports}; choose another"
        arguments: list[Any] = self.arguments or []
        for index, word in enumerate(arguments):
            if isinstance(word, str) and _OWN_ARGUMENT.match(word):
                yield f"arguments[{index}]", f"{word} is set by prefill; leave it out, or set port"

    @override
    def warnings(self) -> Iterator[str]:
        yield from super().warnings()
        if (prefill := self.prefill_spec) is not None:
            reported = {*super().warnings()}
            yield from (text for text in prefill.warnings() if text not in reported)
