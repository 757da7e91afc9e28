"""Stack files that settings accept: what the program then declares is refused by the proof, or taken by an API server."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pulumi
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.tools import toolchain

from tests.reliability import inputs
from tests.support import judged, recording


def try_all(folder: Path, count: int) -> int:
    """Try so many stack files; what failed is kept in the folder. Returns how many failed."""
    outcomes = Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        rehearsal = Rehearsal.of("served", Path(place))
        rehearsal.make()
        try:
            kwok.start(rehearsal, toolchain.ensure())
            client = judged.prepared(Api(Access(rehearsal.kubeconfig)))
            for number in range(1, -(-count // inputs.BATCH) + 1):
                for index, text in enumerate(inputs.stack_file_inputs(number)):
                    outcome, problem = judge(client, text)
                    outcomes[outcome] += 1
                    if problem:
                        (folder / f"served-{number}-{index}.yaml").write_text(
                            text, errors="backslashreplace"
                        )
                        print(f"batch {number}, input {index}: {problem[:500]}", flush=True)
                print(f"{outcomes.total():,} of {count:,}: {dict(outcomes)}", flush=True)
        finally:
            kwok.delete(rehearsal)
    return outcomes["failed"]


def judge(client: Client, text: str) -> tuple[str, str]:
    """What becomes of a stack file, and what is wrong with that."""
    if inputs.judge_stack_file(text) == "refused":
        return "refused", ""
    try:
        declared = recording.changed_stack("dev", inputs.parsed(text) or {})
    except pulumi.RunError:
        return "refused by the proof", ""
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    of_kubernetes = (each["inputs"] for each in declared if each["type"].startswith("kubernetes:"))
    refused = list(
        filter(None, judged.refusals(client, (each for each in of_kubernetes if "kind" in each)))
    )
    return ("failed", "; ".join(refused)) if refused else ("taken", "")
