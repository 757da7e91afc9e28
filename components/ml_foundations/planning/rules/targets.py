"""Routes, pools and autoscalers that lead to nothing.

They name an object by its group, kind and name, and a Service also by its port. If there is none,
no controller refuses them: only a condition in their status reports it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

from ml_foundations.catalog.inference_gateways import GATEWAY_GROUP, POOL_GROUP
from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.objects import Manifest, mappings, name_of, namespace_of, section
from ml_foundations.kubernetes.trees import is_mapping, unknown_paths
from ml_foundations.kubernetes.words import alternatives, as_remedy
from ml_foundations.planning.model.declared import full_name, named_values
from ml_foundations.planning.model.workloads import groups, has_scale, is_stored
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_Places: TypeAlias = Mapping[tuple[str, str], Sequence[Manifest]]
"""Objects by kind and namespace."""
_ROWS = list(rows("targets.csv", "ml_foundations.planning.rules"))
_GROUPS = {"Service": "", "InferencePool": POOL_GROUP}
_ROUTES = ("HTTPRoute", "GRPCRoute")
"""The kinds that name also InferencePools."""
_THEN = {
    "autoscaling-target": "so it never scales",
    "endpoint-picker": "so nothing picks a pod, and requests fail",
    "route-backend": "so its requests get an error",
}
"""What follows if the object is missing: Kubernetes, pkg/controller/podautoscaler; the failureMode
FailClose of an InferencePool; ResolvedRefs of a route (gateway-api v1.6.0)."""


class _Target(NamedTuple):
    source: Manifest
    rule: str
    path: str
    reference: Manifest
    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"the {self.kind} {self.namespace}/{self.name}"

    @property
    def kinds(self) -> list[str]:
        """The kinds that the object may have, of those that planning reads."""
        if self.rule == "autoscaling-target":
            return [*filter(has_scale, sorted(groups()))]
        return [*_GROUPS] if self.source["kind"] in _ROUTES else ["Service"]

    @property
    def has_wrong_kind(self) -> bool:
        """Return whether its kind will not do. One with the same name in another group may."""
        is_scaled = self.rule == "autoscaling-target"
        is_known = not is_scaled or groups().get(self.kind) == self.group
        return is_known and self.kind not in self.kinds

    def finding(self, field: str, why: str, remedy: str, *, is_certain: bool) -> Finding:
        """Return a finding about a field of the reference."""
        severe = error if is_certain else warning
        path = self.path.removesuffix("name") + field
        message = f"it names {why}"
        return severe(
            self.rule, full_name(self.source), path, f"{message}, {_THEN[self.rule]}", remedy
        )


@rule(
    "autoscaling-target",
    Severity.ERROR,
    "What an autoscaler scales exists.",
    source="Kubernetes v1.36, pkg/controller/podautoscaler",
    example="""
        apiVersion: autoscaling/v2
        kind: HorizontalPodAutoscaler
        metadata: {name: llm, namespace: ml}
        spec:
          scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llm}
          maxReplicas: 4
    """,
)
@rule(
    "route-backend",
    Severity.ERROR,
    (
        "Routes and Ingresses lead to Services and InferencePools that exist, in a namespace "
        "that grants it."
    ),
    source="Gateway API v1.6.0, apis/v1 httproute_types.go and object_reference_types.go",
    example="""
        apiVersion: gateway.networking.k8s.io/v1
        kind: HTTPRoute
        metadata: {name: llm, namespace: ml}
        spec:
          parentRefs: [{name: llm}]
          rules: [{backendRefs: [{name: llm, port: 80}]}]
    """,
)
@rule(
    "endpoint-picker",
    Severity.ERROR,
    "The endpoint picker of an InferencePool is a Service that exists, with the port.",
    source="gateway-api-inference-extension v1.5.0, api/v1 InferencePool",
    example="""
        apiVersion: inference.networking.k8s.io/v1
        kind: InferencePool
        metadata: {name: llm, namespace: ml}
        spec:
          selector: {matchLabels: {app: llm}}
          targetPorts: [{number: 8000}]
          endpointPickerRef: {name: picker, port: {number: 9002}}
    """,
)
def targets(stack: Stack) -> Iterator[Finding]:
    """Yield the references of autoscalers, routes and pools to objects that do not exist."""
    by_place: defaultdict[tuple[str, str], list[Manifest]] = defaultdict(list)
    for manifest in stack.objects:
        by_place[manifest["kind"], namespace_of(manifest)].append(manifest)
    # The objects of a cluster that the program does not make are not all shown.
    is_complete = bool(stack.clusters)
    existing = stack.existing
    for target in _targets(stack.objects):
        if not existing.shows(target.namespace):
            continue
        neighbours = by_place.get((target.kind, target.namespace), [])
        named = [item for item in neighbours if name_of(item) == target.name]
        versions = [str(item.get("apiVersion")) for item in named]
        if target.has_wrong_kind:
            # Kubernetes, pkg/controller/podautoscaler, reads the scale of its target; gateway-api
            # v1.6.0, RouteReasonInvalidKind; gateway-api-inference-extension, EndpointPickerRef.
            kinds = alternatives(target.kinds)
            why = f"{target}, not a {kinds}"
            name = f"name a {kinds}"
            if target.rule == "autoscaling-target":
                why = f"{target}, which has no replicas to set"
                name = "name a Deployment or another server"
            remedy = as_remedy(*(_other_kinds(target, by_place) or [name]))
            yield target.finding("kind", why, remedy, is_certain=True)
        elif not named:
            is_certain = is_complete and not existing.may_be_made(target.kind)
            near = get_close_matches(target.name, sorted(map(str, map(name_of, neighbours))), n=1)
            words = [f"write {name}" for name in near]
            remedy = as_remedy(*_other_kinds(target, by_place), *words, f"declare {target}")
            why = f"{target}, which is not declared"
            yield target.finding("name", why, remedy, is_certain=is_certain)
        elif target.group not in map(_group, versions):
            field = "apiVersion" if target.rule == "autoscaling-target" else "group"
            right = versions[0] if field == "apiVersion" else _group(versions[0])
            why = f'{target} of the group "{target.group}", which is of {versions[0]}'
            yield target.finding(field, why, f'Set {field} to "{right}".', is_certain=True)
        else:
            yield from _without_port(target, named[0])
        if target.namespace != namespace_of(target.source) and not _is_granted(target, stack):
            is_certain = is_complete and not existing.may_be_made("ReferenceGrant")
            why = f"{target}, and its namespace has no ReferenceGrant for that"
            source = f"{target.source['kind']}s of {namespace_of(target.source)}"
            remedy = f"Declare one in {target.namespace}, from {source} to {target.kind}s."
            yield target.finding("namespace", why, remedy, is_certain=is_certain)


def _other_kinds(target: _Target, by_place: _Places) -> list[str]:
    """Return what to write for the objects with the name of a target that are of other kinds."""
    ways: list[str] = []
    for kind in target.kinds:
        named = map(name_of, by_place.get((kind, target.namespace), ()))
        if kind != target.kind and target.name in named:
            ways.append(f"set kind to {kind}")
    return ways


def _targets(objects: Sequence[Manifest]) -> Iterator[_Target]:
    """Yield what objects name, if it is of a kind that planning reads, and known."""
    known_groups = {**groups(), **_GROUPS}
    for source in objects:
        for row in _ROWS:
            if row["of"] != source["kind"] or is_stored(source):
                continue
            for path, reference, name in named_values(source, row["path"].split("."), ""):
                group: Any = reference.get("group", row["group"])
                if "apiVersion" in reference:
                    group = _group(reference["apiVersion"])
                kind: Any = reference.get("kind", row["kind"])
                namespace: Any = reference.get("namespace") or namespace_of(source)
                words = (group, kind, namespace, name)
                is_known = all(isinstance(word, str) for word in words) and kind in known_groups
                # The controller of AWS reads actions from annotations: their name is no Service.
                is_action = section(reference, "port").get("name") == "use-annotation"
                # A route sends no requests to a backend of weight 0.
                if is_known and not is_action and reference.get("weight") != 0:
                    yield _Target(source, row["rule"], path, reference, *words)


def _group(version: Any) -> str:
    return str(version).rpartition("/")[0]


def _without_port(target: _Target, service: Manifest) -> Iterator[Finding]:
    """Yield the finding on a Service without the port by which it is named."""
    port = target.reference.get("port")
    key = "port"
    spec = section(service, "spec")
    if is_mapping(port):
        key = "name" if "name" in port else "port"
        port = port.get("name", port.get("number"))
    is_known = target.kind == "Service" and isinstance(port, int | str)
    if not is_known or any(unknown_paths(spec)) or spec.get("type") == "ExternalName":
        return
    ports = [entry.get(key) for entry in mappings(spec, "ports")]
    if port not in ports:
        why = f"port {port} of {target}, which has {', '.join(map(str, ports)) or 'none'}"
        is_certain = target.reference.get("failureMode") != "FailOpen"
        remedy = "Name a port of the Service, not of its pods."
        yield target.finding("port", why, remedy, is_certain=is_certain)


def _is_granted(target: _Target, stack: Stack) -> bool:
    """Return whether the namespace of an object lets routes of other namespaces name it.

    Source: gateway-api v1.6.0, BackendObjectReference.namespace and ReferenceGrant.
    """
    source: Manifest = {
        "group": GATEWAY_GROUP,
        "kind": target.source["kind"],
        "namespace": namespace_of(target.source),
    }
    allowed: list[Manifest] = [{"group": target.group, "kind": target.kind}]
    allowed += [{**allowed[0], "name": name} for name in (target.name, "")]
    for grant in stack.of_kind("ReferenceGrant"):
        spec = section(grant, "spec")
        is_from = any(source.items() <= peer.items() for peer in mappings(spec, "from"))
        is_granted = is_from and any(to in allowed for to in mappings(spec, "to"))
        if namespace_of(grant) == target.namespace and (is_granted or any(unknown_paths(spec))):
            return True
    return False
