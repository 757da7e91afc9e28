"""The Python language host under the real engine: programs, policy packs, component packages, and traps on PATH."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from ml_foundations.rehearsal.engine import environment, installation, language_host, project_files
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools import groups, toolchain
from ml_foundations.rehearsal.tools.toolchain import Tools
from pulumi.runtime.proto import language_pb2 as lang

from tests.support.checkout import CHECKOUT
from tests.support.waiting import until

PROGRAM = """
import os, sys
import pulumi

class Named(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("test:index:Named", name)

config = pulumi.Config()
Named(config.require("name"))
print("printed by the program")
pulumi.export("greeting", config.require_secret("greeting"))
pulumi.export("python", sys.executable)
pulumi.export("seen", [pulumi.get_project(), pulumi.get_stack(), pulumi.get_organization(), os.getcwd()])
pulumi.export("python_path", os.environ.get("PYTHONPATH", ""))
"""
MANY_PROVIDERS = """
import pulumi
from pulumi import dynamic
import pulumi_gcp as gcp

class Upper(dynamic.ResourceProvider):
    def create(self, props):
        return dynamic.CreateResult("one", {**props, "said": props["text"].upper()})

class Shout(dynamic.Resource):
    said: pulumi.Output[str]

    def __init__(self, name, text):
        super().__init__(Upper(), name, {"text": text, "said": None})

class Password(pulumi.CustomResource):
    def __init__(self, name, length):
        made = {"length": length, "special": False, "minUpper": 2, "result": None}
        kind = "random:index/randomPassword:RandomPassword"
        super().__init__(kind, name, made, pulumi.ResourceOptions(version="4.16.0"))

    @property
    def result(self):
        return pulumi.get(self, "result")

class Key(pulumi.CustomResource):
    def __init__(self, name):
        made = {"algorithm": "ED25519", "publicKeyOpenssh": None, "privateKeyPem": None}
        super().__init__("tls:index/privateKey:PrivateKey", name, made, pulumi.ResourceOptions(version="5.0.0"))

    @property
    def forms(self):
        return pulumi.Output.all(pulumi.get(self, "publicKeyOpenssh"), pulumi.get(self, "privateKeyPem"))

pulumi.export("key", Key("k").forms)
pulumi.export("said", Shout("s", "hello").said)
pulumi.export("password", Password("p", 12).result)
bucket = gcp.storage.Bucket("b", location="EU", project="p", name="b", opts=pulumi.ResourceOptions(version="8.1.0"))
pulumi.export("bucket", bucket.url)
pulumi.export("other", pulumi.StackReference("organization/greetings/prod").require_output("greeting"))
"""
AUTOMATION = """
import json
import pulumi
from pulumi import automation

local = automation.select_stack("dev", work_dir=".").up()

def program():
    pulumi.export("by", "inline")

inline = automation.create_or_select_stack("other", project_name="inline", program=program).up()
print(json.dumps([local.summary.result, local.outputs["greeting"].value, inline.outputs["by"].value]))
"""
POLICY = """
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy

def no_bad_names(args, report):
    if args.name == "bad":
        report("this name is refused")

PolicyPack("pack", [ResourceValidationPolicy(
    name="names", description="Names", validate=no_bad_names, enforcement_level=EnforcementLevel.MANDATORY)])
"""
COMPONENT = """
from typing import Optional, TypedDict
import pulumi
from pulumi.provider.experimental import component_provider_host

class GreeterArgs(TypedDict):
    name: pulumi.Input[str]

class Greeter(pulumi.ComponentResource):
    greeting: pulumi.Output[str]

    def __init__(self, name: str, args: GreeterArgs, opts: Optional[pulumi.ResourceOptions] = None):
        super().__init__("greeter:index:Greeter", name, {}, opts)
        self.greeting = pulumi.Output.concat("hello ", args["name"])
        self.register_outputs({"greeting": self.greeting})

component_provider_host(name="greeter", components=[Greeter])
"""
YAML_PROJECT = """
name: greetings
runtime: yaml
packages:
  greeter: ../component
resources:
  world:
    type: greeter:Greeter
    properties:
      name: world
outputs:
  greeting: ${world.greeting}
"""


YAML_FUNCTIONS = """
name: greetings
runtime: yaml
config:
  gcp:project: acme
  gcp:region: us-central1
variables:
  zones:
    fn::invoke: {function: gcp:compute:getZones, arguments: {region: europe-west4}, return: names}
  project:
    fn::invoke: {function: gcp:organizations:getProject}
resources:
  pet: {type: random:RandomPet, properties: {prefix: my}}
  cluster-account:
    type: gcp:serviceaccount:Account
    get: {id: "projects/acme/serviceAccounts/${project.number}-compute@developer.gserviceaccount.com"}
outputs:
  zone: ${zones[0]}
  pet: ${pet.id}
  account: ${cluster-account.email}
"""


@dataclass(frozen=True)
class Project:
    """A Pulumi project on this host, in an environment like a rehearsal's."""

    folder: Path
    rehearsal: Rehearsal
    environment: dict[str, str]

    def command(self, *arguments: str) -> list[str]:
        return [str(self.rehearsal.bin_dir / "pulumi"), *arguments, "--non-interactive"]

    def pulumi(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment | more,
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
        )

    def checked(self, *arguments: str, **more: str) -> str:
        done = self.pulumi(*arguments, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def outputs(self) -> dict[str, object]:
        return json.loads(self.checked("stack", "output", "--json", "--show-secrets"))


@pytest.fixture
def own_tools(tools: Tools) -> Tools:
    """The CLI that is built here, also where an official one is on PATH."""
    return dataclasses.replace(
        tools, pulumi=toolchain.build(groups.PULUMI) / "pulumi", pulumi_is_official=False
    )


@pytest.fixture
def project(own_tools: Tools, tmp_path: Path) -> Project:
    """A Python project with a stack; the stack file of the rehearsal holds its settings."""
    folder = tmp_path / "program"
    settings = "config:\n  greetings:name: good\n  greetings:greeting: hello\n"
    write(folder / "Pulumi.yaml", "name: greetings\nruntime: python\n")
    write(folder / "Pulumi.dev.yaml", settings)
    write(folder / "__main__.py", PROGRAM)
    rehearsal = Rehearsal.of("dev", folder)
    installation.install(rehearsal, own_tools)
    result = Project(folder, rehearsal, environment.process_environment(rehearsal))
    result.checked("stack", "init", "dev")
    return result


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def script(path: Path, text: str) -> None:
    write(path, f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def plant_traps(folder: Path, *names: str) -> Path:
    """Executables that leave a file ``sprung`` when they are run."""
    for name in names:
        script(folder / name, f"touch {folder}/sprung\nexit 1")
    return folder / "sprung"


def own_environment(project: Project) -> Path:
    """Give the project an environment, with the packages of this one; return the folder of its own."""
    own = project.folder / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    (site_packages,) = own.glob("lib/python*/site-packages")
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    write(site_packages / "lent.pth", lent)
    name_environment(project, "own")
    return site_packages


def name_environment(project: Project, name: str) -> None:
    runtime = f"{{name: python, options: {{virtualenv: {name}}}}}"
    write(project.folder / "Pulumi.yaml", f"name: greetings\nruntime: {runtime}\n")


def failed(done: subprocess.CompletedProcess[str]) -> str:
    """What a command printed that has failed, as it must."""
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def processes_of(folder: Path) -> list[str]:
    """The command lines of the processes that have this folder in their command line or environment."""
    found: list[str] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            home = process.environ().get("PULUMI_HOME", "")
            if str(folder) in command or home.startswith(str(folder)):
                found.append(command)
    return found


def test_up_runs_a_program(project: Project, tmp_path: Path) -> None:
    printed = project.checked("up", "--yes", PYTHONPATH="/users/own")
    assert "printed by the program" in printed
    assert "good" in printed
    assert project.outputs() == {
        "greeting": "hello",
        "python": sys.executable,
        "seen": ["greetings", "dev", "organization", str(project.folder)],
        "python_path": "/users/own",
    }
    assert "2 unchanged" in project.checked("up", "--yes", PYTHONPATH="/users/own")
    until(lambda: not processes_of(tmp_path))


def test_a_program_that_raises_fails_the_update(project: Project) -> None:
    write(project.folder / "__main__.py", "import pulumi\n\nraise ValueError('what went wrong')\n")
    printed = failed(project.pulumi("up", "--yes"))
    assert printed.count("ValueError: what went wrong") == 1
    assert language_host.EXITED not in printed


def test_a_program_that_dies_fails_the_update(project: Project) -> None:
    write(project.folder / "__main__.py", "import os\n\nos._exit(7)\n")
    assert f"{language_host.EXITED} 7" in failed(project.pulumi("up", "--yes"))


def test_modules_of_the_project_do_not_shadow_those_of_the_host(project: Project) -> None:
    for name in ("rehearsal", "asyncio"):
        write(project.folder / f"{name}.py", "raise SystemExit('shadowed')\n")
    about = json.loads(project.checked("about", "--json"))
    assert about["runtime"]["executable"] == sys.executable


def test_the_virtual_environment_that_the_project_names_is_used(project: Project) -> None:
    own_environment(project)
    project.checked("up", "--yes")
    assert project.outputs()["python"] == str(project.folder / "own" / "bin" / "python")


def test_an_environment_that_is_missing_is_an_error(project: Project) -> None:
    name_environment(project, "gone")
    printed = failed(project.pulumi("up", "--yes"))
    fix = f"environment {project.folder}/gone does not exist. Make it: python3 -m venv"
    assert fix in printed


@pytest.mark.parametrize(
    ("options", "lock", "where"),
    [
        ({"virtualenv": "own"}, "", "own"),
        ({"toolchain": "pip", "virtualenv": "own"}, "uv.lock", "own"),
        ({"toolchain": "uv"}, "", ".venv"),
        ({}, "uv.lock", ".venv"),
        ({"toolchain": "uv", "virtualenv": "own"}, "", "own"),
        ({"toolchain": "poetry"}, "", ".cache/poetry/p-3.11"),
        ({}, "poetry.lock", ".cache/poetry/p-3.11"),
    ],
)
def test_the_environment_is_that_of_the_projects_toolchain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], lock: str, where: str
) -> None:
    script(tmp_path / "bin" / "poetry", f"echo {tmp_path}/.cache/poetry/p-3.11")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    if lock:
        write(tmp_path / lock, "")
    settings = {"runtime": {"name": "python", "options": options}, "main": "program"}
    fix = f"{where} does not exist. Make it: .*(venv|uv sync|poetry install)"
    with pytest.raises(RehearsalError, match=fix):
        language_host.project_python(tmp_path, settings)
    write(tmp_path / where / "bin" / "python", "")
    assert language_host.project_python(tmp_path, settings) == tmp_path / where / "bin" / "python"


def test_a_program_may_have_providers_of_other_versions(project: Project, own_tools: Tools) -> None:
    prod = Rehearsal.of("prod", project.folder)
    settings = "config:\n  greetings:name: n\n  greetings:greeting: {secure: AAAB}\n"
    write(project.folder / "Pulumi.prod.yaml", settings)
    installation.install(prod, own_tools)
    other = Project(project.folder, prod, environment.process_environment(prod))
    other.checked("stack", "init", "prod")
    other.checked("up", "--yes", "--stack", "prod")
    write(project.folder / "__main__.py", MANY_PROVIDERS)
    installation.install(project.rehearsal, own_tools)
    project.checked("up", "--yes", "--stack", "dev")
    outputs = project.outputs()
    secret = {"other": project_files.PLACEHOLDER}
    assert ({"said": "HELLO", "bucket": "gs://b"} | secret).items() <= outputs.items()
    assert len(str(outputs["password"])) == 12
    shown = project.checked("stack", "output", "--json")
    assert str(outputs["password"]) not in shown, "a password is shown"
    public, private = outputs["key"]
    assert public.startswith("ssh-ed25519 ")
    assert "PRIVATE KEY" in private
    assert "PRIVATE KEY" not in shown, "a private key is shown"
    assert project_files.PLACEHOLDER not in shown, "the secret of another stack is shown"
    assert "unchanged" in project.checked("up", "--yes", "--stack", "dev", "--expect-no-changes")


TIME = """
import pulumi
pulumi.CustomResource('time:index/static:Static', 't', {}, pulumi.ResourceOptions(version='0.1.0'))
"""


def test_a_provider_that_is_not_allowed_says_how_it_is(project: Project, own_tools: Tools) -> None:
    plugin = {"resource": True, "name": "time", "version": "0.1.0"}
    package = own_environment(project) / "pulumi_time"
    write(package / "pulumi-plugin.json", json.dumps(plugin))
    installation.install(project.rehearsal, own_tools)
    project.checked("up", "--yes")
    write(project.folder / "__main__.py", TIME)
    printed = failed(project.pulumi("up", "--yes"))
    assert "if you allow it: ml-foundations up --allow-provider time" in printed


def test_policy_pack(project: Project, tmp_path: Path) -> None:
    write(tmp_path / "pack" / "PulumiPolicy.yaml", "runtime: python\n")
    write(tmp_path / "pack" / "__main__.py", POLICY)
    arguments = ("up", "--yes", "--policy-pack", str(tmp_path / "pack"))
    assert "pack" in project.checked(*arguments)
    settings = str(project_files.stack_file(project.rehearsal))
    project.checked("config", "set", "name", "bad", "--config-file", settings)
    printed = failed(project.pulumi(*arguments))
    assert "this name is refused" in printed
    assert "Traceback" not in printed
    until(lambda: not processes_of(tmp_path))


def test_yaml_program_with_a_component_package_by_path(project: Project, tmp_path: Path) -> None:
    yaml_host = toolchain.build(groups.LANGUAGE_YAML) / "pulumi-language-yaml"
    plugin = project.rehearsal.pulumi_home / "plugins" / "language-yaml-v1.38.0"
    plugin.mkdir()
    (plugin / yaml_host.name).symlink_to(yaml_host)
    write(tmp_path / "component" / "PulumiPlugin.yaml", "runtime: python\n")
    write(tmp_path / "component" / "__main__.py", COMPONENT)
    write(project.folder / "Pulumi.yaml", YAML_PROJECT)
    (project.folder / "__main__.py").unlink()
    traps = tmp_path / "traps"
    sprung = plant_traps(
        traps, "pulumi-resource-greeter", "pulumi-language-yaml", "pulumi-language-python"
    )

    project.checked("up", "--yes", PATH=f"{traps}{os.pathsep}{project.environment['PATH']}")
    assert project.outputs() == {"greeting": "hello world"}
    assert not sprung.exists()
    names = {path.name for path in (tmp_path / "component").iterdir()} - {"__pycache__"}
    assert names == {"PulumiPlugin.yaml", "__main__.py"}
    until(lambda: not processes_of(tmp_path))


def test_yaml_program_with_functions_and_what_is_there_already(
    project: Project, own_tools: Tools
) -> None:
    write(project.folder / "Pulumi.yaml", YAML_FUNCTIONS)
    (project.folder / "__main__.py").unlink()
    installation.install(project.rehearsal, own_tools)
    printed = project.checked("up", "--yes")
    assert "warning" not in printed
    outputs = project.outputs()
    assert outputs["zone"] == "europe-west4-a"
    assert str(outputs["pet"]).startswith("my-")
    assert str(outputs["account"]).endswith("-compute@developer.gserviceaccount.com")


def test_the_automation_api_works_in_the_rehearsals_shell(project: Project) -> None:
    write(project.folder / "drive.py", AUTOMATION)
    done = subprocess.run(
        [sys.executable, "drive.py"],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["succeeded", "hello", "inline"]


def test_plugins_on_path_are_never_run(project: Project, tmp_path: Path) -> None:
    """Also not those of the providers that the installed SDKs ask for."""
    traps = tmp_path / "traps"
    hosts = ("language-python", "language-python-exec")
    others = ("resource-gcp", "resource-kubernetes", "analyzer-policy")
    sprung = plant_traps(traps, *(f"pulumi-{name}" for name in (*hosts, *others)))
    bucket = "import pulumi_gcp as gcp\n\ngcp.storage.Bucket('b', location='EU', project='p')\n"
    write(project.folder / "__main__.py", bucket)
    path = f"{traps}{os.pathsep}{project.environment['PATH']}"
    project.checked("up", "--yes", PATH=path)
    assert not sprung.exists()
    # The traps do work: an engine that is not closed off steps into one.
    project.pulumi("up", "--yes", PATH=path, PULUMI_IGNORE_AMBIENT_PLUGINS="")
    assert sprung.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_update_cut_short_leaves_no_process(
    project: Project, tmp_path: Path, number: signal.Signals
) -> None:
    started = tmp_path / "started"
    body = f"import pathlib, time\n\npathlib.Path({str(started)!r}).touch()\ntime.sleep(60)\n"
    write(project.folder / "__main__.py", body)
    update = subprocess.Popen(
        project.command("up", "--yes", "--skip-preview"),
        cwd=project.folder,
        env=project.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(started.exists)
        update.send_signal(number)
        assert update.wait(timeout=120) != 0
    finally:
        update.kill()
        update.wait()
    until(lambda: not processes_of(tmp_path))


def test_install_leaves_one_host(own_tools: Tools, tmp_path: Path) -> None:
    rehearsal = Rehearsal.of("dev", tmp_path / "a folder with 'quotes'")
    rehearsal.make()
    stale = rehearsal.pulumi_home / "plugins" / "language-python-v99.0.0"
    write(stale / "pulumi-language-python", "stale")
    for _ in range(2):
        installation.install_language_host(rehearsal, own_tools)
    (host,) = rehearsal.pulumi_home.glob("plugins/language-python-*/*")
    with subprocess.Popen(
        [host, "127.0.0.1:1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert int(process.stdout.readline()) > 0
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0
        assert process.stderr.read() == ""


def test_required_packages_are_those_of_the_installed_sdks() -> None:
    python = language_host.interpreter(lang.ProgramInfo(root_directory="/nowhere"))
    packages = language_host.required_packages(language_host._site_packages(python))
    found = {package.name: package for package in packages}
    assert {"gcp", "kubernetes"} <= found.keys()
    assert found["gcp"].version.startswith("v10.")
    assert found["gcp"].kind == "resource"


def test_a_component_host_starts_without_the_sdk() -> None:
    """Each command starts several of our processes: the import of the SDK would be most of what they do."""
    body = """
import sys, ml_foundations.rehearsal.engine.language_host as host, ml_foundations.rehearsal.plugins.kubernetes.provider
from ml_foundations.rehearsal.plugins.gcp import provider
assert "location" in provider.GCP["gcp:container/cluster:Cluster"].inputs
assert not {"pulumi", "rich"} & sys.modules.keys(), "what takes time is imported"
import pulumi, pulumi.runtime.proto.language_pb2 as stubs
assert stubs is host.lang and pulumi.ResourceOptions and pulumi.runtime.Settings
"""
    subprocess.run([sys.executable, "-c", body], check=True, cwd=CHECKOUT)
