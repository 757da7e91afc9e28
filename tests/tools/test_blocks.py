"""The Python blocks of the pages: their types are checked, their programs run, and what they declare can run."""

import re
from pathlib import Path

import pytest
from ml_foundations import Task, TeamNamespace
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.planning.rules.findings import Severity
from ml_foundations.planning.verdict.verdicts import Verdict
from pulumi import ResourceOptions, RunError
from pulumi_kubernetes import Provider

from tests.support.checkout import CHECKOUT
from tests.support.declaring import requests
from tests.support.programs import prove, run
from tools.blocks import check, pages, program

PROGRAMS = [page for page in pages() if program(page.read_text()).strip()]
WRITING = CHECKOUT / "docs" / "writing-a-program.md"
TUTORIAL = CHECKOUT / "docs" / "tutorial.md"

PAGE = """# A page

<!-- python
from ml_foundations import TeamNamespace

team = TeamNamespace("team", gpus=1, cpu="1", memory="1Gi", storage="1Gi")
-->

```python
from ml_foundations import Task

Task("a", team=team, image="i", gpus="1")
```

- In a list:

  ```python
  Task("b", team=team, imgae="i")
  Task("c", team=team, image="i")
  ```

```sh
make up
```
"""


def test_a_program_has_the_lines_of_its_page() -> None:
    lines = program(PAGE).splitlines()
    statements = {
        number: line
        for number, line in enumerate(lines, 1)
        if not line.startswith(("from", "team")) and line
    }
    assert statements == {
        12: 'Task("a", team=team, image="i", gpus="1")',
        18: 'Task("b", team=team, imgae="i")',
        19: 'Task("c", team=team, image="i")',
    }
    assert lines[5].startswith("team = TeamNamespace(")


def test_type_errors_have_their_page_and_line(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text(PAGE)
    wrong_type, misspelt = check([page], root=tmp_path)
    assert wrong_type.startswith("docs/page.md:12:38: ") and '"gpus"' in wrong_type
    assert misspelt.startswith("docs/page.md:18:1: No overloads")


def test_pages_have_programs() -> None:
    names = {page.name for page in PROGRAMS}
    assert {"README.md", "writing-a-program.md", "gke.md", "training.md"} <= names


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_programs_of_pages_declare_what_can_run(page: Path) -> None:
    findings = prove(run(page)).findings
    assert not [finding for finding in findings if finding.severity is Severity.ERROR]


def test_the_program_of_the_page_about_programs_fits() -> None:
    verdicts = prove(run(WRITING))
    assert verdicts.stack is Verdict.FITS
    assert {finding.rule for finding in verdicts.findings} == {"model-capacity"}
    assert {item.workload.kind for item in verdicts.workloads} == {"Deployment", "Job", "Pod"}


def shown(text: str) -> str:
    """Return a text with single spaces, as a page may wrap its lines."""
    return re.sub(r"\s+", " ", text)


def test_the_page_shows_the_error_of_a_pod_with_too_many_gpus() -> None:
    text = WRITING.read_text()
    start = text.index('"finetune"')
    changed = text[:start] + text[start:].replace("gpus=1", "gpus=2", 1)
    findings = prove(run(WRITING, changed)).findings
    [finding] = [finding for finding in findings if finding.is_error]
    assert shown(f"{finding.object}: {finding.message}. {finding.remedy}") in shown(text)


def test_the_tutorial_shows_the_error_of_a_task_with_too_many_gpus() -> None:
    text = TUTORIAL.read_text()
    with pytest.raises(RunError) as refused:
        run(TUTORIAL, text.replace("gpus=1", "gpus=2", 1))
    message, _, place = shown(str(refused.value)).partition(" Written at tutorial.md:")
    on_page, _, component = place.partition(" ")
    # The lines of the user's file begin with the block.
    before = text.splitlines()[: int(on_page)]
    line = before[::-1].index("```python")
    assert f"{message} Written at __main__.py:{line} {component.partition('.')[0]}." in shown(text)


def test_the_page_shows_the_error_of_two_providers() -> None:
    def two_providers() -> None:
        team = TeamNamespace("research", gpus=1, cpu="1", memory="1Gi", storage="1Gi")
        Task("check", team=team, image="i", opts=ResourceOptions(provider=Provider("lab")))

    with pytest.raises(ArgumentsError) as refused:
        requests(two_providers)
    assert str(refused.value) in WRITING.read_text()
