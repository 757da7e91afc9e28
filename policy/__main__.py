"""The policy pack for programs in any language: ``pulumi preview --policy-pack policy``."""

from collections.abc import Callable, Mapping
from typing import Any

from guards import GUARDS, Guard
from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.objects import Manifest, name_of, namespace_of
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.planning.input.clusters import (
    PROVIDER,
    Declared,
    clusters_of,
    provider_of,
    sources_of,
)
from ml_foundations.planning.input.program import NODE_POOL, Resource, is_judged
from ml_foundations.planning.rules.findings import Severity
from ml_foundations.planning.verdict.clusters import judge_clusters
from ml_foundations.proof import is_rehearsed
from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

_Validate = Callable[[StackValidationArgs, ReportViolation], None]

PROOF = "proof"
"""The policy that refuses what can never run."""
ADVICE = "proof-advice"
"""The policy that reports the other findings: what is not proved, or costs time or money."""


def plain(value: Any) -> Any:
    """A tree of properties with ``UNKNOWN`` where the pack's own tree raises an error."""
    if isinstance(value, Mapping):
        return {key: _known(value, key) for key in value}
    if hasattr(value, "__getitem__") and not isinstance(value, str | bytes):
        return [_known(value, index) for index in range(len(value))]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # the wire knows no integers
    return value


def _known(tree: Any, key: Any) -> Any:
    try:
        return plain(tree[key])
    except UnknownValueError:
        return UNKNOWN


def remember(args: ResourceValidationArgs, _: ReportViolation) -> None:
    """Keep the inputs of a resource."""
    # Policies of a whole stack get its outputs, which are unknown at preview.
    if is_judged(args.resource_type):
        _inputs[args.urn] = plain(args.props)


_inputs: dict[str, dict[str, Any]] = {}
"""The inputs of resources that matter, by URN."""


def resources(args: StackValidationArgs) -> list[tuple[Resource, str]]:
    """The resources that matter, by type and inputs, each with its URN."""
    relevant: list[tuple[Resource, str]] = []
    for resource in args.resources:
        if is_judged(resource.resource_type):
            inputs = _inputs.get(resource.urn) or plain(resource.props)
            relevant.append(((resource.resource_type, inputs), resource.urn))
    return relevant


def declared(resource: PolicyResource) -> Declared:
    """A resource of the stack, or a Kubernetes provider, with what shows its cluster."""
    type_ = resource.resource_type
    provider = resource.provider
    parent = resource.parent
    inputs = _inputs.get(resource.urn) or plain(resource.props)
    sources: dict[str, list[str]] = {}
    for field, dependencies in resource.property_dependencies.items():
        sources[field] = [dependency.urn for dependency in dependencies]
    return Declared(
        (type_, inputs),
        resource.urn,
        resource.name,
        provider_of(f"{provider.urn}::") if provider else "",
        sources_of(type_, sources),
        parent.urn if parent and parent.resource_type != "pulumi:pulumi:Stack" else "",
    )


def guard_policy(guard: Guard) -> StackValidationPolicy:
    """Return a guard rule as a policy; it reads some objects only during the update."""

    def validate(args: StackValidationArgs, report_violation: ReportViolation) -> None:
        manifests = [(as_manifest(resource), urn) for resource, urn in resources(args)]
        known = [(item, urn) for item, urn in manifests if is_known(item)]
        urns = {id(item): urn for item, urn in known}
        for item, path, wrong in guard.check([item for item, _ in known]):
            name = f"{item['kind']} {name_of(item)}".strip()
            text = f"{name}: {path}: {wrong}. {guard.remedy}"
            report_violation(printable.line(text), urns[id(item)])

    return _policy(guard.id, guard.about, validate, guard.mandatory)


def as_manifest(resource: Resource) -> Manifest:
    """Return a Kubernetes object as it is, and a node pool as if it were one."""
    type_, inputs = resource
    if type_ != NODE_POOL:
        return inputs
    return {"kind": "NodePool", "metadata": {"name": inputs.get("name")}, **inputs}


def is_known(item: Manifest) -> bool:
    """Return whether everything that a guard reads is known."""
    return not any(unknown_paths(item.get("spec") or {})) and isinstance(item.get("kind"), str)


def proof_policy(name: str, about: str, *, mandatory: bool) -> StackValidationPolicy:
    """Return planning's verdict on the program as a policy: its errors, or its other findings."""

    def validate(args: StackValidationArgs, report_violation: ReportViolation) -> None:
        judged: list[Declared] = []
        for resource in args.resources:
            if resource.resource_type == PROVIDER or is_judged(resource.resource_type):
                judged.append(declared(resource))
        clusters = clusters_of(judged) or {}
        urns: dict[str, str] = {}
        for item in judged:
            _, inputs = item.resource
            if inputs.get("metadata") is not UNKNOWN:
                where = f" in {clusters[item.key]}" if item.key in clusters else ""
                name = f"{inputs.get('kind')} {namespace_of(inputs)}/{name_of(inputs)}{where}"
                urns[name] = str(item.key)
        verdicts = judge_clusters(judged, rehearsed=is_rehearsed())
        for finding in verdicts.findings:
            if (finding.severity is Severity.ERROR) == mandatory:
                rule = f"{finding.severity} {finding.rule}"
                about = finding.place
                text = f"{rule}: {about}: {finding.text}"
                report_violation(printable.line(text), urns.get(about))

    return _policy(name, about, validate, mandatory)


def _policy(name: str, about: str, validate: _Validate, mandatory: bool) -> StackValidationPolicy:
    level = EnforcementLevel.MANDATORY if mandatory else EnforcementLevel.ADVISORY
    return StackValidationPolicy(
        name=name, description=about, validate=validate, enforcement_level=level
    )


_PROOF = "What the program declares can run, on its nodes and under its quotas."
_ADVICE = "What the proof says of a program besides its errors."
PolicyPack(
    name="ml-foundations",
    policies=[
        ResourceValidationPolicy(
            name="inputs",
            description="Refuses nothing: it reads what the other policies judge.",
            validate=remember,
            enforcement_level=EnforcementLevel.ADVISORY,
        ),
        *map(guard_policy, GUARDS),
        proof_policy(PROOF, _PROOF, mandatory=True),
        proof_policy(ADVICE, _ADVICE, mandatory=False),
    ],
)
