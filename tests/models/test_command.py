"""The command that prints the ways to serve a model."""

import json
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from ml_foundations.catalog.machine_types import MACHINE_TYPES, MachineType
from ml_foundations.models.__main__ import main

from tests.support.checkout import CHECKOUT

COMMAND = Path(sysconfig.get_path("scripts"), "ml-foundations")
LLAMA = "meta-llama/Llama-3.3-70B-Instruct"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """Return the words of each line."""
    main(arguments)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_ways_are_printed_cheapest_first(capsys: pytest.CaptureFixture[str]) -> None:
    title, columns, *rows, _ = printed(capsys, LLAMA, "--context", "32K", "--requests=4")
    assert title[:8] == [LLAMA, "with", "vLLM,", "for", "4", "requests", "of", "32,768"]
    assert columns[0] == "MACHINE"
    prices = [float(row[-1]) for row in rows]
    assert prices == sorted(prices)
    assert all(int(row[-2].replace(",", "")) >= 4 for row in rows)
    # 131 GiB of weights, and the cache of 32,768 tokens, 10 GiB.
    assert rows[0] == ["g2-standard-96", "8", "x", "l4", "8", "fp8", "6.3", "5", "8.00"]


def test_numbers_are_read_as_vllm_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert "32,000" in printed(capsys, LLAMA, "--context=32k")[0]
    assert "32,768" in printed(capsys, LLAMA, "--context=32K")[0]
    for invalid in ("x", "0", "-1", "1.5", "9" * 30):
        with pytest.raises(SystemExit):
            main([LLAMA, f"--context={invalid}"])
    assert "Write a number" in capsys.readouterr().err


def test_prices_are_those_of_the_zone(capsys: pytest.CaptureFixture[str]) -> None:
    here = printed(capsys, "Qwen3-8B", "--zone=europe-west4-a")
    there = printed(capsys, "Qwen3-8B", "--zone=us-central1")
    assert here[0][-1] == "europe-west4:"
    assert here[2][-1] != there[2][-1]
    with pytest.raises(SystemExit):
        main(["Qwen3-8B", "--zone=us-centra1-a"])
    assert 'no region with prices "us-centra1". Did you mean us-central1' in capsys.readouterr().err


def test_why_nothing_serves_a_model_and_what_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["Qwen3-8B", "--context=41k"]) == 2
    assert "at most, not 41,000. Lower --context" in capsys.readouterr().err
    assert main(["Qwen3-8B", "--requests=100000"]) == 1
    assert "fewer --requests" in capsys.readouterr().out
    assert re.fullmatch(r"\d+ dearer ways not listed\.", " ".join(printed(capsys, "Qwen3-8B")[-1]))


def test_a_folder_is_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["None"]}))
    assert main([str(tmp_path)]) == 1
    assert "No machine of the catalog surely serves" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("DeepSeek-V4-Flash", "The weights of DeepSeek-V4-Flash are not known."),
        ("DeepSeek-V3.2", "The KV cache of DeepSeek-V3.2 is not known."),
        ("Mistral-Large-Instruct-2411", "The longest length of the model is not known. Set --con"),
    ],
)
def test_a_fact_that_is_not_known_is_named(
    capsys: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    assert main([name]) == 1
    assert capsys.readouterr().out.splitlines()[1].startswith(reason)
    assert main(["Mistral-Large-Instruct-2411", "--context=32k"]) == 0


def test_a_model_without_a_cache_serves_any_number_of_requests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = printed(capsys, "bge-m3", "--requests=5000")[2:]
    assert rows[0][0] == "g2-standard-4"
    assert {row[-2] for row in rows if len(row) == 9} == {"any"}


def with_pools(capsys: pytest.CaptureFixture[str], *arguments: str, **pools: str) -> list[str]:
    """Return the lines for a stack with node pools of some machine types."""

    def pools_of(stack: str, project: Path) -> list[tuple[str, MachineType]]:
        assert (stack, project) == ("dev", Path("infra"))
        return [(name, MACHINE_TYPES[machine]) for name, machine in pools.items()]

    options = ("--stack=dev", "--project=infra", *arguments)
    assert main(("Qwen3-8B", *options), pools_of=pools_of) == 0
    return capsys.readouterr().out.splitlines()


def test_the_pools_of_a_stack_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    # g2-standard-4 has its GPU for less, so it is listed for its pools only.
    pools = {"big": "g2-standard-32", "cpu": "n2-standard-8", "same": "g2-standard-32"}
    lines = with_pools(capsys, "--context=4k", **pools)
    assert lines[1].endswith("POOLS")
    marked = [line.split()[0] for line in lines[2:] if line.endswith(" big, same")]
    assert marked == ["g2-standard-32"] * 2
    # Machines after the first twelve are listed for their pools, too.
    assert len([line for line in lines[2:-1] if not line.endswith(" big, same")]) == 10
    last = with_pools(capsys, "--context=4k", large="a3-highgpu-8g")[-2]
    assert (last.split()[0], last.split()[-1]) == ("a3-highgpu-8g", "large")


def test_a_stack_without_such_pools(capsys: pytest.CaptureFixture[str]) -> None:
    lines = with_pools(capsys, cpu="n2-standard-8")
    assert lines[-1] == "No node pool of dev surely serves it."


def test_the_command_reads_the_stack_of_a_project() -> None:
    words = [COMMAND, "model", "Qwen3-8B", "--stack=dev", "--project", CHECKOUT, "--context=8k"]
    done = subprocess.run(words, capture_output=True, check=True, text=True)
    pools = {
        line.split()[-1] for line in done.stdout.splitlines() if line.startswith("a2-highgpu-2g")
    }
    assert pools == {"a100"}
    words[3] = "--stack=none"
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Stacks: dev, prod, staging" in done.stderr


def test_a_model_that_is_not_known() -> None:
    done = subprocess.run([COMMAND, "model", "Qwen/Qwen3-9B"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"Did you mean Qwen/Qwen3.5-9B" in done.stderr


def test_a_folder_that_cannot_be_read_is_not_misspelled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "Qwen3-8"
    folder.mkdir()
    assert main([str(folder)]) == 2
    assert "Did you mean" not in capsys.readouterr().err
