"""What nodes cost, and what is said where a price is not known."""

from decimal import Decimal
from typing import Any

import pytest
from ml_foundations.catalog.pools import CLUSTER, NODE_POOL
from ml_foundations.planning import UNKNOWN, judge
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict import cost, report
from ml_foundations.planning.verdict.cost import Cost, GpuCost, RunCost, over_budget
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.report import as_text
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import (
    GPU,
    MAX_NODES,
    Manifest,
    anti_affinity,
    claim,
    container,
    deployment,
    job,
    namespaced,
    node,
    pool,
    quota,
    stateful_set,
    template,
)
from tests.support.cluster_objects import PD, claim_template, kueue, storage_class, using

MACHINE = "node.kubernetes.io/instance-type"
REGION = "topology.kubernetes.io/region"


CHEAP = "n2-standard-8"
H100, B200 = "a3-highgpu-8g", "a4-highgpu-8g"
"""The list prices have none for B200."""


def priced(
    name: str, machine: str, count: int = 2, region: str = "us-central1", **labels: str
) -> Manifest:
    given = {key.replace("_", "/"): value for key, value in labels.items()}
    manifest = pool(name, count, {MACHINE: machine, REGION: region} | given)
    manifest["metadata"]["annotations"]["ml-foundations/min-nodes"] = "1"
    return manifest


def cost_of(*nodes: Manifest) -> Cost:
    return cost.cost_of([node_class(each) for each in nodes])


def exceeding(spent: Cost, budget: Any) -> Finding:
    """The finding about a budget that is not enough."""
    finding = over_budget(spent, Decimal(budget))
    assert finding is not None
    return finding


def test_a_pool_costs_its_fewest_and_its_most_nodes() -> None:
    cost = cost_of(priced("h100", H100))
    prices = Decimal("88.49"), Decimal("176.98"), []
    assert (cost.per_hour_min, cost.per_hour_max, cost.unknown) == prices


def test_a_node_costs_what_it_costs() -> None:
    cost = cost_of(node("n", {MACHINE: CHEAP, REGION: "us-central1"}))
    assert cost.per_hour_min == cost.per_hour_max == Decimal("0.3885")


def test_spot_nodes_and_attached_gpus_have_prices_of_their_own() -> None:
    spot = priced("spot", H100, **{"cloud.google.com_gke-spot": "true"})
    assert cost_of(spot).per_hour_max == Decimal("101.2190")
    gpus = {"cloud.google.com_gke-accelerator": "nvidia-tesla-t4"}
    attached = priced("t4", "n1-standard-8", 1, **gpus)
    attached["status"]["allocatable"][GPU] = "2"
    assert cost_of(attached).per_hour_max == Decimal("1.08")


def test_a_price_that_is_not_known_is_never_zero() -> None:
    cost = cost_of(priced("b200", B200), priced("cpu", CHEAP))
    assert (cost.per_hour_min, cost.per_hour_max, cost.unknown) == (None, None, ["b200"])
    declared = priced("b200", B200)
    declared["metadata"]["annotations"]["ml-foundations/usd-per-hour"] = "100"
    assert cost_of(declared).per_hour_max == 200
    by_label = priced("b200", B200, **{"ml-foundations_usd-per-hour": "98.5"})
    assert cost_of(by_label).per_hour_max == 197


@pytest.mark.parametrize(
    ("nodes", "per_hour"),
    [
        (priced("mega", "a3-megagpu-8g", 1, "us-east4"), Decimal("92.9376")),
        (priced("mega", "a3-megagpu-8g", 1, "asia-northeast1"), Decimal("119.2764")),
        (priced("mega", "a3-megagpu-8g", 1, "us-central1"), None),
        (node("n", {MACHINE: CHEAP}), None),
    ],
    ids=["us-east4", "asia-northeast1", "us-central1", "no region"],
)
def test_a_price_is_that_of_the_nodes_region_or_unknown(
    nodes: Manifest, per_hour: Decimal | None
) -> None:
    assert cost_of(nodes).per_hour_max == per_hour


def test_a_sum_with_an_unknown_price_says_what_it_leaves_out() -> None:
    pools = priced("b200", B200), priced("h100", H100)
    cost = cost_of(*pools)
    assert cost.at_least == (Decimal("88.49"), Decimal("176.98"))
    warning = exceeding(cost, 130_000)
    assert "no price is known for b200; other resources cost 129195 at most" in warning.message
    excess = exceeding(cost, 100_000)
    assert excess.severity == "error"
    assert "at least 129195 USD in a month" in excess.message
    assert "no price is known for b200" in excess.message
    shown = as_text(judge([*pools]))
    assert "Nodes cost at least 88.49 to 176.98 USD per hour" in shown
    assert "No price is known for b200." in shown


