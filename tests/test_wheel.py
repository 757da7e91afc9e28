"""The wheel, installed into an environment of its own: a typed package that works outside of the checkout."""

import json
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT, Checkout

PROGRAM = """\
import pulumi, ml_foundations
from ml_foundations import TeamNamespace
team = TeamNamespace("research", {"gpus": 8, "cpu": "96", "memory": "512Gi", "storage": "4Ti"})
pulumi.export("namespace", team.namespace)
pulumi.export("package", ml_foundations.__file__)
"""
FITS = """\
apiVersion: v1
kind: Node
metadata: {name: node}
status: {allocatable: {cpu: "4", memory: 16Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "1", memory: 1Gi}}}]}
"""


@pytest.fixture(scope="module")
def wheel(copy_checkout: Callable[[], Checkout], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    built = subprocess.run(
        command, cwd=copy_checkout().root, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, and with the dependencies that are installed here."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True)
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # The editable install of the checkout is a .pth file, and Python reads none of a folder that one names.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_the_wheel_has_the_package_its_types_and_its_data_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {
        "ml_foundations"
    }
    source = CHECKOUT / "components" / "ml_foundations"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "."], cwd=source, capture_output=True, text=True, check=True
    )
    files = {name for name in listed.stdout.split("\0") if name and (source / name).is_file()}
    assert {"py.typed", "catalog/machine_types.csv", "rehearsal/cli.py"} <= files
    assert {f"ml_foundations/{name}" for name in files} <= set(names)


def test_the_version_has_one_home(python: Path) -> None:
    said = run(
        python,
        "import ml_foundations, importlib.metadata as m; print(ml_foundations.__version__, m.version('ml-foundations'))",
    )
    versions = set(said.split())
    assert len(versions) == 1
    assert f"## {versions.pop()}" in (CHECKOUT / "CHANGELOG.md").read_text().replace(
        "[", ""
    ).replace("]", "")


def test_it_is_the_wheel_that_is_imported(python: Path) -> None:
    assert "fresh" in run(python, "import ml_foundations; print(ml_foundations.__file__)")


def test_a_short_program_is_rehearsed_without_a_checkout(python: Path, tmp_path: Path) -> None:
    project = {
        "name": "five",
        "runtime": {"name": "python", "options": {"virtualenv": str(python.parent.parent)}},
    }
    (tmp_path / "Pulumi.yaml").write_text(json.dumps(project))
    (tmp_path / "__main__.py").write_text(PROGRAM)
    try:
        result = command(python, "up", cwd=tmp_path)
        assert result.returncode == 0, result.stdout + result.stderr
        assert 'namespace: "research"' in result.stdout
        assert f'package  : "{python.parent.parent}' in result.stdout
        assert f"Remove it: {python.parent}/ml-foundations down\n" in result.stdout
    finally:
        assert command(python, "down", cwd=tmp_path).returncode == 0


def test_without_the_extra_it_plans_and_names_the_extra(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True)
    site = run(python, "import sysconfig; print(sysconfig.get_path('purelib'))")
    for name in (
        "yaml",
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions.py",
        "typing_inspection",
    ):
        (Path(site) / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    (tmp_path / "fits.yaml").write_text(FITS)
    planned = command(python, "plan", "fits.yaml", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    refused = command(python, "status", cwd=tmp_path)
    assert refused.returncode == 1
    assert "needs the package" in refused.stderr
    assert "pip install '.[rehearsal]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def command(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [python.parent / "ml-foundations", *arguments]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False)


def run(python: Path, code: str) -> str:
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_release_has_its_bill_of_materials_and_its_notes(
    copy_checkout: Callable[[], Checkout],
) -> None:
    """Of ``make release``, what needs no registry, with the pins of the component package."""
    root = copy_checkout().root
    recipe = subprocess.run(
        ["make", "-n", "release"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    lines = (
        recipe[recipe.index("rm -rf dist") : recipe.index('"$MAKE_PYTHON" -m venv dist/.try')]
        .replace("\\\n", " ")
        .splitlines()
    )
    offline = [
        "cp components/requirements.txt dist" if "pip compile" in line else line for line in lines
    ]
    done = subprocess.run(
        ["bash", "-ec", "\n".join(offline)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads((root / "dist" / "sbom.cdx.json").read_text())["components"]
    pins = {f"{each['name']}=={each['version']}" for each in listed}
    wanted = {
        line.split()[0]
        for line in (root / "dist" / "requirements.txt").read_text().splitlines()
        if "==" in line
    }
    assert wanted and pins == wanted
    notes = (root / "dist" / "notes.md").read_text()
    assert (
        notes.startswith("## ")
        and notes in (root / "CHANGELOG.md").read_text()
        and "\n## " not in notes
    )
    assert {".json", ".whl", ".gz"} <= {path.suffix for path in (root / "dist").iterdir()}
