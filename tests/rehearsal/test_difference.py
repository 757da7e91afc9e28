"""Two commits of a project compared, and a program looked at before any tool is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ml_foundations.rehearsal.engine.dry_run import dry_run
from ml_foundations.rehearsal.layout import Rehearsal

PROGRAM = """
import pulumi, pulumi_gcp as gcp, pulumi_kubernetes as k8s
config = pulumi.Config()
cluster = gcp.container.Cluster("c", name="c", location="us-central1-a", initial_node_count=1,
    node_config={"machine_type": "e2-standard-4"})
opts = pulumi.ResourceOptions(provider=k8s.Provider("p", kubeconfig=cluster.endpoint.apply(lambda found: f"at {found}")))
k8s.core.v1.PersistentVolumeClaim("data", metadata={"name": "data"}, spec={"access_modes": ["ReadWriteOnce"],
    "storage_class_name": config.require("class"), "resources": {"requests": {"storage": "10Gi"}}}, opts=opts)
k8s.apps.v1.Deployment("web", metadata={"name": "web"}, spec={"replicas": config.require_int("replicas"),
    "selector": {"match_labels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
    {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]}}}, opts=opts)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a repository" / "mine"
    folder.mkdir(parents=True)
    replicas = "{type: integer, default: 1}"
    settings = f"{{name: mine, runtime: python, config: {{replicas: {replicas}}}}}"
    (folder / "Pulumi.yaml").write_text(settings)
    git(folder.parent, "init", "-q")
    (folder / "__main__.py").write_text(PROGRAM)
    commit(folder, "mine:class: standard")
    return folder


def git(folder: Path, *args: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *author, *args], cwd=folder, check=True)


def commit(folder: Path, config: str = "") -> None:
    """Commit what has changed, with this configuration of the stack if one is given."""
    if config:
        (folder / "Pulumi.dev.yaml").write_text(f"config: {{{config}}}")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")


