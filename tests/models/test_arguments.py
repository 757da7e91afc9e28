"""Command lines as vLLM and others read them, and what cannot be placed."""

import random
import re
from dataclasses import replace
from fractions import Fraction
from importlib.resources import files
from typing import Any

import pytest
from ml_foundations.catalog.tables import rows
from ml_foundations.models.arguments import whole_number
from ml_foundations.models.command import release_of
from ml_foundations.models.launches import VISIBLE, Launch
from ml_foundations.models.reasons import Cause, Reason, Severity
from ml_foundations.models.serving import FIT, Serving, read_container
from ml_foundations.models.sizes import check_launch

MODEL = "Qwen/Qwen3-8B"
VLLM = "vllm/vllm-openai:v0.24.0"
ENDLESS = "9" * 5000


def read(*args: str, tag: str = "v0.19.1", **container: Any) -> Any:
    image = container.pop("image", f"example.com/vllm/vllm-openai:{tag}")
    files = container.pop("files", {})
    return read_container({"image": image, "args": [*args], **container}, files)


def read_known(*args: str, **container: Any) -> Serving:
    serving = read(*args, **container)
    assert isinstance(serving, Serving), serving
    return serving


def causes(serving: Any) -> list[Cause]:
    return [reason.cause for reason in serving.reasons]


@pytest.mark.parametrize(
    "args",
    [
        ("--tensor-parallel-size", "2"),
        ("--tensor-parallel-size=2",),
        ("--tensor_parallel_size=2",),
        ("--tensor_parallel", "2"),
        ("--tensor", "2"),
        ("-tp", "2"),
        ("-tp=2",),
        ("-tp", "8", "--tensor-parallel-size=2"),
    ],
)
def test_the_forms_of_an_argument_are_equal(args: tuple[str, ...]) -> None:
    serving = read_known(MODEL, *args)
    assert (serving.model, serving.tensor, serving.reasons) == (MODEL, 2, ())


def test_a_value_is_joined_to_a_name_of_one_letter() -> None:
    assert read_known(MODEL, "-n2").nodes == 2
    # argparse splits no names of two letters.
    reason = read(MODEL, "-tp2")
    assert reason.cause is Cause.UNKNOWN_ARGUMENT


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "--enable-chunked-prefill=False",
            (
                "--enable-chunked-prefill=False has a value, which the flag does not accept",
                "Write --no-enable-chunked-prefill",
            ),
        ),
        (
            "--enforce-eager=true",
            (
                "--enforce-eager=true has a value, which the flag does not accept",
                "Write --enforce-eager",
            ),
        ),
        (
            "--config=/etc/known.yaml",
            (
                "--config=/etc/known.yaml is not read: vLLM reads a file only from --config FILE",
                "Write --config FILE",
            ),
        ),
    ],
)
def test_the_sentences_about_forms(word: str, message: tuple[str, str]) -> None:
    assert read(MODEL, word, "/more").sentences() == message


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("8192", 8192), ("32k", 32000), ("32K", 32768), ("1.5k", 1500), ("1g", 10**9)],
        *[("2M", 2**21), ("32_768", 32768), ("+8192", 8192)],
    ],
)
def test_numbers_are_read_as_vllm_reads_them(text: str, number: int) -> None:
    assert whole_number(text) == number
    assert read_known(MODEL, f"--max-model-len={text}").max_length == number


@pytest.mark.parametrize("text", ["1.5K", "32kb", "", "k", "1e3", "0x10", "-1k", "+8k"])
def test_what_is_no_number_ends_the_server(text: str) -> None:
    serving = read_known(MODEL, f"--max-model-len={text}")
    assert [(reason.severity, reason.cause) for reason in serving.reasons] == [
        (Severity.REFUSED, Cause.INVALID_VALUE)
    ]
    assert "max_length" in serving.unknown


@pytest.mark.parametrize("text", ["auto", "-1"])
def test_a_length_that_the_server_chooses(text: str) -> None:
    assert read_known(MODEL, f"--max-model-len={text}").max_length == FIT


