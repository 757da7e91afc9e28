"""A private, VPC-native GKE cluster with its network and its nodes' service account."""

import json
from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations._manifest import child_options
from ml_foundations._spec import Name, Spec, check, derived

NODE_ROLES = ("roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader")
"""What a node needs: to log, to be monitored, and to pull images (GKE, "Harden your cluster's security")."""

ACCOUNT_ID_CHARACTERS = 30
"""The most characters of a service account's id."""


class GkeClusterArgs(TypedDict):
    """Arguments of a GkeCluster."""

    project: str
    """The Google Cloud project."""
    location: str
    """The region, such as us-central1: a regional control plane."""
    node_zones: NotRequired[list[str]]
    """The zones of the nodes; by default GKE chooses three of the region."""
    release_channel: NotRequired[str]
    """RAPID, REGULAR or STABLE; default REGULAR."""
    endpoint: NotRequired[str]
    """How clients reach the API server: dns (guarded by IAM, open to any network), private or public. Default dns."""
    authorized_networks: NotRequired[dict[str, str]]
    """Networks that may reach an IP endpoint: a name to a CIDR block. An IP endpoint is closed to all others."""
    node_cidr: NotRequired[str]
    """Addresses of the nodes; default 10.0.0.0/20."""
    pod_cidr: NotRequired[str]
    """Addresses of the pods; default 10.16.0.0/14."""
    service_cidr: NotRequired[str]
    """Addresses of the services; default 10.20.0.0/20."""
    control_plane_cidr: NotRequired[str]
    """Addresses of the control plane, a /28; default 172.16.0.0/28."""
    gcs_fuse: NotRequired[bool]
    """Whether pods can mount Cloud Storage buckets; default true."""
    filestore: NotRequired[bool]
    """Whether Filestore volumes can be made; default false."""
    deletion_protection: NotRequired[bool]
    """Whether GKE refuses to delete the cluster; default true."""


class GkeClusterSettings(Spec):
    """What a stack file says about the cluster."""

    name: Name = Field(description="The cluster's name.")
    location: str = Field(pattern=r"^[a-z]+-[a-z]+\d+$")
    node_zones: list[str] | None = None
    release_channel: Literal["RAPID", "REGULAR", "STABLE"] = "REGULAR"
    endpoint: Literal["dns", "private", "public"] = "dns"
    authorized_networks: dict[str, str] = {}
    node_cidr: str = "10.0.0.0/20"
    pod_cidr: str = "10.16.0.0/14"
    service_cidr: str = "10.20.0.0/20"
    control_plane_cidr: str = "172.16.0.0/28"
    gcs_fuse: bool = True
    filestore: bool = False
    deletion_protection: bool = True

    @property
    def account_id(self) -> str:
        """The id of the nodes' service account."""
        return derived(self.name, "-nodes", ACCOUNT_ID_CHARACTERS)

    @override
    def contradictions(self) -> Iterator[tuple[str, str]]:
        try:
            _ = self.account_id
        except ValueError as error:
            yield "name", f"is also part of its nodes' service account: {error}"


class _GkeClusterSpec(GkeClusterSettings):
    project: str = Field(min_length=6)