def diff(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    module = [sys.executable, "-m", "ml_foundations.rehearsal"]
    command = [*module, "diff", "HEAD~1", "HEAD", "--project", str(project), *args]
    # No tool is there, and none is built.
    none = {"XDG_CACHE_HOME": str(project.parent / "cache"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=os.environ | none, capture_output=True, text=True)


def test_the_programs_get_no_secret_of_the_user(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = project.parent.parent / "seen"
    line = f"\nopen({str(seen)!r}, 'a').write(repr(dict(os.environ)))\n"
    (project / "__main__.py").write_text(f"import os\n{PROGRAM}{line}")
    commit(project)
    commit(project, "mine:class: premium-rwo")
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:s3cr3t@db")
    monkeypatch.setenv("WANDB_API_KEY", "kept")
    monkeypatch.setenv("ML_FOUNDATIONS_KEEP", "WANDB_API_KEY")
    assert "PersistentVolumeClaim data" in diff(project).stdout
    assert "s3cr3t" not in seen.read_text() and seen.read_text().count("'kept'") == 2


def test_what_changes_from_one_commit_to_another(project: Path) -> None:
    commit(project, "mine:class: premium-rwo, mine:replicas: 9")
    done = diff(project)
    assert done.returncode == 1, done.stderr
    answer, *rest = done.stdout.splitlines()
    lost = "which loses data of PersistentVolumeClaim data: 1 of 1 workload fares worse."
    assert answer.endswith(lost)
    assert "Deployment default/web: fits, then cannot fit" in rest
    replaced = "is replaced, for spec.storageClassName, and loses its data."
    assert f"PersistentVolumeClaim data {replaced}" in rest
    assert not (project.parent / "cache").exists()
    command = ["git", "worktree", "list"]
    trees = subprocess.run(command, cwd=project, capture_output=True, text=True).stdout
    assert trees.count("\n") == 1


def test_workloads_that_pulumi_names_are_told_apart(project: Path) -> None:
    nameless = PROGRAM.replace('metadata={"name": "web"}, ', "")
    more = nameless.splitlines(keepends=True)[-3:]
    idle = "".join(more).replace('"web"', '"idle"').replace('config.require_int("replicas")', "1")
    (project / "__main__.py").write_text(nameless + idle)
    commit(project)
    commit(project, "mine:class: standard, mine:replicas: 9")
    lines = diff(project).stdout.splitlines()
    assert "Deployment default/web-xxxxxxxx: fits, then cannot fit" in lines


def test_a_program_that_fails_at_a_commit_is_named_with_it(project: Path) -> None:
    (project / "__main__.py").write_text("import pulumi\nraise pulumi.RunError('no such zone')")
    commit(project)
    done = diff(project)
    assert done.returncode == 2
    assert "at HEAD, the program fails: no such zone" in " ".join(done.stderr.split())


def test_what_fits_and_loses_data_is_no_all_clear(project: Path) -> None:
    commit(project, "mine:class: premium-rwo")
    done = diff(project, "--format", "markdown")
    assert done.returncode == 5, done.stderr
    answer = "to HEAD, which loses data of PersistentVolumeClaim data: no workload fares worse."
    assert f"{answer}**" in done.stdout


def test_a_stack_that_the_first_commit_lacks_is_new(project: Path) -> None:
    (project / "Pulumi.prod.yaml").write_text("config: {mine:class: standard}")
    commit(project)
    done = diff(project, "--stack", "prod")
    assert done.returncode == 0, done.stderr
    none = 'no stack "prod": there is no Pulumi.prod.yaml. Stacks: dev.'
    assert f"All is new: at HEAD~1, {none}" in done.stdout
    assert "Cost of the stack per hour in USD: 0.00, then 0.25." in done.stdout
    moved = project.with_name("moved")
    git(project, "mv", str(project), str(moved))
    commit(project.parent)
    assert f"All is new: at HEAD~1, {moved} is not a Pulumi project" in diff(moved).stdout


LOOK_UP = "import pulumi, pulumi_gcp as gcp\ngcp.compute.get_zones()\nraise pulumi.RunError('none')"


@pytest.mark.parametrize(
    ("program", "error", "is_certain"),
    [
        ("import pulumi\npulumi.Config().require('zone')", "zone", True),
        ("import no_such_module", "no_such_module", True),
        ("def (", "invalid syntax", True),
        ("raise ValueError('odd')", "odd", False),
        (LOOK_UP, "none", False),
    ],
)
def test_what_is_sure_to_fail_is_known_without_an_engine(
    project: Path, program: str, error: str, is_certain: bool
) -> None:
    (project / "__main__.py").write_text(program)
    found = dry_run(Rehearsal.of("dev", project))
    assert error in found.error
    assert found.is_certain is is_certain


KIND = "{kind: Gang, group: e.io, version: v1, pods: [{template: [spec.template]}]}"


def test_the_kinds_are_those_of_the_base(project: Path) -> None:
    (project / "kinds").mkdir()
    (project / "kinds" / "gang.yaml").write_text(KIND)
    proof = "from ml_foundations.proof import Proof\nwith Proof(kinds='kinds'):\n    pass\n"
    (project / "__main__.py").write_text(proof + PROGRAM)
    commit(project)
    assert "Judged with" not in diff(project).stdout  # the base has none
    (project / "kinds" / "other.yaml").write_text(KIND.replace("Gang", "Other"))
    commit(project)
    assert "Judged with HEAD~1:mine/kinds/gang.yaml." in diff(project).stdout
    (project / "kinds" / "gang.yaml").write_text("kind: !!bool foo")
    commit(project)
    (project / "note").write_text("")
    commit(project)
    done = diff(project, "--format", "markdown")
    assert done.returncode == 2
    assert "gang.yaml: cannot be read: the value is not a valid !!" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_program_is_refused_if_its_kinds_are_invalid(project: Path) -> None:
    program = "from ml_foundations.proof import Proof\nProof(kinds='kinds')\n"
    (project / "__main__.py").write_text(program)
    assert "kinds: " in dry_run(Rehearsal.of("dev", project)).error
    (project / "kinds").mkdir()
    (project / "kinds" / "gang.yaml").write_text(KIND)
    found = dry_run(Rehearsal.of("dev", project))
    assert (found.error, found.kinds) == ("", str(project / "kinds"))


RUN = """
import pulumi
from ml_foundations import DistributedTraining
DistributedTraining("llama", namespace="ml", image="i", command=["torchrun", "train.py"], gpus=8, gpu="H100", jobset=True,
    nodes=pulumi.Config().require_int("nodes"))
"""


def test_a_run_that_starts_again_is_in_the_answer(project: Path) -> None:
    (project / "Pulumi.yaml").write_text("{name: mine, runtime: python}")
    (project / "__main__.py").write_text(RUN)
    for nodes in "46":
        commit(project, f"mine:nodes: '{nodes}'")
    answer, *rest = diff(project).stdout.splitlines()
    again = "which deletes and starts again JobSet ml/llama: no workload fares worse."
    assert answer.endswith(again)
    (replaced,) = (line for line in rest if "is replaced" in line)
    assert replaced.startswith("JobSet llama-jobset is replaced, for spec.replicatedJobs[0]")
