"""The files of models against the disks, volumes and limits to which servers download them."""

from dataclasses import replace
from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.model.nodes import NodeClass, node_class
from ml_foundations.planning.rules import gpu_programs
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import Manifest, container, deployment, namespaced, pool, template

L4 = pool("l4", 9, {"cloud.google.com/gke-accelerator": "nvidia-l4"}, gpu=8)
# 15.3 GiB of files.
QWEN = "Qwen/Qwen3-8B"
CACHE = "/root/.cache/huggingface"


def findings(
    volume: Manifest | None = None,
    *others: Manifest,
    mount: str = CACHE,
    limits: Any = None,
    nodes: Manifest = L4,
    gpus: int = 1,
    **fields: Any,
) -> list[tuple[str, str]]:
    """Return the severities and messages of the findings on a server's download."""
    main = {**container(gpu=1), "image": "vllm/vllm-openai:v0.31.0", "args": [f"--model={QWEN}"]}
    main |= {key: value for key, value in fields.items() if key != "pod"}
    main["resources"] = {"limits": {"nvidia.com/gpu": gpus, **(limits or {})}}
    spec = {**fields.get("pod", {})}
    if volume is not None:
        main["volumeMounts"] = [{"name": "cache", "mountPath": mount}]
        spec["volumes"] = [{"name": "cache", **volume}]
    pods = template(containers=[main], **spec)
    verdicts = judge_documents([deployment("llm", 1, pods), nodes, *others])
    found = [item for item in verdicts.findings if item.rule == "model-storage"]
    return [(str(item.severity), item.message) for item in found]


def severities(*args: Any, **more: Any) -> list[str]:
    return [severity for severity, _ in findings(*args, **more)]


def test_the_message_names_both_sizes() -> None:
    assert findings({"emptyDir": {"sizeLimit": "10Gi"}}) == [
        ("error", "the files of Qwen3-8B have 15.3 GiB, and the volume cache has 10.0 GiB")
    ]


def claim(storage: Any) -> Manifest:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return namespaced("v1", "PersistentVolumeClaim", "models", spec=spec)


CLAIMED = {"persistentVolumeClaim": {"claimName": "models"}}
DISK, MEMORY = "ephemeral-storage", {"emptyDir": {"medium": "Memory"}}


@pytest.mark.parametrize(
    ("volume", "more", "expected"),
    [
        (None, {}, []),
        (None, {"limits": {DISK: "10Gi"}}, ["error"]),
        (None, {"limits": {DISK: "20Gi"}}, []),
        (None, {"limits": {DISK: UNKNOWN}}, []),
        ({"emptyDir": {}}, {"limits": {DISK: "10Gi"}}, ["error"]),
        ({"emptyDir": {"sizeLimit": "20Gi"}}, {}, []),
        ({"emptyDir": {"sizeLimit": "10Gi"}}, {"mount": "/data"}, []),
        ({"emptyDir": {"sizeLimit": "10Gi"}}, {"mount": "/root"}, ["error"]),
        (MEMORY, {"limits": {"memory": "12Gi"}}, ["error"]),
        (MEMORY, {"limits": {"memory": "32Gi", DISK: "10Gi"}}, []),
        ({"hostPath": {"path": "/models"}}, {"limits": {DISK: "10Gi"}}, []),
        (CLAIMED, {"limits": {DISK: "10Gi"}}, []),
    ],
)
def test_what_holds_the_files(volume: Any, more: dict[str, Any], expected: list[str]) -> None:
    assert severities(volume, **more) == expected


def test_a_claim_may_get_a_larger_volume() -> None:
    assert severities(CLAIMED, claim("10Gi")) == ["warning"]
    assert severities(CLAIMED, claim("20Gi")) == []
    made = {"ephemeral": {"volumeClaimTemplate": {"spec": claim("10Gi")["spec"]}}}
    assert severities(made) == ["warning"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"env": [{"name": "HF_HOME", "value": "/data"}]}, ["error"]),
        ({"env": [{"name": "HF_HUB_CACHE", "value": "/elsewhere"}]}, []),
        ({"env": [{"name": "HF_HOME", "valueFrom": {"secretKeyRef": {}}}]}, []),
        ({"envFrom": [{"configMapRef": {"name": "more"}}]}, []),
        (
            {
                "env": [
                    {"name": "HF_HOME", "value": "/data"},
                    {"name": "HF_HUB_OFFLINE", "value": "1"},
                ]
            },
            [],
        ),
        (
            {
                "env": [
                    {"name": "HF_HOME", "value": "/data"},
                    {"name": "VLLM_USE_MODELSCOPE", "value": "true"},
                ]
            },
            [],
        ),
        ({"args": [f"--model={QWEN}", "--download-dir=/data/models"]}, ["error"]),
        ({"args": [f"--model={QWEN}", "--download-dir", "/else"]}, []),
        ({"args": ["--model=/data/mine"]}, []),
        ({}, []),
    ],
)
def test_where_the_files_are(fields: dict[str, Any], expected: list[str]) -> None:
    assert severities({"emptyDir": {"sizeLimit": "10Gi"}}, mount="/data", **fields) == expected


