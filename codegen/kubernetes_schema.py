"""Write the schema of the kinds that planning judges, in short: their fields and types.

It is the OpenAPI of a replica's API server with the controllers of a rehearsal. Run it after an
update of one of them: ``python -m codegen.kubernetes_schema``. A test then names each field that
planning does not classify.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_foundations.kinds.kind_files import package_kinds
from ml_foundations.planning.input import field_catalog
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.control_plane import controllers, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import groups, toolchain

from codegen import write

_COLLECTION = re.compile(r"/v\w+/(namespaces/\{namespace\}/)?[a-z]+$")
_PREFIXES = (
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.apimachinery.pkg.",
    "io.k8s.api.",
    "io.x-k8s.",
    "io.",
)
_SCALARS = {
    "api.resource.Quantity": "quantity",
    "util.intstr.IntOrString": "integer or string",
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "string",
}
_SHARED = {
    "JobSet.spec.replicatedJobs.template": "batch.v1.JobTemplateSpec",
    "ClusterQueue.spec.namespaceSelector": "meta.v1.LabelSelector",
    "spec.leaderWorkerTemplate.leaderTemplate": "core.v1.PodTemplateSpec",
    "spec.leaderWorkerTemplate.workerTemplate": "core.v1.PodTemplateSpec",
    "spec.leaderWorkerTemplate.volumeClaimTemplates": "core.v1.PersistentVolumeClaim",
    "headGroupSpec.template": "core.v1.PodTemplateSpec",
    "workerGroupSpecs.template": "core.v1.PodTemplateSpec",
    "spec.submitterPodTemplate": "core.v1.PodTemplateSpec",
    "autoscalerOptions.env": "any",
    "autoscalerOptions.envFrom": "any",
    "autoscalerOptions.resources": "core.v1.ResourceRequirements",
    "autoscalerOptions.securityContext": "any",
    "autoscalerOptions.volumeMounts": "any",
    "RayService.spec.serveService": "core.v1.Service",
    "RayService.status": "any",
    "gcsFaultToleranceOptions": "any",
    "RayJob.spec.deletionStrategy": "any",
    "RayJob.status.rayClusterStatus": "any",
    "headGroupSpec.headService": "core.v1.Service",
    "ResourceFlavor.spec.nodeTaints": "core.v1.Taint",
    "ResourceFlavor.spec.tolerations": "core.v1.Toleration",
}
"""Types of Kubernetes that CustomResourceDefinitions repeat."""
for _kind in package_kinds().values():
    for _path, _embedded in _kind.embeds.items():
        _group = _kind.group.partition(".")[0]
        _SHARED[f"{_kind.kind}.{_path}"] = f"{_group}.{_kind.version}.{_embedded}.spec"

_BESIDE = {
    *(
        "v1 ConfigMap",
        "v1 Secret",
        "v1 Service",
        "v1 ServiceAccount",
        "policy/v1 PodDisruptionBudget",
    ),
    *(
        "v1 Endpoints",
        "v1 PodTemplate",
        "coordination.k8s.io/v1 Lease",
        "discovery.k8s.io/v1 EndpointSlice",
    ),
    *(f"networking.k8s.io/v1 {kind}" for kind in ("Ingress", "IngressClass", "NetworkPolicy")),
    *(
        f"rbac.authorization.k8s.io/v1 {of}{kind}"
        for of in ("", "Cluster")
        for kind in ("Role", "RoleBinding")
    ),
    *(
        f"admissionregistration.k8s.io/v1 {of}WebhookConfiguration"
        for of in ("Mutating", "Validating")
    ),
    *(
        f"admissionregistration.k8s.io/v1 {of}AdmissionPolicy{to}"
        for of in ("Mutating", "Validating")
        for to in ("", "Binding")
    ),
    *(
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        "apiregistration.k8s.io/v1 APIService",
        "apps/v1 ControllerRevision",
    ),
    *(
        f"flowcontrol.apiserver.k8s.io/v1 {kind}"
        for kind in ("FlowSchema", "PriorityLevelConfiguration")
    ),
    *(f"networking.k8s.io/v1 {kind}" for kind in ("IPAddress", "ServiceCIDR")),
    *(f"storage.k8s.io/v1 {kind}" for kind in ("VolumeAttachment", "VolumeAttributesClass")),
    *(
        f"kueue.x-k8s.io/v1beta2 {kind}"
        for kind in ("AdmissionCheck", "ProvisioningRequestConfig", "WorkloadPriorityClass")
    ),
}
"""Kinds that are deployed with workloads, and refused if a field has a value of another type."""

_Types = dict[str, dict[str, str]]


def main() -> None:
    """Ask a new API server, and write what it says."""
    tools = toolchain.ensure()
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = Rehearsal.of("bare", Path(folder))
        try:
            kwok.start(rehearsal, tools)
            for controller in controllers.CONTROLLERS:
                controllers.start(rehearsal, tools, controller, {})
            text = generated(Api(Access(rehearsal.kubeconfig)))
        finally:
            controllers.stop(rehearsal)
            kwok.delete(rehearsal)
    write({field_catalog.SCHEMA: text})


def versions() -> dict[str, str]:
    """The versions of what the schema is of."""
    pinned = {
        "k8s.io/kubernetes": groups.KUBERNETES,
        "sigs.k8s.io/kueue": groups.KUEUE,
        "sigs.k8s.io/jobset": groups.JOBSET,
        "sigs.k8s.io/lws": groups.LWS,
        "github.com/ray-project/kuberay/ray-operator": groups.KUBERAY,
    }
    return {module: group.pinned(module) for module, group in pinned.items()}


def generated(api: Api) -> str:
    """Return the schema: a line for each kind that can be created, and for each type of ours."""
    described: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    for path, group in sorted(api.get("/openapi/v3")["paths"].items()):
        if path.startswith("api"):
            # The address ends with a hash, for caches.
            described_group = api.get(group["serverRelativeURL"].partition("?")[0])
            described |= described_group.get("components", {}).get("schemas", {})
            kinds |= dict(_created(described_group["paths"]))
    types: _Types = {}
    for kind in sorted(kinds.keys() & (field_catalog.judged_kinds() | _BESIDE)):
        _collect(kinds[kind], described, types)
    lines = [f'"versions":{json.dumps(versions())}']
    lines += [
        f'"{name}":{{\n{_lines(table)}\n}}' for name, table in (("kinds", kinds), ("types", types))
    ]
    return "{" + ",\n".join(lines) + "}\n"


def _lines(table: dict[str, Any]) -> str:
    return ",\n".join(
        f"{json.dumps(key)}:{json.dumps(table[key], separators=(',', ':'))}"
        for key in sorted(table)
    )


def _created(paths: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The kinds that can be created, such as "apps/v1 Deployment", with their types."""
    for path, operations in paths.items():
        created = operations.get("post", {})
        if _COLLECTION.search(path) and (of := created.get("x-kubernetes-group-version-kind")):
            body = created["requestBody"]["content"]
            api_version = f"{of['group']}/{of['version']}".removeprefix("/")
            yield f"{api_version} {of['kind']}", _referred(next(iter(body.values()))["schema"])


