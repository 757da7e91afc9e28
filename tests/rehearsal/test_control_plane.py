"""The control plane, for real: created, used, killed in every way, recovered, and removed without a trace."""

import dataclasses
import http.client
import os
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from kubernetes import client, config, utils
from ml_foundations.rehearsal.control_plane import configuration, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests import factories
from tests.factories import Manifest, cluster_wide, namespaced
from tests.support.checkout import CHECKOUT
from tests.support.processes import processes_naming
from tests.support.project import fake_node
from tests.support.waiting import until

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def own(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """A control plane of this module's own, since its tests kill it, with one node."""
    rehearsal = Rehearsal.of("own", tmp_path_factory.mktemp("own"))
    try:
        kwok.start(rehearsal, tools)
        apply(rehearsal, fake_node("own-node", {}))
        yield rehearsal
    finally:
        kwok.delete(rehearsal)


@pytest.fixture
def rehearsal(own: Rehearsal, tools: Tools) -> Rehearsal:
    """The same, running."""
    kwok.start(own, tools)
    return own


def test_the_pods_of_jobs_run_as_long_as_the_user_sets() -> None:
    file = configuration._STAGES / "pod-complete.yaml"
    assert configuration._stage(file, 0) == file.read_text()
    before, stage = (yaml.safe_load(configuration._stage(file, seconds)) for seconds in (0, 600))
    delay = stage["spec"].pop("delay")
    assert delay["durationMilliseconds"] == delay["jitterDurationMilliseconds"] == 600_000
    assert before["spec"].pop("delay")["durationFrom"] == delay["durationFrom"]
    assert stage == before
    other = configuration._STAGES / "pod-mount.yaml"
    assert configuration._stage(other, 600) == other.read_text()


@pytest.fixture
def another(tools: Tools, tmp_path: Path) -> Iterator[Rehearsal]:
    """A control plane that was never started."""
    rehearsal = Rehearsal.of("another", tmp_path)
    rehearsal.make()
    yield rehearsal
    kwok.delete(rehearsal)


def api(rehearsal: Rehearsal) -> client.CoreV1Api:
    return client.CoreV1Api(config.new_client_from_config(str(rehearsal.kubeconfig)))


def pids(rehearsal: Rehearsal) -> dict[str, int | None]:
    return {process.name: process.pid for process in kwok.processes(rehearsal)}


def pid_file(rehearsal: Rehearsal, name: str) -> Path:
    return configuration.cluster_folder(rehearsal) / "pids" / f"{name}.pid"


def apply(rehearsal: Rehearsal, *manifests: Manifest) -> None:
    for manifest in manifests:
        utils.create_from_dict(api(rehearsal).api_client, manifest)


def save(rehearsal: Rehearsal, name: str) -> None:
    metadata = client.V1ObjectMeta(name=name)
    api(rehearsal).create_namespaced_config_map("default", client.V1ConfigMap(metadata=metadata))


def saved(rehearsal: Rehearsal) -> set[str]:
    maps = api(rehearsal).list_namespaced_config_map("default").items
    return {item.metadata.name for item in maps}


def of_default(manifest: Manifest) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"namespace": "default"}}


def storage_class(name: str, provisioner: str, mode: str) -> Manifest:
    fields = {"provisioner": provisioner, "volumeBindingMode": mode, "allowVolumeExpansion": True}
    return cluster_wide("storage.k8s.io/v1", "StorageClass", name, **fields)


def claim(name: str, class_name: str, mode: str, size: str) -> Manifest:
    return of_default(factories.claim(name, mode, size, storageClassName=class_name))


def pod(name: str, *, gpus: int = 0, claims: tuple[str, ...] = ()) -> Manifest:
    spec = template(gpus=gpus, claims=claims)["spec"] | {"restartPolicy": "Never"}
    return of_default(namespaced("v1", "Pod", name, spec=spec))


def template(name: str = "web", gpus: int = 0, claims: tuple[str, ...] = ()) -> Manifest:
    container = factories.container(gpu=gpus) if gpus else factories.container()
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    prepare = {"initContainers": [{"name": "prepare", "image": "prepare"}], "volumes": volumes}
    return factories.template({"app": name}, [container], **prepare)


