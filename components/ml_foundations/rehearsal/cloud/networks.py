"""GKE's controller of multi-networking: which networks are ready, and which nodes are in them.

Its rules are those of kubernetes/cloud-provider-gcp (pkg/controller/gkenetworkparamset).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ml_foundations.catalog.gpu_fabrics import by_address_only, gpu_fabric
from ml_foundations.kubernetes.objects import items, name_of, section
from ml_foundations.planning.input.networks import (
    Networks,
    advertised,
    device_networks,
    last_part,
)
from ml_foundations.planning.input.program import NETWORK, SUBNETWORK
from ml_foundations.rehearsal.api import Api, Object, condition, existing
from ml_foundations.rehearsal.cloud.events import now
from ml_foundations.rehearsal.cloud.store import Pool

_API = "/apis/networking.gke.io/v1"
_NETWORKS, _PARAMETERS = f"{_API}/networks", f"{_API}/gkenetworkparamsets"
_READY = {"Ready": "GNPReady", "ParamsReady": "GNPParamsReady"}
"""The conditions of parameters and of Networks, with the reason of one that is True."""
_Fault = tuple[str, str]
"""The reason of a condition that is False, and its message."""


def has_networks(pools: Iterable[Pool], cluster: Mapping[str, Any]) -> bool:
    """Return whether a cluster may have networks besides its own."""
    return bool(cluster.get("enableMultiNetworking")) or any(map(node_networks, pools))


def node_networks(pool: Pool) -> Sequence[Mapping[str, Any]]:
    """Return the VPC network and subnetwork of each further interface of a pool's nodes."""
    config = section(section(pool.resource, "inputs"), "networkConfig")
    return items(config, "additionalNodeNetworkConfigs")


def in_networks(pool: Pool, networks: Networks, by_ip_only: bool | None) -> Pool:
    """Return a pool whose nodes advertise the networks that are ready.

    With ``by_ip_only``, they do so as nodes that llm-d has seen (guides/wide-ep-lws,
    gke/kustomization.yaml): by NAME.IP without NAME. None is for those
    machines alone.
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
        self._vpcs, self._subnets = {"default", self.of_cluster}, set[str]()
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

    def fault(self, parameters: Object, others: Iterable[Object]) -> _Fault | None:
        """Return why a GKENetworkParamSet is not ready."""
        spec = section(parameters, "spec")
        vpc, subnet = spec.get("vpc", ""), spec.get("vpcSubnet", "")
        mode, has_ranges = spec.get("deviceMode"), bool(spec.get("podIPv4Ranges"))
        if spec.get("networkAttachment"):
            return None
        if not (vpc and subnet):
            wanted = "NetworkAttachment or (VPC + VPCSubnet) must be specified"
            return "GNPConfigInvalid", wanted
        if not mode and not has_ranges:
            wanted = "One of PodIPV4Ranges or DeviceMode must be specified."
            return "SecondaryRangeAndDeviceModeUnspecified", wanted
        if mode and has_ranges:
            excluded = "PodIPv4Ranges and DeviceMode can not be specified at the same time"
            return "DeviceModeCantBeUsedWithSecondaryRange", excluded
        if last_part(subnet) not in self._subnets:
            return "SubnetNotFound", f"subnet: {subnet} not found in VPC: {vpc}"
        if last_part(vpc) not in self._vpcs:
            return "VPCNotFound", f"VPC: {vpc} not found"
        if mode and last_part(vpc) == self.of_cluster:
            return "DeviceModeCantUseDefaultVPC", "GNP with deviceMode can't use the default VPC"
        for other in others if mode else ():
            if section(other, "spec").get("vpcSubnet") == subnet and _age(other) < _age(parameters):
                taken = f"Subnet '{subnet}' is already in use by '{name_of(other)}'"
                return "DeviceModeSubnetAlreadyInUse", f"GNP with deviceMode: {taken}"
        return None


class NetworkController:
    """Sets the status of Networks and GKENetworkParamSets."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.ready = Networks()
        """The Networks of devices that are ready."""

    def reconcile(self, google: GoogleNetworks) -> None:
        """Look at all Networks, and set their conditions."""
        networks = existing(self._api, _NETWORKS)
        parameters = existing(self._api, _PARAMETERS)
        ready: dict[str, Object] = {}
        faulty: set[str] = set()
        for item in parameters:
            others = [other for other in parameters if other is not item]
            fault = google.fault(item, others)
            self._set_condition(_PARAMETERS, item, "Ready", fault)
            if fault:
                faulty.add(name_of(item))
            else:
                ready[name_of(item)] = item
        usable: list[Object] = []
        for network in networks:
            name = section(network, "spec", "parametersRef").get("name")
            if name in faulty:
                fault = "GNPParamsNotReady", f"{name} is not ready"
            elif name not in ready:
                continue  # The controller looks at a Network once it has parameters.
            else:
                fault = _fault_of_pair(network, ready[name])
            self._set_condition(_NETWORKS, network, "ParamsReady", fault)
            if fault is None:
                usable.append(network)
                self._set_name(ready[name], name_of(network))
        self.ready = device_networks([*usable, *ready.values()])

    def _set_name(self, parameters: Object, network: str) -> None:
        if section(parameters, "status").get("networkName") != network:
            path = f"{_PARAMETERS}/{name_of(parameters)}/status"
            self._api.patch(path, {"status": {"networkName": network}})

    def _set_condition(
        self, collection: str, item: Object, kind: str, fault: _Fault | None
    ) -> None:
        reason, message = fault or (_READY[kind], "")
        status = {"status": "False" if fault else "True", "reason": reason, "message": message}
        if not status.items() <= condition(item, kind).items():
            dated = {"type": kind, **status, "lastTransitionTime": now()}
            path = f"{collection}/{name_of(item)}/status"
            self._api.patch(path, {"status": {"conditions": [dated]}})


def _fault_of_pair(network: Object, parameters: Object) -> _Fault | None:
    """Return why parameters do not suit the Network that refers to them."""
    spec, kind = section(parameters, "spec"), section(network, "spec")["type"]
    if kind == "L3" and spec.get("vpc") and not spec.get("podIPv4Ranges"):
        return "L3SecondaryMissing", "L3 type network requires secondary range in params"
    if kind == "Device" and not spec.get("deviceMode"):
        return "DeviceModeMissing", "Device type network requires device mode in params"
    return None


def _age(item: Object) -> tuple[str, str]:
    return item["metadata"]["creationTimestamp"], name_of(item)
