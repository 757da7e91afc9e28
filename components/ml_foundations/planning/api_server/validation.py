"""Objects that the API server rejects as invalid: by the tables of fields, and by other rules.

Follows pkg/apis/core, apps and batch of Kubernetes v1.36 (validation.go). An unknown value breaks
no rule.
"""

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, cast

from ml_foundations.catalog.injections import injections
from ml_foundations.kinds.kind_files import described_kinds, kinds, user_kinds
from ml_foundations.kubernetes.labels import GCS_FUSE_VOLUMES, KUEUE_QUEUE, REFUSED
from ml_foundations.kubernetes.merging import merged
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
    texts,
)
from ml_foundations.kubernetes.quantities import WHOLE, millis
from ml_foundations.kubernetes.selectors import PREFERRED, REQUIRED, selects
from ml_foundations.kubernetes.text_formats import DNS_LABEL, DNS_LABEL_1035
from ml_foundations.kubernetes.trees import UNKNOWN, as_key, is_mapping, unknown_paths
from ml_foundations.planning.api_server import definitions
from ml_foundations.planning.api_server.fields import of_controller, of_object, pod_spec
from ml_foundations.planning.api_server.limits import invalid_resources
from ml_foundations.planning.api_server.pod_security import wrong_labels
from ml_foundations.planning.api_server.trainer_webhooks import RUNTIMES, of_runtime
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.closed_world import as_refusal, removed
from ml_foundations.planning.input.field_catalog import Gap, Note, notes_below
from ml_foundations.planning.model import workloads
from ml_foundations.planning.model.refusals import Refusal, beyond_planning, invalid
from ml_foundations.planning.model.resources import is_extended
from ml_foundations.planning.model.workloads import PodSet, Workload, workload_kinds
from ml_foundations.planning.model.written import rows_of, written_fields, written_path

_Problems = Iterable[tuple[str, str]]
"""Fields, each with what is invalid."""

_OF_PODS = frozenset(
    ("pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
)
_OF_CLAIMS = frozenset({"persistentvolumeclaims", "requests.storage"})
_OF_SCOPES = {"BestEffort": frozenset({"pods"}), "VolumeAttributesClass": _OF_CLAIMS}
"""The resources of a quota that has a scope; those of other scopes are of pods."""
_INDEXES = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", re.ASCII)
_OPPOSITES = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))


def refusals(workload: Workload) -> list[Refusal]:
    """Return the invalid fields of a workload and its pods, for which the API server rejects it."""
    if workloads.is_stored(workload.manifest):
        return []  # the API server has stored it
    if workload.kind not in workload_kinds():
        return []  # its controller may complete its templates
    violations = of_object(workload.kind).violations(_with_queue(workload))
    problems = _certain(violations)
    if workload.kind == workload.manifest["kind"]:
        problems += _certain(_of_controllers(workload.manifest))
    in_templates: list[tuple[str, str]] = []
    for pods in workload.pods:
        spec = section(pods.template, "spec")
        below = _of_pod_spec(spec, [*map(name_of, workload.claims)])
        problems += _injected_amounts(pods)
        in_templates += [(f"{pods.path}.{path}", problem) for path, problem in below]
        problems += _of_workload(workload, pods, spec)
    if workload.kind == "JobSet":
        problems += _of_job_set(workload.name, section(workload.manifest, "spec"))
    # Who describes a kind does not describe how its controller completes templates.
    # Who describes a kind without a definition may not know what its controller adds.
    is_whole = workload.kind not in user_kinds() or definitions.is_defined(workload.manifest)
    refuse = invalid if is_whole else _perhaps_completed
    written = written_fields(workload.manifest)
    refused = [
        refuse(written_path(path, written), fault) for path, fault in dict.fromkeys(in_templates)
    ]
    refused += [
        invalid(written_path(path, written), fault) for path, fault in dict.fromkeys(problems)
    ]
    return [*refused, *_perhaps_refused(violations)]


