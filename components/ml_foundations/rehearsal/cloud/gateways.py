"""GKE's gateway controller: addresses of Gateways, accepted routes, and pools without a server."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog import inference_gateways as facts
from ml_foundations.catalog.gke_kinds import missing_kinds
from ml_foundations.kubernetes.objects import items, labels_of, name_of, namespace_of, section
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.planning.input.program import NETWORK, SUBNETWORK
from ml_foundations.rehearsal.api import Object, condition, existing
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.events import Recorder
from ml_foundations.rehearsal.cloud.load_balancers import address
from ml_foundations.rehearsal.cloud.networks import cluster_network
from ml_foundations.rehearsal.cloud.project_objects import follow
from ml_foundations.rehearsal.cloud.statuses import Fault, new_condition, set_status

_GATEWAY = f"/apis/{facts.GATEWAY_API}"
_GATEWAYS = f"{_GATEWAY}/gateways"
_ROUTES = f"{_GATEWAY}/httproutes"
_POOLS = f"/apis/{facts.POOL_API}/inferencepools"
_CONTROLLER = "networking.gke.io/gateway"
_NO_PROXIES = Fault(
    "Invalid",
    "An active proxy-only subnetwork is required in the region and the VPC of the load balancer",
)


def has_gateways(cluster: Mapping[str, Any]) -> bool:
    """Return whether a cluster has the Gateway API. One that exists already may have it."""
    return not cluster or facts.GATEWAY_GROUP not in missing_kinds(cluster)


def has_proxies(recorded: Iterable[Object], network: str) -> bool:
    """Return whether there is a subnetwork for proxies, or the cluster's network exists already."""
    is_existing = True
    for resource in recorded:
        outputs = section(resource, "outputs")
        if resource["type"] == SUBNETWORK and outputs.get("purpose") == facts.PROXY_PURPOSE:
            return True
        # A pool may create networks between its GPUs, which no load balancer is in.
        if resource["type"] == NETWORK and outputs.get("name") == network:
            is_existing = False
    return is_existing


