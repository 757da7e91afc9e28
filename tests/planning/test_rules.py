"""For each rule a small stack that trips it, and one that differs in a single number or name and does not."""

import copy
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict, judge
from ml_foundations.planning.model.nodes import MIN_NODES
from ml_foundations.planning.rules.built_in import RULES
from ml_foundations.planning.verdict.cost import over_budget
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    CANNOT,
    FITS,
    GPU,
    HOSTNAME,
    OPEN,
    ZONE,
    Manifest,
    affinity,
    anti_affinity,
    claim,
    cluster_wide,
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
from tests.planning.queues import LOCAL, configured
from tests.planning.remedies import applied, remains
from tests.planning.topologies import RACK, asking, queue, racks
from tests.support.checkout import CHECKOUT
from tests.support.cluster_objects import (
    autoscaler,
    claim_template,
    kueue,
    mounted,
    namespace,
    policy,
    priority_class,
    storage_class,
    taint,
    using,
    volume,
    web,
)
from tests.support.findings import of_rule, told

NODES = pool("cpu", 2, {ZONE: "a", "disk": "ssd"})
TAINTED = pool("h100", 2, {}, [{"key": GPU, "value": "present", "effect": "NoSchedule"}], gpu="8")
ANYWHERE = {"key": "disk", "operator": "In", "values": ["ssd"]}
ON_GKE_LABELS = {"cloud.google.com/gke-nodepool": "gke"}
SMALL = cluster_wide("node.k8s.io/v1", "RuntimeClass", "small", overhead={"podFixed": {"cpu": "1"}})
BASELINE = namespace(**{"pod-security.kubernetes.io/enforce": "baseline"})
ON_GKE = pool("gke", 2, ON_GKE_LABELS)
CLASS = storage_class(parameters={"type": "pd-balanced"})
SPOT = {"cloud.google.com/gke-spot": "true"}
FLEX_START = {"cloud.google.com/gke-flex-start": "true"}
QUEUED_TAINT = taint("cloud.google.com/gke-queued", "true")
IN_QUEUE = {"kueue.x-k8s.io/queue-name": "training"}
FUSE = "gcsfuse.csi.storage.gke.io"
WITH_SIDECAR = {"gke-gcsfuse/volumes": "true"}


def pair(
    breaks: Manifest, passes: Manifest, *others: Manifest
) -> tuple[list[Manifest], list[Manifest]]:
    """Two stacks that differ in one object."""
    return [breaks, *others], [passes, *others]


def annotated(manifest: Manifest, **annotations: Any) -> Manifest:
    """A workload whose pods have annotations."""
    manifest["spec"]["template"]["metadata"]["annotations"] = annotations
    return manifest


def with_interfaces(text: str) -> list[Manifest]:
    return [annotated(web(), **{"networking.gke.io/interfaces": text}), NODES]


def of_priority(value: int, least: str = "0") -> list[Manifest]:
    """A server with a priority, and a pool that the autoscaler grows."""
    nodes = pool("grows", 2)
    nodes["metadata"]["annotations"][MIN_NODES] = least
    return [web(priorityClassName="low"), nodes, priority_class("low", value)]


def reading_logs(more: str, folder: str = "/var/log") -> list[Manifest]:
    """An agent that reads what its ConfigMap says, in a folder of its node."""
    read = {"a.yaml": f"path: /var/log/containers/*.log\n{more}"}
    volumes = [
        {"name": "host", "hostPath": {"path": folder}},
        {"name": "files", "configMap": {"name": "logs"}},
    ]
    settings = namespaced("v1", "ConfigMap", "logs", data=read)
    return [daemon_set("agent", template(volumes=volumes)), settings, NODES]


def asks(**limits: Any) -> Manifest:
    return web(containers=[container(**limits)])


def sees_ipc() -> Manifest:
    return web(hostIPC=True, containers=[container(gpu=1)])


def requests(request: Manifest, limit: Manifest) -> Manifest:
    return web(containers=[{"name": "main", "resources": {"requests": request, "limits": limit}}])


def mounting(replicas: int = 1) -> Manifest:
    return web(replicas, **mounted())


ROOM: Any = {"size": "1Ti", "hostPath": {"path": "/data"}}


def bucket(**annotations: str) -> list[Manifest]:
    """A Deployment that mounts the claim of a bucket."""
    bound: Any = {
        "claimRef": {"namespace": "team", "name": "data"},
        "csi": {"driver": FUSE, "volumeHandle": "my-bucket"},
    }
    many: Any = {"mode": "ReadWriteMany", "storageClassName": "gcs"}
    server = annotated(mounting(), **annotations)
    return [server, claim(volumeName="pv", **many), volume(**many, **bound), NODES]


def bucket_on_gke(attributes: Any = None, **spec: Any) -> list[Manifest]:
    server, wanted, volume, _ = bucket(**WITH_SIDECAR)
    server["spec"]["template"]["spec"] |= spec
    volume["spec"]["csi"]["volumeAttributes"] = attributes or {}
    return [server, wanted, volume, ON_GKE]


def by_default(**amounts: str) -> Manifest:
    """A LimitRange with default limits of containers."""
    return limit_range({"type": "Container", "default": amounts})


def limited_sidecar(**annotations: str) -> list[Manifest]:
    """A server with a bucket, in a namespace with a default limit."""
    server, wanted, volume, _ = bucket(**WITH_SIDECAR | annotations)
    volume["spec"]["csi"]["volumeAttributes"] = {}
    nodes = pool("gke", 2, ON_GKE_LABELS, **{"ephemeral-storage": "100Gi"})  # pyright: ignore[reportArgumentType]
    return [server, wanted, volume, by_default(cpu="500m"), nodes]


def with_nccl_plugin(gpus: int) -> list[Manifest]:
    """A server on nodes with NCCL's plugin."""
    installer = {"name": "install", "image": "r.example/nccl-plugin-gib:v1"}
    plugin = daemon_set("nccl-plugin", template(containers=[installer]))
    return [asks(gpu=gpus), plugin, pool("gke", 2, ON_GKE_LABELS, gpu="8")]


def in_memory(size: str, limit: str = "1Gi", own: Manifest | None = None) -> list[Manifest]:
    """A server with shared memory, in a namespace with a default limit."""
    main = container(cpu=1, **(own or {})) | {
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]
    }
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    return [web(containers=[main], volumes=volumes), by_default(memory=limit), NODES]


def gpus_by_default(cpu: str, memory: str, own: Manifest | None = None) -> list[Manifest]:
    """A server with eight GPUs, in a namespace with default limits."""
    large = pool("large", 1, gpu="8", cpu="64", memory="512Gi")
    return [asks(gpu=8, **(own or {})), by_default(cpu=cpu, memory=memory), large]