def test_a_budget_that_the_nodes_may_exceed_is_a_finding() -> None:
    cost = cost_of(priced("h100", H100), priced("cpu", CHEAP))
    assert over_budget(cost, Decimal(129_763)) is None
    finding = exceeding(cost, 100_000)
    assert finding.message == (
        "at their most, the nodes cost 129763 USD in a month of 730 h, 29763 above the budget of 100000"
    )
    remedy = 'Lower the maximum of the dearest pool "h100" (2 nodes), or raise the budget.'
    assert finding.remedy == remedy
    assert exceeding(cost_of(priced("b200", B200)), 1).severity == "warning"


def test_a_run_costs_its_nodes_for_its_time() -> None:
    dear = priced("dear", "a2-megagpu-16g", 9)
    nodes = [priced("h100", H100), priced("b200", B200), dear]
    apart = template(affinity=anti_affinity())
    (timed,) = judge([*nodes, job("train", 2, apart, activeDeadlineSeconds=5400)]).workloads
    assert timed.run_cost == RunCost("dear", 2, Decimal("1.5"), Decimal("167.2185"))
    (endless,) = judge([*nodes, job("train", 2, template())]).workloads
    assert endless.run_cost is None


def gpu_pool(name: str, machine: str, gpus: int, most: str = "2") -> Manifest:
    manifest = priced(name, machine)
    manifest["status"]["allocatable"][GPU] = str(gpus)
    manifest["metadata"]["annotations"][MAX_NODES] = most
    return manifest


def test_gpus_cost_their_part_of_the_cheapest_fitting_node() -> None:
    nodes = [gpu_pool("h100", H100, 8), gpu_pool("dear", "a2-megagpu-16g", 1)]
    run = job("train", 2, using(gpu=2), activeDeadlineSeconds=5400)
    servers = [deployment("web", 1, using(gpu=2)), deployment("cpu", 1, template())]
    verdicts = judge([*nodes, run, *servers])
    train, web, cpu = (item.gpus for item in verdicts.workloads)
    per_hour = Decimal("22.1225")
    assert train == GpuCost(4, Decimal("44.245"), Decimal("66.3675"))
    assert web == GpuCost(2, per_hour, per_month=per_hour * 730)
    assert cpu is None
    assert verdicts.teams == {"team": GpuCost(6, Decimal("66.3675"), per_month=per_hour * 730)}
    text = report.as_text(verdicts)
    assert "  4 GPUs at once: 44.24 USD per hour of a run, at most 66.37 per run.\n" in text
    stays = "66.37 USD per hour, 16149 in a month of 730 h for what stays."
    assert f"Team team: 6 GPUs at once: {stays}" in text


def test_a_node_without_room_for_the_pod_gives_no_price() -> None:
    small = gpu_pool("small", "g2-standard-4", 1)
    small["status"]["allocatable"]["cpu"] = "3920m"
    large = gpu_pool("large", "g2-standard-24", 2)
    large["status"]["allocatable"]["cpu"] = "23"
    verdicts = judge([small, large, deployment("web", 1, using(gpu=1, cpu=8))])
    alone = judge([large, deployment("web", 1, using(gpu=1, cpu=8))])
    assert verdicts.workloads[0].gpus == alone.workloads[0].gpus
    assert (
        verdicts.workloads[0].gpus
        != judge([small, deployment("web", 1, using(gpu=1))]).workloads[0].gpus
    )


def with_fast_disks(region: str, **topology: Any) -> list[Manifest]:
    """A GPU pool of a region, a claim of a fast disk, and two shards with one each."""
    parameters = {"type": "hyperdisk-ml", "provisioned-throughput-on-create": "2400Mi"}
    if topology:
        parameters["enable-multi-zone-provisioning"] = "true"
    binding = {"volumeBindingMode": "Immediate"}
    fast = storage_class("fast", PD, parameters=parameters, **binding, **topology)
    claims = [claim_template("parts", storageClassName="fast")]
    shards = stateful_set("shards", 2, template(), volumeClaimTemplates=claims)
    return [
        priced("l4", "g2-standard-8", region=region),
        fast,
        claim("data", storageClassName="fast"),
        shards,
    ]


def named(verdicts: Verdicts) -> dict[str, Decimal | None]:
    return {each.name: each.per_hour_max for each in verdicts.cost.storage}


PER_DISK = Decimal("0.08") / 730 * 4 + Decimal("0.000164384") * 2400
"""A disk of hyperdisk-ml has 4 GiB at least, and its speed is billed as well."""
STAND_IN = ", at the price of us-central1"


