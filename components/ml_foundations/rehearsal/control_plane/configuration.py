"""How kwokctl sets the control plane up: ports, flags, stages, certificates, and the kubeconfig that comes of it."""

from __future__ import annotations

import base64
import random
import shutil
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ml_foundations.rehearsal.files import read_json, read_text, write, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools.toolchain import Tools

LOOPBACK = "127.0.0.1"
_PORT_OPTIONS = (
    "etcdPort",
    "etcdPeerPort",
    "kubeApiserverPort",
    "kubeControllerManagerPort",
    "kubeSchedulerPort",
    "kwokControllerPort",
)
"""The ports to choose, by the names of kwokctl's options."""
_PORT_RANGE = range(20000, 30000)
"""Below the ports that operating systems give to outgoing connections, and below Kubernetes' own node ports."""
_KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
"""kwok's own Stage documents that a replica uses as they are; the others are in ``control_plane/stages``."""
_OWN_STAGES = Path(__file__).parent / "stages"


@dataclass(frozen=True)
class Credentials:
    """Where the API server is, and the administrator's way in."""

    server: str
    ca: Path
    cert: Path
    key: Path


def credentials(rehearsal: Rehearsal) -> Credentials:
    """The API server's address and the administrator's certificate.

    Raises:
        RehearsalError: the control plane was never started.
    """
    known = ports(rehearsal)
    if not known:
        raise RehearsalError(f"{rehearsal.stack} has no control plane. Start it: {rehearsal.command('up')}")
    pki = cluster_folder(rehearsal) / "pki"
    server = f"https://{LOOPBACK}:{known['kubeApiserverPort']}"
    return Credentials(server, ca=pki / "ca.crt", cert=pki / "admin.crt", key=pki / "admin.key")


def cluster_folder(rehearsal: Rehearsal) -> Path:
    """The folder in which kwokctl keeps the one cluster of this rehearsal."""
    return rehearsal.cluster_dir.resolve() / "clusters" / "kwok"


def is_current(rehearsal: Rehearsal, tools: Tools) -> bool:
    """Whether the cluster was set up whole, with these tools, options and stages."""
    wanted = _configuration(rehearsal, tools, ports(rehearsal))
    return read_text(config_file(rehearsal)) == wanted and _has_certificates(rehearsal)


def configure(rehearsal: Rehearsal, tools: Tools) -> None:
    """Write the configuration, with the ports of the last start as far as they are free."""
    cluster = cluster_folder(rehearsal)
    if not _has_certificates(rehearsal):
        shutil.rmtree(cluster, ignore_errors=True)
    # Without these, kwokctl sets the cluster up again; it leaves the certificates and the data as they are.
    (cluster / "kwok.yaml").unlink(missing_ok=True)
    shutil.rmtree(cluster / "bin", ignore_errors=True)
    chosen = free_ports(_PORT_OPTIONS, ports(rehearsal))
    write_json(_ports_file(rehearsal), chosen)
    write(config_file(rehearsal), _configuration(rehearsal, tools, chosen))


def _has_certificates(rehearsal: Rehearsal) -> bool:
    """Whether the certificates are whole: where kwokctl was killed while it wrote them, nothing had started yet."""
    try:
        admin_context(rehearsal)
    except (OSError, RehearsalError):
        return False
    return True


def free_ports(names: Iterable[str], previous: Mapping[str, int]) -> dict[str, int]:
    """A free port for each name: the one of before, where it is free."""
    candidates = iter(random.sample(_PORT_RANGE, len(_PORT_RANGE)))
    chosen: dict[str, int] = {}
    for name in names:
        kept = previous.get(name)
        chosen[name] = kept if kept and _gets_free(kept) else next(port for port in candidates if _is_free(port))
    return chosen


