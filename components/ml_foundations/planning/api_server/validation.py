"""Objects that the API server rejects as invalid: by the tables of fields, and by other rules.

Follows pkg/apis/core, apps and batch of Kubernetes v1.36 (validation.go). An unknown value breaks
no rule.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ml_foundations.kubernetes.objects import Manifest, items, labels_of, name_of, section
from ml_foundations.kubernetes.quantities import WHOLE, millis
from ml_foundations.kubernetes.selectors import PREFERRED, REQUIRED, selects
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.api_server.fields import of_object, pod_spec
from ml_foundations.planning.api_server.limits import invalid_resources
from ml_foundations.planning.api_server.pod_security import wrong_labels
from ml_foundations.planning.api_server.text_formats import DNS_LABEL, DNS_LABEL_1035
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.closed_world import as_refusal
from ml_foundations.planning.model.refusals import Refusal, invalid
from ml_foundations.planning.model.resources import is_extended
from ml_foundations.planning.model.workloads import (
    WORKLOAD_KINDS,
    PodSet,
    Workload,
    is_indexed,
    is_stored,
)

_Problems = Iterable[tuple[str, str]]
"""Fields, each with what is invalid."""
_SELECTING = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet")

_OF_PODS = frozenset(
    {"pods", *(f"{of}{name}" for of in ("", "requests.", "limits.") for name in ("cpu", "memory"))}
)
_OF_CLAIMS = frozenset({"persistentvolumeclaims", "requests.storage"})
_OF_SCOPES = {"BestEffort": frozenset({"pods"}), "VolumeAttributesClass": _OF_CLAIMS}
"""The resources of a quota that has a scope; those of other scopes are of pods."""
_INDEXES = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", re.ASCII)
_OPPOSITES = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))


def refusals(workload: Workload) -> list[Refusal]:
    """Return the invalid fields of a workload and its pods, for which the API server rejects it."""
    if is_stored(workload.manifest):
        return []  # the API server has stored it
    found = [
        (path, rule)
        for path, rule, known in of_object(workload.kind).violations(workload.manifest)
        if known
    ]
    for pods in workload.pods:
        spec = section(pods.template, "spec")
        problems = [(path, rule) for path, rule, known in pod_spec().violations(spec) if known]
        problems += _repeated(
            ((path, container.get("name")) for path, container in _containers(spec)), "name"
        )
        problems += [
            each for check in (_host_ports, _device_claims, _sleeps) for each in check(spec)
        ]
        problems += _mounts(spec, [*map(name_of, workload.claims)])
        found += [(f"{pods.path}.{path}", wrong) for path, wrong in problems]
        found += _of_workload(workload, pods, spec)
    if workload.kind == "JobSet":
        found += _of_job_set(workload.name, section(workload.manifest, "spec"))
    return [invalid(*each) for each in dict.fromkeys(found)]


def refused_objects(documents: Sequence[Manifest]) -> list[Refusal]:
    """Return invalid fields of objects that are not workloads and that are not stored yet."""
    refused: list[Refusal] = []
    for document in documents:
        if document["kind"] not in WORKLOAD_KINDS and not is_stored(document):
            about = f"{document['kind']} {name_of(document)}"
            broken = of_object(document["kind"]).violations(document)
            notes = () if field_catalog.is_judged(document) else field_catalog.notes(document)
            wrong = dict.fromkeys(
                (path, rule) for path, rule, is_certain in (*broken, *notes) if is_certain
            )
            if (
                not wrong
                and (check := _WITHIN.get(document["kind"]))
                and not any(unknown_paths(document))
            ):
                wrong |= dict.fromkeys(check(document))
            refused += [invalid(path, rule, about) for path, rule in wrong]
            for path, rule, is_certain in broken:
                if not is_certain and rule.startswith("must"):
                    refused.append(_depending_on_cluster(path, about))
            refused += [as_refusal(note, about) for note in notes if not note.is_error]
    for path, about in _taken(documents):
        refused.append(invalid(path, "must not be that of another Service", about))
    classes = (document for document in documents if document["kind"] == "PriorityClass")
    defaults = [manifest for manifest in classes if manifest.get("globalDefault") is True]
    second = "must not be true of a second PriorityClass"
    for manifest in defaults[1:]:
        refused.append(invalid("globalDefault", second, f"PriorityClass {name_of(manifest)}"))
    return refused


def _depending_on_cluster(path: str, about: str) -> Refusal:
    return Refusal(
        "beyond-planning",
        path,
        f"whether the API server accepts its {path} is not known",
        f"Leave {path} out, or check it by a rehearsal.",
        certain=False,
        object=about,
    )


def _taken(documents: Iterable[Manifest]) -> _Problems:
    """Yield node ports and addresses of a Service that an earlier Service has, and the Service."""
    seen: dict[Any, Manifest] = {}
    for service in documents:
        if service["kind"] != "Service" or is_stored(service):
            continue
        spec = section(service, "spec")
        ports = filter(is_mapping, items(spec, "ports"))
        wanted: list[tuple[str, Any]] = [("ports", port.get("nodePort")) for port in ports]
        wanted += [(key, spec.get(key)) for key in ("clusterIP", "healthCheckNodePort")]
        for key, value in wanted:
            is_one = value not in (0, "", "None") and isinstance(value, int | str)
            if is_one and seen.setdefault(value, service) is not service:
                yield f"spec.{key}", f"Service {name_of(service)}"


def _listed(holder: Any, key: str) -> list[tuple[str, Manifest]]:
    """Return the mappings of a list, with their paths."""
    found = holder.get(key) if is_mapping(holder) else None
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    return [(f"{key}[{index}]", item) for index, item in enumerate(listed) if is_mapping(item)]


def _containers(spec: Manifest) -> list[tuple[str, Manifest]]:
    return [*_listed(spec, "containers"), *_listed(spec, "initContainers")]


def _repeated(named: Iterable[tuple[str, Any]], what: str) -> _Problems:
    seen: list[Any] = []
    for path, value in named:
        if value in seen and value not in (None, UNKNOWN):
            yield path, f"must not have the {what} of one before it: {value}"
        seen.append(value)


# --- Fields of a pod's spec against each other


def _host_ports(spec: Manifest) -> _Problems:
    """Yield host ports that are used twice, or differ from the container's on the host network."""
    groups = [_listed(spec, "containers"), *([each] for each in _listed(spec, "initContainers"))]
    for group in groups:
        taken: list[tuple[str, Any]] = []
        for path, port in [
            (f"{at}.{inner}", port) for at, each in group for inner, port in _listed(each, "ports")
        ]:
            own, wanted = port.get("containerPort"), port.get("hostPort")
            if spec.get("hostNetwork") is True and wanted and own != wanted and group is groups[0]:
                yield f"{path}.hostPort", "must be the containerPort where hostNetwork is true"
            if number := wanted or (spec.get("hostNetwork") and own):
                taken.append(
                    (
                        f"{path}.hostPort",
                        (port.get("protocol") or "TCP", port.get("hostIP") or "", number),
                    )
                )
        yield from _repeated(taken, "protocol, address and number")


