"""The CIS GKE Benchmark, item by item, on the resources that the prod stack declares."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import recording

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "security.md"


@pytest.fixture(scope="module")
def resources() -> list[dict[str, Any]]:
    return recording.stack("prod")


def of_type(resources: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    found = [item["inputs"] for item in resources if item["type"].endswith(f":{kind}")]
    assert found, kind
    return found


Item = tuple[str, Callable[[dict[str, Any]], object]]
NOBODY = {"cidrBlocks": [], "gcpPublicCidrsAccessEnabled": False}
WORKLOADS = {"workloadPool": "ml-foundations-prod.svc.id.goog"}
LOGS = {"SYSTEM_COMPONENTS", "WORKLOADS", "APISERVER"}
ENFORCED = "PROJECT_SINGLETON_POLICY_ENFORCE"
GROUPS = "gke-security-groups@"
CLUSTER: list[Item] = [
    ("5.2.2", lambda c: c["workloadIdentityConfig"] == WORKLOADS),
    ("5.3.1", lambda c: c["databaseEncryption"]["state"] == "ENCRYPTED"),
    ("5.3.1", lambda c: "cryptoKeys" in c["databaseEncryption"]["keyName"]),
    ("5.5.4", lambda c: c["releaseChannel"]["channel"] == "STABLE"),
    ("5.5.5", lambda c: c["enableShieldedNodes"]),
    ("5.6.2", lambda c: c["networkingMode"] == "VPC_NATIVE"),
    ("5.6.2", lambda c: "clusterSecondaryRangeName" in c["ipAllocationPolicy"]),
    ("5.6.3", lambda c: c["masterAuthorizedNetworksConfig"] == NOBODY),
    ("5.6.4", lambda c: c["privateClusterConfig"]["enablePrivateEndpoint"]),
    ("5.6.5", lambda c: c["privateClusterConfig"]["enablePrivateNodes"]),
    ("5.6.7", lambda c: c["datapathProvider"] == "ADVANCED_DATAPATH"),
    ("5.7.1", lambda c: set(c["loggingConfig"]["enableComponents"]) >= LOGS),
    ("5.7.1", lambda c: "SYSTEM_COMPONENTS" in c["monitoringConfig"]["enableComponents"]),
    ("5.8.2", lambda c: not c["masterAuth"]["clientCertificateConfig"]["issueClientCertificate"]),
    ("5.8.3", lambda c: c["authenticatorGroupsConfig"]["securityGroup"].startswith(GROUPS)),
    ("5.8.4", lambda c: c["enableLegacyAbac"] is False),
    ("5.10.5", lambda c: c["binaryAuthorization"]["evaluationMode"] == ENFORCED),
]
READ_ONLY_PORT = "insecureKubeletReadonlyPortEnabled"
POOLS: list[Item] = [
    ("4.2.4", lambda p: p["nodeConfig"]["kubeletConfig"][READ_ONLY_PORT] == "FALSE"),
    ("5.2.1", lambda p: p["nodeConfig"]["serviceAccount"] == "prod-nodes@example"),
    ("5.2.2", lambda p: p["nodeConfig"]["workloadMetadataConfig"]["mode"] == "GKE_METADATA"),
    ("5.4.1", lambda p: p["nodeConfig"]["metadata"]["disable-legacy-endpoints"] == "true"),
    ("5.5.1", lambda p: p["nodeConfig"]["imageType"] == "COS_CONTAINERD"),
    ("5.5.2", lambda p: p["management"]["autoRepair"]),
    ("5.5.3", lambda p: p["management"]["autoUpgrade"]),
    ("5.5.6", lambda p: p["nodeConfig"]["shieldedInstanceConfig"]["enableIntegrityMonitoring"]),
    ("5.5.7", lambda p: p["nodeConfig"]["shieldedInstanceConfig"]["enableSecureBoot"]),
]
NETWORKS: list[Item] = [
    ("5.6.1", lambda n: n["logConfig"]["flowSampling"] > 0),
    ("5.6.5", lambda n: n["privateIpGoogleAccess"]),
]


def _id(value: object) -> str:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("item", "holds"), CLUSTER, ids=_id)
def test_the_cluster(
    resources: list[dict[str, Any]], item: str, holds: Callable[[dict[str, Any]], object]
) -> None:
    assert all(map(holds, of_type(resources, "Cluster"))), item


@pytest.mark.parametrize(("item", "holds"), POOLS, ids=_id)
def test_every_node_pool(
    resources: list[dict[str, Any]], item: str, holds: Callable[[dict[str, Any]], object]
) -> None:
    pools = of_type(resources, "NodePool")
    assert len(pools) == 4
    assert [pool["name"] for pool in pools if not holds(pool)] == [], item


@pytest.mark.parametrize(("item", "holds"), NETWORKS, ids=_id)
def test_the_network(
    resources: list[dict[str, Any]], item: str, holds: Callable[[dict[str, Any]], object]
) -> None:
    subnetworks = of_type(resources, "Subnetwork")
    # The others have only the traffic between GPUs.
    [of_cluster] = [each for each in subnetworks if "secondaryIpRanges" in each]
    assert holds(of_cluster), item


def test_nodes_have_a_separate_account_with_the_least_roles(
    resources: list[dict[str, Any]],
) -> None:
    nodes = "serviceAccount:prod-nodes@example"
    least = {"roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader"}
    members = of_type(resources, "IAMMember")
    assert {item["role"] for item in members if item["member"] == nodes} == least


def test_nobody_binds_a_role_to_everybody(resources: list[dict[str, Any]]) -> None:
    binding = of_type(resources, "Cluster")[0]["rbacBindingConfig"]
    assert not any(binding.values())
    subjects = [
        subject["name"]
        for item in resources
        if item["type"].endswith((":RoleBinding", ":ClusterRoleBinding"))
        for subject in item["inputs"].get("subjects", [])
    ]
    everybody = {"system:anonymous", "system:unauthenticated", "system:authenticated"}
    assert not everybody & set(subjects)


def test_the_teams_namespaces_hold_pods_to_a_standard(resources: list[dict[str, Any]]) -> None:
    enforce = "pod-security.kubernetes.io/enforce"
    spaces = [item["metadata"] for item in of_type(resources, "Namespace")]
    levels = {space["name"]: space.get("labels", {}).get(enforce) for space in spaces}
    assert levels["research"] == "baseline"
    assert levels["serving"] == "restricted"
    # Its trainings use the networks between GPUs.
    assert levels["pretraining"] == "privileged"


def test_the_document_names_every_item_and_no_other() -> None:
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    rows = [line.split("|")[1].strip() for line in lines]
    documented = {row for row in rows if row[:1].isdigit()}
    assert documented == {item for item, _ in CLUSTER + POOLS + NETWORKS}