def for_queued_nodes(**annotations: str) -> list[Manifest]:
    """A Job that only nodes of a queued pool take."""
    pods = template(tolerations=[{"key": QUEUED_TAINT["key"], "operator": "Exists"}])
    train = annotated(job("train", 1, pods), **annotations)
    return [train, pool("queued", 2, {}, [QUEUED_TAINT])]


def claiming_volumes(replicas: int) -> list[Manifest]:
    """A set whose pods each need the one free volume."""
    claims = [claim_template(storageClassName="local")]
    local = storage_class("local", "kubernetes.io/no-provisioner")
    free = volume(storageClassName="local", **ROOM)
    return [
        stateful_set("db", replicas, template(), volumeClaimTemplates=claims),
        local,
        free,
        NODES,
    ]


def on_machine(name: str) -> Manifest:
    place = {"topology.kubernetes.io/region": "us-central1"}
    return pool("m", 1, place | {"node.kubernetes.io/instance-type": name})


def near_themselves(workloads: int) -> list[Manifest]:
    """Pods that are each near those of their own workload, on a few nodes."""
    stack = [node(f"n{index}", cpu="9") for index in range(20)]
    for index in range(workloads):
        pods = template({"app": f"w{index}"}, affinity=affinity(app=f"w{index}"))
        stack.append(deployment(f"w{index}", 2, pods))
    return stack


def claim_of_devices(name: str, request: Manifest) -> Manifest:
    """A ResourceClaimTemplate with one request."""
    devices = {"requests": [{"name": name, "exactly": request}]}
    spec = {"spec": {"devices": devices}}
    return namespaced("resource.k8s.io/v1", "ResourceClaimTemplate", name, spec=spec)


DRA = {"cloud.google.com/gke-nvidia-gpu-dra-driver": "true"}
H100 = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}


def claiming(count: int, product: str = "NVIDIA-H100-80GB-HBM3") -> list[Manifest]:
    named = 'device.attributes["gpu.nvidia.com"].productName.replace(" ", "-")'
    selectors = [{"cel": {"expression": f'{named} == "{product}"'}}]
    wanted = {"deviceClassName": "gpu.nvidia.com", "count": count, "selectors": selectors}
    of_gke = H100 | DRA | {"cloud.google.com/gke-accelerator-count": "8"}
    claims = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    return [
        job("train", 1, template(resourceClaims=claims)),
        claim_of_devices("gpus", wanted),
        pool("h100", 1, of_gke | {"cloud.google.com/gke-nodepool": "h100"}),
    ]


def shared(strategy: str, gpus: int = 8) -> Manifest:
    """Nodes whose GPUs four pods share, each."""
    of_gke = {
        "cloud.google.com/gke-gpu-sharing-strategy": strategy,
        "cloud.google.com/gke-max-shared-clients-per-gpu": "4",
    }
    return pool("shared", 1, of_gke, gpu=str(gpus))


def driven(version: str) -> Manifest:
    """Nodes with GPUs and a driver of GKE's."""
    return pool("driven", 1, {"cloud.google.com/gke-gpu-driver-version": version}, gpu="1")


def loading(image: str, path: str) -> Manifest:
    env = [{"name": "LD_LIBRARY_PATH", "value": path}]
    return web(containers=[{**container(gpu=1), "image": image, "env": env}])


def autoscaled(most: int) -> list[Manifest]:
    db = stateful_set("web", 1, template())
    return [db, autoscaler(db, maxReplicas=most), NODES]


def scaled_by(name: str, *more: Manifest, kind: str = "Pods") -> list[Manifest]:
    stack = autoscaled(2)
    field = "resource" if kind == "Resource" else kind.lower()
    own = {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "5"}}
    stack[1]["spec"]["metrics"] = [{"type": kind, field: own}]
    return [*stack, *more]


def adapter(group: str) -> Manifest:
    version, name = "apiregistration.k8s.io/v1", f"v1beta1.{group}"
    return cluster_wide(version, "APIService", name, spec={"group": group})


def gang(nodes: int, *pools: Manifest, gpus: int = 8) -> list[Manifest]:
    return [job("train", nodes, using(gpu=gpus), gang=True), *pools]


def training_together(
    nodes: int, gpus: int = 8, interfaces: Manifest | None = None
) -> list[Manifest]:
    h100 = pool("h100", 2, {"node.kubernetes.io/instance-type": "a3-highgpu-8g"}, gpu="8")
    train, *nodes_ = gang(nodes, h100, gpus=gpus)
    return [annotated(train, **interfaces or {}), *nodes_]


def on_the_host_network(policy: str | None, nodes: int = 2) -> list[Manifest]:
    pods = template(containers=[container()], hostNetwork=True)
    if policy:
        pods["spec"]["dnsPolicy"] = policy
    return [job("train", nodes, pods, gang=True), NODES]


def coming_one_by_one(nodes: int) -> list[Manifest]:
    return gang(nodes, pool("flex", 2, FLEX_START, gpu="8"))


def ending_on_spot(seconds: int, **of_container: Any) -> list[Manifest]:
    main = container(gpu=8) | of_container
    pods = template(containers=[main], terminationGracePeriodSeconds=seconds)
    nodes = pool("spot", 2, SPOT | {"cloud.google.com/gke-nodepool": "spot"}, gpu="8")
    return [job("train", 1, pods), nodes]


def on_a_gke_pool(cpu: int, *more: Manifest, pods: int = 1) -> list[Manifest]:
    nodes = pool("p", 2, {"cloud.google.com/gke-nodepool": "p"}, cpu="8" if pods > 1 else "4")
    return [deployment("web", pods, using(cpu=cpu)), nodes, *more]


def on_spot(nodes: int) -> list[Manifest]:
    return gang(nodes, pool("spot", 2, SPOT, gpu="8"))


def with_deadline(seconds: int) -> list[Manifest]:
    train = job("train", 1, using(gpu=8), activeDeadlineSeconds=seconds)
    return [train, pool("spot", 2, SPOT, gpu="8")]


def keeping(*, read_only: bool) -> list[Manifest]:
    mount = {"name": "kept", "mountPath": "/kept", "readOnly": read_only}
    volume = {"name": "kept", "nfs": {"server": "nfs", "path": "/"}}
    pods = template(containers=[container(gpu=8) | {"volumeMounts": [mount]}], volumes=[volume])
    return [job("train", 2, pods, gang=True), pool("h100", 2, gpu="8")]


def queued(gpus: int, *, queue: str = "training") -> list[Manifest]:
    train = job("train", 1, using(gpu=gpus))
    train["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    resources = [{"name": GPU, "nominalQuota": 4}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": resources}]}]
    team = kueue("ClusterQueue", "team", resourceGroups=groups, namespaceSelector={})
    return [train, TAINTED, kueue("ResourceFlavor", "any"), team, LOCAL]


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
    made = claim_of_devices("rdma", {"deviceClassName": "mrdma.google.com", "count": 8})
    return [train, *others, made, configured(configuration)]


