"""Descriptions of kinds of workloads: which pods their controller makes of an object.

A kind has replicas, and each replica has pods of one or more templates.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any, ClassVar, Literal, cast

from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    section,
)
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.planning.model.counts import Count
from ml_foundations.planning.model.declared import key_of
from ml_foundations.planning.model.exclusive import term, with_terms

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
        if not self.each:
            return [""]
        *parents, key = self.each.split(".")
        listed = items(section(document, *parents), key)
        return [f"{self.each}[{index}]." for index in range(len(listed))]

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
        present = [path for path in self.template if at(document, prefix + path)]
        return present[0] if present else self.template[-1]

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
class DescribedKind:
    """A kind, by the pods that its controller makes of an object."""

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
    """Of a user's kind, the version of its API."""
    harmless: Sequence[str] = ()
    """Of a user's kind, the paths of fields that do not decide where its pods run. Objects with
    other fields are undetermined."""

    def replicas_of(self, document: Manifest) -> int:
        """Return the number of replicas of an object."""
        return _number(document, "", self.replicas, 1)

    def templates(self, document: Manifest) -> Iterator[Template]:
        """Yield the templates of an object without unknown numbers."""
        name = {self.name_label: key_of(document)[1]} if self.name_label else {}
        for pods in filter(lambda pods: pods.template, self.pods):
            for prefix in pods.prefixes(document):
                template = pods.of(document, prefix)
                # A template may be optional.
                if template.manifest:
                    yield replace(template, labels={**template.labels, **name})

    def claims_of(self, document: Manifest) -> tuple[Manifest, ...]:
        """Return the claims that each pod of an object gets."""
        *parents, key = self.claims.split(".")
        return tuple(items(section(document, *parents), key))

    @property
    def main_template(self) -> str:
        """The path of the template of most pods; that of the first item, if they are in a list."""
        pods = [pods for pods in self.pods if pods.template][-1]
        return (f"{pods.each}[0]." if pods.each else "") + pods.template[-1]

    def surge_of(self, document: Manifest) -> Any:
        """Return the replicas that a rollout may add, or a percentage; 0 if it is left out."""
        return (at(document, self.surge) if self.surge else None) or 0

    def template_paths(self, document: Manifest) -> list[str]:
        """Return the paths of the templates, and of lists that are not known."""
        paths: list[str] = []
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

    def is_exclusive(self, document: Manifest) -> bool:
        """Return whether each replica of an object has a domain alone."""
        return self.exclusive in annotations_of(document)

    def created(self, document: Manifest, replicas: int) -> dict[str, int]:
        """Return how many objects a controller creates besides pods, as quotas count them."""
        counts = Counter[str]()
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
        resources = ["/services"]
        for pods in self.pods:
            for name in pods.created:
                if name.startswith("count/") and "." in name:
                    plural, _, group = name.removeprefix("count/").partition(".")
                    resources.append(f"{group}/{plural}")
            if pods.sets:
                resources += ["apps/statefulsets", "apps/controllerrevisions"]
        return list(dict.fromkeys(resources))

    def placed(self, document: Manifest, spec: Manifest, replica: int) -> tuple[str, Manifest]:
        """Return the key of a replica, and the spec of its pods if its domain is exclusive.

        The webhook gives the leader affinity to its replica, and the controller gives the workers a
        node selector of the leader's domain. Affinity of all pods has the same outcome.
        """
        namespace, name = key_of(document)
        text = f"{namespace}/{name}-{replica}"
        key = sha1(text.encode(), usedforsecurity=False).hexdigest()
        domain = annotations_of(document)[self.exclusive]
        together = term(domain, {"key": self.key_label, "operator": "In", "values": [key]})
        of_other_replicas = {"key": self.key_label, "operator": "NotIn", "values": [key]}
        separate = term(domain, {"key": self.key_label, "operator": "Exists"}, of_other_replicas)
        return key, with_terms(spec, together, separate)


def at(document: Manifest, path: str) -> Any:
    """Return the value at a path such as spec.groups[0].template; None if there is none."""
    value: Any = document
    for key, index in _PART.findall(path):
        if value is UNKNOWN:
            return UNKNOWN
        if is_mapping(value):
            value = value.get(key)
        else:
            value = cast("list[Any]", value)[int(index)] if index and value else None
    return value


def holds(document: Manifest, condition: str) -> bool:
    """Return whether a condition on an object holds. Values that are left out are ``None``."""
    path, _, values = condition.partition("=")
    return bool(path) and str(at(document, path)) in values.split("|")


def _number(document: Manifest, prefix: str, path: str, default: int) -> int:
    value = at(document, prefix + path) if path else None
    return whole_number(value, default)
