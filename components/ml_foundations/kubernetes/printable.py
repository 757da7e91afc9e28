r"""The one place through which text leaves for people: a terminal, a log, a comment, Pulumi.

Names, values and files are written by others. What a reader would obey is shown instead, as
Python's ``repr`` does: an escape sequence of a terminal is ``\x1b[31m``.
"""

import argparse
import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from typing_extensions import override

_COMMAND = re.compile(
    r"(?:^|(?<=\s))::"  # GitHub, at the start of a line; any word may come there when it is wrapped
    r"|##(?=\w*\[)"  # GitHub and Azure Pipelines, anywhere in a line
    r"|<(?=\{%)",  # a colour of Pulumi, whose engine ends if it does not know it
    re.MULTILINE,
)
"""The beginning of a command (actions/runner, ActionCommand.cs; pulumi, colors.go)."""
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that count as printable and show nothing. U+FE0F makes an emoji of a sign."""
_LONGEST_WORD = 400
"""More than the longest name, key or image that Kubernetes accepts."""
_LONG_WORD = re.compile(rf"(\S{{{_LONGEST_WORD}}})\S+")


def text(given: str) -> str:
    """Return a text of one or more lines in which nothing is a command.

    Control characters, line separators, and marks that are invisible or change the direction of
    what follows are shown. Each newline stays, so a value from others goes through ``line`` first.
    """
    shown = "\n".join(map(_escaped, given.expandtabs().split("\n")))
    return _COMMAND.sub(lambda match: f"\\x{ord(match[0][0]):x}{match[0][1:]}", shown)


def line(given: str) -> str:
    """Return a text as one line in which nothing is a command, and no word is very long."""
    return text(_LONG_WORD.sub(r"\1…", _escaped(given)))


def lines(given: Iterable[str]) -> str:
    """Return a line for each text."""
    return "\n".join(map(line, given))


def _escaped(given: str) -> str:
    # A space is the only separator that is printable.
    if given.isprintable() and given.isascii():
        return given
    escaped: list[str] = []
    for char in given:
        is_visible = char.isprintable() and not _INVISIBLE.match(char)
        escaped.append(char if is_visible else char.encode("unicode_escape").decode())
    return "".join(escaped)


def as_json(value: Any, **options: Any) -> str:
    """Return a value as JSON in which nothing is a command."""
    return re.sub(r"##(?=\w*\[)", r"\\u0023#", json.dumps(value, indent=2, **options))


class Parser(argparse.ArgumentParser):
    """A parser of arguments, such as names of files, whose errors are printable."""

    @override
    def error(self, message: str) -> NoReturn:
        """Print the usage and an error in one line, and end the program with status 2."""
        super().error(line(message))
