"""The proof in the program of our stacks: what a preview refuses, when, and what it says."""

import json
import re
from collections.abc import Callable

import pytest
import yaml
from ml_foundations.rehearsal.engine import installation, stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import CHECKOUT, Checkout
from tests.support.previewing import preview, write
from tests.support.stack_files import sections

GANG = {"image": "i:1", "nodes": 4, "gpu": "A100", "gpus": 2, "cpu": "8", "memory": "64Gi"}
SHORTAGE = 'Job research/align: each pod needs 2 nvidia.com/gpu, 8 cpu, 64Gi memory; "a100" offers 2 nvidia.com/gpu per node'


@pytest.mark.parametrize("name", ["dev", "staging", "prod"])
def test_nothing_is_undetermined_on_a_first_preview(
    name: str, tools: Tools, copy_checkout: Callable[[], Checkout]
) -> None:
    said = preview(copy_checkout().root, tools, name)
    assert said.ok, said.diagnostics
    assert said.created
    # Google names these images by tags alone.
    by_tag = ("/gpudirect-", "/custom-metrics-stackdriver-adapter:")
    others = [text for text in said.of("warning") if not any(image in text for image in by_tag)]
    assert others == []
    (summary,) = [text for text in said.of("info") if text.startswith("proof:")]
    assert summary.startswith("proof: The stack fits.")
    assert "USD per hour" in summary


def test_a_stack_that_cannot_run_is_refused_before_registration(
    tools: Tools, copy_checkout: Callable[[], Checkout]
) -> None:
    """Even ``up --skip-preview`` creates nothing."""
    checkout = copy_checkout()
    given = sections()
    given["teams"]["research"]["distributedTrainings"] = {"align": GANG}
    given["teams"]["serving"]["inferenceServices"]["chat"]["replicas"] = 5
    write(checkout, given)
    rehearsal = Rehearsal.of("dev", checkout.root)
    installation.install(rehearsal, tools)
    stack.create(rehearsal)
    done = stack.pulumi(rehearsal, "up", "--yes", "--skip-preview")
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert SHORTAGE in said
    tutorial = (CHECKOUT / "docs" / "tutorial.md").read_text()
    errors = re.findall(r"  (Deployment serving/chat: [^…]*) …", tutorial)
    assert len(errors) == 2
    assert all(" ".join(error.split()) in " ".join(said.split()) for error in errors)
    assert "Traceback" not in said
    state = json.loads(stack.pulumi(rehearsal, "stack", "export").stdout)
    assert [item["type"] for item in state["deployment"]["resources"]] == ["pulumi:pulumi:Stack"]


def test_a_stack_file_may_accept_a_rule_and_set_a_budget(
    tools: Tools, copy_checkout: Callable[[], Checkout]
) -> None:
    checkout = copy_checkout()
    given = sections()
    a_day = {"align": GANG | {"activeDeadlineSeconds": 86400}}
    given["teams"]["research"]["distributedTrainings"] = a_day
    given["teams"]["research"]["quota"]["gpus"] = 16  # for align and finetune together
    given["proof"] = {"accept": {"nodes": "a reservation comes in May"}, "monthlyBudget": 100_000}
    write(checkout, given)
    said = preview(checkout.root, tools)
    assert said.ok, said.diagnostics
    (warning,) = said.of("warning")
    assert warning.startswith(f"accepted, because a reservation comes in May: {SHORTAGE}")
    assert warning.endswith("[nodes, spec.parallelism]")
    given = sections() | {"proof": {"monthlyBudget": 100}}
    write(checkout, given)
    said = preview(checkout.root, tools)
    assert not said.ok
    assert said.created == []
    (error, _) = said.of("error")
    assert "above the budget of 100" in error
    assert "[monthly-budget, monthly_budget]" in error


def test_a_queue_on_a3_mega_selects_its_own_accelerator(
    tools: Tools, copy_checkout: Callable[[], Checkout]
) -> None:
    """A3 High has the same product label, and another accelerator type."""
    checkout = copy_checkout()
    config = yaml.safe_load((CHECKOUT / "tests" / "stacks" / "a3_mega.yaml").read_text())["config"]
    write(checkout, {key.partition(":")[2]: value for key, value in config.items()})
    said = preview(checkout.root, tools)
    errors = [text for text in said.of("error") if "[placeholder" not in text]
    assert errors == [], errors
    assert any(text.startswith("proof: The stack fits.") for text in said.of("info")), (
        said.diagnostics
    )
