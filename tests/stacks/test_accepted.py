"""Every object that stacks, examples and components declare, by the real API server and the real Helm."""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from kubernetes.client import CoreV1Api
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.control_plane import controllers
from ml_foundations.rehearsal.plugins.kubernetes.client import Client, UnknownKindError
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support import recording
from tests.support.cluster import Cluster
from tests.support.goldens import objects
from tests.support.waiting import until

NAMESPACE = "accepted"
CHARTS = {each.name: each for each in controllers.CONTROLLERS if controllers._has_chart(each)}


def test_the_api_server_accepts_every_object(cluster: Cluster) -> None:
    """A dry run with strict fields. The kinds of definitions, which a bare replica lacks, are left out."""
    client, answers, refused = Client(Api(Access(cluster.kubeconfig))), Counter[str](), list[str]()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    client.create(namespace)
    # A pod needs the account.
    core = CoreV1Api(cluster.api)
    until(lambda: bool(core.list_namespaced_service_account(NAMESPACE).items))
    for where, manifest in objects():
        words = answer(client, manifest)
        answers[words] += 1
        if words not in ("accepted", "not served"):
            refused.append(f"{where}: {manifest['kind']} {manifest['metadata']}: {words}")
    client.delete(namespace, "Background")
    assert not refused, "\n".join(refused)
    assert answers["accepted"] > 300


def answer(client: Client, manifest: dict[str, Any]) -> str:
    in_namespace = manifest["metadata"] | {"namespace": NAMESPACE}
    try:
        if client.is_namespaced(manifest["apiVersion"], manifest["kind"]):
            manifest = manifest | {"metadata": in_namespace}
        client.create(manifest, dry_run=True)
    except UnknownKindError:
        return "not served"
    except ApiError as error:
        # The replica has a valid object of that name already.
        return "accepted" if error.status == 409 else str(error)
    return "accepted"


def releases() -> list[tuple[str, dict[str, Any]]]:
    """The releases of charts that are in the modules of controllers."""
    programs = [
        *map(recording.stack, recording.STACKS),
        *map(recording.example, recording.EXAMPLES),
    ]
    made = [
        r["inputs"] for resources in programs for r in resources if r["type"].endswith(":Release")
    ]
    names = [(inputs["chart"].rpartition("/")[2], inputs) for inputs in made]
    return [(name, inputs) for name, inputs in names if name in CHARTS]


def test_helm_renders_the_charts_with_the_values_of_releases(tools: Tools, tmp_path: Path) -> None:
    found = releases()
    assert {name for name, _ in found} == CHARTS.keys()
    for number, (name, inputs) in enumerate(found):
        values = tmp_path / str(number) / "values.yaml"
        values.parent.mkdir()
        values.write_text(json.dumps(inputs.get("values") or {}))
        assert controllers._render(tools, CHARTS[name], values)
        lint = [tools.helm, "lint", values.with_name("chart"), "--values", values]
        done = subprocess.run(lint, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