def _gets_free(port: int) -> bool:
    """Whether a port is free, or soon will be: a process that was killed keeps its ports for a moment."""
    deadline = time.monotonic() + 1
    while not (free := _is_free(port)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def ports(rehearsal: Rehearsal) -> dict[str, int]:
    """The ports of the last start; none before the first."""
    return read_json(_ports_file(rehearsal), {})


def _ports_file(rehearsal: Rehearsal) -> Path:
    return rehearsal.cluster_dir / "ports.json"


def config_file(rehearsal: Rehearsal) -> Path:
    """What kwokctl and kwok are told."""
    return rehearsal.cluster_dir / "kwokctl.yaml"


def _configuration(rehearsal: Rehearsal, tools: Tools, ports: Mapping[str, int]) -> str:
    """Everything that kwokctl and kwok are told, as one stream of YAML documents."""
    api_version = "config.kwok.x-k8s.io/v1alpha1"
    kwokctl = {
        "apiVersion": api_version,
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "bindAddress": LOOPBACK,
            "securePort": True,
            "kubeAuthorization": True,
            "disableQPSLimits": True,
            # kwok's heartbeats come every 10 minutes: of nodes that cannot fail, none need be missed.
            "kubeControllerManagerNodeMonitorGracePeriodMilliseconds": 3_600_000,
            "etcdBinary": str(tools.etcd),
            "kubeApiserverBinary": str(tools.kube_apiserver),
            "kubeControllerManagerBinary": str(tools.kube_controller_manager),
            "kubeSchedulerBinary": str(tools.kube_scheduler),
            "kwokControllerBinary": str(tools.kwok),
            "kubectlBinary": str(tools.kubectl),
            **ports,
        },
        "componentsPatches": _component_patches(cluster_folder(rehearsal) / "pki", ports),
    }
    kwok = {
        "apiVersion": api_version,
        "kind": "KwokConfiguration",
        "options": {
            "podPlayStageParallelism": 32,
            "nodePlayStageParallelism": 16,
        },
    }
    stages = [tools.kwok_stages / name for name in _KWOK_STAGES] + sorted(_OWN_STAGES.glob("*.yaml"))
    documents = [yaml.safe_dump(kwokctl), yaml.safe_dump(kwok), *(stage.read_text() for stage in stages)]
    return "---\n".join(documents)


def _component_patches(pki: Path, ports: Mapping[str, int]) -> list[dict[str, Any]]:
    """The flags that differ from kwokctl's own."""
    if not ports:
        return []
    ca, cert, key = str(pki / "ca.crt"), str(pki / "admin.crt"), str(pki / "admin.key")
    client, peer = (f"https://{LOOPBACK}:{ports[option]}" for option in ("etcdPort", "etcdPeerPort"))
    # kwokctl's etcd speaks plain HTTP, open to every user of the machine; here it asks for the admin certificate.
    etcd = {
        "cert-file": cert,
        "key-file": key,
        "trusted-ca-file": ca,
        "client-cert-auth": "true",
        "peer-cert-file": cert,
        "peer-key-file": key,
        "peer-trusted-ca-file": ca,
        "peer-client-cert-auth": "true",
    }
    etcd_urls = {
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"node0={peer}",
    }
    apiserver = {
        "etcd-cafile": ca,
        "etcd-certfile": cert,
        "etcd-keyfile": key,
        "anonymous-auth": "false",
        "enable-admission-plugins": "ExtendedResourceToleration",
        # No pod connects to the API server, and a machine without a network has no address to advertise.
        "advertise-address": LOOPBACK,
        "endpoint-reconciler-type": "none",
    }
    # With one process of each kind, a lease would only make its successor wait after a crash.
    alone = {"leader-elect": "false"}
    return [
        _patch("etcd", etcd, overridden=etcd_urls),
        _patch("kube-apiserver", apiserver, overridden={"etcd-servers": client}),
        _patch("kube-controller-manager", {"concurrent-job-syncs": "20", **alone}),
        _patch("kube-scheduler", alone),
        _patch("kwok-controller", {}, overridden={"node-lease-duration-seconds": "0"}),
    ]


def _patch(component: str, added: Mapping[str, str], overridden: Mapping[str, str] | None = None) -> dict[str, Any]:
    arguments = [{"key": key, "value": value, "override": False} for key, value in added.items()]
    arguments += [{"key": key, "value": value, "override": True} for key, value in (overridden or {}).items()]
    return {"name": component, "extraArgs": arguments}


def write_kubeconfig(rehearsal: Rehearsal) -> None:
    """Write the kubeconfig with which kubectl, helm and the plugins reach the replica."""
    access = credentials(rehearsal)
    name = f"gke_rehearsal_local_{rehearsal.stack}"
    cluster = {"server": access.server, "certificate-authority-data": _base64(access.ca)}
    user = {"client-certificate-data": _base64(access.cert), "client-key-data": _base64(access.key)}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    write(rehearsal.kubeconfig, yaml.safe_dump(kubeconfig, sort_keys=False))


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def admin_context(rehearsal: Rehearsal) -> ssl.SSLContext:
    """TLS with the administrator's certificate."""
    access = credentials(rehearsal)
    context = ssl.create_default_context(cafile=str(access.ca))
    context.load_cert_chain(access.cert, access.key)
    return context