def test_the_size_and_the_speed_of_disks_are_counted() -> None:
    verdicts = judge(with_fast_disks("us-central1"))
    assert named(verdicts) == {
        "claim team/data (4 GiB of hyperdisk-ml)": PER_DISK,
        "claim parts of StatefulSet team/shards (4 GiB of hyperdisk-ml)": PER_DISK * 2,
    }
    assert verdicts.cost.unknown == []
    assert verdicts.cost.per_hour_max == (verdicts.cost.pools[0].per_hour_max or 0) + PER_DISK * 3
    shown = report.as_text(verdicts)
    prices = "2.04 to 2.89 USD per hour by list prices: nodes 0.85 to 1.71, storage 1.18."
    assert f"Nodes, storage cost {prices}" in shown
    assert "Not counted: traffic, logs, flow logs, snapshots, " in shown


@pytest.mark.parametrize(("is_on", "disks"), [("true", [2, 4]), ("false", [1, 2])])
def test_a_dataset_has_a_disk_in_each_zone(is_on: str, disks: list[int]) -> None:
    zones = {"key": "topology.gke.io/zone", "values": ["us-central1-a", "us-central1-b"]}
    topologies = [{"matchLabelExpressions": [zones]}]
    stack = with_fast_disks("us-central1", allowedTopologies=topologies)
    stack[1]["parameters"]["enable-multi-zone-provisioning"] = is_on
    assert [disk.most for disk in judge(stack).cost.storage] == disks


def test_a_price_of_another_region_is_marked() -> None:
    verdicts = judge(with_fast_disks("us-east4"))
    assert set(named(verdicts).values()) == {PER_DISK, PER_DISK * 2}
    assert all(name.endswith(STAND_IN) for name in named(verdicts))
    own = judge(with_class("us-east4", PD, {"type": "pd-ssd"}, "1Ti"))
    assert named(own) == {"claim team/data (1024 GiB of pd-ssd)": Decimal("0.187") / 730 * 1024}


def test_a_volume_without_a_price_is_named_and_never_free() -> None:
    verdicts = judge(with_class("us-central1", PD, {"type": "hyperdisk-throughput"}, "2Ti"))
    name = "claim team/data (2048 GiB of hyperdisk-throughput)"
    assert (verdicts.cost.per_hour_min, verdicts.cost.unknown) == (None, [name])
    assert f"No price is known for {name}." in report.as_text(verdicts)
    excess = exceeding(verdicts.cost, 1_000_000)
    assert f"cannot be compared with the budget: no price is known for {name}" in excess.message


FILESTORE, LUSTRE = "filestore.csi.storage.gke.io", "lustre.csi.storage.gke.io"
REGIONAL = {"type": "pd-ssd", "replication-type": "regional-pd"}


def with_class(region: str, driver: str, parameters: Manifest, size: str) -> list[Manifest]:
    """A GPU pool of a region, and a claim of a class."""
    pool_, made, claim, _ = with_fast_disks(region)
    spec = claim["spec"] | {"resources": {"requests": {"storage": size}}}
    return [pool_, made | {"provisioner": driver, "parameters": parameters}, claim | {"spec": spec}]


@pytest.mark.parametrize(
    ("driver", "parameters", "size", "shown", "per_month"),
    [
        (PD, {"type": "pd-standard"}, "10Gi", "10 GiB of pd-standard", "0.4"),
        (PD, REGIONAL, "10Gi", "10 GiB of regional pd-ssd", "3.4"),
        (PD, {"type": "hyperdisk-balanced"}, "1Gi", "4 GiB of hyperdisk-balanced", "0.32"),
        (FILESTORE, {"tier": "standard"}, "100Gi", "100 GiB of filestore-basic-hdd", "49"),
        (FILESTORE, {"tier": "standard"}, "1023Gi", "1023 GiB of filestore-basic-hdd", "196.68"),
        (FILESTORE, {"tier": "standard"}, "1Ti", "1024 GiB of filestore-basic-hdd", "163.84"),
        (FILESTORE, {"tier": "zonal"}, "100Gi", "1024 GiB of filestore-zonal", "256"),
        (FILESTORE, {"tier": "zonal"}, "1100Gi", "1280 GiB of filestore-zonal", "320"),
        (FILESTORE, {"tier": "zonal"}, "10Ti", "10240 GiB of filestore-zonal", "2560"),
        (FILESTORE, {"tier": "regional"}, "100Gi", "100 GiB of filestore-regional", "45"),
        (LUSTRE, {"perUnitStorageThroughput": "1000"}, "9000Gi", "9000 GiB of lustre", None),
    ],
)
def test_storage_costs_what_its_driver_makes(
    driver: str, parameters: Manifest, size: str, shown: str, per_month: str | None
) -> None:
    ((name, per_hour),) = named(judge(with_class("us-central1", driver, parameters, size))).items()
    assert name.startswith(f"claim team/data ({shown})")
    assert (per_hour and round(per_hour * 730, 2)) == (per_month and Decimal(per_month))


