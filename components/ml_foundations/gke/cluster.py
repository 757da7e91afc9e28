"""A private, VPC-native GKE cluster with its network and its nodes' service account."""

import json
import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.resources import child_options
from ml_foundations.component.spec import check
from ml_foundations.component.types import Name, derived
from ml_foundations.gke.arguments import said
from ml_foundations.gke.maintenance import (
    MaintenanceExclusion,
    MaintenanceExclusionArgs,
    MaintenanceWindow,
    MaintenanceWindowArgs,
    maintenance_arguments,
)
from ml_foundations.gke.network import BroughtNetwork, Network, NetworkArgs, RangeSettings, made_network, nat

NODE_ROLES = ("roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader")
"""What a node needs: to log, to be monitored, and to pull images (GKE, "Harden your cluster's security")."""

ACCOUNT_ID_CHARACTERS = 30
"""The most characters of a service account's id."""

KEY = re.compile(r"projects/[^/]+/locations/(?P<location>[^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+")

LogComponent = Literal[
    "SYSTEM_COMPONENTS", "WORKLOADS", "APISERVER", "SCHEDULER", "CONTROLLER_MANAGER", "KCP_CONNECTION", "KCP_SSHD"
]
MetricsComponent = Literal[
    "SYSTEM_COMPONENTS",
    "APISERVER",
    "SCHEDULER",
    "CONTROLLER_MANAGER",
    "STORAGE",
    "HPA",
    "POD",
    "DAEMONSET",
    "DEPLOYMENT",
    "STATEFULSET",
    "KUBELET",
    "CADVISOR",
    "DCGM",
    "JOBSET",
]

DATAPATH = "ADVANCED_DATAPATH"
"""Dataplane V2, which enforces network policies (GKE, "GKE Dataplane V2")."""


class GkeClusterArgs(TypedDict):
    """Arguments of a GkeCluster."""

    project: str
    """The Google Cloud project."""
    location: str
    """The region, such as us-central1: a regional control plane."""
    node_zones: NotRequired[list[str]]
    """The zones of the nodes; by default GKE chooses three of the region."""
    release_channel: NotRequired[str]
    """RAPID, REGULAR, STABLE or EXTENDED; default REGULAR."""
    kubernetes_version: NotRequired[str]
    """The version that the control plane has at least, such as 1.34; by default the release channel's."""
    endpoint: NotRequired[str]
    """How clients reach the API server: dns (guarded by IAM, open to any network), private or public. Default dns."""
    authorized_networks: NotRequired[dict[str, str]]
    """Networks that may reach an IP endpoint: a name to a CIDR block. An IP endpoint is closed to all others."""
    network: NotRequired[NetworkArgs]
    """A network that exists; by default one is made, with a Cloud NAT."""
    node_cidr: NotRequired[str]
    """Addresses of the nodes; default 10.0.0.0/20."""
    pod_cidr: NotRequired[str]
    """Addresses of the pods; default 10.16.0.0/14."""
    service_cidr: NotRequired[str]
    """Addresses of the services; default 10.20.0.0/20."""
    control_plane_cidr: NotRequired[str]
    """Addresses of the control plane, a /28; by default it takes one of the nodes' addresses."""
    flow_logs: NotRequired[bool]
    """Whether the subnetwork that is made logs its traffic (VPC Flow Logs); default false."""
    max_pods: NotRequired[int]
    """The most pods of a node, 8 to 256, where its pool says nothing; default 110."""
    multi_networking: NotRequired[bool]
    """Whether node pools may be in more networks; default false. A change replaces the cluster."""
    secrets_key: NotRequired[pulumi.Input[str]]
    """The Cloud KMS key that encrypts Kubernetes secrets; by default Google's own. GKE's service agent must have it."""
    node_service_account: NotRequired[pulumi.Input[str]]
    """The e-mail address of a service account for the nodes; by default one is made, with the roles that it needs."""
    node_roles: NotRequired[list[str]]
    """More roles of the nodes' service account that is made."""
    security_group: NotRequired[str]
    """The Google group gke-security-groups@DOMAIN, whose groups RBAC knows; without it RBAC knows no group."""
    binary_authorization: NotRequired[bool]
    """Whether the project's policy says which images may run; default true. Google's policy at first allows all."""
    maintenance_window: NotRequired[MaintenanceWindowArgs]
    """When GKE may maintain the cluster; by default at any time."""
    maintenance_exclusions: NotRequired[dict[str, MaintenanceExclusionArgs]]
    """When it may not, by name."""
    cost_allocation: NotRequired[bool]
    """Whether the bill tells namespaces and labels apart; default true."""
    logging: NotRequired[list[str]]
    """Whose logs are kept; default SYSTEM_COMPONENTS and WORKLOADS. Also APISERVER, SCHEDULER, CONTROLLER_MANAGER."""
    monitoring: NotRequired[list[str]]
    """Whose metrics are kept; default SYSTEM_COMPONENTS and DCGM, the metrics of GPUs that GKE manages."""
    managed_prometheus: NotRequired[bool]
    """Whether Google collects Prometheus metrics; default true."""
    gcs_fuse: NotRequired[bool]
    """Whether pods can mount Cloud Storage buckets; default true."""
    filestore: NotRequired[bool]
    """Whether Filestore volumes can be made; default false."""
    lustre: NotRequired[bool]
    """Whether Managed Lustre volumes can be made; default false."""
    parallelstore: NotRequired[bool]
    """Whether Parallelstore volumes can be made; default false."""
    stateful_ha: NotRequired[bool]
    """Whether pods with a regional disk move to another zone by themselves; default false."""
    node_local_dns: NotRequired[bool]
    """Whether every node has a DNS cache; default false."""
    gateway_api: NotRequired[bool]
    """Whether the cluster has the Gateway API; default false."""
    resource_labels: NotRequired[dict[str, str]]
    """Labels of the cluster in Google Cloud and on the bill."""
    deletion_protection: NotRequired[bool]
    """Whether GKE refuses to delete the cluster; default true."""