def _sleeps(spec: Manifest) -> _Problems:
    """Yield hooks of containers that sleep for longer than the pod has to end."""
    given = spec.get("terminationGracePeriodSeconds")
    most = 30 if given is None else given
    limit = f"terminationGracePeriodSeconds is {most}{' by default' if given is None else ''}"
    for path, container in _containers(spec):
        for hook in ("postStart", "preStop"):
            seconds = section(container, "lifecycle", hook, "sleep").get("seconds")
            if isinstance(seconds, int) and isinstance(most, int) and not 0 <= seconds <= most:
                yield (
                    f"{path}.lifecycle.{hook}.sleep.seconds",
                    f"must be from 0 to {most}, not {seconds}, because {limit}",
                )


def _mounts(spec: Manifest, claims: Iterable[str]) -> _Problems:
    """Yield mounts without a volume, and devices without a claim."""
    volumes = _listed(spec, "volumes")
    names: list[Any] = [*claims, *(volume.get("name") for _, volume in volumes)]
    blocks: list[Any] = [*claims]
    for _, volume in volumes:
        if volume.get("persistentVolumeClaim") or volume.get("ephemeral"):
            blocks.append(volume.get("name"))
    for path, container in _containers(spec):
        mounts, devices = _listed(container, "volumeMounts"), _listed(container, "volumeDevices")
        mounted = [mount.get("name") for _, mount in mounts]
        named = [(f"{inner}.name", each.get("name"), names) for inner, each in mounts]
        named += [(f"{inner}.name", each.get("name"), blocks) for inner, each in devices]
        for inner, variable in _listed(container, "env"):
            if key := section(variable, "valueFrom", "fileKeyRef"):
                named.append(
                    (f"{inner}.valueFrom.fileKeyRef.volumeName", key.get("volumeName"), names)
                )
        for inner, name, right in named:
            if UNKNOWN not in (*names, name) and name not in right:
                yield (
                    f"{path}.{inner}",
                    f"must be the name of a volume of the right type, not {name}",
                )
        for inner, device in devices:
            if device.get("name") in mounted and device.get("name") is not UNKNOWN:
                yield f"{path}.{inner}.name", "must not be mounted as a folder as well"


