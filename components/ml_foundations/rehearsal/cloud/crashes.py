"""Containers whose programs end at once, as the proof is certain of it, and their restarts."""

from collections.abc import Mapping
from datetime import UTC, datetime

from ml_foundations.kubernetes.objects import items, name_of, namespace_of, section
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.model.workloads import workload
from ml_foundations.planning.rules.model_servers import known_programs
from ml_foundations.planning.rules.stack import JudgedWorkload, Stack
from ml_foundations.rehearsal.api import NODES, Api, Object
from ml_foundations.rehearsal.cloud.events import now

_RULES = ("server-arguments", "model-memory")
_PAUSES = {0: "", 10: "10s", 20: "20s", 40: "40s", 80: "1m20s", 160: "2m40s", 300: "5m0s"}
"""The seconds before each restart, with a kubelet's text (Kubernetes, "Container restarts")."""


def causes(api: Api, pod: Object) -> dict[str, str]:
    """Return by container why its program ends at once on the pod's node, if that is certain."""
    programs = [*known_programs(pod)]
    if not programs:
        return {}
    # The import takes 0.1 s, for which the daemon does not wait when it starts.
    from ml_foundations.planning.rules.gpu_programs import findings
    from ml_foundations.planning.verdict.references import DeclaredObjects

    objects = [{"kind": "Node", **api.get(f"{NODES}/{pod['spec']['nodeName']}")}]
    for volume in items(pod["spec"], "volumes"):
        if name := section(volume, "configMap").get("name"):
            path = f"/api/v1/namespaces/{namespace_of(pod)}/configmaps/{name}"
            objects += filter(None, [api.find(path)])
    declared = workload({"kind": "Pod", **pod}, {}, lambda _: "")
    stack = Stack(objects, DeclaredObjects((), ()))
    by_container: dict[str, str] = {}
    for index in programs:
        name = pod["spec"]["containers"][index]["name"]
        program = (JudgedWorkload(declared, Verdict.FITS, ()), declared.pods[0], index)
        for finding in findings(stack, [program]):
            if finding.is_error and finding.rule in _RULES:
                by_container.setdefault(name, finding.message)
    return by_container


def status(pod: Object, ended: Mapping[str, str]) -> Object:
    """Return the status of a pod when some of its containers have ended, by name with the cause.

    Without restarts, every other container has completed: nothing simulates how long it runs.
    """
    time = {"startedAt": now(), "finishedAt": now()}
    is_final = pod["spec"]["restartPolicy"] == "Never"
    statuses: list[Object] = []
    for container in items(pod["spec"], "containers"):
        state: Object = {"running": {"startedAt": now()}}
        if cause := ended.get(container["name"]):
            state = {"terminated": {"exitCode": 1, "reason": "Error", "message": cause, **time}}
        elif is_final:
            state = {"terminated": {"exitCode": 0, "reason": "Completed", **time}}
        counted = {"ready": "running" in state, "restartCount": 0, "imageID": ""}
        about = {"name": container["name"], "image": container["image"], **counted}
        statuses.append({**about, "state": state})
    unmet = {"status": "False", "reason": "PodFailed" if is_final else "ContainersNotReady"}
    return {
        "phase": "Failed" if is_final else "Running",
        "conditions": [
            {"type": "PodReadyToStartContainers", "status": "True"},
            {"type": "Initialized", "status": "True", "lastTransitionTime": now()},
            {"type": "Ready", **unmet, "lastTransitionTime": now()},
            {"type": "ContainersReady", **unmet, "lastTransitionTime": now()},
        ],
        "containerStatuses": statuses,
    }


def restarted(pod: Object) -> list[Object]:
    """Return the statuses of a pod's containers, after the restarts that are due."""
    pauses = [*_PAUSES]
    statuses: list[Object] = [{**item} for item in items(pod["status"], "containerStatuses")]
    for item in statuses:
        count = item["restartCount"]
        end = section(item, "state", "terminated") or section(item, "lastState", "terminated")
        since = datetime.now(UTC) - datetime.fromisoformat(end.get("finishedAt") or now())
        if not end or since.total_seconds() < pauses[min(count, 6)]:
            continue
        pause = _PAUSES[pauses[min(count + 1, 6)]]
        name = f"{name_of(pod)}_{namespace_of(pod)}({pod['metadata']['uid']})"
        message = f"back-off {pause} restarting failed container={item['name']} pod={name}"
        waiting = {"reason": "CrashLoopBackOff", "message": message}
        item |= {"restartCount": count + 1, "state": {"waiting": waiting}}
        item["lastState"] = {"terminated": {**end, "startedAt": now(), "finishedAt": now()}}
    return statuses
