"""The kinds of workloads that a file in ``kinds`` describes: which pods their controller makes.

A kind has replicas, and each replica has pods of one or more templates, in StatefulSets. A new kind
is one file there, with its fields in ``input/fields.yaml``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

import yaml

from ml_foundations.kubernetes.objects import Manifest, annotations_of, labels_of, section
from ml_foundations.planning.model.declared import key_of
from ml_foundations.planning.model.exclusive import term, with_terms

_PER_REPLICA = "per replica"


@dataclass(frozen=True, slots=True)
class MadePods:
    """Pods that a controller makes of a template."""

    template: Sequence[str]
    """The paths of the template. The first that an object has counts."""
    sets: str
    """Who owns them: ``one`` StatefulSet, or one ``per replica``."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels that all of them get."""
    count: str = ""
    """The path of their number in a replica; empty for one pod."""
    others: int = 0
    """How many pods of that number are made of another template."""

    def path(self, document: Manifest) -> str:
        """Return the path of their template in an object."""
        present = [path for path in self.template if _at(document, path)]
        return present[0] if present else self.template[-1]

    def in_replica(self, document: Manifest) -> int:
        """Return their number in each replica."""
        return _number(document, self.count) - self.others


@dataclass(frozen=True, slots=True)
class DescribedKind:
    """A kind, by the pods that its controller makes of an object."""

    kind: str
    group: str
    replicas: str
    """The path of the number of replicas, which an autoscaler may set."""
    surge: str
    """The path of the replicas that a rollout may add."""
    name_label: str
    """The label by which pods name their object."""
    exclusive: str
    """The annotation with a topology key: each replica has a domain of it alone."""
    key_label: str
    """The label that only the pods of a replica share."""
    service_per_replica: str
    """The field, with its value, by which each replica has its own Service."""
    pods: tuple[MadePods, ...]
    own_labels: frozenset[str]
    """The labels whose values differ from pod to pod."""

    def replicas_of(self, document: Manifest) -> int:
        """Return the number of replicas of an object."""
        return _number(document, self.replicas)

    def labels_of(self, document: Manifest, made: MadePods) -> dict[str, Any]:
        """Return the labels that all pods of a template have."""
        template = section(document, *made.path(document).split("."))
        return {**labels_of(template), **made.labels, self.name_label: key_of(document)[1]}

    def surge_of(self, document: Manifest) -> Any:
        """Return the replicas that a rollout may add, or a percentage; 0 if it is left out."""
        return _at(document, self.surge) or 0

    def deciding_values(self, document: Manifest) -> Iterator[tuple[str, Any]]:
        """Yield the fields next to templates that decide how many pods there are, and where."""
        counts = [made.count for made in self.pods if made.count]
        for path in (self.replicas, self.surge, *counts):
            yield path, _at(document, path)
        domain = annotations_of(document).get(self.exclusive)
        yield f"metadata.annotations.{self.exclusive}", domain

    def created(self, document: Manifest, replicas: int) -> dict[str, int]:
        """Return how many objects a controller creates besides pods, as quotas count them."""
        sets = 0
        for made in self.pods:
            if made.in_replica(document):
                sets += replicas if made.sets == _PER_REPLICA else 1
        path, _, value = self.service_per_replica.partition("=")
        services = replicas if _at(document, path) == value else 1
        # The object has a revision too.
        revisions = {"count/controllerrevisions.apps": sets + 1}
        counts = {"count/statefulsets.apps": sets, "services": services, "count/services": services}
        return counts | revisions

    def placed(self, document: Manifest, spec: Manifest, replica: int) -> tuple[str, Manifest]:
        """Return the key of a replica, and the spec of its pods if its domain is exclusive.

        The webhook gives the leader affinity to its replica, and the controller gives the workers a
        node selector of the leader's domain. Affinity of all pods has the same outcome.
        """
        namespace, name = key_of(document)
        text = f"{namespace}/{name}-{replica}"
        key = sha1(text.encode(), usedforsecurity=False).hexdigest()
        domain = annotations_of(document)[self.exclusive]
        near = term(domain, {"key": self.key_label, "operator": "In", "values": [key]})
        others = {"key": self.key_label, "operator": "NotIn", "values": [key]}
        apart = term(domain, {"key": self.key_label, "operator": "Exists"}, others)
        return key, with_terms(spec, near, apart)


@cache
def described_kinds() -> Mapping[str, DescribedKind]:
    """Return the described kinds by name."""
    kinds: dict[str, DescribedKind] = {}
    for file in sorted(
        files("ml_foundations.planning.model").joinpath("kinds").iterdir(),
        key=lambda file: file.name,
    ):
        fields: dict[str, Any] = yaml.safe_load(file.read_text())
        pods = tuple(MadePods(**made) for made in fields.pop("pods"))
        own_labels = frozenset(fields.pop("own_labels"))
        kinds[fields["kind"]] = DescribedKind(pods=pods, own_labels=own_labels, **fields)
    return kinds


def _at(document: Manifest, path: str) -> Any:
    *parents, key = path.split(".")
    return section(document, *parents).get(key)


def _number(document: Manifest, path: str) -> int:
    """Return a number of an object; 1 if it is left out."""
    value = _at(document, path) if path else None
    return 1 if value is None else int(value)
