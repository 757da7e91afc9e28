"""The gate in front of Pulumi's own kubernetes plugin. The embedded plugin stands in for it here."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
import yaml
from ml_foundations.rehearsal.files import write, write_json
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes import gate
from ml_foundations.rehearsal.plugins.kubernetes.gate import checked, kubeconfig_in_rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.stubs import provider_pb2, provider_pb2_grpc
from ml_foundations.rehearsal.protocol.values import Secret, write_struct

from tests.support.waiting import until

NOW, BEFORE, OTHER = (f"https://127.0.0.1:{port}" for port in (20001, 20002, 20003))


def kubeconfig(*servers: str) -> str:
    """Return a kubeconfig of clusters, of which the first is selected."""
    clusters = [{"name": server, "cluster": {"server": server}} for server in servers]
    contexts = [{"name": "c", "context": {"cluster": servers[0], "user": "u"}}]
    users = [{"name": "u", "user": {"token": "t"}}]
    return yaml.safe_dump(
        {"clusters": clusters, "contexts": contexts, "users": users, "current-context": "c"}
    )


@pytest.fixture
def rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    rehearsal = Rehearsal.of("dev", tmp_path)
    rehearsal.make()
    write_json(rehearsal.servers, {NOW: "", BEFORE: ""})
    write(rehearsal.kubeconfig, kubeconfig(NOW))
    monkeypatch.setenv("ML_FOUNDATIONS_REHEARSAL", str(rehearsal.root))
    return rehearsal


def test_a_replica_of_the_rehearsal_is_reached_where_it_is_now(rehearsal: Rehearsal) -> None:
    assert kubeconfig_in_rehearsal(rehearsal, kubeconfig(NOW), "") == kubeconfig(NOW)
    moved = kubeconfig_in_rehearsal(rehearsal, kubeconfig(BEFORE), "")
    assert moved == str(rehearsal.kubeconfig)


@pytest.mark.parametrize("servers", [(OTHER,), (NOW, OTHER)])
def test_another_cluster_is_refused(servers: tuple[str, ...], rehearsal: Rehearsal) -> None:
    with pytest.raises(RehearsalError, match=f"{OTHER}, which is not of this rehearsal"):
        kubeconfig_in_rehearsal(rehearsal, kubeconfig(*servers), "")


@pytest.mark.usefixtures("rehearsal")
def test_every_form_of_the_input_is_checked() -> None:
    def request(value: Any) -> bytes:
        return provider_pb2.ConfigureRequest(args=write_struct(value)).SerializeToString()

    variable = {"kubernetes:config:kubeconfig": kubeconfig(OTHER)}
    older = provider_pb2.ConfigureRequest(variables=variable).SerializeToString()
    for foreign in (older, request({"kubeconfig": Secret(kubeconfig(OTHER))})):
        with pytest.raises(RehearsalError, match=OTHER):
            checked(foreign)
    assert checked(request({})) == request({})
    moved = provider_pb2.ConfigureRequest.FromString(
        checked(request({"kubeconfig": kubeconfig(BEFORE), "context": "c"}))
    )
    assert "context" not in moved.args
    assert moved.variables["kubernetes:config:kubeconfig"] == moved.args["kubeconfig"]


@pytest.fixture
def running(rehearsal: Rehearsal, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    plugin = tmp_path / "official"
    command = f"exec {sys.executable} -m ml_foundations.rehearsal.plugins kubernetes"
    plugin.write_text(f'#!/bin/sh\n{command} "$@"\n')
    plugin.chmod(0o700)
    with subprocess.Popen(
        [sys.executable, "-m", gate.__name__, plugin, "127.0.0.1:1"],
        env=os.environ | {"PYTHONPATH": str(SOURCE_ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_calls_reach_the_plugin_and_its_errors_the_engine(running: subprocess.Popen[str]) -> None:
    assert running.stdout
    channel = grpc.insecure_channel(f"127.0.0.1:{running.stdout.readline().strip()}")
    stub = provider_pb2_grpc.ResourceProviderStub(channel)

    def configure(server: str) -> None:
        inputs = write_struct({"kubeconfig": kubeconfig(server)})
        stub.Configure(provider_pb2.ConfigureRequest(args=inputs))

    with pytest.raises(grpc.RpcError, match=rf"FAILED_PRECONDITION[^$]*{OTHER}"):
        configure(OTHER)
    configure(NOW)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    arguments = write_struct({"text": yaml.safe_dump(config_map)})
    call = provider_pb2.InvokeRequest(tok="kubernetes:yaml:decode", args=arguments)
    assert "ConfigMap" in str(stub.Invoke(call))
    with pytest.raises(grpc.RpcError, match=r"FAILED_PRECONDITION[^$]*kubernetes:no:such"):
        stub.Invoke(provider_pb2.InvokeRequest(tok="kubernetes:no:such"))
    children = psutil.Process(running.pid).children()
    assert children
    running.terminate()
    running.wait(300)
    until(lambda: not any(child.is_running() for child in children))