class GkeClusterSettings(RangeSettings):
    """What a stack file says about the cluster."""

    name: Name = Field(description="The cluster's name, and that of all that is made for it.")
    location: str = Field(pattern=r"^[a-z]+-[a-z]+\d+$")
    node_zones: list[str] | None = None
    release_channel: Literal["RAPID", "REGULAR", "STABLE", "EXTENDED"] = "REGULAR"
    kubernetes_version: str | None = Field(default=None, pattern=r"^1\.\d+(\.\d+(-gke\.\d+)?)?$")
    endpoint: Literal["dns", "private", "public"] = "dns"
    authorized_networks: dict[str, IPv4Network] = {}
    network: BroughtNetwork | None = None
    flow_logs: bool = False
    max_pods: int | None = Field(default=None, ge=8, le=256)
    multi_networking: bool = False
    secrets_key: Any = None
    node_service_account: Any = None
    node_roles: list[str] = []
    security_group: str | None = Field(default=None, pattern=r"^gke-security-groups@.+\..+$")
    binary_authorization: bool = True
    maintenance_window: MaintenanceWindow | None = None
    maintenance_exclusions: dict[Name, MaintenanceExclusion] = Field(default={}, max_length=20)
    cost_allocation: bool = True
    logging: list[LogComponent] = ["SYSTEM_COMPONENTS", "WORKLOADS"]
    monitoring: list[MetricsComponent] = ["SYSTEM_COMPONENTS", "DCGM"]
    managed_prometheus: bool = True
    gcs_fuse: bool = True
    filestore: bool = False
    lustre: bool = False
    parallelstore: bool = False
    stateful_ha: bool = False
    node_local_dns: bool = False
    gateway_api: bool = False
    resource_labels: dict[str, str] = {}
    deletion_protection: bool = True

    @property
    def account_id(self) -> str:
        """The id of the nodes' service account."""
        return derived(self.name, "-nodes", ACCOUNT_ID_CHARACTERS)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from self._account_errors()
        yield from self._network_errors()
        if self.endpoint == "public" and not self.authorized_networks:
            yield "authorized_networks", "are needed: the public endpoint is closed to all others, and so to you"
        for zone in self.node_zones or []:
            if zone.rpartition("-")[0] != self.location:
                yield "node_zones", f"{zone} is not in {self.location}"
        if self.maintenance_exclusions and self.maintenance_window is None:
            yield "maintenance_exclusions", "are exceptions from a maintenance_window; give one"
        if isinstance(self.secrets_key, str):
            key = KEY.fullmatch(self.secrets_key)
            if key is None or key["location"] not in (self.location, "global"):
                form = f"projects/PROJECT/locations/{self.location}/keyRings/RING/cryptoKeys/KEY"
                yield "secrets_key", f"is {self.secrets_key}; write {form}: a key in the cluster's region"

    def _account_errors(self) -> Iterator[tuple[str, str]]:
        if self.node_service_account is not None:
            if self.node_roles:
                yield "node_roles", "are those of an account that is made, and node_service_account is given"
            return
        try:
            _ = self.account_id
        except ValueError as error:
            yield "name", f"is also part of its nodes' service account: {error}"

    def _network_errors(self) -> Iterator[tuple[str, str]]:
        if self.network is None:
            return
        for field in ("node_cidr", "pod_cidr", "service_cidr", "flow_logs"):
            if field in self.model_fields_set:
                yield field, "is for a network that is made, and network names one that exists; leave one of them out"


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
        network = _network(self, name, spec)
        self.node_service_account = _node_service_account(self, name, spec)
        self._cluster = _cluster(self, name, spec, network, self.node_service_account)
        self._name = name
        self.cluster_name = self._cluster.name
        self.location = self._cluster.location
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