CLAIMS_IGNORED = (
    "featureGates: {KueueDRAIntegration: false, KueueDRARejectWorkloadsWhenDRADisabled: false}"
)


def evicting(priority: int) -> list[Manifest]:
    spec = {"nodeName": "n", "containers": [container(cpu=4)]}
    running = namespaced("v1", "Pod", "old", spec=spec, status={"phase": "Running"})
    new = job("new", 1, template(priorityClassName="urgent"))
    return [new, priority_class("urgent", priority), running, node("n")]


def defaults(*amounts: str) -> list[Manifest]:
    limits = [by_default(cpu=amount) for amount in amounts]
    for index, item in enumerate(limits):
        item["metadata"] = {**item["metadata"], "name": f"limits-{index}"}
    return [web(containers=[{"name": "main"}]), NODES, *limits]


def in_containers(**bounds: Manifest) -> Manifest:
    return limit_range({"type": "Container", **bounds})


def agent(**spec: Any) -> Manifest:
    return daemon_set("agent", template(**spec))


def on_disk(kind: str) -> Manifest:
    return web(affinity=node_affinity(ANYWHERE | {"values": [kind]}))


def spread_over_two(replicas: int) -> Manifest:
    return web(replicas, topologySpreadConstraints=[spread(minDomains=2)])


def other(replicas: int) -> Manifest:
    return deployment("other", replicas, template())


FAST: Any = {"storageClassName": "fast"}
FEW_PODS = quota(hard={"pods": "2"})
FEW_CPUS = quota(hard={"requests.cpu": "4"})
CRITICAL = web(priorityClassName="system-node-critical")
NEW_POOL_QUEUE = {"autoscaling.x-k8s.io/consume-provisioning-request": "mine"}


KEYS = ["pod-template-hash"]
CORDONED = node("n") | {"spec": {"unschedulable": True}}
SKEWED = [pool("a", 1, {ZONE: "a"}), pool("b", 1, {ZONE: "b"})]


