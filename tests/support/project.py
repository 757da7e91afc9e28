"""A small Pulumi project over a replica, whose program changes from step to step."""

import argparse
import gc
import json
import os
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

from kubernetes import utils
from ml_foundations.kubernetes.labels import GPU_RESOURCE, GPU_TAINT_KEY, HOSTNAME, ZONE
from ml_foundations.rehearsal.access import Access, server_of
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.engine import environment, installation, project_files, stack
from ml_foundations.rehearsal.files import write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.tools.toolchain import Tools
from pulumi.automation._server import LanguageServer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import language_pb2_grpc

from tests.support import vault
from tests.support.attached import kubernetes_plugin, serve
from tests.support.cluster import Cluster
from tests.support.waiting import until

# An engine may get the port of one that is gone, and gRPC would go on waiting for that one before it connects again.
_GRPC_CHANNEL_OPTIONS.append(("grpc.use_local_subchannel_pool", 1))

PROLOGUE = """
import pulumi, pulumi_kubernetes as k8s
here = pulumi.ResourceOptions(provider=k8s.Provider("replica", kubeconfig=open({kubeconfig!r}).read(), cluster_identifier="x"))
def options(**more): return pulumi.ResourceOptions.merge(here, pulumi.ResourceOptions(**more))
"""


class _Programs(LanguageServer):
    """The program that an engine runs now, and whether it is over."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.ended = Event()
        self.ended.set()

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.ended.clear()
        try:
            return super().Run(request, context)
        finally:
            self.ended.set()


@cache
def _programs() -> tuple[_Programs, int]:
    """Serve all programs of this process at one port."""
    programs = _Programs()
    return programs, serve(
        lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(programs, server)
    )


@contextmanager
def offered(program: Callable[[], None]) -> Iterator[list[str]]:
    """Offer a program to an engine that is given the options."""
    programs, port = _programs()
    programs.program = program
    # What the program leaves behind is collected when it ends; all that was there before need not be gone through.
    gc.freeze()
    try:
        yield [f"--client=127.0.0.1:{port}", "--exec-kind=auto.inline"]
    finally:
        # Its engine may have ended before it.
        programs.ended.wait(5)
        gc.collect()


class Project:
    """A Pulumi project whose program is replaced from step to step."""

    has_plugin = True
    """Whether its kubernetes plugin is in this process."""

    def __init__(self, root: Path, cluster: Cluster, tools: Tools) -> None:
        self.root = root
        self.cluster = cluster
        self._api = Api(Access(cluster.kubeconfig))
        (root / "stacks").mkdir()
        (root / "stacks" / "Pulumi.t.yaml").write_text("config: {}\n")
        (root / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
        self.rehearsal = Rehearsal.of("t", root)
        installation.install(self.rehearsal, tools)
        self.rehearsal.kubeconfig.write_text(cluster.kubeconfig.read_text())
        # Pulumi's own plugin may reach the clusters of a rehearsal only.
        write_json(self.rehearsal.servers, {server_of(str(cluster.kubeconfig)): ""})
        stack.create(self.rehearsal)
        os.environ |= vault.use(project_files.stack_file(self.rehearsal))
        self.environment = environment.process_environment(self.rehearsal)

    def program(self, body: str) -> None:
        """Say what the program is from now on."""
        prologue = PROLOGUE.format(kubeconfig=str(self.cluster.kubeconfig))
        (self.root / "__main__.py").write_text(prologue + textwrap.dedent(body))

    def pulumi(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the real CLI; what needs program and kubernetes plugin finds them in this process."""
        with (
            self._program()
            if args[0] in ("up", "preview", "refresh")
            else nullcontext([]) as client,
            kubernetes_plugin(self.environment) if self.has_plugin else nullcontext({}) as plugin,
        ):
            return subprocess.run(
                [self.rehearsal.bin_dir / "pulumi", *args, *client, "--non-interactive"],
                cwd=self.root,
                env=self.environment | plugin,
                capture_output=True,
                text=True,
                check=False,
                timeout=3600,
            )

    def _program(self) -> AbstractContextManager[list[str]]:
        """Offer the program as the Automation API does; an interpreter of its own would be half of a command's work."""
        text = (self.root / "__main__.py").read_text()
        return offered(lambda: exec(text, {}))

    def up(self, body: str, *args: str) -> str:
        self.program(body)
        done = self.pulumi("up", "--yes", "--skip-preview", "--stack", "t", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def fails(self, body: str, command: str = "up") -> str:
        self.program(body)
        options = ["--yes", "--skip-preview"] if command == "up" else []
        done = self.pulumi(command, *options, "--stack", "t")
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def clear(self) -> None:
        """Delete the objects that the program made, and forget them: quicker than an update to an empty program."""
        path = stack.state_file(self.rehearsal)
        state = json.loads(path.read_text())
        made = (state["checkpoint"].pop("latest", None) or {}).get("resources", [])
        path.write_text(json.dumps(state))
        client = Client(self._api)
        for resource in reversed(made):
            if "apiVersion" in resource.get("outputs", {}):
                delete(client, resource["outputs"])

    def as_if_killed(self, name: str) -> None:
        """Make the state as it was while a resource was being created."""
        path = stack.state_file(self.rehearsal)
        state = json.loads(path.read_text())
        latest = state["checkpoint"]["latest"]
        made = next(each for each in latest["resources"] if each["urn"].endswith(f"::{name}"))
        latest["resources"].remove(made)
        pending = {key: value for key, value in made.items() if key not in ("id", "outputs")}
        latest["pending_operations"] = [{"resource": pending, "type": "creating"}]
        path.write_text(json.dumps(state))

    def patch(
        self, kind: str, name: str, change: dict[str, Any], manager: str = "kubectl-patch"
    ) -> None:
        """Change an object as a manager of another name."""
        patch = ["--type=merge", "-p", json.dumps(change)]
        assert self.kubectl("patch", kind, name, *patch, f"--field-manager={manager}")

    def urn(self, name: str) -> str:
        return next(r["urn"] for r in self.resources() if r["urn"].endswith(f"::{name}"))

    def resources(self) -> list[dict[str, Any]]:
        state = json.loads(stack.state_file(self.rehearsal).read_text())
        return state["checkpoint"]["latest"]["resources"]

    def kubectl(self, *args: str) -> Any:
        """What kubectl answers, or None where there is no such object; any other failure fails the test."""
        if args[0] == "get":
            return self._get(*args[1:])
        output = ["-o", "name" if args[0] == "delete" else "json"]
        own = [self.rehearsal.bin_dir / "kubectl", "--kubeconfig", self.cluster.kubeconfig]
        command = [*own, *args, *output]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            assert "NotFound" in done.stderr, done.stderr
            return None
        return done.stdout if args[0] == "delete" else json.loads(done.stdout)

    def _get(self, *args: str) -> Any:
        """``kubectl get`` without its process: tests that wait ask several times a second."""
        parser = argparse.ArgumentParser(exit_on_error=False)
        parser.add_argument("kind")
        parser.add_argument("name", nargs="?", default="")
        parser.add_argument("-n", default="default")
        parser.add_argument("-l", default="")
        parser.add_argument("-A", action="store_true")
        asked = parser.parse_args(args)
        root, plural, namespaced = served(self._api, asked.kind)
        inside = f"/namespaces/{asked.n}" if namespaced and not asked.A else ""
        path = f"{root}{inside}/{plural}" + (f"/{asked.name}" if asked.name else "")
        try:
            return self._api.get(path, **({"labelSelector": asked.l} if asked.l else {}))
        except ApiError as error:
            assert error.status == 404, error
            return None


@cache
def served(api: Api, kind: str) -> tuple[str, str, bool]:
    """Where a kind that kubectl knows as ``pvc`` or ``jobs.v1.batch`` is: its group's path, its plural, if namespaced."""
    plural, _, place = kind.partition(".")
    groups = api.get("/apis")["groups"]
    others = [version["groupVersion"] for group in groups for version in group["versions"]]
    for group_version in ("v1", *others):
        group, _, version = group_version.rpartition("/")
        if place not in ("", group, f"{version}.{group}"):
            continue
        root = f"/apis/{group_version}" if group else f"/api/{group_version}"
        for item in api.get(root)["resources"]:
            if plural in (item["name"], item["singularName"], *item.get("shortNames", ())):
                return root, item["name"], item["namespaced"]
    raise AssertionError(f"the server has no resource type {kind}")


def delete(client: Client, obj: dict[str, Any]) -> None:
    """Delete an object with all that it owns, and wait until it is gone."""
    client.delete(obj, "Foreground")
    until(lambda: client.get(obj) is None)


@contextmanager
def project_over(
    cluster: Cluster, tools: Tools, root: Path, *manifests: dict[str, Any]
) -> Iterator[Project]:
    """A project over a replica that has these objects for as long."""
    client = Client(Api(Access(cluster.kubeconfig)))
    with ExitStack() as made:
        for manifest in manifests:
            made.callback(client.delete, manifest, "Background")
            utils.create_from_dict(cluster.api, manifest)
        project = Project(root, cluster, tools)
        made.callback(project.clear)
        yield project


def fake_node(
    name: str, labels: Mapping[str, str], gpus: int = 0, taints: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A large node that kwok plays, with the taint of GPUs where it has any."""
    taints = {**(taints or {}), **({GPU_TAINT_KEY: "present"} if gpus else {})}
    resources = {"cpu": "200", "memory": "1800Gi", "pods": "110"}
    resources |= {GPU_RESOURCE: str(gpus)} if gpus else {}
    own = [{"key": key, "value": taints[key], "effect": "NoSchedule"} for key in taints]
    metadata = {
        "name": name,
        "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {HOSTNAME: name, ZONE: "us-central1-a", **labels},
    }
    status = {"capacity": resources, "allocatable": resources}
    made = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    return made | {"spec": {"taints": own}, "status": status}