@pytest.mark.parametrize(
    ("container", "release"),
    [
        ({"tag": "v0.11.0", "args": ["--model", MODEL]}, (0, 11, 0)),
        ({"tag": "v0.12.0", "args": [MODEL]}, (0, 12, 0)),
        ({"tag": "v0.33.0-cu129", "args": [MODEL]}, (0, 33, 0)),
        ({"tag": "v0.10.2", "args": ["--model", MODEL]}, None),
        ({"tag": "latest", "args": ["--model", MODEL]}, None),
        ({"tag": "v0.19.1", "command": ["vllm", "serve", MODEL]}, (0, 19, 1)),
        ({"image": "mine", "command": ["/opt/bin/vllm", "serve"], "args": [MODEL]}, None),
        (
            {
                "image": "mine",
                "command": ["python3", "-u", "-m", "vllm.entrypoints.openai.api_server"],
                "args": ["--model", MODEL],
            },
            None,
        ),
        (
            {"image": "mine", "command": ["sh", "-c", f"exec vllm serve {MODEL} \\\n --port=80"]},
            None,
        ),
        (
            {
                "image": "mine",
                "command": ["bash", "-c"],
                "args": ['vllm serve "$M"'],
                "env": [{"name": "M", "value": MODEL}],
            },
            None,
        ),
        (
            {
                "image": "mine",
                "command": ["vllm", "serve", "$(M)"],
                "env": [{"name": "M", "value": MODEL}],
            },
            None,
        ),
    ],
)
def test_how_a_container_starts_vllm(container: dict[str, Any], release: Any) -> None:
    tag = container.pop("tag", None)
    image = f"vllm/vllm-openai:{tag}" if tag else container.pop("image")
    serving = read_container({"image": image, **container})
    assert isinstance(serving, Serving), serving
    assert (serving.model, serving.release) == (MODEL, release)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "server.py"],
        ["sh", "-c", "sleep infinity"],
        ["nginx"],
        [],
        ["sh", "-c"],
        ["vllm", "bench"],
        [None],
    ],
)
def test_other_programs_are_not_judged(command: list[Any]) -> None:
    assert read_container({"image": "mine", "command": command}) is None


@pytest.mark.parametrize(
    ("args", "cause", "path"),
    [
        ((MODEL, "--tensor-paralel-size=2"), Cause.UNKNOWN_ARGUMENT, "args[1]"),
        ((MODEL, "--enable"), Cause.UNKNOWN_ARGUMENT, "args[1]"),
        ((MODEL, "-x"), Cause.UNKNOWN_ARGUMENT, "args[1]"),
        ((MODEL, "another"), Cause.UNKNOWN_ARGUMENT, "args[1]"),
        ((MODEL, "--config", "/etc/vllm.yaml"), Cause.UNREADABLE_CONFIG, "args[2]"),
        ((MODEL, "--config=/etc/known.yaml"), Cause.CONFIG_FORM, "args[1]"),
        ((MODEL, "--config"), Cause.INVALID_VALUE, "args[1]"),
        ((MODEL, *("--config", "/etc/known.yaml") * 2), Cause.UNREADABLE_CONFIG, "args[2]"),
        ((MODEL, "--dtype.kind=half"), Cause.UNKNOWN_ARGUMENT, "args[1]"),
        ((MODEL, "--max-model-len"), Cause.INVALID_VALUE, "args[1]"),
        ((MODEL, "--dtype", "--port=80"), Cause.INVALID_VALUE, "args[1]"),
        ((MODEL, "--enforce-eager=true"), Cause.SWITCH_VALUE, "args[1]"),
    ],
)
def test_an_argument_that_cannot_be_placed_is_named(args: Any, cause: Cause, path: str) -> None:
    reason = read(*args, files={"/etc/known.yaml": "port: 80"})
    assert isinstance(reason, Reason)
    assert (reason.cause, reason.path) == (cause, path)
    assert reason.sentences()[0]


