"""What leaves a rehearsal: neither the page, the report nor the terminal has what pods are given."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.kinds.kind_files import kinds
from ml_foundations.planning.verdict.cost import cost_of
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.rehearsal.api import _error
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import output
from ml_foundations.rehearsal.report import tables, workloads
from ml_foundations.rehearsal.report.contents import Report
from ml_foundations.rehearsal.report.disruptions import _reports
from ml_foundations.rehearsal.report.fleet import Fleet
from ml_foundations.rehearsal.report.page import render

from tests.rehearsal.secret_pods import API_VERSIONS, PLACES, workload

SECRET = "hunter2"
COLLECTIONS = {f"{kind.lower()}s": kind for kind in API_VERSIONS}
GIVEN_TO_PODS = {"args", "annotations", "command", "containers", "env", "metadata", "spec"}
"""Keys of objects that no data of the report may have."""
MESSAGE = (
    'Error creating: Pod "x" is invalid: [metadata.labels: Invalid value: "hunter2 \\"x": a label, '
    'spec.x: Unsupported value: "hunter2": supported values: "a", spec.y: Not found: "hunter2", '
    'spec.template: Invalid value: core.PodTemplateSpec{Env:[]core.EnvVar{{Value:"hunter2"}}}: '
    'field is immutable, spec.z: Invalid value: [{"env":[{"value":"hunter2"}]}]: too bad]'
)


def hide(where: str) -> str:
    return f"{SECRET}-{where}"


def collected(**more: list[dict[str, Any]]) -> list[workloads.Workload]:
    objects = {name: [workload(kind, hide)] for name, kind in COLLECTIONS.items()} | more

    class Answers:
        def get(self, path: str, **_: str) -> dict[str, Any]:
            return {"items": objects.get(path.rpartition("/")[2], [])}

        find = get

    api: Any = Answers()
    return workloads.collect(api, objects["pods"], {}, {}, [])


def keys(data: Any) -> set[str]:
    if isinstance(data, dict):
        return {str(key) for key in data} | set[str]().union(*map(keys, data.values()))
    return set[str]().union(*map(keys, data)) if isinstance(data, list) else set()


def test_every_kind_of_the_table_is_tried() -> None:
    paths = {kind.collection.rpartition("/")[2] for kind in kinds().values()}
    assert paths == COLLECTIONS.keys()
    assert {row.kind for row in collected()} == set(COLLECTIONS.values())
    made = str([workload(kind, hide) for kind in COLLECTIONS.values()])
    assert all(hide(place) in made for place in PLACES)


@pytest.mark.parametrize("kind", COLLECTIONS.values())
def test_what_a_pod_is_given_does_not_leave(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in collected() if row.kind == kind]
    assert len(rows) == 1
    report = Report("dev", [], rows, [], [], [])
    fleet = Fleet([], {}, [], cost_of(()), judge(()))
    page = render(report, fleet, "dev", datetime(2026, 1, 2, tzinfo=UTC))
    tables.show(report, Rehearsal.of("dev", tmp_path), output())
    for text in (page, report.to_json(), capsys.readouterr().out):
        assert "hidden" in text
        assert SECRET not in text
    shown = json.loads(page.partition('type="application/json">')[2].partition("</script>")[0])
    assert not keys(shown) & GIVEN_TO_PODS
    of_report = json.loads(report.to_json())["workloads"][0]
    assert {key: shown["workloads"][0][key] for key in of_report} == of_report, "one serializer"


def test_a_reason_has_no_values() -> None:
    event = {"reason": "FailedCreate", "message": MESSAGE}
    event["involvedObject"] = {"kind": "Job", "name": "hidden", "namespace": "team", "uid": "Job"}
    status = {"conditions": [{"type": "Failed", "status": "True", "message": MESSAGE}]}
    failed = workload("JobSet", hide) | {"status": status}
    rows = {row.kind: row.reason for row in collected(pods=[], events=[event], jobsets=[failed])}
    for reason in (rows["Job"], rows["JobSet"]):
        assert SECRET not in reason
        assert "metadata.labels: Invalid value: …: a label" in reason
        assert 'supported values: "a"' in reason
    about = {
        "metadata": {"creationTimestamp": "2"},
        "involvedObject": {"kind": "JobSet", "name": "a"},
    }
    assert SECRET not in str(_reports([event | about], "1"))


def _message(text: str) -> str:
    return _error(422, json.dumps({"message": text}).encode(), "").message


def test_an_error_of_the_server_has_no_whole_object() -> None:
    message = 'Job "a" is invalid: spec.template: Invalid value: {"env":[{"value":"hunter2"}]}: field is immutable'
    assert _message(message) == (
        'Job "a" is invalid: spec.template: Invalid value: …: field is immutable'
    )
    named = 'metadata.name: Invalid value: "A": must be lower case [a-z]'
    assert _message(named) == named
