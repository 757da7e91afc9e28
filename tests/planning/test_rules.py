"""For each rule a small stack that trips it, and one that differs in a single number or name and does not."""

import copy
import re
from decimal import Decimal
from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict, judge
from ml_foundations.planning.model.nodes import MIN_NODES
from ml_foundations.planning.verdict.cost import over_budget
from ml_foundations.planning.verdict.findings import RULES

from tests.factories import (
    GPU,
    HOSTNAME,
    ZONE,
    Manifest,
    affinity,
    anti_affinity,
    claim,
    container,
    daemon_set,
    deployment,
    job,
    limit_range,
    namespaced,
    node,
    node_affinity,
    pool,
    quota,
    spread,
    stateful_set,
    template,
    webhook,
)
from tests.planning.job_sets import job_set
from tests.planning.remedies import applied, remains
from tests.planning.topologies import RACK, asking, queue, racks
from tests.support.checkout import CHECKOUT

NODES = pool("cpu", 2, {ZONE: "a", "disk": "ssd"})
TAINTED = pool("h100", 2, {}, [{"key": GPU, "value": "present", "effect": "NoSchedule"}], gpu="8")
ANYWHERE = {"key": "disk", "operator": "In", "values": ["ssd"]}
SMALL = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "small"},
    "overhead": {"podFixed": {"cpu": "1"}},
}
BASELINE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "team", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}},
}
ON_GKE = pool("gke", 2, {"cloud.google.com/gke-nodepool": "gke"})
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "provisioner": "pd.csi.storage.gke.io",
    "volumeBindingMode": "WaitForFirstConsumer",
    "parameters": {"type": "pd-balanced"},
}


def web(replicas: int = 1, **spec: Any) -> Manifest:
    return deployment("web", replicas, template(**spec))


def with_interfaces(text: str) -> list[Manifest]:
    server = web()
    annotations = {"networking.gke.io/interfaces": text}
    server["spec"]["template"]["metadata"]["annotations"] = annotations
    return [server, NODES]


def of_priority(value: int, least: str = "0") -> list[Manifest]:
    """A server with a priority, and a pool that the autoscaler grows."""
    nodes = pool("grows", 2)
    nodes["metadata"]["annotations"][MIN_NODES] = least
    low = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "low"},
        "value": value,
    }
    return [web(priorityClassName="low"), nodes, low]


def reading_logs(more: str, folder: str = "/var/log") -> list[Manifest]:
    """An agent that reads what its ConfigMap says, in a folder of its node."""
    settings = namespaced(
        "v1", "ConfigMap", "logs", data={"a.yaml": f"path: /var/log/containers/*.log\n{more}"}
    )
    volumes = [
        {"name": "host", "hostPath": {"path": folder}},
        {"name": "files", "configMap": {"name": "logs"}},
    ]
    return [daemon_set("agent", template(volumes=volumes)), settings, NODES]


def asks(**limits: Any) -> Manifest:
    return web(containers=[container(**limits)])


def sees_ipc() -> Manifest:
    return web(hostIPC=True, containers=[container(gpu=1)])


def requests(request: Manifest, limit: Manifest) -> Manifest:
    return web(containers=[{"name": "main", "resources": {"requests": request, "limits": limit}}])


def mounting(replicas: int = 1) -> Manifest:
    return web(replicas, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


ROOM = {"capacity": {"storage": "1Ti"}, "hostPath": {"path": "/data"}}


def bucket(**annotations: str) -> list[Manifest]:
    """A Deployment that mounts the claim of a bucket."""
    source = {"driver": "gcsfuse.csi.storage.gke.io", "volumeHandle": "my-bucket"}
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "gcs",
        "capacity": {"storage": "1Gi"},
    }
    bound = {"claimRef": {"namespace": "team", "name": "data"}, "csi": source}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": spec | bound,
    }
    wanted = {
        "storageClassName": "gcs",
        "volumeName": "pv",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    server = mounting()
    server["spec"]["template"]["metadata"]["annotations"] = annotations
    return [server, claim(mode="ReadWriteMany", **wanted), volume, NODES]


def bucket_on_gke(attributes: Any = None, **spec: Any) -> list[Manifest]:
    server, wanted, volume, _ = bucket(**{"gke-gcsfuse/volumes": "true"})
    server["spec"]["template"]["spec"] |= spec
    volume["spec"]["csi"]["volumeAttributes"] = attributes or {}
    return [server, wanted, volume, ON_GKE]


def limited_sidecar(**annotations: str) -> list[Manifest]:
    """A server with a bucket, in a namespace with a default limit."""
    server, wanted, volume, _ = bucket(**{"gke-gcsfuse/volumes": "true"} | annotations)
    volume["spec"]["csi"]["volumeAttributes"] = {}
    default = limit_range({"type": "Container", "default": {"cpu": "500m"}})
    disk: Any = {"ephemeral-storage": "100Gi"}
    nodes = pool("gke", 2, {"cloud.google.com/gke-nodepool": "gke"}, **disk)
    return [server, wanted, volume, default, nodes]


def with_nccl_plugin(gpus: int) -> list[Manifest]:
    """A server on nodes with NCCL's plugin."""
    installer = {"name": "install", "image": "r.example/nccl-plugin-gib:v1"}
    plugin = daemon_set("nccl-plugin", template(containers=[installer]))
    nodes = pool("gke", 2, {"cloud.google.com/gke-nodepool": "gke"}, gpu="8")
    return [asks(gpu=gpus), plugin, nodes]


def in_memory(size: str, limit: str = "1Gi") -> list[Manifest]:
    """A server with shared memory, in a namespace with a default limit."""
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    default = limit_range({"type": "Container", "default": {"memory": limit}})
    return [
        web(containers=[container(cpu=1) | {"volumeMounts": mounts}], volumes=volumes),
        default,
        NODES,
    ]


def gpus_by_default(cpu: str, memory: str, own: Manifest | None = None) -> list[Manifest]:
    """A server with eight GPUs, in a namespace with default limits."""
    default = limit_range({"type": "Container", "default": {"cpu": cpu, "memory": memory}})
    return [
        asks(gpu=8, **(own or {})),
        default,
        pool("large", 1, gpu="8", cpu="64", memory="512Gi"),
    ]


def for_queued_nodes(**annotations: str) -> list[Manifest]:
    """A Job that only nodes of a queued pool take."""
    taint = {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"}
    pods = template(tolerations=[{"key": "cloud.google.com/gke-queued", "operator": "Exists"}])
    pods["metadata"] = pods.get("metadata", {}) | {"annotations": annotations}
    return [job("train", 1, pods), pool("queued", 2, {}, [taint])]


def volume_in(zone: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv", "labels": {ZONE: zone}},
        "spec": {"accessModes": ["ReadWriteOnce"], **ROOM},
    }


def claiming_volumes(replicas: int) -> list[Manifest]:
    """A set whose pods each need the one free volume."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    claims = [
        {
            "metadata": {"name": "data"},
            "spec": spec | {"resources": {"requests": {"storage": "1Gi"}}},
        }
    ]
    local = CLASS | {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
    free = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": spec | ROOM,
    }
    return [
        stateful_set("db", replicas, template(), volumeClaimTemplates=claims),
        local,
        free,
        NODES,
    ]


def on_machine(name: str) -> Manifest:
    return pool(
        "m",
        1,
        {"node.kubernetes.io/instance-type": name, "topology.kubernetes.io/region": "us-central1"},
    )


def near_themselves(workloads: int) -> list[Manifest]:
    """Pods that are each near those of their own workload, on a few nodes."""
    stack = [node(f"n{index}", cpu="9") for index in range(20)]
    for index in range(workloads):
        pods = template({"app": f"w{index}"}, affinity=affinity(app=f"w{index}"))
        stack.append(deployment(f"w{index}", 2, pods))
    return stack


def claiming(count: int, product: str = "NVIDIA-H100-80GB-HBM3") -> list[Manifest]:
    selector = {
        "cel": {
            "expression": f'device.attributes["gpu.nvidia.com"].productName.replace(" ", "-") == "{product}"'
        }
    }
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": count, "selectors": [selector]}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    made = {
        "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
        "cloud.google.com/gke-accelerator-count": "8",
    }
    dra = {
        "cloud.google.com/gke-nodepool": "h100",
        "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
    }
    return [
        job(
            "train",
            1,
            template(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "gpus"}]),
        ),
        namespaced(
            "resource.k8s.io/v1",
            "ResourceClaimTemplate",
            "gpus",
            spec={"spec": {"devices": devices}},
        ),
        pool("h100", 1, made | dra),
    ]


def shared(strategy: str, gpus: int = 8) -> Manifest:
    """Nodes whose GPUs four pods share, each."""
    of_gke = {"gke-gpu-sharing-strategy": strategy, "gke-max-shared-clients-per-gpu": "4"}
    return pool(
        "shared",
        1,
        {f"cloud.google.com/{key}": value for key, value in of_gke.items()},
        gpu=str(gpus),
    )


def driven(version: str) -> Manifest:
    """Nodes with GPUs and a driver of GKE's."""
    return pool("driven", 1, {"cloud.google.com/gke-gpu-driver-version": version}, gpu="1")


def loading(image: str, path: str) -> Manifest:
    env = [{"name": "LD_LIBRARY_PATH", "value": path}]
    return web(containers=[{**container(gpu=1), "image": image, "env": env}])


def autoscaled(most: int) -> list[Manifest]:
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}
    scaler = namespaced(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "web",
        spec={"scaleTargetRef": target, "maxReplicas": most},
    )
    return [stateful_set("web", 1, template()), scaler, NODES]


def scaled_by(name: str, *more: Manifest, kind: str = "Pods") -> list[Manifest]:
    stack = autoscaled(2)
    field = "resource" if kind == "Resource" else kind.lower()
    own = {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "5"}}
    stack[1]["spec"]["metrics"] = [{"type": kind, field: own}]
    return [*stack, *more]