def test_the_command_line_wins_over_its_file() -> None:
    text = "model: other\ntensor_parallel_size: 4\nmax-model-len: 32k\nenforce-eager: true\n"
    text += "enable-prefix-caching: false\nserved-model-name: [a, b]\n"
    serving = read_known("--config", "/c.yaml", "-tp", "2", files={"/c.yaml": text})
    assert (serving.model, serving.tensor, serving.max_length) == ("other", 2, 32000)
    assert serving.eager
    assert read_known(MODEL, "--config", "/c.yaml", files={"/c.yaml": "enforce-eager: true"}).eager


def test_a_name_without_an_option_wins_over_the_file() -> None:
    files = {"/c.yaml": "model: other\ntensor-parallel-size: 2"}
    for args in ([MODEL, "--config", "/c.yaml"], ["--config", "/c.yaml", MODEL]):
        serving = read_known(*args, files=files)
        assert (serving.model, serving.tensor) == (MODEL, 2)
    # `vllm serve` moves its own --model to the front.
    assert read_known("--model=a", "--config", "/c.yaml", files=files).model == "a"


@pytest.mark.parametrize("text", ["", "None"])
def test_an_optional_number_may_be_empty(text: str) -> None:
    options = ("kv-cache-memory-bytes", "num-gpu-blocks-override", "data-parallel-size-local")
    assert read_known(MODEL, *(f"--{name}={text}" for name in options)).reasons == ()


def test_json_and_its_dotted_keys_are_placed() -> None:
    args = ('--compilation-config={"level": 3}', "--hf-overrides.a.b", "1", "-O3", "-cc.mode=3")
    serving = read_known(MODEL, *args, "--speculative-config", '{"method": "ngram"}')
    assert set(causes(serving)) == {Cause.CHANGES_MEMORY, Cause.TAKES_MORE_MEMORY}
    assert serving.unknown == {"memory"}


@pytest.mark.parametrize(("size", "unknown"), [("0", set[str]()), ("0.5", {"memory"})])
def test_weights_in_the_memory_of_the_host_are_not_counted(size: str, unknown: set[str]) -> None:
    assert read_known(MODEL, f"--cpu-offload-gb={size}").unknown == unknown


def test_tgi_uses_as_many_gpus_as_it_sees() -> None:
    image = "ghcr.io/huggingface/text-generation-inference:3.3.4"
    serving = read_container({"image": image, "args": ["--model-id", MODEL]})
    assert isinstance(serving, Serving)
    assert serving.unknown == {"tensor"}
    env = [{"name": "NUM_SHARD", "value": "2"}]
    serving = read_container({"image": image, "args": ["--model-id", MODEL], "env": env})
    assert isinstance(serving, Serving)
    assert (serving.tensor, serving.unknown) == (2, frozenset())


def test_switches_and_values_of_several_words() -> None:
    args = ("--served-model-name", "a", "b", "--no-enable-chunked-prefill", "--enforce-eager")
    serving = read_known(MODEL, *args, "--model-loader-extra-config={}", "--no-enforce-eager")
    assert (serving.chunked_prefill, serving.eager) == (False, False)


def test_a_value_that_is_not_known_yet() -> None:
    env = [{"name": "TP", "valueFrom": {"configMapKeyRef": {}}}]
    serving = read_known(MODEL, "--tensor-parallel-size", "$(TP)", "--port=$(PORT)", env=env)
    assert serving.unknown == {"tensor"}
    assert [(reason.cause, reason.path) for reason in serving.reasons] == [
        (Cause.UNKNOWN_VALUE, "args[2]")
    ]
    assert read_known(MODEL, "-tp=$(TP)", env=env).unknown == {"tensor"}
    assert isinstance(read(MODEL, "$(TP)", env=env), Reason)


