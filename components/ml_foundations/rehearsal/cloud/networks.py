"""GKE's controller of multi-networking: which networks are ready, and which nodes are in them.

Its rules are those of kubernetes/cloud-provider-gcp (pkg/controller/gkenetworkparamset).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ml_foundations.catalog.gpu_fabrics import by_address_only, gpu_fabric
from ml_foundations.kubernetes.objects import items, name_of, section
from ml_foundations.planning.input.networks import Networks, advertised, device_networks, last_part
from ml_foundations.planning.input.program import NETWORK, SUBNETWORK
from ml_foundations.rehearsal.api import Object, existing
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.statuses import Fault, new_condition, set_status
from ml_foundations.rehearsal.cloud.store import Pool

_API = "/apis/networking.gke.io/v1"
_NETWORKS = f"{_API}/networks"
_PARAMETERS = f"{_API}/gkenetworkparamsets"
_READY = {"Ready": "GNPReady", "ParamsReady": "GNPParamsReady"}
"""The conditions of parameters and of Networks, with the reason of one that is True."""


def node_networks(pool: Pool) -> Sequence[Mapping[str, Any]]:
    """Return the VPC network and subnetwork of each further interface of a pool's nodes."""
    config = section(section(pool.resource, "inputs"), "networkConfig")
    return items(config, "additionalNodeNetworkConfigs")


def in_networks(pool: Pool, networks: Networks, by_ip_only: bool | None) -> Pool:
    """Return a pool whose nodes advertise the networks that are ready.

    With ``by_ip_only``, they do so as nodes that llm-d has seen (guides/wide-ep-lws,
    gke/kustomization.yaml): by NAME.IP without NAME. None is for those machines alone.
    """
    resources, _ = advertised(section(pool.resource, "inputs"), networks)
    fabric = gpu_fabric(pool.machine)
    if by_ip_only is None:
        by_ip_only = fabric is not None and by_address_only(fabric.kind)
    if by_ip_only:
        resources = [resource for resource in resources if resource.endswith(".IP")]
    return replace(pool, networks=tuple(resources))


def cluster_network(cluster: Mapping[str, Any]) -> str:
    """Return the name of the VPC network that a cluster is in."""
    return last_part(cluster.get("network")) or "default"


class GoogleNetworks:
    """The VPC networks and subnetworks that a cluster's project has."""

    def __init__(
        self, recorded: Iterable[Object], pools: Iterable[Pool], cluster: Mapping[str, Any]
    ) -> None:
        """Collect the declared ones, and those that exist already: pools and clusters use them."""
        self.of_cluster = cluster_network(cluster)
        self._region = "-".join(str(cluster.get("location") or "").split("-")[:2])
        self._vpcs = {"default", self.of_cluster}
        self._subnets: set[str] = set()
        elsewhere = set[str]()
        for resource in recorded:
            outputs = section(resource, "outputs")
            name = str(outputs.get("name"))
            if resource["type"] == NETWORK:
                self._vpcs.add(name)
            elif resource["type"] == SUBNETWORK:
                is_here = self._region in ("", outputs.get("region"))
                (self._subnets if is_here else elsewhere).add(name)
        for pool in pools:
            for interface in node_networks(pool):
                self._vpcs.add(last_part(interface.get("network")))
                self._subnets.add(last_part(interface.get("subnetwork")))
        self._subnets -= elsewhere

    def fault(self, parameters: Object, all_parameters: Iterable[Object]) -> Fault | None:
        """Return why one of all GKENetworkParamSets is not ready."""
        spec = section(parameters, "spec")
        vpc = spec.get("vpc", "")
        subnet = spec.get("vpcSubnet", "")
        mode = spec.get("deviceMode")
        if spec.get("networkAttachment"):
            return None
        if not (vpc and subnet):
            message = "NetworkAttachment or (VPC + VPCSubnet) must be specified"
            return Fault("GNPConfigInvalid", message)
        if not mode and not spec.get("podIPv4Ranges"):
            message = "One of PodIPV4Ranges or DeviceMode must be specified."
            return Fault("SecondaryRangeAndDeviceModeUnspecified", message)
        if mode and spec.get("podIPv4Ranges"):
            message = "PodIPv4Ranges and DeviceMode can not be specified at the same time"
            return Fault("DeviceModeCantBeUsedWithSecondaryRange", message)
        if last_part(subnet) not in self._subnets:
            return Fault("SubnetNotFound", f"subnet: {subnet} not found in VPC: {vpc}")
        if last_part(vpc) not in self._vpcs:
            return Fault("VPCNotFound", f"VPC: {vpc} not found")
        if mode and last_part(vpc) == self.of_cluster:
            message = "GNP with deviceMode can't use the default VPC"
            return Fault("DeviceModeCantUseDefaultVPC", message)
        for earlier in all_parameters if mode else ():
            is_earlier = _age(earlier) < _age(parameters)
            if is_earlier and section(earlier, "spec").get("vpcSubnet") == subnet:
                taken = f"Subnet '{subnet}' is already in use by '{name_of(earlier)}'"
                return Fault("DeviceModeSubnetAlreadyInUse", f"GNP with deviceMode: {taken}")
        return None


