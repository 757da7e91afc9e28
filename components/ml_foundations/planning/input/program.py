"""The nodes and the Kubernetes objects among the resources of a Pulumi program.

Resources are pairs of type token and inputs, as Pulumi's engine has them, with ``UNKNOWN`` for
values that are not known yet.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ml_foundations.catalog import versions
from ml_foundations.catalog.injections import SERVICE_AGENT
from ml_foundations.catalog.kueue import configuration_object
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.catalog.pools import CLUSTER, NODE_POOL
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import RELEASE, Manifest, items, name_of, section
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown, unknown_paths
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.input.iam import grants, is_of_iam
from ml_foundations.planning.input.networks import device_networks
from ml_foundations.planning.input.node_pools import RANDOM, from_node_pool, unknown_nodes
from ml_foundations.planning.model.declared import of_type
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Cause, UnknownFact

Resource = tuple[str, Manifest]
"""Type token and inputs."""

NETWORK = "gcp:compute/network:Network"
CONNECTION = "gcp:servicenetworking/connection:Connection"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
NAT = "gcp:compute/routerNat:RouterNat"
"""A network, its private services access, its subnetworks, and its NAT gateways."""
BUCKET = "gcp:storage/bucket:Bucket"
ADDRESSES = ("gcp:compute/address:Address", "gcp:compute/globalAddress:GlobalAddress")
_CHARTS = {chart.name for chart in vars(versions).values() if isinstance(chart, versions.Chart)}
"""The charts of our components: planning takes the requests of their pods off the nodes."""
NO_LIST = (UnknownFact("list of node pools", Cause.NO_POOL_LIST),)
"""What is not known of a cluster whose pools the program does not list."""
NAMED = (NODE_POOL, BUCKET, NETWORK, SUBNETWORK)
"""The types with a name that others use, which Pulumi generates if a program sets none."""
UNIQUE = (CLUSTER, NODE_POOL, NETWORK, SUBNETWORK, BUCKET, *ADDRESSES)
"""The types whose names differ in one place of a project."""
_JUDGED = (*UNIQUE, CONNECTION, NAT)


def is_judged(type_: str) -> bool:
    """Return whether resources of a type matter to planning."""
    return type_ in _JUDGED or type_.startswith("kubernetes:") or is_of_iam(type_)


def is_kept(type_: str, *, retained: Any, protected: Any) -> bool:
    """Return whether Pulumi never deletes a resource; protection counts for a Namespace only."""
    return bool(retained or (protected and type_ == "kubernetes:core/v1:Namespace"))


def named(resource: Resource, of_program: str, name: str | None = None) -> Resource:
    """Return a resource with the name that Pulumi generates, if its type has one."""
    type_, inputs = resource
    if type_ in NAMED and inputs.get("name") is None:
        return type_, {**inputs, "name": name or f"{of_program}{RANDOM}"}
    given = section(inputs, "metadata")
    if "kind" not in inputs or inputs.get("metadata") is UNKNOWN or given.get("name") is not None:
        return resource
    return type_, {**inputs, "metadata": {**given, "name": name or f"{of_program}{RANDOM}x"}}


def objects_of(resources: Iterable[Resource]) -> list[Manifest]:
    """Return the Kubernetes objects, with unknown objects for other charts and for patches."""
    objects: list[Manifest] = []
    for type_, inputs in resources:
        kind = inputs.get("kind")
        if type_ == RELEASE:
            is_kueue = is_release_of(type_, inputs, versions.KUEUE)
            if is_kueue and (configuration := configuration_object(_values(inputs))):
                objects.append(configuration)
            if _chart(inputs) not in _CHARTS:
                objects.append(_not_shown("Release", f"{inputs.get('name') or _chart(inputs)}"))
        elif type_.startswith("kubernetes:") and isinstance(kind, str):
            metadata = section(inputs, "metadata")
            names = (inputs.get("apiVersion"), metadata.get("name"), metadata.get("namespace"))
            if any(isinstance(name, dict | list) for name in names):
                objects.append(_not_shown(kind, "with an invalid name"))
                continue
            category = field_catalog.kind_of(str(inputs.get("apiVersion")), kind).category
            if not type_.endswith("Patch"):
                objects.append(inputs)
            elif category != field_catalog.HARMLESS:
                objects.append(_not_shown(f"{kind}Patch", name_of(inputs)))
    return objects


def granted_buckets(resources: Iterable[Resource]) -> Iterator[Any]:
    """Yield the buckets that GKE's service agent has a role on; None for all."""
    for grant in grants(resources):
        if any(member is UNKNOWN or SERVICE_AGENT in str(member) for member in grant.members):
            yield grant.on


def shown_clusters(resources: Sequence[Resource]) -> list[Manifest]:
    """Return the inputs of the program's clusters, if all of its charts are ours."""
    return of_type(resources, CLUSTER) if charts_of(resources) <= _CHARTS else []


def chart_namespaces(resources: Iterable[Resource]) -> list[str]:
    """Return the namespaces of the program's Helm releases, whose objects are not shown."""
    return [str(release.get("namespace")) for release in of_type(resources, RELEASE)]


def charts_of(resources: Iterable[Resource]) -> set[str]:
    """Return the names of the charts that a program installs."""
    return set(map(_chart, of_type(resources, RELEASE)))


def _not_shown(kind: str, name: str) -> Manifest:
    return {"apiVersion": "pulumi", "kind": kind, "metadata": {"name": name}}


