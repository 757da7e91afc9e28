"""Text from others on its way to a terminal, a log or a comment: shown, never obeyed."""

import json
import re
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from ml_foundations.kubernetes import printable
from ml_foundations.planning.__main__ import main
from ml_foundations.planning.rules.findings import warning
from ml_foundations.planning.verdict import markdown
from ml_foundations.planning.verdict.compare import Comparison
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.planning.verdict.markdown import of_comparison, of_errors, of_verdicts

from tests.factories import Manifest, deployment, in_namespace, namespaced, pool, quota, template
from tests.support.obeyed import INVISIBLE, obeyed

HOSTILE = Path(__file__).with_name("hostile")
COMMANDS = ("::error::x", " ::add-mask::x", "##[group]x", "a ##vso[task.x]", "<{%bold%}>x")
MOST = 65_536

pieces = st.sampled_from((*COMMANDS, "::", "#", "##", "[", "<", "{%", "\n", "\r", "\t", " ", "a"))
texts = st.lists(pieces | st.characters(), max_size=9).map("".join)


NOTHING = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u2800\u3164\uffa0"
NOTHING += "".join(map(chr, range(0xE0100, 0xE01F0)))
"""Letters and marks that show nothing."""


def test_each_character_that_is_not_visible_is_shown() -> None:
    chars, expected = list(map(chr, range(sys.maxunicode + 1))), list[str]()
    printed: list[str] = []
    for char in chars:
        is_invisible = unicodedata.category(char) in INVISIBLE or char in NOTHING
        # Other spaces than the usual one are separators too.
        is_shown = is_invisible or (char.isspace() and char != " ")
        expected.append(char.encode("unicode_escape").decode() if is_shown else char)
        printed.append(printable.line(char))
    assert printed == expected
    assert printable.line("é 中 ✅ ⚠️") == "é 中 ✅ ⚠️"


def test_a_very_long_word_is_cut_and_a_long_name_is_not() -> None:
    name, quantity = f"{'d' * 253}/{'n' * 63}", "9" * 5000
    assert printable.line(f"{name} is {quantity}!") == f"{name} is {'9' * 400}…"


def test_json_is_valid_and_no_command() -> None:
    text = printable.as_json({"name": "a ##[error]b ##vso[x]c ##d"})
    assert "##[" not in text and "##vso[" not in text
    assert json.loads(text) == {"name": "a ##[error]b ##vso[x]c ##d"}


@given(texts)
def test_a_text_is_never_obeyed(text: str) -> None:
    for shown in (printable.text(text), printable.line(text), printable.lines([text, text])):
        assert not obeyed(shown)
    assert "\n" not in printable.line(text)
    assert printable.text(text).count("\n") == text.count("\n")
    assert printable.line(printable.line(text)) == printable.line(text)


def test_what_is_no_command_stays() -> None:
    for text in ("urn:pulumi:dev::app::gcp:a/b:C::c", "a::b", "# a [b]", "## a", "x <b {% if %}"):
        assert printable.text(f"{text}\n  {text}") == f"{text}\n  {text}"


