"""A private, VPC-native GKE cluster with its network and its nodes' service account."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.gke_kinds import (
    CHECKPOINTING,
    CHECKPOINTS_SINCE,
    CSI_ADDONS,
    begins_before,
)
from ml_foundations.catalog.locations import zone_fault
from ml_foundations.component.base import Child, OptionalChild
from ml_foundations.component.children import ChildResource, Ref, cloud_child
from ml_foundations.component.data import yaml_file
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.types import Cidr, InputOf, InputStr, InputText, Name, concat, derived
from ml_foundations.gke.maintenance import (
    MOST_FREEZES,
    MaintenanceExclusion,
    MaintenanceWindow,
    maintenance_arguments,
    maintenance_errors,
)
from ml_foundations.gke.network import ClusterNetworkSpec, network_arguments, network_children
from ml_foundations.kubernetes.merging import merged, without_nulls
from ml_foundations.typed_args import GkeClusterComponent

_NODE_ROLES = ("roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader")
"""What a node needs: to log, to be monitored, and to pull images (GKE, "Harden your cluster's
security")."""

_ACCOUNT_ID_CHARACTERS = 30
"""The most characters of a service account's id."""

_KEY = re.compile(r"projects/[^/]+/locations/(?P<location>[^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+")

_Common = Literal["SYSTEM_COMPONENTS", "APISERVER", "SCHEDULER", "CONTROLLER_MANAGER"]
_LogComponent = Literal[_Common, "WORKLOADS", "KCP_CONNECTION", "KCP_SSHD"]
_Workload = Literal["POD", "DAEMONSET", "DEPLOYMENT", "STATEFULSET", "JOBSET"]
_MetricsComponent = Literal[_Common, _Workload, "STORAGE", "HPA", "KUBELET", "CADVISOR", "DCGM"]


class GkeClusterSpec(ClusterNetworkSpec, ComponentSpec):
    """Arguments of a GkeCluster."""

    name_field = "name"
    config_defaults = {"project": "gcp:project"}

    node_zones: list[str] | None = None
    """The zones of the nodes. By default, GKE chooses three zones of the region."""
    release_channel: Literal["RAPID", "REGULAR", "STABLE", "EXTENDED"] = "REGULAR"
    """The release channel: RAPID, REGULAR, STABLE or EXTENDED. The default is REGULAR."""
    hpa_profile: Literal["NONE", "PERFORMANCE"] | None = None
    """The profile of the horizontal pod autoscaler: NONE or PERFORMANCE. Metrics that GKE serves
    need PERFORMANCE. By default, GKE chooses."""
    kubernetes_version: str | None = Field(default=None, pattern=r"^1\.\d+(\.\d+(-gke\.\d+)?)?$")
    """The lowest version of the control plane, such as 1.34. By default, the release channel
    chooses it."""
    endpoint: Literal["dns", "private", "public"] = "dns"
    """How clients reach the API server: dns, private or public. The default is dns, which IAM
    guards and which is open to any network."""
    authorized_networks: dict[str, Cidr] = {}
    """Networks that may reach an IP endpoint: names with CIDR blocks. An IP endpoint is closed to
    all other networks."""
    max_pods: int | None = Field(default=None, ge=8, le=256)
    """The most pods of a node, 8 to 256, if its pool sets no other number. The default is 110."""
    multi_networking: bool = False
    """Allow node pools in additional networks, such as those between GPUs. The default is false.

    Set it when you create the cluster. The provider can change it later, but Google documents no
    command for that.
    """
    secrets_key: InputStr = None
    """The Cloud KMS key that encrypts Kubernetes Secrets. By default, Google's own. GKE's service
    agent must have access to the key."""
    node_service_account: InputStr = None
    """The e-mail address of a service account for the nodes. By default, one is created with the
    roles that it needs."""
    node_roles: list[str] = []
    """More roles of the created service account of the nodes."""
    security_group: (
        Annotated[str, Field(pattern=r"^gke-security-groups@.+\..+$"), InputOf(str)] | None
    ) = None
    """The Google group gke-security-groups@DOMAIN. RBAC knows the groups in it. By default, RBAC
    knows no groups."""
    binary_authorization: bool = True
    """Enforce the project's policy for images. The default is true. Google's initial policy allows
    all images."""
    maintenance_window: MaintenanceWindow | None = None
    """When GKE may maintain the cluster. By default, at any time."""
    maintenance_exclusions: dict[Name, MaintenanceExclusion] = Field(default={}, max_length=20)
    """When GKE may not upgrade the cluster, by name."""
    notification_topic: InputStr = None
    """The Pub/Sub topic that gets GKE's notifications of upgrades, such as
    projects/PROJECT/topics/TOPIC. By default, there are none."""
    cost_allocation: bool = True
    """Split the bill by namespaces and labels. The default is true."""
    logging: list[_LogComponent] = ["SYSTEM_COMPONENTS", "WORKLOADS"]
    """The components whose logs are kept. The default is SYSTEM_COMPONENTS and WORKLOADS. You can
    add APISERVER, SCHEDULER and CONTROLLER_MANAGER."""
    monitoring: list[_MetricsComponent] = ["SYSTEM_COMPONENTS", "DCGM"]
    """The components whose metrics are kept. The default is SYSTEM_COMPONENTS and DCGM, the metrics
    of GPUs that GKE manages."""
    managed_prometheus: bool = True
    """Collect Prometheus metrics with Managed Service for Prometheus. The default is true."""
    gcs_fuse: bool = True
    """Allow pods to mount Cloud Storage buckets. The default is true."""
    filestore: bool = False
    """Allow Filestore volumes. The default is false."""
    lustre: bool = False
    """Allow Managed Lustre volumes. The default is false. They need private services access. A
    created network gets it, and an existing network must have it."""
    parallelstore: bool = False
    """Allow Parallelstore volumes. The default is false."""
    stateful_ha: bool = False
    """Move pods with a regional disk to another zone if their zone fails. The default is false."""
    multi_tier_checkpointing: bool = False
    """Let trainings keep checkpoints in the memory of nodes, by a CheckpointConfiguration. The
    default is false. It needs gcs_fuse and GKE 1.32.4-gke.1415000."""
    node_local_dns: bool = False
    """Run a DNS cache on every node. The default is false."""
    gateway_api: bool = False
    """Install the Gateway API. The default is false."""
    resource_labels: dict[str, InputText] = {}
    """Labels of the cluster in Google Cloud and on the bill."""
    deletion_protection: bool = True
    """If true, GKE refuses to delete the cluster. The default is true."""

    @property
    def account_id(self) -> str:
        """The id of the nodes' service account."""
        return derived(self.name, "-nodes", _ACCOUNT_ID_CHARACTERS)

    @property
    def workload_pool(self) -> pulumi.Input[str]:
        """The project's Workload Identity pool."""
        return concat(self.project, ".svc.id.goog")

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from self._node_account_errors()
        yield from self._maintenance_errors()
        if self.endpoint == "public" and not self.authorized_networks:
            reason = "are needed: the public endpoint refuses every address that is not listed"
            yield "authorized_networks", reason
        if self.multi_tier_checkpointing:
            if not self.gcs_fuse:
                yield "gcs_fuse", "is false, and multi_tier_checkpointing copies to buckets; set it"
            version = self.kubernetes_version
            if begins_before({"minMasterVersion": version}, CHECKPOINTS_SINCE):
                needs = f"multi_tier_checkpointing needs {CHECKPOINTS_SINCE}"
                reason = f"is {version}, and {needs}; raise it, or leave it out"
                yield "kubernetes_version", reason
        for zone in self.node_zones or []:
            if fault := zone_fault(zone, self.location):
                yield "node_zones", fault
        if isinstance(self.secrets_key, str):
            key = _KEY.fullmatch(self.secrets_key)
            if key is None or key["location"] not in (self.location, "global"):
                form = f"projects/PROJECT/locations/{self.location}/keyRings/RING/cryptoKeys/KEY"
                reason = f"is {self.secrets_key}; write {form}: a key in the cluster's region"
                yield "secrets_key", reason

    def _node_account_errors(self) -> Iterator[tuple[str, str]]:
        try:
            _ = self.account_id if self.node_service_account is None else ""
        except ValueError as error:
            yield "name", f"is also part of its nodes' service account: {error}"
        if self.node_roles and self.node_service_account is not None:
            reason = "are those of an account that is made, and node_service_account is given"
            yield "node_roles", reason
        ends = Counter(role.rpartition("/")[2] for role in (*_NODE_ROLES, *self.node_roles))
        for end, count in ends.items():
            if count > 1:
                reason = f"grant {end} twice, with those that nodes always have; leave one out"
                yield "node_roles", reason

    def _maintenance_errors(self) -> Iterator[tuple[str, str]]:
        if self.maintenance_exclusions and self.maintenance_window is None:
            yield "maintenance_exclusions", "are exceptions from a maintenance_window; add one"
        scopes = [exclusion.scope for exclusion in self.maintenance_exclusions.values()]
        freezes = scopes.count("NO_UPGRADES")
        if freezes > MOST_FREEZES:
            count = f"have {freezes} of the scope NO_UPGRADES"
            reason = f"{count}, but GKE accepts {MOST_FREEZES}; change some scopes"
            yield "maintenance_exclusions", reason
        elif self.maintenance_window is not None:
            yield from maintenance_errors(self.maintenance_window, self.maintenance_exclusions)

    @override
    def children(self) -> Iterator[ChildResource]:
        yield from network_children(self, self.lustre)
        if self.node_service_account is None:
            yield from _node_account(self)
        yield _cluster(self)


class GkeCluster(GkeClusterComponent[GkeClusterSpec]):
    """A regional GKE cluster with private nodes, Dataplane V2 and Workload Identity.

    It has no default node pool. The sources of the defaults are GKE, "Harden your cluster's
    security", and the CIS GKE Benchmark.
    """

    cluster_name: KnownOutput[str]
    """The cluster's name, known at preview. Node pools accept it."""
    project: pulumi.Output[str]
    """The Google Cloud project. Node pools accept it."""
    location: KnownOutput[str]
    """The region. Node pools accept it."""
    network: pulumi.Output[str]
    """The VPC network. StorageClasses accepts it for Filestore and Lustre."""
    deletion_protection: KnownOutput[bool]
    """If true, GKE refuses to delete the cluster. GPU node pools accept it."""
    multi_networking: KnownOutput[bool]
    """If true, node pools may be in additional networks. GPU node pools accept it."""
    kubeconfig: pulumi.Output[str]
    """A kubeconfig that authenticates by gke-gcloud-auth-plugin. It holds no credential."""
    node_service_account: pulumi.Output[str]
    """The e-mail address of the nodes' service account. Node pools accept it."""
    workload_pool: pulumi.Output[str]
    """The Workload Identity pool."""
    proxy_only_cidr: KnownOutput[str | None]
    """Addresses of the proxies of regional load balancers. InferenceGateway accepts it. None
    without a subnetwork for them."""
    cluster = Child("cluster")
    """The gcp.container.Cluster."""
    vpc = OptionalChild("network")
    """The gcp.compute.Network. None if the cluster is in an existing network."""
    subnet = OptionalChild("subnetwork")
    """The gcp.compute.Subnetwork. None if the cluster is in an existing network."""
    node_account = OptionalChild("nodes")
    """The gcp.serviceaccount.Account of the nodes. None if they have an existing account."""

    _kubernetes_provider: k8s.Provider | None = None

    @cached_property
    def node_pools(self) -> list[pulumi.ComponentResource]:
        """The node pools that were declared with this object, in their order."""
        return []

    @override
    def outputs(self, spec: GkeClusterSpec, made: Mapping[str, Any]) -> dict[str, Any]:
        cluster = made["cluster"]
        fields = ("endpoint", "masterAuth", "controlPlaneEndpointsConfig", "privateClusterConfig")
        known = pulumi.Output.all(*(getattr(cluster, field) for field in fields))
        account = spec.node_service_account
        return {
            "cluster_name": spec.name,
            "kubeconfig": known.apply(lambda known: _kubeconfig(spec, *known)),
            "node_service_account": made["nodes"].email if account is None else account,
            "proxy_only_cidr": spec.proxy_only_cidr and str(spec.proxy_only_cidr),
            "network": spec.name if spec.network is None else spec.network.network,
        }

    @override
    def kubernetes_provider(self, depends_on: Sequence[pulumi.Resource] = ()) -> k8s.Provider:
        """Return the Kubernetes provider of this cluster. The first call declares it.

        It waits for ``depends_on`` and for the node pools that were declared with ``cluster=``.
        """
        if self._kubernetes_provider is None:
            self._kubernetes_provider = self._new_provider("", [*self.node_pools, *depends_on])
        return self._kubernetes_provider

    @cached_property
    def node_pool_provider(self) -> k8s.Provider:
        """The Kubernetes provider for the objects of node pools. It waits for no pool."""
        return self._new_provider("-node-pools", [])

    def _new_provider(self, suffix: str, depends_on: Sequence[pulumi.Resource]) -> k8s.Provider:
        name = self.pulumi_resource_name
        return k8s.Provider(
            f"{name}-kubernetes{suffix}",
            kubeconfig=self.kubeconfig,
            # Another kubeconfig of the same cluster then replaces nothing.
            cluster_identifier=name,
            opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )


def _kubeconfig(
    spec: GkeClusterSpec, address: str, master_auth: Any, endpoints: Any, private_cluster: Any
) -> str:
    """Return a GKE cluster's kubeconfig as JSON (GKE, "Configure cluster access")."""
    if spec.endpoint == "dns":
        address = endpoints["dnsEndpointConfig"]["endpoint"]
    elif spec.endpoint == "private":
        address = private_cluster["privateEndpoint"]
    cluster = {"server": f"https://{address}"}
    # The DNS endpoint has a public certificate.
    if spec.endpoint != "dns" and (ca_certificate := master_auth["clusterCaCertificate"]):
        cluster["certificate-authority-data"] = ca_certificate
    words = {"cluster_name": spec.name, "access": json.dumps(cluster)}
    return json.dumps(yaml_file("gke", "kubeconfig.yaml", **words))


def _node_account(spec: GkeClusterSpec) -> Iterator[ChildResource]:
    account = {
        "accountId": spec.account_id,
        "project": spec.project,
        "displayName": f"Nodes of the GKE cluster {spec.name}",
    }
    type_ = "gcp:serviceaccount/account:Account"
    outputs = ("email", "member")
    yield cloud_child("nodes", type_, account, outputs)
    for role in (*_NODE_ROLES, *spec.node_roles):
        member = {"project": spec.project, "role": role, "member": Ref("nodes", "member")}
        suffix = f"nodes-{role.rpartition('/')[2]}"
        yield cloud_child(suffix, "gcp:projects/iAMMember:IAMMember", member)


def _cluster(spec: GkeClusterSpec) -> ChildResource:
    account = spec.node_service_account
    networks = [
        {"displayName": name, "cidrBlock": str(block)}
        for name, block in spec.authorized_networks.items()
    ]
    own_range = str(spec.control_plane_cidr) if spec.control_plane_cidr else None
    dns = {"allowExternalTraffic": spec.endpoint == "dns"}
    topic = spec.notification_topic
    notifications = {"pubsub": {"enabled": True, "topic": topic}} if topic is not None else None
    policy = "PROJECT_SINGLETON_POLICY_ENFORCE" if spec.binary_authorization else "DISABLED"
    key = spec.secrets_key
    group = spec.security_group
    cluster = {
        "name": spec.name,
        "project": spec.project,
        "location": spec.location,
        "nodeLocations": spec.node_zones,
        "resourceLabels": spec.resource_labels or None,
        "nodeConfig": {"serviceAccount": Ref("nodes", "email") if account is None else account},
        **network_arguments(spec),
        "defaultMaxPodsPerNode": spec.max_pods,
        "enableMultiNetworking": spec.multi_networking or None,
        "privateClusterConfig": {
            "enablePrivateEndpoint": spec.endpoint != "public",
            "masterIpv4CidrBlock": own_range,
        },
        # Without the user's networks, the IP endpoint is open to nobody.
        "masterAuthorizedNetworksConfig": {"cidrBlocks": networks},
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": dns},
        "releaseChannel": {"channel": spec.release_channel},
        "minMasterVersion": spec.kubernetes_version,
        "maintenancePolicy": maintenance_arguments(
            spec.maintenance_window, spec.maintenance_exclusions
        ),
        "notificationConfig": notifications,
        # Access rights and encryption, by the rules in docs/security.md.
        "workloadIdentityConfig": {"workloadPool": spec.workload_pool},
        "databaseEncryption": {"state": "ENCRYPTED", "keyName": key} if key is not None else None,
        "authenticatorGroupsConfig": {"securityGroup": group} if group else None,
        "binaryAuthorization": {"evaluationMode": policy},
        "addonsConfig": _addons(spec),
        "podAutoscaling": {"hpaProfile": spec.hpa_profile} if spec.hpa_profile else None,
        "gatewayApiConfig": {"channel": "CHANNEL_STANDARD"} if spec.gateway_api else None,
        "costManagementConfig": {"enabled": spec.cost_allocation},
        "loggingConfig": {"enableComponents": list(spec.logging)},
        "monitoringConfig": {
            "enableComponents": list(spec.monitoring),
            "managedPrometheus": {"enabled": spec.managed_prometheus},
        },
        "deletionProtection": spec.deletion_protection,
    }
    whole = without_nulls(merged(yaml_file("gke", "always.yaml"), cluster))
    # They describe the default node pool, which is removed when the cluster exists.
    ignored = ["nodeConfig", "initialNodeCount"]
    type_ = "gcp:container/cluster:Cluster"
    outputs = ("endpoint",)
    return cloud_child("cluster", type_, whole, outputs, ignore_changes=ignored)


def _addons(spec: GkeClusterSpec) -> dict[str, Any]:
    """Return the add-ons that are on. The driver of Compute Engine's disks always is."""
    drivers = {
        key: getattr(spec, argument) if argument else True for key, argument in CSI_ADDONS.values()
    }
    addons = drivers | {"statefulHaConfig": spec.stateful_ha, "dnsCacheConfig": spec.node_local_dns}
    if not spec.multi_tier_checkpointing:
        # Older clusters were made without it, and need no update.
        del addons[CHECKPOINTING]
    return {addon: {"enabled": enabled} for addon, enabled in addons.items()}
