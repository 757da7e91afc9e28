"""The dev stack, rehearsed end to end as a user would: up, look, up again, crash, recover, down."""

import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from ml_foundations.rehearsal.cloud import daemon
from ml_foundations.rehearsal.cloud.autoscaler import is_of_daemon_set
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp.container import CLUSTER
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import UNKNOWN_ON_THE_WIRE
from ml_foundations.rehearsal.report.contents import Report, collect
from ml_foundations.rehearsal.report.workloads import Workload

from tests.support import recording
from tests.support.checkout import Checkout, files, state_ids
from tests.support.official import can_fetch_charts, needs_kubernetes_plugin
from tests.support.recorded import unmodelled
from tests.support.waiting import until

GPU = "nvidia.com/gpu"
ROOT = Path(__file__).parents[2]


@pytest.fixture(
    scope="module", params=["embedded", pytest.param("official", marks=needs_kubernetes_plugin)]
)
def dev(
    request: pytest.FixtureRequest, copy_checkout: Callable[[], Checkout]
) -> Iterator[Checkout]:
    """The dev stack, rehearsed with the embedded kubernetes plugin and, where it is installed, with Pulumi's own."""
    options = ("--official-kubernetes-plugin",) if request.param == "official" else ()
    if options and not can_fetch_charts():
        pytest.skip("without the charts, which cannot be fetched here, Pulumi's own plugin fails")
    checkout = Checkout(copy_checkout().root, options)
    before = files(checkout)
    result = checkout.run("up")
    assert result.returncode == 0, result.stdout + result.stderr
    assert files(checkout) == before, "the rehearsal changed the checkout"
    yield checkout
    checkout.run("down")


class Again(NamedTuple):
    """A second ``up``: the state before it, what it printed, and what only a trap on PATH makes."""

    before: dict[str, str]
    result: subprocess.CompletedProcess[str]
    sprung: Path


def report(checkout: Checkout) -> dict[str, Any]:
    return json.loads(checkout.run("report", "--json").stdout)


def seen(checkout: Checkout) -> Report:
    """The report again, without a process: for tests that wait."""
    return collect(checkout.rehearsal())


def get(checkout: Checkout, what: str) -> list[dict[str, Any]]:
    return json.loads(checkout.shell(f"kubectl get {what} -A -o json").stdout)["items"]


def requests_gpu(pod: dict[str, Any]) -> bool:
    resources = [each.get("resources", {}) for each in pod["spec"]["containers"]]
    return any(GPU in (each.get("requests") or {}) for each in resources)


def resources_of(checkout: Checkout, *options: str) -> list[dict[str, Any]]:
    exported = checkout.shell(" ".join(("pulumi stack export -s dev", *options))).stdout
    return json.loads(exported)["deployment"]["resources"]


def test_every_workload_runs_or_has_completed(dev: Checkout) -> None:
    workloads = {(w["kind"], w["name"]): w for w in report(dev)["workloads"]}
    assert workloads
    jobs = [w for (kind, _), w in workloads.items() if kind == "Job"]
    deployments = [w for (kind, _), w in workloads.items() if kind == "Deployment"]
    assert {w["state"] for w in jobs} == {"Completed"}
    assert {w["state"] for w in deployments} == {"Ready"}
    assert all(w["nodes"] for w in workloads.values())


def test_gpu_pods_run_only_on_nodes_of_the_declared_product(dev: Checkout) -> None:
    nodes = {node["metadata"]["name"]: node for node in get(dev, "nodes")}
    on_gpu_nodes = {True: 0, False: 0}
    for pod in get(dev, "pods"):
        node = nodes.get(pod["spec"].get("nodeName", ""))
        is_of_gke = pod["metadata"]["namespace"].startswith(("kube-", "gke-"))
        # Where the operator's chart can be fetched, it has DaemonSets on every node.
        if node is None or is_of_gke or is_of_daemon_set(pod):
            continue
        tainted = any(taint["key"] == GPU for taint in node["spec"].get("taints", []))
        assert tainted == requests_gpu(pod), pod["metadata"]["name"]
        on_gpu_nodes[tainted] += 1
        if tainted:
            assert node["metadata"]["labels"]["nvidia.com/gpu.product"].startswith("NVIDIA-")
    assert on_gpu_nodes[True] >= 3