def test_dollar_signs_as_kubernetes_expands_them() -> None:
    env = [{"name": "A", "value": "org"}, {"name": "B", "value": "$(A)/m"}]
    assert read_known("$(B)", env=env).model == "org/m"
    assert read_known("$$(B)", env=env).model == "$(B)"
    assert isinstance(read("$(NONE)"), Reason)
    assert read_known(MODEL, "-tp", "$(LWS_GROUP_SIZE)").unknown == {"tensor"}


def test_switches_of_the_environment() -> None:
    env = [
        {"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": "1"},
        {"name": "VLLM_PP_LAYER_PARTITION", "value": "10,30"},
    ]
    serving = read_known(MODEL, env=env)
    assert serving.allows_long
    assert serving.layers_of_stages == (10, 30)
    assert read_known(MODEL, envFrom=[{}]).allows_long is None


def test_sglang_and_tgi() -> None:
    command = [
        "python3",
        "-m",
        "sglang.launch_server",
        "--model-path",
        MODEL,
        "--tp",
        "4",
        "--mem-fraction-static=0.8",
    ]
    serving = read_container({"image": "sglang:v0.5.5", "command": command})
    assert isinstance(serving, Serving)
    assert (serving.engine, serving.model, serving.tensor, serving.utilization) == (
        "sglang",
        MODEL,
        4,
        Fraction(4, 5),
    )
    env = [{"name": "MODEL_ID", "value": MODEL}, {"name": "NUM_SHARD", "value": "2"}]
    serving = read_container({"image": "text-generation-inference:3.0.1", "env": env})
    assert isinstance(serving, Serving)
    assert (serving.engine, serving.model, serving.tensor) == ("tgi", MODEL, 2)
    assert serving.paths["tensor"] == "env[NUM_SHARD]"


@pytest.mark.parametrize(
    ("command", "nodes", "per_node"),
    [
        ("torchrun train.py", (1, 1), 1),
        ("torchrun --nnodes=2 --nproc_per_node 8 train.py --nnodes=9", (2, 2), 8),
        ("torchrun --nnodes=1:4 --nproc-per-node=gpu -m train", (1, 4), VISIBLE),
        ("torchrun --standalone --nproc-per-node=auto train.py", (1, 1), VISIBLE),
        ("python -m torch.distributed.run --nnodes 2 train.py", (2, 2), 1),
        ("accelerate launch --num_processes 16 --num-machines=2 train.py", (2, 2), 8),
        ("accelerate launch --multi_gpu train.py", (1, 1), VISIBLE),
        ("accelerate launch --config_file a.yaml train.py", None, None),
    ],
)
def test_how_launchers_count(command: str, nodes: Any, per_node: int | None) -> None:
    launch = read_container({"image": "mine", "command": command.split()})
    assert isinstance(launch, Launch)
    assert (launch.nodes, launch.per_node) == (nodes, per_node)


def test_accelerate_divides_the_gpus_of_one_node_among_all() -> None:
    command = "accelerate launch --num_machines 2 train.py"
    launch = read_container({"image": "mine", "command": command.split()})
    assert isinstance(launch, Launch)
    (reason,) = check_launch(launch, gpus=8, pods=2)
    assert (reason.cause, reason.value, reason.limit) == (Cause.IDLE_GPUS, 4, 8)
    assert check_launch(replace(launch, divides=1), gpus=8, pods=2) == []


@pytest.mark.parametrize(("processes", "expected"), [("1", [Cause.INVALID_VALUE]), ("2", [])])
def test_accelerate_refuses_several_gpus_for_one_process(
    processes: str, expected: list[Cause]
) -> None:
    command = f"accelerate launch --multi_gpu --num_processes {processes} train.py"
    launch = read_container({"image": "mine", "command": command.split()})
    assert causes(launch) == expected


@pytest.mark.parametrize(
    "value", ["--nnodes=4:1", "--nnodes=0", "--nnodes=two", "--nproc-per-node=tpu"]
)
def test_torchrun_refuses(value: str) -> None:
    launch = read_container({"image": "mine", "command": ["torchrun", value, "train.py"]})
    assert isinstance(launch, Launch)
    assert causes(launch) == [Cause.INVALID_VALUE]


