"""What nodes cost, and what is said where a price is not known."""

from decimal import Decimal
from typing import Any

from ml_foundations.planning import judge
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.cost import RunCost, cost_of, over_budget
from ml_foundations.planning.verdict.gpu_cost import GpuCost
from ml_foundations.planning.verdict.report import as_text

from tests.planning.building import (
    GPU,
    Manifest,
    anti_affinity,
    deployment,
    job,
    node,
    pool,
    stateful_set,
    template,
)

MACHINE = "node.kubernetes.io/instance-type"
REGION = "topology.kubernetes.io/region"


def priced(name: str, machine: str, count: int = 2, region: str = "us-central1", **labels: str) -> Manifest:
    place = {MACHINE: machine, REGION: region}
    manifest = pool(name, count, place | {key.replace("_", "/"): value for key, value in labels.items()})
    manifest["metadata"]["annotations"]["ml-foundations/min-nodes"] = "1"
    return manifest


def test_a_pool_costs_its_fewest_and_its_most_nodes() -> None:
    cost = cost_of([node_class(priced("h100", "a3-highgpu-8g"))])
    assert (cost.per_hour_min, cost.per_hour_max, cost.unknown) == (Decimal("88.49"), Decimal("176.98"), [])


def test_a_node_costs_what_it_costs() -> None:
    cost = cost_of([node_class(node("n", {MACHINE: "n2-standard-8", REGION: "us-central1"}))])
    assert cost.per_hour_min == cost.per_hour_max == Decimal("0.3885")


def test_spot_nodes_and_attached_gpus_have_prices_of_their_own() -> None:
    spot = node_class(priced("spot", "a3-highgpu-8g", **{"cloud.google.com_gke-spot": "true"}))
    assert cost_of([spot]).per_hour_max == Decimal("101.2190")
    gpus = {"cloud.google.com_gke-accelerator": "nvidia-tesla-t4"}
    attached = priced("t4", "n1-standard-8", 1, **gpus)
    attached["status"]["allocatable"][GPU] = "2"
    assert cost_of([node_class(attached)]).per_hour_max == Decimal("1.08")


def test_a_price_that_is_not_known_is_never_zero() -> None:
    cost = cost_of([node_class(priced("b200", "a4-highgpu-8g")), node_class(priced("cpu", "n2-standard-8"))])
    assert (cost.per_hour_min, cost.per_hour_max, cost.unknown) == (None, None, ["b200"])
    declared = priced("b200", "a4-highgpu-8g")
    declared["metadata"]["annotations"]["ml-foundations/usd-per-hour"] = "100"
    assert cost_of([node_class(declared)]).per_hour_max == 200
    by_label = node_class(priced("b200", "a4-highgpu-8g", **{"ml-foundations_usd-per-hour": "98.5"}))
    assert cost_of([by_label]).per_hour_max == 197


def test_a_price_is_that_of_the_nodes_region_or_unknown() -> None:
    def in_region(region: str) -> Decimal | None:
        return cost_of([node_class(priced("mega", "a3-megagpu-8g", 1, **{REGION: region}))]).per_hour_max

    assert in_region("us-east4") == Decimal("92.9376")
    assert in_region("asia-northeast1") == Decimal("119.2764")
    assert in_region("us-central1") is None
    elsewhere = node("n", {MACHINE: "n2-standard-8"})
    assert cost_of([node_class(elsewhere)]).per_hour_max is None


def test_a_sum_with_an_unknown_price_says_what_it_leaves_out() -> None:
    cost = cost_of([node_class(priced("b200", "a4-highgpu-8g")), node_class(priced("h100", "a3-highgpu-8g"))])
    assert cost.at_least == (Decimal("88.49"), Decimal("176.98"))
    warning = over_budget(cost, Decimal(130_000))
    assert warning is not None
    assert "no price is known for b200; the others cost 129195 at most" in warning.message
    excess = over_budget(cost, Decimal(100_000))
    assert excess is not None
    assert excess.severity == "error"
    assert "at least 129195 USD in a month" in excess.message
    assert "no price is known for b200" in excess.message
    shown = as_text(judge([priced("b200", "a4-highgpu-8g"), priced("h100", "a3-highgpu-8g")]))
    assert "Nodes cost at least 88.49 to 176.98 USD per hour" in shown
    assert "No price is known for b200." in shown


def test_a_budget_that_the_nodes_may_exceed_is_a_finding() -> None:
    cost = cost_of([node_class(priced("h100", "a3-highgpu-8g")), node_class(priced("cpu", "n2-standard-8"))])
    assert over_budget(cost, Decimal(129_763)) is None
    finding = over_budget(cost, Decimal(100_000))
    assert finding is not None
    assert finding.message == (
        "at their most, the nodes cost 129763 USD in a month of 730 h, 29763 above the budget of 100000"
    )
    assert finding.remedy == 'Lower the maximum of the dearest pool "h100" (2 nodes), or raise the budget.'
    unknown = over_budget(cost_of([node_class(priced("b200", "a4-highgpu-8g"))]), Decimal(1))
    assert unknown is not None
    assert unknown.severity == "warning"