def test_every_claim_is_bound(dev: Checkout) -> None:
    claims = get(dev, "pvc")
    assert {claim["status"]["phase"] for claim in claims} == {"Bound"}
    modes = {claim["spec"]["accessModes"][0] for claim in claims}
    assert {"ReadWriteOnce", "ReadWriteMany"} <= modes


def test_quota_use_is_what_the_pods_request(dev: Checkout) -> None:
    running = [pod for pod in get(dev, "pods") if pod["status"]["phase"] == "Running"]
    for quota in report(dev)["quotas"]:
        key = f"requests.{GPU}"
        if key in quota["hard"]:
            wanted = sum(
                int(c["resources"]["requests"].get(GPU, 0))
                for pod in running
                if pod["metadata"]["namespace"] == quota["namespace"]
                for c in pod["spec"]["containers"]
            )
            assert int(quota["used"][key]) == wanted


@pytest.fixture(scope="module")
def again(dev: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Again:
    """A second ``up`` without a change, while PATH has traps under the names of what it runs."""
    traps = tmp_path_factory.mktemp("traps")
    plugins = ("resource-gcp", "resource-kubernetes", "language-python")
    for name in ("gke-gcloud-auth-plugin", *(f"pulumi-{plugin}" for plugin in plugins)):
        trap = traps / name
        trap.write_text(f"#!/bin/sh\ntouch {traps}/sprung\nexit 1\n")
        trap.chmod(0o755)
    before = state_ids(dev)
    return Again(before, dev.run("up", PATH=f"{traps}:{os.environ['PATH']}"), traps / "sprung")


def test_a_second_up_changes_nothing_and_takes_seconds(dev: Checkout, again: Again) -> None:
    result = again.result
    assert result.returncode == 0, result.stderr
    assert "unchanged" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr, "colours, though NO_COLOR is set"
    for word in ("created", "updated", "replaced", "deleted"):
        assert f" {word}" not in result.stdout.partition("Resources:")[2].partition("Duration")[0]
    assert state_ids(dev) == again.before


def test_a_planted_plugin_is_never_run(again: Again) -> None:
    assert again.result.returncode == 0, again.result.stderr
    assert not again.sprung.exists()


def test_only_the_user_can_read_what_a_rehearsal_keeps(dev: Checkout) -> None:
    root = dev.rehearsal().root
    of_the_users_shell = {root / "kubectl", root / "pulumi" / "logs"}
    paths = [path for path in (root, *root.rglob("*")) if not path.is_symlink()]
    ours = [path for path in paths if not of_the_users_shell & {path, *path.parents}]
    assert not [path for path in ours if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_plain_pulumi_works_in_the_printed_environment(dev: Checkout) -> None:
    commands = ("pulumi preview -s dev --expect-no-changes", "pulumi stack -s dev", "helm list -A")
    result = dev.shell(" && ".join(commands))
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_output_that_the_program_reads_is_modelled(dev: Checkout) -> None:
    resources = resources_of(dev)
    custom = [resource for resource in resources if resource.get("custom")]
    google = [resource for resource in custom if resource["type"].startswith("gcp:")]
    assert google
    left = {each["urn"]: unmodelled(each["type"], each.get("outputs") or {}) for each in google}
    assert not any(left.values()), left
    read = recording.read("dev")
    assert (CLUSTER, "endpoint") in read
    missing = {
        (resource["urn"], name)
        for resource in resources
        for type_, name in read
        if resource["type"] == type_ and resource["outputs"].get(name) is None
    }
    assert not missing, "None, where Google has a value"


def test_every_resource_belongs_to_a_component(dev: Checkout) -> None:
    for resource in resources_of(dev):
        if resource["custom"] and not resource["type"].startswith("pulumi:"):
            parent_type = resource["parent"].split("::")[2].rpartition("$")[2]
            assert parent_type.startswith("ml-foundations:index:"), resource["urn"]


def test_a_rehearsal_has_the_inputs_of_a_plain_preview(dev: Checkout, tmp_path: Path) -> None:
    """The preview is of an empty stack, in a backend and an environment of its own: nothing of the replica reaches it.

    It accepts the placeholders of our stack file, which a rehearsal does by itself.
    """
    rehearsed = inputs_of(resources_of(dev, "--show-secrets"))
    preview = dev.shell(
        f"""mkdir {tmp_path}/fresh && export PULUMI_BACKEND_URL=file://{tmp_path}/fresh
        cp "$PULUMI_OPTION_CONFIG_FILE" {tmp_path}/Pulumi.dev.yaml && cp Pulumi.yaml {tmp_path}
        (cd {tmp_path} && unset PULUMI_OPTION_CONFIG_FILE && pulumi stack init dev >&2)
        pulumi=$(command -v pulumi)
        sed '/^  ml-foundations:proof:$/a\\    accept: {{placeholder: the stack file is ours}}' "$PULUMI_OPTION_CONFIG_FILE" \\
            > {tmp_path}/accepted.yaml
        export PULUMI_OPTION_CONFIG_FILE={tmp_path}/accepted.yaml
        unset ML_FOUNDATIONS_REHEARSAL KUBECONFIG KUBECACHEDIR SSL_CERT_FILE HELM_CACHE_HOME HELM_CONFIG_HOME
        PATH={shlex.quote(os.environ["PATH"])} $pulumi preview -s dev --json --show-secrets"""
    )
    assert preview.returncode == 0, preview.stderr
    previewed = inputs_of(step["newState"] for step in json.loads(preview.stdout)["steps"])
    assert previewed.keys() == rehearsed.keys()
    assert len(previewed) > 30
    for urn, inputs in previewed.items():
        assert same(inputs, rehearsed[urn]), f"{urn}\n{inputs}\n{rehearsed[urn]}"


def inputs_of(resources: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The inputs of every resource that is no component and no default provider."""
    custom = [resource for resource in resources if resource.get("custom")]
    ours = [resource for resource in custom if "::default_" not in resource["urn"]]
    return {resource["urn"]: resource.get("inputs", {}) for resource in ours}


def same(previewed: Any, rehearsed: Any) -> bool:
    """Whether inputs are equal, where the preview knows them: what other resources make is unknown to it."""
    if previewed == UNKNOWN_ON_THE_WIRE:
        return True
    if isinstance(previewed, dict) and isinstance(rehearsed, dict):
        return previewed.keys() == rehearsed.keys() and all(
            same(previewed[k], rehearsed[k]) for k in previewed
        )
    if isinstance(previewed, list) and isinstance(rehearsed, list):
        return len(previewed) == len(rehearsed) and all(map(same, previewed, rehearsed))
    return previewed == rehearsed


def run_pod(
    checkout: Checkout, name: str, limits: dict[str, str], options: str = ""
) -> subprocess.CompletedProcess[str]:
    container = {"name": name, "image": "busybox", "resources": {"limits": limits}}
    overrides = json.dumps({"spec": {"containers": [container]}})
    return checkout.shell(f"kubectl run {name} {options} --image=busybox --overrides='{overrides}'")


def test_a_claim_of_more_gpus_than_a_node_has_stays_pending(dev: Checkout) -> None:
    result = run_pod(dev, "greedy", {GPU: "64"})
    assert result.returncode == 0, result.stderr
    try:
        until(lambda: f"64 {GPU}" in row(dev, "greedy").reason)
        assert row(dev, "greedy").state == "Pending"
    finally:
        dev.shell("kubectl delete pod greedy --now")


def test_a_pod_over_quota_is_refused_by_the_api_server(dev: Checkout) -> None:
    quotas = [quota for quota in report(dev)["quotas"] if f"requests.{GPU}" in quota["hard"]]
    limits = {GPU: "999", "cpu": "1", "memory": "1Gi"}
    result = run_pod(dev, "greedy", limits, f"-n {quotas[0]['namespace']}")
    assert result.returncode != 0
    assert "exceeded quota" in result.stderr or "forbidden" in result.stderr


def test_up_recovers_from_the_death_of_any_process(dev: Checkout) -> None:
    before = state_ids(dev)
    rehearsal = dev.rehearsal()
    for process in [*kwok.processes(rehearsal), daemon.process(rehearsal)]:
        os.kill(process.pid, signal.SIGKILL)
    result = dev.run("up")
    assert result.returncode == 0, result.stdout + result.stderr
    assert state_ids(dev) == before


def edit(checkout: Checkout, stack: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the sections of a stack file."""
    path = checkout.root / "stacks" / f"Pulumi.{stack}.yaml"
    content = yaml.safe_load(path.read_text())
    change(content["config"])
    path.write_text(yaml.safe_dump(content))


def test_an_invalid_stack_file_is_refused_and_creates_nothing(
    dev: Checkout, copy_checkout: Callable[[], Checkout]
) -> None:
    """A second rehearsal of the same name is up meanwhile, and the first one stays as it was."""

    def spoil(config: dict[str, Any]) -> None:
        config["ml-foundations:nodePools"]["l4"] |= {"maxNode": 3, "machineType": "g2-standard-9"}
        config["ml-foundations:nodePools"]["a100"]["maxNodes"] = -2
        jobs = config["ml-foundations:teams"]["research"]["trainingJobs"]
        jobs["x" * 64] = {"image": "i", "cpu": 1, "memory": "1Gi"}

    before = state_ids(dev)
    second = copy_checkout()
    edit(second, "dev", spoil)
    result = second.run("up")
    said = result.stdout + result.stderr
    assert result.returncode != 0
    for error in (
        "ml-foundations:nodePools.l4.maxNode: is not known. Did you mean maxNodes",
        "ml-foundations:nodePools.a100.maxNodes: input should be greater than or equal to 1 (got -2)",
        "machine type 'g2-standard-9' is not in the catalog. Did you mean g2-standard-96, g2-standard-8",
        "has 64 characters, and 63 are allowed",
    ):
        assert error in said
    assert "Traceback" not in said
    assert not get(second, "nodes")
    assert second.run("status").returncode == 0
    assert state_ids(dev) == before
    assert second.run("down").returncode == 0
    assert dev.run("status").returncode == 0


def test_without_the_operator_the_report_shows_no_gpus(dev: Checkout) -> None:
    release = next(dev.rehearsal().releases_dir.glob("gpu-operator.*.json"), None)
    if release is None:
        pytest.skip("Pulumi's own plugin keeps no record of releases")
    content = release.read_text()
    if json.loads(content)["installed"]:
        pytest.skip("the operator's chart can be fetched here: no record decides")
    release.unlink()
    try:
        until(lambda: all(pool["gpus"] == 0 for pool in seen(dev).pools))
        run_pod(dev, "late", {GPU: "1"})
        until(lambda: "GPU Operator" in row(dev, "late").reason)
        assert row(dev, "late").state == "Pending"
        assert "a100, l4" in row(dev, "late").reason
    finally:
        release.write_text(content)
        dev.shell("kubectl delete pod late --now")
    until(lambda: any(pool["gpus"] for pool in seen(dev).pools))


def row(checkout: Checkout, name: str) -> Workload:
    return next(workload for workload in seen(checkout).workloads if workload.name == name)


def test_an_update_that_is_under_way_is_left_alone(tmp_path: Path) -> None:
    """The lock of a pulumi that lives is no leftover."""
    (tmp_path / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
    rehearsal = Rehearsal.of("dev", tmp_path)
    lock = rehearsal.backend_dir / ".pulumi" / "locks" / "organization" / "t" / "dev" / "1.json"
    lock.parent.mkdir(parents=True)
    command = shutil.copy2(shutil.which("sleep") or "", tmp_path / "pulumi")
    with subprocess.Popen([command, "60"]) as holder:
        lock.write_text(json.dumps({"pid": holder.pid, "hostname": socket.gethostname()}))
        try:
            words = rf"already at work on dev \(process {holder.pid}\)"
            with pytest.raises(RehearsalError, match=words):
                stack.recover(rehearsal)
        finally:
            holder.kill()
