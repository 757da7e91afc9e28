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
    (root / "kinds").mkdir()

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True)

    git("init", "-q", "-b", "main")
    # The head gives itself nodes, which must not count.
    for replicas, nodes in ((1, 1), (9, 9)):
        web = deployment("web", replicas, template())
        (root / "cluster.yaml").write_text(yaml.safe_dump(pool("p", nodes)))
        (root / "manifests" / "web.yaml").write_text(yaml.safe_dump(web))
        git("add", ".")
        git("commit", "-q", "-m", f"{replicas}")
    git("update-ref", "refs/remotes/origin/main", "HEAD~1")
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


def of_github(folder: Path) -> dict[str, str]:
    """The variables that GitHub sets, and its files in a folder."""
    files = {"GITHUB_OUTPUT": folder / "output", "GITHUB_STEP_SUMMARY": folder / "summary"}
    return {"GITHUB_BASE_REF": "main"} | {name: str(path) for name, path in files.items()}


def test_the_steps_of_github_post_the_comment_and_fail(repository: Path, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = GITHUB["jobs"]["plan"]["steps"]
    assert GITHUB[True] == "pull_request"  # which is how YAML 1.1 reads the key "on"
    assert GITHUB["permissions"] == {"contents": "read"}
    assert COMMENT["permissions"] == {"actions": "read", "pull-requests": "write"}
    variables = of_github(tmp_path)
    variables |= {"GITHUB_REPOSITORY": "o/r", "HEAD": "fork:branch", "SHA": "5ha"}
    *scripts, last = [step["run"] for step in steps if "run" in step]
    [post] = [step["run"] for step in COMMENT["jobs"]["comment"]["steps"] if "run" in step]
    for script in [*scripts, post]:
        done = bash(script, repository, **variables)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "output").read_text() == "code=1\n"
    assert (tmp_path / "summary").read_text().startswith(f"{MARK}\n\n**❌ ")
    called = (tmp_path / "tools" / "called").read_text().splitlines()
    assert called[0] == f"pip install {ADDRESS}"
    assert called[1].startswith("gh api -X GET repos/o/r/pulls -f state=open -f head=fork:branch")
    assert called[2].startswith("gh api repos/o/r/issues/7/comments --paginate --jq .[] | select(")
    assert MARK in called[2]
    assert called[3] == "gh api repos/o/r/issues/7/comments -F body=@comment.md"
    assert bash(last.replace("${{ steps.plan.outputs.code }}", "1"), repository).returncode == 1


def test_the_script_of_gitlab_posts_the_comment_and_fails(repository: Path, tmp_path: Path) -> None:
    api = "https://gitlab.example/api/v4"
    variables = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "origin/main", "CI_API_V4_URL": api}
    variables |= {"CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7", "PLAN_TOKEN": "secret"}
    done = bash("\n".join(GITLAB["plan"]["script"]), repository, **variables)
    assert done.returncode == 1, done.stderr
    assert MARK in done.stdout
    called = (tmp_path / "tools" / "called").read_text().splitlines()
    assert called[1].endswith(f"body@comment.md {api}/projects/3/merge_requests/7/notes")


def test_the_comment_names_what_cannot_be_read(repository: Path, tmp_path: Path) -> None:
    (repository / "manifests" / "web.yaml").write_text("replicas: !!bool foo")
    step = next(step["run"] for step in GITHUB["jobs"]["plan"]["steps"] if step.get("id") == "plan")
    assert bash(step, repository, **of_github(tmp_path)).returncode == 0
    assert (tmp_path / "output").read_text() == "code=2\n"
    comment = (repository / "comment.md").read_text()
    assert "manifests/web.yaml: the value is not a valid !!" in comment