def _network(parent: GkeCluster, name: str, spec: _GkeClusterSpec) -> Network:
    brought = spec.network
    if brought is None:
        return made_network(parent, name, spec.project, spec.location, spec, flow_logs=spec.flow_logs)
    if brought.nat:
        nat(parent, name, spec.project, spec.location, brought.network)
    return Network.model_validate(brought.model_dump(exclude={"nat"}))


def _node_service_account(parent: GkeCluster, name: str, spec: _GkeClusterSpec) -> pulumi.Output[str]:
    """The e-mail address of the nodes' service account: the given one, or one that is made with the roles it needs."""
    if spec.node_service_account is not None:
        return pulumi.Output.from_input(spec.node_service_account)
    account = gcp.serviceaccount.Account(
        f"{name}-nodes",
        account_id=spec.account_id,
        project=spec.project,
        display_name=f"Nodes of the GKE cluster {name}",
        opts=child_options(parent),
    )
    for role in (*NODE_ROLES, *spec.node_roles):
        gcp.projects.IAMMember(
            f"{name}-nodes-{role.rpartition('/')[2]}",
            project=spec.project,
            role=role,
            member=account.member,
            opts=child_options(parent),
        )
    return account.email


def _cluster(
    parent: GkeCluster, name: str, spec: _GkeClusterSpec, network: Network, account: pulumi.Output[str]
) -> gcp.container.Cluster:
    return gcp.container.Cluster(
        f"{name}-cluster",
        name=name,
        project=spec.project,
        location=spec.location,
        node_locations=spec.node_zones,
        resource_labels=spec.resource_labels or None,
        # Node pools are resources of their own: the one that GKE insists on is removed at once.
        initial_node_count=1,
        remove_default_node_pool=True,
        node_config={
            "service_account": account,
            "shielded_instance_config": {"enable_integrity_monitoring": True, "enable_secure_boot": True},
        },
        network=network.network,
        subnetwork=network.subnetwork,
        networking_mode="VPC_NATIVE",
        ip_allocation_policy=said(
            {
                "stack_type": "IPV4",
                "cluster_secondary_range_name": network.pod_range,
                "services_secondary_range_name": network.service_range,
            }
        ),
        default_max_pods_per_node=spec.max_pods,
        enable_multi_networking=spec.multi_networking or None,
        datapath_provider=DATAPATH,
        **said(_endpoint_arguments(spec)),
        release_channel={"channel": spec.release_channel},
        min_master_version=spec.kubernetes_version,
        maintenance_policy=said(maintenance_arguments(spec.maintenance_window, spec.maintenance_exclusions)),
        **_security_arguments(spec),
        addons_config=_addons(spec),
        gateway_api_config={"channel": "CHANNEL_STANDARD"} if spec.gateway_api else None,
        cost_management_config={"enabled": spec.cost_allocation},
        logging_config={"enable_components": list(spec.logging)},
        monitoring_config={
            "enable_components": list(spec.monitoring),
            "managed_prometheus": {"enabled": spec.managed_prometheus},
        },
        deletion_protection=spec.deletion_protection,
        opts=child_options(parent, ignore_changes=["nodeConfig", "initialNodeCount"]),
    )


