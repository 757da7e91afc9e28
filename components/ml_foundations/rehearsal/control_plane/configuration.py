"""The configuration of the control plane for kwokctl, and the kubeconfig of the replica."""

import base64
import json
import random
import shutil
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

import yaml

from ml_foundations.rehearsal.files import read_json, read_text, write, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools.toolchain import Tools

LOOPBACK = "127.0.0.1"
_TEMPLATE = Template((Path(__file__).parent / "kwokctl.yaml").read_text())
_KUBECONFIG = Template((Path(__file__).parent / "kubeconfig.yaml").read_text())
_PORT_OPTIONS = [name for name in _TEMPLATE.get_identifiers() if name.endswith("Port")]
"""The options of kwokctl that need a port."""
_PORT_RANGE = range(20000, 30000)
"""Below the ports of outgoing connections and the node ports of Kubernetes."""
_KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
"""kwok's own Stages that a replica uses. The others are in ``control_plane/stages``."""
_PORTS = "ports.json"
_STAGES = Path(__file__).parent / "stages"
_ADMISSION = Path(__file__).parent / "admission.yaml"


@dataclass(frozen=True)
class Credentials:
    """The API server's address and the administrator's certificate."""

    server: str
    ca: Path
    cert: Path
    key: Path


def credentials(rehearsal: Rehearsal) -> Credentials:
    """Return the credentials; raise a RehearsalError if the control plane was never started."""
    last_ports = ports(rehearsal)
    if not last_ports:
        fix = f"Start it: {rehearsal.command('up')}"
        raise RehearsalError(f"{rehearsal.stack} has no control plane. {fix}")
    pki = cluster_folder(rehearsal) / "pki"
    server = f"https://{LOOPBACK}:{last_ports['kubeApiserverPort']}"
    return Credentials(server, ca=pki / "ca.crt", cert=pki / "admin.crt", key=pki / "admin.key")


def cluster_folder(rehearsal: Rehearsal) -> Path:
    """Return the folder in which kwokctl keeps the cluster of this replica."""
    return rehearsal.cluster_dir.resolve() / ".kwok" / "clusters" / "kwok"


def is_current(rehearsal: Rehearsal, tools: Tools) -> bool:
    """Return whether the cluster was set up completely, with these tools, options and stages."""
    last_ports = ports(rehearsal)
    if not last_ports:
        return False
    current = _configuration(rehearsal, tools, last_ports)
    return read_text(config_file(rehearsal)) == current and _has_certificates(rehearsal)


def configure(rehearsal: Rehearsal, tools: Tools) -> None:
    """Write the configuration, with the ports of the last start that are still free."""
    cluster = cluster_folder(rehearsal)
    if not _has_certificates(rehearsal):
        shutil.rmtree(cluster, ignore_errors=True)
    # Without these, kwokctl sets the cluster up again and keeps the certificates and the data.
    (cluster / "kwok.yaml").unlink(missing_ok=True)
    shutil.rmtree(cluster / "bin", ignore_errors=True)
    chosen = free_ports(_PORT_OPTIONS, ports(rehearsal))
    write_json(rehearsal.cluster_dir / _PORTS, chosen)
    servers = read_json(rehearsal.servers, {})
    servers[credentials(rehearsal).server] = rehearsal.cluster
    write_json(rehearsal.servers, servers)
    write(config_file(rehearsal), _configuration(rehearsal, tools, chosen))


def _has_certificates(rehearsal: Rehearsal) -> bool:
    """Return whether the certificates are complete. kwokctl may be killed while it writes them."""
    try:
        admin_context(rehearsal)
    except (OSError, RehearsalError):
        return False
    return True


def free_ports(names: Iterable[str], previous: Mapping[str, int]) -> dict[str, int]:
    """Return a free port for each name: the previous one if it is free."""
    candidates = filter(_is_free, random.sample(_PORT_RANGE, len(_PORT_RANGE)))
    chosen: dict[str, int] = {}
    for name in names:
        port = previous.get(name)
        if not port or not _becomes_free(port):
            port = next(candidates, None)
        if port is None:
            raise RehearsalError(
                f"no port of {LOOPBACK} from {_PORT_RANGE.start} to {_PORT_RANGE.stop - 1} is "
                "free. A rehearsal needs IPv4 on the loopback interface: ip address add "
                "127.0.0.1/8 dev lo"
            )
        chosen[name] = port
    return chosen


def _becomes_free(port: int) -> bool:
    """Return whether a port is free within a second: a killed process keeps it for a moment."""
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
    """Return the ports of the last start; none before the first."""
    return read_json(rehearsal.cluster_dir / _PORTS, {})


def config_file(rehearsal: Rehearsal) -> Path:
    """Return the configuration file of kwokctl and kwok."""
    return rehearsal.cluster_dir / "kwokctl.yaml"


def _configuration(rehearsal: Rehearsal, tools: Tools, ports: Mapping[str, int]) -> str:
    files = {"pki": cluster_folder(rehearsal) / "pki", "tokens": rehearsal.tokens.resolve()}
    values = {"loopback": LOOPBACK, "admission": _ADMISSION} | files | vars(tools) | dict(ports)
    for name, value in values.items():
        # The template has the quotes.
        values[name] = json.dumps(str(value), ensure_ascii=False)[1:-1]
    stages = [*(tools.kwok_stages / name for name in _KWOK_STAGES), *sorted(_STAGES.glob("*.yaml"))]
    job_seconds = read_json(rehearsal.job_seconds, 0)
    texts = (_stage(file, job_seconds) for file in stages)
    return "---\n".join([_TEMPLATE.substitute(values), *texts])


def _stage(file: Path, job_seconds: int) -> str:
    """Return a Stage. The pods of Jobs may run for longer than in the file."""
    text = file.read_text()
    if file.name != "pod-complete.yaml" or not job_seconds:
        return text
    stage = yaml.safe_load(text)
    # A jitter that equals the delay means none.
    for setting in ("durationMilliseconds", "jitterDurationMilliseconds"):
        stage["spec"]["delay"][setting] = 1000 * job_seconds
    return yaml.safe_dump(stage)


def write_kubeconfig(rehearsal: Rehearsal) -> None:
    """Write the kubeconfig with which kubectl, helm and the plugins access the replica."""
    access = credentials(rehearsal)
    files = {"ca": access.ca, "cert": access.cert, "key": access.key}
    values = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    name = f"gke_{rehearsal.cluster or f'rehearsal_local_{rehearsal.stack}'}"
    write(rehearsal.kubeconfig, _KUBECONFIG.substitute(values, name=name, server=access.server))


def admin_context(rehearsal: Rehearsal) -> ssl.SSLContext:
    """Return TLS settings with the administrator's certificate."""
    access = credentials(rehearsal)
    context = ssl.create_default_context(cafile=str(access.ca))
    context.load_cert_chain(access.cert, access.key)
    return context