@pytest.mark.parametrize(
    ("disk", "ssd", "expected"), [(10, 0, ["error"]), (20, 0, []), (10, 375, [])]
)
def test_the_boot_disk_holds_the_files(
    disk: int, ssd: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sized(manifest: Manifest) -> NodeClass:
        return replace(node_class(manifest), disk_gib=disk, local_ssd_gib=ssd)

    monkeypatch.setattr(gpu_programs, "node_class", sized)
    assert severities() == expected
    assert severities({"hostPath": {"path": "/models"}}) == []


def test_the_largest_boot_disk_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def sized(manifest: Manifest) -> NodeClass:
        node = node_class(manifest)
        return replace(node, disk_gib=20 if node.name == "large" else 10)

    monkeypatch.setattr(gpu_programs, "node_class", sized)
    large = pool("large", 9, {"cloud.google.com/gke-accelerator": "nvidia-l4"}, gpu=8)
    assert severities() == ["error"]
    assert severities(None, large) == []


def test_the_home_of_another_user_is_not_known() -> None:
    pod = {"securityContext": {"runAsUser": 1000}}
    assert severities(None, limits={DISK: "10Gi"}, pod=pod) == []


def test_an_image_of_another_name_may_have_the_model() -> None:
    command = ["vllm", "serve"]
    assert severities(None, limits={DISK: "10Gi"}, image="mine:1", command=command) == []


SHM = {"emptyDir": {"medium": "Memory"}}


@pytest.mark.parametrize(
    ("args", "mount", "fields", "expected"),
    [
        ("-tp=2", None, {}, ["warning"]),
        ("-pp=2", None, {}, ["warning"]),
        ("", None, {}, []),
        ("-tp=2", "/dev/shm", {}, []),
        ("-tp=2", "/dev", {}, []),
        ("-tp=2", "/elsewhere", {}, ["warning"]),
        ("-tp=2", UNKNOWN, {}, []),
        ("-tp=2", None, {"pod": {"hostIPC": True}}, []),
        ("-tp=2 --distributed-executor-backend=mp", None, {}, ["warning"]),
        ("-tp=2 --distributed-executor-backend=ray", None, {}, []),
        ("-tp=2 --nnodes=2", None, {}, []),
        ("-tp=2 -dp=2 --nnodes=2", None, {}, ["warning"]),
        ("-dp=2", None, {}, []),
        ("-tp=$(SIZE)", None, {}, []),
    ],
)
def test_several_processes_have_shared_memory(
    args: str, mount: Any, fields: dict[str, Any], expected: list[str]
) -> None:
    given = {"args": [f"--model={QWEN}", *args.split()], **fields}
    volume = SHM if mount else None
    assert severities(volume, mount=mount or CACHE, gpus=2, **given) == expected


def test_the_message_names_the_processes_and_the_size() -> None:
    for sizes in (("-tp=2",), ("-tp=2", "-dp=2", "--nnodes=2"), ("-tp=4", "--nnodes=2")):
        (finding,) = findings(args=[f"--model={QWEN}", *sizes], gpus=2)
        assert finding[1] == (
            "its 2 processes exchange data in /dev/shm, which has 64 MiB without a volume"
        )


def test_the_innermost_volume_has_the_files() -> None:
    mounts = [{"name": "inner", "mountPath": CACHE}, {"name": "outer", "mountPath": "/root"}]
    for inner, expected in (("10Gi", ["error"]), ("20Gi", [])):
        volumes = [
            {"name": "inner", "emptyDir": {"sizeLimit": inner}},
            {"name": "outer", "emptyDir": {"sizeLimit": "10Gi" if not expected else "20Gi"}},
        ]
        assert severities(volumeMounts=mounts, pod={"volumes": volumes}) == expected


def test_the_limits_of_all_containers_hold_a_volume() -> None:
    limits = {"limits": {"nvidia.com/gpu": 1, DISK: "10Gi"}}
    main = {
        **container(gpu=1),
        "image": "vllm/vllm-openai:v0.31.0",
        "args": [f"--model={QWEN}"],
        "resources": limits,
        "volumeMounts": [{"name": "cache", "mountPath": CACHE}],
    }
    side = {"name": "side", "image": "side", "resources": {"limits": {DISK: "10Gi"}}}
    volumes = [{"name": "cache", "emptyDir": {}}]
    for containers, expected in (([main], 1), ([main, side], 0)):
        pods = template(containers=containers, volumes=volumes)
        findings = judge_documents([deployment("llm", 1, pods), L4]).findings
        assert len([item for item in findings if item.rule == "model-storage"]) == expected


@pytest.mark.parametrize(("volume", "resource"), [({"emptyDir": {}}, DISK), (MEMORY, "memory")])
@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ([("100Gi", "")], []),
        ([("4Gi", "")], ["error"]),
        ([("4Gi", "Always"), ("4Gi", "Always")], []),
        ([("4Gi", "Always"), ("9Gi", "")], ["error"]),
        ([("9Gi", "Always"), ("9Gi", "")], []),
        ([(UNKNOWN, "")], []),
        (UNKNOWN, []),
        ([UNKNOWN], []),
    ],
)
def test_an_init_container_may_have_the_most_of_a_volume(
    volume: Any, resource: str, init: Any, expected: list[str]
) -> None:
    """A pod may use as much as its containers and sidecars, or as its largest init container."""

    def made(limit: Any, policy: str) -> Manifest:
        always = {"restartPolicy": policy} if policy else {}
        return {"name": "i", "image": "i", "resources": {"limits": {resource: limit}}, **always}

    if isinstance(init, list):
        init = [item if item is UNKNOWN else made(*item) for item in init]
        for index, item in enumerate(item for item in init if item is not UNKNOWN):
            item["name"] = f"i{index}"
    pod = {"initContainers": init}
    assert severities(volume, limits={resource: "10Gi"}, pod=pod) == expected


