"""What a run must never do with any input: a traceback, characters that a terminal or CI obeys, a comment that lies."""

from __future__ import annotations

import io
import json
import re
import sys
import time
import traceback
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import markdown_it
from ml_foundations.planning.__main__ import main as plan
from ml_foundations.planning.verdict.markdown import MARK

SECONDS, MEGABYTES = 6.0, 500
"""As long as an input may take, and as much memory: 2 s on the machine of docs/reliability.md, and this may be slower."""
_COMMENT = 65_536
_OBEYED = {"Cc", "Zl", "Zp", "Cs"}
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_COMMAND = re.compile(r"^\s*::|##\[", re.MULTILINE)
"""GitHub's runner obeys the first at the beginning of a line, the second anywhere in it."""
_OUR_HTML = re.compile(rf"({re.escape(MARK)}|</?details>|<br>|<summary>[\w ,]+</summary>|\s)*")
_OUR_TOKENS = {
    *("paragraph_open", "paragraph_close", "inline", "text", "softbreak", "strong_open"),
    *("strong_close", "bullet_list_open", "bullet_list_close", "list_item_open", "html_block"),
    *("list_item_close", "html_inline", "hardbreak"),
    *(f"{part}_{end}" for part in ("table", "thead", "tbody", "tr", "th", "td") for end in ("open", "close")),
}  # fmt: skip
_LIVE = re.compile(r"(?:https?|ftp)://|www\.|@\w", re.IGNORECASE)
"""What GitHub makes a link or a mention of."""
_UNEXPECTED = re.compile(r"an unexpected \w+ at")
"""How the last resort begins."""


@dataclass
class Meter:
    """The time and the memory that runs have taken."""

    seconds: float = 0.0
    megabytes: float = 0.0

    def __call__(self, run: Callable[[], Any]) -> Any:
        """Run something."""
        Path("/proc/self/clear_refs").write_text("5")  # forgets the most that it had so far
        began = time.process_time()
        try:
            return run()
        finally:
            self.seconds = max(self.seconds, time.process_time() - began)
            self.megabytes = max(self.megabytes, _most_memory())


@dataclass
class Printed:
    """What a command printed, and its exit code."""

    code: int
    output: str
    errors: str
    crash: str
    style: str


def _most_memory() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def run_plan(arguments: Sequence[str], standard_input: bytes, meter: Meter) -> Printed:
    """Run ``ml-foundations plan`` in this process."""
    output, errors = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", mode) for mode in ("strict", "backslashreplace")
    )
    read = io.TextIOWrapper(io.BytesIO(standard_input), "utf-8")
    code, crash = 0, ""
    with redirect_stdout(output), redirect_stderr(errors), mock.patch.object(sys, "stdin", read):
        try:
            code = meter(lambda: plan(arguments, prog="ml-foundations plan"))
        except SystemExit as end:
            # As Python does it.
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except BaseException as error:
            crash = crashed(error)
    style = arguments[arguments.index("--format") + 1]
    return Printed(code, _text(output), _text(errors), crash, style)


def crashed(error: BaseException) -> str:
    """Return an error with the last places of its traceback."""
    places = traceback.extract_tb(error.__traceback__)
    ours = [each for each in places if "ml_foundations" in each.filename][-3:]
    shown = (*ours, places[-1])
    where = " > ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in shown)
    return f"{type(error).__name__}: {str(error)[:200]!r} at {where}"


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def wrong_run(printed: Printed, codes: Sequence[int] = (0, 1, 2, 3, 4)) -> list[str]:
    """Return what is wrong about a run of ``plan``."""
    if printed.crash:
        return [printed.crash]
    wrong = [f"exit code {printed.code}"] * (printed.code not in codes)
    for name, text in (("stdout", printed.output), ("stderr", printed.errors)):
        wrong += [f"{name}: {problem}" for problem in wrong_text(text)]
    if printed.code == 2:
        lines = printed.errors.splitlines()
        others = [line for line in lines if not line.startswith("error: ")]
        wrong += [f"a line of stderr is no error: {line[:80]!r}" for line in others[:1]]
        wrong += ["exit code 2 without an error"] * (not lines)
    elif "error:" in printed.errors:
        wrong.append(f"an error with exit code {printed.code}: {printed.errors[:200]!r}")
    if printed.style == "json" and printed.output:
        wrong += wrong_json(printed.output)
    return wrong + (wrong_comment(printed.output) if printed.style == "markdown" else [])


def wrong_json(text: str) -> list[str]:
    """Return why a text is not JSON."""
    wrong: list[str] = []
    try:
        json.loads(text, parse_constant=lambda name: wrong.append(f"{name} is no JSON"))
    except ValueError as error:
        wrong.append(f"no JSON: {error}")
    return wrong


def wrong_text(text: str) -> list[str]:
    """Return what a terminal or CI would obey in a text."""
    wrong: list[str] = []
    for char in sorted(_obeyed(text)):
        at = text.index(char)
        wrong.append(f"the raw character {char!a} in {text[max(0, at - 40) : at + 20]!r}")
    if found := _COMMAND.search(text):
        wrong.append(f"a command of CI: {_around(text, found)!r}")
    if "Traceback" in text:
        wrong.append(f"a traceback: {text[-200:]!r}")
    if found := re.search(r"'[^'\n]*?([^'\n])\1{999}", text):
        cut = text[max(0, found.start() - 60) : found.start() + 5]
        wrong.append(f"a value that is not cut: {cut!r}")
    if found := _UNEXPECTED.search(text):
        wrong.append(f"an error that nobody expected: {text[found.start() :][:200]!r}")
    return wrong[:3]


def _around(text: str, found: re.Match[str]) -> str:
    return text[max(0, found.start() - 40) : found.end() + 20]


def _obeyed(text: str) -> set[str]:
    chars = set(text) - {"\n"}
    return {char for char in chars if unicodedata.category(char) in _OBEYED or _BIDI.match(char)}


def wrong_comment(text: str) -> list[str]:
    """Return what is wrong about a comment in Markdown."""
    if not text.startswith(MARK):
        return [f"a comment without its first line: {text[:60]!r}"]
    wrong = [f"a comment of {len(text):,} characters"] * (len(text) >= _COMMENT)
    if found := _LIVE.search(text):
        wrong.append(f"a link or a mention: {_around(text, found)!r}")
    rows = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    wrong += ["a row with more cells than others"] * any(count not in (4, 5) for count in rows)
    tokens = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    for token in [each for outer in tokens for each in (outer, *(outer.children or ()))]:
        is_ours = not token.type.startswith("html") or _OUR_HTML.fullmatch(token.content)
        if token.type not in _OUR_TOKENS or not is_ours:
            wrong.append(f"{token.type} in a comment: {token.content[:80]!r}")
    return wrong[:3]


def wrong_page(page: str, template: str, secret: str) -> list[str]:
    """Return what is wrong about the page of a rehearsal."""
    begin = '<script id="data" type="application/json">'
    island = page.partition(begin)[2].partition("</script>")[0]
    wrong = wrong_json(island)
    wrong += [f"the raw character {char!r} in the page" for char in sorted(_obeyed(page))]
    for mark in ("<script", "</script", "<style", "<img"):
        if page.count(mark) != template.count(mark):
            wrong.append(f"{mark} in the page's data")
    wrong += ["a secret in the page"] * (secret in page)
    return wrong
