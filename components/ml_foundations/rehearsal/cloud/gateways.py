"""GKE's gateway controller: addresses of Gateways, accepted routes, and pools without a server."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog import inference_gateways as facts
from ml_foundations.catalog.gke_kinds import missing_kinds
from ml_foundations.kubernetes.objects import (
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.planning.input.program import NETWORK, SUBNETWORK
from ml_foundations.rehearsal.api import Api, Object, condition, existing
from ml_foundations.rehearsal.cloud.events import Recorder, now
from ml_foundations.rehearsal.cloud.load_balancers import address
from ml_foundations.rehearsal.cloud.networks import cluster_network
from ml_foundations.rehearsal.cloud.project_objects import ProjectObjects

_GATEWAY, _POOL = f"/apis/{facts.GATEWAY_API}", f"/apis/{facts.POOL_API}"
_CONTROLLER = "networking.gke.io/gateway"
_NO_PROXIES = (
    "Invalid",
    "An active proxy-only subnetwork is required in the region and the VPC of the load balancer",
)
_Fault = tuple[str, str]
"""The reason of a condition that is False, and its message."""


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


class GatewayController:
    """Sets the status of the Gateways of GKE's classes, of their routes and InferencePools."""

    def __init__(self, api: Api, made: ProjectObjects) -> None:
        self._api, self._made = api, made
        self._recorder = Recorder(api, _CONTROLLER)
        self._has_classes = False

    def reconcile(
        self, pods: Sequence[Object], recorded: Iterable[Object], cluster: Mapping[str, Any]
    ) -> None:
        """Look at all Gateways, routes and InferencePools once."""
        listed = self._api.find(f"{_GATEWAY}/gateways")
        if listed is None:
            return
        if not self._has_classes:
            self._create_classes()
        classes = (*facts.REGIONAL_CLASSES, *facts.GLOBAL_CLASSES)
        network, gateways = cluster_network(cluster), list[Object]()
        for item in listed["items"]:
            is_served = _class(item) in classes
            if self._made.follow(f"{_GATEWAY}/gateways", item, network, is_served=is_served):
                gateways.append(item)
        if not gateways:
            return
        proxies = has_proxies(recorded, network)
        for gateway in gateways:
            self._set_gateway(gateway, has_proxies=proxies)
        routes = existing(self._api, f"{_GATEWAY}/httproutes")
        pools = {_key(pool): pool for pool in existing(self._api, f"{_POOL}/inferencepools")}
        policies = existing(self._api, f"/apis/{facts.POLICY_API}/healthcheckpolicies")
        by_name = {_key(gateway): gateway for gateway in gateways}
        for route in routes:
            named = facts.gateway_names(route)
            parents = [gateway for key, gateway in by_name.items() if key in named]
            if parents:
                self._set_route(route, parents, pools, policies, pods)

    def _create_classes(self) -> None:
        for name in (*facts.REGIONAL_CLASSES, *facts.GLOBAL_CLASSES):
            spec = {"controllerName": _CONTROLLER}
            body = {"apiVersion": facts.GATEWAY_API, "kind": "GatewayClass", "spec": spec}
            self._api.ensure(f"{_GATEWAY}/gatewayclasses", body | {"metadata": {"name": name}})
        self._has_classes = True

    def _set_gateway(self, gateway: Object, *, has_proxies: bool) -> None:
        is_regional = _class(gateway) in facts.REGIONAL_CLASSES
        fault = _NO_PROXIES if is_regional and not has_proxies else None
        conditions = [_condition("Accepted", None), _condition("Programmed", fault)]
        value = address(gateway["metadata"]["uid"], ())
        addresses = [] if fault else [{"type": "IPAddress", "value": value}]
        status = {"conditions": conditions, "addresses": addresses}
        self._set_status(f"{_GATEWAY}/namespaces/{{}}/gateways/{{}}/status", gateway, status)

    def _set_route(
        self,
        route: Object,
        gateways: Sequence[Object],
        pools: Mapping[tuple[str, str], Object],
        policies: Sequence[Object],
        pods: Sequence[Object],
    ) -> None:
        """Set the status of a route and its pools, and report the pools without a server."""
        fault: _Fault | None = None
        parents = [_parent(gateway) for gateway in gateways]
        is_global = any(_class(gateway) in facts.GLOBAL_CLASSES for gateway in gateways)
        for _, reference in facts.pool_references(route):
            pool = pools.get((namespace_of(route), reference["name"]))
            if is_global:
                fault = "InvalidKind", f"{_class(gateways[0])} serves no InferencePools"
            elif pool is None:
                fault = "BackendNotFound", f'InferencePool "{reference["name"]}" not found'
            else:
                accepted = [_condition("Accepted", None), _condition("ResolvedRefs", None)]
                status = {"parents": [parent | {"conditions": accepted} for parent in parents]}
                path = f"{_POOL}/namespaces/{{}}/inferencepools/{{}}/status"
                self._set_status(path, pool, status)
                self._report_health(pool, policies, pods)
        conditions = [_condition("Accepted", None), _condition("ResolvedRefs", fault)]
        status = {"parents": [parent | {"conditions": conditions} for parent in parents]}
        self._set_status(f"{_GATEWAY}/namespaces/{{}}/httproutes/{{}}/status", route, status)

    def _report_health(
        self, pool: Object, policies: Sequence[Object], pods: Sequence[Object]
    ) -> None:
        """Report a pool whose requests get error 503, although all conditions are True."""
        if not self._is_picked(pool, pods):
            self._report_unhealthy(pool, "its endpoint picker does not answer, and is FailClose")
        policy = facts.policy_of(_key(pool), policies)
        config = section(policy or {}, "spec", "default", "config")
        if config.get("type", "HTTP") != "HTTP":
            return
        path, asked_port = facts.asked_by(policy)
        port = items(pool["spec"], "targetPorts")[0]["number"]
        for pod in pods:
            is_server = namespace_of(pod) == namespace_of(pool) and selects(
                pool["spec"]["selector"], labels_of(pod)
            )
            probed = facts.probed(pod["spec"], port) if is_server else None
            if probed is not None and (probed, port) != (path, asked_port or port):
                asked = f"health checks ask {path} on port {asked_port or port}"
                self._report_unhealthy(pool, f"{asked}, and the servers answer {probed} on {port}")
                return

    def _is_picked(self, pool: Object, pods: Sequence[Object]) -> bool:
        """Return whether an endpoint picker answers, or requests go on without it."""
        picker, namespace = section(pool, "spec", "endpointPickerRef"), namespace_of(pool)
        if picker.get("failureMode", "FailClose") != "FailClose":
            return True
        service = self._api.find(f"/api/v1/namespaces/{namespace}/services/{picker['name']}")
        behind = {"matchLabels": section(service or {}, "spec", "selector")}
        return service is not None and any(
            namespace_of(pod) == namespace
            and condition(pod, "Ready").get("status") == "True"
            and selects(behind, labels_of(pod))
            for pod in pods
        )

    def _report_unhealthy(self, pool: Object, reason: str) -> None:
        message = f"no healthy upstream (503): {reason}"
        self._recorder.warn(pool, "InferencePool", "NoHealthyUpstream", message)

    def _set_status(self, path: str, item: Object, status: Object) -> None:
        """Patch a status, unless it differs only in times."""
        if not status.items() <= _undated(item.get("status") or {}).items():
            self._api.patch(path.format(*_key(item)), {"status": _dated(status)})


def _key(item: Object) -> tuple[str, str]:
    return namespace_of(item), name_of(item)


def _class(gateway: Object) -> str:
    return gateway["spec"]["gatewayClassName"]


def _parent(gateway: Object) -> Object:
    reference = {"group": facts.GATEWAY_GROUP, "kind": "Gateway", "name": name_of(gateway)}
    return {"parentRef": reference, "controllerName": _CONTROLLER}


def _condition(kind: str, fault: _Fault | None) -> Object:
    reason, message = fault or (kind, "")
    return {
        "type": kind,
        "status": "False" if fault else "True",
        "reason": reason,
        "message": message,
    }


def _dated(tree: Any) -> Any:
    """Return a status with the time of each condition."""
    if isinstance(tree, list):
        return [_dated(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    time = {"lastTransitionTime": now()} if "reason" in tree else {}
    return {key: _dated(value) for key, value in tree.items()} | time


def _undated(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_undated(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {key: _undated(value) for key, value in tree.items() if key != "lastTransitionTime"}
