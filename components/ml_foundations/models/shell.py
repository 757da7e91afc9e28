"""The programs that a shell script surely starts, with their words and variables.

A program changes neither variables nor the commands after it. Only builtins and keywords do, and
reading ends at the first whose effect is not certain. Sources: POSIX.1-2024, XCU 2; bash 5.2.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile, takewhile
from typing import NamedTuple

UNKNOWN = "\ufdd0"
"""A part that is not known. Like the marks below, it is a noncharacter, which no text has."""
_QUOTED = "\ufdd1"
_BREAK = "\ufdd2"

_NAME = r"[A-Za-z_]\w*"
_EXPANSION = (
    rf"\$(?:{_NAME}|[0-9?!$#]|\{{(?!\w+:?=)(?:[^{{}}'\"`\\]|\$\{{{_NAME}\}})+\}}"
    rf"|\(\((?:[\w\s$*/%{{}}:{UNKNOWN}]|[+-](?![+-]))+\)\)"
    r"|\((?!\()(?:[^()'\"`\\]|'[^']*'|\"[^\"`\\()]*\")*\))"
)
"""A parameter, an arithmetic expression that assigns nothing, or the output of a command."""
_IN_QUOTES = re.compile(rf"\\([$`\"\\\n])|({_EXPANSION})")
_PIECE = re.compile(
    rf"'([^']*)'|\"((?:[^\"\\`$]|\\.|{_EXPANSION})*)\"|\\(.)|({_EXPANSION})|([^\s'\"\\$`;&|<>()]+)",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"(?P<comment>#[^\n]*)|(?P<redirection>(?:\d*|&)(?:>>|>\||>&?|<&?(?=[ /\d]))(?!\())"
    rf"|(?P<operator>&&|\|\||[;&|\n])|(?P<word>(?:{_PIECE.pattern})+)"
    r"|(?P<blank>[ \t]+)|(?P<unread><<|\$?.)",
    re.DOTALL,
)
_PARAMETER = re.compile(rf"\$\{{?({_NAME})(?:(:?-)(.*?))?\}}?", re.DOTALL)
_ASSIGNMENT = re.compile(rf"({_NAME})=(.*)", re.DOTALL)
_PATTERN = re.compile(r"[*?\[{~]")
_SET_ELSEWHERE = re.compile(
    r"(LWS|JOB|JOBSET|PET|KUBERNETES|RAY|KUBERAY|POD|MASTER|NVIDIA|CUDA|VLLM|HF)_\w+"
    r"|\w*(RANK|INDEX|HOST|HOSTNAME|WORLD_SIZE|HOME|PATH)|\w+_PORT(_\w+)?"
)
"""Variables that controllers, Services and images set without a field of the container."""
_UNCERTAIN = re.compile(
    r"if|for|while|until|case|select|function|coproc|time|\{|!|\[\[|test|eval|source|\.|exit|return|"
    r"break|continue|shift|read|unset|declare|typeset|local|readonly|let|mapfile|readarray|printf|"
    r"getopts|alias|unalias|shopt|enable|builtin|command"
)
"""Keywords and builtins that decide what runs, or change variables."""
_HARMLESS = re.compile(
    r"set|cd|echo|mkdir|ulimit|umask|sleep|wait|trap|true|:|cat|chmod|cp|date|find|ldconfig|ln|"
    r"ls|nvidia-smi|rm"
)
"""Commands that neither fail in a script that works nor change how a later program behaves."""


class UnreadableError(Exception):
    """A part of a script, such as ``if``, after which it is not certain what runs."""


class Command(NamedTuple):
    """A program that surely starts, and its variables by name, None for values not known."""

    words: list[str]
    env: dict[str, str | None]


def commands(script: str, env: Mapping[str, str | None], *, is_complete: bool) -> Iterator[Command]:
    """Yield the programs that a script surely starts, in order, without harmless ones.

    The container has the variables ``env``, and others unless it ``is_complete``.

    Raises:
        UnreadableError: What starts next is not certain.
    """
    names = re.findall(_NAME, script)
    set_elsewhere = filter(_SET_ELSEWHERE.fullmatch, names) if is_complete else names
    variables: dict[str, str | None] = {**dict.fromkeys(set_elsewhere), **env}
    exported = {*env}
    before = ""
    may_have_failed = False
    unsure: dict[str, None] = {}
    for raws, after in _split(script):
        if not raws and after == "\n":
            continue  # after && and |, the command is on the next line
        if before == "||":
            raise UnreadableError(before)
        is_apart = "|" in (before, after)
        assigned = _assigned(takewhile(_ASSIGNMENT.fullmatch, raws), variables)
        left = [*dropwhile(_ASSIGNMENT.fullmatch, raws)]
        if left[:1] == ["export"]:
            for raw in left[1:]:
                assigned |= _assigned([raw], variables)
                exported.add(raw.partition("=")[0])
        elif left:
            words = _words(left, variables)
            if words:
                known = {name: variables[name] for name in exported & variables.keys()}
                yield Command(words, known | assigned)
                may_have_failed = True
                if left[0] == "exec" and not is_apart and after != "&":
                    return
            assigned = {}
        if not is_apart:
            variables |= assigned
            unsure |= dict.fromkeys(assigned if may_have_failed else ())
        if after not in ("&&", "||", "|"):
            variables |= unsure
            unsure = {}
            may_have_failed = False
        before = after


def _split(script: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each command as they are written, and the operator after them."""
    raws: list[str] = []
    is_target = False
    for token in _TOKEN.finditer(script):
        if token["unread"]:
            raise UnreadableError(token[0])
        if token["operator"]:
            yield raws, token[0]
            raws = []
        elif token["word"] and not is_target:
            raws.append(token[0])
        if not token["blank"]:
            is_target = token["redirection"] is not None
    yield raws, ""


