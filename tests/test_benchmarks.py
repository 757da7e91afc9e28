"""That what ``make bench`` is made of still runs; how long it takes is nobody's business here."""

from pathlib import Path

import pytest
from ml_foundations.rehearsal.tools.toolchain import Tools

from benchmarks import fleet, planning, stacks, topology


def test_planning_is_measured() -> None:
    assert planning.judging_seconds(planning.documents(workloads=10, nodes_per_pool=10)) > 0
    assert planning.judging_seconds(topology.documents(nodes=20, gangs=3), runs=1) > 0
    assert planning.start_up() > 0
    items = [
        *planning.nodes(1),
        planning.job(1),
        planning.daemon_set(0),
        planning.kept_apart(planning.workload(0)),
    ]
    assert (
        planning.judging_seconds(
            [*items, planning.spread_over(planning.ZONE, planning.workload(1))], runs=1
        )
        > 0
    )


def test_a_rehearsal_is_measured_in_a_copy(tmp_path: Path) -> None:
    assert (stacks.copy_checkout(tmp_path) / "Makefile").exists()


@pytest.mark.parametrize("make", [fleet.by_script, fleet.by_pool])
def test_nodes_and_the_pods_of_a_job_are_measured(tools: Tools, make: fleet.Make) -> None:
    found = fleet.seconds_of(2, make)
    assert found["nodes"] > 0
    assert found["pods"] > 0
    assert found["megabytes"] > 0


def test_what_a_user_waits_for_is_measured(tools: Tools) -> None:
    assert fleet.seconds_of_up(1) > 0


def test_a_program_that_declares_nothing_is_previewed(tools: Tools, tmp_path: Path) -> None:
    stacks.preview(stacks.empty_project(tmp_path))
    assert stacks.row([2.0, 4.0], [1.0, 1.0]) == {"rehearsal": 3.0, "anchor": 1.0, "ratio": 3.0}
