"""Servers that the proof refuses, on a real control plane: their containers end at start, with the cause as last words."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ml_foundations.rehearsal.report import contents

from tests.support.simulation import ONE_L4, Cloud, Object, clean
from tests.support.waiting import until

DEFAULT = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
QWEN, LLAMA = "--model=Qwen/Qwen3-8B", "--model=meta-llama/Llama-3.3-70B-Instruct"
TOO_MANY = "TP 8 needs 8 GPUs, and 1 is requested"
TOO_LARGE = "Llama-3.3-70B-Instruct in BF16 has 131.4 GiB of weights"


@pytest.fixture
def cloud(plain_gke: Cloud) -> Iterator[Cloud]:
    plain_gke.store.save_pool(replace(ONE_L4, min_nodes=2, initial_nodes=2))
    yield plain_gke
    for item in plain_gke.api.get(DEPLOYMENTS)["items"]:
        plain_gke.api.delete(f"{DEPLOYMENTS}/{item['metadata']['name']}")
    plain_gke.api.delete(f"{DEFAULT}/configmaps/settings")
    clean(plain_gke)


def server(args: str, image: str = "vllm/vllm-openai:v0.31.0", **more: Any) -> Object:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    return {"name": "llm", "image": image, "args": args.split(), "resources": resources, **more}


def create(cloud: Cloud, name: str, *containers: Object, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"containers": [*containers], **spec}}
    cloud.api.create(f"{DEFAULT}/pods", body)


def pods(cloud: Cloud) -> dict[str, Object]:
    return {pod["metadata"]["name"]: pod["status"] for pod in cloud.pods()}


def rows(cloud: Cloud) -> dict[str, tuple[str, str]]:
    reported = contents.collect(cloud.rehearsal).workloads
    return {row.name: (row.state, row.reason) for row in reported}


def test_a_server_that_is_refused_is_restarted_again_and_again(cloud: Cloud) -> None:
    metadata = {"labels": {"app": "chat"}}
    sidecar = {"name": "proxy", "image": "proxy"}
    template = {"metadata": metadata, "spec": {"containers": [server(f"{QWEN} -tp 8"), sidecar]}}
    spec = {"selector": {"matchLabels": {"app": "chat"}}, "template": template}
    cloud.api.create(DEPLOYMENTS, {"metadata": {"name": "chat"}, "spec": spec})
    create(cloud, "on-failure", server(f"{QWEN} -tp 8"), restartPolicy="OnFailure")

    def of_containers() -> list[Object]:
        return [pod["status"].get("containerStatuses", []) for pod in cloud.pods("app=chat")]

    def restarts() -> int:
        return sum(statuses[0]["restartCount"] for statuses in of_containers() if statuses)

    until(lambda: restarts() >= 1)
    (pod,) = cloud.pods("app=chat")
    llm, proxy = pod["status"]["containerStatuses"]
    waiting, end = llm["state"]["waiting"], llm["lastState"]["terminated"]
    assert waiting["reason"] == "CrashLoopBackOff"
    name = f"{pod['metadata']['name']}_default({pod['metadata']['uid']})"
    pause = ("10s", "20s", "40s", "1m20s", "2m40s", "5m0s")[llm["restartCount"] - 1]
    assert waiting["message"] == f"back-off {pause} restarting failed container=llm pod={name}"
    assert (end["exitCode"], end["reason"], end["message"]) == (1, "Error", TOO_MANY)
    assert (llm["ready"], proxy["ready"], pod["status"]["phase"]) == (False, True, "Running")
    until(lambda: restarts() >= 2, "the second pause is of 10 seconds")
    until(lambda: pods(cloud)["on-failure"]["phase"] == "Running")
    assert cloud.api.get(f"{DEPLOYMENTS}/chat")["status"].get("readyReplicas", 0) == 0
    state, reason = rows(cloud)["chat"]
    assert state == "Pending"
    assert reason == f"0/1 ready. container llm ended with an error: {TOO_MANY}"


def test_what_is_certain_for_the_node_ends_a_server(cloud: Cloud) -> None:
    cloud.api.create(
        f"{DEFAULT}/configmaps",
        {"metadata": {"name": "settings"}, "data": {"vllm.yaml": "tensor-parallel-size: 8"}},
    )
    mount = {"volumeMounts": [{"name": "settings", "mountPath": "/etc/llm"}]}
    volume = {"name": "settings", "configMap": {"name": "settings"}}
    configured = server(f"{QWEN} --config /etc/llm/vllm.yaml", **mount)
    create(cloud, "too-large", server(LLAMA), restartPolicy="Never")
    create(cloud, "configured", configured, restartPolicy="OnFailure", volumes=[volume])
    create(cloud, "fits", server(f"{QWEN} --max-model-len 4k"))
    create(cloud, "not-known", server("--model=/models/mine --no-such-flag"))
    until(lambda: all(status["phase"] != "Pending" for status in pods(cloud).values()))
    phases = {name: status["phase"] for name, status in pods(cloud).items()}
    running = dict.fromkeys(("configured", "fits", "not-known"), "Running")
    assert phases == {**running, "too-large": "Failed"}
    # Its first restart is a round later.
    until(lambda: rows(cloud)["configured"][0] == "CrashLoopBackOff")
    shown = rows(cloud)
    assert shown["too-large"][0] == "Failed"
    assert TOO_LARGE in shown["too-large"][1]
    assert shown["configured"][1] == f"container llm ended with an error: {TOO_MANY}"
    assert shown["fits"] == shown["not-known"] == ("Running", "")


def test_a_job_with_such_a_server_fails(cloud: Cloud) -> None:
    pod = {"containers": [server(f"{QWEN} -tp 8")], "restartPolicy": "Never"}
    spec = {"backoffLimit": 0, "template": {"spec": pod}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    cloud.api.create(jobs, {"metadata": {"name": "evaluation"}, "spec": spec})
    until(lambda: rows(cloud)["evaluation"][0] == "Failed")
    assert rows(cloud)["evaluation"][1].endswith(f"ended with an error: {TOO_MANY}")
    cloud.api.delete(f"{jobs}/evaluation", propagationPolicy="Background")
