"""The bill of our stacks is limited: by a budget just above what they cost at their most, and by deadlines."""

from decimal import Decimal

import pytest
import yaml
from ml_foundations.catalog.tables import rows
from ml_foundations.planning.verdict.program import judge_program

from tests.support import recording
from tests.support.checkout import CHECKOUT

JOBS = ("batch/v1:Job", "batch/v1:CronJob", "jobset.x-k8s.io/v1alpha2:JobSet")


@pytest.mark.parametrize("stack", recording.STACKS)
def test_a_budget_covers_the_stack_at_its_largest(stack: str) -> None:
    config = yaml.safe_load((CHECKOUT / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]
    budget = Decimal(config["ml-foundations:proof"]["monthlyBudget"])
    cost = judge_program([(each["type"], each["inputs"]) for each in recording.stack(stack)]).cost
    assert cost.unknown == []
    assert Decimal("0.9") < cost.at_least[1] * 730 / budget < 1


@pytest.mark.parametrize("stack", recording.STACKS)
def test_every_training_has_a_deadline(stack: str) -> None:
    jobs = [
        each for each in recording.stack(stack) if each["type"].removeprefix("kubernetes:") in JOBS
    ]
    specs = [each["inputs"]["spec"] for each in jobs]
    specs = [spec.get("jobTemplate", {}).get("spec", spec) for spec in specs]
    assert specs
    assert all(spec.get("activeDeadlineSeconds") for spec in specs)


@pytest.mark.parametrize("table", ["charges.csv", "filestore.csv"])
def test_every_price_and_size_has_a_source_and_a_date(table: str) -> None:
    for row in rows(table):
        assert row["source"]
        assert row["source_date"].startswith("2026-")
