"""The quotas and the APIs of the shipped stacks, as ``ml-foundations quota`` prints them."""

import ast
import json
import re
import subprocess
from typing import Any

import pytest
from ml_foundations.catalog import services
from ml_foundations.catalog.tables import rows
from ml_foundations.planning.input.field_catalog import schema

from tests.support import recording
from tests.support.checkout import CHECKOUT, COMMAND
from tests.support.recording import EXAMPLES
from tests.support.recording import STACKS as SHIPPED

BASE = {
    "artifactregistry", "binaryauthorization", "cloudresourcemanager", "compute", "container", "containersecurity",
    "iam", "iamcredentials", "logging", "monitoring",
}  # fmt: skip
"""What every GkeCluster needs."""
STACKS = {
    "dev": (BASE | {"file"}, {"NVIDIA_L4_GPUS": 5, "NVIDIA_A100_GPUS": 6}),
    "staging": (BASE | {"file"}, {"NVIDIA_T4_GPUS": 5, "PREEMPTIBLE_NVIDIA_A100_GPUS": 5}),
    "prod": (
        BASE | {"file", "cloudkms", "pubsub"},
        {
            "GPUS-PER-GPU-FAMILY-per-project-region gpu_family=NVIDIA_H100": 40,
            "NVIDIA_A100_80GB_GPUS": 20,
            "NVIDIA_L4_GPUS": 18,
            "EnterpriseStorageGibPerRegion": 13312,
        },
    ),
}


