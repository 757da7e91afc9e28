"""Descriptions of kinds of workloads: which pods their controller makes of an object.

A kind has replicas, and each replica has pods of one or more templates.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, cast

from ml_foundations.kinds.counts import Count
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    plural,
    section,
)
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping

_NO_OTHER_KEYS = {"extra": "forbid"}
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Template:
    """A template in an object, and the pods that a controller makes of it."""

    path: str
    manifest: Manifest
    spec: Manifest
    """The spec of its pods, with what the controller adds."""
    labels: Mapping[str, Any]
    """The labels of all of its pods."""
    count: int
    """The number of its pods in each replica."""
    counts: tuple[Count, ...]
    """The factors of that number, with their fields."""


@dataclass(frozen=True, slots=True)
class AddedContainer:
    """A container that a controller adds to pods."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = _NO_OTHER_KEYS
    container: Mapping[str, Any]
    when: str
    """The condition under which it is added."""
    fields_from: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its fields that an object may set, with the paths of their values."""
    volumes: Sequence[Mapping[str, Any]] = ()
    """Volumes that come with it, unless the pods have one of the same name."""

    def of(self, document: Manifest, prefix: str) -> Manifest:
        """Return the container that is added to the pods of an object."""
        given = {key: at(document, prefix + path) for key, path in self.fields_from.items()}
        return {**self.container, **{key: given[key] for key in given if given[key] is not None}}


@dataclass(frozen=True, slots=True)
class DescribedTemplate:
    """The pods that a controller makes of a template, or of the template in each item of a list.

    A condition is a path, an equals sign and values with bars between them: spec.mode=A|B.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = _NO_OTHER_KEYS
    template: Sequence[str]
    """The paths of the template. The first that an object has counts. Empty if the controller
    creates other objects only."""
    each: str = ""
    """The path of the list. All other paths are then in its items."""
    unless: str = ""
    """The condition under which there are no such pods."""
    default: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The template of an object that has none."""
    init_containers: Sequence[Mapping[str, Any]] = ()
    """Init containers that all of its pods get."""
    containers: Sequence[AddedContainer] = ()
    """Containers that all of its pods get under a condition."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels that all of its pods get."""
    labels_from: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels that all of them get, with the paths of their values."""
    count: str = ""
    """The path of their number in a replica; empty for one pod."""
    others: int = 0
    """How many pods of that number are made of another template."""
    bounds: Sequence[str] = ()
    """The paths of the least and the most number. Without a number, it is the least."""
    times: str = ""
    """The path of a factor of the number."""
    sets: Literal["", "one", "per replica"] = ""
    """Who owns them: ``one`` StatefulSet, one ``per replica``, or else the object."""
    created: Mapping[str, int] = field(default_factory=dict[str, int])
    """What the controller creates with them, as quotas count it."""

    def deciding_paths(self, prefix: str) -> list[str]:
        """Return the paths of the fields that decide how many pods there are."""
        condition = self.unless.partition("=")[0]
        used = [self.count, *self.bounds, self.times, condition]
        for added in self.containers:
            used += [added.when.partition("=")[0], *added.fields_from.values()]
        return [f"{prefix}{path}" for path in used if path]

    def prefixes(self, document: Manifest) -> list[str]:
        """Return where the paths begin: one place for each item of the list."""
        return _items_of(document, self.each) if self.each else [""]

    def of(self, document: Manifest, prefix: str) -> Template:
        """Return the template at a place of an object without unknown numbers."""
        path = prefix + self.path(document, prefix)
        template: Manifest = at(document, path) or self.default
        spec = section(template, "spec")
        present = [added for added in self.containers if holds(document, prefix + added.when)]
        if template and present:
            added = [container.of(document, prefix) for container in present]
            spec = {**spec, "containers": [*items(spec, "containers"), *added]}
            names = [volume.get("name") for volume in items(spec, "volumes")]
            volumes = [volume for container in present for volume in container.volumes]
            if volumes := [volume for volume in volumes if volume["name"] not in names]:
                spec = {**spec, "volumes": [*items(spec, "volumes"), *volumes]}
            template = {**template, "spec": spec}
        more = {key: at(document, prefix + path) for key, path in self.labels_from.items()}
        pod_labels = {**labels_of(template), **self.labels, **more}
        if self.init_containers:
            containers = [*items(spec, "initContainers"), *self.init_containers]
            spec = {**spec, "initContainers": containers}
        count = self.count_of(document, prefix)
        times = _number(document, prefix, self.times, 1)
        fields = {prefix + p: at(document, prefix + p) for p in (self.count, *self.bounds[:1]) if p}
        factor = {prefix + self.times: times} if self.times else {}
        counts = (Count(count // max(times, 1), fields, self.others), Count(times, factor))
        return Template(path, template, spec, pod_labels, count, counts)

    def path(self, document: Manifest, prefix: str) -> str:
        """Return the path of the template, without the prefix."""
        present = (path for path in self.template if at(document, prefix + path))
        return next(present, self.template[-1])

    def count_of(self, document: Manifest, prefix: str) -> int:
        """Return the number of pods in a replica."""
        if self.unless and holds(document, prefix + self.unless):
            return 0
        bounds = [at(document, prefix + path) for path in self.bounds]
        value = _number(document, prefix, self.count, whole_number(bounds[0]) if bounds else 1)
        if bounds:
            value = max(value, whole_number(bounds[0]))
            value = min(value, whole_number(bounds[1], value))
        return value * _number(document, prefix, self.times, 1) - self.others


@dataclass(frozen=True, slots=True)
class FieldConstraint:
    """A condition of a controller on fields, beyond the definition of their kind."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = _NO_OTHER_KEYS
    must: str
    """The constraint, as in the tables of ``planning/api_server``."""
    source: str
    fields: str = ""
    """The paths of the fields; without one, the constraint is on what holds them."""
    at: str = ""
    """The paths of what holds them and the fields of the condition."""
    presence: str = ""
    condition: str = ""
    """With it, or with ``at``, the constraint also holds where the kind is embedded."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The way in which Kueue queues objects of a kind (kueue v0.19.2, pkg/controller/jobs)."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = _NO_OTHER_KEYS
    frameworks: Sequence[str] = ()
    """The integrations that it needs (DependencyList)."""
    gate: Literal["", "template", "stored"] = ""
    """Of a kind whose pods wait at a gate, each alone, the stage of a pod that Kueue reads."""
    elastic: bool = False
    """Whether its objects may grow while they run."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of workload: its pods, and what else is known of its objects and controller."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = _NO_OTHER_KEYS
    kind: str
    group: str
    pods: tuple[DescribedTemplate, ...]
    own_labels: frozenset[str] = frozenset()
    """The labels whose values differ from pod to pod, or are not known before."""
    name_label: str = ""
    """The label by which pods name their object."""
    replicas: str = ""
    """The path of the number of replicas, which an autoscaler may set; empty for one."""
    surge: str = ""
    """The path of the replicas that a rollout may add."""
    claims: str = ""
    """The path of the claims that each of its pods gets by a StatefulSet."""
    ends: str = ""
    """The condition under which its pods end."""
    exclusive: str = ""
    """The annotation with a topology key: each replica has a domain of it alone."""
    key_label: str = ""
    """The label that only the pods of a replica share."""
    service_per_replica: str = ""
    """The condition under which each replica has its own Service."""
    version: str = ""
    """The version of its API."""
    template: str | None = None
    """The path of its pod template, if no description but ``planning/model`` has its pods."""
    embeds: Mapping[str, str] = field(default_factory=dict[str, str])
    """The fields that hold the spec of another kind, with that kind: its pods are made, too."""
    head_containers: Sequence[AddedContainer] = ()
    """Containers that the first of these pods get under a condition."""
    created: Mapping[str, int] = field(default_factory=dict[str, int])
    """What its controller creates for each object, as quotas count it."""
    adopts: str = ""
    """The kind of objects without an owner that it takes over if its selector matches."""
    constraints: Sequence[FieldConstraint] = ()
    longest_name: int = 0
    """The most characters in a name, if its controller lengthens it for what it makes."""
    state: str = ""
    """The path of a word for its state, besides its conditions."""
    states: Mapping[str, str] = field(default_factory=dict[str, str])
    """The state in reports by that word, or by the type of a condition that is true."""
    queue: Queue | None = None
    harmless: Sequence[str] = ()
    """The paths of fields that do not decide where its pods run. Objects with fields that are named
    nowhere are undetermined."""
    read: Sequence[str] = ()
    """The paths of more fields that decide."""
    unknown: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The paths of fields that may decide and that nothing follows, by the reason."""
    known_values: Mapping[str, Sequence[str | bool]] = field(
        default_factory=dict[str, Sequence[Any]]
    )
    """The values that are followed, by the path; with others, objects are undetermined."""
    least: Mapping[str, int] = field(default_factory=dict[str, int])
    """The smallest numbers that the API server accepts, by the path, unless they are 0."""
    required: Sequence[str] = ()
    """The paths of fields without which the API server refuses an object; by default, its spec and
    its ``template``, with what holds it."""

    @property
    def api_name(self) -> str:
        """The version of its API and the kind, as in a schema."""
        return f"{self.group}/{self.version} {self.kind}".lstrip("/")

    @property
    def collection(self) -> str:
        """The path of its objects at the API server."""
        group = f"apis/{self.group}" if self.group else "api"
        return f"/{group}/{self.version}/{plural(self.kind)}"

    @property
    def template_paths_in_schema(self) -> list[str]:
        """The paths of its pod templates; [] is each item of a list."""
        paths = [] if self.template is None else [self.template]
        for pods in self.pods:
            paths += [(f"{pods.each}[]." if pods.each else "") + path for path in pods.template]
        return paths

    def path_of(self, kind: str) -> str:
        """Return the path of the spec of a kind in objects of this one; empty if there is none."""
        embedded = {embedded: path for path, embedded in self.embeds.items()}
        return "spec" if kind == self.kind else embedded.get(kind, "")

    def replicas_of(self, document: Manifest) -> int:
        """Return the number of replicas of an object."""
        return _number(document, "", self.replicas, 1)

    def templates(self, document: Manifest) -> Iterator[Template]:
        """Yield the templates of an object without unknown numbers."""
        name = {self.name_label: name_of(document)} if self.name_label else {}
        for pods in filter(lambda pods: pods.template, self.pods):
            for prefix in pods.prefixes(document):
                template = pods.of(document, prefix)
                # A template may be optional.
                if template.manifest:
                    yield replace(template, labels={**template.labels, **name})

    def state_of(self, document: Manifest) -> tuple[str, str]:
        """Return the state that the status of an object reports, if any, and why it has failed."""
        status = section(document, "status")
        reported = {str(at(document, self.state)): status} if self.state else {}
        for condition in items(status, "conditions"):
            if condition.get("status") == "True":
                reported[str(condition.get("type"))] = condition
        for name, state in self.states.items():
            if name in reported:
                why = reported[name].get("message") or reported[name].get("reason", "")
                return state, why if state == "Failed" else ""
        return "", ""

    @property
    def main_template(self) -> str:
        """The path of the template of most pods; that of the first item, if they are in a list."""
        return (self.template_paths_in_schema or ["spec.template"])[-1].replace("[]", "[0]")

    def template_paths(self, document: Manifest) -> list[str]:
        """Return the paths of the templates, and of lists that are not known."""
        parent, _, path = (self.template or "").rpartition("[].")
        if parent:
            return [prefix + path for prefix in _items_of(document, parent)]
        paths: list[str] = [] if self.pods else [self.main_template]
        for pods in filter(lambda pods: pods.template, self.pods):
            if pods.each and at(document, pods.each) is UNKNOWN:
                paths.append(pods.each)
            for prefix in pods.prefixes(document):
                paths.append(prefix + pods.path(document, prefix))
        return list(dict.fromkeys(paths))

    def deciding_values(self, document: Manifest) -> Iterator[tuple[str, Any]]:
        """Yield the fields next to templates that decide how many pods there are, and where."""
        paths = [path for path in (self.replicas, self.surge, self.claims) if path]
        for pods in self.pods:
            for prefix in pods.prefixes(document):
                paths += pods.deciding_paths(prefix)
        for path in paths:
            yield path, at(document, path)
        if self.exclusive:
            domain = annotations_of(document).get(self.exclusive)
            yield f"metadata.annotations.{self.exclusive}", domain

    def objects_created(self, document: Manifest, replicas: int) -> dict[str, int]:
        """Return how many objects a controller creates besides pods, as quotas count them."""
        counts = Counter(self.created)
        sets = 0
        for pods in self.pods:
            created = Counter[str]()
            for prefix in pods.prefixes(document):
                has_pods = pods.count_of(document, prefix) > 0
                created |= Counter(pods.created if has_pods else {})
                if pods.sets and has_pods:
                    sets += replicas if pods.sets == "per replica" else 1
            counts += created
        if any(pods.sets for pods in self.pods):
            services = replicas if holds(document, self.service_per_replica) else 1
            counts += Counter({"services": services, "count/services": services})
            # The object has a revision too.
            counts += Counter({"count/statefulsets.apps": sets})
            counts += Counter({"count/controllerrevisions.apps": sets + 1})
        return dict(counts)

    @property
    def child_resources(self) -> list[str]:
        """The resources that its controller creates besides pods, with their groups."""
        resources = ["/services"] if self.pods else []
        for created in (self.created, *(pods.created for pods in self.pods)):
            for name in created:
                if name.startswith("count/"):
                    plural, _, group = name.removeprefix("count/").partition(".")
                    resources.append(f"{group}/{plural}")
        if any(pods.sets for pods in self.pods):
            resources += ["apps/statefulsets", "apps/controllerrevisions"]
        return list(dict.fromkeys(resources))


def at(document: Manifest, path: str) -> Any:
    """Return the value at a path such as spec.groups[0].template; None if there is none."""
    value: Any = document
    for key, index in _parts(path):
        if value is UNKNOWN:
            return UNKNOWN
        if is_mapping(value):
            value = value.get(key)
        else:
            value = cast("list[Any]", value)[int(index)] if index and value else None
    return value


@lru_cache(maxsize=4096)
def _parts(path: str) -> list[tuple[str, str]]:
    return _PART.findall(path)


def holds(document: Manifest, condition: str) -> bool:
    """Return whether a condition on an object holds. Values that are left out are ``None``."""
    path, _, values = condition.partition("=")
    return bool(path) and str(at(document, path)) in values.split("|")


def _items_of(document: Manifest, path: str) -> list[str]:
    """Return where the paths of the items of a list begin."""
    *parents, key = path.split(".")
    return [f"{path}[{index}]." for index in range(len(items(section(document, *parents), key)))]


def _number(document: Manifest, prefix: str, path: str, default: int) -> int:
    value = at(document, prefix + path) if path else None
    return whole_number(value, default)
