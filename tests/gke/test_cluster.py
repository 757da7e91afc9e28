"""The cluster: what is refused with the way out, and what GKE is told."""

from typing import Any

import pytest
from ml_foundations import GkeCluster
from ml_foundations.component.spec import check
from ml_foundations.gke.cluster import GkeClusterSpec

from tests.gke.building import WEEKEND_8H as WINDOW
from tests.support.declaring import declared, inputs
from tests.support.refusing import lines_about, refusal

BASE: Any = {"project": "project", "location": "us-central1"}
FREEZE = {"start_time": "2026-03-01T00:00:00Z", "end_time": "2026-03-20T00:00:00Z"}
BROUGHT = {
    "network": "shared",
    "subnetwork": "ml",
    "pod_range": "pods-1",
    "service_range": "services-1",
}
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"


def refused(field: str, way_out: str, **changes: Any) -> tuple[Any, str, str]:
    """A row: what makes a cluster wrong, and the argument that is refused with a fix."""
    return changes, field, way_out


REFUSED = {
    "overlapping addresses": refused(
        "pod_cidr", "overlaps with node_cidr", node_cidr="10.16.0.0/20"
    ),
    "checkpoints without buckets": refused(
        "gcs_fuse", "set it", multi_tier_checkpointing=True, gcs_fuse=False
    ),
    "checkpoints of an older version": refused(
        "kubernetes_version",
        "needs 1.32.4-gke.1415000",
        multi_tier_checkpointing=True,
        kubernetes_version="1.31",
    ),
    "addresses that are none": refused("node_cidr", "IPv4", node_cidr="10.0.0.1/20"),
    "a control plane of another size": refused(
        "control_plane_cidr", "/28", control_plane_cidr="172.16.0.0/27"
    ),
    "addresses that GKE keeps": refused(
        "pod_cidr", "overlaps with 172.17.0.0/16", pod_cidr="172.16.0.0/14"
    ),
    "services without room": refused("service_cidr", "/27 or larger", service_cidr="10.30.0.0/28"),
    "nodes without room": refused("node_cidr", "/29 or larger", node_cidr="10.30.0.0/30"),
    "addresses of a network that exists": refused(
        "pod_cidr", "leave one", network=BROUGHT, pod_cidr="10.8.0.0/14"
    ),
    "nodes of a network that exists": refused(
        "node_cidr", "leave one", network=BROUGHT, node_cidr="10.8.0.0/20"
    ),
    "services of a network that exists": refused(
        "service_cidr", "leave one", network=BROUGHT, service_cidr="10.8.0.0/20"
    ),
    "packets of a network that exists": refused("mtu", "leave one", network=BROUGHT, mtu=8896),
    "logs of a network that exists": refused(
        "flow_logs", "leave one", network=BROUGHT, flow_logs=False
    ),
    "half of the ranges": refused(
        "network.service_range",
        "pod_range",
        network={"network": "n", "subnetwork": "s", "pod_range": "pods"},
    ),
    "the other half of the ranges": refused(
        "network.pod_range",
        "service_range",
        network={"network": "n", "subnetwork": "s", "service_range": "services"},
    ),
    "a public endpoint for nobody": refused(
        "authorized_networks", "refuses every address", endpoint="public"
    ),
    "a zone elsewhere": refused(
        "node_zones", "and location is us-central1", node_zones=["us-east1-b"]
    ),
    "a zone in place of a region": refused("location", "write us-east1", location="us-east1-b"),
    "no region": refused("location", "such as us-central1", location="us_east1"),
    "no zone": refused("node_zones", "such as us-central1-a", node_zones=["us-central1"]),
    "a key that is none": refused("secrets_key", "keyRings/RING", secrets_key="my-key"),
    "a key elsewhere": refused(
        "secrets_key", "region", secrets_key=KEY.replace("central1", "east1")
    ),
    "a group that GKE does not ask": refused(
        "security_group", "gke-security-groups", security_group="ml@example.com"
    ),
    "roles of an account that is not ours": refused(
        "node_roles",
        "node_service_account",
        node_service_account="a@p",
        node_roles=["roles/viewer"],
    ),
    "a role that nodes have": refused(
        "node_roles", "leave one out", node_roles=["roles/artifactregistry.reader"]
    ),
    "two roles of one name": refused(
        "node_roles",
        "grant storage.admin twice",
        node_roles=["roles/storage.admin", "projects/p/roles/storage.admin"],
    ),
    "exclusions without a window": refused(
        "maintenance_exclusions", "add one", maintenance_exclusions={"run": FREEZE}
    ),
    "a window that is too short": refused(
        "maintenance_window.end_time",
        "4 to 24",
        maintenance_window=WINDOW | {"end_time": "2026-01-03T04:00:00Z"},
    ),
    "a name that is too long": refused("name", "40", name="c" * 41, node_service_account="s@p.iam"),
    "windows too rarely": refused(
        "maintenance_window.recurrence",
        "48",
        maintenance_window=WINDOW | {"recurrence": "FREQ=WEEKLY;INTERVAL=3;BYDAY=SA"},
    ),
    "a time without a zone": refused(
        "maintenance_window.start_time",
        "time zone",
        maintenance_window=WINDOW | {"start_time": "2026-01-03T02:00:00"},
    ),
    "a freeze that is too long": refused(
        "maintenance_exclusions.run.end_time",
        "set a scope that allows more",
        maintenance_window=WINDOW,
        maintenance_exclusions={"run": FREEZE | {"end_time": "2026-12-01T00:00:00Z"}},
    ),
    "a freeze backwards": refused(
        "maintenance_exclusions.run.end_time",
        "not after",
        maintenance_window=WINDOW,
        maintenance_exclusions={"run": FREEZE | {"end_time": "2026-02-01T00:00:00Z"}},
    ),
    "more freezes than GKE takes": refused(
        "maintenance_exclusions",
        "accepts 3",
        maintenance_window=WINDOW,
        maintenance_exclusions={f"run-{index}": FREEZE for index in range(4)},
    ),
    "a project by its name": refused("project", "must be a project ID", project="My Project"),
    "unknown logs": refused(
        "logging[0]", "See docs/components/GkeCluster.md", logging=["EVERYTHING"]
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_the_way_out(case: str) -> None:
    changes, field, way_out = REFUSED[case]
    message = refusal(check, GkeClusterSpec, "GkeCluster c", BASE | {"name": "c"} | changes)
    assert any(way_out in line for line in lines_about(field, message)), message


def cluster(**arguments: Any) -> dict[str, Any]:
    return inputs(declared(lambda: GkeCluster("c", BASE | arguments))["c-cluster"])


def test_the_network_is_made_with_a_way_out() -> None:
    requests = declared(lambda: GkeCluster("c", BASE | {"flow_logs": True}))
    network = requests["c-network"]
    assert (inputs(network)["mtu"], list(network.ignoreChanges)) == (8896, ["mtu"])
    subnetwork = inputs(requests["c-subnetwork"])
    assert subnetwork["privateIpGoogleAccess"] is True
    assert subnetwork["logConfig"]["flowSampling"] == 0.5
    nat = inputs(requests["c-nat"])
    assert nat["sourceSubnetworkIpRangesToNat"] == "ALL_SUBNETWORKS_ALL_IP_RANGES"
    assert nat["enableDynamicPortAllocation"] is True
    assert (nat["minPortsPerVm"], nat["maxPortsPerVm"]) == (64, 4096)
    assert nat["logConfig"] == {"enable": True, "filter": "ERRORS_ONLY"}
    assert inputs(requests["c-cluster"])["ipAllocationPolicy"] == {
        "stackType": "IPV4",
        "clusterSecondaryRangeName": "pods",
        "servicesSecondaryRangeName": "services",
    }


@pytest.mark.parametrize("nat", [False, True])
def test_a_network_that_exists(nat: bool) -> None:
    requests = declared(lambda: GkeCluster("c", BASE | {"network": BROUGHT | {"nat": nat}}))
    assert "c-network" not in requests
    assert ("c-nat" in requests) is nat
    made = inputs(requests["c-cluster"])
    assert (made["network"], made["subnetwork"]) == ("shared", "ml")
    assert made["ipAllocationPolicy"]["clusterSecondaryRangeName"] == "pods-1"


def test_gke_adds_ranges_to_a_subnetwork_that_names_none() -> None:
    made = cluster(network={"network": "shared", "subnetwork": "ml"})
    assert made["ipAllocationPolicy"] == {"stackType": "IPV4"}


def test_the_nodes_account_has_the_least_roles_and_added_ones() -> None:
    requests = declared(
        lambda: GkeCluster("c", BASE | {"node_roles": ["roles/storage.objectViewer"]})
    )
    roles = {inputs(r)["role"] for r in requests.values() if r.type.endswith("iAMMember:IAMMember")}
    assert roles == {
        "roles/container.defaultNodeServiceAccount",
        "roles/artifactregistry.reader",
        "roles/storage.objectViewer",
    }


def test_an_account_that_exists_is_taken_as_it_is() -> None:
    seen: list[str] = []

    def program() -> None:
        made = GkeCluster("c", BASE | {"node_service_account": "nodes@p.iam.gserviceaccount.com"})
        made.node_service_account.apply(seen.append)

    requests = declared(program)
    assert seen == ["nodes@p.iam.gserviceaccount.com"]
    assert not [r for r in requests.values() if "iAMMember" in r.type or "account" in r.type]


@pytest.mark.parametrize(
    ("endpoint", "private", "dns"),
    [("dns", True, True), ("private", True, False), ("public", False, False)],
)
def test_endpoints(endpoint: str, private: bool, dns: bool) -> None:
    made = cluster(endpoint=endpoint, authorized_networks={"office": "203.0.113.0/24"})
    assert made["privateClusterConfig"] == {
        "enablePrivateNodes": True,
        "enablePrivateEndpoint": private,
    }
    assert made["controlPlaneEndpointsConfig"] == {
        "dnsEndpointConfig": {"allowExternalTraffic": dns}
    }
    assert made["masterAuthorizedNetworksConfig"] == {
        "cidrBlocks": [{"displayName": "office", "cidrBlock": "203.0.113.0/24"}],
        "gcpPublicCidrsAccessEnabled": False,
    }


def test_maintenance() -> None:
    made = cluster(maintenance_window=WINDOW, maintenance_exclusions={"run": FREEZE})
    policy = made["maintenancePolicy"]
    assert policy["recurringWindow"] == {
        "startTime": "2026-01-03T02:00:00Z",
        "endTime": "2026-01-03T10:00:00Z",
        "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU",
    }
    assert policy["maintenanceExclusions"] == [
        {
            "exclusionName": "run",
            "startTime": "2026-03-01T00:00:00Z",
            "endTime": "2026-03-20T00:00:00Z",
            "exclusionOptions": {"scope": "NO_UPGRADES"},
        }
    ]


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("filestore", "gcpFilestoreCsiDriverConfig"),
        ("gcs_fuse", "gcsFuseCsiDriverConfig"),
        ("lustre", "lustreCsiDriverConfig"),
        ("parallelstore", "parallelstoreCsiDriverConfig"),
        ("stateful_ha", "statefulHaConfig"),
        ("node_local_dns", "dnsCacheConfig"),
    ],
)
@pytest.mark.parametrize("on", [True, False])
def test_add_ons(argument: str, key: str, on: bool) -> None:
    assert cluster(**{argument: on})["addonsConfig"][key] == {"enabled": on}


