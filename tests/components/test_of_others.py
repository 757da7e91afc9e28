"""Outputs of other resources go into every argument that decides no placement; what is unknown stays with its own."""

import json
import re
import runpy
from typing import Any

import pulumi
import pytest
from ml_foundations import GkeCluster, GpuNodePool, InferenceService, ShardedSet, Volume
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.node_pools import from_node_pool
from ml_foundations.rehearsal.protocol.values import SECRET_SIGNATURE, SIGNATURE

from tests.gke.building import POOL
from tests.support.checkout import CHECKOUT
from tests.support.declaring import declared, inputs
from tests.support.refusing import refusal
from tests.workloads import building

PROGRAM = CHECKOUT / "tests" / "support" / "of_others.py"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """The inputs of each resource of the program, by name."""
    requests = declared(lambda: runpy.run_path(str(PROGRAM)))
    return {name: inputs(requests[name]) for name in requests}


def test_a_cluster_in_a_project_and_a_network_of_the_program(made: dict[str, Any]) -> None:
    cluster = made["ml-cluster"]
    assert cluster["project"] == "acme-ml-4711"
    assert cluster["workloadIdentityConfig"] == {"workloadPool": "acme-ml-4711.svc.id.goog"}
    assert (cluster["network"], cluster["subnetwork"]) == ("link/network", "link/nodes")
    assert cluster["ipAllocationPolicy"]["clusterSecondaryRangeName"] == "pods"
    group = "gke-security-groups@acme.example"
    assert cluster["authenticatorGroupsConfig"] == {"securityGroup": group}


def test_a_pool_of_a_reservation_of_the_program(made: dict[str, Any]) -> None:
    config = made["gpus-pool"]["nodeConfig"]
    assert made["gpus-pool"]["project"] == "acme-ml-4711"
    assert config["reservationAffinity"]["consumeReservationType"] == "SPECIFIC_RESERVATION"
    assert len(config["reservationAffinity"]["values"]) == 1


def test_a_namespace_of_the_program_and_a_secret(made: dict[str, Any]) -> None:
    claim, job = (made[name]["metadata"] for name in ("results-claim", "train-job"))
    assert claim["namespace"] == job["namespace"]
    environment = made["train-job"]["spec"]["template"]["spec"]["containers"][0]["env"]
    (token,) = [variable for variable in environment if variable["name"] == "TOKEN"]
    assert token["value"][SIGNATURE] == SECRET_SIGNATURE


def test_a_team_of_the_program(made: dict[str, Any]) -> None:
    assert made["team-editors"]["subjects"][0]["name"] == "ml@acme.example"
    assert "10.0.0.0/20" in json.dumps(made["team-network-networks"])
    member = "serviceAccount:acme-ml-4711.svc.id.goog[team/workloads]"
    assert made["team-workload-identity"]["member"] == member


def test_addresses_in_a_namespace_of_the_program() -> None:
    found: list[Any] = []

    def program() -> None:
        given = {**building.WORKLOAD, "namespace": pulumi.Output.from_input("made")}
        service = InferenceService("chat", given)
        shards = ShardedSet("parts", {**given, "shards": 1})
        disk = "projects/p/zones/us-central1-a/disks/d"
        volume = {"namespace": given["namespace"], "size": "1Gi", "storage_class": "s"}
        Volume("data", volume | {"disk": disk})
        pulumi.Output.all(service.url, shards.hosts).apply(
            lambda known: found.extend([known[0], *known[1]])
        )

    volume = inputs(declared(program)["data-volume"])["metadata"]["name"]
    assert found == ["http://chat.made.svc.cluster.local", "parts-0.parts.made.svc.cluster.local"]
    assert volume == "made-data"


def test_what_decides_placement_is_plain() -> None:
    later = pulumi.Output.from_input("g2-standard-8")
    message = refusal(GpuNodePool, "gpus", POOL | {"machine_type": later})
    assert "machine_type: is an Output, but must be known at preview" in message


def test_plain_values_are_checked_as_before() -> None:
    given = {"name": "ml", "project": "p", "location": "us-central1"}
    message = refusal(GkeCluster, "ml", given | {"security_group": "ml@acme.example"})
    assert re.search(r"(?s)project: .*security_group: ", message)


def test_an_unknown_reservation_hides_only_its_label() -> None:
    affinity = {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "k", "values": [UNKNOWN]}
    config = {"machineType": "g2-standard-8", "reservationAffinity": affinity}
    pool = {"name": "gpus", "location": "us-central1", "nodeConfig": config, "nodeCount": 1}
    nodes = from_node_pool(pool)
    assert not nodes.unknown
    assert nodes.labels["cloud.google.com/reservation-name"] is UNKNOWN
