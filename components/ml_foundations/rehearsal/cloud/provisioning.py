"""GKE's queued provisioning: the nodes of a ProvisioningRequest come after a while, all at once or not at all."""

import time
from collections.abc import Callable, Iterator, Mapping

from ml_foundations.catalog.kueue import PROVISIONING_CLASS
from ml_foundations.kubernetes.objects import name_of, namespace_of
from ml_foundations.rehearsal.api import Api, Object, condition
from ml_foundations.rehearsal.cloud.autoscaler import Plan
from ml_foundations.rehearsal.cloud.events import now

_API = "/apis/autoscaling.x-k8s.io/v1"
_GRANTED_SECONDS = 3.0
"""How long a request waits here; in the cloud it is minutes to days."""
_WAITS = "Waiting for resources: the queued node pools have no room for all of its nodes at once"


class Requests:
    """Grants ProvisioningRequests of GKE's class."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._since: dict[str, float] = {}
        """When each request that waits was accepted, by its uid."""

    def granted(self, plan: Callable[[list[Object]], Plan]) -> Iterator[tuple[str, Plan]]:
        """The requests that are granted now, and their nodes; each is told so once the caller has made these."""
        listed = self._api.get(f"{_API}/provisioningrequests")["items"]
        waiting = {each["metadata"]["uid"]: each for each in filter(_waits, listed)}
        began = time.monotonic()
        for uid in waiting.keys() - self._since.keys():
            self._say(waiting[uid], "False", _WAITS)
        self._since = {uid: self._since.get(uid, began) for uid in waiting}
        for uid, request in waiting.items():
            if began - self._since[uid] >= _GRANTED_SECONDS:
                found = plan(list(self._pods(request)))
                if not found.unplaced:
                    yield name_of(request), found
                    details = {"ResizeRequestName": name_of(request)}
                    self._say(
                        request,
                        "True",
                        "All of its nodes are there",
                        provisioningClassDetails=details,
                    )

    def _pods(self, request: Object) -> Iterator[Object]:
        """The pods of a request, as if the scheduler had found no node for them."""
        namespace = namespace_of(request)
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for pod_set in request["spec"]["podSets"]:
            name = pod_set["podTemplateRef"]["name"]
            template = self._api.get(f"/api/v1/namespaces/{namespace}/podtemplates/{name}")[
                "template"
            ]
            metadata = {**template["metadata"], "name": name, "namespace": namespace}
            yield from [
                {**template, "metadata": metadata, "status": {"conditions": [said]}}
            ] * pod_set["count"]

    def _say(
        self, request: Object, provisioned: str, message: str, **details: Mapping[str, str]
    ) -> None:
        conditions = [
            {
                "type": kind,
                "status": status,
                "reason": kind,
                "message": message,
                "lastTransitionTime": now(),
            }
            for kind, status in (("Accepted", "True"), ("Provisioned", provisioned))
        ]
        path = f"{_API}/namespaces/{namespace_of(request)}/provisioningrequests/{name_of(request)}/status"
        self._api.patch(path, {"status": {"conditions": conditions, **details}})


def _waits(request: Object) -> bool:
    is_ours = request["spec"]["provisioningClassName"] == PROVISIONING_CLASS
    return is_ours and condition(request, "Provisioned").get("status") != "True"