def test_only_a_cluster_with_checkpointing_names_it() -> None:
    key = "highScaleCheckpointingConfig"
    assert key not in cluster()["addonsConfig"]
    assert cluster(multi_tier_checkpointing=True)["addonsConfig"][key] == {"enabled": True}


def test_the_rest_of_what_gke_is_told() -> None:
    made = cluster(
        secrets_key=KEY,
        security_group="gke-security-groups@example.com",
        kubernetes_version="1.34",
        multi_networking=True,
        max_pods=64,
        gateway_api=True,
        monitoring=["SYSTEM_COMPONENTS", "DCGM", "KUBELET"],
        managed_prometheus=False,
        cost_allocation=False,
        binary_authorization=False,
        resource_labels={"team": "platform"},
        release_channel="RAPID",
        deletion_protection=False,
    )
    assert made["databaseEncryption"] == {"state": "ENCRYPTED", "keyName": KEY}
    assert made["authenticatorGroupsConfig"] == {"securityGroup": "gke-security-groups@example.com"}
    assert (made["minMasterVersion"], made["defaultMaxPodsPerNode"]) == ("1.34", 64)
    assert made["enableMultiNetworking"] is True
    assert made["gatewayApiConfig"] == {"channel": "CHANNEL_STANDARD"}
    assert made["monitoringConfig"] == {
        "enableComponents": ["SYSTEM_COMPONENTS", "DCGM", "KUBELET"],
        "managedPrometheus": {"enabled": False},
    }
    assert made["costManagementConfig"] == {"enabled": False}
    assert made["binaryAuthorization"] == {"evaluationMode": "DISABLED"}
    assert made["resourceLabels"] == {"team": "platform"}
    assert made["releaseChannel"] == {"channel": "RAPID"}
    assert made["deletionProtection"] is False