EDGE: dict[str, tuple[list[Manifest], list[Manifest]]] = {
    "resources": pair(asks(cpu=5), asks(cpu=4), NODES),
    "nodes": pair(web(9), web(8), NODES),
    "no-nodes": ([web()], [web(), NODES]),
    "taint": pair(web(nodeSelector={}), asks(gpu=1), TAINTED),
    "node-selector": pair(
        web(nodeSelector={"disk": "hdd"}), web(nodeSelector={"disk": "ssd"}), NODES
    ),
    "node-affinity": pair(on_disk("hdd"), on_disk("ssd"), NODES),
    "node-name": pair(web(nodeName="gone"), web(nodeName="n"), node("n")),
    "node-unschedulable": ([web(), CORDONED], [web(), node("n")]),
    "pod-affinity": pair(web(affinity=affinity(app="other")), web(affinity=affinity()), NODES),
    "pod-anti-affinity": pair(
        web(3, affinity=anti_affinity(ZONE)), web(2, affinity=anti_affinity(ZONE)), *SKEWED
    ),
    "topology-spread": pair(spread_over_two(3), spread_over_two(1), NODES),
    "volume-access": pair(
        mounting(2), mounting(1), claim(mode="ReadWriteOncePod", **FAST), CLASS, NODES
    ),
    "volume-binding": (claiming_volumes(2), claiming_volumes(1)),
    "volume-zone": pair(
        volume(labels={ZONE: "b"}, **ROOM),
        volume(labels={ZONE: "a"}, **ROOM),
        *(mounting(), claim(volumeName="pv"), NODES),
    ),
    "volume-class": pair(
        claim(mode="ReadWriteMany", **FAST),
        claim(mode="ReadWriteMany", volumeMode="Block", **FAST),
        *(mounting(), CLASS, NODES),
    ),
    "shared-gpu": pair(asks(gpu=2), asks(gpu=1), shared("time-sharing")),
    "mps-ipc": pair(asks(gpu=1), sees_ipc(), shared("mps"), ON_GKE),
    "driver-path": pair(
        loading("i", "/opt/lib"),
        loading("i", "/opt/lib:/usr/local/nvidia/lib64"),
        *(driven("default"), ON_GKE),
    ),
    "device-claim": (claiming(16), claiming(8)),
    "disk-type": pair(
        on_machine("g4-standard-96"), on_machine("n2-standard-8"), mounting(), claim(**FAST), CLASS
    ),
    "competition": pair(other(5), other(4), web(4), NODES),
    "preemption": (evicting(10), [*evicting(10), node("free")]),
    "runs-in-turns": pair(job("sweep", 9, template()), job("sweep", 8, template()), NODES),
    "rollout-surge": pair(web(8), web(6), NODES),
    "autoscaling-ceiling": (autoscaled(9), autoscaled(8)),
    "daemon-set-room": pair(
        agent(containers=[container(cpu=5)]), agent(containers=[container(cpu=4)]), NODES
    ),
    "daemon-set-spread": pair(
        agent(affinity=anti_affinity(ZONE)), agent(affinity=anti_affinity(HOSTNAME)), NODES
    ),
    "daemon-set-without-nodes": pair(
        agent(nodeSelector={"disk": "hdd"}), agent(nodeSelector={"disk": "ssd"}), NODES
    ),
    "quota": pair(web(3), web(1), NODES, FEW_PODS),
    "quota-sum": (
        [web(), stateful_set("other", 2, template()), NODES, quota(hard={"requests.cpu": "2"})],
        [web(), stateful_set("other", 1, template()), NODES, quota(hard={"requests.cpu": "3"})],
    ),
    "quota-requires": pair(web(containers=[{"name": "main"}]), asks(cpu=1), NODES, FEW_CPUS),
    "limit-range-min": pair(
        in_containers(min={"cpu": "2"}), in_containers(min={"cpu": "1"}), web(), NODES
    ),
    "limit-range-max": pair(
        in_containers(max={"cpu": "500m"}), in_containers(max={"cpu": "1"}), web(), NODES
    ),
    "limit-range-ratio": pair(
        requests({"cpu": "1"}, {"cpu": "3"}),
        requests({"cpu": "1"}, {"cpu": "2"}),
        *(NODES, in_containers(maxLimitRequestRatio={"cpu": "2"})),
    ),
    "limit-range-defaults": (defaults("1", "2"), defaults("1", "1")),
    "request-above-limit": pair(
        requests({"cpu": "2"}, {"cpu": "1"}), requests({"cpu": "1"}, {"cpu": "1"}), NODES
    ),
    "extended-resource-limit": pair(
        requests({GPU: "2"}, {GPU: "1"}), requests({GPU: "1"}, {GPU: "1"}), TAINTED
    ),
    "extended-resource-fraction": pair(asks(gpu="500m"), asks(gpu="1"), TAINTED),
    "invalid": pair(web(restartPolicy="Never"), web(restartPolicy="Always"), NODES),
    "pod-security": pair(web(hostPID=True), web(hostPID=False), NODES, BASELINE),
    "priority-class": pair(web(priority=1), web(priority=0), NODES),
    "runtime-class": pair(
        web(runtimeClassName="small", overhead={"cpu": "2"}),
        web(runtimeClassName="small", overhead={"cpu": "1"}),
        *(NODES, SMALL),
    ),
    "bucket-sidecar": (bucket(), bucket(**WITH_SIDECAR)),
    "queued-nodes": (for_queued_nodes(), for_queued_nodes(**NEW_POOL_QUEUE)),
    "critical-pods": pair(ON_GKE, NODES, CRITICAL, BASELINE),
    "expendable": (of_priority(-11), of_priority(-10)),
    "queue": (queued(1, queue="trainig"), queued(1)),
    "queue-quota": (queued(5), queued(4)),
    "queue-claims": (
        claiming_in_a_queue("featureGates: {KueueDRAIntegration: false}"),
        claiming_in_a_queue(CLAIMS_IGNORED),
    ),
    "queue-topology": pair(
        asking(3, required_topology=RACK),
        asking(2, required_topology=RACK),
        *(*racks(2, 1), *queue(gpus=24)),
    ),
    "queue-capacity": pair(
        quota(hard={f"requests.{GPU}": "3"}), quota(hard={f"requests.{GPU}": "4"}), *queued(1)
    ),
    "beyond-planning": pair(
        web(schedulerName="mine"), web(schedulerName="default-scheduler"), NODES
    ),
    "unknown-field": pair(
        web(schedulingGroup={"podGroupName": "g"}), web(schedulingGroup=None), NODES
    ),
    "unknown-kind": pair(
        namespaced("example.org/v1", "Service", "s"),
        namespaced("v1", "Service", "s"),
        *(web(), NODES),
    ),
    "work-budget": (near_themselves(16), near_themselves(4)),
    "unknown-admission": pair(
        webhook("pods", "*", "Validating"), webhook("jobs", "*", "Validating"), web(), NODES
    ),
    "unknown-value": pair(web(UNKNOWN), web(1), NODES),  # pyright: ignore[reportArgumentType]
    "pod-interfaces": (with_interfaces("["), with_interfaces("[]")),
    "gpu-network": (
        training_together(2),
        training_together(2, interfaces={"networking.gke.io/interfaces": "[]"}),
    ),
    "endless-daemon": (with_daemon("containers"), with_daemon("initContainers")),
    "gpu-defaults": (gpus_by_default("500m", "1Gi"), gpus_by_default("8", "32Gi")),
    "shared-memory": (in_memory("2Gi"), in_memory("1Gi")),
    "spot-grace": (ending_on_spot(16), ending_on_spot(15)),
    "system-requests": (on_a_gke_pool(4), on_a_gke_pool(3)),
    "peer-names": (on_the_host_network(None), on_the_host_network("ClusterFirstWithHostNet")),
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
    return {finding.rule for finding in judge_documents(documents).findings}


KNOWN_BY_MESSAGE = {"later-field"}
"""Rules whose tests read the message alone (test_field_versions.py)."""


def test_every_rule_has_a_test() -> None:
    """Rules about clusters and programs have their tests in other files, which name them."""
    files = Path(__file__).parent.glob("test_*.py")
    tests = "\n".join(file.read_text() for file in files)
    named = {rule for rule in RULES if f'"{rule}' in tests}
    assert EDGE.keys() <= RULES.keys()
    assert RULES.keys() - named - KNOWN_BY_MESSAGE == set()


def test_the_documentation_has_every_rule() -> None:
    page = (CHECKOUT / "docs" / "components" / "rules.md").read_text()
    lines = re.findall(r"^- `.*$", page, re.MULTILINE)
    assert len(lines) == len(RULES)
    for line, (rule, wants) in zip(lines, RULES.items(), strict=True):
        assert line.startswith(f"- `{rule}`: {wants}")


@pytest.mark.parametrize("rule", EDGE)
def test_a_stack_trips_the_rule_and_one_like_it_does_not(rule: str) -> None:
    trips, passes = EDGE[rule]
    assert rule in found(trips)
    assert rule not in found(passes)
    assert found(trips) <= RULES.keys() | {"workload"}


@pytest.mark.parametrize(("sleep", "is_reported"), [(14, False), (15, True)])
def test_hook_that_sleeps_leaves_time_for_the_signal(sleep: int, is_reported: bool) -> None:
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": sleep}}}}
    stack = ending_on_spot(10, **hook)
    assert ("spot-grace" in found(stack)) is is_reported
    told = [reason.remedy for reason in judge(stack).findings if reason.rule == "spot-grace"]
    assert all("seconds to 14 or less" in remedy for remedy in told)


@pytest.mark.parametrize(
    ("rule", "words", "field"),
    [
        (
            "gpu-defaults",
            "8 GPUs, and a LimitRange's default limits it to 500m cpu and 1Gi memory",
            "",
        ),
        ("shared-memory", "may grow to 2Gi", ".limits.memory"),
        ("shared-memory", "limited to 1Gi by a LimitRange's default", ".limits.memory"),
    ],
)
def test_what_is_too_little_is_a_warning_with_the_numbers(
    rule: str, words: str, field: str
) -> None:
    (warning,) = told(EDGE[rule][0], rule)
    assert warning.severity == "warning" and words in warning.message
    assert warning.path == f"spec.template.spec.containers[0].resources{field}"


@pytest.mark.parametrize(
    ("rule", "stack", "is_told"),
    [
        ("gpu-defaults", gpus_by_default("500m", "1Gi", {"memory": "64Gi"}), True),
        ("gpu-defaults", gpus_by_default("500m", "1Gi", {"memory": "64Gi", "cpu": "8"}), False),
        ("shared-memory", in_memory("2Gi", own={"memory": "3Gi"}), False),
        ("shared-memory", in_memory("2Gi", own={"memory": "1Gi"}), True),
        ("shared-memory", [in_memory("2Gi")[0], NODES], False),
    ],
)
def test_containers_with_memory_of_their_own(
    rule: str, stack: list[Manifest], is_told: bool
) -> None:
    assert (rule in found(stack)) is is_told


def test_pods_that_declare_no_grace_count_on_none() -> None:
    stack = ending_on_spot(16)
    del stack[0]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert "spot-grace" not in found(stack)


@pytest.mark.parametrize(
    ("least", "expected"),
    [("0", CANNOT), ("1", OPEN), ("2", FITS)],
)
def test_pods_of_a_low_priority_use_the_existing_nodes(least: str, expected: Verdict) -> None:
    assert judge(of_priority(-11, least)).stack is expected


@pytest.mark.parametrize(
    ("server", "nodes", "is_told"),
    [
        (web(containers=[container(gpu=1), container(gpu=1)]), shared("time-sharing"), False),
        (asks(gpu=2), shared("time-sharing", 4), True),
        (asks(gpu=2), shared("mps"), True),
        (asks(gpu=2), shared("mps", 4), False),
    ],
)
def test_shared_gpus(server: Manifest, nodes: Manifest, is_told: bool) -> None:
    assert ("shared-gpu" in found([server, nodes])) is is_told


METADATA_SERVER = {
    "to": [{"ipBlock": {"cidr": "169.254.169.252/32"}}],
    "ports": [{"port": 988}],
}
INTERNET = [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]
ELSEWHERE = [{"podSelector": {}}]


EVERY_POD: Manifest = {"podSelector": {}}


@pytest.mark.parametrize(
    ("policies", "is_told"),
    [
        ([], False),
        ([EVERY_POD | {"policyTypes": ["Ingress"]}], False),
        ([EVERY_POD | {"policyTypes": ["Ingress", "Egress"]}], True),
        ([{"podSelector": {"matchLabels": {"app": "other"}}, "policyTypes": ["Egress"]}], False),
        ([EVERY_POD | {"egress": [{}]}], False),
        ([EVERY_POD | {"egress": [{"ports": [{"port": 443}]}]}], True),
        ([EVERY_POD | {"egress": [{"ports": [{"port": 1, "endPort": 1024}]}]}], False),
        ([EVERY_POD | {"egress": [{"to": INTERNET}, {"to": ELSEWHERE}]}], True),
        (
            [EVERY_POD | {"policyTypes": ["Egress"]}, EVERY_POD | {"egress": [METADATA_SERVER]}],
            False,
        ),
    ],
)
def test_a_bucket_needs_the_metadata_server(policies: list[Any], is_told: bool) -> None:
    made = [policy(f"p{index}", **spec) for index, spec in enumerate(policies)]
    assert ("bucket-identity" in found([*bucket_on_gke(), *made])) is is_told


def test_a_bucket_on_the_nodes_network_may_be_the_pods_own() -> None:
    for opts_in in ({"hostNetworkPodKSA": "true"}, {"hostNetworkPodKSA": UNKNOWN}):
        assert "bucket-identity" not in found(bucket_on_gke(opts_in, hostNetwork=True))
    assert "bucket-identity" not in found(bucket(**WITH_SIDECAR))
    (warning,) = told(bucket_on_gke(hostNetwork=True), "bucket-identity")
    assert warning.severity == "warning" and 'hostNetworkPodKSA: "true"' in warning.remedy


def test_other_nodes_than_spot_stay() -> None:
    (warning,) = told(on_spot(2), "gang-on-spot")
    assert warning.severity == "warning" and "its 2 pods run at once" in warning.message
    assert "gang-on-spot" not in found([*on_spot(2), pool("others", 2, gpu="8")])


def test_other_nodes_than_those_of_flex_start_come_together() -> None:
    assert "one-by-one" not in found([*coming_one_by_one(2), pool("others", 2, gpu="8")])
    train, flexible = coming_one_by_one(2)
    assert "one-by-one" in found([train, flexible])
    train["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    queued_pool = pool("flex", 2, FLEX_START, [QUEUED_TAINT], gpu="8")
    assert "one-by-one" not in found([train, queued_pool])


def test_a_volume_whose_size_is_not_known_may_be_bound_or_not() -> None:
    stack = claiming_volumes(1)
    stack[2]["spec"]["capacity"] = {"storage": UNKNOWN}
    assert judge(stack).stack is OPEN


@pytest.mark.parametrize("names_it", [True, False])
def test_a_volume_that_names_no_claim_is_a_bucket_too(names_it: bool) -> None:
    """Kubernetes binds a claim to the free volume that it names, or to one of its class."""
    server, wanted, volume, nodes = bucket()
    of_gcs = storage_class("gcs", "kubernetes.io/no-provisioner")
    del volume["spec"]["claimRef"]
    if not names_it:
        del wanted["spec"]["volumeName"]
    judged = judge([server, wanted, volume, nodes, of_gcs]).workloads[0]
    assert judged.verdict is CANNOT
    assert {each.rule for each in judged.reasons} == {"bucket-sidecar"}
    annotated(server, **WITH_SIDECAR)
    assert "bucket-sidecar" not in found([server, wanted, volume, nodes, of_gcs])


def test_a_claim_that_may_get_a_bucket_is_undetermined() -> None:
    server, wanted, volume, nodes = bucket()
    del volume["spec"]["claimRef"], wanted["spec"]["volumeName"]
    disk: Any = copy.deepcopy(volume) | {"metadata": {"name": "disk"}}
    disk["spec"]["csi"] = {"driver": "d", "volumeHandle": "h"}
    for others in ([disk], [CLASS | {"metadata": {"name": "gcs"}}], []):
        judged = judge([server, wanted, volume, nodes, *others]).workloads[0]
        assert judged.verdict is OPEN
        assert any("may be a bucket" in each.message for each in judged.reasons)


@pytest.mark.parametrize(
    ("name", "expected"), [("team", OPEN), ("default", OPEN), ("kube-system", FITS)]
)
def test_what_a_namespace_that_is_not_declared_may_enforce(name: str, expected: Verdict) -> None:
    agent, plain = web(hostPID=True), web(hostPID=False)
    agent["metadata"]["namespace"] = plain["metadata"]["namespace"] = name
    judged = judge([agent, NODES]).workloads[0]
    assert judged.verdict is expected
    assert [each.message for each in judged.reasons] == [
        f"hostPID breaks the Pod Security level baseline; whether {name} enforces it is not known"
    ] * (expected is not FITS)
    strict = namespace("strict", **{"pod-security.kubernetes.io/enforce": "restricted"})
    assert judge([plain, NODES]).workloads[0].verdict is FITS
    assert judge([plain, NODES, strict]).workloads[0].verdict is expected
    assert judge([agent, NODES, namespace(name)]).stack is FITS


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({"operator": "In", "values": ["system-node-critical", "other"]}, FITS),
        ({"operator": "Exists"}, FITS),
        ({"operator": "In", "values": ["system-cluster-critical"]}, CANNOT),
        (None, CANNOT),
    ],
)
def test_critical_pods_need_a_quota_for_their_class_on_gke(
    scope: Manifest | None, expected: Verdict
) -> None:
    def verdict(*documents: Manifest) -> Verdict:
        return judge(documents).workloads[0].verdict

    agent, scopes = web(priorityClassName="system-node-critical"), Manifest()
    if scope:
        of_class = {"scopeName": "PriorityClass", **scope}
        scopes = {"scopeSelector": {"matchExpressions": [of_class]}}
    limit = quota(hard={"pods": "1G"}, **scopes)
    assert verdict(agent, ON_GKE, BASELINE, limit) is expected
    assert verdict(agent, NODES, BASELINE, limit) is FITS
    assert verdict(agent, ON_GKE, limit) is (FITS if expected is FITS else OPEN)
    # A cluster's objects without its quotas: GKE's own is among those.
    declared = BASELINE | {"metadata": BASELINE["metadata"] | {"uid": "1"}}
    assert verdict(agent, ON_GKE, declared) is OPEN
    of_gke = quota("gcp-critical-pods", {"pods": "1G"})
    of_gke["metadata"]["namespace"] = "kube-system"
    assert verdict(agent, ON_GKE, declared, of_gke) is CANNOT
    agent["metadata"]["namespace"] = "kube-system"
    assert verdict(agent, ON_GKE) is FITS