FORMS = {
    "tensor-parallel-size": ("-tp", "--tensor_parallel_size", "--tensor", "--tensor-parallel"),
    "max-model-len": ("--max_model_len", "--max-model"),
    "gpu-memory-utilization": ("--gpu_memory_utilization", "--gpu-mem"),
    "kv-cache-dtype": ("--kv_cache_dtype",),
    "quantization": ("-q",),
    "max-num-seqs": ("--max_num_seqs", "--max-num-se"),
}


def test_permuted_and_aliased_command_lines_are_equal() -> None:
    chance = random.Random(59)
    values = {"tensor-parallel-size": "4", "max-model-len": "8k", "gpu-memory-utilization": "0.8"}
    values |= {"kv-cache-dtype": "fp8", "quantization": "fp8", "max-num-seqs": "64"}
    expected = read_known(MODEL, *[f"--{name}={value}" for name, value in values.items()])
    for _ in range(200):
        names = chance.sample(sorted(values), len(values))
        args: list[str] = []
        for name in names:
            form = chance.choice((f"--{name}", *FORMS[name]))
            args += [f"{form}={values[name]}"] if chance.random() < 0.5 else [form, values[name]]
        args.insert(0, MODEL)
        serving = read_known(*args)
        for field in (
            "model",
            "tensor",
            "max_length",
            "utilization",
            "kv_dtype",
            "quantization",
            "sequences",
            "reasons",
            "unknown",
        ):
            assert getattr(serving, field) == getattr(expected, field), args


def test_random_words_never_break_the_reader() -> None:
    chance = random.Random(60)
    pieces = [
        "--",
        "-",
        "=",
        "tp",
        "-tp",
        "model",
        "--model",
        ".",
        "a",
        "1",
        "{",
        "}",
        '"',
        "$",
        "(",
        ")",
        "--config",
        "\0",
        "é",
        " ",
        "--hf-overrides.a",
        "+",
    ]
    for _ in range(1000):
        words = ["".join(chance.choices(pieces, k=chance.randint(1, 4))) for _ in range(4)]
        result = read(*words)
        assert isinstance(result, Serving | Reason), words


def test_the_values_are_of_arguments_of_the_table() -> None:
    arguments = {row["argument"] for row in rows("server_arguments.csv")}
    listed = [(row["argument"], row["value"]) for row in rows("server_values.csv")]
    assert {name for name, _ in listed} < arguments
    assert len(listed) == len({*listed})


def test_the_table_of_arguments_sets_fields_that_exist() -> None:
    table = files("ml_foundations.catalog").joinpath("server_arguments.csv").read_text()
    groups = table.split("until\n", 1)[1].split("\n# ")
    assert all(re.match(r"(# )?\d{4}-\d\d-\d\d: .+\n\w+,", group) for group in groups)
    for row in rows("server_arguments.csv"):
        assert row["value"] in ("switch", "one", "optional", "several", "json"), row
        assert (row["effect"] == "read") == bool(row["field"]), row
        assert row["effect"] in ("read", "none", "more", "unknown"), row
        assert not row["field"] or row["field"] in Serving.__dataclass_fields__, row
        ends = [release_of(row[key]) for key in ("since", "until") if row[key]]
        assert not ends or (row["program"] == "vllm" and (0, 11, 0) <= ends[0] < (0, 34, 0)), row
        assert ends == sorted(ends), row


