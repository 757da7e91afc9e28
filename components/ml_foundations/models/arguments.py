"""Arguments as argparse and vLLM's parser read them: aliases, prefixes, values and JSON.

Source: vllm 0.11 to 0.33, utils/argparse_utils.py, and Python's argparse, which accepts a unique
prefix of a long name and takes the last of repeated arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.reading import ReadError, embedded_yaml
from ml_foundations.kubernetes.trees import is_mapping
from ml_foundations.models.command import Word
from ml_foundations.models.reasons import Cause, Reason, refused, undetermined

_UNITS = {
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Argument(NamedTuple):
    """A row of ``catalog/server_arguments.csv``; the name has no dashes at its beginning."""

    name: str
    value: str
    effect: str
    field: str


class Given(NamedTuple):
    """A value that an argument has, None if it is not known yet, and its field."""

    value: Any
    path: str


@dataclass
class Parsed:
    """The last value of each argument, and the words that belong to none."""

    given: dict[str, Given] = field(default_factory=dict[str, Given])
    positional: list[Given] = field(default_factory=list[Given])
    reasons: list[Reason] = field(default_factory=list[Reason])


class UnplacedError(Exception):
    """An argument that ends the program, or after which nothing can be read with certainty."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Parser:
    """Reads the command lines of a program in ``catalog/server_arguments.csv``."""

    def __init__(self, program: str) -> None:
        self.arguments: dict[str, Argument] = {}
        self._options: dict[str, tuple[Argument, bool]] = {}
        """Arguments by their names with dashes, and whether the name switches them on."""
        for row in rows("server_arguments.csv"):
            if row["program"] != program:
                continue
            argument = Argument(row["argument"], row["value"], row["effect"], row["field"])
            self.arguments[argument.name] = argument
            for name in (f"--{argument.name}", *row["short"].split()):
                self._options[name] = argument, True
            if argument.value == "switch":
                self._options.setdefault(f"--no-{argument.name}", (argument, False))

    def parse(self, words: Sequence[Word]) -> Parsed:
        """Return the arguments of a command line, without the program.

        Raises:
            UnplacedError: A word cannot be read with certainty, or ends the program.
        """
        parsed = Parsed()
        nested: dict[str, Given] = {}
        left = list(reversed(words))
        while left:
            word = left.pop()
            if word.text is None:
                raise UnplacedError(undetermined(Cause.UNKNOWN_ARGUMENT, "a value", word.path))
            if not _is_option(word):
                parsed.positional.append(Given(word.text, word.path))
                continue
            name, equals, attached = word.text.partition("=")
            if name.startswith("--"):
                name, dot, keys = name.partition(".")
                name = f"{name.replace('_', '-')}{dot}{keys}"
            if "." in name:
                _nest(nested, name, Word(attached, word.path) if equals else _next(left, word))
                continue
            argument, is_on, joined = self._find(name, word)
            if joined:
                parsed.reasons.append(undetermined(Cause.JOINED_VALUE, word.text, word.path))
            if not equals and not joined:
                parsed.given[argument.name] = _following(argument, word, left, is_on=is_on)
            elif argument.value != "switch":
                parsed.given[argument.name] = Given(joined or attached, word.path)
            else:
                raise UnplacedError(refused(Cause.INVALID_VALUE, word.text, name, word.path))
        for name, given in nested.items():
            argument, *_ = self._find(name, Word(name, given.path))
            if argument.value != "json":
                raise UnplacedError(undetermined(Cause.UNKNOWN_ARGUMENT, name, given.path))
            parsed.given[argument.name] = given
        return parsed

    def _find(self, name: str, word: Word) -> tuple[Argument, bool, str]:
        """Return an argument, whether it is switched on, and a value joined to a short name."""
        if name in self._options:
            return *self._options[name], ""
        if name.startswith("--"):
            names = [option for option in self._options if option.startswith(name)]
            if len(names) == 1:
                return *self._options[names[0]], ""
        else:
            for short in sorted(self._options, key=len, reverse=True):
                if short[1] != "-" and name.startswith(short):
                    # vLLM itself splits -O3; argparse splits no names of two letters.
                    return *self._options[short], name.removeprefix(short)
        raise UnplacedError(undetermined(Cause.UNKNOWN_ARGUMENT, word.text, word.path))