def quota(*arguments: str) -> str:
    command = [COMMAND, "quota", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("stack", STACKS)
def test_what_a_shipped_stack_needs(stack: str) -> None:
    apis, most = STACKS[stack]
    told: dict[str, Any] = json.loads(quota("--stack", stack, "--json"))
    assert told["apis"].keys() == {f"{api}.googleapis.com" for api in apis}
    needs = {need["name"]: need["at_most"] for need in told["quota"]}
    assert needs | most == needs
    assert not [need for need in told["quota"] if "not counted" in need["note"]]


def test_the_table_and_the_command_that_enables_the_apis() -> None:
    shown = quota("--stack", "dev")
    assert re.search(r"^us-central1 +NVIDIA_L4_GPUS +0 +5 +GPUs *$", shown, re.MULTILINE), shown
    command = r"^gcloud services enable \\\n( +\w+\.googleapis\.com \\\n)+ +--project PROJECT$"
    assert re.search(command, shown, re.MULTILINE)


def test_a_stack_that_is_not_there_is_named() -> None:
    command = [COMMAND, "quota", "--stack", "none"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'no stack "none"' in done.stderr


ROLES = {
    "compute.networkAdmin", "container.admin", "iam.serviceAccountAdmin", "iam.serviceAccountUser",
    "resourcemanager.projectIamAdmin",
}  # fmt: skip
"""What every GkeCluster in a network of its own needs."""
SOURCES = CHECKOUT / "components" / "ml_foundations"
UNRECORDED = {
    "CheckpointConfiguration": "checkpointing.gke.io/v1",
    "ComputeClass": "cloud.google.com/v1",
    "DeviceClass": "resource.k8s.io/v1",
    "GCPRoutingExtension": "networking.gke.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "RayCluster": "ray.io/v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
    "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
    "VolumeSnapshot": "snapshot.storage.k8s.io/v1",
}
"""Kinds that components make and no recorded program has."""
INTERNAL = {"Node", "Configuration"}
"""Kinds of objects that planning makes for itself, or that are text in another."""


def kinds_in(source: str) -> set[str]:
    """The kinds of the objects that a module makes, as far as they are constants."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [call for call in calls if getattr(call.func, "id", "") == "api_object"]
    kinds = [call.args[1] for call in made]
    return {str(kind.value) for kind in kinds if isinstance(kind, ast.Constant)}


def components() -> set[str]:
    """The types of all that a component can create: from its sources, and from what is recorded."""
    golden = "".join(path.read_text() for path in (CHECKOUT / "tests" / "golden").rglob("*.yaml"))
    types = set(re.findall(r"type: ((?:gcp|kubernetes):\S+)", golden))
    folders = ("gke", "gpu", "storage", "tenancy", "workloads", "kubernetes")
    for path in [file for folder in folders for file in (SOURCES / folder).rglob("*.py")]:
        text = path.read_text()
        types |= set(re.findall(r'"(gcp:[\w/]+:\w+)"', text))
        for kind in kinds_in(text):
            recorded = {type_ for type_ in types if type_.endswith(f":{kind}")}
            if kind in UNRECORDED:
                types.add(f"kubernetes:{UNRECORDED[kind]}:{kind}")
            elif kind not in INTERNAL:
                assert recorded, f"{kind} of {path.name} is recorded nowhere; add it to UNRECORDED"
    return types | {f"kubernetes:{group}:{kind}" for kind, group in UNRECORDED.items()}


def test_each_type_that_a_component_can_create_has_its_apis_and_roles() -> None:
    types = components()
    assert len([type_ for type_ in types if type_.startswith("gcp:")]) > 10
    assert "gcp:compute/firewall:Firewall" in types
    assert "kubernetes:inference.networking.k8s.io/v1:InferencePool" in types
    assert services.unlisted((type_, {}) for type_ in types) == []
    assert all(services.needed_roles([(type_, {})]) for type_ in types)


def test_each_kind_of_kubernetes_is_listed() -> None:
    for kind in schema()["kinds"]:
        group, _, name = kind.partition(" ")
        group = group if "/" in group else f"core/{group}"
        assert services.unlisted([(f"kubernetes:{group}:{name}", {})]) == [], kind


def test_a_type_without_a_row_is_named() -> None:
    types = ["gcp:spanner/instance:Instance", "kubernetes:example.com/v1:Own", "random:index/r:R"]
    assert services.unlisted((type_, {}) for type_ in types) == types[:2]


@pytest.mark.parametrize("program", [*SHIPPED, *EXAMPLES])
def test_each_shipped_program_knows_its_apis_and_roles(program: str) -> None:
    is_stack = program in SHIPPED
    made = recording.stack(program) if is_stack else recording.example(program)
    resources = [(each["type"], each["inputs"]) for each in made]
    assert services.unlisted(resources) == []
    roles = {role.removeprefix("roles/") for role in services.needed_roles(resources)}
    types = {type_ for type_, _ in resources}
    assert ("compute.securityAdmin" in roles) == ("gcp:compute/firewall:Firewall" in types)
    assert (roles >= ROLES) == ("gcp:container/cluster:Cluster" in types)
    pools = [type_ for type_ in types if "inference.networking" in type_]
    apis = services.needed_apis(resources)
    assert ("networkservices.googleapis.com" in apis) == bool(pools)


@pytest.mark.parametrize(
    ("type_", "inputs", "api"),
    [
        (
            "kubernetes:gateway.networking.k8s.io/v1:Gateway",
            {"spec": {"listeners": [{}, {"tls": {"options": {
                "networking.gke.io/cert-manager-certs": "c"}}}]}},
            "certificatemanager",
        ),
        ("kubernetes:inference.networking.k8s.io/v1:InferencePool", {}, "networkservices"),
        (
            "kubernetes:networking.gke.io/v1:GCPBackendPolicy",
            {"spec": {"default": {"iap": {"enabled": True}}}},
            "iap",
        ),
        ("gcp:gkebackup/backupPlan:BackupPlan", {}, "gkebackup"),
    ],
)  # fmt: skip
def test_a_kind_or_a_field_of_it_needs_an_api(type_: str, inputs: Any, api: str) -> None:
    assert f"{api}.googleapis.com" in services.needed_apis([(type_, inputs)])
    if inputs:
        assert f"{api}.googleapis.com" not in services.needed_apis([(type_, {})])


def test_the_line_of_each_role() -> None:
    shown = quota("--stack", "prod")
    told: dict[str, Any] = json.loads(quota("--stack", "prod", "--json"))
    assert told["roles"].keys() == {f"roles/{role}" for role in ROLES | {"compute.securityAdmin"}}
    grant = "gcloud projects add-iam-policy-binding PROJECT --member MEMBER --role"
    for role, reason in told["roles"].items():
        assert f"{grant} {role}  # {reason}" in shown
    assert told["unlisted"] == []
    assert "not known" not in shown


def test_each_row_of_the_tables_has_a_source() -> None:
    for table, column in (("roles.csv", "role"), ("leftovers.csv", "command")):
        for row in rows(table):
            assert row[column] and row["source"] and row["source_date"], row
    assert all(row["reason"] for row in rows("inside_cluster.csv"))


def test_the_page_lists_no_role_and_no_api_of_its_own() -> None:
    page = (CHECKOUT / "docs" / "going-to-gke.md").read_text()
    section = page.partition("## 2.")[2].partition("## 3.")[0]
    own = page.partition("### Your own resources")[2].partition("\n## ")[0]
    assert "roles/" not in section.replace(own, "")
    assert not re.search(r"Admin\b|\w+\.googleapis\.com", section.replace(own, ""))
    assert "roles/storage.object" in own and "roles/cloudkms.cryptoKeyEncrypterDecrypter" in own


def test_the_page_has_each_command_that_finds_what_is_left() -> None:
    page = (CHECKOUT / "docs" / "going-to-gke.md").read_text()
    for row in rows("leftovers.csv"):
        command = row["command"].replace("PROJECT", "my-project").replace("BUCKET", "my-bucket")
        assert command in page, command


def test_the_page_signs_in_to_gcloud_and_not_only_for_its_libraries() -> None:
    """The plugin of the kubeconfig uses gcloud's own account, unless a flag says otherwise."""
    page = (CHECKOUT / "docs" / "going-to-gke.md").read_text()
    tools = page.partition("## 1.")[2].partition("## 2.")[0]
    assert "gcloud auth login\n" in tools
    assert "gcloud auth login --cred-file" in tools


def test_the_walk_through_has_the_gpus_of_the_table() -> None:
    page = (CHECKOUT / "docs" / "walk-through.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith("| GPU quota |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")[1:]]
    for cell, (_, most) in zip(cells, STACKS.values(), strict=True):
        gpus = [count for name, count in most.items() if "NVIDIA" in name]
        assert sorted(map(int, re.findall(r"\b(\d+) (?=`)", cell))) == sorted(gpus)