@pytest.mark.parametrize(
    ("tag", "word", "fix"),
    [
        ("v0.24.0", "--disable-log-requests", "Remove it, or use a release before 0.17.0"),
        ("v0.18.0", "--swap-space=4", "Remove it, or use a release before 0.18.0"),
        ("v0.24.0", "--guided-decoding-backend=auto", "Remove it, or use a release before 0.12.0"),
        ("v0.11.0", "--enable-reasoning", "Remove it, or use a release before 0.11.0"),
        ("v0.11.0", "--performance-mode=balanced", "Remove it, or use 0.17.0 or later"),
        ("v0.30.0", "--device-memory-utilization=0.8", "Remove it, or use 0.31.0 or later"),
        ("v0.32.0", "--disable-prefix-caching", "Remove it, or use 0.33.0 or later"),
    ],
)
def test_an_argument_that_a_release_lacks_ends_it(tag: str, word: str, fix: str) -> None:
    reason = read(MODEL, word, tag=tag)
    assert isinstance(reason, Reason)
    assert (reason.severity, reason.path) == (Severity.REFUSED, "args[1]")
    assert reason.sentences() == (f"{word} is unknown to vLLM {tag[1:]}", fix)
    # Of other images, the release is not known.
    assert isinstance(read(MODEL, word, tag="latest"), Serving)


def test_arguments_and_prefixes_are_those_of_the_release() -> None:
    assert read_known(MODEL, "--disable-log-requests", tag="v0.14.1").reasons == ()
    # The newest releases switch --enable-log-requests off by this name.
    assert read_known(MODEL, "--disable-log-requests", tag="v0.33.0").reasons == ()
    newest = ("--device-memory-utilization=0.8", "--log-level", "info", "--max-num-active-seqs=8")
    assert read_known(MODEL, *newest, tag="v0.33.0").utilization == Fraction(4, 5)
    assert read_known("--reasoning", "qwen3", tag="v0.11.0").reasons == ()
    assert read(MODEL, "--reasoning", "qwen3", tag="v0.33.0").cause is Cause.UNKNOWN_ARGUMENT