def judged(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("name", ["esc", "head", "cr"])
@pytest.mark.parametrize("style", ["text", "json", "markdown"])
def test_a_hostile_name_is_shown(
    name: str, style: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = HOSTILE / f"{name}.yaml"
    (tmp_path / "old.yaml").write_text("")
    for text in (
        judged(capsys, file, "--format", style),
        judged(capsys, "--diff", tmp_path / "old.yaml", file, "--format", style),
    ):
        assert not obeyed(text)
        if style == "markdown":
            assert_plain(text)


EVIL = "\n::error::pwn\x1b[31m\u202e\u2028\x85\r\n##vso[task.complete]\u200b<{%x%}>"


@pytest.mark.parametrize("place", ["name", "kind", "image", "selector", "namespace"])
@pytest.mark.parametrize("text", [EVIL, EVIL.lstrip()], ids=["line", "start"])
def test_hostile_texts_are_shown_in_each_place(
    text: str, place: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = deployment("web", 9, template())
    pods = made["spec"]["template"]["spec"]
    match place:
        case "name" | "namespace":
            made["metadata"][place] = text
        case "kind":
            made["kind"] = text
        case "image":
            pods["containers"][0]["image"] = text
        case _:
            pods["nodeSelector"] = {text: text}
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump_all([made, pool("p", 1)]))
    for style in ("text", "markdown"):
        assert not obeyed(judged(capsys, file, "--format", style))


def test_names_of_files_and_arguments_are_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    odd = tmp_path / "a\n::error::pwn\x1b[31m.yaml"
    odd.write_text("[")
    missing = tmp_path / "b\n##[error]c\udcff.yaml"
    for arguments in ((odd,), (tmp_path,), (missing,), ("--diff", odd, missing)):
        text = judged(capsys, *arguments)
        assert text.startswith("error: ")
        assert not obeyed(text)
    with pytest.raises(SystemExit):
        main(["--x\n::error::pwn\x1b"])
    assert not obeyed(capsys.readouterr().err)


MARK_UP = (
    "https://evil.example www.evil.example WWW.evil.example ftp://a me@evil.example mailto:a@b.c",
    "http://evil.example/?a=b&c=d <https://evil.example> <b@evil.example> <b>x</b> <!-- x",
    "[a](http://b) ![a](http://b) [a]: http://b",
    "# a",
    "1. a",
    "2) a",
    "- a",
    "+ a",
    "* a",
    "---",
    "- - -",
    "***",
    "> a",
    "    a",
    "~~~",
    "```",
    "`a` *a* _a_ **a** __a__ ~~a~~ ~a~ $a$ $`a`$ \\",
    "a | b",
    "|---|",
    "a\r\r=====\r\r",
    "a\n\n# b\n\n",
    "</details>",
    "&lt;b&gt; &#96;a&#96; &copy;",
    "{+ a +} [x] [ ] [^1] [[_TOC_]]",
)
ALLOWED = {"paragraph", "inline", "text", "table", "thead", "tbody", "tr", "th", "td", "strong"}
ALLOWED |= {"html_block", "bullet_list", "list_item", "text_special"}
OUR_HTML = re.compile(
    r"<!-- ml-foundations plan -->|(<details><summary>[\w ,]+</summary>|</details>)"
)


def assert_plain(comment: str) -> list[str]:
    """Check that a comment has our elements only. Return the texts of its cells and bullets."""
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    found: list[str] = []
    for token in reader.parse(comment):
        kind = token.type.removesuffix("_open").removesuffix("_close")
        assert kind in ALLOWED, (kind, token)
        if kind == "html_block":
            assert OUR_HTML.fullmatch(token.content.strip()), token.content
        # Sentences of a cell are below each other.
        for child in [child for child in token.children or [] if child.content != "<br>"]:
            assert child.type.removesuffix("_open").removesuffix("_close") in ALLOWED, child
        if kind == "inline":
            found.append("".join(child.content for child in token.children or []))
    return found


def findings_of(texts: list[str]) -> Any:
    return tuple(warning("rule", text, "", text, "") for text in texts)


def comments(*texts: str) -> list[str]:
    """A comment of each kind, with texts as names, reasons, notes and findings."""
    [item] = judge([pool("p", 1), deployment("web", 9, template())]).workloads
    items: list[Any] = []
    for text in texts:
        workload = replace(item.workload, kind=text, name=text)
        items.append(replace(item, workload=workload, reasons=findings_of([text])))
    reasons = findings_of(list(texts))
    verdicts = replace(judge(()), workloads=tuple(items), reasons=reasons)
    compared = Comparison("".join(texts[:3]), judge(()), verdicts, texts, lost=texts)
    return [of_verdicts(verdicts), of_comparison(compared), of_errors(texts)]


@pytest.mark.parametrize("text", MARK_UP)
def test_mark_up_is_text_in_a_comment(text: str) -> None:
    shown = " ".join(printable.line(text).split())
    for comment in comments(text):
        inline = [" ".join(found.replace("\u200b", "").split()) for found in assert_plain(comment)]
        assert any(shown in found for found in inline), "it is shown as it is"


@given(texts | st.sampled_from(MARK_UP))
def test_no_text_is_mark_up(text: str) -> None:
    assert_plain(of_errors([text]))


LINK = re.compile(r"(https?|ftp)://|www\.|\w@\w|@\w|(^|\W)#\d|:\w+:|\$\w|\W[!~%&^]\w", re.I)
"""What a renderer looks for in a text whose entities are characters."""


@pytest.mark.parametrize("text", [*MARK_UP, "@everyone #1 a/b#1 GH-1 !1 ~bug $1 %1 &1 ^1 :tada:"])
def test_rendered_text_has_no_address_and_no_reference(text: str) -> None:
    found = assert_plain(of_errors([text]))
    assert not [shown for shown in found if LINK.search(shown)]


LONG = ("x" * 100_000, "@" * 9_000, "~" * 5_000, "\U000e0001" * 9_000, "😀" * 9_000)


@pytest.mark.parametrize("text", [*LONG, "short"])
@pytest.mark.parametrize("count", [1, 60])
def test_a_comment_has_a_bound(text: str, count: int) -> None:
    for comment in comments(*(f"{index}{text}" for index in range(count))):
        assert len(comment.encode()) < MOST
        inline = assert_plain(comment)
        assert any(found.startswith("0") for found in inline), "one is shown"
        if count > 1:
            assert re.search(r"^and \d+ more$", comment, re.MULTILINE)


def test_of_many_quotas_some_are_shown() -> None:
    quotas: list[Manifest] = []
    for index in range(1_500):
        name = f"quota-{index}"
        objects = quota(name, {"configmaps": "5"}), namespaced("v1", "ConfigMap", name)
        quotas += [in_namespace(f"team-{index}", each) for each in objects]
    comment = of_verdicts(judge([pool("p", 1), deployment("web", 1, template()), *quotas]))
    assert len(comment) < MOST
    assert "<summary>Quotas and cost, of which 50 are shown</summary>" in comment
    (rest,) = re.findall(r"^and (\d+) more$", comment, re.MULTILINE)
    assert int(rest) > 1_400


def test_a_comment_is_never_empty(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: b: c")
    assert main([str(tmp_path / "a.yaml"), "--format", "markdown"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(markdown.MARK)
    assert "mapping values are not allowed" in captured.out
    assert captured.err.startswith("error: ")
