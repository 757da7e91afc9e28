"""What protects resources: Pulumi's own message names a flag that is in no program."""

import pulumi
import pytest
from ml_foundations import GpuNodePool, TeamNamespace, Volume

from tests.support.declaring import declared

POOL = {"project": "some-project", "location": "us-central1", "cluster_name": "c"}


def program(*, keep: bool) -> None:
    team = TeamNamespace("research", gpus=1, cpu="1", memory="1Gi", storage="1Ti")
    Volume("raw", team=team, size="1Gi", data=keep)
    Volume("tokens", team=team, size="1Gi", data=keep)
    GpuNodePool(
        "l4",
        **POOL,
        node_service_account="s",
        machine_type="g2-standard-8",
        max_nodes=1,
        deletion_protection=keep,
    )


def lines(monkeypatch: pytest.MonkeyPatch, *, keep: bool) -> list[str]:
    shown: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lambda text, *_: shown.append(text))
    declared(lambda: program(keep=keep))
    return shown


def test_the_arguments_that_protect_are_named_in_one_line_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_data, by_deletion_protection = lines(monkeypatch, keep=True)
    assert by_data.startswith("Volume raw and Volume tokens: data protects them from deletion")
    assert by_data.endswith("set its data to false and run pulumi up first")
    assert by_deletion_protection.startswith("GpuNodePool l4: deletion_protection protects")


def test_without_protected_resources_there_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, keep=False) == []


def test_a_rehearsal_has_a_hint_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ML_FOUNDATIONS_REHEARSAL", "/nowhere")
    assert lines(monkeypatch, keep=True) == []