def test_an_init_container_without_limits() -> None:
    """The kubelet then limits the disk of the pod, and not its memory."""
    pod = {"initContainers": [{"name": "i", "image": "i"}]}
    assert severities({"emptyDir": {}}, limits={DISK: "10Gi"}, pod=pod) == ["error"]
    assert severities(MEMORY, limits={"memory": "10Gi"}, pod=pod) == []


@pytest.mark.parametrize("mounts", [UNKNOWN, [UNKNOWN], [{"name": "cache", "mountPath": UNKNOWN}]])
def test_a_mount_that_is_not_known_may_hold_the_files(mounts: Any) -> None:
    volumes = [{"name": "cache", "emptyDir": {}}]
    fields = {"volumeMounts": mounts, "pod": {"volumes": volumes}}
    assert severities(limits={DISK: "10Gi"}, **fields) == []


@pytest.mark.parametrize("volume", [{"emptyDir": UNKNOWN}, {"emptyDir": {"medium": UNKNOWN}}])
def test_a_medium_that_is_not_known_may_be_memory(volume: Any) -> None:
    assert severities(volume, limits={DISK: "10Gi"}) == []


def test_the_claim_of_a_stateful_set_has_the_files() -> None:
    main = {
        **container(gpu=1),
        "image": "vllm/vllm-openai:v0.31.0",
        "args": [f"--model={QWEN}"],
        "volumeMounts": [{"name": "models", "mountPath": CACHE}],
    }
    pods = template(containers=[main])
    for storage, expected in (("10Gi", 1), ("20Gi", 0)):
        made = {"metadata": {"name": "models"}, "spec": claim(storage)["spec"]}
        labels = pods["metadata"]["labels"]
        spec = {
            "replicas": 1,
            "serviceName": "llm",
            "selector": {"matchLabels": labels},
            "template": pods,
            "volumeClaimTemplates": [made],
        }
        servers = namespaced("apps/v1", "StatefulSet", "llm", spec=spec)
        findings = judge_documents([servers, L4]).findings
        assert len([item for item in findings if item.rule == "model-storage"]) == expected


@pytest.mark.parametrize("option", ["-tp=2", "-pp=2", "-q=fp8"])
def test_all_files_are_downloaded(option: str) -> None:
    args = [f"--model={QWEN}", option]
    assert "error" in severities(None, limits={DISK: "10Gi"}, gpus=2, args=args)
