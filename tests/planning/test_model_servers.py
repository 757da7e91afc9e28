"""Programs that cannot use their GPUs as their arguments say, in every kind of workload."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import (
    Manifest,
    container,
    deployment,
    job,
    namespaced,
    node,
    pool,
    template,
    webhook,
)

ACCELERATOR = "cloud.google.com/gke-accelerator"
L4 = pool("l4", 9, {ACCELERATOR: "nvidia-l4"}, gpu=8)
H100 = pool("h100", 9, {ACCELERATOR: "nvidia-h100-80gb"}, gpu=8)
VLLM = "vllm/vllm-openai:v0.31.0"
LLAMA = "--model=meta-llama/Llama-3.3-70B-Instruct"
QWEN = "--model=Qwen/Qwen3-8B"
RULES = ("server-arguments", "model-memory", "model-capacity")


def program(args: str = "", gpus: int = 1, image: str = VLLM, **fields: Any) -> Manifest:
    return {**container(gpu=gpus), "image": image, "args": args.split(), **fields}


def server(args: str, gpus: int = 1, replicas: int = 1, **spec: Any) -> Manifest:
    return deployment("llm", replicas, template(containers=[program(args, gpus)], **spec))


def trainer(command: str, gpus: int = 8) -> Manifest:
    return template(containers=[program("", gpus, "pytorch", command=command.split())])


def of_programs(verdicts: Verdicts) -> list[tuple[str, str]]:
    """Return the rules and severities of the findings on programs."""
    return [(item.rule, str(item.severity)) for item in verdicts.findings if item.rule in RULES]


def judged(*objects: Manifest) -> Verdicts:
    return judge_documents([*objects])


ARGUMENTS, MEMORY = ("server-arguments", "error"), ("model-memory", "error")
WARNED, CAPACITY = ("server-arguments", "warning"), ("model-capacity", "info")
MAY_NOT_FIT = ("model-memory", "warning")


@pytest.mark.parametrize(
    ("args", "gpus", "nodes", "expected"),
    [
        pytest.param(f"{QWEN} -tp 8", 1, [H100], [ARGUMENTS], id="TP 8 on one GPU"),
        pytest.param(f"{QWEN} -tp 4", 2, [H100], [ARGUMENTS], id="TP 4 on two GPUs"),
        pytest.param(f"{QWEN} -tp 3", 3, [H100], [ARGUMENTS], id="heads that TP does not divide"),
        pytest.param(f"{QWEN} -tp 2 -dp 2", 2, [H100], [ARGUMENTS], id="replicas without GPUs"),
        pytest.param(QWEN, 2, [H100], [WARNED, CAPACITY], id="an idle GPU"),
        pytest.param(f"{LLAMA} -tp 2", 2, [L4], [MEMORY], id="weights beyond memory"),
        pytest.param(f"{LLAMA} -tp 2", 2, [H100], [MEMORY], id="a request beyond memory"),
        pytest.param(f"{LLAMA} -tp 4", 4, [H100], [CAPACITY], id="fits"),
        pytest.param(f"{LLAMA} -tp 4", 4, [H100, L4], [CAPACITY, MAY_NOT_FIT], id="fits one pool"),
        pytest.param(f"{QWEN} --max-model-len 36k", 1, [L4], [MAY_NOT_FIT, CAPACITY], id="near"),
        pytest.param("--model=/models/mine", 1, [L4], [CAPACITY], id="a model that is not known"),
        pytest.param(f"{QWEN} --new-flag", 1, [L4], [CAPACITY], id="an argument that is not known"),
        pytest.param(f"{LLAMA} -tp 2", 2, [], [], id="a GPU that is not known"),
    ],
)
def test_servers(
    args: str, gpus: int, nodes: list[Manifest], expected: list[tuple[str, str]]
) -> None:
    verdicts = judged(server(args, gpus), *nodes)
    assert of_programs(verdicts) == expected
    if nodes:
        is_refused = any(severity == "error" for _, severity in expected)
        assert verdicts.stack is (Verdict.CANNOT_FIT if is_refused else Verdict.FITS)


@pytest.mark.parametrize("tag", ["v0.6.6", "v0.34.0"])
@pytest.mark.parametrize(
    ("args", "gpus", "expected"),
    [
        (f"{QWEN} --enable-chunked-prefill=False", 1, [WARNED]),
        (f"{QWEN} --gpu-memory-utilization=1.0", 1, [WARNED]),
        (f"{QWEN} --max-num-batched-tokens=64 --max-num-seqs=128", 1, [WARNED]),
        (f"{LLAMA} -tp 2 --max-model-len=128k", 2, [MAY_NOT_FIT]),
        (f"{QWEN} -tp 8", 1, [ARGUMENTS]),
        (f"{LLAMA} -tp 1", 1, [MEMORY]),
    ],
)
def test_a_release_that_was_not_read_may_check_otherwise(
    tag: str, args: str, gpus: int, expected: list[tuple[str, str]]
) -> None:
    pods = template(containers=[program(args, gpus, f"vllm/vllm-openai:{tag}")])
    assert of_programs(judged(deployment("llm", 1, pods), H100)) == expected


def test_the_messages_name_what_to_change() -> None:
    verdicts = judged(server(f"{LLAMA} --tensor-parallel-size 2", 2), L4)
    (finding,) = [item for item in verdicts.findings if item.rule in RULES]
    assert finding.object == "Deployment team/llm"
    assert finding.path == "spec.template.spec.containers[0].args[2]"
    assert finding.message == (
        "in pool l4, Llama-3.3-70B-Instruct in BF16 has 131.4 GiB of weights: 65.7 GiB on each of 2 "
        "L4s, which have 22.2 GiB"
    )
    assert finding.remedy.startswith("Use --tensor-parallel-size=8 --quantization=fp8 on g2-")


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        (["nvidia-h100-80gb"], []),
        (["nvidia-a100-80gb"], [ARGUMENTS]),
        (["nvidia-a100-80gb", "nvidia-h100-80gb"], []),
        ([], [WARNED]),
    ],
)
def test_the_gpus_decide_about_blocks_of_experts(pools: list[str], expected: Any) -> None:
    nodes = [pool(gpu, 9, {ACCELERATOR: gpu}, gpu=8) for gpu in pools]
    verdicts = judged(server("--model=Qwen/Qwen3-235B-A22B-FP8 -tp 8", 8), *nodes)
    assert [item for item in of_programs(verdicts) if item[0] == "server-arguments"] == expected


def test_more_sequences_than_a_batch_has() -> None:
    args = f"{QWEN} --max-num-seqs 4096 --max-model-len=8k"
    (finding,) = [item for item in judged(server(args), L4).findings if item.rule in RULES]
    assert finding.message.endswith(
        "--max-num-seqs is 4,096, and on L4 a batch has 2,048 tokens by default"
    )
    assert finding.remedy == "Lower --max-num-seqs, or set --max-num-batched-tokens."
    faster = judged(server(f"{args} --performance-mode throughput"), L4)
    assert MEMORY not in of_programs(faster)


@pytest.mark.parametrize(
    ("gpu", "dtype", "remedy"),
    [
        (
            "nvidia-tesla-t4",
            "half",
            r"Set --dtype to float32, or use --tensor-parallel-size=1 --dtype=bfloat16 on g2-.*",
        ),
        ("nvidia-tesla-t4", "bfloat16", r"Set --dtype to float32, or use .*"),
        ("nvidia-l4", "half", r"Set --dtype to bfloat16, or use .* --dtype=bfloat16 on g2-.*"),
    ],
)
def test_a_type_that_the_gpu_and_the_model_have(gpu: str, dtype: str, remedy: str) -> None:
    llm = server(f"--model=google/gemma-3-4b-it --max-model-len=1k --dtype {dtype}")
    findings = judged(llm, pool("gpus", 1, {ACCELERATOR: gpu}, gpu=1)).findings
    (finding,) = [item for item in findings if item.rule == "model-memory"]
    assert re.fullmatch(remedy, finding.remedy)


def test_a_model_that_is_misspelled() -> None:
    llm = server("--model=/models/mine")
    llm["spec"]["template"]["metadata"]["annotations"] = {"ml-foundations/model": "Qwen/Qwen3-9B"}
    (finding,) = [item for item in judged(llm, L4).findings if item.rule in RULES]
    assert finding.message == "Qwen/Qwen3-9B is neither in the catalog nor a folder"
    assert finding.remedy.startswith("Did you mean Qwen/Qwen3.5-9B")


def test_a_model_that_is_not_known_hides_no_other_fault() -> None:
    name = "meta-llama/Llama-3.1-405B-Instruct-FP8"
    llm = server(f"--model={name} -tp 8")
    llm["spec"]["template"]["metadata"]["annotations"] = {"ml-foundations/model": name}
    findings = [item for item in judged(llm, L4).findings if item.rule in RULES]
    assert of_programs(judged(llm, L4)) == [ARGUMENTS, MAY_NOT_FIT]
    # The model in 16 bits has more weights.
    assert findings[1].remedy == "Set ml-foundations/model to the folder of its config.json."


@pytest.mark.parametrize(
    ("nodes", "place"),
    [
        ([L4, {**L4, "metadata": {**L4["metadata"], "name": "b"}}], "in pools l4 and b, "),
        ([node("gke-1", {ACCELERATOR: "nvidia-l4"}, gpu=8)], "on gke-1, "),
    ],
)
def test_where_a_model_does_not_fit(nodes: list[Manifest], place: str) -> None:
    findings = judged(server(f"{LLAMA} -tp 2", 2), *nodes).findings
    messages = [item.message for item in findings if item.rule == "model-memory"]
    assert [message.partition("Llama")[0] for message in messages] == [place]


def test_requests_are_counted_for_all_replicas() -> None:
    verdicts = judged(server(f"{QWEN} --max-model-len=8k", 1, replicas=2), L4)
    (finding,) = [item for item in verdicts.findings if item.rule == "model-capacity"]
    assert finding.message.endswith("of 8,000 tokens at once on 1 L4, 2 replicas for 2 to 8")


def infos(verdicts: Verdicts) -> list[str]:
    return [item.message for item in verdicts.findings if item.rule == "model-capacity"]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ("--enable-lora --max-loras=64", "the memory that --enable-lora takes is not counted"),
        ('--kv-transfer-config={"kv_connector":"X"}', "the memory that --kv-transfer-config takes"),
        ("--num-gpu-blocks-override=$(BLOCKS)", "the value of --num-gpu-blocks-override is not"),
    ],
)
def test_what_is_not_counted_leaves_upper_bounds(args: str, reason: str) -> None:
    server_args = f"{QWEN} --max-model-len=8k"
    (counted,) = infos(judged(server(server_args, replicas=2), H100))
    (message,) = infos(judged(server(f"{server_args} {args}", replicas=2), H100))
    bounds = re.findall(r"[\d.]+ to ([\d.]+)", counted)
    assert len(bounds) == 3
    assert re.findall(r"at most ([\d.]+)", message) == bounds
    assert " to " not in message
    assert reason in message


SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"


def shared_l4(strategy: str) -> Manifest:
    return pool("l4", 2, {ACCELERATOR: "nvidia-l4", SHARING: strategy, CLIENTS: "4"}, gpu=4)


def test_a_shared_gpu_has_upper_bounds() -> None:
    args = f"{QWEN} --max-model-len=8k"
    (message,) = infos(judged(server(args, replicas=2), shared_l4("time-sharing")))
    assert message.endswith(
        "at most 4 requests of 8,000 tokens at once on 1 L4; other pods may use the memory of L4, "
        "which is shared"
    )


@pytest.mark.parametrize(
    ("args", "replicas", "strategy", "expected"),
    [
        ("", 3, "time-sharing", [WARNED]),
        ("", 2, "time-sharing", []),
        ("--gpu-memory-utilization=0.5", 3, "time-sharing", []),
        ("--kv-cache-memory-bytes=1G", 3, "time-sharing", [WARNED]),
        ("", 3, "mps", []),  # which limits the memory of each pod
    ],
)
def test_pods_that_share_a_gpu(args: str, replicas: int, strategy: str, expected: Any) -> None:
    llm = server(f"{QWEN} --max-model-len=8k {args}", replicas=replicas)
    verdicts = judged(llm, shared_l4(strategy))
    assert [item for item in of_programs(verdicts) if item == WARNED] == expected
    for item in verdicts.findings:
        if item.rule == "server-arguments":
            assert item.message.startswith("its 3 pods share 2 GPUs, and a server needs 0.92 of")


PARTITION = "cloud.google.com/gke-gpu-partition-size"


@pytest.mark.parametrize(
    ("selected", "nodes", "message"),
    [
        ({}, ["whole", "mig"], "--tensor-parallel-size is 2, and in pool mig its pods may get"),
        ({PARTITION: "3g.40gb"}, ["whole", "mig"], "--tensor-parallel-size is 2, and NCCL"),
        ({}, ["mig"], "--tensor-parallel-size is 2, and NCCL does not connect partitions"),
        ({}, ["whole"], ""),
    ],
)
def test_partitions_among_whole_gpus(selected: Any, nodes: list[str], message: str) -> None:
    gpu = {ACCELERATOR: "nvidia-h100-80gb"}
    pools = {
        "whole": pool("whole", 2, gpu, gpu=8),
        "mig": pool("mig", 2, {**gpu, PARTITION: "3g.40gb"}, gpu=16),
    }
    llm = server(f"{QWEN} --tensor-parallel-size=2", 2, nodeSelector={**gpu, **selected})
    findings = judged(llm, *(pools[name] for name in nodes)).findings
    texts = [item.message for item in findings if item.rule == "server-arguments"]
    assert len(texts) == bool(message)
    assert "".join(texts).startswith(message)


def test_pods_of_several_nodes_are_one_replica() -> None:
    llm = server(f"{QWEN} -tp 2 --nnodes 2 --max-model-len=8k", 1, replicas=4)
    llm |= {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    (message,) = infos(judged(llm, H100))
    one, two = re.findall(r"(?:: |for )([\d,]+) to", message)
    assert ", 2 replicas for " in message
    assert int(two.replace(",", "")) in (2 * int(one), 2 * int(one) + 1)


def test_what_does_not_fit_has_no_second_line() -> None:
    verdicts = judged(server(f"{LLAMA} -tp 2 --enable-lora", 2), L4)
    assert of_programs(verdicts) == [MEMORY]


def test_each_gpu_that_may_take_a_pod_is_told() -> None:
    mistral = server("--model=mistralai/Mistral-7B-Instruct-v0.3")
    alone = [of_programs(judged(mistral, nodes)) for nodes in (H100, L4)]
    assert alone[0] and alone[1] and alone[0] != alone[1]
    both = judged(mistral, H100, L4)
    assert sorted(of_programs(both)) == sorted(alone[0] + alone[1])
    texts = [finding.message for finding in both.findings if finding.rule == "model-capacity"]
    assert sorted("L4" in text for text in texts) == [False, True]


def test_the_selected_gpu_counts_without_nodes() -> None:
    args = f"{LLAMA} -tp 2"
    selected = server(args, 2, nodeSelector={ACCELERATOR: "nvidia-l4"})
    assert of_programs(judged(selected)) == [MEMORY]
    several = server(args, 2, nodeSelector={ACCELERATOR: "nvidia-l4"})
    assert of_programs(judged(several, H100)) == [MEMORY]


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("models/mine", [MEMORY]),
        ("meta-llama/Llama-3.3-70B-Instruct", [MEMORY]),
        ("Qwen/Qwen3-8B", [CAPACITY]),
        ("models/none", [MAY_NOT_FIT]),
        ("m" * 5000, [MAY_NOT_FIT]),
        ("/models/mine", [MAY_NOT_FIT]),
        ("models/../models/mine", [MAY_NOT_FIT]),
    ],
)
def test_a_folder_has_the_facts_about_a_model(
    folder: str,
    expected: list[tuple[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    llm = server("--model=/models/mine -tp 4", 4)
    llm["spec"]["template"]["metadata"]["annotations"] = {"ml-foundations/model": folder}
    assert of_programs(judged(llm, L4)) == expected


TAINTED = pool(
    "reserved",
    9,
    {ACCELERATOR: "nvidia-h100-80gb"},
    [{"key": "team", "value": "a", "effect": "NoSchedule"}],
    gpu=8,
)
PART = pool(
    "part",
    9,
    {
        ACCELERATOR: "nvidia-rtx-pro-6000",
        "node.kubernetes.io/instance-type": "g4-standard-12",
    },
    gpu=1,
)
IN_QUEUE = {"kueue.x-k8s.io/queue-name": "training"}


def test_nodes_with_fewer_gpus_do_not_count() -> None:
    small = pool("small", 9, {ACCELERATOR: "nvidia-l4"}, gpu=4)
    assert of_programs(judged(server(f"{LLAMA} -tp 8", 8), small, H100)) == [CAPACITY]
    assert of_programs(judged(server(f"{LLAMA} -tp 8", 8), L4, H100)) == [CAPACITY, MAY_NOT_FIT]


def test_only_nodes_that_accept_the_pods_count() -> None:
    llm = server(f"{LLAMA} -tp 4", 4)
    assert of_programs(judged(llm, L4, TAINTED)) == [MEMORY]
    # The flavors of a queue may have tolerations.
    llm["metadata"]["labels"] = IN_QUEUE
    assert of_programs(judged(llm, L4, TAINTED)) == [CAPACITY, MAY_NOT_FIT]


def test_the_memory_of_a_part_of_a_gpu_is_not_known() -> None:
    assert of_programs(judged(server(f"{LLAMA} --max-model-len=8k"), PART)) == []


def test_containers_without_gpus_are_not_judged() -> None:
    assert of_programs(judged(server(f"{QWEN} -tp 8", 0), L4)) == []


def test_pods_with_values_that_are_not_known_may_run_anywhere() -> None:
    toleration = {"key": "team", "value": UNKNOWN, "effect": "NoSchedule"}
    llm = server(f"{LLAMA} -tp 4", 4, tolerations=[toleration])
    assert of_programs(judged(llm, L4, TAINTED)) == []


def test_an_image_that_is_not_known_is_not_judged() -> None:
    pods = template(containers=[program("--tensor-parallel-size=8", 1, "example.com/my-vllm")])
    assert of_programs(judged(deployment("llm", 1, pods), L4)) == []


def test_what_a_webhook_may_change_is_a_warning() -> None:
    verdicts = judged(server(f"{QWEN} -tp 8"), L4, webhook("pods"))
    assert of_programs(verdicts) == [WARNED]


ITEMS = [{"key": "c.yaml", "path": "sub/d.yaml"}]
SOURCE = {"configMap": {"name": "config", "items": ITEMS}}


@pytest.mark.parametrize(
    ("file", "mount", "source", "expected"),
    [
        ("/etc/vllm/c.yaml", {}, {"configMap": {"name": "config"}}, ARGUMENTS),
        ("/etc/vllm", {"subPath": "c.yaml"}, {"configMap": {"name": "config"}}, ARGUMENTS),
        ("/etc/vllm/c.yaml", {"subPath": "c.yaml"}, {"configMap": {"name": "config"}}, CAPACITY),
        ("/etc/vllm/sub/d.yaml", {}, SOURCE, ARGUMENTS),
        ("/etc/vllm/sub/d.yaml", {}, {"projected": {"sources": [SOURCE]}}, ARGUMENTS),
        ("/etc/vllm/d.yaml", {"subPath": "sub"}, SOURCE, ARGUMENTS),
        ("/etc/vllm", {"subPath": "sub/d.yaml"}, SOURCE, ARGUMENTS),
        ("/etc/vllm/c.yaml", {}, SOURCE, CAPACITY),
        ("/etc/vllm/d.yaml", {"subPathExpr": "sub"}, SOURCE, CAPACITY),
    ],
)
def test_a_config_map_has_the_arguments(
    file: str, mount: Manifest, source: Manifest, expected: tuple[str, str]
) -> None:
    config = namespaced("v1", "ConfigMap", "config", data={"c.yaml": "tensor-parallel-size: 8"})
    main = program(f"{QWEN} --config {file}")
    main["volumeMounts"] = [{"name": "config", "mountPath": "/etc/vllm", **mount}]
    volumes = [{"name": "config", **source}]
    llm = deployment("llm", 1, template(containers=[main], volumes=volumes))
    assert of_programs(judged(llm, config, L4)) == [expected]


def group(args: str, size: int) -> Manifest:
    pods = template(containers=[program(f"{args} --nnodes $(LWS_GROUP_SIZE)", 8)])
    return namespaced(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        "llm",
        spec={"replicas": 1, "leaderWorkerTemplate": {"size": size, "workerTemplate": pods}},
    )


def test_groups_have_the_gpus_of_all_their_pods() -> None:
    args = f"{LLAMA} -tp 8 -pp 2"
    assert of_programs(judged(group(args, 2), H100)) == [CAPACITY]
    assert of_programs(judged(group(args, 1), H100)) == [ARGUMENTS]


def job_set(command: str, replicas: int = 1) -> Manifest:
    main = job("t", 2, trainer(command), completions=2)
    jobs = [{"name": "w", "replicas": replicas, "template": {"spec": main["spec"]}}]
    return namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "t", spec={"replicatedJobs": jobs})


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (job("t", 2, trainer("torchrun --nnodes=2 --nproc-per-node=8 a.py")), []),
        (job("t", 2, trainer("torchrun --nnodes=2 --nproc-per-node=16 a.py")), [WARNED]),
        (job("t", 2, trainer("torchrun --nnodes=4 --nproc-per-node=8 a.py")), [WARNED]),
        (job("t", 2, trainer("torchrun --nproc-per-node=8 a.py")), []),
        (job("t", 2, trainer("torchrun --nnodes=2:1 --nproc-per-node=8 a.py")), [ARGUMENTS]),
        (job("t", 2, trainer("python a.py")), []),
        (job_set("torchrun --nnodes=2 --nproc-per-node=8 a.py"), []),
        (job_set("torchrun --nnodes=4 --nproc-per-node=8 a.py"), [WARNED]),
        (job_set("torchrun --nnodes=2 --nproc-per-node=8 a.py", 2), []),
    ],
)
def test_launchers(workload: Manifest, expected: list[tuple[str, str]]) -> None:
    assert of_programs(judged(workload, H100)) == expected


OF_RUNTIME = "of TrainingRuntime torch"


@pytest.mark.parametrize(
    ("arguments", "made", "expected"),
    [
        ("", {"trainer": {}}, []),
        ("", {"trainer": {"numProcPerNode": 8}}, []),
        ("", {"trainer": {"numProcPerNode": 16}}, ["spec.trainer.numProcPerNode"]),
        ("", {"trainer": {"numProcPerNode": 4}}, ["spec.trainer.numProcPerNode"]),
        ("", {"trainer": {"numProcPerNode": UNKNOWN}}, []),
        (" --nproc-per-node=8", {"trainer": {"numProcPerNode": 16}}, []),
        (" --nproc-per-node=16", {"trainer": {}}, [OF_RUNTIME]),
        # Without spec.trainer, the controller sets no variables, and torchrun starts one process.
        ("", {}, [OF_RUNTIME]),
    ],
)
def test_train_jobs(arguments: str, made: Manifest, expected: list[str]) -> None:
    """Their controller sets the sizes that the command does not."""
    label = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pods = trainer(f"torchrun{arguments} a.py")
    pods["spec"]["containers"][0]["name"] = "node"
    spec = {"template": {"spec": {"restartPolicy": "Never", **pods["spec"]}}}
    jobs = [{"name": "node", "template": {"metadata": {"labels": label}, "spec": spec}}]
    version = "trainer.kubeflow.org/v1alpha1"
    policy = {"numNodes": 2, "torch": {}}
    runtime = namespaced(
        version,
        "TrainingRuntime",
        "torch",
        spec={"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}},
    )
    reference = {"kind": "TrainingRuntime", "name": "torch"}
    train = namespaced(version, "TrainJob", "t", spec={"runtimeRef": reference, **made})
    verdicts = judged(train, runtime, H100)
    assert of_programs(verdicts) == [WARNED] * len(expected)
    paths = [item.path for item in verdicts.findings if item.rule in RULES]
    assert all(path.endswith(end) for path, end in zip(paths, expected, strict=True)), paths


def test_unknown_values_are_not_judged() -> None:
    main = {**program(QWEN), "args": UNKNOWN}
    verdicts = judged(deployment("llm", 1, template(containers=[main])), L4)
    assert of_programs(verdicts) == [CAPACITY]


def trained(about: dict[str, str], pods: int = 1) -> Manifest:
    """Return a Job that says what it trains."""
    containers = [program("", 8, "mine", command=["python", "train.py"])]
    pod_template = template(containers=containers)
    annotations = {f"ml-foundations/{key}": value for key, value in about.items()}
    pod_template["metadata"]["annotations"] = annotations
    return job("train", pods, pod_template)


FULL = {"model": "Qwen/Qwen3-32B", "training-method": "full"}


@pytest.mark.parametrize(
    ("about", "pods", "nodes", "expected"),
    [
        (FULL | {"training-sharding": "none"}, 1, [H100], [("model-memory", "warning")]),
        (FULL | {"training-sharding": "zero3"}, 1, [H100], [CAPACITY]),
        (FULL | {"training-sharding": "zero3"}, 1, [L4], [CAPACITY]),
        (FULL, 1, [L4], [CAPACITY]),
        (FULL | {"training-sharding": "none"}, 1, [L4], [MEMORY]),
        (FULL | {"training-sharding": "none"}, 1, [L4, H100], [("model-memory", "warning")]),
        (FULL | {"training-method": "lora", "training-sharding": "none"}, 1, [L4], [MEMORY]),
        (
            FULL | {"training-method": "lora", "training-sharding": "none"},
            1,
            [L4, H100],
            [CAPACITY],
        ),
        (FULL | {"training-method": "qlora", "training-sharding": "none"}, 1, [L4], [CAPACITY]),
        ({"model": "Qwen/Qwen3-32B"}, 1, [L4], []),
        ({"training-method": "full"}, 1, [L4], []),
        (FULL | {"model": "models/none"}, 1, [L4], [MAY_NOT_FIT]),
        (FULL | {"training-method": "grpo"}, 1, [L4], []),
        (FULL | {"training-sharding": "tensor"}, 1, [L4], []),
        (FULL | {"model": "deepseek-ai/DeepSeek-R1"}, 1, [L4], []),
        (FULL | {"training-sharding": "hybrid"}, 4, [L4], [CAPACITY]),
    ],
)
def test_a_training_that_says_what_it_trains(
    about: dict[str, str], pods: int, nodes: list[Manifest], expected: list[tuple[str, str]]
) -> None:
    assert of_programs(judged(trained(about, pods), *nodes)) == expected


def test_the_sentences_about_a_training() -> None:
    small = judged(trained(FULL | {"training-sharding": "none"}), L4)
    (refusal,) = [item for item in small.findings if item.rule == "model-memory"]
    assert refusal.message == (
        "a full training of Qwen3-32B has at least 61.0 GiB of weights on each of 8 L4s, which "
        "have 22.2 GiB"
    )
    large = judged(trained(FULL | {"training-sharding": "zero3"}), H100)
    (size,) = [item.message for item in large.findings if item.rule == "model-capacity"]
    assert size == (
        "weights, gradients and optimizer have 7.6 to 68.7 GiB on each of its H100-80GB GPUs, "
        "which have 79.2 GiB; activations are not counted"
    )


def test_the_number_of_pods_is_about_the_nodes() -> None:
    verdicts = judged(
        deployment("t", 1, trainer("torchrun --nnodes=2 --nproc_per_node=8 t.py")), H100
    )
    (finding,) = [item for item in verdicts.findings if item.rule == "server-arguments"]
    assert finding.message.startswith("--nnodes is 2")
    assert finding.path.endswith("command[1]")


@pytest.mark.parametrize("in_args", [False, True])
def test_a_script_is_not_an_option(in_args: bool) -> None:
    script = f"exec vllm serve {LLAMA.partition('=')[2]} --tensor-parallel-size 8"
    shell = ["bash", "-c"]
    words = (
        {"command": shell, "args": [script]}
        if in_args
        else {"command": [*shell, script], "args": []}
    )
    pods = template(containers=[{**program(gpus=4), **words}])
    (finding,) = [
        item for item in judged(deployment("llm", 1, pods), H100).findings if item.rule in RULES
    ]
    assert "-c" not in finding.remedy.split()
    assert "--tensor-parallel-size" in finding.remedy


def test_only_vllm_gets_ways_in_its_words() -> None:
    image = "ghcr.io/huggingface/text-generation-inference:3.0"
    words = "--model-id=meta-llama/Llama-3.3-70B-Instruct --num-shard=2"
    pods = template(containers=[program(words, 2, image)])
    remedies = [item.remedy for item in judged(deployment("llm", 1, pods), L4).findings]
    assert remedies and not any("--tensor-parallel-size" in remedy for remedy in remedies)


SGLANG = {"image": "lmsysorg/sglang:v0.5.9", "command": ["sglang", "serve", "--model-path=x"]}
PORT_8080 = {"readinessProbe": {"httpGet": {"path": "/health", "port": 8080}}}
NAMED = {
    "ports": [{"name": "http", "containerPort": 8001}],
    "startupProbe": {"httpGet": {"port": "http"}},
}
SIDECAR = {"name": "proxy", "image": "proxy:1", "ports": [{"containerPort": 8080}]}
SERVICE = {"selector": {"app": "llm"}, "ports": [{"port": 80, "targetPort": 8080}]}


@pytest.mark.parametrize(
    ("args", "fields", "service", "messages"),
    [
        ("", PORT_8080, {}, ["its readinessProbe asks port 8080, and the server listens on 8000"]),
        ("--port=8080", PORT_8080, SERVICE, []),
        (
            "",
            PORT_8080,
            SERVICE,
            [
                "its readinessProbe and Service llm ask port 8080, and the server listens on 8000",
            ],
        ),
        ("--port 8001", NAMED, {}, []),
        ("", NAMED, {}, ["its startupProbe asks port 8001, and the server listens on 8000"]),
        ("", {}, SERVICE, ["Service llm asks port 8080, and the server listens on 8000"]),
        ("", {}, {**SERVICE, "clusterIP": "None"}, []),
        ("", {}, {**SERVICE, "selector": {"app": "chat"}}, []),
        ("", {}, {**SERVICE, "selector": UNKNOWN}, []),
        ("", {}, {**SERVICE, "selector": {"app": UNKNOWN}}, []),
        ("", {}, {**SERVICE, "ports": [{"port": UNKNOWN}]}, []),
        ("", {}, {**SERVICE, "ports": []}, []),
        ("", {}, {**SERVICE, "ports": [*SERVICE["ports"], {"port": 8000}]}, []),
        ("", {"readinessProbe": {"httpGet": {"port": 8080, "host": "proxy.ml"}}}, {}, []),
        ("", {"readinessProbe": {"httpGet": {"port": "http"}}}, {}, []),
        ("", {"readinessProbe": {"exec": {"command": ["true"]}}}, {}, []),
        ("--uds=/run/llm", PORT_8080, {}, []),
        ("--headless", PORT_8080, {}, []),
        (
            "--host=127.0.0.1 --port=8080",
            PORT_8080,
            {},
            [
                "the server listens on 127.0.0.1 alone, where its readinessProbe does not reach it",
            ],
        ),
        (
            "--port=8080",
            {**PORT_8080, **SGLANG},
            {},
            [
                "the server listens on 127.0.0.1 alone, where its readinessProbe does not reach it",
            ],
        ),
        ("--port=8080 --host=0.0.0.0", {**PORT_8080, **SGLANG}, {}, []),
    ],
)
def test_who_asks_a_port_finds_the_server(
    args: str, fields: dict[str, Any], service: dict[str, Any], messages: list[str]
) -> None:
    of_vllm = "" if "command" in fields else f"{QWEN} --max-model-len=8k "
    made = template(containers=[program(of_vllm + args, **fields)])
    made["metadata"] = {"labels": {"app": "llm"}}
    objects = [H100, deployment("llm", 1, made)]
    if service:
        objects.append(namespaced("v1", "Service", "llm", spec=service))
    assert said_about_arguments(judged(*objects)) == messages


def said_about_arguments(verdicts: Verdicts) -> list[str]:
    return [item.message for item in verdicts.findings if item.rule == "server-arguments"]


@pytest.mark.parametrize(
    "containers",
    [
        [program(QWEN, **PORT_8080), SIDECAR],
        [program("", command=["sh", "-c", f"vllm serve {QWEN[8:]} & nginx"], **PORT_8080)],
    ],
)
def test_something_else_may_listen_in_the_pod(containers: list[Manifest]) -> None:
    made = template(containers=containers)
    assert not said_about_arguments(judged(H100, deployment("llm", 1, made)))


def test_the_remedy_for_a_port() -> None:
    made = template(containers=[program(QWEN, **PORT_8080)])
    [remedy] = [
        item.remedy
        for item in judged(H100, deployment("llm", 1, made)).findings
        if item.rule == "server-arguments"
    ]
    assert remedy == "Set --port=8080, or ask port 8000."
