"""The commands that the embedded kubernetes plugin gives to Helm."""

import json
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ml_foundations.rehearsal.plugins.kubernetes.helm import Helm
from ml_foundations.rehearsal.plugins.provider import Provider, State
from ml_foundations.rehearsal.protocol.values import Properties

FAKE = """#!/bin/sh
echo "$@" >> {log}
cat >> {log}.input
"""


@contextmanager
def kubeconfig_file() -> Any:
    yield Path("kubeconfig")


@pytest.mark.parametrize(
    ("chart", "repository", "commands"),
    [
        (
            "app",
            {"repo": "https://charts.example.com"},
            ["repo add program-", "show chart program-"],
        ),
        (
            "oci://registry.example.com/charts/app",
            {},
            ["registry login registry.example.com", "show chart oci://"],
        ),
    ],
)
def test_a_repositorys_password_is_not_on_a_command_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chart: str,
    repository: Properties,
    commands: list[str],
) -> None:
    log = tmp_path / "log"
    (tmp_path / "helm").write_text(FAKE.format(log=log))
    (tmp_path / "helm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    settings = SimpleNamespace(access=SimpleNamespace(kubeconfig_file=kubeconfig_file))
    given = {"username": "me", "password": "hunter2", "caFile": "ca.crt", **repository}
    Helm(Provider(), cast(Any, settings))._show(
        {"chart": chart, "version": "1.0", "repositoryOpts": given}, 10
    )
    lines = log.read_text().splitlines()
    assert all(command in line for command, line in zip(commands, lines, strict=True)), lines
    assert "--username me --password-stdin --ca-file ca.crt" in lines[0]
    assert "--version 1.0" in lines[1]
    assert "hunter2" not in log.read_text()
    assert Path(f"{log}.input").read_text() == "hunter2"


def test_a_release_is_read_with_its_inputs_and_imported_with_what_was_recorded(
    tmp_path: Path,
) -> None:
    recorded = {"name": "app", "namespace": "web", "chart": "app", "version": "1.0", "values": {}}
    (tmp_path / "web.app.json").write_text(json.dumps({**recorded, "installed": False}))
    settings = SimpleNamespace(replica=SimpleNamespace(releases_dir=tmp_path), client=None)
    helm = Helm(Provider(), cast(Any, settings))
    resource = cast(Any, SimpleNamespace(id="web/app"))
    inputs = {**recorded, "timeout": 60}
    for known, expected in ((inputs, inputs), ({}, recorded)):
        state = helm.read(resource, State("web/app", known, {}))
        assert state is not None
        assert state.inputs == expected