def _assigned(raws: Iterable[str], variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return what assignments set, each with those before it."""
    assigned: dict[str, str | None] = {}
    for matched in filter(None, map(_ASSIGNMENT.fullmatch, raws)):
        if matched[1] == "IFS":
            raise UnreadableError(matched[1])
        text = _expanded(matched[2], {**variables, **assigned}, is_split=False)
        assigned[matched[1]] = None if UNKNOWN in text else text.replace(_QUOTED, "")
    return assigned


def _words(raws: Iterable[str], variables: Mapping[str, str | None]) -> list[str]:
    """Return the words of a program, or none for a harmless one.

    Raises:
        UnreadableError: It is not certain what the command does.
    """
    left = [*dropwhile(("exec", "nohup").__contains__, raws)]
    fields = [part for raw in left for part in _expanded(raw, variables).split(_BREAK) if part]
    words = [part.replace(_QUOTED, "") for part in fields] or ["true"]
    name = words[0].rpartition("/")[2]
    exports_all = name == "set" and re.search(r" -\w*a| allexport", " ".join(words))
    if UNKNOWN in name or _UNCERTAIN.fullmatch(name) or exports_all:
        raise UnreadableError(left[0])
    return [] if _HARMLESS.fullmatch(name) else words


def _expanded(raw: str, variables: Mapping[str, str | None], *, is_split: bool = True) -> str:
    """Return a word without its quotes, which leave a mark, as do breaks between its fields."""
    parts: list[str] = []
    for single, double, escaped, expansion, plain in _PIECE.findall(raw):
        if expansion or plain or escaped == "\n":
            text = _value(expansion, variables) if expansion else _PATTERN.sub(UNKNOWN, plain)
            split = re.sub(r"\s+", _BREAK, _PATTERN.sub(UNKNOWN, text))
            parts.append(split if is_split else text)
        else:
            parts += [_QUOTED, single, escaped, _in_quotes(double, variables)]
    return "".join(parts)


def _in_quotes(text: str, variables: Mapping[str, str | None]) -> str:
    return _IN_QUOTES.sub(lambda m: _value(m[2], variables) if m[2] else m[1].strip("\n"), text)


def _value(expansion: str, variables: Mapping[str, str | None]) -> str:
    """Return the value of an expansion, such as ``${TP:-8}``."""
    matched = _PARAMETER.fullmatch(expansion)
    if matched is None:
        return UNKNOWN
    name, operator, default = matched.groups()
    value = variables.get(name)
    if default is not None and (name not in variables or (operator == ":-" and value == "")):
        return _in_quotes(default, variables)
    return UNKNOWN if value is None else value