def test_claims_of_devices() -> None:
    assert "device-claim" in found(claiming(8, "NVIDIA-B200"))
    train, gpus, nodes = claiming(1)
    (refused,) = told([train, gpus, pool("cpu", 1, ON_GKE_LABELS)], "device-claim")
    assert (refused.severity, refused.path) == ("error", "spec.template.spec.resourceClaims")
    assert (
        refused.message
        == "it claims 1 NVIDIA-H100-80GB-HBM3 of one node, and no node that takes its pods has GPUs"
    )
    del nodes["metadata"]["labels"]["cloud.google.com/gke-nvidia-gpu-dra-driver"]
    (unsure,) = told([train, gpus, nodes], "device-claim")
    assert unsure.severity == "warning"
    assert "device-claim" not in found([train, gpus, node("n")])
    few = quota(hard={"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "7"})
    assert "quota" in found([*claiming(8), few])
    assert "quota" not in found([*claiming(7), few])


def test_an_inline_bucket_needs_the_sidecar_too() -> None:
    server = web(volumes=[{"name": "raw", "csi": {"driver": FUSE}}])
    (refused,) = told([server, NODES], "bucket-sidecar")
    assert (refused.severity, refused.path) == ("error", "spec.template.spec.volumes[0]")
    assert refused.message.startswith("the volume raw is a bucket")
    sidecar = {"name": "gke-gcsfuse-sidecar", "image": "i"}
    server["spec"]["template"]["spec"]["initContainers"] = [sidecar]
    assert "bucket-sidecar" not in found([server, NODES])


def queued_for_nodes(*checks: Manifest, **of_queue: Any) -> list[Manifest]:
    """A Job in a queue, that only nodes of a queued pool take."""
    train, nodes = for_queued_nodes()
    train["metadata"]["labels"] = IN_QUEUE
    flavor = {"name": "queued", "resources": [{"name": "cpu", "nominalQuota": "100"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    queue = kueue("ClusterQueue", "team", namespaceSelector={}, resourceGroups=groups, **of_queue)
    return [train, nodes, queue, LOCAL, kueue("ResourceFlavor", "queued"), *checks]


PROVISIONING = "kueue.x-k8s.io/provisioning-request"
REQUESTS = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "requests"}
CHECK = kueue("AdmissionCheck", "nodes", controllerName=PROVISIONING, parameters=REQUESTS)
CHECKED = {
    "admissionChecksStrategy": {"admissionChecks": [{"name": "nodes", "onFlavors": ["queued"]}]}
}


def config(name: str = "queued-provisioning.gke.io", **spec: Any) -> Manifest:
    return kueue("ProvisioningRequestConfig", "requests", provisioningClassName=name, **spec)


@pytest.mark.parametrize(
    ("checks", "of_queue", "expected", "words"),
    [
        ([CHECK, config()], CHECKED, FITS, ""),
        ([CHECK, config(managedResources=["cpu"])], CHECKED, FITS, ""),
        ([CHECK, config()], {"admissionChecks": ["nodes"]}, FITS, ""),
        ([CHECK, config()], {}, CANNOT, "nothing declared creates one"),
        ([CHECK, config("check-capacity.autoscaling.x-k8s.io")], CHECKED, CANNOT, "of the class check-capacity.autoscaling.x-k8s.io for all"),
        ([CHECK, config(managedResources=[GPU])], CHECKED, CANNOT, f"for ['{GPU}'] alone"),
        ([CHECK, config(UNKNOWN)], CHECKED, OPEN, "is not known"),  # pyright: ignore[reportArgumentType]
        ([CHECK], CHECKED, OPEN, "whether AdmissionCheck nodes creates one is not known"),
        ([config()], CHECKED, OPEN, "admits nothing without its AdmissionCheck nodes"),
        ([kueue("AdmissionCheck", "nodes", controllerName="mine")], CHECKED, OPEN, "nodes of ClusterQueue team is of the controller mine"),
    ],
)  # fmt: skip
def test_queued_nodes_follow_the_admission_check(
    checks: list[Manifest], of_queue: Manifest, expected: Verdict, words: str
) -> None:
    found = judge(queued_for_nodes(*checks, **of_queue)).workloads[0]
    assert found.verdict is expected
    rule = "queue" if "admits" in words or "of ClusterQueue" in words else "queued-nodes"
    assert [each.rule for each in found.reasons] == ([rule] if words else [])
    assert all(
        words in each.message and "anti-affinity" not in each.remedy for each in found.reasons
    )


def test_queued_nodes_come_for_what_each_job_requests() -> None:
    checks = CHECK, config(managedResources=["cpu"])
    train, nodes, queue, *rest = queued_for_nodes(*checks, **CHECKED)
    group = queue["spec"]["resourceGroups"][0]
    group["coveredResources"].append("memory")
    group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "1Ti"})
    jobs = [copy.deepcopy(train), copy.deepcopy(train)]
    for made, requests in zip(jobs, ({"cpu": "1"}, {"memory": "1Gi"}), strict=True):
        made["metadata"]["name"] = min(requests)
        made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": requests}
    verdicts = judge([*jobs, nodes, queue, *rest]).workloads
    assert [each.verdict for each in verdicts] == [FITS, CANNOT]


def test_a_queue_that_is_not_declared_may_ask_for_queued_nodes() -> None:
    train, nodes, *_ = queued_for_nodes()
    assert judge([train, nodes]).workloads[0].verdict is OPEN


def test_the_budget() -> None:
    cost = judge([on_machine("n2-standard-8")]).cost
    excess = over_budget(cost, Decimal(100))
    assert excess and excess.rule == "monthly-budget"
    assert over_budget(cost, Decimal(1000)) is None


def test_training_without_the_gpu_networks_reports_the_cost() -> None:
    (warning,) = told(training_together(2), "gpu-network")
    assert warning.severity == "warning"
    assert warning.message == (
        "its 2 pods of 8 GPUs talk to each other over one network interface of a3-highgpu-8g: at most 200 of 1000 Gbps"
    )
    assert "up to 5 times as long" in warning.remedy
    assert "in networking.gke.io/interfaces (gpu_network: auto" in warning.remedy
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
    assert "resources.deviceClassMappings" in reasons[0].remedy
    assert workload.verdict is (CANNOT if is_certain else OPEN)


GKES = "autoscaling.gke.io|web|queue"
GAUGE = {"gauge": {"name": "queue", "prometheusMetricName": "a:queue"}}
READ = [{"pod": {"containers": [{"metrics": [GAUGE]}]}}]
SINCE, PROFILE = "1.35.1-gke.1396000", "hpaProfile PERFORMANCE"
SERVING = {
    "releaseChannel": {"channel": "RAPID"},
    "minMasterVersion": SINCE,
    "podAutoscaling": {"hpaProfile": "PERFORMANCE"},
}


HALF = {"type": "Utilization", "averageUtilization": 50}


def measuring(name: str, target: Manifest, **more: str) -> Manifest:
    """A metric of an autoscaler: the use of a resource, by pods or by one container."""
    kind = "ContainerResource" if more else "Resource"
    field = "containerResource" if more else "resource"
    return {"type": kind, field: {"name": name, "target": target, **more}}


ONE_CPU = {"type": "AverageValue", "averageValue": "1"}


@pytest.mark.parametrize(
    ("metric", "requests", "why"),
    [
        (measuring("cpu", HALF), {}, "not all containers request cpu"),
        (measuring("cpu", HALF), {"cpu": "1"}, None),
        (measuring("cpu", ONE_CPU), {}, None),
        (measuring(GPU, HALF), {}, f"not of {GPU}"),
        (measuring("cpu", HALF, container="no"), {"cpu": "1"}, "the pods have no container no"),
    ],
)
def test_what_an_autoscaler_measures_is_there(
    metric: Manifest, requests: Manifest, why: str | None
) -> None:
    scaled, scaler, nodes = autoscaled(2)
    scaler["spec"]["metrics"] = [metric]
    main = {"name": "main", "image": "i", "resources": {"requests": requests}}
    scaled["spec"]["template"] = template(containers=[main])
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
    train = job_set("train", 1, 2)
    assert "peer-names" not in found([train, NODES])
    train["spec"]["network"] = {"enableDNSHostnames": False}
    assert "peer-names" not in found([train, NODES]), "pods without GPUs look for nobody"
    pod = train["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["resources"]["limits"] = {GPU: "1"}
    (warning,) = told([train, NODES], "peer-names")
    assert warning.severity == "warning" and warning.path == "spec.network.enableDNSHostnames"
    train["spec"]["network"] = {"enableDNSHostnames": True}
    assert "peer-names" not in found([train, NODES])


def test_the_ranks_of_a_job_use_one_interface_too() -> None:
    train, nodes = training_together(2)
    del train["metadata"]["annotations"]
    assert "gpu-network" not in found([train, nodes])
    train["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    assert "gpu-network" not in found([train, nodes])
    train["spec"]["template"]["spec"]["subdomain"] = "train"
    assert "gpu-network" in found([train, nodes])


@pytest.mark.parametrize(
    ("stack", "is_told"),
    [
        (scaled_by("cpu", kind="Resource"), False),
        (scaled_by("queue", adapter("metrics.k8s.io")), True),
        (scaled_by("queue", kind="External"), True),
        (scaled_by("queue", adapter("custom.metrics.k8s.io"), kind="External"), True),
        (scaled_by("queue", adapter("external.metrics.k8s.io"), kind="External"), False),
    ],
)
def test_a_metric_needs_the_adapter_of_its_kind(stack: list[Manifest], is_told: bool) -> None:
    assert ("autoscaling-metric" in found(stack)) is is_told


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
    findings = told(scaled_by(name, served), "autoscaling-metric")
    assert [each.severity for each in findings] == ["warning"] * is_told
    whole = "prometheus.googleapis.com|vllm:num_requests_waiting|gauge"
    assert all(whole in each.remedy for each in findings)


def test_of_several_autoscalers_of_a_workload_none_scales_it() -> None:
    scaled, scaler, nodes = autoscaled(2)
    second = autoscaler(scaled, "second", maxReplicas=2)
    assert not judge([scaled, scaler, nodes]).findings
    (finding,) = judge([scaled, scaler, second, nodes]).findings
    assert finding.message == "second and web all scale it, so that none does"


@pytest.mark.parametrize("name", ["queue", GKES])
def test_nobody_knows_what_an_unknown_cluster_serves(name: str) -> None:
    verdicts = judge(scaled_by(name))
    (warning,) = of_rule(verdicts, "autoscaling-metric")
    assert (warning.severity, warning.object) == ("warning", "HorizontalPodAutoscaler team/web")
    assert verdicts.stack == "fits"
    is_told = "is not known" in warning.message and "GKE 1.35.1-gke.1396000" in warning.remedy
    assert is_told == (name == GKES)


def reading(**fields: Any) -> Manifest:
    """An AutoscalingMetric with the gauge of the autoscaler."""
    given: Any = {"spec": {"metrics": READ}} | fields
    name = given.pop("name", "web")
    return namespaced("autoscaling.gke.io/v1beta1", "AutoscalingMetric", name, **given)


def serving(**settings: Any) -> Manifest:
    """The settings of a cluster that serves the metrics, with others in their place."""
    return SERVING | settings


@pytest.mark.parametrize(
    ("name", "cluster", "missing"),
    [
        ("queue", SERVING, "Declare a MetricsAdapter"),
        (GKES, {}, "Set releaseChannel RAPID and podAutoscaling.hpaProfile PERFORMANCE,"),
        (GKES, serving(releaseChannel={"channel": "REGULAR"}), "Set releaseChannel RAPID,"),
        (GKES, serving(podAutoscaling={"hpaProfile": "NONE"}), f"Set podAutoscaling.{PROFILE},"),
        (GKES, serving(minMasterVersion="1.35.1-gke.1395999"), f"Set minMasterVersion {SINCE},"),
        (GKES, serving(minMasterVersion="1.34"), f"Set minMasterVersion {SINCE},"),
        (GKES, SERVING, None),
        (GKES, serving(minMasterVersion="1.36"), None),
        (GKES, serving(minMasterVersion=None), None),
        (GKES, serving(minMasterVersion=UNKNOWN), None),
        (GKES, serving(releaseChannel=UNKNOWN, podAutoscaling=UNKNOWN), None),
        (
            GKES,
            serving(releaseChannel={"channel": UNKNOWN}, podAutoscaling={"hpaProfile": UNKNOWN}),
            None,
        ),
    ],
)
def test_a_cluster_serves_the_metrics_that_its_settings_allow(
    name: str, cluster: Manifest, missing: str | None
) -> None:
    verdicts = judge(scaled_by(name, reading()), gke=cluster)
    findings = of_rule(verdicts, "autoscaling-metric")
    assert [each.severity for each in findings] == ["error"] * (missing is not None)
    assert verdicts.stack == ("fits" if missing is None else "cannot-fit")
    assert missing is None or findings[0].remedy.startswith(missing)


@pytest.mark.parametrize(
    ("read", "is_served"),
    [
        pytest.param({"name": "other", "spec": {}}, False, id="another name"),
        pytest.param({"spec": {}}, False, id="another metric"),
        pytest.param(
            {"metadata": {"name": "web", "namespace": "other"}}, False, id="another namespace"
        ),
        pytest.param({"metadata": {"name": UNKNOWN, "namespace": "team"}}, True, id="unknown name"),
        pytest.param({"spec": UNKNOWN}, True, id="unknown metric"),
    ],
)
def test_gke_serves_what_an_autoscaling_metric_reads(read: Manifest, is_served: bool) -> None:
    findings = of_rule(judge(scaled_by(GKES, reading(**read)), gke=SERVING), "autoscaling-metric")
    assert [each.severity for each in findings] == ["error"] * (not is_served)
    missing = "Declare an AutoscalingMetric team/web with a gauge queue"
    assert all(each.remedy.startswith(missing) for each in findings)


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
    warnings = of_rule(judge_documents(reading_logs("", folder)), "reads-own-logs")
    assert [each.severity for each in warnings] == ["warning"] * is_told


@pytest.mark.parametrize(
    ("path", "is_told"), [("/var/log/pods/*/*.log", True), ("/var/log/dmesg", False)]
)
def test_an_agent_that_is_told_by_its_arguments_what_to_read(path: str, is_told: bool) -> None:
    volumes = [{"name": "host", "hostPath": {"path": "/var/log"}}]
    reads = container() | {"args": [f"--path={path}"]}
    stack = [agent(containers=[reads], volumes=volumes), NODES]
    assert ("reads-own-logs" in found(stack)) is is_told


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
    (judged,) = judge([train, nodes]).workloads
    assert judged.verdict is OPEN
    assert ["vpc1" in each.message for each in judged.reasons] == [True]
    nodes["status"]["allocatable"]["networking.gke.io.networks/vpc1.IP"] = "100"
    assert judge([train, nodes]).stack is FITS
    assert "gpu-network" not in found([train, nodes])


@pytest.mark.parametrize(
    "annotation", ["devices.gke.io/container.tcpx-daemon", "provreq.kueue.x-k8s.io/maxRunDuration"]
)
def test_annotations_that_decide_nothing_about_places(annotation: str) -> None:
    assert judge(training_together(1, interfaces={annotation: "1"})).stack is FITS


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
    (judged,) = judge([web(replicas, **mounted() | spec), claim(**FAST), CLASS, NODES]).workloads
    reported = (*judged.reasons, *judged.warnings)
    severities = [each.severity for each in reported if each.rule == "volume-access"]
    assert severities == ["error" if is_error else "warning"]
    assert judged.verdict is (CANNOT if is_error else FITS)


@pytest.mark.parametrize(
    ("replicas", "disk", "expected"),
    [(2, {}, CANNOT), (1, {}, FITS), (2, {"readOnly": True}, FITS)],
)
def test_several_pods_cannot_write_to_one_inline_disk(
    replicas: int, disk: Manifest, expected: Verdict
) -> None:
    source = {"pdName": "maps", **disk}
    server = web(replicas, volumes=[{"name": "maps", "gcePersistentDisk": source}])
    assert judge([server, NODES]).workloads[0].verdict is expected


def slice_of(node: str, *products: str) -> Manifest:
    devices: list[Manifest] = []
    for index, product in enumerate(products):
        attributes = {"type": {"string": "gpu"}, "productName": {"string": product}}
        devices.append({"name": f"gpu-{index}", "attributes": attributes})
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "devices": devices}
    spec |= {"pool": {"name": node, "generation": 1}}
    return cluster_wide("resource.k8s.io/v1", "ResourceSlice", node, spec=spec)


def test_the_devices_of_a_node_are_those_of_its_driver() -> None:
    train, gpus, _ = claiming(2)
    nodes = node("n", H100 | DRA | {"cloud.google.com/gke-nodepool": "p"})
    # How many GPUs there are is not known.
    assert judge([train, gpus, nodes]).stack is OPEN
    two = slice_of("n", *2 * ["NVIDIA H100 80GB HBM3"])
    assert "device-claim" not in found([train, gpus, nodes, two])
    (refused,) = told([train, gpus, nodes, slice_of("n", "NVIDIA L4")], "device-claim")
    assert refused.severity == "error" and "n has 1 NVIDIA-L4" in refused.message


def test_devices_of_other_drivers_are_no_gpus() -> None:
    train, _, nodes = claiming(64)
    others = claim_of_devices("gpus", {"deviceClassName": "mrdma.google.com", "count": 8})
    (judged,) = judge([train, others, nodes]).workloads
    assert judged.verdict is OPEN
    (reason,) = judged.reasons
    assert "it claims devices of mrdma.google.com" in reason.message


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
    *("bucket-identity", "bucket-sidecar", "competition", "critical-pods", "daemon-set-room"),
    *("device-claim", "disk-type", "invalid", "limit-range-ratio", "no-nodes", "pod-interfaces"),
    *("pod-security", "queue-claims", "queue-topology", "queued-nodes", "runtime-class"),
    *("volume-binding", "volume-class", "volume-zone"),
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


def test_the_pods_of_gke_count_if_they_are_shown_or_matter() -> None:
    agent = daemon_set("agent", using(memory="1Mi"))
    agent["metadata"]["namespace"] = "kube-system"
    assert "system-requests" not in found(on_a_gke_pool(4, agent))
    nowhere = [deployment("web", 1, using(cpu=4)), pool("p", 2)]
    assert "system-requests" not in found(nowhere)
    # Two pods of 4 cpu fill one of two nodes, and one pod of each node leaves room.
    assert "system-requests" not in found(on_a_gke_pool(4, pods=2))
    assert "system-requests" in found(on_a_gke_pool(4, pods=4))