def test_lustre_adds_private_services_access_to_a_new_network() -> None:
    made = declared(lambda: GkeCluster("c", BASE | {"lustre": True}))
    assert inputs(made["c-private-services"])["purpose"] == "VPC_PEERING"
    access = inputs(made["c-private-services-access"])
    assert access["service"] == "servicenetworking.googleapis.com"
    firewall = inputs(made["c-lustre-firewall"])
    assert firewall["allows"] == [{"protocol": "tcp", "ports": ["988", "6988"]}]
    assert [each.partition("/")[2] for each in firewall["sourceRanges"]] == ["20"]
    assert "c-private-services" not in declared(lambda: GkeCluster("c", BASE))
    existing = BASE | {"lustre": True, "network": BROUGHT}
    assert "c-private-services" not in declared(lambda: GkeCluster("c", existing))


def test_first_node_pool_takes_little_quota() -> None:
    config = cluster()["nodeConfig"]
    assert (config["machineType"], config["diskSizeGb"]) == ("e2-medium", 30)
    assert config["diskType"] == "pd-standard"


def test_the_name_of_a_cluster_is_known_at_preview() -> None:
    names: list[str] = []
    declared(lambda: names.append(f"l4-{GkeCluster('c', BASE).cluster_name}"))
    assert names == ["l4-c"]