class _EndpointArguments(TypedDict):
    private_cluster_config: gcp.container.ClusterPrivateClusterConfigArgsDict
    master_authorized_networks_config: gcp.container.ClusterMasterAuthorizedNetworksConfigArgsDict
    control_plane_endpoints_config: gcp.container.ClusterControlPlaneEndpointsConfigArgsDict


def _endpoint_arguments(spec: _GkeClusterSpec) -> _EndpointArguments:
    """How the control plane is reached. Its IP endpoint is closed to all but the networks that are named."""
    networks: list[gcp.container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgsDict] = [
        {"display_name": name, "cidr_block": str(block)} for name, block in spec.authorized_networks.items()
    ]
    return {
        "private_cluster_config": {
            "enable_private_nodes": True,
            "enable_private_endpoint": spec.endpoint != "public",
            "master_ipv4_cidr_block": str(spec.control_plane_cidr) if spec.control_plane_cidr else None,
        },
        "master_authorized_networks_config": {
            "cidr_blocks": networks,
            "gcp_public_cidrs_access_enabled": False,
        },
        "control_plane_endpoints_config": {"dns_endpoint_config": {"allow_external_traffic": spec.endpoint == "dns"}},
    }


class _SecurityArguments(TypedDict):
    workload_identity_config: gcp.container.ClusterWorkloadIdentityConfigArgsDict
    enable_shielded_nodes: bool
    enable_legacy_abac: bool
    master_auth: gcp.container.ClusterMasterAuthArgsDict
    database_encryption: gcp.container.ClusterDatabaseEncryptionArgsDict | None
    authenticator_groups_config: gcp.container.ClusterAuthenticatorGroupsConfigArgsDict | None
    binary_authorization: gcp.container.ClusterBinaryAuthorizationArgsDict
    security_posture_config: gcp.container.ClusterSecurityPostureConfigArgsDict
    rbac_binding_config: gcp.container.ClusterRbacBindingConfigArgsDict
    node_pool_defaults: gcp.container.ClusterNodePoolDefaultsArgsDict


def _security_arguments(spec: _GkeClusterSpec) -> _SecurityArguments:
    """Who may do what, and what is encrypted; docs/security.md says which rule each of them meets."""
    mode = "PROJECT_SINGLETON_POLICY_ENFORCE" if spec.binary_authorization else "DISABLED"
    key = spec.secrets_key
    return {
        "workload_identity_config": {"workload_pool": f"{spec.project}.svc.id.goog"},
        "enable_shielded_nodes": True,
        "enable_legacy_abac": False,
        "master_auth": {"client_certificate_config": {"issue_client_certificate": False}},
        "database_encryption": {"state": "ENCRYPTED", "key_name": key} if key is not None else None,
        "authenticator_groups_config": {"security_group": spec.security_group} if spec.security_group else None,
        "binary_authorization": {"evaluation_mode": mode},
        "security_posture_config": {"mode": "BASIC", "vulnerability_mode": "VULNERABILITY_DISABLED"},
        "rbac_binding_config": {
            "enable_insecure_binding_system_authenticated": False,
            "enable_insecure_binding_system_unauthenticated": False,
        },
        "node_pool_defaults": {"node_config_defaults": {"insecure_kubelet_readonly_port_enabled": "FALSE"}},
    }


def _addons(spec: _GkeClusterSpec) -> gcp.container.ClusterAddonsConfigArgsDict:
    return {
        "gce_persistent_disk_csi_driver_config": {"enabled": True},
        "gcs_fuse_csi_driver_config": {"enabled": spec.gcs_fuse},
        "gcp_filestore_csi_driver_config": {"enabled": spec.filestore},
        "lustre_csi_driver_config": {"enabled": spec.lustre},
        "parallelstore_csi_driver_config": {"enabled": spec.parallelstore},
        "stateful_ha_config": {"enabled": spec.stateful_ha},
        "dns_cache_config": {"enabled": spec.node_local_dns},
    }
