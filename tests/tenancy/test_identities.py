"""The service account of a team: the pods of every component with ``team=`` run as it."""

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pytest
from ml_foundations import ModelCache, Task, TeamNamespace
from ml_foundations.component.base import Component
from ml_foundations.workloads.pod import WorkloadSpec

from codegen.construction import construct
from tests.support.declaring import declared, inputs, requests
from tests.support.recording import changed_stack, stack_file

ACCOUNT: Any = {
    "name": "research",
    "google_account": "research@ml-project-1.iam.gserviceaccount.com",
}
QUOTA: Any = {"gpus": 8, "cpu": "64", "memory": "512Gi", "storage": "4Ti"}


def pods(tree: Any) -> Iterator[Mapping[str, Any]]:
    """The PodSpecs in an object."""
    if isinstance(tree, dict):
        if "containers" in tree and "restartPolicy" in tree:
            yield tree
        for value in tree.values():
            yield from pods(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from pods(item)


def of_workloads(account: Mapping[str, Any] | None) -> dict[str, list[Any]]:
    """The service accounts of the pods of each component that accepts a team, by its name."""
    plain, names = Component.__init__, set[str]()

    def init(self: Any, name: str, args: Any = None, opts: Any = None, **more: Any) -> None:
        if isinstance(self, TeamNamespace) and account:
            more["service_account"] = account
        if issubclass(self.spec_type(), WorkloadSpec):
            names.add(name)
        plain(self, name, args, opts, **more)

    pulumi.runtime.set_all_config({"gcp:project": "ml-project-1"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Component, "__init__", init)
        try:
            found = requests(construct)
        finally:
            pulumi.runtime.set_all_config({})
    accounts: dict[str, list[Any]] = {}
    for request in found:
        owner = request.parent.rpartition("::")[2]
        if request.custom and owner in names:
            accounts.setdefault(owner, [])
            accounts[owner] += [pod.get("serviceAccountName") for pod in pods(inputs(request))]
    return accounts


def test_every_workload_runs_as_its_team() -> None:
    accounts = of_workloads(ACCOUNT)
    assert len(accounts) > 10
    assert {name: found for name, found in accounts.items() if {*found} != {"research"}} == {}


def test_without_an_account_of_the_team_none_is_written() -> None:
    assert {found for each in of_workloads(None).values() for found in each} == {None}


def test_a_workload_may_have_an_account_of_its_own() -> None:
    def program() -> None:
        team = TeamNamespace("nlp", service_account=ACCOUNT, **QUOTA)
        Task("own", team=team, image="i", cpu="1", memory="1Gi", service_account="loader")

    (pod,) = pods(inputs(declared(program)["own-pod"]))
    assert pod["serviceAccountName"] == "loader"


def test_the_download_of_weights_runs_as_its_team() -> None:
    def program() -> None:
        team = TeamNamespace("nlp", service_account=ACCOUNT, **QUOTA)
        ModelCache("disk", team=team, size="1Ti", download={"image": "cli", "command": ["cp"]})

    found = [pod for made in declared(program).values() for pod in pods(inputs(made))]
    assert found
    assert {pod.get("serviceAccountName") for pod in found} == {"research"}


def test_the_workloads_of_a_stack_file_run_as_their_team() -> None:
    config = stack_file("dev")
    teams = config["ml-foundations:teams"]
    teams["research"]["serviceAccount"] = {"name": "research"}
    found = changed_stack("dev", config)
    accounts = {"research": set[Any](), "serving": set[Any]()}
    for made in found:
        namespace = made["inputs"].get("metadata", {}).get("namespace")
        for pod in pods(made["inputs"]) if namespace in accounts else ():
            accounts[namespace].add(pod.get("serviceAccountName"))
    assert accounts == {"research": {"research"}, "serving": {None}}
