"""Stack files that settings accept: what the program then declares is refused by the proof, or taken by an API server."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pulumi
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools import toolchain

from tests.reliability import hostile
from tests.support import judged, recording
from tests.support.own_replica import own_replica


def try_all(folder: Path, count: int) -> int:
    """Try so many stack files; what failed is kept in the folder. Returns how many failed."""
    outcomes = Counter[str]()
    tools = toolchain.ensure()
    with tempfile.TemporaryDirectory() as place, own_replica(tools, Path(place)) as replica:
        client = judged.prepared(Api(Access(replica.kubeconfig)))
        for number in range(count):
            file = folder / f"served-{number}.yaml"
            file.write_bytes(hostile.stack_file(Random(f"served-{number}")))
            outcome, problem = judge(client, file)
            outcomes[outcome] += 1
            if problem:
                print(f"{file}: {problem[:500]}", flush=True)
            else:
                file.unlink()
        print(f"{outcomes.total():,} of {count:,}: {dict(outcomes)}", flush=True)
    return outcomes["failed"]


def judge(client: Client, file: Path) -> tuple[str, str]:
    """What becomes of a stack file, and what is wrong with that."""
    try:
        declared = recording.changed_stack("dev", hostile.parse_stack_file(file))
    except RehearsalError:
        return "refused", ""
    except pulumi.RunError:
        return "refused by the proof", ""
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    of_kubernetes = (each["inputs"] for each in declared if each["type"].startswith("kubernetes:"))
    manifests = (each for each in of_kubernetes if "kind" in each)
    refused = [words for words in judged.refusals(client, manifests) if words]
    return ("failed", "; ".join(refused)) if refused else ("taken", "")