def test_a_volume_that_exists_costs_the_stack_nothing() -> None:
    found = with_class("us-central1", PD, {"type": "pd-ssd"}, "1Ti")
    found[2]["spec"]["volumeName"] = "there"
    assert judge(found).cost.storage == ()


def test_a_program_pays_for_its_cluster_network_and_disks() -> None:
    ip = "gcp:compute/address:Address", {"name": "ip", "addressType": "EXTERNAL"}
    internal = {"name": "range", "addressType": "INTERNAL"}
    peering = "gcp:compute/globalAddress:GlobalAddress", internal
    nat = "gcp:compute/routerNat:RouterNat", {"name": "n", "natIps": ["a", "b"]}
    place = {"location": "us-central1-a"}
    config = {"machineType": CHEAP, "diskSizeGb": 200, "diskType": "pd-ssd"}
    nodes = NODE_POOL, place | {"name": "cpu", "nodeCount": 40, "nodeConfig": config}
    cluster = CLUSTER, place | {"name": "ml", "removeDefaultNodePool": True}
    cost = judge_program([cluster, nodes, nat, ip, peering]).cost
    assert {each.name: each.per_hour_max for each in cost.platform} == {
        "GKE's fee for cluster ml": Decimal("0.10"),
        "VMs of Cloud NAT n": Decimal("0.0014") * 32,
        "addresses of Cloud NAT n": Decimal("0.01"),
        "address ip": Decimal("0.005"),
    }
    (disks,) = cost.storage
    assert (disks.name, disks.most) == ("boot disks of cpu (200 GiB of pd-ssd)", 40)
    assert disks.per_node == Decimal("0.17") / 730 * 200
    assert list(cost.parts) == ["nodes", "storage", "clusters and networks"]
    assert over_budget(cost, cost.at_least[1] * 730 + 1) is None
    excess = exceeding(cost, cost.at_least[1] * 730 - 1)
    assert "at their most, the nodes, storage, clusters and networks cost " in excess.message


def test_the_dearest_piece_may_be_storage() -> None:
    zonal = with_class("us-central1", FILESTORE, {"tier": "zonal"}, "100Ti")
    excess = exceeding(judge(zonal).cost, 1)
    assert "Lower the size of claim team/data (102400 GiB of filestore-zonal), or" in excess.remedy


def test_gpus_without_a_price_are_not_free() -> None:
    verdicts = judge([gpu_pool("b200", B200, 8), deployment("web", 1, using(gpu=2))])
    assert verdicts.teams["team"] == GpuCost(2, None)
    assert "Team team: 2 GPUs at once, at a price that is not known." in report.as_text(verdicts)


def test_pods_that_run_in_turns_are_not_counted_at_once() -> None:
    jobs = job("one", 2, using(gpu=8)), job("two", 1, using(gpu=8))
    verdicts = judge([gpu_pool("h100", H100, 8, "1"), *jobs])
    assert [each.gpus for each in verdicts.workloads] == [GpuCost(8, Decimal("88.49"))] * 2
    assert verdicts.teams == {"team": GpuCost(8, Decimal("88.49"))}
    assert verdicts.cost.pools[0].per_hour_max == Decimal("88.49")


def test_gpus_of_pods_that_nodes_keep_waiting_are_not_counted_at_once() -> None:
    apart = template(containers=[container(gpu=1)], affinity=anti_affinity())
    (told,) = judge([gpu_pool("h100", H100, 8, "4"), job("one", 6, apart)]).workloads
    assert [each.message[:18] for each in told.warnings] == ["4 of 6 pods run at"]
    assert told.gpus == GpuCost(4, Decimal("44.245"))


def gpus_at_once(*documents: Manifest) -> dict[str, int]:
    """The GPUs of each team, with 12 nodes of eight H100 GPUs."""
    h100 = gpu_pool("h100", H100, 8, "12") | {"spec": {}}
    return {team: cost.gpus for team, cost in judge([h100, *documents]).teams.items()}