def _device_claims(spec: Manifest) -> _Problems:
    """Yield device claims that the pod lacks, or that a container uses twice."""
    names = [claim.get("name") for _, claim in _listed(spec, "resourceClaims")]
    for path, container in _containers(spec):
        seen: list[tuple[Any, Any]] = []
        for inner, claim in _listed(container.get("resources"), "claims"):
            name, request = claim.get("name"), claim.get("request")
            if UNKNOWN not in (name, request, *names) and name not in names:
                yield f"{path}.resources.{inner}", "must be the name of one of spec.resourceClaims"
            if any(
                name == other and (not request or not theirs or request == theirs)
                for other, theirs in seen
            ):
                yield f"{path}.resources.{inner}", "must not be used twice"
            seen.append((name, request))


def refused_label_keys(spec: Manifest, labels: Manifest) -> Iterable[Refusal]:
    """Yield matchLabelKeys that a selector has already.

    If a pod has the label, the API server adds an expression for it to the selector. Without
    labels, for a template, a selector is rejected that names such a key twice.
    """
    if not (spec.get("affinity") or spec.get("topologySpreadConstraints")):
        return
    holders = _listed(spec, "topologySpreadConstraints")
    for kind in ("podAffinity", "podAntiAffinity"):
        of = section(spec, "affinity", kind)
        weighted = [
            (f"{path}.podAffinityTerm", section(each, "podAffinityTerm"))
            for path, each in _listed(of, PREFERRED)
        ]
        holders += [
            (f"affinity.{kind}.{path}", each) for path, each in (*_listed(of, REQUIRED), *weighted)
        ]
    for path, holder in holders:
        selector = section(holder, "labelSelector")
        equal = section(selector, "matchLabels")
        expressions = [
            requirement.get("key") for requirement in items(selector, "matchExpressions")
        ]
        for key in holder.get("matchLabelKeys") or ():
            if (key in equal) + expressions.count(key) + (key in labels) > 1:
                yield invalid(
                    f"{path}.matchLabelKeys", f"must not name {key}, which labelSelector names"
                )


# --- Fields of quotas and limits against each other


def _scopes(quota: Manifest) -> _Problems:
    """Yield scopes that do not apply to a resource of the quota, or that exclude each other."""
    spec, selecting = section(quota, "spec"), "spec.scopeSelector.matchExpressions"
    standard = {key for key in section(spec, "hard") if "/" not in key}
    required = _listed(section(spec, "scopeSelector"), "matchExpressions")
    for path, names in (
        ("spec.scopes", [scope for scope in spec.get("scopes") or () if scope is not UNKNOWN]),
        (selecting, [requirement.get("scopeName") for _, requirement in required]),
    ):
        for name in names:
            if others := standard - _OF_SCOPES.get(str(name), _OF_PODS):
                yield (
                    path,
                    f"must not hold {name}, because spec.hard has {', '.join(sorted(others))}",
                )
        for pair in _OPPOSITES:
            if {*pair} <= {*names}:
                yield path, f"must not hold {' and '.join(pair)}"


