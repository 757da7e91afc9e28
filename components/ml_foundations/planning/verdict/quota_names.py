"""Findings about names in ResourceQuotas that limit nothing."""

from collections.abc import Iterable, Iterator

from ml_foundations.kubernetes.objects import Manifest, name_of, namespace_of, section
from ml_foundations.kubernetes.quotas import scoped_to, uncounted
from ml_foundations.planning.verdict.findings import Finding, Severity


def quota_findings(objects: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield a warning for each name in a ResourceQuota under which Kubernetes counts nothing."""
    for quota in objects:
        if quota["kind"] != "ResourceQuota":
            continue
        spec = section(quota, "spec")
        hard = section(spec, "hard")
        for name in hard:
            if fault := uncounted(name, scoped_to(spec)):
                about = f"ResourceQuota {namespace_of(quota)}/{name_of(quota)}"
                message = f"its amount of {name} limits nothing: {fault.reason}"
                remedy = f"Remove {name}." if fault.instead in hard else fault.remedy
                yield Finding(
                    "quota-name", Severity.WARNING, about, f"spec.hard.{name}", message, remedy
                )
