"""What a rehearsal puts in place: the plugins that the engine finds."""

from pathlib import Path

import pytest

from rehearsal import environment
from rehearsal.layout import Rehearsal
from rehearsal.progress import RehearsalError
from rehearsal.toolchain import Tools


@pytest.fixture
def rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
    return Rehearsal.of("dev", tmp_path / "project")


def plant(home: Path, version: str) -> Path:
    folder = home / "plugins" / f"resource-kubernetes-{version}"
    folder.mkdir(parents=True)
    return folder


def plugin(rehearsal: Rehearsal) -> Path:
    [folder] = (rehearsal.pulumi_home / "plugins").glob("resource-kubernetes-*")
    return folder


def test_the_official_plugin_is_the_newest_of_the_users_own(
    rehearsal: Rehearsal, tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path / "own", "v4.9.0")
    newest = plant(tmp_path / "own", "v4.30.0")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "own"))
    environment.install(rehearsal, tools, official_kubernetes=True)
    assert plugin(rehearsal).resolve() == newest


def test_in_a_rehearsals_own_shell_the_official_plugin_is_still_the_users(
    rehearsal: Rehearsal, tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.install(rehearsal, tools)
    monkeypatch.setenv("PULUMI_HOME", str(rehearsal.pulumi_home))
    with pytest.raises(RehearsalError, match=r"no official kubernetes plugin in .*home/\.pulumi"):
        environment.install(rehearsal, tools, official_kubernetes=True)
    assert (plugin(rehearsal) / "pulumi-resource-kubernetes").exists(), "what was there is gone"
    own = plant(tmp_path / "home" / ".pulumi", "v4.30.0")
    environment.install(rehearsal, tools, official_kubernetes=True)
    assert plugin(rehearsal).resolve() == own