def _referred(schema: Any) -> str:
    (holder,) = schema.get("allOf", [schema])
    return _short(holder["$ref"].rpartition("/")[2]) if "$ref" in holder else ""


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _scalar(path: str, schema: Any) -> str:
    """Return the name of the type of a field without fields."""
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity" if "pattern" in schema else "integer or string"
    # The API server drops any signal to stop by: its feature is off.
    if (values := schema.get("enum")) and not path.endswith(".stopSignal"):
        return f"string: {' '.join(filter(None, values))}"
    if (form := schema.get("format")) in ("byte", "int32"):
        return form
    kind = schema.get("type", "any")
    return "any" if kind == "number" else kind


def _collect(name: str, described: dict[str, Any], types: _Types) -> None:
    """Add a type, and the types of its fields, to ``types``."""
    by_short = {_short(full_name): schema for full_name, schema in described.items()}

    def collect(name: str, schema: Any) -> None:
        if name in types or not schema.get("properties"):
            return
        types[name] = {}
        for field, value in sorted(schema["properties"].items()):
            types[name][field] = type_name(f"{name}.{field}", value)

    def type_name(path: str, schema: Any) -> str:
        if shared := next((_SHARED[end] for end in _SHARED if path.endswith(f".{end}")), None):
            if shared in by_short:
                collect(shared, by_short[shared])
            return f"[{shared}]" if schema["type"] == "array" else shared
        if referred := _referred(schema):
            if referred in _SCALARS:
                return _SCALARS[referred]
            collect(referred, by_short[referred])
            return referred if referred in types else "any"
        if schema.get("type") == "array":
            return f"[{type_name(path, schema['items'])}]"
        if isinstance(of := schema.get("additionalProperties"), dict):
            return f"{{{type_name(path, of)}}}"
        if schema.get("properties"):
            collect(path, schema)
            return path
        return _scalar(path, schema)

    collect(name, by_short[name])


if __name__ == "__main__":
    main()