def _amounts(limit_range: Manifest) -> _Problems:
    """Yield amounts of a LimitRange that are not in the order of minimum, defaults and maximum."""
    for path, limit in _listed(section(limit_range, "spec"), "limits"):
        given = {key: millis(section(limit, key)) for key in (*_IN_ORDER, "maxLimitRequestRatio")}
        if limit.get("type") == "PersistentVolumeClaim" and not (
            {*given["min"], *given["max"]} & {"storage"}
        ):
            yield f"spec.{path}", "must have a min or a max of storage"
        for name in sorted({name for amounts in given.values() for name in amounts}):
            own = {key: amounts[name] for key, amounts in given.items() if name in amounts}
            for less, more in itertools.combinations([key for key in _IN_ORDER if key in own], 2):
                if own[less] > own[more]:
                    yield f"spec.{path}.{less}.{name}", f"must be at most its {more}"
            ratio = own.get("maxLimitRequestRatio", WHOLE)
            is_too_much = (
                {"min", "max"} <= own.keys()
                and own["min"]
                and ratio * own["min"] > WHOLE * own["max"]
            )
            if ratio < WHOLE or is_too_much:
                yield (
                    f"spec.{path}.maxLimitRequestRatio.{name}",
                    "must be at least 1, and at most max divided by min",
                )
            # What has a max and no default has the max as its default.
            defaults = [own[key] for key in ("defaultRequest", "default", "max") if key in own][:2]
            if "defaultRequest" in own and len({*defaults}) > 1 and is_extended(name):
                yield f"spec.{path}.default.{name}", "must be its defaultRequest"


def _overhead(runtime_class: Manifest) -> _Problems:
    """Return problems of a RuntimeClass's overhead as the limits of a container."""
    limits = {"limits": section(runtime_class, "overhead", "podFixed")}
    return [
        ("overhead.podFixed", refusal.message)
        for refusal in invalid_resources({"containers": [{"resources": limits}]})
    ]


_IN_ORDER = ("min", "defaultRequest", "default", "max")
_WITHIN = {
    "Namespace": wrong_labels,
    "ResourceQuota": _scopes,
    "LimitRange": _amounts,
    "RuntimeClass": _overhead,
}


# --- Workloads


def _of_workload(workload: Workload, pods: PodSet, spec: Manifest) -> _Problems:
    labels = labels_of(pods.template)
    own = section(workload.manifest, "spec")
    selector = own.get("selector")
    if workload.kind == "ReplicationController":
        selector = {"matchLabels": selector} if selector else None
        if not selector and not labels:
            yield "spec.selector", "must be given, or be the labels of the template"
    path = "spec.jobTemplate.spec" if workload.kind == "CronJob" else "spec"
    job = section(workload.manifest, *path.split("."))
    yield from ((f"{path}.{below}", wrong) for below, wrong in _of_job(job, spec))
    for key in labels if workload.kind in ("Job", "CronJob") else ():
        if labels[key] not in (pods.labels[key], UNKNOWN):
            yield (
                f"{pods.path.removesuffix('spec')}metadata.labels.{key}",
                "must be left out: Jobs have their own",
            )
    is_unknown = any(unknown_paths([selector, labels, pods.template.get("metadata")]))
    if (
        selector
        and workload.kind in _SELECTING
        and not is_unknown
        and not selects(selector, labels)
    ):
        yield "spec.selector", "must select the labels of the template"
    completions = own.get("completions")
    if is_indexed(workload) and isinstance(completions, int) and completions > 0:
        host = f"{workload.name}-{completions - 1}"
        if workload.name not in ("", UNKNOWN) and not DNS_LABEL.matches(host):
            yield "metadata.name", f"must make a DNS label of the last pod's host name, not {host}"


