"""The rules over a whole stack: each is described by an example that breaks it, and users add theirs."""

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_foundations.planning.rules as surface
import pulumi
import pulumi_kubernetes as k8s
import pytest
from ml_foundations import Proof
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.__main__ import main
from ml_foundations.planning.input.clusters import Declared
from ml_foundations.planning.rules import Finding, Rule, Severity, Stack, added, error, rule
from ml_foundations.planning.rules.built_in import (
    IF_ASKED,
    OF_THE_STACK,
    OF_WORKLOADS,
    REFUSALS,
    RULES,
    descriptions,
)
from ml_foundations.planning.rules.rule import Description
from ml_foundations.planning.verdict.clusters import judge_clusters
from ml_foundations.planning.verdict.program import judge_documents, judge_program

from tests.factories import namespace
from tests.support.checkout import CHECKOUT
from tests.support.declaring import declared
from tests.support.findings import of_rule
from tests.support.stacks import example_program, stack_of

PAGE = CHECKOUT / "docs" / "your-own-rules.md"
SEVERITIES = [Severity.INFO, Severity.WARNING, Severity.ERROR]


@pytest.mark.parametrize("described", descriptions(), ids=lambda described: described.name)
def test_the_example_of_a_rule_breaks_it(described: Description) -> None:
    resources, kept = example_program(described.example)
    declared = [
        Declared(resource, f"r{index}", f"r{index}", is_kept=resource in kept)
        for index, resource in enumerate(resources)
    ]
    verdicts = judge_clusters(declared, rules=IF_ASKED)
    found = of_rule(verdicts, described.name)
    assert found
    assert max(SEVERITIES.index(item.severity) for item in found) <= SEVERITIES.index(
        described.severity
    )


def test_names_are_unique_and_every_rule_runs() -> None:
    names = [described.name for described in descriptions()]
    assert len({*names}) == len(names)
    assert REFUSALS.keys().isdisjoint(names)
    folder = Path(surface.__file__).parent
    modules = [importlib.import_module(f"{surface.__name__}.{f.stem}") for f in folder.glob("*.py")]
    defined = {id(item) for module in modules for item in rules_of(module)}
    assert defined == {id(item) for item in (*OF_WORKLOADS, *OF_THE_STACK, *IF_ASKED)}


def rules_of(module: ModuleType) -> list[Rule]:
    return [value for value in vars(module).values() if isinstance(value, Rule)]


@rule("team-label", Severity.ERROR, "Each namespace names its team.")
def team_label(stack: Stack) -> Iterator[Finding]:
    for item in stack.of_kind("Namespace"):
        about = f"Namespace {item['metadata']['name']}"
        yield error("team-label", about, "metadata.labels", "it has no team", "Add one.")


@rule("broken", Severity.ERROR, "It never works.")
def broken(stack: Stack) -> Iterator[Finding]:
    raise KeyError("team")


@rule("of-text", Severity.ERROR, "It yields no finding.")
def of_text(stack: Stack) -> Any:
    return ["a text"]


def test_a_rule_of_a_program_is_judged_by_the_proof() -> None:
    def program() -> None:
        with Proof(rules=[team_label]):
            k8s.core.v1.Namespace("ml", metadata={"name": "ml"})

    with pytest.raises(pulumi.RunError, match=r"Namespace ml: it has no team. Add one.") as refused:
        declared(program)
    assert "[team-label, metadata.labels]" in str(refused.value)


def test_an_error_of_an_added_rule_counts_unless_it_is_accepted() -> None:
    verdicts = judge_documents([namespace("ml")], rules=[team_label])
    assert verdicts.stack is Verdict.CANNOT_FIT
    accepted = judge_documents([namespace("ml")], ["team-label/ml"], rules=[team_label])
    assert accepted.stack is Verdict.FITS


@pytest.mark.parametrize(
    ("wrong", "name", "words"),
    [
        (broken, "broken", "KeyError: 'team'"),
        (of_text, "of-text", "it yields 'a text', which is not a Finding"),
    ],
)
def test_a_rule_that_raises_is_a_finding_that_names_it(wrong: Rule, name: str, words: str) -> None:
    verdicts = judge_documents([], rules=[wrong, team_label])
    (finding,) = verdicts.findings
    assert (finding.rule, finding.object) == ("rule-error", f"Rule {name}")
    assert words in finding.message
    assert verdicts.stack is Verdict.UNDETERMINED
    assert judge_documents([], [f"rule-error/{name}"], rules=[wrong]).stack is Verdict.FITS


