"""The real controller of LeaderWorkerSets beside a real control plane, brought by the component."""

import copy
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from kubernetes import client
from ml_foundations.kinds.kind_files import described_kinds
from ml_foundations.kubernetes.labels import ZONE
from ml_foundations.planning.model import workloads
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.control_plane import controllers
from ml_foundations.rehearsal.report.contents import collect
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.h100_replica import H100_FLAVOR
from tests.support.project import Project
from tests.support.trials import sizes
from tests.support.waiting import until

NAME = "leaderworkerset.sigs.k8s.io/name"
KEY = "leaderworkerset.sigs.k8s.io/group-key"
WORKER, GROUP = (f"leaderworkerset.sigs.k8s.io/{key}-index" for key in ("worker", "group"))
CONTROLLER = (
    "from ml_foundations import LeaderWorkerSetController\n"
    "lws = LeaderWorkerSetController('lws', {}, here)\n"
)
POD = {
    "spec": {
        "containers": [{"name": "main", "image": "i"}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
}
GROUPS = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "ring", "namespace": "red"},
    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": POD}},
}


MEMBERS = {f"ring-{group}{worker}" for group in range(2) for worker in ("", "-1", "-2")}
"""The pods of the groups."""


def declared(manifest: dict[str, Any]) -> str:
    return f"""{CONTROLLER}manifest = {manifest!r}
k8s.apiextensions.CustomResource("groups", api_version=manifest["apiVersion"], kind=manifest["kind"],
    metadata=manifest["metadata"], spec=manifest["spec"], opts=options(depends_on=[lws]))"""


def pods(project: Project, name: str) -> dict[str, dict[str, Any]]:
    listed = project.kubectl("get", "pods", "-n", "red", "-l", f"{NAME}={name}")["items"]
    return {pod["metadata"]["name"]: pod for pod in listed}


def images(project: Project, name: str) -> dict[str, str]:
    found = pods(project, name).items()
    return {key: pod["spec"]["containers"][0]["image"] for key, pod in found}


def running(project: Project, name: str) -> set[str]:
    placed = pods(project, name).items()
    return {key for key, pod in placed if pod["status"].get("phase") == "Running"}


