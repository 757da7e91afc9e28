"""Check the types in the Python blocks of the pages: ``python -m tools.blocks``.

A page is one program: its blocks in their order. A block may use names of the blocks above it.
A page defines further names in a hidden block, which is an HTML comment:

    <!-- python
    from ml_foundations import GkeCluster

    cluster = GkeCluster("ml", project="my-project", location="us-central1")
    -->
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

from tools import ROOT

BLOCK = re.compile(
    r"^( *)(?:```python\n(.*?)^\1```|<!-- python\n(.*?)^\1-->)$", re.MULTILINE | re.DOTALL
)


def pages() -> list[Path]:
    """Return the pages with programs; the pages of the components are generated."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def program(text: str) -> str:
    """Return the program of a page. Each line of it has the number that it has in the page."""
    lines: list[str] = []
    for block in BLOCK.finditer(text):
        first_line = text.count("\n", 0, block.start()) + 1
        lines += [""] * (first_line - len(lines))
        lines += dedent(block[2] or block[3] or "").splitlines()
    return "\n".join([*lines, ""])


def check(files: Iterable[Path], root: Path = ROOT) -> list[str]:
    """Return the type errors of pages, each with its page, line and column.

    Args:
        files: The pages.
        root: The folder that the names of pages are relative to.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file in files:
            module = folder / file.relative_to(root).with_suffix(".py")
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(program(file.read_text()))
        settings = {
            "typeCheckingMode": "standard",
            "pythonVersion": "3.11",
            "extraPaths": [str(ROOT / "components")],
        }
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        command = [
            sys.executable,
            "-m",
            "pyright",
            "-p",
            name,
            "--pythonpath",
            sys.executable,
            "--outputjson",
        ]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        problems = json.loads(output)["generalDiagnostics"]
        return [
            _sentence(problem, folder) for problem in problems if problem["severity"] == "error"
        ]


def _sentence(problem: dict, folder: Path) -> str:
    page = Path(problem["file"]).relative_to(folder).with_suffix(".md")
    start = problem["range"]["start"]
    place = f"{page}:{start['line'] + 1}:{start['character'] + 1}"
    return f"{place}: {problem['message']} ({problem.get('rule', 'syntax')})"


def main() -> None:
    """Print the type errors of all pages; the exit code is 1 if there are any."""
    if errors := check(pages()):
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
