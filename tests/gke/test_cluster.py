"""The cluster: what is refused with the way out, and what GKE is told."""

from typing import Any

import pulumi
import pytest
from ml_foundations import GkeCluster
from ml_foundations.component.spec import check
from ml_foundations.gke.cluster import GkeClusterSpec

from tests.support.declaring import declared, inputs

BASE: Any = {"project": "project", "location": "us-central1"}
WINDOW = {
    "start_time": "2026-01-03T02:00:00Z",
    "end_time": "2026-01-03T10:00:00Z",
    "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU",
}
FREEZE = {"start_time": "2026-03-01T00:00:00Z", "end_time": "2026-03-20T00:00:00Z"}
BROUGHT = {
    "network": "shared",
    "subnetwork": "ml",
    "pod_range": "pods-1",
    "service_range": "services-1",
}
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"

REFUSED = {
    "overlapping addresses": ({"node_cidr": "10.16.0.0/20"}, "pod_cidr", "overlaps with node_cidr"),
    "checkpoints without buckets": (
        {"multi_tier_checkpointing": True, "gcs_fuse": False},
        "gcs_fuse",
        "set it",
    ),
    "checkpoints of an older version": (
        {"multi_tier_checkpointing": True, "kubernetes_version": "1.31"},
        "kubernetes_version",
        "needs 1.32.4-gke.1415000",
    ),
    "addresses that are none": ({"node_cidr": "10.0.0.1/20"}, "node_cidr", "IPv4"),
    "a control plane of another size": (
        {"control_plane_cidr": "172.16.0.0/27"},
        "control_plane_cidr",
        "/28",
    ),
    "addresses that GKE keeps": (
        {"pod_cidr": "172.16.0.0/14"},
        "pod_cidr",
        "overlaps with 172.17.0.0/16",
    ),
    "services without room": ({"service_cidr": "10.30.0.0/28"}, "service_cidr", "/27 or larger"),
    "nodes without room": ({"node_cidr": "10.30.0.0/30"}, "node_cidr", "/29 or larger"),
    "addresses of a network that exists": (
        {"network": BROUGHT, "pod_cidr": "10.8.0.0/14"},
        "pod_cidr",
        "leave one",
    ),
    "nodes of a network that exists": (
        {"network": BROUGHT, "node_cidr": "10.8.0.0/20"},
        "node_cidr",
        "leave one",
    ),
    "services of a network that exists": (
        {"network": BROUGHT, "service_cidr": "10.8.0.0/20"},
        "service_cidr",
        "leave one",
    ),
    "packets of a network that exists": ({"network": BROUGHT, "mtu": 8896}, "mtu", "leave one"),
    "logs of a network that exists": (
        {"network": BROUGHT, "flow_logs": False},
        "flow_logs",
        "leave one",
    ),
    "half of the ranges": (
        {"network": {"network": "n", "subnetwork": "s", "pod_range": "pods"}},
        "network.service_range",
        "pod_range",
    ),
    "the other half of the ranges": (
        {"network": {"network": "n", "subnetwork": "s", "service_range": "services"}},
        "network.pod_range",
        "service_range",
    ),
    "a public endpoint for nobody": (
        {"endpoint": "public"},
        "authorized_networks",
        "refuses every address",
    ),
    "a zone elsewhere": ({"node_zones": ["us-east1-b"]}, "node_zones", "us-central1"),
    "a key that is none": ({"secrets_key": "my-key"}, "secrets_key", "keyRings/RING"),
    "a key elsewhere": ({"secrets_key": KEY.replace("central1", "east1")}, "secrets_key", "region"),
    "a group that GKE does not ask": (
        {"security_group": "ml@example.com"},
        "security_group",
        "gke-security-groups",
    ),
    "roles of an account that is not ours": (
        {"node_service_account": "a@p", "node_roles": ["roles/viewer"]},
        "node_roles",
        "node_service_account",
    ),
    "a role that nodes have": (
        {"node_roles": ["roles/artifactregistry.reader"]},
        "node_roles",
        "leave one out",
    ),
    "two roles of one name": (
        {"node_roles": ["roles/storage.admin", "projects/p/roles/storage.admin"]},
        "node_roles",
        "grant storage.admin twice",
    ),
    "exclusions without a window": (
        {"maintenance_exclusions": {"run": FREEZE}},
        "maintenance_exclusions",
        "add one",
    ),
    "a window that is too short": (
        {"maintenance_window": WINDOW | {"end_time": "2026-01-03T04:00:00Z"}},
        "maintenance_window.end_time",
        "4 to 24",
    ),
    "a name that is too long": (
        {"name": "c" * 41, "node_service_account": "s@p.iam"},
        "name",
        "40",
    ),
    "windows too rarely": (
        {"maintenance_window": WINDOW | {"recurrence": "FREQ=WEEKLY;INTERVAL=3;BYDAY=SA"}},
        "maintenance_window.recurrence",
        "48",
    ),
    "a time without a zone": (
        {"maintenance_window": WINDOW | {"start_time": "2026-01-03T02:00:00"}},
        "maintenance_window.start_time",
        "time zone",
    ),
    "a freeze that is too long": (
        {
            "maintenance_window": WINDOW,
            "maintenance_exclusions": {"run": FREEZE | {"end_time": "2026-12-01T00:00:00Z"}},
        },
        "maintenance_exclusions.run.end_time",
        "set a scope that allows more",
    ),
    "a freeze backwards": (
        {
            "maintenance_window": WINDOW,
            "maintenance_exclusions": {"run": FREEZE | {"end_time": "2026-02-01T00:00:00Z"}},
        },
        "maintenance_exclusions.run.end_time",
        "not after",
    ),
    "more freezes than GKE takes": (
        {
            "maintenance_window": WINDOW,
            "maintenance_exclusions": {f"run-{index}": FREEZE for index in range(4)},
        },
        "maintenance_exclusions",
        "accepts 3",
    ),
    "a project by its name": ({"project": "My Project"}, "project", "pattern"),
    "unknown logs": (
        {"logging": ["EVERYTHING"]},
        "logging[0]",
        "See docs/components/GkeCluster.md",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_the_way_out(case: str) -> None:
    changes, field, way_out = REFUSED[case]
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        check(GkeClusterSpec, "GkeCluster c", BASE | {"name": "c"} | changes)
    lines = [
        line for line in str(caught.value).splitlines() if line.strip().startswith(f"{field}: ")
    ]
    assert any(way_out in line for line in lines), str(caught.value)


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
    assert (nat["enableDynamicPortAllocation"], nat["minPortsPerVm"], nat["maxPortsPerVm"]) == (
        True,
        64,
        4096,
    )
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
    policy = cluster(maintenance_window=WINDOW, maintenance_exclusions={"run": FREEZE})[
        "maintenancePolicy"
    ]
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
    assert (
        inputs(made["c-private-services-access"])["service"] == "servicenetworking.googleapis.com"
    )
    firewall = inputs(made["c-lustre-firewall"])
    assert firewall["allows"] == [{"protocol": "tcp", "ports": ["988", "6988"]}]
    assert [each.partition("/")[2] for each in firewall["sourceRanges"]] == ["20"]
    assert "c-private-services" not in declared(lambda: GkeCluster("c", BASE))
    assert "c-private-services" not in declared(
        lambda: GkeCluster("c", BASE | {"lustre": True, "network": BROUGHT})
    )


def test_first_node_pool_takes_little_quota() -> None:
    config = cluster()["nodeConfig"]
    assert (config["machineType"], config["diskType"], config["diskSizeGb"]) == (
        "e2-medium",
        "pd-standard",
        30,
    )
