"""The command that prints the ways to serve a model."""

import json
import subprocess
import sysconfig
from pathlib import Path

import pytest
from ml_foundations.models.__main__ import main

COMMAND = Path(sysconfig.get_path("scripts"), "ml-foundations")
LLAMA = "meta-llama/Llama-3.3-70B-Instruct"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """Return the words of each line."""
    main(arguments)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_ways_are_printed_cheapest_first(capsys: pytest.CaptureFixture[str]) -> None:
    title, columns, *rows = printed(capsys, LLAMA, "--context", "32K", "--requests=4")
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


def test_a_folder_is_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["None"]}))
    assert main([str(tmp_path)]) == 1
    assert "No machine of the catalog surely serves" in capsys.readouterr().out


def test_a_model_that_is_not_known() -> None:
    done = subprocess.run([COMMAND, "model", "Qwen/Qwen3-9B"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"Did you mean Qwen/Qwen3-4B" in done.stderr