def is_release_of(type_: str, inputs: Manifest, chart: versions.Chart) -> bool:
    """Return whether a resource is a Helm release of a chart."""
    return type_ == RELEASE and _chart(inputs) == chart.name


def _chart(release: Manifest) -> str:
    return str(release.get("chart")).rpartition("/")[2]


def nodes_of(resources: Sequence[Resource], existing: Sequence[Resource] = ()) -> list[NodeClass]:
    """Return the nodes that a program may have, as far as it declares them.

    If the program does not create the cluster, there may be other nodes. If it creates several,
    the cluster of an object is not known. Then no workload is refused for a lack of nodes, but
    one may be for a lack of GPUs if the existing pools are described.

    Args:
        resources: What the program declares.
        existing: Node pools of a cluster that exists already: among them, all that have GPUs.
    """
    values = values_of(resources, versions.DRA_DRIVER)
    known: Manifest = {} if values is None or isinstance(values, Unknown) else values
    selector = section(known, "kubeletPlugin", "nodeSelector")
    operator = operator_of(resources)
    is_broken = isinstance(operator, Operator) and operator.breaks_networking
    nodes: list[NodeClass] = []
    for node in _nodes(resources, existing):
        lacks_driver = is_broken
        for key, value in selector.items():
            lacks_driver |= node.labels.get(key) not in (value, UNKNOWN)
        if lacks_driver and not node.unknown:
            # Nodes without NVIDIA's driver for DRA lack its devices.
            node = replace(node, lacks=node.lacks | {labels.GPU_DEVICE_CLASS})
        nodes.append(node)
    return nodes


def _nodes(resources: Sequence[Resource], existing: Sequence[Resource]) -> list[NodeClass]:
    clusters = of_type(resources, CLUSTER)
    pools = of_type(resources, NODE_POOL)
    objects = objects_of(resources)
    operator = operator_of(resources)
    networks = device_networks(objects, are_all=len(clusters) == 1)
    if not clusters:
        all_pools = [*(inputs for _, inputs in existing), *pools]
        nodes = [from_node_pool(pool, None, operator or UNKNOWN, networks) for pool in all_pools]
        kinds = {(manifest["kind"], manifest.get("apiVersion")) for manifest in objects}
        if ("Node", "v1") not in kinds:
            lacks = frozenset([labels.GPU_RESOURCE] if existing else [])
            nodes.append(
                replace(unknown_nodes("the cluster's own nodes", NO_LIST, fewest=0), lacks=lacks)
            )
        return nodes
    cluster = clusters[0]
    if len(clusters) > 1 or cluster.get("enableAutopilot"):
        return [unknown_nodes("the cluster's nodes", NO_LIST, fewest=0)]
    all_pools = [*own_pools(cluster), *pools]
    nodes = [from_node_pool(pool, cluster, operator, networks) for pool in all_pools]
    if makes_pools(cluster, ()):
        nodes.append(unknown_nodes("nodes of pools that GKE makes", NO_LIST, fewest=0))
    return nodes


def makes_pools(cluster: Manifest, resources: Iterable[Resource]) -> bool:
    """Return whether GKE creates node pools itself, for pods or by a ComputeClass."""
    if cluster.get("clusterAutoscaling") is UNKNOWN:
        return True
    settings = [section(cluster, "clusterAutoscaling")]
    for manifest in objects_of(resources):
        settings.append(section(manifest, "spec", "nodePoolAutoCreation"))
    return any(setting.get("enabled") for setting in settings)


def own_pools(cluster: Manifest) -> Iterable[Manifest]:
    """Yield the pools that a cluster creates: those in its inputs, or the default pool."""
    common = {"location": cluster.get("location")}
    yield from ({**common, **pool} for pool in items(cluster, "nodePools"))
    if not cluster.get("removeDefaultNodePool") and not cluster.get("nodePools"):
        count = cluster.get("initialNodeCount") or 1  # in each zone
        config: Any = cluster.get("nodeConfig") or {}
        yield {**common, "name": "default-pool", "nodeCount": count, "nodeConfig": config}


def operator_of(resources: Sequence[Resource]) -> Operator | Unknown | None:
    """Return the GPU Operator on the program's clusters, as its release's values set it.

    It is UNKNOWN if its values are not known, or cannot be read.
    """
    values = values_of(resources, versions.GPU_OPERATOR)
    if values is None or isinstance(values, Unknown):
        return values
    release = _release_of(resources, versions.GPU_OPERATOR) or {}
    clusters = of_type(resources, CLUSTER)
    try:
        operator = Operator.of(values, release.get("version")).on(clusters)
    except ReadError:  # the findings about the platform name the field
        return UNKNOWN
    objects = objects_of(resources)
    return operator.with_daemon_sets(item for item in objects if item["kind"] == "DaemonSet")


def values_of(resources: Sequence[Resource], chart: versions.Chart) -> Manifest | Unknown | None:
    """Return the values of a chart's release; None if the program has no such release."""
    release = _release_of(resources, chart)
    return None if release is None else _values(release)


def _release_of(resources: Iterable[Resource], chart: versions.Chart) -> Manifest | None:
    releases = (inputs for type_, inputs in resources if is_release_of(type_, inputs, chart))
    return next(releases, None)


def _values(release: Manifest) -> Manifest | Unknown:
    values = section(release, "values")
    return UNKNOWN if release.get("valueYamlFiles") or any(unknown_paths(values)) else values
