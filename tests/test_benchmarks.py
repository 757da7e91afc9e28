"""That what ``make bench`` is made of still runs; how long it takes is nobody's business here."""

from pathlib import Path

from benchmarks import __main__ as bench
from benchmarks import planning


def test_planning_is_measured() -> None:
    assert planning.judging_seconds(planning.documents(workloads=10, nodes_per_pool=10)) > 0
    assert planning.start_up() > 0
    items = [*planning.nodes(1), planning.job(1), planning.daemon_set(0), planning.kept_apart(planning.workload(0))]
    assert planning.judging_seconds([*items, planning.spread_over(planning.ZONE, planning.workload(1))], runs=1) > 0


def test_a_rehearsal_is_measured_in_a_copy(tmp_path: Path) -> None:
    assert (bench.copy_checkout(tmp_path) / "Makefile").exists()