class NetworkController(Controller):
    """Sets the status of Networks and GKENetworkParamSets, for the nodes that advertise them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._ready = Networks()
        """The Networks of devices that are ready."""

    def reconcile(self) -> None:
        """Let the nodes of each pool advertise the networks that are ready."""
        cluster = self.cluster
        pools = cluster.pools
        is_on = cluster.properties.get("enableMultiNetworking")
        if not (is_on or any(map(node_networks, pools.values()))):
            return
        with attempt("the status of networks"):
            self._look(
                GoogleNetworks(cluster.project.recorded(), pools.values(), cluster.properties)
            )
        by_ip_only = cluster.store.switch("networks_by_ip_only")
        for name, pool in pools.items():
            pools[name] = in_networks(pool, self._ready, by_ip_only)

    def _look(self, google: GoogleNetworks) -> None:
        """Look at all Networks, and set their conditions."""
        networks = existing(self.api, _NETWORKS)
        parameters = existing(self.api, _PARAMETERS)
        ready: dict[str, Object] = {}
        faulty: set[str] = set()
        for item in parameters:
            fault = google.fault(item, parameters)
            self._set_condition(_PARAMETERS, item, "Ready", fault)
            if fault:
                faulty.add(name_of(item))
            else:
                ready[name_of(item)] = item
        usable: list[Object] = []
        for network in networks:
            name = section(network, "spec", "parametersRef").get("name")
            if name in faulty:
                fault = Fault("GNPParamsNotReady", f"{name} is not ready")
            elif name not in ready:
                continue  # The controller looks at a Network once it has parameters.
            else:
                fault = _fault_of_pair(network, ready[name])
            self._set_condition(_NETWORKS, network, "ParamsReady", fault)
            if fault is None:
                usable.append(network)
                status = {"networkName": name_of(network)}
                set_status(self.api, _PARAMETERS, ready[name], status)
        self._ready = device_networks([*usable, *ready.values()])

    def _set_condition(
        self, collection: str, item: Object, type_: str, fault: Fault | None
    ) -> None:
        reason, message = fault or Fault(_READY[type_], "")
        condition = new_condition(type_, reason, message, is_true=fault is None)
        set_status(self.api, collection, item, {"conditions": [condition]})


def _fault_of_pair(network: Object, parameters: Object) -> Fault | None:
    """Return why parameters do not suit the Network that refers to them."""
    spec = section(parameters, "spec")
    kind = section(network, "spec")["type"]
    if kind == "L3" and spec.get("vpc") and not spec.get("podIPv4Ranges"):
        return Fault("L3SecondaryMissing", "L3 type network requires secondary range in params")
    if kind == "Device" and not spec.get("deviceMode"):
        return Fault("DeviceModeMissing", "Device type network requires device mode in params")
    return None


def _age(item: Object) -> tuple[str, str]:
    return item["metadata"]["creationTimestamp"], name_of(item)
