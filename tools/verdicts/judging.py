"""Judge cases with the package that is on the path, as one commit has it.

    python judging.py CASES JUDGED

It uses only what every version has: the command ``plan``, and ``judge_program``.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ml_foundations.planning.__main__ import main as plan
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.program import judge_program


def main(cases: str, judged: str) -> None:
    """Write what each case comes to, one JSON object a line."""
    with Path(judged).open("w") as file, tempfile.TemporaryDirectory() as folder:
        for line in Path(cases).read_text().splitlines():
            name, is_program, parts = json.loads(line)
            try:
                said = proved(parts) if is_program else planned(parts, Path(folder))
            except Exception as error:
                said = {"text": f"{type(error).__name__}: {error}"}
            file.write(json.dumps({"name": name, "said": said}) + "\n")


def proved(parts: list[Any]) -> dict[str, str]:
    """Return what the proof says of a program."""
    verdicts = judge_program([(type_, inputs) for type_, inputs in parts])
    tree = json.dumps(report.as_json(verdicts), default=str)
    return {"text": report.as_text(verdicts), "json": tree}


def planned(parts: list[Any], folder: Path) -> dict[str, str]:
    """Return what ``plan`` prints about manifests in each of its formats."""
    file = folder / "case.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": parts}))
    return {style: _printed(["--format", style, str(file)], folder) for style in ("text", "json")}


def _printed(arguments: list[str], folder: Path) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = plan(arguments)
    return f"{output.getvalue()}exit code {code}".replace(str(folder), "")


if __name__ == "__main__":
    main(*sys.argv[1:])
