"""GKE's queued provisioning: it creates all nodes of a ProvisioningRequest at once, or none."""

import time
from collections.abc import Callable, Iterator, Mapping

from ml_foundations.catalog.kueue import PROVISIONING_CLASS
from ml_foundations.kubernetes.objects import name_of, namespace_of
from ml_foundations.rehearsal.api import Api, Object, condition
from ml_foundations.rehearsal.cloud.autoscaler import Plan
from ml_foundations.rehearsal.cloud.statuses import new_condition, set_status

_REQUESTS = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests"
_WAIT_SECONDS = 3.0
"""How long a request waits. In the cloud it is minutes to days."""
_WAITING = "Waiting for resources: the queued node pools have no room for all of its nodes at once"


class ProvisioningRequests:
    """Grants ProvisioningRequests of GKE's class."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._accepted_at: dict[str, float] = {}
        """When each waiting request was accepted, by its uid."""

    def granted(self, plan: Callable[[list[Object]], Plan]) -> Iterator[tuple[str, Plan]]:
        """Yield the name and the new nodes of each granted request."""
        requests = self._api.get(_REQUESTS)["items"]
        waiting: dict[str, Object] = {}
        for item in requests:
            is_ours = item["spec"]["provisioningClassName"] == PROVISIONING_CLASS
            if is_ours and condition(item, "Provisioned").get("status") != "True":
                waiting[item["metadata"]["uid"]] = item
        began = time.monotonic()
        for uid in waiting.keys() - self._accepted_at.keys():
            self._set_status(waiting[uid], _WAITING, is_provisioned=False)
        self._accepted_at = {uid: self._accepted_at.get(uid, began) for uid in waiting}
        for uid, request in waiting.items():
            if began - self._accepted_at[uid] < _WAIT_SECONDS:
                continue
            nodes = plan(list(self._pods(request)))
            if not nodes.unplaced:
                yield name_of(request), nodes
                # Only now, the caller has created the nodes.
                details = {"ResizeRequestName": name_of(request)}
                message = "All of its nodes are there"
                self._set_status(
                    request, message, is_provisioned=True, provisioningClassDetails=details
                )

    def _pods(self, request: Object) -> Iterator[Object]:
        """Yield the pods of a request, marked as unschedulable."""
        namespace = namespace_of(request)
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for pod_set in request["spec"]["podSets"]:
            name = pod_set["podTemplateRef"]["name"]
            path = f"/api/v1/namespaces/{namespace}/podtemplates/{name}"
            template = self._api.get(path)["template"]
            metadata = {**template["metadata"], "name": name, "namespace": namespace}
            pod = {**template, "metadata": metadata, "status": {"conditions": [unscheduled]}}
            yield from [pod] * pod_set["count"]

    def _set_status(
        self, request: Object, message: str, *, is_provisioned: bool, **details: Mapping[str, str]
    ) -> None:
        provisioned = new_condition("Provisioned", message=message, is_true=is_provisioned)
        conditions = [new_condition("Accepted", message=message), provisioned]
        set_status(self._api, _REQUESTS, request, {"conditions": conditions, **details})
