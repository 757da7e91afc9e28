"""Batches of cases on control planes, one after the other; answers are kept, so that a run goes on where it was."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ml_foundations.rehearsal.tools import groups

from tests.differential import control_plane
from tests.differential.schema import client, openapi
from tests.differential.schema.generator import case, pod_specs
from tests.differential.schema.openapi import Schema
from tests.differential.schema.oracle import Oracle, Run

Object = dict[str, Any]
HERE = Path(__file__).parent
ASKING = ("client.py", "oracle.py", "wanted.py", "../control_plane.py")
"""The modules that decide how cases are tried."""
VERSION = groups.KUBERNETES.pinned("k8s.io/kubernetes")
BATCH = 120


class Runs:
    """The answers so far, in a folder: a file for each batch, found case by case."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._asking = b"".join((HERE / name).read_bytes() for name in ASKING) + VERSION.encode()
        self._known: dict[str, list[Object]] = {}
        for file in folder.glob("batch-*.json"):
            self._known |= json.loads(file.read_text())

    def schema(self) -> Schema:
        """What the API server of this version publishes, asked once."""
        file = self._folder / f"openapi-{VERSION}.json"
        if not file.exists():
            with control_plane.running(self._folder) as rehearsal:
                asyncio.run(_write_schema(rehearsal, file))
        return openapi.load(file)

    def batch(self, number: int) -> list[tuple[list[Object], list[Run]]]:
        """The cases of a batch, and what became of each in two orders."""
        schema = self.schema()
        cases = [case(schema, number * BATCH + index) for index in range(BATCH)]
        return list(zip(cases, self.of(cases, f"batch-{number}"), strict=True))

    def of(self, cases: Sequence[list[Object]], name: str) -> list[list[Run]]:
        """What became of some cases: as it was kept, else as it is now."""
        missing = [documents for documents in cases if self._key(documents) not in self._known]
        if missing:
            new = {
                self._key(documents): [asdict(run) for run in runs]
                for documents, runs in zip(missing, self.try_out(missing), strict=True)
            }
            self._known |= new
            unfinished = self._folder / f"{name}.part"
            unfinished.write_text(json.dumps(new))
            unfinished.replace(self._folder / f"{name}-{self._key(missing[0])}.json")
        return [[Run(**run) for run in self._known[self._key(documents)]] for documents in cases]

    def try_out(self, cases: Sequence[list[Object]]) -> list[tuple[Run, Run]]:
        """Run cases on a control plane of their own."""
        schema = self.schema()
        with control_plane.running(self._folder) as rehearsal:
            return asyncio.run(_run(rehearsal, schema, cases))

    def _key(self, documents: list[Object]) -> str:
        return hashlib.sha256(self._asking + json.dumps(documents).encode()).hexdigest()[:16]


async def _write_schema(rehearsal: Any, file: Path) -> None:
    async with client.connect(rehearsal) as connected:
        file.write_text(json.dumps(await connected.schema(), separators=(",", ":")))


async def _run(
    rehearsal: Any, schema: Schema, cases: Sequence[list[Object]]
) -> list[tuple[Run, Run]]:
    async with client.connect(rehearsal) as connected:
        return await Oracle(connected, schema).run(cases, [*map(_reordered, cases)])


def _reordered(documents: list[Object]) -> list[Object]:
    """The workloads in another order: the last one first, and the others shuffled, always alike."""
    workloads = [document for document in documents if any(pod_specs(document))]
    others = [document for document in documents if not any(pod_specs(document))]
    rest = random.Random(json.dumps(documents)).sample(workloads[:-1], len(workloads) - 1)
    return [*others, *workloads[-1:], *rest]
