"""A trial of one input: its chances, the files that it makes, and what is wrong about the outcome."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.reliability import checks, odd
from tests.support.checkout import COMMAND

SECRET = "s3cr3t-of-the-machine"
"""What no output may have: it is in what links lead to, and in the environment of pods."""
_OUTCOMES = {0: "fits", 1: "cannot fit", 2: "refused", 3: "undetermined", 4: "nothing to judge"}
_BY_COMMAND = 40
"""Every so many inputs of ``plan`` are also given to the real command."""
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass
class Trial:
    """An input that is being tried."""

    draw: Random
    folder: Path
    meter: checks.Meter = field(default_factory=checks.Meter)
    outcome: str = "failed"
    wrong: list[str] = field(default_factory=list[str])
    command: tuple[str, ...] = ()

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def write(self, path: str, documents: list[Any], broken: float = 0.0) -> None:
        """Write documents into a file, whose text may be broken."""
        (self.folder / path).write_bytes(self.encoded(documents, broken))

    def encoded(self, documents: list[Any], broken: float = 0.0) -> bytes:
        """Return the content of a file, as people, kubectl and programs write it."""
        text = self._dumped(documents)
        while self.chance(broken):
            text = self.draw.choice([*odd.TRICKS.values()])(text, self.draw)
            broken /= 3
        return text.encode(errors="surrogatepass")

    def _dumped(self, documents: list[Any]) -> str:
        plain, flow = self.chance(0.5), self.draw.choice([None, False])
        if self.chance(0.2):
            listed = {"kind": "List", "apiVersion": "v1", "items": documents}
            given = listed if len(documents) > 1 else documents[0]
            return json.dumps(given, ensure_ascii=plain, indent=self.draw.choice([None, 2]))
        style = {"allow_unicode": plain, "default_flow_style": flow, "sort_keys": False}
        try:
            return yaml.dump_all(documents, Dumper=_DUMPER, **style)
        except UnicodeEncodeError:  # for half of a character
            return yaml.safe_dump_all(documents, **style)

    def file_name(self) -> str:
        """Return a name that a file may have."""
        plain = odd.text(self.draw, "a").replace("/", "|").replace("\0", "0")
        name = plain.encode(errors="replace")
        return os.fsdecode(name[:150] + self.draw.choice([b"", b"", b"\xff"]))

    def plan(self, *arguments: str, standard_input: bytes = b"") -> None:
        """Judge files by ``plan`` in this process, and now and then by the real command."""
        style = self.draw.choice(["text", "text", "json", "markdown", "markdown"])
        self.command = (*arguments, "--format", style)
        printed = checks.run_plan(self.command, standard_input, self.meter)
        self.outcome = _OUTCOMES.get(printed.code, "failed")
        self.wrong += checks.wrong_run(printed)
        self.wrong += ["it prints what a link leads to"] * (SECRET in str(printed))
        if self.draw.randrange(_BY_COMMAND) == 0 and not self.wrong:
            self._require_same(printed, standard_input)

    def _require_same(self, printed: checks.Printed, standard_input: bytes) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [COMMAND, "plan", *self.command]
        words = "".join(map(str, command))
        if words.encode(errors="replace").decode() != words:
            return  # no process can be given a lone surrogate
        environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
        done = subprocess.run(
            command, input=standard_input, capture_output=True, check=False, env=environment
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.meter.seconds = max(self.meter.seconds, took)
        seen = (done.returncode, done.stdout.decode(), done.stderr.decode())
        # A link may lead to what only this process has, such as /proc/self/fd.
        is_elsewhere = "No such file" in seen[2] and seen[0] == printed.code
        if not is_elsewhere and seen != (printed.code, printed.output, printed.errors):
            self.wrong.append(f"the command differs: {str(seen)[:300]} is not {printed}")