def _of_job_set(name: str, spec: Manifest) -> _Problems:
    """Yield invalid names that a JobSet creates, jobs that it lacks, and an invalid coordinator."""
    jobs, leads = items(spec, "replicatedJobs"), section(spec, "coordinator")
    names, subdomain = (
        [job.get("name") or "" for job in jobs],
        section(spec, "network").get("subdomain") or name,
    )
    policies = [
        section(spec, "successPolicy"),
        *filter(is_mapping, items(section(spec, "failurePolicy"), "rules")),
    ]
    named = [
        (len(names), each) for policy in policies for each in items(policy, "targetReplicatedJobs")
    ]
    named += [(len(names), leads.get("replicatedJob"))] if leads else []
    for index, job in enumerate(jobs):
        own, replicas = (
            section(job, "template", "spec"),
            1 if job.get("replicas") is None else job["replicas"],
        )
        count, has_indexes = own.get("completions"), own.get("completionMode") != "NonIndexed"
        pod = (f"-{count - 1}-xxxxx" if isinstance(count, int) else "-0") if has_indexes else ""
        longest = f"{name}-{names[index]}-{(replicas or 1) - 1}{pod}"
        if name not in ("", UNKNOWN) and not DNS_LABEL_1035.matches(longest):
            yield (
                f"spec.replicatedJobs[{index}].name",
                f"must make DNS labels of at most 63 characters, not {longest}",
            )
        # The first job may not have it, not even empty.
        before = items(job, "dependsOn") or (
            [{}] if job.get("dependsOn") == [] and not index else []
        )
        named += [(index, each.get("name")) for each in before]
        for path, wrong in _of_job(own, section(own, "template", "spec")):
            yield f"spec.replicatedJobs[{index}].template.spec.{path}", wrong
        if leads.get("replicatedJob") == names[index] and UNKNOWN not in leads.values():
            job_index, pod_index = leads.get("jobIndex") or 0, leads.get("podIndex") or 0
            address = f"{name}-{names[index]}-{job_index}-{pod_index}.{subdomain}"
            is_there = 0 <= job_index < replicas and has_indexes and 0 <= pod_index < (count or 0)
            if not is_there or (UNKNOWN not in (name, subdomain) and len(address) > 63):
                yield (
                    "spec.coordinator",
                    "must be one of its pods with an index, and an address of at most 63 letters",
                )
    for before, each in named:
        if each not in (*names[:before], UNKNOWN):
            yield "spec", f"must name jobs that it has, and in dependsOn those before, not {each}"


def _of_job(job: Manifest, pods: Manifest) -> _Problems:
    """Yield containers and indexes that a Job lacks; indexes are in order, such as "0,2-4"."""
    names = [container.get("name") for _, container in _containers(pods)]
    for path, rule in _listed(section(job, "podFailurePolicy"), "rules"):
        named = section(rule, "onExitCodes").get("containerName")
        if named and UNKNOWN not in (named, *names) and named not in names:
            yield (
                f"podFailurePolicy.{path}.onExitCodes.containerName",
                f"must be the name of a container, not {named}",
            )
    for path, rule in _listed(section(job, "successPolicy"), "rules"):
        most, count = job.get("completions"), rule.get("succeededCount")
        cause = f"completions is {most}"
        if isinstance(indexes := rule.get("succeededIndexes"), str) and isinstance(most, int):
            found = re.findall(r"([0-9]+)(?:-([0-9]+))?", indexes)
            ranges = [(int(first), int(last or first)) for first, last in found]
            numbers = [number for each in ranges for number in dict.fromkeys(each)]
            if (
                not _INDEXES.fullmatch(indexes)
                or numbers != sorted({*numbers})
                or numbers[-1] >= most
            ):
                yield (
                    f"successPolicy.{path}.succeededIndexes",
                    f"must be indexes in ascending order below {most}, because {cause}",
                )
            most = sum(last - first + 1 for first, last in ranges)
            cause = f"succeededIndexes has {most}"
        if isinstance(count, int) and isinstance(most, int) and count > most:
            yield f"successPolicy.{path}.succeededCount", f"must be at most {most}, because {cause}"