def test_a_proof_refuses_what_is_no_new_rule() -> None:
    taken = replace(team_label, descriptions=(replace(team_label.descriptions[0], name="quota"),))
    with pytest.raises(ValueError, match="a rule quota exists already"):
        added.checked([taken])
    with pytest.raises(ValueError, match="a rule team-label exists already"):
        added.checked([team_label, team_label])
    not_a_rule: Any = len
    with pytest.raises(TypeError, match="Put @rule above the function"):
        added.checked([not_a_rule])


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that installs a package with some entry points."""
    packages = tmp_path / "packages"

    def installed(entry_points: str) -> None:
        metadata = packages / "acme_rules-1.2.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.2\n"
        )
        (metadata / "entry_points.txt").write_text(f"[{added.GROUP}]\n{entry_points}\n")
        monkeypatch.setattr(added, "_folders", lambda: [str(packages)])
        added._installed.cache_clear()

    yield installed
    monkeypatch.undo()
    added._installed.cache_clear()


def test_an_installed_rule_is_found(
    install: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(f"team-label = {__name__}:team_label")
    verdicts = judge_program([("kubernetes:core/v1:Namespace", namespace("ml"))])
    assert [finding.rule for finding in verdicts.findings] == ["team-label"]
    file = tmp_path / "namespace.json"
    file.write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}')
    assert main([str(file)]) == 1
    shown = capsys.readouterr().out
    assert "it has no team" in shown and "Judged with acme-rules 1.2." in shown
    assert main([str(file), "--accept", "team-label=it is new"]) in (0, 4)


@pytest.mark.parametrize(
    ("entry_point", "words"),
    [
        ("gone = acme_rules_that_nobody_has:gone", "ModuleNotFoundError"),
        ("len = builtins:len", "Put @rule above the function"),
    ],
)
def test_an_installed_rule_that_cannot_be_loaded_is_a_finding(
    install: Callable[[str], None], entry_point: str, words: str
) -> None:
    install(entry_point)
    verdicts = judge_documents([])
    (finding,) = verdicts.findings
    assert finding.object == f"Rule {entry_point.partition(' ')[0]} of acme-rules 1.2"
    assert words in finding.message
    assert verdicts.stack is Verdict.UNDETERMINED


def test_no_rule_is_loaded_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "evil-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{added.GROUP}]\nevil = evil:evil\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [package for package, _ in added._entry_points()] == []
    assert str(tmp_path) not in added._folders()


def test_the_page_shows_the_surface_of_version_1() -> None:
    """If a name goes, or changes its meaning, the number of the group changes."""
    text = PAGE.read_text()
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`(\w+)", cell)]
    assert added.GROUP == "ml_foundations.rules.v1" and added.GROUP in text
    assert names == [
        *("objects", "of_kind", "workloads", "nodes", "resources", "of_type", "clusters"),
        *("node_pools", "kept", "is_program", "is_rehearsed"),
        *("rule", "error", "warning", "info"),
        *("Finding", "Severity", "Stack", "Rule", "JudgedWorkload", "UNKNOWN"),
    ]
    assert {*surface.__all__} == {*names[11:]}
    view = stack_of([])
    assert all(hasattr(view, name) for name in names[:11])


def test_the_rule_of_the_page_finds_what_it_shows() -> None:
    block = next(re.finditer(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))[1]
    lines: dict[str, Any] = {}
    exec(block.partition("with Proof")[0], lines)
    (own,) = [value for value in lines.values() if isinstance(value, Rule)]
    labelled = {**namespace("named"), "metadata": {"name": "named", "labels": {"team": "ml"}}}
    unknown = {**namespace("later"), "metadata": {"name": "later", "labels": UNKNOWN}}
    (finding,) = judge_documents([namespace("ml"), labelled, unknown], rules=[own]).findings
    assert (finding.rule, finding.object) == (own.descriptions[0].name, "Namespace ml")
    assert own.descriptions[0].name not in RULES
