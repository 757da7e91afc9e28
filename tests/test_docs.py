"""What the documentation shows is true: commands exist, programs are Python, stack files pass, links lead somewhere."""

import ast
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import CHECKOUT
from tests.support.pages import BLOCK, PAGES, blocks

PROGRAMS = {
    *("gcloud", "kubectl", "pulumi", "eval", "cd", "pip", "git", "helm", "python", "sed"),
    *(".venv/bin/python", "export", "ml-foundations", ".venv/bin/ml-foundations"),
}
PROGRAMS |= {"ml-foundations", ".venv/bin/ml-foundations"}
"""Programs that a page may call, beside make."""


def of(language: str) -> list[object]:
    return [pytest.param(text, id=name) for name, text in blocks(language)]


def test_every_block_names_its_language() -> None:
    known = {"sh", "python", "yaml", "json", "typescript", "diff", "toml", ""}
    assert {name for page in PAGES for _, name, _ in BLOCK.findall(page.read_text())} <= known


@pytest.mark.parametrize("text", of("python"))
def test_python_parses(text: str) -> None:
    ast.parse(text)


@pytest.mark.parametrize("text", of("yaml"))
def test_yaml_parses(text: str) -> None:
    assert list(yaml.safe_load_all(text))


@pytest.mark.parametrize("text", of("sh"))
def test_commands_are_commands(text: str) -> None:
    checked = subprocess.run(
        ["bash", "-n"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    targets = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        match [word for word in words if not re.match(r"[A-Z_]+=", word)]:
            case []:
                continue
            case ["make", target, *_]:
                assert target in targets, line
            case [program, *_]:
                assert program in PROGRAMS, line


def slugs(page: Path) -> set[str]:
    """The addresses of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        name, _, heading = target.partition("#")
        file = Path(os.path.normpath(page.parent / name)) if name else page
        assert file.exists(), target
        assert not heading or heading in slugs(file), target


def test_every_page_can_be_found_from_the_readme() -> None:
    linked = {CHECKOUT / "README.md"}
    waiting = list(linked)
    while waiting:
        page = waiting.pop()
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            found = Path(os.path.normpath(page.parent / target))
            if found.exists() and found not in linked:
                linked.add(found)
                waiting.append(found)
    assert set(PAGES) - {CHECKOUT / "CONTRIBUTING.md"} <= linked


def test_every_fact_has_the_home_that_the_architecture_names() -> None:
    page = (CHECKOUT / "docs" / "architecture.md").read_text()
    section = page.partition("## Where is")[2].partition("\n## ")[0]
    homes = re.findall(r"`([a-z_]+/[\w/.]*)`", section)
    assert len(homes) > 10
    roots = (CHECKOUT / "components" / "ml_foundations", CHECKOUT)
    assert not [home for home in homes if not any((root / home).exists() for root in roots)]


HOW_CHECKED = (
    "rehearsed these stacks on the replica, previewed them with Pulumi's own provider plugins"
)


@pytest.mark.parametrize("page", ["README.md", "docs/going-to-gke.md"])
def test_page_says_how_the_stacks_were_checked(page: str) -> None:
    words = " ".join((CHECKOUT / page).read_text().split())
    assert HOW_CHECKED in words
    assert "**not yet run them on the real GKE**" in words


INSTALL = (
    r"pip3? install|uv add|uv tool install|uvx|pipx install|pipx run|poetry add|npm install|npm i|npm add|npx|yarn add"
    r"|pnpm add|dotnet add package|go get|pulumi package add|pulumi package get-schema|pulumi plugin install"
)
OUR_NAME = r"(?:@pulumi/|pulumi[-_.])?ml[-_]?foundations"
BY_NAME = {
    "a command": rf"(?:{INSTALL})\b[^\n`]*[\"' ]{OUR_NAME}(?![\w/]|\S* @ )",
    "a requirement": rf"^{OUR_NAME}(?:\[[\w,]+\])? *(?:[=~<>!]=|$)",
    "a dependency of Node.js": rf'"{OUR_NAME}": *"(?!file:|link:)',
    "a package of Pulumi.yaml": rf"^ +{OUR_NAME}: *(?:{OUR_NAME}|[\d.]+)\b",
}
"""How a text can install our package from an index, none of which has it."""


def installs_by_name(text: str) -> list[str]:
    flags = re.MULTILINE | re.IGNORECASE
    return [what for what, form in BY_NAME.items() if re.search(form, text, flags)]


@pytest.mark.parametrize(
    "text",
    [
        'pip install "ml-foundations[rehearsal]"',
        "Run: pip install -U ml_foundations==0.1.0",
        "uv add ml-foundations",
        "uvx ml-foundations plan",
        "npm install @pulumi/ml-foundations",
        "dotnet add package Pulumi.MlFoundations",
        "pulumi package add ml-foundations@0.1.0",
        "ml-foundations[rehearsal]==0.1.0",
        '"@pulumi/ml-foundations": "^0.1.0"',
        "packages:\n  ml-foundations: 0.1.0",
    ],
)
def test_an_installation_by_name_is_recognised(text: str) -> None:
    assert installs_by_name(text)


@pytest.mark.parametrize(
    "text",
    [
        'pip install "ml-foundations[rehearsal] @ git+https://git.example/ml-foundations@COMMIT"',
        "pip install '.[rehearsal]'` adds the command `ml-foundations`",
        "pulumi package add ../ml-foundations/components",
        '"@pulumi/ml-foundations": "file:sdks/ml-foundations"',
        "packages:\n  ml-foundations: ../../components",
    ],
)
def test_an_installation_from_an_address_is_allowed(text: str) -> None:
    assert not installs_by_name(text)


def test_nothing_installs_a_name_that_no_index_has() -> None:
    """In docs, messages, examples and workflows, and in what the package says of itself to other tools."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.splitlines() if not name.startswith("tests/")]
    texts = {name: (CHECKOUT / name).read_bytes().decode(errors="ignore") for name in names}
    found = {name: installs_by_name(text) for name, text in texts.items()}
    assert not {name: ways for name, ways in found.items() if ways}
    assert "pluginDownloadURL" not in json.loads((CHECKOUT / "components/schema.json").read_text())
