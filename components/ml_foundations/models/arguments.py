"""Arguments as argparse and vLLM's parser read them: aliases, prefixes, values and JSON.

Source: vllm 0.11 to 0.33, utils/argparse_utils.py, and Python's argparse, which accepts a unique
prefix of a long name and takes the last of repeated arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.reading import ReadError, embedded_yaml
from ml_foundations.kubernetes.spelling import nearest_names
from ml_foundations.kubernetes.trees import is_mapping
from ml_foundations.models.command import Release, Word, release_of
from ml_foundations.models.reasons import Cause, Reason, refused, undetermined, warning

_UNITS = {
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}
_INVERSES = {"enable": "disable", "disable": "enable"}
_HAS_INVERSES: Release = (0, 33, 0)
"""From this release, --disable-x switches --enable-x off, and the reverse (EnableDisableAction)."""
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Argument(NamedTuple):
    """A row of ``catalog/server_arguments.csv``; the name has no dashes at its beginning."""

    name: str
    value: str
    effect: str
    field: str
    since: Release
    until: Release

    def is_of(self, release: Release | None) -> bool:
        """Return whether a release has it; one that is not known may have it."""
        return release is None or self.since <= release < self.until

    def accepts(self, value: Any, release: Release) -> list[str]:
        """Return the accepted values nearest to one that is refused, else nothing."""
        listed = [row for row in rows("server_values.csv") if row["argument"] == self.name]
        accepted = [row["value"] for row in listed if _since(row) <= release]
        if not accepted or str(value).lower() in (*accepted, "", "none"):
            return []
        return (
            accepted if len(accepted) < 7 else nearest_names(str(value), accepted) or accepted[:3]
        )


def _since(row: Mapping[str, str]) -> Release:
    return release_of(row["since"] or "0.0.0")


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
        self._program = program
        self._options: list[tuple[str, tuple[Argument, bool]]] = []
        """Names with dashes, their arguments, and whether the name switches these on."""
        for row in rows("server_arguments.csv"):
            if row["program"] != program:
                continue
            name = row["argument"]
            until = release_of(row["until"] or "9999.0.0")
            argument = Argument(name, row["value"], row["effect"], row["field"], _since(row), until)
            self.arguments[name] = argument
            names = (f"--{name}", *row["short"].split())
            self._options += [(option, (argument, True)) for option in names]
            if argument.value == "switch":
                self._options.insert(0, (f"--no-{name}", (argument, False)))
            verb, _, rest = name.partition("-")
            if argument.value == "switch" and verb in _INVERSES:
                paired = argument._replace(since=max(argument.since, _HAS_INVERSES))
                self._options.insert(0, (f"--{_INVERSES[verb]}-{rest}", (paired, False)))

    def _options_of(self, release: Release | None) -> dict[str, tuple[Argument, bool]]:
        return {name: option for name, option in self._options if option[0].is_of(release)}

    def parse(self, words: Sequence[Word], release: Release | None = None) -> Parsed:
        """Return the arguments of a command line of a release, without the program.

        Raises:
            UnplacedError: A word cannot be read with certainty, or ends the program.
        """
        parsed = Parsed()
        left = list(reversed(words))
        while left:
            word = left.pop()
            if word.text is None:
                raise UnplacedError(undetermined(Cause.UNKNOWN_ARGUMENT, "a value", word.path))
            if not _is_option(word):
                parsed.positional.append(Given(word.text, word.path))
                continue
            # vLLM itself splits -O3, and argparse other names of one letter.
            text = re.sub(r"^(-[A-Za-z])(?=\d)", r"\1=", word.text)
            name, equals, attached = text.partition("=")
            # The value of --name.key is a part of a JSON value.
            name, dot, _ = name.partition(".")
            if name.startswith("--"):
                name = name.replace("_", "-")
            argument, is_on = self._find(name, word, release)
            if dot and argument.value != "json":
                raise UnplacedError(undetermined(Cause.UNKNOWN_ARGUMENT, word.text, word.path))
            if not equals:
                parsed.given[argument.name] = _following(argument, word, left, is_on=is_on)
            elif argument.value != "switch":
                parsed.given[argument.name] = Given(attached, word.path)
            else:
                is_off = attached.lower() == "false" and self._program == "vllm"
                flag = f"--{'no-' if is_off else ''}{argument.name}"
                # Before 0.11, some switches of vLLM had a value.
                reason = refused if release else warning
                raise UnplacedError(reason(Cause.SWITCH_VALUE, word.text, flag, word.path))
        return parsed

    def _find(self, name: str, word: Word, release: Release | None) -> tuple[Argument, bool]:
        """Return an argument, and whether it is switched on."""
        options = self._options_of(release)
        names = [option for option in options if option.startswith(name)]
        if name in options:
            return options[name]
        if name.startswith("--") and len(names) == 1:
            return options[names[0]]
        argument, _ = self._options_of(None).get(name, (None, False))
        if argument is None or release is None:
            raise UnplacedError(undetermined(Cause.UNKNOWN_ARGUMENT, word.text, word.path))
        is_early = release < argument.since
        bound = ".".join(map(str, argument.since if is_early else argument.until))
        use = f"{bound} or later" if is_early else f"a release before {bound}"
        tag = ".".join(map(str, release))
        raise UnplacedError(refused(Cause.OF_RELEASE, word.text, tag, word.path, use=use))


def _is_option(word: Word) -> bool:
    text = word.text or ""
    return len(text) > 1 and text[0] == "-" and not _NEGATIVE_NUMBER.fullmatch(text)


def _following(argument: Argument, word: Word, left: list[Word], *, is_on: bool) -> Given:
    """Return the value of an argument without =, and take its words from what is left."""
    if argument.value == "switch":
        return Given(is_on, word.path)
    if argument.value not in ("several", "optional"):
        if not left or _is_option(left[-1]):
            raise UnplacedError(refused(Cause.INVALID_VALUE, word.text, "a value", word.path))
        return Given(*left.pop())
    values: list[str | None] = []
    while left and not _is_option(left[-1]) and not (values and argument.value == "optional"):
        if values and left[-1].text is None:
            break  # in a script, it may be several words
        values.append(left.pop().text)
    return Given(values, word.path)


def with_config(words: Sequence[Word], files: Mapping[str, str]) -> Sequence[Word]:
    """Return a command line of vLLM with the arguments of its ``--config`` before its own.

    Raises:
        UnplacedError: The file is not known or cannot be read.
    """
    for word in words:
        if (word.text or "").startswith("--config="):
            raise UnplacedError(undetermined(Cause.CONFIG_FORM, word.text, word.path))
    starts = [i for i, word in enumerate(words[:-1]) if word.text == "--config"]
    if not starts:
        return words
    start = starts[0]
    path = words[start + 1]
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
    arguments: list[Word] = []
    for key, value in config.items():
        values = cast("list[Any]", value if isinstance(value, list) else [value])
        if value is not False and values:
            texts = [json.dumps(item) if is_mapping(item) else str(item) for item in values]
            texts = [] if value is True else texts
            arguments += [Word(text, path.path) for text in (f"--{key}", *texts)]
    return [*words[:first], *arguments, *words[first:start], *words[start + 2 :]]


def whole_number(text: str) -> int:
    """Return a number as vLLM reads lengths: 32k is 32,000, 32K is 32,768, and 1.5k is 1,500.

    Without a unit, it is a number as Python reads it, such as 32_768 or +8192.

    Raises:
        ValueError: The text has another form.
    """
    matched = re.fullmatch(r"(\d+)(?:\.(\d+))?([kmgtKMGT])", text.strip())
    if not matched:
        return int(text)
    whole, decimals, unit = matched.groups()
    if decimals is None:
        return int(whole) * _UNITS[unit]
    if unit.isupper():
        raise ValueError(text)
    return int(f"{whole}{decimals}") * _UNITS[unit] // 10 ** len(decimals)
