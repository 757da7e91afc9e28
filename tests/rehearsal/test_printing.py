"""What a rehearsal prints: names, keys and paths are text, never mark-up and never a command."""

import argparse
import ast
import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import ml_foundations
import pytest
from ml_foundations.planning.rules.findings import error, info
from ml_foundations.planning.verdict.quota_needs import QuotaNeed
from ml_foundations.planning.verdict.retained import Retained
from ml_foundations.rehearsal import cli, commands, difference, files, progress
from ml_foundations.rehearsal.engine import project_files
from ml_foundations.rehearsal.engine.dry_run import DryRun
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report import tables
from ml_foundations.rehearsal.report.contents import Quota, Report
from ml_foundations.rehearsal.report.disruptions import Disruption
from ml_foundations.rehearsal.report.hints import hints
from ml_foundations.rehearsal.report.outline import outline
from ml_foundations.rehearsal.report.purchases import Purchase
from ml_foundations.rehearsal.report.workloads import Workload
from rich.console import Console

from tests.factories import deployment, template
from tests.support.checkout import CHECKOUT
from tests.support.obeyed import obeyed

ROOT = Path(ml_foundations.__file__).parent
MARK_UP = "[/x] [link=file:///a]b[/link] [bold red]c[/]"
EVIL = f"{MARK_UP} \x1b[31m\u202e\r\n::error::pwn\n##[error]"


@pytest.fixture(params=[False, True], ids=["log", "terminal"])
def shown(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], str]]:
    """What both consoles print, without the styles that a terminal gets."""
    made = io.StringIO()
    real = progress._console

    def console(**options: Any) -> Console:
        return real(**options | {"file": made, "width": 40 if request.param else 160})

    monkeypatch.setattr(progress, "_console", console)
    progress.console.cache_clear()
    yield lambda: made.getvalue()
    progress.console.cache_clear()


def assert_text(text: str) -> None:
    assert not obeyed(text)
    words = " ".join(text.split())
    for part in MARK_UP.split():
        assert part in words, (part, text)


def test_steps_and_errors(shown: Callable[[], str]) -> None:
    with progress.Step(EVIL) as step:
        step.detail(EVIL)
    assert_text(shown())
    with pytest.raises(SystemExit), progress.user_errors():
        raise progress.RehearsalError(EVIL)
    assert_text(shown().partition("✓")[2].partition("error: ")[2])


def test_a_step_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    made = io.StringIO()
    terminal = Console(force_terminal=True, file=made, width=200, color_system=None)
    monkeypatch.setattr(progress, "console", lambda: terminal)
    with progress.Step(MARK_UP) as step:
        step.detail(MARK_UP)
    assert made.getvalue().count(MARK_UP) >= 1


def test_a_line_stays_a_line(shown: Callable[[], str]) -> None:
    progress.output().print("a [b]\n", end="", soft_wrap=True)
    progress.output().print("x" * 300, soft_wrap=True)
    assert shown() == f"a [b]\n{'x' * 300}\n"


def test_tables(shown: Callable[[], str], tmp_path: Path) -> None:
    long = f"{'y' * 200}::error::x"
    for evil in (EVIL, long):
        report = report_of(evil)
        tables.show(report, Rehearsal.of("dev", tmp_path), progress.output())
        need = QuotaNeed(evil, evil, 1, 2, evil, evil)
        tables.show_quotas([need], progress.output())
        tables.show_access([evil], {evil: evil}, [evil], progress.output())
        assert not obeyed(shown())
    for part in MARK_UP.split():
        assert "".join(shown().split()).count(part) > 5


def report_of(evil: str) -> Report:
    pool = {"name": evil, "machine_type": evil, "nodes": 1, "min_nodes": 0, "max_nodes": 1}
    disruption = Disruption(evil, [evil], evil, 1, 0, {evil: 1}, [evil], [evil], 0, 0, None, [evil])
    return Report(
        "dev",
        [pool | {"gpus": 0, "gpus_in_use": 0}],
        [Workload(evil, evil, evil, evil, [evil], evil), Workload(evil, evil, evil, "Ready")],
        [Quota(evil, evil, {"pods": evil}, {"pods": evil})],
        [{"type": evil, "name": evil}, {"type": tables.RELEASE, "name": evil, "instead": evil}],
        [evil],
        [evil],
        (Retained(evil, evil, Decimal(1)),),
        [Purchase(evil, evil, {evil: 1}, None, evil, None)],
        (error("rule", evil, "", evil, evil),),
        (error("rule", evil, "", evil, evil),),
        (info("rule", evil, "", evil, evil),),
        [evil],
        disruption,
    )


