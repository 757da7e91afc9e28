"""An accepted rule is as if it did not exist: whatever else is wrong is still found."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.kinds.kind_files import kinds
from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.__main__ import main as plan
from ml_foundations.planning.model.workloads import workload_kinds
from ml_foundations.planning.rules.findings import error

from tests.factories import Manifest, container, deployment, in_namespace, job, template
from tests.planning.test_rules import EDGE, NODES, queued

ROW, FPGA = "rack.example.com/row", "example.com/fpga"


def errors(documents: list[Manifest], *accepted: str) -> set[str]:
    findings = judge(documents, accepted=accepted).findings
    return {each.rule for each in findings if each.is_error}


WARNINGS = {
    *("autoscaling-ceiling", "autoscaling-metric", "beyond-planning", "bucket-identity"),
    *(
        "daemon-set-without-nodes",
        "deadline-waits",
        "driver-path",
        "endless-daemon",
        "gang-on-spot",
    ),
    *("gpu-defaults", "gpu-network", "injected-limits", "limit-range-defaults", "lost-work"),
    *("mps-ipc", "nccl-plugin", "one-by-one", "peer-names", "preemption", "queue"),
    *("queue-capacity", "reads-own-logs", "rollout-surge", "runs-in-turns", "runtime-class"),
    *("shared-memory", "spot-grace", "unknown-admission", "unknown-field", "unknown-kind"),
    *("system-requests", "unknown-value", "work-budget"),
}
"""The rules whose cases are warnings, which hide nothing."""
BY_ERRORS = sorted(EDGE.keys() - WARNINGS)
"""The rules whose cases are errors."""
OF_PODS = [rule for rule in BY_ERRORS if rule != "no-nodes" and not rule.startswith("daemon-set")]
"""Those whose pods a second rule can keep from all nodes; a DaemonSet that no node takes has nothing to do."""


def broken_twice(rule: str) -> tuple[list[Manifest], str, str]:
    """The case of a rule, whose pods also ask for what no node has; the rule that this breaks, and a word of it."""
    documents = copy.deepcopy(EDGE[rule][0])
    for document in documents:
        if document["kind"] in workload_kinds() and not document.get("status"):
            holder: Any = document
            for key in [*filter(None, kinds()[document["kind"]].main_template.split(".")), "spec"]:
                holder = holder[key]
            if rule == "node-selector":
                holder["containers"][0]["resources"] = {"limits": {FPGA: "1"}}
            else:
                holder.setdefault("nodeSelector", {})[ROW] = "a"
    second, word = ("resources", FPGA) if rule == "node-selector" else ("node-selector", ROW)
    return documents, second, word


def test_the_other_rules_are_errors() -> None:
    assert {rule for rule, (trips, _) in EDGE.items() if rule in errors(trips)} == {*BY_ERRORS}


@pytest.mark.parametrize("rule", OF_PODS)
def test_an_accepted_rule_hides_no_other_error(rule: str) -> None:
    documents, second, _ = broken_twice(rule)
    assert second in errors(documents, rule)
    assert judge(documents, accepted=[rule]).stack is Verdict.CANNOT_FIT


@pytest.mark.parametrize("rule", BY_ERRORS)
def test_a_stack_that_breaks_only_accepted_rules_is_not_refused(rule: str) -> None:
    trips, _ = EDGE[rule]
    assert errors(trips, rule) == {rule}
    assert judge(trips, accepted=[rule]).stack is not Verdict.CANNOT_FIT


@pytest.mark.parametrize("rule", OF_PODS)
def test_all_errors_of_a_workload_are_shown_at_once(rule: str) -> None:
    documents, _, word = broken_twice(rule)
    assert any(word in each.message for each in judge(documents).findings if each.is_error)


def test_a_job_that_its_queue_refuses_may_exceed_the_nodes_too() -> None:
    stack = queued(gpus=9)
    assert errors(stack) == {"queue-quota", "resources"}
    assert errors(stack, "queue-quota") == {"queue-quota", "resources"}
    assert judge(stack, accepted=["queue-quota", "resources"]).stack is Verdict.FITS


def test_an_accepted_workload_takes_no_room_from_others() -> None:
    """The competition of other workloads is judged, too, if one alone is too large for the nodes."""
    stack = [*EDGE["competition"][0], job("large", 1, template(containers=[container(cpu=50)]))]
    assert errors(stack) == {"resources"}
    assert errors(stack, "resources") == {"resources", "competition"}


def test_doubtful_pods_that_are_also_refused_are_refused() -> None:
    """Whether the namespace enforces a level is not known; two pods never share a port of one node."""
    ports = [{"containerPort": 80, "hostPort": 80}]
    server = deployment("web", 2, template(containers=[{"name": "main", "ports": ports}]))
    (verdict,) = judge([server, {**NODES, "metadata": {"name": "n", "labels": {}}}]).workloads
    assert verdict.verdict is Verdict.CANNOT_FIT
    assert {each.rule for each in verdict.reasons} == {"pod-security", "nodes"}


TOO_LARGE = template(containers=[container(cpu=100)])


def test_a_rule_is_accepted_for_one_object() -> None:
    documents = [NODES, job("a", 1, TOO_LARGE), job("b", 1, TOO_LARGE)]
    verdicts = judge(documents, accepted=["resources/a"])
    assert [item.verdict for item in verdicts.workloads] == [Verdict.FITS, Verdict.CANNOT_FIT]
    assert verdicts.stack is Verdict.CANNOT_FIT
    assert judge(documents, accepted=["resources/a", "resources/b"]).stack is Verdict.FITS


TOO_LARGE = template(containers=[container(cpu=100)])


def of_team(namespace: str) -> Manifest:
    return in_namespace(namespace, job("train", 1, TOO_LARGE))


@pytest.mark.parametrize("name", ["research/train", "Job research/train"])
def test_an_object_has_the_name_that_findings_print(name: str) -> None:
    documents = [NODES, of_team("research"), of_team("other")]
    verdicts = judge(documents, accepted=[f"resources/{name}"])
    assert [item.verdict for item in verdicts.workloads] == [Verdict.FITS, Verdict.CANNOT_FIT]
    assert judge(documents, accepted=["resources/train"]).stack is Verdict.FITS


def test_an_accepted_rule_of_several_objects_is_that_of_the_first() -> None:
    merged = error("nodes", "Job a/x and 1 more", "", "m", "r")
    assert merged.is_accepted(["nodes/x"])
    assert merged.is_accepted(["nodes/Job a/x"])
    assert not merged.is_accepted(["nodes/more"])


@pytest.mark.parametrize(
    "accepted", ["resources/trian", "resources/other/train", "resources/Pod research/train"]
)
def test_plan_warns_of_what_accepts_nothing(accepted: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump_all([NODES, of_team("research")]))
    good = "resources/research/train"
    assert plan([str(file), "--accept", f"{accepted}=x", "--accept", f"{good}=y"]) == 0
    assert capsys.readouterr().err == (
        f"warning: accept {accepted}: no finding has this rule and name;"
        " write RULE, RULE/NAME or RULE/NAMESPACE/NAME of a finding, or leave it out\n"
    )


def test_a_comparison_shows_a_new_accepted_error(tmp_path: Path, capsys: Any) -> None:
    small = job("train", 1, template(containers=[container(cpu=1)]))
    for name, documents in {"old": small, "new": job("train", 1, TOO_LARGE)}.items():
        (tmp_path / name).write_text(yaml.safe_dump_all([NODES, documents]))
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    shown = "  accepted, because ordered: each pod needs 100 cpu"
    assert plan(["--diff", old, new, "--accept", "resources=ordered"]) == 0
    assert shown in capsys.readouterr().out
    assert plan(["--diff", new, new, "--accept", "resources=ordered"]) == 0
    assert shown not in capsys.readouterr().out


def test_plan_shows_why_an_error_is_accepted(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump_all([NODES, job("a", 1, TOO_LARGE)]))
    assert plan([str(file), "--accept", "resources/a=more are ordered"]) == 0
    assert "accepted, because more are ordered: each pod needs 100 cpu" in capsys.readouterr().out
    assert plan([str(file), "--accept", "resources/b=x"]) == 1


@pytest.mark.parametrize("wrong", ["resorces=x", "resorces/a=x", "resources", "resources="])
def test_plan_refuses_what_names_no_rule_or_reason(wrong: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        plan(["a.yaml", "--accept", wrong])
    assert "Did you mean resources?" in (err := capsys.readouterr().err) or "no reason" in err
