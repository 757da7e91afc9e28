"""Every image and chart that the project names is in the one table, with the day on which it was checked."""

import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.catalog import versions

from tests.support import recording
from tests.support.checkout import CHECKOUT
from tests.support.recording import EXAMPLES, STACKS
from tools import outdated as table

IMAGE = re.compile(
    r"""\bimage["']?: ["']?([\w.-]+(?:/[\w.-]+)*:[\w.-]+(?:@sha256:[0-9a-f]{64})?)""", re.IGNORECASE
)
"""An image in YAML, Python or TypeScript, by its tag."""
RULES = CHECKOUT / "docs" / "components" / "rules.md"
"""The images of its examples do not exist."""
PAGES = [CHECKOUT / "README.md", *sorted({*(CHECKOUT / "docs").rglob("*.md")} - {RULES})]


def texts(folder: str) -> list[Path]:
    """The texts of a folder that may name an image."""
    suffixes = (".yaml", ".py", ".ts", ".json")
    paths = [path for path in (CHECKOUT / folder).rglob("*.*") if path.suffix in suffixes]
    return [path for path in sorted(paths) if "node_modules" not in path.parts]


TEXTS = [*PAGES, *texts("stacks"), *texts("examples")]
OF_TABLE = {reference for entry in table.versions() for reference in entry.references}


def images(tree: Any) -> Iterator[str]:
    """The images of containers anywhere in a tree."""
    if isinstance(tree, dict):
        if isinstance(tree.get("image"), str) and "name" in tree:
            yield tree["image"]
        tree = list(tree.values())
    for value in tree if isinstance(tree, list) else ():
        yield from images(value)


@pytest.mark.parametrize(
    ("recorded", "name"),
    [
        *((recording.stack, name) for name in STACKS),
        *((recording.example, name) for name in EXAMPLES),
    ],
)
def test_images_of_stacks_and_examples_are_in_the_table(
    recorded: Callable[[str], list[Any]], name: str
) -> None:
    found = {image for resource in recorded(name) for image in images(resource["inputs"])}
    assert found
    assert found <= OF_TABLE


def test_images_in_files_and_pages_are_in_the_table() -> None:
    found = {path: {*IMAGE.findall(path.read_text())} for path in TEXTS}
    assert any(found[page] for page in PAGES)
    assert not {path: images - OF_TABLE for path, images in found.items() if images - OF_TABLE}


def test_what_the_components_deploy_is_in_the_table() -> None:
    named = vars(versions)
    charts = [each for each in named.values() if isinstance(each, versions.Chart)]
    in_table = {(entry.name, entry.version) for entry in table.versions()}
    assert {(each.name, each.version) for each in charts} <= in_table
    deployed = {named[key] for key in named if key.endswith("_IMAGE")}
    assert deployed | {*versions.DRIVER_INSTALLER_IMAGES.values()} <= OF_TABLE


def test_the_page_names_the_deployed_images_without_a_digest() -> None:
    """A new image by tag needs its digest, or a line on the page on security."""
    page = (CHECKOUT / "docs" / "security.md").read_text()
    section = page.partition("**Images.**")[2].partition("**Keys.**")[0]
    listed = "".join(re.findall(r"^- .*$", section, re.MULTILINE))
    named = set(re.findall(r"`([\w.-]+:[\w.-]+)`", listed))
    deployed = {image for key, image in vars(versions).items() if key.endswith("_IMAGE")}
    assert named == {image.rpartition("/")[2] for image in deployed if "@" not in image}


def test_an_entry_says_where_it_was_checked() -> None:
    for entry in table.versions():
        assert entry.source, entry.name
        assert entry.digest == "" or re.fullmatch("sha256:[0-9a-f]{64}", entry.digest), entry.name


def test_an_entry_is_outdated_after_90_days(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = table.Version("i", "1", "", date(2026, 1, 1), "Docker Hub", "2 exists")
    monkeypatch.setattr(table, "versions", lambda: [entry])
    monkeypatch.setattr(table, "prices", list)
    assert table.outdated(date(2026, 1, 1) + timedelta(days=90)) == []
    assert table.outdated(date(2026, 1, 1) + timedelta(days=91)) == [entry]
    table.main()
    assert capsys.readouterr().out == "i 1: checked 2026-01-01, Docker Hub. 2 exists\n"


def test_prices_are_outdated_after_90_days() -> None:
    """Each table of prices, by its sources."""
    assert {entry.name for entry in table.prices()} == {"prices.csv", "charges.csv"}
    for entry in table.prices():
        assert entry in table.outdated(entry.checked + timedelta(days=91))
        assert entry not in table.outdated(entry.checked + timedelta(days=90))