def _of_pod_spec(spec: Manifest, claims: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return what is invalid about a pod's spec, in which volumes of more claims are mounted."""
    names = [(path, container.get("name")) for path, container in _containers(spec)]
    below = [*_certain(pod_spec().violations(spec)), *_repeated(names, "name")]
    below += itertools.chain(_host_ports(spec), _device_claims(spec), _sleeps(spec))
    return [*below, *_mounts(spec, claims)]


def _with_queue(workload: Workload) -> Manifest:
    """Return a workload as Kueue's webhook leaves it: pods of a Deployment get its queue."""
    pod_labels = section(workload.manifest, "spec", "template", "metadata", "labels")
    is_queued = workload.kind == "Deployment" and workload.queue is not None
    if not is_queued or KUEUE_QUEUE not in pod_labels:
        return workload.manifest
    changed = {"template": {"metadata": {"labels": {KUEUE_QUEUE: workload.queue}}}}
    return merged(workload.manifest, {"spec": changed})


def _perhaps_completed(path: str, problem: str) -> Refusal:
    message = f"{path} {problem}, unless its controller completes the template"
    return beyond_planning(path, message, "Complete the template.", only_refuses=True)


def refused_by_controllers(documents: Iterable[Manifest]) -> list[Refusal]:
    """Return what the definitions and controllers of kinds refuse that planning does not judge."""
    refused: list[Refusal] = []
    for document in itertools.filterfalse(workloads.is_stored, documents):
        about = f"{document['kind']} {name_of(document)}"
        for path, problem in dict.fromkeys(_certain(_of_controllers(document))):
            refused.append(invalid(path, problem, about))
    return refused


def _of_controllers(manifest: Manifest) -> list[Note]:
    """Return what the definition of an object's kind and the kind's controller refuse about it."""
    kind = manifest["kind"]
    notes = list[Note]()
    name: Any = name_of(manifest)
    for path, fault in rows_of(annotations_of(manifest).get(REFUSED), 2):
        notes.append(Note(path, fault))
    if definitions.is_defined(manifest):
        notes += [*definitions.violations(manifest), *of_controller(kind).violations(manifest)]
        notes += of_runtime(manifest) if kind in RUNTIMES else ()
    described = described_kinds().get(kind) if field_catalog.is_judged(manifest) else None
    if described and (cluster := described.path_of("RayCluster")):
        notes += _of_head_service(manifest, cluster)
    # The API server's own rules have the longest names of its kinds.
    most = described.longest_name if described else 0
    if most and isinstance(name, str) and len(name) > most:
        problem = f"must have at most {most} characters, not {len(name)}"
        notes.append(Note("metadata.name", problem))
    return notes


def _of_head_service(manifest: Manifest, cluster: str) -> list[Note]:
    """Return what the API server refuses about the Service that KubeRay makes for a head.

    KubeRay sets its type and selector, and adds ports (v1.6.2, service.go BuildServiceForHeadPod).
    """
    head = section(manifest, *cluster.split("."), "headGroupSpec")
    service = section(head, "headService")
    if not service:
        return []
    given = section(service, "spec")
    type_ = given.get("type") or head.get("serviceType") or "ClusterIP"
    ports = given.get("ports") or [{"port": 6379}]
    spec: Manifest = {**given, "type": type_, "ports": ports, "selector": {}}
    metadata = section(service, "metadata")
    name = metadata.get("name") or "head"
    metadata = {**metadata, "name": name, "namespace": namespace_of(manifest)}
    path = f"{cluster}.headGroupSpec.headService"
    made = {**service, "kind": "Service", "metadata": metadata, "spec": spec}
    return notes_below(path, of_object("Service").violations(made))


def _injected_amounts(pods: PodSet) -> _Problems:
    """Yield wrong amounts for the containers that GKE adds: its webhook then refuses the pods."""
    annotations = annotations_of(pods.template)
    for injection in injections().values() if GCS_FUSE_VOLUMES in annotations else ():
        for name, side in itertools.product(injection.requests, ("request", "limit")):
            key = f"{injection.annotations}{name}-{side}"
            value = annotations.get(key)
            if isinstance(value, str) and (problem := field_catalog.wrong_quantity(value)):
                yield f"{pods.path.removesuffix('spec')}metadata.annotations.{key}", problem


def _certain(violations: Iterable[Note]) -> list[tuple[str, str]]:
    """Return the paths and the problems of fields that the API server refuses for certain."""
    return [(note.path, note.reason) for note in violations if note.is_error]


def _perhaps_refused(violations: Iterable[Note]) -> Iterator[Refusal]:
    """Yield the doubts about fields that the API server may refuse."""
    for note in violations:
        if not note.is_error and note.reason is not Gap.NOT_YET:
            accepts = f"whether the API server accepts its {note.path} is not known"
            message = f"{accepts}: in some clusters it {note.reason}"
            remedy = "Correct it, or check it by a rehearsal."
            yield beyond_planning(note.path, message, remedy, only_refuses=True)


def refused_objects(documents: Sequence[Manifest]) -> list[Refusal]:
    """Return invalid fields of objects that are not workloads and that are not stored yet."""
    refused: list[Refusal] = []
    defaults: list[str] = []
    for document in documents:
        kind = document["kind"]
        about = f"{document['kind']} {name_of(document)}"
        if kind not in workload_kinds() and not workloads.is_stored(document):
            refused += _refusals_of_object(document, about)
        if kind == "PriorityClass" and document.get("globalDefault") is True:
            defaults.append(about)
    for path, about in _taken(documents):
        refused.append(invalid(path, "must not be that of another Service", about))
    second = "must not be true of a second PriorityClass"
    return [*refused, *(invalid("globalDefault", second, about) for about in defaults[1:])]


def _refusals_of_object(document: Manifest, about: str) -> Iterator[Refusal]:
    kind = document["kind"]
    if gone := [*removed(document, about)]:
        yield from gone
        return
    violations = (*of_object(kind).violations(document), *_of_controllers(document))
    is_read = field_catalog.is_judged(document) or definitions.is_defined(document)
    notes = () if is_read else field_catalog.notes(document)
    problems = dict.fromkeys(_certain((*violations, *notes)))
    # These checks compare fields with each other, so each field must be valid and known.
    if not problems and kind in _WITHIN and not any(unknown_paths(document)):
        problems = dict.fromkeys(_WITHIN[kind](document))
    for path, problem in problems:
        yield invalid(path, problem, about)
    for refusal in _perhaps_refused(violations):
        yield refusal._replace(object=about)
    for note in notes:
        if not note.is_error:
            yield as_refusal(note, about)


def _taken(documents: Iterable[Manifest]) -> _Problems:
    """Yield node ports and addresses of a Service that an earlier Service has, and the Service."""
    seen: dict[Any, Manifest] = {}
    for service in documents:
        if service["kind"] != "Service" or workloads.is_stored(service):
            continue
        spec = section(service, "spec")
        unique_values = [("ports", port.get("nodePort")) for port in items(spec, "ports")]
        unique_values += [(key, spec.get(key)) for key in ("clusterIP", "healthCheckNodePort")]
        for key, value in unique_values:
            is_one = value not in (0, "", "None") and isinstance(value, int | str)
            if is_one and seen.setdefault(value, service) is not service:
                yield f"spec.{key}", f"Service {name_of(service)}"


def _listed(holder: Any, key: str) -> list[tuple[str, Manifest]]:
    """Return the mappings of a list with their paths, without what is unknown or invalid."""
    value: Any = holder.get(key) if is_mapping(holder) else ()
    listed = cast("list[Any]", value if isinstance(value, list | tuple) else [])
    return [(f"{key}[{index}]", item) for index, item in enumerate(listed) if is_mapping(item)]


def _containers(spec: Manifest) -> list[tuple[str, Manifest]]:
    return [*_listed(spec, "containers"), *_listed(spec, "initContainers")]


def _repeated(named: Iterable[tuple[str, Any]], what: str) -> _Problems:
    seen: set[Hashable] = set()
    for path, value in named:
        if value in (None, UNKNOWN):
            continue
        if (key := as_key(value)) in seen:
            yield path, f"must not have the {what} of one before it: {value}"
        seen.add(key)


# --- Fields of a pod's spec against each other


def _host_ports(spec: Manifest) -> _Problems:
    """Yield host ports that are used twice, or differ from the container's on the host network."""
    # Init containers run one after another, so each has its ports for itself.
    containers = _listed(spec, "containers")
    is_on_host = spec.get("hostNetwork")
    for group in (containers, *([init] for init in _listed(spec, "initContainers"))):
        taken: list[tuple[str, Any]] = []
        for outer, container in group:
            for inner, port in _listed(container, "ports"):
                path = f"{outer}.{inner}.hostPort"
                container_port = port.get("containerPort")
                host_port = port.get("hostPort")
                if (
                    is_on_host is True
                    and host_port
                    and container_port != host_port
                    and group is containers
                ):
                    yield path, "must be the containerPort where hostNetwork is true"
                if number := host_port or (is_on_host and container_port):
                    address = port.get("protocol") or "TCP", port.get("hostIP") or "", number
                    taken.append((path, address))
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
                problem = f"must be from 0 to {most}, not {seconds}, because {limit}"
                yield f"{path}.lifecycle.{hook}.sleep.seconds", problem


def _mounts(spec: Manifest, claims: Iterable[str]) -> _Problems:
    """Yield mounts without a volume, and devices without a claim."""
    volumes = _listed(spec, "volumes")
    names: set[Hashable] = {*claims}
    blocks = set(names)
    for _, volume in volumes:
        names.add(name := as_key(volume.get("name")))
        if volume.get("persistentVolumeClaim") or volume.get("ephemeral"):
            blocks.add(name)
    are_known = UNKNOWN not in names
    for path, container in _containers(spec):
        mounts = _listed(container, "volumeMounts")
        devices = _listed(container, "volumeDevices")
        named = [(f"{inner}.name", mount.get("name"), names) for inner, mount in mounts]
        mounted = {as_key(name) for _, name, _ in named}
        named += [(f"{inner}.name", device.get("name"), blocks) for inner, device in devices]
        for inner, variable in _listed(container, "env"):
            if key := section(variable, "valueFrom", "fileKeyRef"):
                inner = f"{inner}.valueFrom.fileKeyRef.volumeName"
                named.append((inner, key.get("volumeName"), names))
        for inner, name, accepted in named:
            if are_known and name is not UNKNOWN and as_key(name) not in accepted:
                problem = f"must be the name of a volume of the right type, not {name}"
                yield f"{path}.{inner}", problem
        for inner, device in devices:
            if as_key(device.get("name")) in mounted and device.get("name") is not UNKNOWN:
                yield f"{path}.{inner}.name", "must not be mounted as a folder as well"


def _device_claims(spec: Manifest) -> _Problems:
    """Yield device claims that the pod lacks, or that a container uses twice."""
    names = {as_key(claim.get("name")) for _, claim in _listed(spec, "resourceClaims")}
    for path, container in _containers(spec):
        seen = defaultdict[Hashable, set[Hashable]](set)
        for inner, claim in _listed(container.get("resources"), "claims"):
            name = as_key(claim.get("name"))
            request = as_key(claim.get("request") or None)
            if names.isdisjoint({UNKNOWN, name}) and UNKNOWN not in (name, request):
                yield f"{path}.resources.{inner}", "must be the name of one of spec.resourceClaims"
            # Without a request, a container uses all devices of the claim.
            before = seen[name]
            if before and (request is None or not before.isdisjoint({None, request})):
                yield f"{path}.resources.{inner}", "must not be used twice"
            before.add(request)


def refused_label_keys(spec: Manifest, labels: Manifest) -> Iterable[Refusal]:
    """Yield matchLabelKeys that a selector has already.

    If a pod has the label, the API server adds an expression for it to the selector. Without
    labels, for a template, a selector is rejected that names such a key twice.
    """
    if not (spec.get("affinity") or spec.get("topologySpreadConstraints")):
        return
    holders = _listed(spec, "topologySpreadConstraints")
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = section(spec, "affinity", kind)
        for path, term in _listed(affinity, REQUIRED):
            holders.append((f"affinity.{kind}.{path}", term))
        for path, weighted in _listed(affinity, PREFERRED):
            term = section(weighted, "podAffinityTerm")
            holders.append((f"affinity.{kind}.{path}.podAffinityTerm", term))
    for path, holder in holders:
        selector = section(holder, "labelSelector")
        named = [*section(selector, "matchLabels"), *labels]
        named += [requirement.get("key") for requirement in items(selector, "matchExpressions")]
        times_named = Counter(map(as_key, named))
        for key in holder.get("matchLabelKeys") or ():
            if times_named[as_key(key)] > 1:
                problem = f"must not name {key}, which labelSelector names"
                yield invalid(f"{path}.matchLabelKeys", problem)


# --- Fields of quotas and limits against each other


def _scopes(quota: Manifest) -> _Problems:
    """Yield scopes that do not apply to a resource of the quota, or that exclude each other."""
    spec = section(quota, "spec")
    selecting = "spec.scopeSelector.matchExpressions"
    # A quota of any scope may limit extended resources and object counts.
    standard = {key for key in section(spec, "hard") if "/" not in key}
    required = _listed(section(spec, "scopeSelector"), "matchExpressions")
    for path, names in (
        ("spec.scopes", [scope for scope in spec.get("scopes") or () if scope is not UNKNOWN]),
        (selecting, [requirement.get("scopeName") for _, requirement in required]),
    ):
        for name in names:
            if others := standard - _OF_SCOPES.get(str(name), _OF_PODS):
                has = f"spec.hard has {', '.join(sorted(others))}"
                yield path, f"must not hold {name}, because {has}"
        for pair in _OPPOSITES:
            if {*pair} <= {*names}:
                yield path, f"must not hold {' and '.join(pair)}"


def _amounts(limit_range: Manifest) -> _Problems:
    """Yield amounts of a LimitRange that are not in the order of minimum, defaults and maximum."""
    for path, limit in _listed(section(limit_range, "spec"), "limits"):
        by_name = defaultdict[str, dict[str, int]](dict)
        for key in (*_IN_ORDER, "maxLimitRequestRatio"):
            for name, amount in millis(section(limit, key)).items():
                by_name[name][key] = amount
        of_claims = limit.get("type") == "PersistentVolumeClaim"
        if of_claims and by_name.get("storage", {}).keys().isdisjoint({"min", "max"}):
            yield f"spec.{path}", "must have a min or a max of storage"
        for name, limits in sorted(by_name.items()):
            for less, more in itertools.combinations(filter(limits.__contains__, _IN_ORDER), 2):
                if limits[less] > limits[more]:
                    yield f"spec.{path}.{less}.{name}", f"must be at most its {more}"
            ratio = limits.get("maxLimitRequestRatio", WHOLE)
            least = limits.get("min", 0)
            most = limits.get("max", math.inf)
            if ratio < WHOLE or (least and ratio * least > WHOLE * most):
                problem = "must be at least 1, and at most max divided by min"
                yield f"spec.{path}.maxLimitRequestRatio.{name}", problem
            # What has a max and no default has the max as its default.
            default = limits.get("default", limits.get("max"))
            request = limits.get("defaultRequest")
            if None not in (request, default) and request != default and is_extended(name):
                yield f"spec.{path}.default.{name}", "must be its defaultRequest"


def _overhead(runtime_class: Manifest) -> _Problems:
    """Yield problems of a RuntimeClass's overhead as the limits of a container."""
    limits = {"limits": section(runtime_class, "overhead", "podFixed")}
    for refusal in invalid_resources({"containers": [{"resources": limits}]}):
        yield "overhead.podFixed", refusal.message


_IN_ORDER = ("min", "defaultRequest", "default", "max")


def _template(document: Manifest) -> _Problems:
    """Yield what is invalid about the pods of a PodTemplate."""
    for path, problem in _of_pod_spec(section(document, "template", "spec")):
        yield f"template.spec.{path}", problem


_WITHIN = {
    "Namespace": wrong_labels,
    "ResourceQuota": _scopes,
    "LimitRange": _amounts,
    "RuntimeClass": _overhead,
    "PodTemplate": _template,
}


# --- Workloads


def _of_workload(workload: Workload, pods: PodSet, spec: Manifest) -> _Problems:
    labels = labels_of(pods.template)
    workload_spec = section(workload.manifest, "spec")
    selector = workload_spec.get("selector")
    if workload.kind == "ReplicationController":
        selector = {"matchLabels": selector} if selector else None
        if not selector and not labels:
            yield "spec.selector", "must be given, or be the labels of the template"
    path = "spec.jobTemplate.spec" if workload.kind == "CronJob" else "spec"
    job = section(workload.manifest, *path.split("."))
    for below, problem in _of_job(job, spec):
        yield f"{path}.{below}", problem
    for key in labels if workload.kind in ("Job", "CronJob") else ():
        if labels[key] not in (pods.labels[key], UNKNOWN):
            template = pods.path.removesuffix("spec")
            yield f"{template}metadata.labels.{key}", "must be left out: Jobs have their own"
    if selector and kinds()[workload.kind].adopts:
        is_unknown = any(unknown_paths([selector, labels, pods.template.get("metadata")]))
        if not is_unknown and not selects(selector, labels):
            yield "spec.selector", "must select the labels of the template"
    completions = workload_spec.get("completions")
    if workloads.is_indexed(workload) and isinstance(completions, int) and completions > 0:
        host = f"{workload.name}-{completions - 1}"
        if workload.name not in ("", UNKNOWN) and not DNS_LABEL.matches(host):
            yield "metadata.name", f"must make a DNS label of the last pod's host name, not {host}"


def _of_job_set(name: str, spec: Manifest) -> _Problems:
    """Yield invalid names that a JobSet creates, jobs that it lacks, and an invalid coordinator."""
    jobs = items(spec, "replicatedJobs")
    leads = section(spec, "coordinator")
    names = [job.get("name") or "" for job in jobs]
    subdomain = section(spec, "network").get("subdomain") or name
    named: list[tuple[int, Any]] = []
    """Names of jobs, each with the number of jobs that it may name, from the first."""
    rules = items(section(spec, "failurePolicy"), "rules")
    for policy in (section(spec, "successPolicy"), *rules):
        named += [(len(names), target) for target in texts(policy, "targetReplicatedJobs")]
    named += [(len(names), leads.get("replicatedJob"))] if leads else []
    for index, job in enumerate(jobs):
        job_spec = section(job, "template", "spec")
        path = f"spec.replicatedJobs[{index}]"
        replicas = 1 if job.get("replicas") is None else job["replicas"]
        count = job_spec.get("completions")
        has_indexes = job_spec.get("completionMode") != "NonIndexed"
        pod = (f"-{count - 1}-xxxxx" if isinstance(count, int) else "-0") if has_indexes else ""
        longest = f"{name}-{names[index]}-{(replicas or 1) - 1}{pod}"
        if name and name is not UNKNOWN and not DNS_LABEL_1035.matches(longest):
            is_of_job = len(str(names[index])) > len(name)
            where = f"{path}.name" if is_of_job else "metadata.name"
            yield where, f"must make DNS labels of at most 63 characters, not {longest}"
        if job.get("dependsOn") == [] and index == 0:
            named.append((0, None))  # the first job may not have it, not even empty
        named += [(index, dependency.get("name")) for dependency in items(job, "dependsOn")]
        for below, problem in _of_job(job_spec, section(job_spec, "template", "spec")):
            yield f"{path}.template.spec.{below}", problem
        if leads.get("replicatedJob") == names[index] and UNKNOWN not in leads.values():
            job_index = leads.get("jobIndex") or 0
            pod_index = leads.get("podIndex") or 0
            address = f"{name}-{names[index]}-{job_index}-{pod_index}.{subdomain}"
            is_there = 0 <= job_index < replicas and has_indexes and 0 <= pod_index < (count or 0)
            if not is_there or (UNKNOWN not in (name, subdomain) and len(address) > 63):
                needed = "one of its pods with an index, and an address of at most 63 letters"
                yield "spec.coordinator", f"must be {needed}"
    place_of: dict[Hashable, int] = {}
    for place, own_name in enumerate(names):
        place_of.setdefault(as_key(own_name), place)
    for before, target in named:
        if target is not UNKNOWN and place_of.get(as_key(target), before) >= before:
            yield "spec", f"must name jobs that it has, and in dependsOn those before, not {target}"


def _of_job(job: Manifest, pods: Manifest) -> _Problems:
    """Yield containers and indexes that a Job lacks; indexes are in order, such as "0,2-4"."""
    names = {as_key(container.get("name")) for _, container in _containers(pods)}
    for path, rule in _listed(section(job, "podFailurePolicy"), "rules"):
        named = section(rule, "onExitCodes").get("containerName")
        if named and named is not UNKNOWN and names.isdisjoint({UNKNOWN, as_key(named)}):
            problem = f"must be the name of a container, not {named}"
            yield f"podFailurePolicy.{path}.onExitCodes.containerName", problem
    for path, rule in _listed(section(job, "successPolicy"), "rules"):
        most = job.get("completions")
        count = rule.get("succeededCount")
        cause = f"completions is {most}"
        if isinstance(indexes := rule.get("succeededIndexes"), str) and isinstance(most, int):
            numbers: list[int] = []
            total = 0
            for start, end in re.findall(r"([0-9]+)(?:-([0-9]+))?", indexes):
                first = int(start)
                last = int(end or start)
                numbers += [first] if first == last else [first, last]
                total += last - first + 1
            is_ascending = numbers == sorted({*numbers})
            are_valid = _INDEXES.fullmatch(indexes) and is_ascending and numbers[-1] < most
            if indexes and not are_valid:
                problem = f"must be indexes in ascending order below {most}, because {cause}"
                yield f"successPolicy.{path}.succeededIndexes", problem
            most = total
            cause = f"succeededIndexes has {total}"
        if isinstance(count, int) and isinstance(most, int) and count > most:
            yield f"successPolicy.{path}.succeededCount", f"must be at most {most}, because {cause}"
