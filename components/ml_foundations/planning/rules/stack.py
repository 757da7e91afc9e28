"""The view of a stack that every rule reads: it is made once, and never changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple, Protocol

from ml_foundations.catalog import versions
from ml_foundations.catalog.gke_kinds import enforces_policies
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.kubernetes.objects import Manifest, section
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown
from ml_foundations.planning.input import program
from ml_foundations.planning.input.networks import last_part
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.input.repeated import Repeated
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.model.declared import key_of, of_type
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.volumes import Stored
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.rules.network import Network


class JudgedWorkload(NamedTuple):
    """A workload with its verdict before any rule has run, and the reasons for it."""

    workload: Workload
    verdict: Verdict
    reasons: Sequence[Finding]


class ExistingObjects(Protocol):
    """The objects that exist: the declared ones, and those that every cluster has."""

    def shows(self, namespace: str) -> bool:
        """Return whether the stack alone fills a namespace."""
        ...

    def may_be_made(self, kind: str) -> bool:
        """Return whether something declared may create an object of a kind."""
        ...


@dataclass(frozen=True, eq=False)
class Stack:
    """A Pulumi program, or some manifests, as rules see them.

    A value that is not known yet is ``UNKNOWN``. The attributes without "shared" in their
    description are the surface for your own rules (docs/your-own-rules.md).
    """

    objects: Sequence[Manifest]
    """The well-formed Kubernetes objects: of a TrainJob its JobSet, of a ScaledObject its
    autoscaler, and of a live cluster only what no other object of it has made."""
    existing: ExistingObjects
    """Shared: what exists, for rules about names."""
    resources: Sequence[Resource] = ()
    """All resources of a program, as pairs of type token and inputs; none of manifests."""
    nodes: Sequence[NodeClass] = ()
    """The nodes that a program declares, by node pool."""
    workloads: Sequence[JudgedWorkload] = ()
    """The workloads of the objects, each judged."""
    kept: Sequence[Manifest] = ()
    """The Kubernetes objects that Pulumi does not delete with the stack."""
    repeated: Sequence[Repeated] = ()
    """Shared: the resources that make what an earlier resource makes."""
    stored: Sequence[Stored] = ()
    """Shared: the volumes that are created for claims."""
    is_rehearsed: bool = False
    """Whether nothing of the stack goes to Google Cloud."""

    @property
    def is_program(self) -> bool:
        """Return whether it is a program, which shows its grants, clusters and charts."""
        return bool(self.resources)

    @cached_property
    def clusters(self) -> Sequence[Manifest]:
        """The inputs of the GKE clusters that the program declares."""
        return self.of_type(program.CLUSTER)

    @cached_property
    def node_pools(self) -> Sequence[Manifest]:
        """The inputs of the node pools that the program declares."""
        return self.of_type(program.NODE_POOL)

    @cached_property
    def pools_by_cluster(self) -> Mapping[str, Sequence[Manifest]]:
        """Shared: the node pools by the name of their cluster, which is empty for the only one."""
        by_cluster: dict[str, list[Manifest]] = {}
        for pool in self.node_pools:
            name = "" if len(self.clusters) == 1 else pool.get("cluster")
            if name is not UNKNOWN:
                by_cluster.setdefault(last_part(name), []).append(pool)
        return by_cluster

    def of_type(self, type_: str) -> Sequence[Manifest]:
        """Return the inputs of the resources of one of Pulumi's types."""
        return of_type(self.resources, type_)

    def of_kind(self, kind: str) -> Sequence[Manifest]:
        """Return the objects of a kind."""
        return self._by_kind.get(kind, [])

    @cached_property
    def _by_kind(self) -> Mapping[str, list[Manifest]]:
        by_kind: dict[str, list[Manifest]] = {}
        for manifest in self.objects:
            by_kind.setdefault(manifest["kind"], []).append(manifest)
        return by_kind

    @cached_property
    def declared_objects(self) -> Sequence[Manifest]:
        """Shared: the Kubernetes objects as the program declares them."""
        return program.objects_of(self.resources)

    @cached_property
    def shown_clusters(self) -> Sequence[Manifest]:
        """Shared: the clusters, if all charts of the program are ours."""
        return program.shown_clusters(self.resources)

    @cached_property
    def kueue(self) -> Manifest | Unknown | None:
        """Shared: the values of Kueue's chart; None without it."""
        return program.values_of(self.resources, versions.KUEUE)

    @cached_property
    def gpu_operator(self) -> Operator | Unknown | None:
        """Shared: the GPU Operator; UNKNOWN if its values are not known, or cannot be read."""
        return program.operator_of(self.resources)

    @cached_property
    def services(self) -> Mapping[tuple[str, str], Manifest]:
        """Shared: the Services by namespace and name."""
        return {key_of(service): service for service in self.of_kind("Service")}

    @cached_property
    def services_by_label(self) -> Mapping[tuple[str, str, str], Sequence[Manifest]]:
        """Shared: the Services with a selector, by namespace and the first label they select."""
        by_label: dict[tuple[str, str, str], list[Manifest]] = {}
        for service in self.of_kind("Service"):
            for key, value in islice(section(service, "spec", "selector").items(), 1):
                place = (key_of(service)[0], key, str(value))
                by_label.setdefault(place, []).append(service)
        return by_label

    @cached_property
    def config_maps(self) -> Mapping[tuple[str, str], Manifest]:
        """Shared: the ConfigMaps by namespace and name."""
        return {key_of(config_map): config_map for config_map in self.of_kind("ConfigMap")}

    @cached_property
    def has_policies(self) -> bool:
        """Shared: whether a cluster may enforce NetworkPolicies."""
        return not self.clusters or any(map(enforces_policies, self.clusters))

    @cached_property
    def network(self) -> Network:
        """Shared: what the NetworkPolicies let pass between the declared pods."""
        return Network(self.objects)