class GatewayController(Controller):
    """Sets the status of the Gateways of GKE's classes, of their routes and InferencePools."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._recorder = Recorder(cluster.api, _CONTROLLER)
        self._has_classes = False

    def reconcile(self) -> None:
        """Look at all Gateways, routes and InferencePools once."""
        cluster = self.cluster.properties
        listed = self.api.find(_GATEWAYS) if has_gateways(cluster) else None
        if listed is None:
            return
        classes = (*facts.REGIONAL_CLASSES, *facts.GLOBAL_CLASSES)
        for name in () if self._has_classes else classes:
            spec = {"controllerName": _CONTROLLER}
            body = {"apiVersion": facts.GATEWAY_API, "kind": "GatewayClass", "spec": spec}
            self.api.ensure(f"{_GATEWAY}/gatewayclasses", body | {"metadata": {"name": name}})
        self._has_classes = True
        gateways: list[Object] = []
        for item in listed["items"]:
            if follow(self.cluster, _GATEWAYS, item, is_served=_class(item) in classes):
                gateways.append(item)
        if not gateways:
            return
        proxies = has_proxies(self.cluster.project.recorded(), cluster_network(cluster))
        for gateway in gateways:
            is_regional = _class(gateway) in facts.REGIONAL_CLASSES
            fault = _NO_PROXIES if is_regional and not proxies else None
            value = address(gateway["metadata"]["uid"], ())
            addresses = [] if fault else [{"type": "IPAddress", "value": value}]
            conditions = [new_condition("Accepted"), _condition("Programmed", fault)]
            status = {"conditions": conditions, "addresses": addresses}
            set_status(self.api, _GATEWAYS, gateway, status)
        pools = {_key(pool): pool for pool in existing(self.api, _POOLS)}
        policies = existing(self.api, f"/apis/{facts.POLICY_API}/healthcheckpolicies")
        by_name = {_key(gateway): gateway for gateway in gateways}
        for route in existing(self.api, _ROUTES):
            named = facts.gateway_names(route)
            parents = [gateway for key, gateway in by_name.items() if key in named]
            if parents:
                self._set_route(route, parents, pools, policies)

    def _set_route(
        self,
        route: Object,
        gateways: Sequence[Object],
        pools: Mapping[tuple[str, str], Object],
        policies: Sequence[Object],
    ) -> None:
        """Set the status of a route and its pools, and report the pools without a server."""
        fault: Fault | None = None
        is_global = any(_class(gateway) in facts.GLOBAL_CLASSES for gateway in gateways)
        for _, reference in facts.pool_references(route):
            pool = pools.get((namespace_of(route), reference["name"]))
            if is_global:
                fault = Fault("InvalidKind", f"{_class(gateways[0])} serves no InferencePools")
            elif pool is None:
                fault = Fault("BackendNotFound", f'InferencePool "{reference["name"]}" not found')
            else:
                set_status(self.api, _POOLS, pool, _status_by_parent(gateways, None))
                self._report_health(pool, policies)
        set_status(self.api, _ROUTES, route, _status_by_parent(gateways, fault))

    def _report_health(self, pool: Object, policies: Sequence[Object]) -> None:
        """Report a pool whose requests get error 503, although all conditions are True."""
        if not self._is_picked(pool):
            self._report_unhealthy(pool, "its endpoint picker does not answer, and is FailClose")
        policy = facts.policy_of(_key(pool), policies)
        config = section(policy or {}, "spec", "default", "config")
        if config.get("type", "HTTP") != "HTTP":
            return
        path, asked_port = facts.asked_by(policy)
        port = items(pool["spec"], "targetPorts")[0]["number"]
        for pod in self.cluster.pods:
            is_server = namespace_of(pod) == namespace_of(pool) and selects(
                pool["spec"]["selector"], labels_of(pod)
            )
            probed = facts.probed(pod["spec"], port) if is_server else None
            if probed is not None and (probed, port) != (path, asked_port or port):
                asked = f"health checks ask {path} on port {asked_port or port}"
                self._report_unhealthy(pool, f"{asked}, and the servers answer {probed} on {port}")
                return

    def _is_picked(self, pool: Object) -> bool:
        """Return whether an endpoint picker answers, or requests go on without it."""
        picker = section(pool, "spec", "endpointPickerRef")
        namespace = namespace_of(pool)
        if picker.get("failureMode", "FailClose") != "FailClose":
            return True
        service = self.api.find(f"/api/v1/namespaces/{namespace}/services/{picker['name']}")
        behind = {"matchLabels": section(service or {}, "spec", "selector")}
        return service is not None and any(
            namespace_of(pod) == namespace
            and condition(pod, "Ready").get("status") == "True"
            and selects(behind, labels_of(pod))
            for pod in self.cluster.pods
        )

    def _report_unhealthy(self, pool: Object, reason: str) -> None:
        message = f"no healthy upstream (503): {reason}"
        self._recorder.warn(pool, "InferencePool", "NoHealthyUpstream", message)


def _key(item: Object) -> tuple[str, str]:
    return namespace_of(item), name_of(item)


def _class(gateway: Object) -> str:
    return gateway["spec"]["gatewayClassName"]


def _status_by_parent(gateways: Sequence[Object], fault: Fault | None) -> Object:
    """Return the status of a route or pool, whose references may have a fault."""
    parents: list[Object] = []
    for gateway in gateways:
        reference = {"group": facts.GATEWAY_GROUP, "kind": "Gateway", "name": name_of(gateway)}
        conditions = [new_condition("Accepted"), _condition("ResolvedRefs", fault)]
        parent = {"parentRef": reference, "controllerName": _CONTROLLER}
        parents.append(parent | {"conditions": conditions})
    return {"parents": parents}


def _condition(type_: str, fault: Fault | None) -> Object:
    return new_condition(type_, *(fault or ()), is_true=fault is None)
