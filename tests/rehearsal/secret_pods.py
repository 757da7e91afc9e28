"""Objects of every kind of workload with a secret wherever a user may put one."""

from collections.abc import Callable
from typing import Any

from ml_foundations.kinds.kind_files import kinds

Object = dict[str, Any]
Hide = Callable[[str], Any]
"""Returns a secret for a place."""

PLACES = (
    *("value", "command", "arg", "annotation", "label", "pod-annotation", "pod-label"),
    *("probe", "hook", "init"),
)
"""The places that may have a secret, by the names that ``hide`` gets."""


def template(hide: Hide, app: str, restart: str = "Always") -> Object:
    """A template of pods. A label accepts few characters, so a secret has no others."""
    shown = {"exec": {"command": ["cat", hide("probe")]}}
    container = {
        "name": "main",
        "image": "busybox:1.37.0",
        "command": ["sh", "-c", hide("command")],
        "args": [hide("arg")],
        "env": [{"name": "TOKEN", "value": hide("value")}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "lifecycle": {"preStop": {"exec": {"command": ["sh", hide("hook")]}}},
    }
    if restart == "Always":
        container |= dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), shown)
    first = {
        key: value for key, value in container.items() if "Probe" not in key and key != "lifecycle"
    }
    first |= {"name": "first", "args": [hide("init")]}
    item = {"path": "x", "fieldRef": {"fieldPath": "metadata.annotations['secret']"}}
    files = {"name": "files", "downwardAPI": {"items": [item]}}
    labels = {"app": app, "secret": hide("pod-label")}
    return {
        "metadata": {"labels": labels, "annotations": {"secret": hide("pod-annotation")}},
        "spec": {
            "restartPolicy": restart,
            "initContainers": [first],
            "containers": [container],
            "volumes": [files],
        },
    }


def spec_of(kind: str, hide: Hide) -> Object:
    """The spec of an object of a kind."""
    app = kind.lower()
    always, never = template(hide, app), template(hide, app, "Never")
    selector = {"matchLabels": {"app": app}}
    replicated = {"replicas": 1, "selector": selector, "template": always}
    job = {"template": never, "backoffLimit": 0}
    group = {"replicas": 1, "rayStartParams": {"secret": hide("arg")}, "template": always}
    ray = {
        "headGroupSpec": {"rayStartParams": {"secret": hide("arg")}, "template": always},
        "workerGroupSpecs": [{"groupName": "small", "minReplicas": 1, "maxReplicas": 1, **group}],
    }
    match kind:
        case "Pod":
            return always["spec"]
        case "Deployment" | "ReplicaSet":
            return replicated
        case "ReplicationController":
            return replicated | {"selector": {"app": app}}
        case "StatefulSet":
            return replicated | {"serviceName": "hidden"}
        case "DaemonSet":
            return {"selector": selector, "template": always}
        case "Job":
            return job
        case "CronJob":
            return {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}}
        case "JobSet":
            return {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}]}
        case "LeaderWorkerSet":
            pods = {"size": 2, "leaderTemplate": always, "workerTemplate": always}
            return {"replicas": 1, "leaderWorkerTemplate": pods}
        case "RayCluster":
            return ray
        case "RayJob":
            runtime = f"env_vars: {{TOKEN: {hide('value')}}}"
            given = {"entrypoint": hide("command"), "runtimeEnvYAML": runtime}
            return {**given, "rayClusterSpec": ray, "submitterPodTemplate": never}
        case "RayService":
            return {"serveConfigV2": hide("value"), "rayClusterConfig": ray}
        case "TrainJob":
            trainer = {"command": ["sh", hide("command")], "args": [hide("arg")], "numNodes": 1}
            trainer["env"] = [{"name": "TOKEN", "value": hide("value")}]
            return {"runtimeRef": RUNTIME_REF, "trainer": trainer}
        case _:
            raise AssertionError(f"{kind}: a new kind of workload needs a line here")


RUNTIME_REF = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "hidden"}
API_VERSIONS = {
    **dict.fromkeys(("Pod", "ReplicationController"), "v1"),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    **dict.fromkeys(("RayCluster", "RayJob", "RayService"), "ray.io/v1"),
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}
"""The kinds of workloads."""


def manifest(kind: str, hide: Hide) -> Object:
    """An object of a kind as a program declares it."""
    made = workload(kind, hide)
    for key in ("uid", "generation"):
        del made["metadata"][key]
    made["metadata"]["name"] = kind.lower()
    about = {"apiVersion": API_VERSIONS[kind], "kind": kind}
    return about | {key: made[key] for key in ("metadata", "spec")}


def workload(kind: str, hide: Hide) -> Object:
    """An object of a kind as the API server returns it, with its status."""
    metadata = {"name": "hidden", "namespace": "team", "uid": kind, "generation": 1}
    metadata |= {"annotations": {"secret": hide("annotation")}, "labels": {"secret": hide("label")}}
    if kind == "Pod":
        metadata["labels"] |= template(hide, "pod")["metadata"]["labels"]
    status = {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 1}
    if kind == "Pod":
        scheduled = {"type": "PodScheduled", "status": "False", "message": "no node"}
        status = {"phase": "Pending", "conditions": [scheduled]}
    spec = spec_of(kind, hide)
    assert kinds()[kind].main_template or kind == "Pod"
    return {"metadata": metadata, "spec": spec, "status": status}
