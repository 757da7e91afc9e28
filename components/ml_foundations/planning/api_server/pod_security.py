"""Pod Security: pods that a namespace rejects by its level, baseline or restricted."""

import re
from collections.abc import Iterable, Set
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, labels_of, section
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server import fields
from ml_foundations.planning.input.field_catalog import Note
from ml_foundations.planning.model.refusals import Refusal

_LABEL = "pod-security.kubernetes.io/"
_LABELS = re.compile(rf"{_LABEL}(?:enforce|audit|warn)(-version)?")
_LEVEL = re.compile("privileged|baseline|restricted")
_VERSION = re.compile(r"latest|v1\.(0|[1-9][0-9]{0,8})", re.ASCII)
_LATEST = 1_000
_SECCOMP = (18, r"runtime/default|docker/default|localhost/.*")
_ANNOTATIONS = {
    "container.apparmor.security.beta.kubernetes.io/": (_LATEST, r"|runtime/default|localhost/.*"),
    "container.seccomp.security.alpha.kubernetes.io/": _SECCOMP,
    "seccomp.security.alpha.kubernetes.io/pod": _SECCOMP,
}
"""Annotations from before there were fields: prefix, last policy version, accepted values."""


def refusals(namespace_labels: Manifest, template: Manifest) -> Iterable[Refusal]:
    """Yield why a namespace rejects pods; paths are below the pods' spec."""
    policy: dict[str, Any] = {}
    for key, value in namespace_labels.items():
        if key.startswith(_LABEL):
            policy[key.removeprefix(_LABEL)] = value
    level = policy.get("enforce", "privileged")
    remedy = "Correct the field, or lower the level of the namespace."
    volumes = items(section(template, "spec"), "volumes")
    folders = [str(section(volume, "hostPath").get("path")) for volume in volumes]
    # NCCL's plugin for the network between GPUs is in GKE's folder.
    uses_fabric = any(folder.startswith(labels.GKE_NODE_FOLDER) for folder in folders)
    if uses_fabric:
        reason = "pods in the network between GPUs use folders and capabilities of the node"
        remedy = f"Set the namespace's level to privileged (pod_security of the team): {reason}."
    notes = sorted(violations(policy, template), key=lambda note: not note.is_error)
    # The level is the one cause of what the network between GPUs needs.
    shown = notes[:1] if uses_fabric else notes
    more = f", and {len(notes) - 1} more" if uses_fabric and len(notes) > 1 else ""
    for note in shown:
        what = f"{note.path} {note.reason}{more}".lstrip()
        message = f"Pod Security {level} of the namespace refuses the pods: {what}"
        yield Refusal("pod-security", note.path, message, remedy, certain=note.is_error)


def wrong_labels(namespace: Manifest) -> Iterable[tuple[str, str]]:
    """Yield labels of a namespace that the API server rejects, and why."""
    for key, value in labels_of(namespace).items():
        if (label := _LABELS.fullmatch(key)) and value is not UNKNOWN:
            pattern = _VERSION if label[1] else _LEVEL
            if not pattern.fullmatch(value or ""):
                yield f"metadata.labels.{key}", f"must be {pattern.pattern}, not {str(value)[:40]}"


def violations(policy: Manifest, template: Manifest) -> Iterable[Note]:
    """Return the fields of pods that a policy does not allow.

    The keys of the policy are the ends of the labels of a namespace, such as enforce.
    """
    level = policy.get("enforce", "privileged")
    if unknown := [name for name, value in policy.items() if value is UNKNOWN]:
        return [Note("", f"its label {_LABEL}{unknown[0]} is not known", is_error=False)]
    if level == "privileged":
        return []
    number = policy.get("enforce-version", "latest").rpartition(".")[2]
    version = int(number) if number.isdecimal() else _LATEST
    spec = section(template, "spec")
    exempt: set[str] = set()
    if spec.get("hostUsers") is False:
        exempt.add("hostUsers")
    if section(spec, "os").get("name") == "windows":
        exempt |= {"windows", "restrictedWindows"} if level == "restricted" else {"windows"}
    violations = fields.pod_security(level, version, frozenset(exempt)).violations(spec)
    for key, value in annotations_of(template).items():
        for prefix, (last, accepted) in _ANNOTATIONS.items():
            is_judged = key.startswith(prefix) and version <= last
            if is_judged and not re.fullmatch(accepted, str(value)):
                problem = f"the annotation {key} is {value}"
                violations.append(Note("", problem, is_error=value is not UNKNOWN))
    return [*violations, *(_missing(spec, version, exempt) if level == "restricted" else ())]


def _missing(spec: Manifest, version: int, exempt: Set[str]) -> Iterable[Note]:
    """Yield fields that each container of a restricted pod sets, unless the pod does for all."""
    # Since 1.35, a pod with its own user namespace may run as root. Windows has no seccomp.
    names = ["runAsNonRoot"] if version < 35 or "hostUsers" not in exempt else []
    if version >= 19 and (version < 25 or "windows" not in exempt):
        names.append("seccompProfile")
    of_pod = section(spec, "securityContext")
    for key in ("containers", "initContainers"):
        for index, container in enumerate(items(spec, key)):
            context = section(container, "securityContext")
            for name in names:
                if context.get(name) is of_pod.get(name) is None:
                    path = f"{key}[{index}].securityContext.{name}"
                    yield Note(path, "must be given, here or for the whole pod")