def gpu_jobs(
    count: int, gpus: int = 8, pods: int = 1, name: str = "train", queue: str = "", **spec: Any
) -> list[Manifest]:
    made = template(containers=[container(gpu=gpus)], **spec)
    jobs = [job(f"{name}-{index}", pods, made) for index in range(count)]
    for each in jobs if queue else ():
        each["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    return jobs


WEB = deployment("web", 1, using(gpu=8))
GPU_QUOTA = f"requests.{GPU}"
SCOPE = {"scopeName": "PriorityClass", "operator": "In"}


@pytest.mark.parametrize(
    ("hard", "workloads", "gpus"),
    [
        ({GPU_QUOTA: "16"}, gpu_jobs(10), 16),
        ({GPU_QUOTA: "16"}, [*gpu_jobs(10), WEB], 16),
        ({GPU_QUOTA: "100"}, gpu_jobs(10), 80),
        ({GPU_QUOTA: "20"}, gpu_jobs(1, pods=10), 16),
        ({"pods": "3"}, gpu_jobs(1, pods=10), 24),
        ({GPU_QUOTA: "12"}, [*gpu_jobs(1), *gpu_jobs(2, gpus=6, name="small")], 12),
        ({"cpu": "100"}, gpu_jobs(10), 80),
    ],
)
def test_a_quota_limits_the_gpus_of_jobs_at_once(
    hard: Manifest, workloads: list[Manifest], gpus: int
) -> None:
    assert gpus_at_once(*workloads, quota(hard=hard)) == {"team": gpus}


def test_a_quota_limits_only_the_pods_of_its_scope() -> None:
    def of_class(name: str) -> Manifest:
        scope = {"matchExpressions": [{**SCOPE, "values": [name]}]}
        return quota(f"gpus-{name}", {GPU_QUOTA: "16"}, scopeSelector=scope)

    quotas = [of_class(name) for name in ("low", "high")]
    low, high = (gpu_jobs(4, name=each, priorityClassName=each) for each in ("low", "high"))
    of_all = quota(hard={GPU_QUOTA: "24"})
    assert gpus_at_once(*low, *quotas) == {"team": 16}
    assert gpus_at_once(*low, *high, *quotas) == {"team": 32}
    assert gpus_at_once(*low, *high, *gpu_jobs(1), *quotas, of_all) == {"team": 24}


def queue_of(name: str, nominal: Any, **quotas: Any) -> list[Manifest]:
    """A ClusterQueue of a cohort with so many GPUs of each of two flavors, and its LocalQueue."""
    resources = [{"name": GPU, "nominalQuota": nominal, **quotas}]
    flavors = [{"name": flavor, "resources": resources} for flavor in ("h100", "spot")]
    groups = [{"coveredResources": [GPU], "flavors": flavors}]
    spec = {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": groups}
    local = namespaced("kueue.x-k8s.io/v1beta2", "LocalQueue", name, spec={"clusterQueue": name})
    return [kueue("ClusterQueue", name, **spec), local]


FLAVORS = [kueue("ResourceFlavor", each, nodeLabels={"flavor": each}) for each in ("h100", "spot")]
JOBS_ON_SPOT = gpu_jobs(10, queue="a", nodeSelector={"flavor": "spot"})


@pytest.mark.parametrize(
    ("workloads", "queues", "gpus"),
    [
        (JOBS_ON_SPOT, queue_of("a", 16), 16),
        (gpu_jobs(10, queue="a"), queue_of("a", 16), 32),
        (JOBS_ON_SPOT, [*queue_of("a", 16), *queue_of("b", 8)], 24),
        (JOBS_ON_SPOT, [*queue_of("a", 16, borrowingLimit=0), *queue_of("b", 8)], 16),
        (gpu_jobs(10), queue_of("a", 16), 80),
        (JOBS_ON_SPOT, queue_of("a", UNKNOWN), 80),
    ],
)
def test_a_queue_limits_the_gpus_of_jobs_at_once(
    workloads: list[Manifest], queues: list[Manifest], gpus: int
) -> None:
    nodes = [gpu_pool(name, H100, 8, "12") for name in ("h100", "spot")]
    for node_ in nodes:
        node_["metadata"]["labels"]["flavor"] = node_["metadata"]["name"]
    teams = judge([*nodes, *FLAVORS, *workloads, *queues]).teams
    assert teams["team"].gpus == gpus


@pytest.mark.parametrize("label", [REGION, MACHINE])
def test_the_label_without_which_there_is_no_price_is_named(label: str) -> None:
    manifest = priced("h100", "a3-highgpu-8g")
    del manifest["metadata"]["labels"][label]
    text = report.as_text(judge([manifest, deployment("web", 1, template())]))
    assert f"No price is known for h100 (label {label} is missing)." in text