def test_warnings_of_up(
    shown: Callable[[], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rehearsal = Rehearsal.of("dev", tmp_path)
    rehearsal.make()
    monkeypatch.setattr(commands.fleet, "errors", lambda *_: report_of(EVIL).errors)
    any_verdicts: Any = None
    commands._warn(any_verdicts, rehearsal, set())
    assert_text(shown())
    commands._warn_unknown_pools(rehearsal, [MARK_UP])
    with files.locked(tmp_path / "a", "x"), files.locked(tmp_path / "b", "x", MARK_UP):
        pass
    assert not obeyed(shown())
    assert shown().count("[/x]") > 1


def test_the_outline(shown: Callable[[], str]) -> None:
    made = deployment(EVIL, 1, template())
    program = DryRun({"urn::a": ("kubernetes:apps/v1:Deployment", made)}, "")
    progress.console().print(outline(program))
    assert_text(shown())


def test_keys_of_a_stack_file(shown: Callable[[], str], tmp_path: Path) -> None:
    key = f"mk:a{MARK_UP}"
    (tmp_path / "Pulumi.yaml").write_text("{name: mk, runtime: python}")
    (tmp_path / "Pulumi.dev.yaml").write_text(f'config: {{"{key}": {{secure: AAAB}}}}\n')
    rehearsal = Rehearsal.of("dev", tmp_path)
    rehearsal.make()
    project_files.refresh_stack_file(rehearsal)
    assert_text(shown())


@pytest.mark.parametrize(
    "words", [[EVIL], ["up", f"--{EVIL}"], ["up", "--job-seconds", EVIL], ["diff", "a"]]
)
def test_an_unknown_command_or_option(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.sys, "argv", ["ml-foundations", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert not obeyed(capsys.readouterr().err)


def test_a_comment_of_diff_is_never_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise progress.RehearsalError(EVIL)

    monkeypatch.setattr(difference, "compare", fail)
    args = argparse.Namespace(base="a", head="b", format="markdown")
    with pytest.raises(SystemExit) as ended:
        commands._diff(Rehearsal.of("dev", tmp_path), args)
    comment = capsys.readouterr().out
    assert ended.value.code == 2
    assert comment.startswith("<!-- ml-foundations plan -->")
    assert "x1b" in comment
    assert not obeyed(comment)


def test_the_link_of_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    project = tmp_path / "my #1 100% [/x] ü?"
    project.mkdir(parents=True)
    rehearsal = Rehearsal.of("dev", project)
    monkeypatch.setattr("ml_foundations.rehearsal.report.hints.Store", lambda _: NoPools())
    (link,) = [word for word in hints(rehearsal).split() if word.startswith("file://")]
    parts = urlsplit(link)
    assert (parts.query, parts.fragment) == ("", "")
    assert Path(unquote(parts.path)) == rehearsal.page


class NoPools:
    def pools(self) -> dict[str, Any]:
        return {}


PRINTED_BY = {"print", "log", "report_violation", "sys.exit", "pulumi.RunError"}
PRINTED_BY |= {f"pulumi.log.{level}" for level in ("debug", "info", "warn", "error")}
"""Functions whose first argument leaves as text."""
FOR_PROGRAMS = {
    *("json.dumps", "result.to_json", "plan", "model", "main", "tell"),
    *("environment.dead_shell", "environment.shell_exports", "environment.kubeconfigs"),
}
"""Functions whose result a program reads, or that return a status."""


def sources() -> list[Path]:
    folders = (ROOT, CHECKOUT / "policy", CHECKOUT / "stacks")
    found = [file for folder in folders for file in folder.rglob("*.py")]
    return [file for file in found if file.parent.name not in ("scripts", "stubs")]


def calls() -> Iterator[tuple[Path, ast.Call, str]]:
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                yield file.relative_to(ROOT.parent.parent), node, ast.unparse(node.func)


def is_printable(value: ast.expr) -> bool:
    match value:
        case ast.Constant():
            return True
        case ast.Name():
            return value.id in ("status", "port", "_NOT_LINUX")
        case ast.BinOp():
            return is_printable(value.left)
        case ast.Call():
            name = ast.unparse(value.func)
            return name.startswith("printable.") or name in FOR_PROGRAMS
        case _:
            return False


def test_all_text_leaves_through_one_module() -> None:
    # A console makes its text printable itself.
    printed = [found for found in calls() if found[2] in PRINTED_BY and found[1].args]
    assert len(printed) > 20
    assert not [
        f"{file}:{call.lineno}: {ast.unparse(call)[:80]}"
        for file, call, _ in printed
        if not is_printable(call.args[0])
    ]


def test_no_text_is_read_as_mark_up() -> None:
    home, wrong = "components/ml_foundations/rehearsal/progress.py", list[str]()
    for file, call, name in calls():
        last = name.rpartition(".")[2]
        options = {word.arg: ast.unparse(word.value) for word in call.keywords}
        has_markup = options.get("markup", "False") != "False"
        makes = last in ("Console", "Text", "from_markup", "assemble") and str(file) != home
        if has_markup or makes or last in ("from_markup", "out", "ArgumentParser"):
            wrong.append(f"{file}:{call.lineno}: {name}")
    assert not wrong
