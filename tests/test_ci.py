"""The workflows of docs/ci.md: they parse, and their steps run as far as they do without GitHub and GitLab."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.planning.verdict.markdown import MARK

from tests.factories import deployment, pool, template
from tests.support.checkout import CHECKOUT

PAGE = (CHECKOUT / "docs" / "ci.md").read_text()
ADDRESS = "git+https://git.example/ml-foundations@COMMIT"
"""The package that the workflows install."""
GITHUB, COMMENT, GITLAB = (
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout whose last commit asks for more replicas than its pool takes; its first commit is the target."""
    root = tmp_path / "repository"
    (root / "manifests").mkdir(parents=True)
    (root / "cluster.yaml").write_text(yaml.safe_dump(pool("p", 1)))
    (root / "kinds").mkdir()
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run([*git, "init", "-q", "-b", "main"], cwd=root, check=True)
    for replicas in (1, 9):
        (root / "manifests" / "web.yaml").write_text(
            yaml.safe_dump(deployment("web", replicas, template()))
        )
        subprocess.run([*git, "add", "."], cwd=root, check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"{replicas}"], cwd=root, check=True)
        if replicas == 1:
            # The head gives itself nodes, which must not count.
            (root / "cluster.yaml").write_text(yaml.safe_dump(pool("p", 9)))
            subprocess.run(
                [*git, "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=root, check=True
            )
    return root


def bash(script: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """As runners do: the first command that fails ends the script. pip, gh and curl only note how they are called."""
    tools = cwd.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("pip", "gh", "curl"):
        (tools / name).write_text(
            f'#!/bin/sh\necho "{name} $*" >> "{tools}/called"\ncase "$*" in *GET*) echo 7;; esac\n'
        )
        (tools / name).chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=cwd,
        env={**os.environ, "PATH": path, "ML_FOUNDATIONS": ADDRESS, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_steps_of_github_post_the_comment_and_fail(repository: Path, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = GITHUB["jobs"]["plan"]["steps"]
    assert GITHUB[True] == "pull_request"  # which is how YAML 1.1 reads the key "on"
    assert GITHUB["permissions"] == {"contents": "read"}
    assert COMMENT["permissions"] == {"actions": "read", "pull-requests": "write"}
    output, summary = tmp_path / "output", tmp_path / "summary"
    variables = {
        "GITHUB_BASE_REF": "main",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    variables |= {"GITHUB_REPOSITORY": "o/r", "HEAD": "fork:branch", "SHA": "5ha"}
    *scripts, last = [step["run"] for step in steps if "run" in step]
    for script in scripts:
        done = bash(script, repository, **variables)
        assert done.returncode == 0, done.stderr
    assert output.read_text() == "code=1\n"
    assert summary.read_text().startswith(f"{MARK}\n\n**❌ ")
    [post] = [step["run"] for step in COMMENT["jobs"]["comment"]["steps"] if "run" in step]
    done = bash(post, repository, **variables)
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "tools" / "called").read_text().splitlines()
    assert called[0] == f"pip install {ADDRESS}"
    assert called[1].startswith("gh api -X GET repos/o/r/pulls -f state=open -f head=fork:branch")
    assert called[2].startswith("gh api repos/o/r/issues/7/comments --paginate --jq .[] | select(")
    assert MARK in called[2]
    assert called[3] == "gh api repos/o/r/issues/7/comments -F body=@comment.md"
    assert bash(last.replace("${{ steps.plan.outputs.code }}", "1"), repository).returncode == 1


def test_the_script_of_gitlab_posts_the_comment_and_fails(repository: Path, tmp_path: Path) -> None:
    variables = {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "origin/main",
        "CI_API_V4_URL": "https://gitlab.example/api/v4",
    }
    variables |= {"CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7", "PLAN_TOKEN": "secret"}
    done = bash("\n".join(GITLAB["plan"]["script"]), repository, **variables)
    assert done.returncode == 1, done.stderr
    assert MARK in done.stdout
    called = (tmp_path / "tools" / "called").read_text().splitlines()
    assert called[1].endswith(
        "body@comment.md https://gitlab.example/api/v4/projects/3/merge_requests/7/notes"
    )


def test_the_comment_names_what_cannot_be_read(repository: Path, tmp_path: Path) -> None:
    (repository / "manifests" / "web.yaml").write_text("replicas: !!bool foo")
    step = next(step["run"] for step in GITHUB["jobs"]["plan"]["steps"] if step.get("id") == "plan")
    variables = {"GITHUB_BASE_REF": "main", "GITHUB_OUTPUT": str(tmp_path / "output")}
    variables["GITHUB_STEP_SUMMARY"] = str(tmp_path / "summary")
    assert bash(step, repository, **variables).returncode == 0
    assert (tmp_path / "output").read_text() == "code=2\n"
    assert (
        "manifests/web.yaml: the value is not a valid !!" in (repository / "comment.md").read_text()
    )