class GkeCluster(pulumi.ComponentResource):
    """A regional GKE cluster: private nodes, Dataplane V2, Workload Identity, shielded nodes, no default node pool.

    Source of the defaults: GKE, "Harden your cluster's security", and the CIS GKE Benchmark.
    """

    cluster_name: pulumi.Output[str]
    """The cluster's name, known at preview; node pools take it."""
    location: pulumi.Output[str]
    """The region."""
    kubeconfig: pulumi.Output[str]
    """A kubeconfig that authenticates by gke-gcloud-auth-plugin. It holds no credential."""
    node_service_account: pulumi.Output[str]
    """The e-mail address of the nodes' service account; node pools take it."""
    workload_pool: str
    """The Workload Identity pool."""

    def __init__(self, name: str, args: GkeClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the cluster and all that it stands on."""
        spec = check(_GkeClusterSpec, f"GkeCluster {name}", {**args, "name": name})
        super().__init__("ml-foundations:index:GkeCluster", name, {}, opts)
        self._subnetwork = _network(self, name, spec)
        account = _node_service_account(self, name, spec)
        self._cluster = gcp.container.Cluster(
            f"{name}-cluster",
            name=name,
            **_cluster_arguments(spec),
            network=self._subnetwork.network,
            subnetwork=self._subnetwork.self_link,
            node_config={"service_account": account.email},
            opts=child_options(self, ignore_changes=["nodeConfig", "initialNodeCount"]),
        )
        self._name = name
        self.cluster_name = self._cluster.name
        self.location = self._cluster.location
        self.node_service_account = account.email
        self.workload_pool = f"{spec.project}.svc.id.goog"
        self.kubeconfig = pulumi.Output.all(
            self._cluster.endpoint,
            self._cluster.master_auth,
            self._cluster.control_plane_endpoints_config,
            self._cluster.private_cluster_config,
        ).apply(lambda known: kubeconfig(name, *_server(spec.endpoint, *known)))
        self.register_outputs(
            {
                "cluster_name": self.cluster_name,
                "location": self.location,
                "kubeconfig": self.kubeconfig,
                "node_service_account": self.node_service_account,
                "workload_pool": self.workload_pool,
            }
        )

    def kubernetes_provider(self, depends_on: list[pulumi.Resource] | None = None) -> k8s.Provider:
        """A kubernetes provider for this cluster. Another kubeconfig of the same cluster replaces nothing."""
        return k8s.Provider(
            f"{self._name}-kubernetes",
            kubeconfig=self.kubeconfig,
            cluster_identifier=self._name,
            opts=child_options(self, depends_on=depends_on or []),
        )


def kubeconfig(name: str, server: str, ca_certificate: str | None) -> str:
    """The standard kubeconfig of a GKE cluster, as JSON (GKE, "Install kubectl and configure cluster access")."""
    cluster: dict[str, Any] = {"server": f"https://{server}"}
    if ca_certificate:
        cluster["certificate-authority-data"] = ca_certificate
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "gke-gcloud-auth-plugin",
        "installHint": "Install it: gcloud components install gke-gcloud-auth-plugin",
        "provideClusterInfo": True,
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {"exec": plugin}}],
    }
    return json.dumps(document)


def _server(
    endpoint: str, address: str, master_auth: Any, endpoints: Any, private_cluster: Any
) -> tuple[str, str | None]:
    """Where the API server is, and the CA that it takes to trust it: the DNS endpoint has a public certificate."""
    if endpoint == "dns":
        return endpoints["dns_endpoint_config"]["endpoint"], None
    if endpoint == "private":
        address = private_cluster["private_endpoint"]
    return address, master_auth["cluster_ca_certificate"]


def _network(parent: GkeCluster, name: str, spec: _GkeClusterSpec) -> gcp.compute.Subnetwork:
    """A network of the cluster's own, with a way out for private nodes."""
    network = gcp.compute.Network(
        f"{name}-network", name=name, project=spec.project, auto_create_subnetworks=False, opts=child_options(parent)
    )
    subnetwork = gcp.compute.Subnetwork(
        f"{name}-subnetwork",
        name=name,
        project=spec.project,
        region=spec.location,
        network=network.self_link,
        ip_cidr_range=spec.node_cidr,
        private_ip_google_access=True,
        secondary_ip_ranges=[
            {"range_name": "pods", "ip_cidr_range": spec.pod_cidr},
            {"range_name": "services", "ip_cidr_range": spec.service_cidr},
        ],
        opts=child_options(parent),
    )
    router = gcp.compute.Router(
        f"{name}-router",
        name=name,
        project=spec.project,
        region=spec.location,
        network=network.self_link,
        opts=child_options(parent),
    )
    gcp.compute.RouterNat(
        f"{name}-nat",
        name=name,
        project=spec.project,
        region=spec.location,
        router=router.name,
        nat_ip_allocate_option="AUTO_ONLY",
        source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
        opts=child_options(parent),
    )
    return subnetwork


def _node_service_account(parent: GkeCluster, name: str, spec: _GkeClusterSpec) -> gcp.serviceaccount.Account:
    account = gcp.serviceaccount.Account(
        f"{name}-nodes",
        account_id=spec.account_id,
        project=spec.project,
        display_name=f"Nodes of the GKE cluster {name}",
        opts=child_options(parent),
    )
    for role in NODE_ROLES:
        gcp.projects.IAMMember(
            f"{name}-nodes-{role.rpartition('/')[2]}",
            project=spec.project,
            role=role,
            member=account.member,
            opts=child_options(parent),
        )
    return account


def _cluster_arguments(spec: _GkeClusterSpec) -> dict[str, Any]:
    networks = [{"display_name": name, "cidr_block": cidr} for name, cidr in spec.authorized_networks.items()]
    return {
        "project": spec.project,
        "location": spec.location,
        "node_locations": spec.node_zones,
        # Node pools are resources of their own: the one that GKE insists on is removed at once.
        "initial_node_count": 1,
        "remove_default_node_pool": True,
        "networking_mode": "VPC_NATIVE",
        "ip_allocation_policy": {"cluster_secondary_range_name": "pods", "services_secondary_range_name": "services"},
        "private_cluster_config": {
            "enable_private_nodes": True,
            "enable_private_endpoint": spec.endpoint != "public",
            "master_ipv4_cidr_block": spec.control_plane_cidr,
        },
        "master_authorized_networks_config": {"cidr_blocks": networks},
        "control_plane_endpoints_config": {"dns_endpoint_config": {"allow_external_traffic": spec.endpoint == "dns"}},
        "datapath_provider": "ADVANCED_DATAPATH",
        "release_channel": {"channel": spec.release_channel},
        "workload_identity_config": {"workload_pool": f"{spec.project}.svc.id.goog"},
        "enable_shielded_nodes": True,
        "addons_config": {
            "gce_persistent_disk_csi_driver_config": {"enabled": True},
            "gcs_fuse_csi_driver_config": {"enabled": spec.gcs_fuse},
            "gcp_filestore_csi_driver_config": {"enabled": spec.filestore},
        },
        "cost_management_config": {"enabled": True},
        "logging_config": {"enable_components": ["SYSTEM_COMPONENTS", "WORKLOADS"]},
        "monitoring_config": {
            "enable_components": ["SYSTEM_COMPONENTS", "DCGM"],
            "managed_prometheus": {"enabled": True},
        },
        "deletion_protection": spec.deletion_protection,
    }