def job(name: str, **annotations: str) -> Manifest:
    pods = template()
    pods["metadata"] = {"annotations": annotations}
    return of_default(factories.job(name, 1, pods))


def deployment(name: str, replicas: int) -> Manifest:
    return of_default(factories.deployment(name, replicas, template(name)))


# --- A running control plane


def test_starting_again_changes_nothing_and_takes_no_time(
    rehearsal: Rehearsal, tools: Tools
) -> None:
    before = pids(rehearsal)

    def seconds() -> float:
        started = time.monotonic()
        kwok.start(rehearsal, tools)
        return time.monotonic() - started

    # On a busy machine, the least time counts.
    assert any(seconds() < 1 for _ in range(10))
    assert pids(rehearsal) == before
    assert all(process.running for process in kwok.processes(rehearsal))


def test_a_start_that_was_killed_at_its_end_gets_its_kubeconfig(
    rehearsal: Rehearsal, tools: Tools
) -> None:
    before, kubeconfig = pids(rehearsal), rehearsal.kubeconfig.read_text()
    rehearsal.kubeconfig.unlink()
    kwok.start(rehearsal, tools)
    assert rehearsal.kubeconfig.read_text() == kubeconfig
    assert pids(rehearsal) == before


def test_kubectl_sees_the_pinned_version(rehearsal: Rehearsal, tools: Tools) -> None:
    command = [tools.kubectl, "--kubeconfig", rehearsal.kubeconfig, "version", "-o", "yaml"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    printed = yaml.safe_load(done.stdout)
    versions = {printed[side]["gitVersion"] for side in ("serverVersion", "clientVersion")}
    assert versions == {"v1.36.3"}


def listening(pid: int | None) -> list[Any]:
    """The addresses on which a process listens."""
    connections = psutil.Process(pid).net_connections("inet")
    return [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]


def test_every_process_listens_on_loopback_only(rehearsal: Rehearsal) -> None:
    for name, pid in pids(rehearsal).items():
        assert {address.ip for address in listening(pid)} == {"127.0.0.1"}, name


def test_only_the_user_can_read_its_files(rehearsal: Rehearsal) -> None:
    for path in [rehearsal.root, *rehearsal.root.rglob("*")]:
        if not path.is_symlink():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def answer(address: str, path: str) -> http.client.HTTPResponse:
    """Ask without a certificate."""
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(address, context=context, timeout=120)
    connection.request("GET", path)
    return connection.getresponse()


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/apis", "/readyz", "/metrics"])
def test_nobody_gets_in_without_a_certificate(rehearsal: Rehearsal, path: str) -> None:
    address = configuration.credentials(rehearsal).server.removeprefix("https://")
    assert answer(address, path).status == http.HTTPStatus.UNAUTHORIZED


def test_etcd_refuses_who_has_no_certificate(rehearsal: Rehearsal) -> None:
    for port in {address.port for address in listening(pids(rehearsal)["etcd"])}:
        with pytest.raises(OSError):
            answer(f"127.0.0.1:{port}", "/version")


def test_gos_memory_is_bounded_unless_the_environment_bounds_it(
    rehearsal: Rehearsal, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in pids(rehearsal).values():
        assert psutil.Process(pid).environ()["GOMEMLIMIT"] == "2500MiB"
    monkeypatch.setenv("GOMEMLIMIT", "1GiB")
    assert kwok._environment(rehearsal, tools)["GOMEMLIMIT"] == "1GiB"


@pytest.mark.parametrize("port", ["kubeControllerManagerPort", "kubeSchedulerPort"])
def test_the_control_plane_is_signed_by_its_own_authority(rehearsal: Rehearsal, port: str) -> None:
    context = configuration.admin_context(rehearsal)
    assert kwok.probe(configuration.ports(rehearsal)[port], "/healthz", context) is None


def test_only_pods_that_request_gpus_tolerate_their_taint(rehearsal: Rehearsal) -> None:
    apply(rehearsal, pod("with-gpu", gpus=1), pod("without-gpu"))

    def tolerated(name: str) -> set[str]:
        spec = api(rehearsal).read_namespaced_pod(name, "default").spec
        return {toleration.key for toleration in spec.tolerations}

    assert GPU in tolerated("with-gpu")
    assert GPU not in tolerated("without-gpu")


def test_claims_bind_and_grow_and_their_volumes_go_with_them(rehearsal: Rehearsal) -> None:
    core = api(rehearsal)
    apply(
        rehearsal,
        storage_class("fast-ssd", "pd.csi.storage.gke.io", "WaitForFirstConsumer"),
        storage_class("nfs-client", "cluster.local/nfs-subdir-external-provisioner", "Immediate"),
        claim("data", "fast-ssd", "ReadWriteOnce", "500Gi"),
        claim("checkpoints", "nfs-client", "ReadWriteMany", "100Gi"),
    )

    def phases() -> dict[str, str]:
        claims = core.list_namespaced_persistent_volume_claim("default").items
        return {item.metadata.name: item.status.phase for item in claims}

    def size(name: str) -> str:
        claimed = core.read_namespaced_persistent_volume_claim(name, "default")
        return claimed.status.capacity["storage"]

    until(lambda: phases()["checkpoints"] == "Bound")
    assert phases()["data"] == "Pending", "it binds when its first consumer is scheduled"

    reader = pod("reader", gpus=1, claims=("data", "checkpoints"))
    apply(rehearsal, fake_node("claims-node", {}, gpus=1), reader)
    until(lambda: core.read_namespaced_pod("reader", "default").status.phase == "Running")
    specs = [volume.spec for volume in core.list_persistent_volume().items]
    volumes = {spec.claim_ref.name: spec for spec in specs}
    assert phases() == {"data": "Bound", "checkpoints": "Bound"}
    assert volumes["data"].csi.driver == "pd.csi.storage.gke.io"
    assert volumes["data"].capacity == {"storage": "500Gi"}
    assert volumes["checkpoints"].access_modes == ["ReadWriteMany"]

    larger = {"spec": {"resources": {"requests": {"storage": "600Gi"}}}}
    core.patch_namespaced_persistent_volume_claim("data", "default", larger)
    until(lambda: size("data") == "600Gi")

    core.delete_namespaced_pod("reader", "default")
    core.delete_collection_namespaced_persistent_volume_claim("default")
    until(lambda: not core.list_persistent_volume().items)


def test_a_look_at_what_runs_warns_nobody_of_certificates(
    rehearsal: Rehearsal, tools: Tools
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kwok.start(rehearsal, tools)


def test_jobs_run_for_their_declared_time(rehearsal: Rehearsal) -> None:
    long = job("long", **{"pod-complete.stage.kwok.x-k8s.io/delay": "1h"})
    apply(rehearsal, job("short"), long, deployment("web", 3))
    core = api(rehearsal)
    apps, batch = client.AppsV1Api(core.api_client), client.BatchV1Api(core.api_client)

    def pods(name: str) -> list[client.V1Pod]:
        return core.list_namespaced_pod("default", label_selector=f"job-name={name}").items

    until(lambda: apps.read_namespaced_deployment("web", "default").status.ready_replicas == 3)
    until(lambda: batch.read_namespaced_job("short", "default").status.succeeded == 1)
    ran = pods("short")[0].status.container_statuses[0].state.terminated
    assert ran.started_at <= ran.finished_at
    time.sleep(4)  # Longer than any Job without the annotation runs.
    assert batch.read_namespaced_job("long", "default").status.active == 1

    # A deleted pod is gone at once, and its Job replaces it.
    core.delete_collection_namespaced_pod("default", label_selector="job-name=long")
    until(lambda: {each.status.phase for each in pods("long")} == {"Running"})


def test_a_deleted_pod_fails_before_it_goes(rehearsal: Rehearsal) -> None:
    """Kueue and others hold a pod by a finalizer until it has ended."""
    held = pod("held")
    held["metadata"]["finalizers"] = ["tests.invalid/hold"]
    apply(rehearsal, held)
    core = api(rehearsal)

    def read() -> client.V1Pod:
        return core.read_namespaced_pod("held", "default")

    until(lambda: read().status.phase == "Running")
    core.delete_namespaced_pod("held", "default")
    until(lambda: read().status.phase == "Failed")
    assert read().status.container_statuses[0].state.terminated.exit_code == 143
    core.patch_namespaced_pod("held", "default", {"metadata": {"finalizers": None}})

    def names() -> set[str]:
        return {item.metadata.name for item in core.list_namespaced_pod("default").items}

    until(lambda: "held" not in names())


# --- Crashes


@pytest.mark.parametrize("name", kwok.COMPONENTS)
def test_it_recovers_from_the_death_of(name: str, rehearsal: Rehearsal, tools: Tools) -> None:
    kubeconfig = rehearsal.kubeconfig.read_text()
    save(rehearsal, f"before-{name}")
    os.kill(pids(rehearsal)[name] or 0, signal.SIGKILL)
    until(lambda: pids(rehearsal)[name] is None)
    kwok.start(rehearsal, tools)
    assert f"before-{name}" in saved(rehearsal)
    assert rehearsal.kubeconfig.read_text() == kubeconfig
    # All of it works again: the controllers, the scheduler, and kwok on the node of before.
    apply(rehearsal, deployment(f"after-{name}", 1))
    apps = client.AppsV1Api(api(rehearsal).api_client)

    def read() -> client.V1Deployment:
        return apps.read_namespaced_deployment(f"after-{name}", "default")

    until(lambda: read().status.ready_replicas == 1)


def test_a_process_with_a_reused_pid_is_ignored(rehearsal: Rehearsal, tools: Tools) -> None:
    save(rehearsal, "before-reboot")
    for pid in pids(rehearsal).values():
        os.kill(pid or 0, signal.SIGKILL)
    innocent = subprocess.Popen(["sleep", "600"])
    try:
        for process in kwok.processes(rehearsal):
            _, start = process.file.read_text().split(" ", 1)
            process.file.write_text(f"{innocent.pid} {start}")
        until(lambda: not any(process.running for process in kwok.processes(rehearsal)))
        kwok.start(rehearsal, tools)
        assert "before-reboot" in saved(rehearsal)
        etcd = kwok.processes(rehearsal)[0].file
        pid = str(pids(rehearsal)["etcd"])
        etcd.write_text(etcd.read_text().replace(pid, str(innocent.pid), 1))
        kwok.stop(rehearsal)
        assert not any(process.running for process in kwok.processes(rehearsal))
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.parametrize("race", [False, True], ids=["while-it-was-down", "as-it-started"])
def test_a_port_that_another_program_took_is_replaced(
    race: bool, rehearsal: Rehearsal, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rehearsal, f"before-port-{race:d}")
    kwok.stop(rehearsal)
    # etcd's port is the first that is asked about; the API server's is in the kubeconfig.
    option = "etcdPort" if race else "kubeApiserverPort"
    port = yaml.safe_load((rehearsal.cluster_dir / "ports.json").read_text())[option]
    is_free, asked = configuration._is_free, []
    until(lambda: is_free(port))

    def believed_free(port: int) -> bool:
        asked.append(port)
        return len(asked) == 1 or is_free(port)

    if race:
        monkeypatch.setattr(configuration, "_is_free", believed_free)
    with socket.create_server(("127.0.0.1", port)):
        kwok.start(rehearsal, tools)
        assert f"before-port-{race:d}" in saved(rehearsal)


def test_what_a_killed_start_left_is_no_hindrance(another: Rehearsal, tools: Tools) -> None:
    script = (
        "import sys, pathlib; from ml_foundations.rehearsal.control_plane import kwok; from ml_foundations.rehearsal.tools import toolchain; from ml_foundations.rehearsal.layout import Rehearsal; "
        "kwok.start(Rehearsal('another', pathlib.Path(sys.argv[1])), toolchain.ensure())"
    )
    starting = subprocess.Popen(
        [sys.executable, "-c", script, another.root],
        cwd=CHECKOUT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: pid_file(another, "etcd").exists())
    os.killpg(starting.pid, signal.SIGKILL)
    starting.wait()
    # The power failed while kwokctl wrote the certificates, and the pids were lost with them.
    (configuration.cluster_folder(another) / "pki" / "admin.crt").write_text("")
    pid_file(another, "etcd").unlink()
    kwok.start(another, tools)
    assert api(another).list_namespace().items


def test_an_upgrade_of_the_tools_keeps_what_there_is(
    rehearsal: Rehearsal, tools: Tools, tmp_path: Path
) -> None:
    """The same tools from another folder, as a new version's have one of their own."""
    save(rehearsal, "before-upgrade")
    before, kubeconfig = pids(rehearsal), rehearsal.kubeconfig.read_text()
    newer = tmp_path / "newer"
    newer.symlink_to(tools.kube_apiserver.parent)
    upgraded = dataclasses.replace(
        tools, etcd=newer / "etcd", kube_apiserver=newer / "kube-apiserver"
    )
    for given in (upgraded, tools):
        kwok.start(rehearsal, given)
        assert all(pid and pid != before[name] for name, pid in pids(rehearsal).items())
        assert "before-upgrade" in saved(rehearsal)
        assert rehearsal.kubeconfig.read_text() == kubeconfig
        before = pids(rehearsal)


# --- Failures, neighbours, and the end


def test_a_failure_names_the_process_and_shows_its_log(
    another: Rehearsal, tools: Tools, tmp_path: Path
) -> None:
    broken = tmp_path / "broken-scheduler"
    version = '[ "$1" = --version ] && echo Kubernetes v1.36.3 && exit'
    broken.write_text(f"#!/bin/sh\n{version}\necho out of luck\nexit 3\n")
    broken.chmod(0o700)
    words = r"(?s)^kube-scheduler ended .*ml-foundations down.*out of luck"
    with pytest.raises(RehearsalError, match=words):
        kwok.start(another, dataclasses.replace(tools, kube_scheduler=broken))
    assert not any(process.running for process in kwok.processes(another))


def test_what_gave_a_slow_api_server_up_is_started_again(
    another: Rehearsal, tools: Tools, tmp_path: Path
) -> None:
    def wrapped(real: Path, before: str) -> Path:
        wrapper = tmp_path / real.name
        wrapper.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] || {before}\nexec {shlex.quote(str(real))} "$@"\n'
        )
        wrapper.chmod(0o700)
        return wrapper

    starts = tmp_path / "starts"
    api_server = wrapped(tools.kube_apiserver, "sleep 20")
    manager, controller = (
        wrapped(real, f"echo {real.name} >> {shlex.quote(str(starts))}")
        for real in (tools.kube_controller_manager, tools.kwok)
    )
    slow = {"kube_apiserver": api_server, "kube_controller_manager": manager, "kwok": controller}
    kwok.start(another, dataclasses.replace(tools, **slow))
    # The slower the machine, the more often they give up.
    counts = Counter(starts.read_text().split())
    assert counts.keys() == {"kube-controller-manager", "kwok"}
    assert min(counts.values()) >= 2
    assert api(another).list_namespace().items


def test_two_start_side_by_side_and_end_without_a_trace(
    rehearsal: Rehearsal, tools: Tools, tmp_path: Path
) -> None:
    before = pids(rehearsal)
    pair = [Rehearsal.of(stack, tmp_path) for stack in ("one", "two")]
    with ThreadPoolExecutor() as pool:
        try:
            list(pool.map(lambda each: kwok.start(each, tools), pair))
            for each in pair:
                save(each, each.stack)
            assert [saved(each) & {"one", "two"} for each in pair] == [{"one"}, {"two"}]

            database = configuration.cluster_folder(pair[0]) / "etcd" / "member" / "snap" / "db"
            kwok.stop(pair[0])
            assert api(pair[1]).list_namespace().items
            database.write_bytes(b"broken" * 4096)
            with pytest.raises(RehearsalError, match=r"(?s)^etcd ended .*invalid database"):
                kwok.start(pair[0], tools)
        finally:
            list(pool.map(lambda each: kwok.delete(each), pair))
    for each in pair:
        assert not any(process.running for process in kwok.processes(each))
        assert not each.cluster_dir.exists()
        assert not each.kubeconfig.exists()
    assert not processes_naming(tmp_path)
    assert pids(rehearsal) == before


def test_nothing_was_written_to_kwokctls_default_folder(rehearsal: Rehearsal) -> None:
    used = Path.home() / ".kwok"
    began = psutil.Process().create_time()
    assert not [path for path in used.rglob("*") if path.stat().st_mtime > began]


def test_a_machine_without_ipv4_on_its_loopback_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_is_free", lambda port: False)
    with pytest.raises(RehearsalError, match=r"no port of 127.0.0.1 .* needs IPv4"):
        configuration.free_ports(["etcdPort"], {})
