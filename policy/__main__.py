"""The policy pack: ``pulumi preview --policy-pack policy``, for programs in any of Pulumi's languages."""

from collections.abc import Callable, Mapping
from typing import Any

from guards import GUARDS, Guard
from ml_foundations.planning.manifests import UNKNOWN, unknown_paths
from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

NODE_POOL = "gcp:container/nodePool:NodePool"


def manifests(args: StackValidationArgs) -> list[tuple[dict[str, Any], str]]:
    """Every Kubernetes object and node pool of a program as a manifest, with its URN."""
    found = []
    for resource in args.resources:
        if resource.resource_type == NODE_POOL:
            found.append(
                ({"kind": "NodePool", "metadata": {"name": resource.name}, **plain(resource.props)}, resource.urn)
            )
        elif resource.resource_type.startswith("kubernetes:") and "kind" in resource.props:
            found.append((plain(resource.props), resource.urn))
    return found


def plain(value: Any) -> Any:
    """A tree of properties with ``UNKNOWN`` where the pack's own tree raises an error."""
    if isinstance(value, Mapping):
        return {key: _known(value, key) for key in value}
    if isinstance(value, list | tuple) or (hasattr(value, "__getitem__") and not isinstance(value, str | bytes)):
        return [_known(value, index) for index in range(len(value))]
    return value


def _known(tree: Any, key: Any) -> Any:
    try:
        return plain(tree[key])
    except UnknownValueError:
        return UNKNOWN


def guard_policy(guard: Guard) -> StackValidationPolicy:
    """A guard rule as a policy. It looks at objects that are known, so at some of them only during the update."""

    def validate(args: StackValidationArgs, report_violation: ReportViolation) -> None:
        known = [(item, urn) for item, urn in manifests(args) if is_known(item)]
        urns = {id(item): urn for item, urn in known}
        for item, path, wrong in guard.check([item for item, _ in known]):
            name = f"{item['kind']} {item.get('metadata', {}).get('name', '')}".strip()
            report_violation(f"{name}: {path}: {wrong}. {guard.remedy}", urns[id(item)])

    return _policy(guard.id, guard.about, validate, guard.mandatory)


def is_known(item: Mapping[str, Any]) -> bool:
    """Whether everything that a guard looks at is known."""
    return not any(unknown_paths(item.get("spec") or {})) and isinstance(item.get("kind"), str)


def _policy(
    name: str, about: str, validate: Callable[[StackValidationArgs, ReportViolation], None], mandatory: bool
) -> StackValidationPolicy:
    level = EnforcementLevel.MANDATORY if mandatory else EnforcementLevel.ADVISORY
    return StackValidationPolicy(name=name, description=about, validate=validate, enforcement_level=level)


PolicyPack(name="ml-foundations", policies=[guard_policy(guard) for guard in GUARDS])