def adapter(group: str) -> Manifest:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{group}"},
        "spec": {"group": group},
    }


def training_together(
    nodes: int, gpus: int = 8, interfaces: Manifest | None = None
) -> list[Manifest]:
    pods = template(containers=[container(gpu=gpus)])
    pods["metadata"]["annotations"] = interfaces or {}
    h100 = pool("h100", 2, {"node.kubernetes.io/instance-type": "a3-highgpu-8g"}, gpu="8")
    return [job("train", nodes, pods, gang=True), h100]


def on_the_host_network(policy: str | None, nodes: int = 2) -> list[Manifest]:
    pods = template(containers=[container()], hostNetwork=True)
    if policy:
        pods["spec"]["dnsPolicy"] = policy
    return [job("train", nodes, pods, gang=True), NODES]


def coming_one_by_one(nodes: int) -> list[Manifest]:
    flexible = pool("flex", 2, {"cloud.google.com/gke-flex-start": "true"}, gpu="8")
    return [job("train", nodes, template(containers=[container(gpu=8)]), gang=True), flexible]


def ending_on_spot(seconds: int, **of_container: Any) -> list[Manifest]:
    labels = {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-nodepool": "spot"}
    pods = template(
        containers=[container(gpu=8) | of_container], terminationGracePeriodSeconds=seconds
    )
    return [job("train", 1, pods), pool("spot", 2, labels, gpu="8")]


def on_spot(nodes: int) -> list[Manifest]:
    spot = pool("spot", 2, {"cloud.google.com/gke-spot": "true"}, gpu="8")
    return [job("train", nodes, template(containers=[container(gpu=8)]), gang=True), spot]


def with_deadline(seconds: int) -> list[Manifest]:
    spot = pool("spot", 2, {"cloud.google.com/gke-spot": "true"}, gpu="8")
    pods = template(containers=[container(gpu=8)])
    return [job("train", 1, pods, activeDeadlineSeconds=seconds), spot]


def keeping(*, read_only: bool) -> list[Manifest]:
    mount = {"name": "kept", "mountPath": "/kept", "readOnly": read_only}
    volume = {"name": "kept", "nfs": {"server": "nfs", "path": "/"}}
    pods = template(containers=[container(gpu=8) | {"volumeMounts": [mount]}], volumes=[volume])
    return [job("train", 2, pods, gang=True), pool("h100", 2, gpu="8")]


def queued(gpus: int, *, queue: str = "training") -> list[Manifest]:
    train = job("train", 1, template(containers=[container(gpu=gpus)]))
    train["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    resources = [{"name": GPU, "nominalQuota": 4}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": resources}]}]
    return [
        train,
        TAINTED,
        namespaced("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "any", spec={}),
        namespaced(
            "kueue.x-k8s.io/v1beta2",
            "ClusterQueue",
            "team",
            spec={"resourceGroups": groups, "namespaceSelector": {}},
        ),
        namespaced(
            "kueue.x-k8s.io/v1beta2", "LocalQueue", "training", spec={"clusterQueue": "team"}
        ),
    ]


def with_daemon(field: str) -> list[Manifest]:
    """A Job with Google's daemon for GPUDirect-TCPXO, as a container or as a sidecar."""
    image = "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21"
    pods = template(containers=[container()])
    daemon = {"name": "tcpxo-daemon", "image": image}
    if field == "initContainers":
        daemon["restartPolicy"] = "Always"
    pods["spec"].setdefault(field, []).append(daemon)
    return [job("train", 1, pods), NODES]


def claiming_in_a_queue(configuration: str) -> list[Manifest]:
    """A queued Job whose pod claims interfaces between GPUs, and Kueue's configuration."""
    train, *others = queued(1)
    claim = {"name": "interfaces", "resourceClaimTemplateName": "rdma"}
    train["spec"]["template"]["spec"]["resourceClaims"] = [claim]
    request = {"name": "rdma", "exactly": {"deviceClassName": "mrdma.google.com", "count": 8}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    made = namespaced("resource.k8s.io/v1", "ResourceClaimTemplate", "rdma", spec=spec)
    text = {"controller_manager_config.yaml": configuration}
    return [train, *others, made, namespaced("v1", "ConfigMap", "kueue-manager-config", data=text)]


CLAIMS_IGNORED = (
    "featureGates: {KueueDRAIntegration: false, KueueDRARejectWorkloadsWhenDRADisabled: false}"
)


def evicting(priority: int) -> list[Manifest]:
    running = namespaced(
        "v1", "Pod", "old", spec={"nodeName": "n", "containers": [container(cpu=4)]}
    )
    running["status"] = {"phase": "Running"}
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": priority,
    }
    return [job("new", 1, template(priorityClassName="urgent")), urgent, running, node("n")]


def defaults(*amounts: str) -> list[Manifest]:
    limits = [limit_range({"type": "Container", "default": {"cpu": amount}}) for amount in amounts]
    for index, item in enumerate(limits):
        item["metadata"] = {**item["metadata"], "name": f"limits-{index}"}
    return [web(containers=[{"name": "main"}]), NODES, *limits]


KEYS = ["pod-template-hash"]
CORDONED = node("n") | {"spec": {"unschedulable": True}}
SKEWED = [pool("a", 1, {ZONE: "a"}), pool("b", 1, {ZONE: "b"})]


EDGE: dict[str, tuple[list[Manifest], list[Manifest]]] = {
    "resources": ([asks(cpu=5), NODES], [asks(cpu=4), NODES]),
    "nodes": ([web(9), NODES], [web(8), NODES]),
    "no-nodes": ([web()], [web(), NODES]),
    "taint": ([web(nodeSelector={}), TAINTED], [asks(gpu=1), TAINTED]),
    "node-selector": (
        [web(nodeSelector={"disk": "hdd"}), NODES],
        [web(nodeSelector={"disk": "ssd"}), NODES],
    ),
    "node-affinity": (
        [web(affinity=node_affinity(ANYWHERE | {"values": ["hdd"]})), NODES],
        [web(affinity=node_affinity(ANYWHERE)), NODES],
    ),
    "node-name": ([web(nodeName="gone"), node("n")], [web(nodeName="n"), node("n")]),
    "node-unschedulable": ([web(), CORDONED], [web(), node("n")]),
    "pod-affinity": (
        [web(affinity=affinity(app="other")), NODES],
        [web(affinity=affinity()), NODES],
    ),
    "pod-anti-affinity": (
        [web(3, affinity=anti_affinity(ZONE)), *SKEWED],
        [web(2, affinity=anti_affinity(ZONE)), *SKEWED],
    ),
    "topology-spread": (
        [web(3, topologySpreadConstraints=[spread(minDomains=2)]), NODES],
        [web(1, topologySpreadConstraints=[spread(minDomains=2)]), NODES],
    ),
    "volume-access": (
        [mounting(2), claim(mode="ReadWriteOncePod", storageClassName="fast"), CLASS, NODES],
        [mounting(1), claim(mode="ReadWriteOncePod", storageClassName="fast"), CLASS, NODES],
    ),
    "volume-binding": (claiming_volumes(2), claiming_volumes(1)),
    "volume-zone": (
        [mounting(), claim(volumeName="pv"), volume_in("b"), NODES],
        [mounting(), claim(volumeName="pv"), volume_in("a"), NODES],
    ),
    "volume-class": (
        [mounting(), claim(mode="ReadWriteMany", storageClassName="fast"), CLASS, NODES],
        [
            mounting(),
            claim(mode="ReadWriteMany", storageClassName="fast", volumeMode="Block"),
            CLASS,
            NODES,
        ],
    ),
    "shared-gpu": ([asks(gpu=2), shared("time-sharing")], [asks(gpu=1), shared("time-sharing")]),
    "mps-ipc": ([asks(gpu=1), shared("mps"), ON_GKE], [sees_ipc(), shared("mps"), ON_GKE]),
    "driver-path": (
        [loading("i", "/opt/lib"), driven("default"), ON_GKE],
        [loading("i", "/opt/lib:/usr/local/nvidia/lib64"), driven("default"), ON_GKE],
    ),
    "device-claim": (claiming(16), claiming(8)),
    "disk-type": (
        [mounting(), claim(storageClassName="fast"), CLASS, on_machine("g4-standard-96")],
        [mounting(), claim(storageClassName="fast"), CLASS, on_machine("n2-standard-8")],
    ),
    "competition": (
        [web(4), deployment("other", 5, template()), NODES],
        [web(4), deployment("other", 4, template()), NODES],
    ),
    "preemption": (evicting(10), [*evicting(10), node("free")]),
    "runs-in-turns": ([job("sweep", 9, template()), NODES], [job("sweep", 8, template()), NODES]),
    "rollout-surge": ([web(8), NODES], [web(6), NODES]),
    "autoscaling-ceiling": (autoscaled(9), autoscaled(8)),
    "daemon-set-room": (
        [daemon_set("agent", template(containers=[container(cpu=5)])), NODES],
        [daemon_set("agent", template(containers=[container(cpu=4)])), NODES],
    ),
    "daemon-set-spread": (
        [daemon_set("agent", template(affinity=anti_affinity(ZONE))), NODES],
        [daemon_set("agent", template(affinity=anti_affinity(HOSTNAME))), NODES],
    ),
    "daemon-set-without-nodes": (
        [daemon_set("agent", template(nodeSelector={"disk": "hdd"})), NODES],
        [daemon_set("agent", template(nodeSelector={"disk": "ssd"})), NODES],
    ),
    "quota": (
        [web(3), NODES, quota(hard={"pods": "2"})],
        [web(1), NODES, quota(hard={"pods": "2"})],
    ),
    "quota-sum": (
        [web(), stateful_set("other", 2, template()), NODES, quota(hard={"requests.cpu": "2"})],
        [web(), stateful_set("other", 1, template()), NODES, quota(hard={"requests.cpu": "3"})],
    ),
    "quota-requires": (
        [web(containers=[{"name": "main"}]), NODES, quota(hard={"requests.cpu": "4"})],
        [asks(cpu=1), NODES, quota(hard={"requests.cpu": "4"})],
    ),
    "limit-range-min": (
        [web(), NODES, limit_range({"type": "Container", "min": {"cpu": "2"}})],
        [web(), NODES, limit_range({"type": "Container", "min": {"cpu": "1"}})],
    ),
    "limit-range-max": (
        [web(), NODES, limit_range({"type": "Container", "max": {"cpu": "500m"}})],
        [web(), NODES, limit_range({"type": "Container", "max": {"cpu": "1"}})],
    ),
    "limit-range-ratio": (
        [
            requests({"cpu": "1"}, {"cpu": "3"}),
            NODES,
            limit_range(RATIO := {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
        ],
        [requests({"cpu": "1"}, {"cpu": "2"}), NODES, limit_range(RATIO)],
    ),
    "limit-range-defaults": (defaults("1", "2"), defaults("1", "1")),
    "request-above-limit": (
        [requests({"cpu": "2"}, {"cpu": "1"}), NODES],
        [requests({"cpu": "1"}, {"cpu": "1"}), NODES],
    ),
    "extended-resource-limit": (
        [requests({GPU: "2"}, {GPU: "1"}), TAINTED],
        [requests({GPU: "1"}, {GPU: "1"}), TAINTED],
    ),
    "extended-resource-fraction": ([asks(gpu="500m"), TAINTED], [asks(gpu="1"), TAINTED]),
    "invalid": ([web(restartPolicy="Never"), NODES], [web(restartPolicy="Always"), NODES]),
    "pod-security": ([web(hostPID=True), NODES, BASELINE], [web(hostPID=False), NODES, BASELINE]),
    "priority-class": ([web(priority=1), NODES], [web(priority=0), NODES]),
    "runtime-class": (
        [web(runtimeClassName="small", overhead={"cpu": "2"}), NODES, SMALL],
        [web(runtimeClassName="small", overhead={"cpu": "1"}), NODES, SMALL],
    ),
    "bucket-sidecar": (bucket(), bucket(**{"gke-gcsfuse/volumes": "true"})),
    "queued-nodes": (
        for_queued_nodes(),
        for_queued_nodes(**{"autoscaling.x-k8s.io/consume-provisioning-request": "mine"}),
    ),
    "critical-pods": (
        [web(priorityClassName="system-node-critical"), ON_GKE, BASELINE],
        [web(priorityClassName="system-node-critical"), NODES, BASELINE],
    ),
    "expendable": (of_priority(-11), of_priority(-10)),
    "queue": (queued(1, queue="trainig"), queued(1)),
    "queue-quota": (queued(5), queued(4)),
    "queue-claims": (
        claiming_in_a_queue("featureGates: {KueueDRAIntegration: false}"),
        claiming_in_a_queue(CLAIMS_IGNORED),
    ),
    "queue-topology": (
        [asking(3, required_topology=RACK), *racks(2, 1), *queue(gpus=24)],
        [asking(2, required_topology=RACK), *racks(2, 1), *queue(gpus=24)],
    ),
    "queue-capacity": (
        [*queued(1), quota(hard={f"requests.{GPU}": "3"})],
        [*queued(1), quota(hard={f"requests.{GPU}": "4"})],
    ),
    "beyond-planning": (
        [web(schedulerName="mine"), NODES],
        [web(schedulerName="default-scheduler"), NODES],
    ),
    "unknown-field": (
        [web(schedulingGroup={"podGroupName": "g"}), NODES],
        [web(schedulingGroup=None), NODES],
    ),
    "unknown-kind": (
        [web(), NODES, namespaced("example.org/v1", "Service", "s")],
        [web(), NODES, namespaced("v1", "Service", "s")],
    ),
    "work-budget": (near_themselves(16), near_themselves(4)),
    "unknown-admission": (
        [web(), NODES, webhook("pods", "*", "Validating")],
        [web(), NODES, webhook("jobs", "*", "Validating")],
    ),
    "unknown-value": ([web(UNKNOWN), NODES], [web(1), NODES]),  # pyright: ignore[reportArgumentType]
    "pod-interfaces": (with_interfaces("["), with_interfaces("[]")),
    "gpu-network": (
        training_together(2),
        training_together(2, interfaces={"networking.gke.io/interfaces": "[]"}),
    ),
    "endless-daemon": (with_daemon("containers"), with_daemon("initContainers")),
    "gpu-defaults": (gpus_by_default("500m", "1Gi"), gpus_by_default("8", "32Gi")),
    "shared-memory": (in_memory("2Gi"), in_memory("1Gi")),
    "spot-grace": (ending_on_spot(16), ending_on_spot(15)),
    "peer-names": (
        on_the_host_network(None),
        on_the_host_network("ClusterFirstWithHostNet"),
    ),
    "gang-on-spot": (on_spot(2), on_spot(1)),
    "deadline-waits": (with_deadline(86399), with_deadline(86400)),
    "lost-work": (keeping(read_only=True), keeping(read_only=False)),
    "one-by-one": (coming_one_by_one(2), coming_one_by_one(1)),
    "bucket-identity": (bucket_on_gke(hostNetwork=True), bucket_on_gke()),
    "injected-limits": (
        limited_sidecar(),
        limited_sidecar(**{"gke-gcsfuse/cpu-limit": "32", "gke-gcsfuse/cpu-request": "250m"}),
    ),
    "nccl-plugin": (with_nccl_plugin(2), with_nccl_plugin(1)),
    "autoscaling-metric": (
        scaled_by("queue"),
        scaled_by("queue", adapter("custom.metrics.k8s.io")),
    ),
    "reads-own-logs": (
        reading_logs(""),
        reading_logs("exclude_path: /var/log/containers/agent-*.log"),
    ),
}
"""Of each rule: a stack that trips it, and one that does not."""


def found(documents: list[Manifest]) -> set[str]:
    return {finding.rule for finding in judge(documents).findings}


def test_every_rule_is_here() -> None:
    of_clusters = {
        "addresses",
        "advertised-twice",
        "autoscaling-target",
        "bucket-cache",
        "bucket-scan",
        "checkpoints",
        "compute-class",
        "compute-class-pool",
        "container-toolkit",
        "controller",
        "csi-driver",
        "dranet-or-networks",
        "endpoint-picker",
        "eviction-budget",
        "gateway-class",
        "gpu-driver",
        "group-service",
        "half-a-gang",
        "health-check",
        "host-folder",
        "inference-pool",
        "later-field",
        "metrics-collected",
        "metrics-owner",
        "metrics-twice",
        "multi-networking",
        "namespace-data",
        "network-policy",
        "network-ranges",
        "node-addresses",
        "node-networks",
        "private-access",
        "proxies",
        "public-paths",
        "queue-kind",
        "quota-name",
        "refused-input",
        "reservation",
        "rollout-disk",
        "route-backend",
        "scale-up-anyway",
        "system-pods",
        "upgrade",
        "version",
        "way-out",
        "webhook",
        "zones",
    }
    of_programs = of_clusters | {
        "bucket-access",
        "workload-identity",
        "image-digest",
        "impossible-value",
        "monthly-budget",
        "placeholder",
        "reference",
        "secret",
    }
    assert EDGE.keys() | of_programs == RULES.keys()


def test_the_documentation_has_every_rule() -> None:
    page = (CHECKOUT / "docs" / "components" / "rules.md").read_text()
    assert [f"- `{rule}`: {wants}" for rule, wants in RULES.items()] == re.findall(
        r"^- `.*$", page, re.MULTILINE
    )


@pytest.mark.parametrize("rule", EDGE)
def test_a_stack_trips_the_rule_and_one_like_it_does_not(rule: str) -> None:
    trips, passes = EDGE[rule]
    assert rule in found(trips)
    assert rule not in found(passes)
    assert found(trips) <= RULES.keys() | {"workload"}


@pytest.mark.parametrize(("sleep", "is_reported"), [(14, False), (15, True)])
def test_hook_that_sleeps_leaves_time_for_the_signal(sleep: int, is_reported: bool) -> None:
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": sleep}}}}
    assert ("spot-grace" in found(ending_on_spot(10, **hook))) is is_reported


@pytest.mark.parametrize("rule", ["gpu-defaults", "shared-memory"])
def test_what_is_too_little_is_a_warning_with_the_numbers(rule: str) -> None:
    (warning,) = [each for each in judge(EDGE[rule][0]).findings if each.rule == rule]
    assert warning.severity == "warning"
    if rule == "gpu-defaults":
        assert (
            "8 GPUs, and a LimitRange's default limits it to 500m cpu and 1Gi memory"
            in warning.message
        )
        assert warning.path == "spec.template.spec.containers[0].resources"
    else:
        assert "may grow to 2Gi" in warning.message
        assert warning.message.endswith("limited to 1Gi by a LimitRange's default")
        assert warning.path == "spec.template.spec.containers[0].resources.limits.memory"


def test_containers_with_memory_of_their_own() -> None:
    assert "gpu-defaults" in found(gpus_by_default("500m", "1Gi", {"memory": "64Gi"}))
    assert "gpu-defaults" not in found(
        gpus_by_default("500m", "1Gi", {"memory": "64Gi", "cpu": "8"})
    )
    stack = in_memory("2Gi")
    stack[0]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "3Gi"
    assert "shared-memory" not in found(stack)
    stack[0]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Gi"
    assert "shared-memory" in found(stack)


def test_shared_memory_of_containers_without_a_limit() -> None:
    assert "shared-memory" not in found([in_memory("2Gi")[0], NODES])


def test_pods_that_declare_no_grace_count_on_none() -> None:
    stack = ending_on_spot(16)
    del stack[0]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert "spot-grace" not in found(stack)


@pytest.mark.parametrize(
    ("least", "expected"),
    [("0", Verdict.CANNOT_FIT), ("1", Verdict.UNDETERMINED), ("2", Verdict.FITS)],
)
def test_pods_of_a_low_priority_use_the_existing_nodes(least: str, expected: Verdict) -> None:
    assert judge(of_priority(-11, least)).stack is expected


def test_shared_gpus() -> None:
    two = web(containers=[container(gpu=1), container(gpu=1)])
    assert "shared-gpu" not in found([two, shared("time-sharing")])
    assert "shared-gpu" in found([asks(gpu=2), shared("time-sharing", 4)])
    assert "shared-gpu" in found([asks(gpu=2), shared("mps")])
    assert "shared-gpu" not in found([asks(gpu=2), shared("mps", 4)])


TO_METADATA = [{"ipBlock": {"cidr": "169.254.169.252/32"}}]
INTERNET = [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]
ELSEWHERE = [{"podSelector": {}}]


@pytest.mark.parametrize(
    ("policies", "is_told"),
    [
        ([], False),
        ([{"podSelector": {}, "policyTypes": ["Ingress"]}], False),
        ([{"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}], True),
        ([{"podSelector": {"matchLabels": {"app": "other"}}, "policyTypes": ["Egress"]}], False),
        ([{"podSelector": {}, "egress": [{}]}], False),
        ([{"podSelector": {}, "egress": [{"ports": [{"port": 443}]}]}], True),
        ([{"podSelector": {}, "egress": [{"ports": [{"port": 1, "endPort": 1024}]}]}], False),
        ([{"podSelector": {}, "egress": [{"to": INTERNET}, {"to": ELSEWHERE}]}], True),
        (
            [
                {"podSelector": {}, "policyTypes": ["Egress"]},
                {"podSelector": {}, "egress": [{"to": TO_METADATA, "ports": [{"port": 988}]}]},
            ],
            False,
        ),
    ],
)
def test_a_bucket_needs_the_metadata_server(policies: list[Any], is_told: bool) -> None:
    made = [
        namespaced("networking.k8s.io/v1", "NetworkPolicy", f"p{index}", spec=spec)
        for index, spec in enumerate(policies)
    ]
    assert ("bucket-identity" in found([*bucket_on_gke(), *made])) is is_told


def test_a_bucket_on_the_nodes_network_may_be_the_pods_own() -> None:
    for opts_in in ({"hostNetworkPodKSA": "true"}, {"hostNetworkPodKSA": UNKNOWN}):
        assert "bucket-identity" not in found(bucket_on_gke(opts_in, hostNetwork=True))
    assert "bucket-identity" not in found(bucket(**{"gke-gcsfuse/volumes": "true"}))
    (told,) = [
        f for f in judge(bucket_on_gke(hostNetwork=True)).findings if f.rule == "bucket-identity"
    ]
    assert told.severity == "warning" and 'hostNetworkPodKSA: "true"' in told.remedy


def test_other_nodes_than_spot_stay() -> None:
    (told,) = [each for each in judge(on_spot(2)).findings if each.rule == "gang-on-spot"]
    assert told.severity == "warning" and "its 2 pods run at once" in told.message
    assert "gang-on-spot" not in found([*on_spot(2), pool("others", 2, gpu="8")])


def test_other_nodes_than_those_of_flex_start_come_together() -> None:
    assert "one-by-one" not in found([*coming_one_by_one(2), pool("others", 2, gpu="8")])
    train, flexible = coming_one_by_one(2)
    assert "one-by-one" in found([train, flexible])
    taint = {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"}
    train["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert "one-by-one" not in found(
        [train, pool("flex", 2, {"cloud.google.com/gke-flex-start": "true"}, [taint], gpu="8")]
    )


@pytest.mark.parametrize("names_it", [True, False])
def test_a_volume_that_names_no_claim_is_a_bucket_too(names_it: bool) -> None:
    """Kubernetes binds a claim to the free volume that it names, or to one of its class."""
    server, wanted, volume, nodes = bucket()
    of_gcs = CLASS | {"metadata": {"name": "gcs"}, "provisioner": "kubernetes.io/no-provisioner"}
    del volume["spec"]["claimRef"]
    if not names_it:
        del wanted["spec"]["volumeName"]
    judged = judge([server, wanted, volume, nodes, of_gcs]).workloads[0]
    assert (judged.verdict, {each.rule for each in judged.reasons}) == (
        Verdict.CANNOT_FIT,
        {"bucket-sidecar"},
    )
    server["spec"]["template"]["metadata"]["annotations"] = {"gke-gcsfuse/volumes": "true"}
    assert "bucket-sidecar" not in found([server, wanted, volume, nodes, of_gcs])


def test_a_claim_that_may_get_a_bucket_is_undetermined() -> None:
    server, wanted, volume, nodes = bucket()
    del volume["spec"]["claimRef"], wanted["spec"]["volumeName"]
    disk = {
        **volume,
        "metadata": {"name": "disk"},
        "spec": {**volume["spec"], "csi": {"driver": "d", "volumeHandle": "h"}},
    }
    of_gcs = CLASS | {"metadata": {"name": "gcs"}}
    for others in ([disk], [of_gcs], []):
        judged = judge([server, wanted, volume, nodes, *others]).workloads[0]
        assert judged.verdict is Verdict.UNDETERMINED
        assert any("may be a bucket" in each.message for each in judged.reasons)


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("team", Verdict.UNDETERMINED),
        ("default", Verdict.UNDETERMINED),
        ("kube-system", Verdict.FITS),
    ],
)
def test_what_a_namespace_that_is_not_declared_may_enforce(
    namespace: str, expected: Verdict
) -> None:
    agent = web(hostPID=True)
    agent["metadata"]["namespace"] = namespace
    judged = judge([agent, NODES]).workloads[0]
    assert judged.verdict is expected
    assert [each.message for each in judged.reasons] == [
        f"hostPID breaks the Pod Security level baseline; whether {namespace} enforces it is not known"
    ] * (expected is not Verdict.FITS)
    strict = BASELINE | {
        "metadata": {
            "name": "strict",
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }
    }
    plain = web(hostPID=False)
    plain["metadata"]["namespace"] = namespace
    assert judge([plain, NODES]).workloads[0].verdict is Verdict.FITS
    assert judge([plain, NODES, strict]).workloads[0].verdict is expected
    declared = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    assert judge([agent, NODES, declared]).stack is Verdict.FITS


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({"operator": "In", "values": ["system-node-critical", "other"]}, Verdict.FITS),
        ({"operator": "Exists"}, Verdict.FITS),
        ({"operator": "In", "values": ["system-cluster-critical"]}, Verdict.CANNOT_FIT),
        (None, Verdict.CANNOT_FIT),
    ],
)
def test_critical_pods_need_a_quota_for_their_class_on_gke(
    scope: Manifest | None, expected: Verdict
) -> None:
    agent, declared = web(priorityClassName="system-node-critical"), BASELINE
    scopes: Manifest = (
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", **scope}]}}
        if scope
        else {}
    )
    limit = quota(hard={"pods": "1G"}, **scopes)
    assert judge([agent, ON_GKE, declared, limit]).workloads[0].verdict is expected
    assert judge([agent, NODES, declared, limit]).workloads[0].verdict is Verdict.FITS
    unsure = judge([agent, ON_GKE, limit]).workloads[0].verdict
    assert unsure is (expected if expected is Verdict.FITS else Verdict.UNDETERMINED)
    # A cluster's objects without its quotas: GKE's own is among those.
    declared = declared | {"metadata": declared["metadata"] | {"uid": "1"}}
    assert judge([agent, ON_GKE, declared]).workloads[0].verdict is Verdict.UNDETERMINED
    of_gke = namespaced("v1", "ResourceQuota", "gcp-critical-pods", spec={"hard": {"pods": "1G"}})
    of_gke["metadata"]["namespace"] = "kube-system"
    assert judge([agent, ON_GKE, declared, of_gke]).workloads[0].verdict is Verdict.CANNOT_FIT
    agent["metadata"]["namespace"] = "kube-system"
    assert judge([agent, ON_GKE]).workloads[0].verdict is Verdict.FITS


def test_claims_of_devices() -> None:
    assert "device-claim" in found(claiming(8, "NVIDIA-B200"))
    train, gpus, nodes = claiming(1)
    (refused,) = [
        f
        for f in judge(
            [train, gpus, pool("cpu", 1, {"cloud.google.com/gke-nodepool": "cpu"})]
        ).findings
        if f.rule == "device-claim"
    ]
    assert (refused.severity, refused.path) == ("error", "spec.template.spec.resourceClaims")
    assert refused.message == "it claims 1 NVIDIA-H100-80GB-HBM3 of one node, and no node has GPUs"
    del nodes["metadata"]["labels"]["cloud.google.com/gke-nvidia-gpu-dra-driver"]
    (unsure,) = [f for f in judge([train, gpus, nodes]).findings if f.rule == "device-claim"]
    assert unsure.severity == "warning"
    assert "device-claim" not in found([train, gpus, node("n")])
    few = quota(hard={"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "7"})
    assert "quota" in found([*claiming(8), few])
    assert "quota" not in found([*claiming(7), few])


def test_an_inline_bucket_needs_the_sidecar_too() -> None:
    server = web(volumes=[{"name": "raw", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}}])
    (refused,) = [
        finding for finding in judge([server, NODES]).findings if finding.rule == "bucket-sidecar"
    ]
    assert (refused.severity, refused.path) == ("error", "spec.template.spec.volumes[0]")
    assert refused.message.startswith("the volume raw is a bucket")
    server["spec"]["template"]["spec"]["initContainers"] = [
        {"name": "gke-gcsfuse-sidecar", "image": "i"}
    ]
    assert "bucket-sidecar" not in found([server, NODES])


def kueue(kind: str, name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def queued_for_nodes(*checks: Manifest, **of_queue: Any) -> list[Manifest]:
    """A Job in a queue, that only nodes of a queued pool take."""
    train, nodes = for_queued_nodes()
    train["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    flavor = {"name": "queued", "resources": [{"name": "cpu", "nominalQuota": "100"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    queue = kueue("ClusterQueue", "team", namespaceSelector={}, resourceGroups=groups, **of_queue)
    local = namespaced(queue["apiVersion"], "LocalQueue", "training", spec={"clusterQueue": "team"})
    return [train, nodes, queue, local, kueue("ResourceFlavor", "queued"), *checks]


PROVISIONING = "kueue.x-k8s.io/provisioning-request"
CHECK = kueue(
    "AdmissionCheck",
    "nodes",
    controllerName=PROVISIONING,
    parameters={
        "apiGroup": "kueue.x-k8s.io",
        "kind": "ProvisioningRequestConfig",
        "name": "requests",
    },
)
CHECKED = {
    "admissionChecksStrategy": {"admissionChecks": [{"name": "nodes", "onFlavors": ["queued"]}]}
}


def config(name: str = "queued-provisioning.gke.io", **spec: Any) -> Manifest:
    return kueue("ProvisioningRequestConfig", "requests", provisioningClassName=name, **spec)


@pytest.mark.parametrize(
    ("checks", "of_queue", "expected", "words"),
    [
        ([CHECK, config()], CHECKED, Verdict.FITS, ""),
        ([CHECK, config(managedResources=["cpu"])], CHECKED, Verdict.FITS, ""),
        ([CHECK, config()], {"admissionChecks": ["nodes"]}, Verdict.FITS, ""),
        ([CHECK, config()], {}, Verdict.CANNOT_FIT, "nothing declared creates one"),
        ([CHECK, config("check-capacity.autoscaling.x-k8s.io")], CHECKED, Verdict.CANNOT_FIT, "of the class check-capacity.autoscaling.x-k8s.io for all"),
        ([CHECK, config(managedResources=[GPU])], CHECKED, Verdict.CANNOT_FIT, f"for ['{GPU}'] alone"),
        ([CHECK, config(UNKNOWN)], CHECKED, Verdict.UNDETERMINED, "is not known"),  # pyright: ignore[reportArgumentType]
        ([CHECK], CHECKED, Verdict.UNDETERMINED, "whether AdmissionCheck nodes creates one is not known"),
        ([config()], CHECKED, Verdict.UNDETERMINED, "admits nothing without its AdmissionCheck nodes"),
        ([kueue("AdmissionCheck", "nodes", controllerName="mine")], CHECKED, Verdict.UNDETERMINED, "admits nothing without"),
    ],
)  # fmt: skip
def test_queued_nodes_follow_the_admission_check(
    checks: list[Manifest], of_queue: Manifest, expected: Verdict, words: str
) -> None:
    found = judge(queued_for_nodes(*checks, **of_queue)).workloads[0]
    assert found.verdict is expected
    rule = "queue" if "admits" in words else "queued-nodes"
    assert [each.rule for each in found.reasons] == ([rule] if words else [])
    assert all(
        words in each.message and "anti-affinity" not in each.remedy for each in found.reasons
    )


def test_queued_nodes_come_for_what_each_job_requests() -> None:
    train, nodes, queue, *rest = queued_for_nodes(
        CHECK, config(managedResources=["cpu"]), **CHECKED
    )
    group = queue["spec"]["resourceGroups"][0]
    group["coveredResources"].append("memory")
    group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "1Ti"})
    found = []
    for name, requests in (("cpus", {"cpu": "1"}), ("none", {"memory": "1Gi"})):
        found.append(copy.deepcopy(train))
        found[-1]["metadata"]["name"] = name
        found[-1]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": requests}
    verdicts = judge([*found, nodes, queue, *rest]).workloads
    assert [each.verdict for each in verdicts] == [Verdict.FITS, Verdict.CANNOT_FIT]


def test_a_queue_that_is_not_declared_may_ask_for_queued_nodes() -> None:
    train, nodes, *_ = queued_for_nodes()
    assert judge([train, nodes]).workloads[0].verdict is Verdict.UNDETERMINED


def test_the_budget() -> None:
    cost = judge([on_machine("n2-standard-8")]).cost
    excess = over_budget(cost, Decimal(100))
    assert excess is not None
    assert excess.rule == "monthly-budget"
    assert over_budget(cost, Decimal(1000)) is None


def test_training_without_the_gpu_networks_reports_the_cost() -> None:
    (told,) = [each for each in judge(training_together(2)).findings if each.rule == "gpu-network"]
    assert told.severity == "warning"
    assert told.message == (
        "its 2 pods of 8 GPUs talk to each other over one network interface of a3-highgpu-8g: at most 200 of 1000 Gbps"
    )
    assert "up to 5 times as long" in told.remedy
    assert "Set gpu_network: auto of the pool" in told.remedy
    for quiet in (training_together(1), training_together(2, gpus=4)):
        assert "gpu-network" not in found(quiet)


@pytest.mark.parametrize(
    ("configuration", "is_certain"),
    [
        ("kind: Configuration", True),
        ("resources: {deviceClassMappings: [{name: rdma, deviceClassNames: [c]}]}", False),
        (UNKNOWN, False),
    ],
)
def test_claims_in_a_queue_are_refused_for_certain_if_no_class_has_a_quota(
    configuration: str, is_certain: bool
) -> None:
    (workload,) = judge(claiming_in_a_queue(configuration)).workloads
    reasons = [each for each in workload.reasons if each.rule == "queue-claims"]
    assert [each.severity for each in reasons] == ["error" if is_certain else "warning"]
    assert "devices of mrdma.google.com" in reasons[0].message
    assert workload.verdict is (Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED)


GKES = "autoscaling.gke.io|web|queue"
READ = [
    {
        "pod": {
            "containers": [
                {"metrics": [{"gauge": {"name": "queue", "prometheusMetricName": "a:queue"}}]}
            ]
        }
    }
]
SERVING = {
    "releaseChannel": {"channel": "RAPID"},
    "minMasterVersion": "1.35.1-gke.1396000",
    "podAutoscaling": {"hpaProfile": "PERFORMANCE"},
}


HALF = {"type": "Utilization", "averageUtilization": 50}
CPU_USE = {"type": "Resource", "resource": {"name": "cpu", "target": HALF}}


@pytest.mark.parametrize(
    ("metric", "requests", "why"),
    [
        (CPU_USE, {}, "not all containers request cpu"),
        (CPU_USE, {"cpu": "1"}, None),
        (
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "AverageValue", "averageValue": "1"},
                },
            },
            {},
            None,
        ),
        ({"type": "Resource", "resource": {"name": GPU, "target": HALF}}, {}, f"not of {GPU}"),
        (
            {
                "type": "ContainerResource",
                "containerResource": {"name": "cpu", "container": "no", "target": HALF},
            },
            {"cpu": "1"},
            "the pods have no container no",
        ),
    ],
)
def test_what_an_autoscaler_measures_is_there(
    metric: Manifest, requests: Manifest, why: str | None
) -> None:
    scaled, scaler, nodes = autoscaled(2)
    scaler["spec"]["metrics"] = [metric]
    scaled["spec"]["template"] = template(
        containers=[{"name": "main", "image": "i", "resources": {"requests": requests}}]
    )
    (verdict,) = judge([scaled, scaler, nodes]).workloads
    told = [each.message for each in verdict.warnings if each.rule == "autoscaling-metric"]
    assert [each.endswith(why) for each in told if why] == [True] * (why is not None)
    assert bool(told) is (why is not None)
    assert verdict.verdict == "fits"


@pytest.mark.parametrize(
    "has_them",
    [
        {"hostNetwork": True},
        {"resourceClaims": [{"name": "interfaces", "resourceClaimTemplateName": "rdma"}]},
    ],
)
def test_pods_with_the_interfaces_of_their_node_have_no_warning(has_them: Manifest) -> None:
    train, nodes = training_together(2)
    train["spec"]["template"]["spec"] |= has_them
    assert "gpu-network" not in found([train, nodes])


def test_pods_of_a_training_need_names_that_resolve() -> None:
    assert "peer-names" in found(on_the_host_network("ClusterFirst"))
    assert "peer-names" not in found(on_the_host_network(None, nodes=1)), "it has no peers"
    named, unnamed = job_set("train", 1, 2), job_set("train", 1, 2)
    assert "peer-names" not in found([named, NODES])
    unnamed["spec"]["network"] = {"enableDNSHostnames": False}
    (told,) = [each for each in judge([unnamed, NODES]).findings if each.rule == "peer-names"]
    assert told.severity == "warning" and told.path == "spec.network.enableDNSHostnames"
    unnamed["spec"]["network"] = {"enableDNSHostnames": True}
    assert "peer-names" not in found([unnamed, NODES])


def test_the_ranks_of_a_job_use_one_interface_too() -> None:
    train, nodes = training_together(2)
    del train["metadata"]["annotations"]
    assert "gpu-network" not in found([train, nodes])
    train["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    assert "gpu-network" not in found([train, nodes])
    train["spec"]["template"]["spec"]["subdomain"] = "train"
    assert "gpu-network" in found([train, nodes])


def test_a_metric_needs_the_adapter_of_its_kind() -> None:
    assert "autoscaling-metric" not in found(scaled_by("cpu", kind="Resource"))
    assert "autoscaling-metric" in found(scaled_by("queue", adapter("metrics.k8s.io")))
    assert "autoscaling-metric" in found(scaled_by("queue", kind="External"))
    assert "autoscaling-metric" in found(
        scaled_by("queue", adapter("custom.metrics.k8s.io"), kind="External")
    )
    assert "autoscaling-metric" not in found(
        scaled_by("queue", adapter("external.metrics.k8s.io"), kind="External")
    )


@pytest.mark.parametrize(
    ("name", "service", "is_told"),
    [
        ("vllm:num_requests_waiting", "custom-metrics-stackdriver-adapter", True),
        ("prometheus.googleapis.com|q|gauge", "custom-metrics-stackdriver-adapter", False),
        ("vllm:num_requests_waiting", "prometheus-adapter", False),
    ],
)
def test_googles_adapter_wants_the_whole_name(name: str, service: str, is_told: bool) -> None:
    served = adapter("custom.metrics.k8s.io")
    served["spec"]["service"] = {"namespace": "custom-metrics", "name": service}
    told = [f for f in judge(scaled_by(name, served)).findings if f.rule == "autoscaling-metric"]
    assert [each.severity for each in told] == ["warning"] * is_told
    whole = "prometheus.googleapis.com|vllm:num_requests_waiting|gauge"
    assert all(whole in each.remedy for each in told)


def test_of_several_autoscalers_of_a_workload_none_scales_it() -> None:
    scaled, scaler, nodes = autoscaled(2)
    other = {**scaler, "metadata": {**scaler["metadata"], "name": "second"}}
    assert not judge([scaled, scaler, nodes]).findings
    told = [each.message for each in judge([scaled, scaler, other, nodes]).findings]
    assert told == [f"second and {scaler['metadata']['name']} all scale it, so that none does"]


@pytest.mark.parametrize("name", ["queue", GKES])
def test_nobody_knows_what_an_unknown_cluster_serves(name: str) -> None:
    verdicts = judge(scaled_by(name))
    (told,) = [each for each in verdicts.findings if each.rule == "autoscaling-metric"]
    assert (told.severity, told.object) == ("warning", "HorizontalPodAutoscaler team/web")
    assert verdicts.stack == "fits"
    assert ("is not known" in told.message and "GKE 1.35.1-gke.1396000" in told.remedy) == (
        name == GKES
    )


@pytest.mark.parametrize(
    ("name", "cluster", "missing"),
    [
        ("queue", SERVING, "Declare a MetricsAdapter"),
        (GKES, {}, "Set releaseChannel RAPID and podAutoscaling.hpaProfile PERFORMANCE,"),
        (GKES, SERVING | {"releaseChannel": {"channel": "REGULAR"}}, "Set releaseChannel RAPID,"),
        (
            GKES,
            SERVING | {"podAutoscaling": {"hpaProfile": "NONE"}},
            "Set podAutoscaling.hpaProfile PERFORMANCE,",
        ),
        (
            GKES,
            SERVING | {"minMasterVersion": "1.35.1-gke.1395999"},
            "Set minMasterVersion 1.35.1-gke.1396000,",
        ),
        (GKES, SERVING | {"minMasterVersion": "1.34"}, "Set minMasterVersion 1.35.1-gke.1396000,"),
        (GKES, SERVING, None),
        (GKES, SERVING | {"minMasterVersion": "1.36"}, None),
        (GKES, SERVING | {"minMasterVersion": None}, None),
        (GKES, SERVING | {"minMasterVersion": UNKNOWN}, None),
        (GKES, SERVING | {"releaseChannel": UNKNOWN, "podAutoscaling": UNKNOWN}, None),
        (
            GKES,
            SERVING
            | {"releaseChannel": {"channel": UNKNOWN}, "podAutoscaling": {"hpaProfile": UNKNOWN}},
            None,
        ),
    ],
)
def test_a_cluster_serves_the_metrics_that_its_settings_allow(
    name: str, cluster: Manifest, missing: str | None
) -> None:
    read = namespaced(
        "autoscaling.gke.io/v1beta1", "AutoscalingMetric", "web", spec={"metrics": READ}
    )
    verdicts = judge(scaled_by(name, read), gke=cluster)
    told = [each for each in verdicts.findings if each.rule == "autoscaling-metric"]
    assert [each.severity for each in told] == ["error"] * (missing is not None)
    assert verdicts.stack == ("fits" if missing is None else "cannot-fit")
    assert missing is None or told[0].remedy.startswith(missing)


@pytest.mark.parametrize(
    "read",
    [
        {"name": "other"},
        {"name": "web", "spec": {}},
        {
            "name": "web",
            "spec": {"metrics": READ},
            "metadata": {"name": "web", "namespace": "other"},
        },
    ],
    ids=["another name", "another metric", "another namespace"],
)
def test_gke_does_not_serve_what_no_autoscaling_metric_reads(read: dict[str, Any]) -> None:
    of_gke = namespaced("autoscaling.gke.io/v1beta1", "AutoscalingMetric", **read)
    (told,) = [
        f
        for f in judge(scaled_by(GKES, of_gke), gke=SERVING).findings
        if f.rule == "autoscaling-metric"
    ]
    assert told.severity == "error"
    assert told.remedy.startswith("Declare an AutoscalingMetric team/web with a gauge queue")


@pytest.mark.parametrize(
    "fields", [{"metadata": {"name": UNKNOWN, "namespace": "team"}}, {"spec": UNKNOWN}]
)
def test_what_is_not_known_yet_may_be_read(fields: Manifest) -> None:
    of_gke = namespaced(
        "autoscaling.gke.io/v1beta1",
        "AutoscalingMetric",
        "web",
        **{"spec": {"metrics": READ}} | fields,
    )
    assert "autoscaling-metric" not in [
        f.rule for f in judge(scaled_by(GKES, of_gke), gke=SERVING).findings
    ]


@pytest.mark.parametrize(
    "metrics", [UNKNOWN, [UNKNOWN], None, [{"type": UNKNOWN}], [{"type": "Pods", "pods": UNKNOWN}]]
)
def test_metrics_that_are_not_known_yet_are_no_reason_to_worry(metrics: Any) -> None:
    stack = scaled_by("queue")
    stack[1]["spec"]["metrics"] = metrics
    assert "autoscaling-metric" not in found(stack)


@pytest.mark.parametrize("field", ["apiVersion", "kind", "name"])
def test_an_autoscaler_of_an_unknown_target_is_valid(field: str) -> None:
    stack = scaled_by("queue")
    stack[1]["spec"]["scaleTargetRef"][field] = UNKNOWN
    assert "unknown-field" in found(stack)


@pytest.mark.parametrize(
    ("folder", "is_told"),
    [
        ("/", True),
        ("/var", True),
        ("/var/log/", True),
        ("/var/log/containers", True),
        ("/var/lib", False),
        ("/opt", False),
    ],
)
def test_an_agent_needs_the_folder_of_its_own_logs(folder: str, is_told: bool) -> None:
    (*agent, nodes) = reading_logs("", folder)
    assert ("reads-own-logs" in found([*agent, nodes])) is is_told
    warnings = [f.severity for f in judge([*agent, nodes]).findings if f.rule == "reads-own-logs"]
    assert warnings == ["warning"] * is_told


def test_an_agent_that_is_told_by_its_arguments_what_to_read() -> None:
    volumes = [{"name": "host", "hostPath": {"path": "/var/log"}}]
    reads = container() | {"args": ["--path=/var/log/pods/*/*.log"]}
    assert "reads-own-logs" in found(
        [daemon_set("agent", template(containers=[reads], volumes=volumes)), NODES]
    )
    elsewhere = container() | {"args": ["--path=/var/log/dmesg"]}
    assert "reads-own-logs" not in found(
        [daemon_set("agent", template(containers=[elsewhere], volumes=volumes)), NODES]
    )


def test_a_daemon_set_without_nodes_names_what_keeps_it_off() -> None:
    (finding,) = judge([daemon_set("agent", template()), TAINTED]).findings
    message = 'it runs on no node; the nearest, "h100", does not take it: untolerated taint nvidia.com/gpu=present'
    assert finding.rule == "daemon-set-without-nodes" and message in finding.message
    assert finding.remedy.startswith("Tolerate nvidia.com/gpu=present")


@pytest.mark.parametrize(
    ("keys", "cpu", "is_reported"), [([], 1, True), (KEYS, 1, False), (KEYS, 3, True)]
)
def test_a_rollout_keeps_old_and_new_pods_apart_by_their_hash(
    keys: list[str], cpu: int, is_reported: bool
) -> None:
    apart = anti_affinity()
    (term,) = apart["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["matchLabelKeys"] = keys
    server = web(2, affinity=apart, containers=[container(cpu=cpu)])
    assert ("rollout-surge" in found([server, NODES])) is is_reported


@pytest.mark.parametrize("keys", [[], KEYS])
def test_a_rollout_counts_spread_pods_by_their_hash(keys: list[str]) -> None:
    server = web(4, topologySpreadConstraints=[spread(HOSTNAME, matchLabelKeys=keys)])
    server["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 2}}
    assert "rollout-surge" not in found([server, NODES])


def test_the_remedy_for_slow_networks_is_known() -> None:
    """Interfaces fit nodes that have their networks; else the missing network is named."""
    interfaces = {"networking.gke.io/interfaces": '[{"interfaceName": "eth1", "network": "vpc1"}]'}
    train, nodes = training_together(2, interfaces=interfaces)
    (verdict,) = judge([train, nodes]).workloads
    assert verdict.verdict is Verdict.UNDETERMINED
    assert ["vpc1" in each.message for each in verdict.reasons] == [True]
    nodes["status"]["allocatable"]["networking.gke.io.networks/vpc1.IP"] = "100"
    assert judge([train, nodes]).stack is Verdict.FITS
    assert "gpu-network" not in found([train, nodes])


@pytest.mark.parametrize(
    "annotation", ["devices.gke.io/container.tcpx-daemon", "provreq.kueue.x-k8s.io/maxRunDuration"]
)
def test_annotations_that_decide_nothing_about_places(annotation: str) -> None:
    assert judge(training_together(1, interfaces={annotation: "1"})).stack is Verdict.FITS


@pytest.mark.parametrize(
    ("replicas", "spec", "is_error"),
    [
        (2, {}, False),
        (2, {"affinity": anti_affinity(HOSTNAME)}, True),
        (2, {"containers": [container(cpu=3)]}, True),
        (3, {"topologySpreadConstraints": [spread(HOSTNAME)]}, True),
        (3, {"topologySpreadConstraints": [spread(HOSTNAME, maxSkew=3)]}, False),
    ],
)
def test_pods_that_one_node_never_takes_cannot_share_a_disk(
    replicas: int, spec: Manifest, is_error: bool
) -> None:
    """One node at a time attaches a ReadWriteOnce disk; pods on another node wait for it for ever."""
    server = mounting(replicas)
    server["spec"]["template"]["spec"] |= spec
    stack = [server, claim(storageClassName="fast"), CLASS, NODES]
    (verdict,) = judge(stack).workloads
    told = [
        each.severity
        for each in (*verdict.reasons, *verdict.warnings)
        if each.rule == "volume-access"
    ]
    assert told == ["error" if is_error else "warning"]
    assert verdict.verdict is (Verdict.CANNOT_FIT if is_error else Verdict.FITS)


@pytest.mark.parametrize(
    ("replicas", "disk", "expected"),
    [(2, {}, Verdict.CANNOT_FIT), (1, {}, Verdict.FITS), (2, {"readOnly": True}, Verdict.FITS)],
)
def test_several_pods_cannot_write_to_one_inline_disk(
    replicas: int, disk: Manifest, expected: Verdict
) -> None:
    source = {"pdName": "maps", **disk}
    server = web(replicas, volumes=[{"name": "maps", "gcePersistentDisk": source}])
    assert judge([server, NODES]).workloads[0].verdict is expected


def slice_of(node: str, *products: str) -> Manifest:
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {"type": {"string": "gpu"}, "productName": {"string": product}},
        }
        for i, product in enumerate(products)
    ]
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": node,
        "pool": {"name": node, "generation": 1},
        "devices": devices,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": spec,
    }


def test_the_devices_of_a_node_are_those_of_its_driver() -> None:
    train, gpus, _ = claiming(2)
    of_gke = {
        "cloud.google.com/gke-nodepool": "p",
        "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
    }
    nodes = node("n", of_gke | {"cloud.google.com/gke-nvidia-gpu-dra-driver": "true"})
    assert (
        judge([train, gpus, nodes]).stack is Verdict.UNDETERMINED
    )  # how many GPUs there are is not known
    two = slice_of("n", *2 * ["NVIDIA H100 80GB HBM3"])
    assert "device-claim" not in found([train, gpus, nodes, two])
    (refused,) = [
        f
        for f in judge([train, gpus, nodes, slice_of("n", "NVIDIA L4")]).findings
        if f.rule == "device-claim"
    ]
    assert refused.severity == "error" and "n has 1 NVIDIA-L4" in refused.message


def test_devices_of_other_drivers_are_no_gpus() -> None:
    train, gpus, nodes = claiming(64)
    gpus["spec"]["spec"]["devices"]["requests"][0]["exactly"] = {
        "deviceClassName": "mrdma.google.com",
        "count": 8,
    }
    verdicts = judge([train, gpus, nodes])
    assert verdicts.stack is Verdict.UNDETERMINED
    assert [
        "it claims devices of mrdma.google.com" in each.message
        for each in verdicts.workloads[0].reasons
    ] == [True]


REMEDIES = {rule: passes for rule, (_, passes) in EDGE.items()} | {
    "node-name": [web(), node("n")],
    "queued-nodes": queued_for_nodes(CHECK, config(), **CHECKED),
}
"""The stacks that the remedies make of those that break a rule: of most rules, the stack that passes."""
LEFT_TO_DRIVERS = {"device-claim", "queue-claims"}
"""Rules about what drivers allocate: planning counts the devices and leaves the rest undetermined."""


@pytest.mark.parametrize("rule", REMEDIES)
def test_a_remedy_does_not_lead_to_what_planning_does_not_know(rule: str) -> None:
    unknown = [
        each
        for each in found(REMEDIES[rule])
        if each == "beyond-planning" or each.startswith("unknown-")
    ]
    assert rule not in found(REMEDIES[rule])
    assert unknown == (["beyond-planning"] if rule in LEFT_TO_DRIVERS else [])


IN_OTHER_WORDS = {
    *(
        "bucket-identity",
        "bucket-sidecar",
        "competition",
        "critical-pods",
        "daemon-set-room",
        "device-claim",
    ),
    *("disk-type", "invalid", "limit-range-ratio", "no-nodes", "pod-interfaces", "pod-security"),
    *("queue-claims", "queue-topology", "queued-nodes"),
    *("runtime-class", "volume-binding", "volume-class", "volume-zone"),
}
"""Rules whose remedies tests do not apply, because they leave it open what to write."""


@pytest.mark.parametrize("rule", EDGE)
def test_a_remedy_of_an_error_removes_it(rule: str) -> None:
    stack, _ = EDGE[rule]
    errors = [each for each in judge(stack).findings if each.severity == "error"]
    remedies = [(error, *remedy) for error in errors for remedy in applied(stack, error)]
    assert bool(errors) == bool(remedies) or rule in IN_OTHER_WORDS
    for error, words, documents in remedies:
        assert not remains(error, judge(documents).findings), words
