"""Check a commit message, as the ``commit-msg`` hook of ``.pre-commit-config.yaml``.

python -m tools.commit_message FILE
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

SUBJECT = re.compile(r"[a-z]+: [a-z]\S*( \S+)+")
LONGEST_SUBJECT = 72
FEWEST_BODY_LINES = 2
MOST_BODY_LINES = 6


def problems(message: str) -> Iterator[str]:
    """Yield what STYLE.md does not allow in a commit message."""
    lines = [line.rstrip() for line in message.strip().splitlines() if not line.startswith("#")]
    subject, blank, *body = [*lines, "", ""] if len(lines) < 2 else lines
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return
    if not SUBJECT.fullmatch(subject) or subject.endswith("."):
        yield f"begin with 'area: imperative summary', without a full stop, not {subject!r}"
    if len(subject) > LONGEST_SUBJECT:
        yield f"shorten the summary to {LONGEST_SUBJECT} characters: it has {len(subject)}"
    if blank:
        yield "leave the second line empty"
    text = [line for line in body if line and not re.match(r"[A-Z][\w-]+: ", line)]
    if not FEWEST_BODY_LINES <= len(text) <= MOST_BODY_LINES:
        yield f"say why in {FEWEST_BODY_LINES} to {MOST_BODY_LINES} lines: there are {len(text)}"


def main() -> None:
    """Print the problems of the message in the file that the argument names, and fail if any."""
    violations = list(problems(Path(sys.argv[1]).read_text()))
    sys.exit("\n".join(f"commit message: {problem}" for problem in violations) if violations else 0)


if __name__ == "__main__":
    main()
