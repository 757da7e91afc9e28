"""Values that a stranger writes: text for terminals, logs and pages, numbers, YAML that fits no type, embedded text."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

CONTROLS = (
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b]8;;http://evil.example\x1b\\x", "\x9b2J"),
    *("a\rb", "a\nb", "a\tb", "\x00", "\x0b\x0c", "\x7f", "\x85y", "\u2028x", "\u2029", "\ufeff"),
    *("\u202etxt.exe", "\u2066x\u2069", "\u200f", "\u061c", "\ud800", "\ufffe", "\U000e0001"),
)
COMMANDS = (
    *("::error::pwn", "\n::warning file=a::x", "##[error]pwn", "x ##[add-mask]a", "##vso[task]x"),
    *("  ::add-mask::a", "\r::stop-commands::x", "\n/merge", "::set-output name=a::b"),
)
MARKUP = (
    *("<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "<!-- ", "-->"),
    *("| a | b |", "`a`", "```", "~~~", "**b**", "_i_", "[a](http://evil.example)", "![i](//e)"),
    *("https://evil.example/login", "www.evil.example", "a@evil.example", "@team", "#1", "$x$"),
    *("\\", "\\|", "&lt;", "&#64;", "</details>", "\r\r# head\r====\r\r"),
    "[link=http://e]x[/link]",
    *("[/x]", "[bold]", "[x]: http://evil.example", "{{data}}", "%s%n", "{0}", "${x}", "$(x)"),
)
LONG = ("a" * 300, "😀" * 100, "9" * 5000, "x " * 2000, "../" * 50, "a." * 200, "é" * 1000)
TEXTS = (*CONTROLS, *COMMANDS, *MARKUP, *LONG, "", " ", "*", "ﬀ", "@/etc/passwd", "-", "null")
AMOUNTS = (
    *("1e3Gi", "1e999999999", "-1", "16 Gi", "9" * 5000, "1" + "0" * 50 + "Ei", ".", "1e-99"),
    *("NaN", "sNaN", "-Infinity", "1_000", "\uff12", "0x1F", "1:30"),
    *("@every 999999999999999999999h", "50%", "-50%", "1" * 400 + "%"),
    *("* * * * *", "*/0 0 31 2 *", "5-1 * * * *", "(a+)+$", "[", "2020-99-99T00:00:00Z"),
)
NUMBERS = (
    *(0, -1, 2**31, 2**63, 2**64, 10**400, -(10**40), 0.1, -0.0, 1e308, 5e-324),
    *(float("inf"), float("-inf"), float("nan"), True, False, None),
)
SCALARS = (
    *("!!bool foo", '!!int ""', "!!int 0x", "!!int 1:30", "!!int [1]", "!!float abc", "!!float ''"),
    *("!!float 1:1:1.5", "!!timestamp 2020-99-99", "!!timestamp x", '!!binary "?"', "!!binary é"),
    *("!!set {a, b}", "!!set [a]", "!!omap [a: 1]", "!!omap {a: 1}", "!!omap [[a]]", "!!pairs [a: 1]"),
    *("!!pairs x", "!!python/name:os.system", "!!python/object/apply:os.getpid []", "!a b", "!a [b]"),
    *("!<tag:yaml.org,2002:bool> foo", "!<x> y", "!!null x", "!!str {a: 1}", "!!seq x", "!!map [1]"),
    *("!!merge x", "!!value x", "!!yaml x", "! x", "!e!x y", "1:30", ":".join("1" * 300), "=", "<<"),
    *(":".join("1" * 200) + ".5", "0o17", "0b1", "0b", "0x_", "_1", "1_000", ".inf", "-.INF", ".nan"),
    *("1e999", "0x" + "f" * 5000, "1" * 5000, "2020-01-01", "2020-13-45", "{? [a] : b}", "{? {a: 1} : 2}"),
    *('{1: 2, "1": 3}', "{null: 1}", '{true: 1, "true": 2}', "{1.5: a}", "{.nan: a}", "{2020-01-01: a}"),
    *("{<<: 1}", "{<<: [1]}", "{<<: {a: 1}}", "{<<: [{a: 1}, {b: 2}]}", "{=: 1}", "*nowhere", "&a [*a]"),
    *("&a {b: *a}", "&a {<<: *a}", '"\\ud800"', '"\\x00"', '"\\U00110000"', '"\\q"', "|\n", ">-\n", "|9\n"),
    *("'open", "[", "{", "]", "- - -", "? ?", "@x", "`x`", "%x", "{a: 1, a: 2}", "!!str 1", "!!int '5'"),
)  # fmt: skip
"""Values as YAML writes them, after a key."""


def laughs(levels: int = 9, width: int = 9) -> str:
    """Aliases of aliases, which repeat a value billions of times."""
    below = (f"[{', '.join([f'*l{n - 1}' if n else 'ha'] * width)}]" for n in range(levels))
    return "".join(f"\nl{n}: &l{n} {value}" for n, value in enumerate(below)) + "\n"


def _inserted(text: str, draw: Random, line: str) -> str:
    lines = text.splitlines() or [""]
    at = draw.randrange(len(lines) + 1)
    return "\n".join([*lines[:at], line, *lines[at:]])


def _scalar(text: str, draw: Random) -> str:
    """Return a text with one of the values that it has replaced by one that fits no type."""
    lines = text.splitlines()
    places = [index for index, line in enumerate(lines) if ": " in line] or [0]
    at = draw.choice(places)
    key = lines[at].partition(": ")[0] if lines else "x"
    return "\n".join([*lines[:at], f"{key}: {draw.choice(SCALARS)}", *lines[at + 1 :]])


def _twice(text: str, draw: Random) -> str:
    return _inserted(text, draw, draw.choice(text.splitlines() or [""]))


TRICKS: dict[str, Callable[[str, Random], str]] = {
    "value": _scalar,
    "values": lambda text, draw: _scalar(_scalar(_scalar(text, draw), draw), draw),
    "truncated": lambda text, draw: text[: draw.randrange(len(text) + 1)],
    "line twice": _twice,
    "anchors": lambda text, draw: f"x: &x {{a: 1}}\ny: [*x, *x]\n{text}",
    "merge key": lambda text, draw: f"{text}\nx: &x {{a: 1}}\ny: {{<<: [*x, *x]}}\n",
    "self": lambda text, draw: f"{text}\nx: &x\n  y: *x\n",
    "laughs": lambda text, draw: text + laughs(draw.choice([3, 5, 9, 60]), draw.choice([2, 9])),
    "merges": lambda text, draw: text + laughs().replace("[*", "{<<: [*").replace("]\n", "]}\n"),
    "deep": lambda text, draw: f"{text}\nx: {draw.choice('[{') * draw.randrange(20_000)}",
    "deep block": lambda text, draw: f"{text}\nx:\n  {'- ' * draw.randrange(20_000)}a\n",
    "deep keys": lambda text, draw: text + "\n" + "? " * draw.randrange(5_000),
    "long number": lambda text, draw: f"{text}\nx: {draw.choice('19f')}{'1' * 5000}\n",
    "tab": lambda text, draw: _inserted(text, draw, "\t- a"),
    "garbage": lambda text, draw: _inserted(text, draw, "%&@`!{]"),
    "zero byte": lambda text, draw: _inserted(text, draw, "a: \0"),
    "odd line": lambda text, draw: _inserted(text, draw, f"{draw.choice(TEXTS)}: x"),
    "directive": lambda text, draw: draw.choice(["%YAML 9.9\n---\n", "%TAG ! x:\n---\n"]) + text,
    "documents": lambda text, draw: text + "\n---\n" * draw.choice([1, 9, 999, 70_000]),
    "ends": lambda text, draw: _inserted(text, draw, draw.choice(["...", "---", "--- |", "- x"])),
    "block": lambda text, draw: _inserted(text, draw, draw.choice(["x: |", "x: >9", "x: |+\n\n "])),
    "no text": lambda text, draw: draw.choice(
        ["", "---", "[]", "{}", "null", "1", '"x"', "[" * 9999]
    ),
    "comment": lambda text, draw: _inserted(text, draw, "#" + draw.choice(TEXTS)),
}
"""What is done to the text of a document."""


def with_bytes(text: bytes, draw: Random) -> bytes:
    """Return a file with a few of its bytes changed, or all of them in another encoding."""
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        at, end = sorted(draw.randrange(len(text) + 1) for _ in range(2))
        part = text[at : min(end, at + 2000)]
        letter = bytes([draw.choice(b"0123456789abcxyz-. ")])
        noise = draw.choice([letter, letter, draw.randbytes(draw.randrange(1, 9)), *_BYTES])
        match draw.choice(["insert", "replace", "replace", "flip", "drop", "double", "turn"]):
            case "insert":
                text = text[:at] + noise + text[at:]
            case "replace":
                text = text[:at] + noise + text[at + len(noise) :]
            case "flip" if at < len(text):
                text = text[:at] + bytes([text[at] ^ 1 << draw.randrange(8)]) + text[at + 1 :]
            case "drop":
                text = text[:at] + text[at + draw.randrange(1, 99) :]
            case "double":
                text = text[:at] + part * draw.choice([2, 2, 9]) + text[at:]
            case _:
                text = text[at:] + text[:at]
    whole = text.decode(errors="replace")
    encodings = ["utf-16", "utf-16-be", "utf-32", "utf-8-sig", "utf-7"]
    return whole.encode(draw.choice(encodings), "replace") if draw.random() < 0.08 else text


_BYTES = (
    *(b"\0", b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8"),
    *(b"\n", b"\r", b"\t", b": ", b"- ", b"\n---\n", b"&a ", b"*a", b"!!", b"%", b"'", b'"', b"{", b"["),
    *(b"#", b"|", b">", b"? ", b"<<: ", b"0" * 9000, b"[" * 9000, b" " * 50_000, b"\x1b[31m", b"\x9b"),
)  # fmt: skip


def value(draw: Random) -> Any:
    """Return a value that no field expects."""
    few = (draw.choice(TEXTS) for _ in range(draw.randrange(3)))
    return draw.choice(
        [
            draw.choice(TEXTS),
            draw.choice(AMOUNTS),
            draw.choice(NUMBERS),
            list(few),
            {draw.choice(TEXTS): draw.choice(NUMBERS)},
            draw.choice([[], {}, [[]], [None], [{}], {"": None}, "x", 5, -1, 1.5]),
        ]
    )


def text(draw: Random, of: str = "") -> str:
    """Return a text for somebody who reads it, alone or as a part of another."""
    odd = draw.choice(TEXTS)
    return draw.choice([odd, odd, of + odd, odd + of, f"{of}{odd}{draw.choice(TEXTS)}"])


def document(draw: Random, base: Any) -> str:
    """Return YAML or JSON as it is inside the text of a field; some of it is the base."""
    written = json.dumps(base) if draw.random() < 0.5 else yaml.safe_dump(base)
    broken = draw.choice([*TRICKS.values()])(written, draw)
    return draw.choice([written, broken, broken, f"x: {draw.choice(SCALARS)}", *_EMBEDDED])


_EMBEDDED = (
    *("[" * 100_000, '{"a":' * 50_000, laughs(), "{<<: *a}", '{"a": 1e999}', '{"a": NaN}', '"\\ud800"'),
    *("[1, 2]", "1", "null", "", "{}", "[[1]]", "true", '"x"', "\x00", "{", "9" * 5000, "- a\n- b"),
)  # fmt: skip