@pytest.mark.parametrize(
    "container",
    [
        {"tag": "v0.11.0", "args": ["Qwen/Qwen3-32B"]},
        {"command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "Qwen/Qwen3-32B"]},
    ],
)
def test_the_module_of_the_api_server_ignores_a_model_before_its_options(
    container: dict[str, Any],
) -> None:
    serving = read_known(*container.pop("args", []), **container)
    assert (serving.model, causes(serving)) == ("Qwen/Qwen3-0.6B", [Cause.IGNORED_MODEL])
    (reason,) = serving.reasons
    assert reason.severity is Severity.WARNING
    assert reason.sentences()[1] == "Write --model=Qwen/Qwen3-32B"


@pytest.mark.parametrize(
    "args",
    [
        ("--served-model-name", "mine", "--port", "8080"),
        ("--served_model_name", "a", MODEL),
        ("-tp=2", "--served-model-name=a"),
    ],
)
def test_a_served_name_without_a_model_ends_the_server(args: tuple[str, ...]) -> None:
    reason = read(*args)
    assert isinstance(reason, Reason)
    assert (reason.severity, reason.cause) == (Severity.REFUSED, Cause.NO_MODEL)
    assert read_known(*args, tag="v0.16.0").model == "Qwen/Qwen3-0.6B"
    assert read_known(*args, "--model", MODEL).model == MODEL
    assert read_known(MODEL, *args).model == MODEL


@pytest.mark.parametrize(
    ("tag", "word", "accepted"),
    [
        ("v0.24.0", "--dtype=fp16", "auto, bfloat16, float, float16, float32 or half"),
        ("v0.24.0", "--kv-cache-dtype=fp8_e5m3", "fp8_e4m3, fp8_e5m2 or fp8_ds_mla"),
        ("v0.17.0", "--kv-cache-dtype=int8", "fp8, fp8_inc or fp8_ds_mla"),
        ("v0.17.0", "--kv-cache-dtype=zzz", "auto, bfloat16 or fp8"),
        ("v0.33.0", "--quantization=int4", "mxfp4, experts_int8 or modelopt_fp4"),
    ],
)
def test_a_value_that_a_release_lacks_ends_it(tag: str, word: str, accepted: str) -> None:
    (reason,) = read_known(MODEL, word, tag=tag).reasons
    name, _, value = word.partition("=")
    assert reason.severity is Severity.REFUSED
    assert reason.sentences(name)[0] == f"{name} is {value}, and {accepted} is needed"
    # Of other images, the release is not known.
    assert read_known(MODEL, word, tag="latest").reasons == ()


def test_values_that_a_release_has() -> None:
    words = ("--dtype=half", "--kv-cache-dtype", "nvfp4", "-q", "None", "--quantization=FP8")
    assert read_known(MODEL, *words, tag="v0.24.0").reasons == ()
    # A plugin may add what a release removed.
    assert read_known(MODEL, "--quantization=gguf", tag="v0.33.0").reasons == ()


def test_a_length_that_older_releases_do_not_choose() -> None:
    assert causes(read_known(MODEL, "--max-model-len=auto", tag="v0.13.0")) == [Cause.INVALID_VALUE]
    assert read_known(MODEL, "--max-model-len=auto", tag="v0.14.0").reasons == ()


@pytest.mark.parametrize(
    ("command", "nodes", "per_node"),
    [
        ("accelerate launch --same_network --num_machines=2 --num_processes=16 t.py", (2, 2), 8),
        ("accelerate launch --enable_cpu_affinity --num_processes 8 t.py", (1, 1), 8),
        ("torchrun --virtual-local-rank --nproc-per-node=8 t.py", (1, 1), 8),
        ("torchrun --a-switch-of-later --nproc-per-node=8 t.py", (1, 1), 8),
        ("torchrun --nnodes=2 --node-rank=1 --nproc-per-node=8 t.py", None, 8),
        ("accelerate launch --num_machines=2 --machine_rank=0 --num_processes=16 t.py", None, 8),
    ],
)
def test_switches_of_launchers_have_no_value(command: str, nodes: Any, per_node: int) -> None:
    launch = read_container({"image": "trainer", "command": command.split()})
    assert isinstance(launch, Launch)
    assert (launch.nodes, launch.per_node, launch.reasons) == (nodes, per_node, ())


def test_a_switch_with_a_value_is_no_error_of_an_image_without_a_release() -> None:
    """Before 0.11, some switches had a value."""
    image = "lmcache/vllm-openai:2025-03-28"
    container = {"image": image, "args": [MODEL, "--enable-chunked-prefill=False"]}
    reason = read_container(container)
    assert isinstance(reason, Reason)
    assert (reason.cause, reason.severity) == (Cause.SWITCH_VALUE, Severity.WARNING)


def test_arguments_of_public_servers_of_sglang_are_known() -> None:
    words = "--disaggregation-mode prefill --enable-hierarchical-cache --ep 8 --nccl-init-addr a:1"
    command = ["python3", "-m", "sglang.launch_server", "--model-path", "m", *words.split()]
    serving = read_container({"image": "lmsysorg/sglang:v0.5.4", "command": command})
    assert isinstance(serving, Serving)
    assert serving.reasons == ()


@pytest.mark.parametrize(
    "container",
    [
        {"image": f"vllm/vllm-openai:v{ENDLESS}.1.1"},
        {"image": VLLM, "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": ENDLESS}]},
        {"image": VLLM, "env": [{"name": "VLLM_PP_LAYER_PARTITION", "value": ENDLESS}]},
        {"image": VLLM, "args": [MODEL, f"--tensor-parallel-size={ENDLESS}"]},
        {"image": VLLM, "args": [MODEL, f"--max-model-len={ENDLESS}k"]},
        {"image": "a", "command": ["torchrun", f"--nnodes={ENDLESS}:{ENDLESS}", "a.py"]},
        {"image": "a", "command": ["torchrun", f"--nproc-per-node={ENDLESS}", "a.py"]},
        {"image": "a", "command": ["accelerate", "launch", f"--num_processes={ENDLESS}", "a.py"]},
    ],
    ids=range(8),
)
def test_digits_without_end_are_no_number(container: dict[str, Any]) -> None:
    """Python refuses to read more than 4,300 digits."""
    read_container(container)