def _is_option(word: Word) -> bool:
    text = word.text or ""
    return len(text) > 1 and text[0] == "-" and not _NEGATIVE_NUMBER.fullmatch(text)


def _following(argument: Argument, word: Word, left: list[Word], *, is_on: bool) -> Given:
    """Return the value of an argument without =, and take its words from what is left."""
    if argument.value == "switch":
        return Given(is_on, word.path)
    if argument.value not in ("several", "optional"):
        return Given(*_next(left, word))
    values: list[str | None] = []
    while left and not _is_option(left[-1]) and not (values and argument.value == "optional"):
        values.append(left.pop().text)
    return Given(values, word.path)


def _next(left: list[Word], word: Word) -> Word:
    if not left or _is_option(left[-1]):
        raise UnplacedError(refused(Cause.INVALID_VALUE, word.text, "a value", word.path))
    return left.pop()


def _nest(nested: dict[str, Given], name: str, value: Word) -> None:
    """Add the value of ``--name.key.key``, whose name ends in + for a list."""
    name, *keys = name.removesuffix("+").split(".")
    tree: dict[str, Any] = nested.setdefault(name, Given({}, value.path)).value
    for key in keys[:-1]:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            raise UnplacedError(undetermined(Cause.UNKNOWN_ARGUMENT, name, value.path))
        tree = cast("dict[str, Any]", below)
    tree[keys[-1]] = value.text


def with_config(words: Sequence[Word], files: Mapping[str, str]) -> Sequence[Word]:
    """Return a command line of vLLM with the arguments of its ``--config`` before its own.

    Raises:
        UnplacedError: The file is not known or cannot be read.
    """
    # Only "--config FILE" is replaced by the file's arguments, not "--config=FILE".
    starts = [i for i, word in enumerate(words) if (word.text or "").startswith("--config=")]
    starts += [i for i, word in enumerate(words) if word.text == "--config"]
    if not starts:
        return words
    start = starts[0]
    path = words[start + 1] if start + 1 < len(words) else words[start]
    doubt = undetermined(Cause.UNREADABLE_CONFIG, path.text, path.path)
    text = files.get(path.text or "")
    if len(starts) > 1 or text is None:
        raise UnplacedError(doubt)
    try:
        config = embedded_yaml(text)
    except ReadError:
        raise UnplacedError(doubt) from None
    if not is_mapping(config):
        raise UnplacedError(doubt)
    first = 0 if _is_option(words[0]) else 1
    arguments = _config_words(config, path.path)
    return [*words[:first], *arguments, *words[first:start], *words[start + 2 :]]


def _config_words(config: Mapping[str, Any], path: str) -> Iterator[Word]:
    for key, value in config.items():
        if value is False or value == []:
            continue
        yield Word(f"--{key}", path)
        if isinstance(value, list):
            yield from (Word(str(item), path) for item in cast("list[Any]", value))
        elif value is not True:
            yield Word(json.dumps(value) if is_mapping(value) else str(value), path)


def whole_number(text: str) -> int:
    """Return a number as vLLM reads lengths: 32k is 32,000, 32K is 32,768, and 1.5k is 1,500.

    Raises:
        ValueError: The text has another form.
    """
    matched = re.fullmatch(r"(-?\d+)(?:\.(\d+))?([kmgtKMGT])?", text.strip())
    if not matched:
        raise ValueError(text)
    whole, decimals, unit = matched.groups()
    if decimals is None:
        return int(whole) * _UNITS.get(unit or "", 1)
    if unit is None or unit.isupper():
        raise ValueError(text)
    return int(f"{whole}{decimals}") * _UNITS[unit] // 10 ** len(decimals)
