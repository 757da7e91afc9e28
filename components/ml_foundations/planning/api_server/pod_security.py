"""Pod Security: what the API server refuses in a namespace that enforces the level baseline or restricted."""

import re
from collections.abc import Iterable

from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, labels_of, section
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server import fields
from ml_foundations.planning.api_server.fields import Violation
from ml_foundations.planning.model.refusals import Refusal

_LABEL = "pod-security.kubernetes.io/"
_LABELS = re.compile(rf"{_LABEL}(?:enforce|audit|warn)(-version)?")
_LEVEL, _VERSION = (
    re.compile("privileged|baseline|restricted"),
    re.compile(r"latest|v1\.(0|[1-9][0-9]*)", re.ASCII),
)
_LATEST = 1_000
_ANNOTATIONS = {
    "container.apparmor.security.beta.kubernetes.io/": (_LATEST, r"|runtime/default|localhost/.*"),
    "container.seccomp.security.alpha.kubernetes.io/": (
        18,
        r"runtime/default|docker/default|localhost/.*",
    ),
    "seccomp.security.alpha.kubernetes.io/pod": (
        18,
        r"runtime/default|docker/default|localhost/.*",
    ),
}
"""Annotations that stood for fields: their prefix, the last policy that reads them, and what it accepts."""


def refusals(namespace_labels: Manifest, template: Manifest) -> Iterable[Refusal]:
    """Why the policy of a namespace keeps pods out of it; paths are below the pods' spec."""
    policy = {
        key.removeprefix(_LABEL): value
        for key, value in namespace_labels.items()
        if key.startswith(_LABEL)
    }
    level = policy.get("enforce", "privileged")
    remedy = "Set what the level wants, or lower the level of the namespace."
    for path, rule, known in violations(policy, template):
        message = f"Pod Security {level} of the namespace refuses the pods: {path} {rule}".replace(
            "  ", " "
        )
        yield Refusal("pod-security", path, message, remedy, certain=known)


def wrong_labels(namespace: Manifest) -> Iterable[tuple[str, str]]:
    """Labels of a namespace that the API server refuses, and why."""
    for key, value in labels_of(namespace).items():
        if (label := _LABELS.fullmatch(key)) and value is not UNKNOWN:
            wanted = _VERSION if label[1] else _LEVEL
            if not wanted.fullmatch(value or ""):
                yield f"metadata.labels.{key}", f"must be {wanted.pattern}, not {value}"


def violations(policy: Manifest, template: Manifest) -> Iterable[Violation]:
    """What pods do that a policy does not allow; its keys are the ends of the labels', such as enforce."""
    level = policy.get("enforce", "privileged")
    if unknown := [name for name, value in policy.items() if value is UNKNOWN]:
        return [Violation("", f"its label {_LABEL}{unknown[0]} is not known", is_certain=False)]
    if level == "privileged":
        return []
    number = policy.get("enforce-version", "latest").rpartition(".")[2]
    version, spec = int(number) if number.isdigit() else _LATEST, section(template, "spec")
    windows = section(spec, "os").get("name") == "windows"
    let_off = {"hostUsers": spec.get("hostUsers") is False, "windows": windows}
    let_off["restrictedWindows"] = windows and level == "restricted"
    rules = fields.pod_security(
        level, version, frozenset(name for name, holds in let_off.items() if holds)
    )
    found = [*rules.violations(spec)]
    for key, value in annotations_of(template).items():
        for prefix, (last, accepted) in _ANNOTATIONS.items():
            if (
                key.startswith(prefix)
                and version <= last
                and not re.fullmatch(accepted, str(value))
            ):
                found.append(
                    Violation(
                        "", f"the annotation {key} is {value}", is_certain=value is not UNKNOWN
                    )
                )
    return [*found, *(_unsaid(spec, version, let_off) if level == "restricted" else ())]


def _unsaid(spec: Manifest, version: int, let_off: Manifest) -> Iterable[Violation]:
    """What each container of a restricted pod must say, unless the pod says it for all."""
    of_pod = section(spec, "securityContext")
    for key in ("containers", "initContainers"):
        for index, container in enumerate(items(spec, key)):
            own = section(container, "securityContext")
            for name, applies in (
                ("runAsNonRoot", version < 35 or not let_off["hostUsers"]),
                ("seccompProfile", version >= 19 and not (version >= 25 and let_off["windows"])),
            ):
                if (
                    applies
                    and UNKNOWN not in (own, of_pod)
                    and own.get(name) is of_pod.get(name) is None
                ):
                    yield Violation(
                        f"{key}[{index}].securityContext.{name}",
                        "must be given, here or for the whole pod",
                    )