def test_a_run_costs_its_nodes_for_its_time() -> None:
    nodes = [priced("h100", "a3-highgpu-8g"), priced("b200", "a4-highgpu-8g"), priced("dear", "a2-megagpu-16g", 9)]
    (job_verdict,) = judge(
        [*nodes, job("train", 2, template(affinity=anti_affinity()), activeDeadlineSeconds=5400)]
    ).workloads
    assert job_verdict.run_cost == RunCost("dear", 2, Decimal("1.5"), Decimal("167.2185"))
    (endless,) = judge([*nodes, job("train", 2, template())]).workloads
    assert endless.run_cost is None


def gpu_pool(name: str, machine: str, gpus: int) -> Manifest:
    manifest = priced(name, machine)
    manifest["status"]["allocatable"][GPU] = str(gpus)
    return manifest


def test_gpus_cost_their_part_of_the_cheapest_node_that_takes_them() -> None:
    wants = {"containers": [{"name": "main", "image": "i", "resources": {"limits": {GPU: "2"}}}]}
    nodes = [gpu_pool("h100", "a3-highgpu-8g", 8), gpu_pool("dear", "a2-megagpu-16g", 1)]
    run = job("train", 2, template(**wants), activeDeadlineSeconds=5400)
    verdicts = judge([*nodes, run, deployment("web", 1, template(**wants)), deployment("cpu", 1, template())])
    train, web, cpu = (item.gpus for item in verdicts.workloads)
    assert train == GpuCost(4, Decimal("44.245"), Decimal("66.3675"))
    assert web == GpuCost(2, Decimal("22.1225"))
    assert cpu is None
    assert web.per_month == Decimal("22.1225") * 730
    assert verdicts.teams == {"team": GpuCost(6, Decimal("66.3675"))}
    text = report.as_text(verdicts)
    assert "  4 GPUs: 44.24 USD per hour, 66.37 per run, 32299 in a month of 730 h.\n" in text
    assert "Team team: 6 GPUs: 66.37 USD per hour, 48448 in a month of 730 h." in text


def with_fast_disks(region: str, **topology: Any) -> list[Manifest]:
    """A GPU pool of a region, a claim of a fast disk, and two shards with one each."""
    parameters = {"type": "hyperdisk-ml", "provisioned-throughput-on-create": "2400Mi"}
    if topology:
        parameters["enable-multi-zone-provisioning"] = "true"
    of_class = {"apiVersion": "storage.k8s.io/v1", "provisioner": "pd.csi.storage.gke.io", "parameters": parameters}
    fast = {"kind": "StorageClass", "metadata": {"name": "fast"}, **of_class, **topology}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}
    shards = stateful_set("shards", 2, template(), volumeClaimTemplates=[{"metadata": {"name": "parts"}, "spec": spec}])
    data = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "team"}}
    return [priced("l4", "g2-standard-8", region=region), fast, data | {"spec": spec}, shards]


SPEED = "2400Mi per second of hyperdisk-ml for claim"


def test_the_speed_of_disks_is_counted_where_its_price_is_known() -> None:
    cost = judge(with_fast_disks("us-central1")).cost
    nodes = cost.pools[0]
    per_disk = Decimal("0.000164384") * 2400
    assert [(disk.name, disk.per_hour_max) for disk in cost.disks] == [
        (f"{SPEED} data", per_disk),
        (f"{SPEED} parts", per_disk * 2),
    ]
    assert cost.unknown == []
    assert cost.per_hour_max == (nodes.per_hour_max or 0) + per_disk * 3
    assert "Nodes and the speed of disks cost " in report.as_text(judge(with_fast_disks("us-central1")))


def test_a_dataset_has_a_fast_disk_in_each_zone() -> None:
    zones = {"key": "topology.gke.io/zone", "values": ["us-central1-a", "us-central1-b"]}
    cost = judge(with_fast_disks("us-central1", allowedTopologies=[{"matchLabelExpressions": [zones]}])).cost
    assert [disk.most for disk in cost.disks] == [2, 4]


def test_the_speed_of_a_disk_is_billed_where_its_price_is_not_known() -> None:
    verdicts = judge(with_fast_disks("us-east4"))
    assert judge(with_fast_disks("us-east4")[:1]).cost.unknown == []
    assert verdicts.cost.unknown == [f"{SPEED} data", f"{SPEED} parts"]
    assert (verdicts.cost.per_hour_min, verdicts.cost.per_hour_max) == (None, None)
    assert "Nodes and the speed of disks cost at least" in report.as_text(verdicts)
    assert f"No price is known for {SPEED} data, {SPEED} parts." in report.as_text(verdicts)
    excess = over_budget(verdicts.cost, Decimal(1_000_000))
    assert excess is not None
    assert "cannot be compared with the budget: no price is known for 2400Mi" in excess.message


def test_gpus_without_a_price_are_not_free() -> None:
    wants = {"containers": [{"name": "main", "image": "i", "resources": {"limits": {GPU: "2"}}}]}
    verdicts = judge([gpu_pool("b200", "a4-highgpu-8g", 8), deployment("web", 1, template(**wants))])
    assert verdicts.teams["team"] == GpuCost(2, None)
    assert "Team team: 2 GPUs, at a price that is not known." in report.as_text(verdicts)