def test_each_group_gets_a_leader_and_its_workers(project: Project) -> None:
    """Its webhook tells each pod the leader's address; leader and workers of a group have its index."""
    project.up(declared(GROUPS))
    until(lambda: running(project, "ring") == MEMBERS)
    worker = pods(project, "ring")["ring-1-2"]
    env = {item["name"]: item["value"] for item in worker["spec"]["containers"][0]["env"]}
    assert env["LWS_LEADER_ADDRESS"] == "ring-1.ring.red"
    assert (env["LWS_GROUP_SIZE"], env["LWS_WORKER_INDEX"]) == ("3", "2")
    owner = worker["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("StatefulSet", "ring-1")


def test_its_webhooks_stop_no_pods_of_others_when_it_is_down(
    project: Project, tools: Tools
) -> None:
    """Of pods, they match those of LeaderWorkerSets alone: all other pods can be created, in any namespace."""
    project.up(CONTROLLER)
    [process] = controllers.processes(project.rehearsal)
    core = client.CoreV1Api(project.cluster.api)
    pod: Any = {"metadata": {"name": "probe"}, **POD}
    process.stop()
    try:
        for namespace in ("red", "default", "kube-system"):
            core.create_namespaced_pod(namespace, pod)
            core.delete_namespaced_pod("probe", namespace, grace_period_seconds=0)
        pod["metadata"] = {"name": "probe", "labels": {NAME: "ring"}}
        with pytest.raises(client.ApiException, match="failed calling webhook"):
            core.create_namespaced_pod("red", pod)
    finally:
        controllers.resume(project.rehearsal, tools)


SERVER = {
    **{"namespace": "red", "image": "vllm/vllm-openai:v0.31.0", "nodes": 2, "port": 8000},
    **{"gpus": 8, "cpu": "8", "memory": "64Gi"},
    "arguments": ["--model=m", "--tensor-parallel-size=8", "--pipeline-parallel-size=2"],
}


def served(**more: Any) -> str:
    return f"""{CONTROLLER}from ml_foundations import InferenceService
InferenceService("chat", {SERVER | more!r}, options(depends_on=[lws]))"""


def test_a_server_on_two_nodes_is_ready_behind_its_leader(project: Project) -> None:
    project.up(served())
    assert running(project, "chat") == {"chat-0", "chat-0-1"}
    leader, worker = (pods(project, "chat")[name] for name in ("chat-0", "chat-0-1"))
    assert leader["spec"]["nodeName"] != worker["spec"]["nodeName"]
    args = worker["spec"]["containers"][0]["args"]
    assert {"--node-rank=$(LWS_WORKER_INDEX)", "--headless"} <= set(args)
    env = {item["name"]: item.get("value") for item in worker["spec"]["containers"][0]["env"]}
    assert env["LWS_LEADER_ADDRESS"] == "chat-0.chat-0.red"
    headless = project.kubectl("get", "service", "chat-0", "-n", "red")["spec"]
    assert headless["clusterIP"] == "None"
    selector = project.kubectl("get", "service", "chat", "-n", "red")["spec"]["selector"]
    words = ",".join(f"{key}={value}" for key, value in selector.items())
    selected = project.kubectl("get", "pods", "-n", "red", "-l", words)["items"]
    assert [pod["metadata"]["name"] for pod in selected] == ["chat-0"]
    assert "updated" not in project.up(served())
    [row] = [row for row in collect(project.rehearsal).workloads if row.namespace == "red"]
    shown = (row.kind, row.name, row.state, row.reason)
    assert shown == ("LeaderWorkerSet", "chat", "Ready", "1/1")
    assert row.nodes == sorted(pod["spec"]["nodeName"] for pod in (leader, worker))


def test_a_server_is_updated_and_scaled_by_groups(project: Project) -> None:
    project.up(served())
    project.up(served(replicas=2))
    members = {"chat-0", "chat-0-1", "chat-1", "chat-1-1"}
    until(lambda: running(project, "chat") == members)
    project.up(served(replicas=2, image="vllm/vllm-openai:v0.31.1"))
    until(lambda: {image[-1] for image in images(project, "chat").values()} == {"1"})
    until(lambda: running(project, "chat") == members)


def test_a_topology_key_that_no_node_has_stops_a_group(project: Project) -> None:
    """The proof refuses it: test_a_topology_key_that_no_node_has_keeps_every_pod_away."""
    project.up(declared(exclusive("rack")))
    until(lambda: pods(project, "ring").keys() == {"ring-0", "ring-1"})
    time.sleep(3)
    assert pods(project, "ring").keys() == {"ring-0", "ring-1"}


def test_a_rollout_with_a_surge_stands_still_without_free_gpus(project: Project) -> None:
    """The proof warns of it: test_a_rollout_that_adds_a_group_needs_spare_nodes."""
    full: Any = copy.deepcopy(GROUPS)
    template: Any = copy.deepcopy(POD)
    gpus = {"nvidia.com/gpu": "8"}
    template["spec"]["containers"][0]["resources"] = {"requests": gpus, "limits": gpus}
    full["spec"]["leaderWorkerTemplate"] = {"size": 2, "workerTemplate": template}
    rollout = {"maxSurge": 1, "maxUnavailable": 0}
    strategy = {"type": "RollingUpdate", "rollingUpdateConfiguration": rollout}
    full["spec"]["rolloutStrategy"] = strategy
    project.up(declared(full))
    old = {"ring-0", "ring-0-1", "ring-1", "ring-1-1"}
    until(lambda: running(project, "ring") == old)
    template["spec"]["containers"][0]["image"] = "j"
    project.up(declared(full))
    until(lambda: "ring-2" in pods(project, "ring"))
    until(lambda: "Insufficient nvidia.com/gpu" in why_pending(pods(project, "ring")["ring-2"]))
    time.sleep(3)
    assert running(project, "ring") == old
    found = images(project, "ring")
    assert {found[name] for name in old} == {"i"}


def why_pending(pod: dict[str, Any]) -> str:
    conditions = pod["status"].get("conditions", ())
    return " ".join(each.get("message", "") for each in conditions)


DIVIDED = {"prefill": {"replicas": 2, "arguments": ["--model=m", "--tensor-parallel-size=8"]}}


def test_prefill_and_decode_run_apart_and_only_decode_gets_requests(project: Project) -> None:
    printed = project.up(served(**DIVIDED))
    assert "chat-prefill" in printed
    assert running(project, "chat") == {"chat-0", "chat-0-1"}
    words = "app.kubernetes.io/name=chat,llm-d.ai/role="
    prefill, decode = (
        project.kubectl("get", "pods", "-n", "red", "-l", f"{words}{role}")["items"]
        for role in ("prefill", "decode")
    )
    assert [pod["status"]["phase"] for pod in prefill] == ["Running"] * 2
    assert len({pod["spec"]["nodeName"] for pod in (*prefill, *decode)}) == 4
    leader = pods(project, "chat")["chat-0"]
    by_name = "kubernetes.io/service-name=chat"
    until(lambda: endpoints(project, by_name) == [(leader["status"]["podIP"], 8000)])
    # Each pod that answers at the port of the pool has the label of the pool, and no worker has it.
    serving = "app.kubernetes.io/name=chat,llm-d.ai/inference-serving=true"
    pool = project.kubectl("get", "pods", "-n", "red", "-l", serving)["items"]
    named = {pod["metadata"]["name"] for pod in prefill}
    assert {pod["metadata"]["name"] for pod in pool} == {"chat-0"} | named
    assert "updated" not in project.up(served(**DIVIDED))


def endpoints(project: Project, selector: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for each in project.kubectl("get", "endpointslices", "-n", "red", "-l", selector)["items"]:
        for endpoint in each["endpoints"] or ():
            found += [(endpoint["addresses"][0], port["port"]) for port in each["ports"] or ()]
    return found


def exclusive(key: str) -> dict[str, Any]:
    annotations = {"leaderworkerset.sigs.k8s.io/exclusive-topology": key}
    return GROUPS | {"metadata": GROUPS["metadata"] | {"annotations": annotations}}


def test_an_exclusive_group_has_a_domain_alone(project: Project) -> None:
    document = exclusive("kubernetes.io/hostname")
    project.up(declared(document))
    until(lambda: running(project, "ring") == MEMBERS)
    hosts = {name: pod["spec"]["nodeName"] for name, pod in pods(project, "ring").items()}
    by_group = [{host for name, host in hosts.items() if name[5] == group} for group in "01"]
    assert [len(group) for group in by_group] == [1, 1]
    assert by_group[0] != by_group[1]
    keys = {pod["metadata"]["labels"][KEY] for pod in pods(project, "ring").values()}
    found = workloads.workload(document, {}, lambda _: "0")
    assert {group.labels[KEY] for group in found.pods} == keys


def random_groups(random: Random, index: int) -> dict[str, Any]:
    """A LeaderWorkerSet with any of the fields that decide about its pods."""

    def template() -> dict[str, Any]:
        requests = {"cpu": f"{random.randint(1, 9)}m", "memory": f"{random.randint(1, 9)}Mi"}
        pod = {"metadata": {"labels": {"own": random.choice("abc")}}, **copy.deepcopy(POD)}
        pod["spec"]["containers"][0]["resources"] = {"requests": requests}
        return pod

    parts: dict[str, Any] = {"workerTemplate": template()}
    if random.random() < 0.5:
        parts["leaderTemplate"] = template()
    if random.random() < 0.8:
        parts["size"] = random.randint(1, 3)
    if random.random() < 0.3:
        parts["subGroupPolicy"] = {"subGroupSize": 1}
    spec: dict[str, Any] = {"leaderWorkerTemplate": parts}
    if random.random() < 0.8:
        spec["replicas"] = random.randint(0, 3)
    if random.random() < 0.5:
        policy = random.choice(["Shared", "UniquePerReplica"])
        spec["networkConfig"] = {"subdomainPolicy": policy}
    metadata: dict[str, Any] = {"name": f"set-{index}", "namespace": "red"}
    return GROUPS | {"metadata": metadata, "spec": spec}


def planned(document: dict[str, Any]) -> Counter[Any]:
    """What planning thinks of the pods: requests and labels; of an exclusive replica, with its key."""
    found = workloads.workload(document, {}, lambda _: "0")
    pods = Counter[Any]()
    for group in found.pods:
        requests = group.spec["containers"][0]["resources"]["requests"]
        pods[_shown(requests, group.labels)] += group.count
    return +pods


def made(document: dict[str, Any], everything: list[dict[str, Any]]) -> Counter[Any]:
    """What the controller has made, with the labels that planning knows."""
    found = workloads.workload(document, {}, lambda _: "0")
    pods = Counter[Any]()
    for pod in everything:
        labels = pod["metadata"]["labels"]
        if labels[NAME] != document["metadata"]["name"]:
            continue
        number = 0 if labels[WORKER] == "0" else -1  # sets of leaders come first
        keys = found.pods[number].labels.keys()
        own = {key: value for key, value in labels.items() if key in keys}
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        pods[_shown(requests, own)] += 1
        [owner] = pod["metadata"]["ownerReferences"]
        name = document["metadata"]["name"]
        of_group = name if number == 0 else f"{name}-{labels[GROUP]}"
        assert (owner["kind"], owner["name"]) == ("StatefulSet", of_group)
        # The API server copies the zone from the node.
        unknown = labels.keys() - keys - workloads.differing_labels(found) - {ZONE}
        assert not unknown, f"planning does not know the labels {unknown}"
    return pods


def _shown(requests: dict[str, Any], labels: Mapping[str, Any]) -> str:
    return json.dumps([requests, dict(labels)], sort_keys=True)


@pytest.mark.parametrize("count", sizes(12, 200))
def test_the_controller_makes_what_planning_thinks(project: Project, count: int) -> None:
    """Pods, their requests, labels and owners, and the StatefulSets and Services that quotas count."""
    project.up(CONTROLLER)
    random, api = Random(count), Api(Access(project.cluster.kubeconfig))
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/red/leaderworkersets"
    described = described_kinds()["LeaderWorkerSet"]
    for first in range(0, count, 20):
        documents = [random_groups(random, index) for index in range(first, min(first + 20, count))]
        try:
            for document in documents:
                api.create(path, document)
            for document in documents:
                until(
                    lambda item=document: made(item, list(pods_in_red(project))) == planned(item),
                    f"{json.dumps(document)}: planning thinks {planned(document)}",
                )
                name = document["metadata"]["name"]
                replicas = described.replicas_of(document)
                wanted = Counter(described.objects_created(document, replicas))
                counts = (wanted["count/statefulsets.apps"], wanted["services"])
                until(
                    lambda name=name, counts=counts: owned(project, name) == counts,
                    f"{json.dumps(document)}: {wanted}",
                )
        finally:
            for document in documents:
                api.delete(f"{path}/{document['metadata']['name']}")
        until(lambda: not list(pods_in_red(project)))


def pods_in_red(project: Project) -> Iterator[dict[str, Any]]:
    for pod in project.kubectl("get", "pods", "-n", "red", "-l", NAME)["items"]:
        if not pod["metadata"].get("deletionTimestamp"):
            yield pod


def owned(project: Project, name: str) -> tuple[int, int]:
    """The number of StatefulSets and Services of a LeaderWorkerSet."""
    sets = project.kubectl("get", "statefulsets", "-n", "red", "-l", f"{NAME}={name}")["items"]
    services = project.kubectl("get", "services", "-n", "red")["items"]
    selectors = [service["spec"].get("selector", {}) for service in services]
    return len(sets), sum(selector.get(NAME) == name for selector in selectors)


QUEUE = {
    "flavors": [H100_FLAVOR],
    "teams": [{"namespace": "red", "cpu": "99", "memory": "8Ti", "gpus": {"h100": 32}}],
    "kinds": ["LeaderWorkerSet"],
    "topology": ["block", "hostname"],
}
WAITING = {"queue": "training", "topology": "required:block", "replicas": 2}


def queued(body: str) -> str:
    made = f"queue = TrainingQueue('ml', {QUEUE!r}, options(depends_on=[lws]))"
    own = body.removeprefix(CONTROLLER).replace("[lws]", "[lws, queue]")
    return f"{CONTROLLER}from ml_foundations import TrainingQueue\n{made}\n{own}"


def test_a_group_in_a_queue_runs_in_one_block(project: Project) -> None:
    """Kueue queues each group, and places its leader and its workers in the required domain."""
    project.up(queued(served(**WAITING)))
    members = {"chat-0", "chat-0-1", "chat-1", "chat-1-1"}
    assert running(project, "chat") == members
    hosts = {name: pod["spec"]["nodeName"] for name, pod in pods(project, "chat").items()}
    for group in ("chat-0", "chat-1"):
        blocks = {int(host[-1]) % 2 for name, host in hosts.items() if name.startswith(group)}
        assert len(blocks) == 1, hosts
    # Kueue refuses other templates, so that a change replaces the object.
    image = {"image": "vllm/vllm-openai:v0.31.1"}
    assert "1 replaced" in project.up(queued(served(**WAITING, **image)))


def test_kueue_refuses_to_group_pods_of_one_template(project: Project) -> None:
    """Leader and workers share a domain by a group of two sets, and one template makes one set."""
    project.up(queued(CONTROLLER))
    grouped: Any = copy.deepcopy(GROUPS)
    grouped["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    template = grouped["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    template["metadata"] = {"annotations": GROUPED}
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/red/leaderworkersets"
    api = Api(Access(project.cluster.kubeconfig))
    with pytest.raises(ApiError, match="can only define groups of exactly 2 pod sets"):
        api.create(path, grouped)
    grouped["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = copy.deepcopy(template)
    api.create(path, grouped)
    api.delete(f"{path}/ring")
    until(lambda: not list(pods_in_red(project)))


GROUPED = {
    "kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gce-topology-block",
    "kueue.x-k8s.io/podset-group-name": "ring",
}
