"""The result files of long comparisons: each has the command that wrote it, the day and what it printed."""

from datetime import UTC, datetime
from pathlib import Path


def write(folder: Path, name: str, command: str, text: str) -> None:
    """Write a result file, which replaces the result of an earlier run.

    Args:
        folder: The package of the command. Its results are in the folder ``results``.
        name: What was compared, such as ``rules``.
        command: The command that repeats the run.
        text: What the command printed.
    """
    today = datetime.now(UTC).date().isoformat()
    file = folder / "results" / f"{name}.md"
    file.write_text(f"On {today}, `{command}` printed:\n\n{text}\n")
