"""What a rehearsal puts in place: the plugins that the engine finds."""

import dataclasses
import importlib.metadata
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.rehearsal import access
from ml_foundations.rehearsal.engine import environment, installation, project_files
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import CHECKOUT


@pytest.fixture
def rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
    return Rehearsal.of("dev", tmp_path / "project")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder of Pulumi."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "own"))
    return tmp_path / "own"


def plant(home: Path, version: str, name: str = "kubernetes") -> Path:
    folder = home / "plugins" / f"resource-{name}-{version}"
    folder.mkdir(parents=True)
    (folder / "version").write_text(version)
    (folder / f"pulumi-resource-{name}").touch(mode=0o700)
    return folder


def plugin(rehearsal: Rehearsal, name: str = "kubernetes") -> Path:
    return rehearsal.pulumi_home / "plugins" / f"resource-{name}-v9999.0.0"


def version(rehearsal: Rehearsal, name: str = "kubernetes") -> str:
    """The version of the user's plugin that is installed."""
    return (plugin(rehearsal, name) / "version").read_text()


def test_the_official_plugin_is_the_newest_of_the_users_own(
    rehearsal: Rehearsal, tools: Tools, own: Path
) -> None:
    plant(own, "v4.9.0")
    plant(own, "v4.30.0")
    installation.install(rehearsal, tools, official_kubernetes=True)
    assert version(rehearsal) == "v4.30.0"
    gate = (plugin(rehearsal) / "pulumi-resource-kubernetes").read_text()
    assert f"kubernetes.gate {plugin(rehearsal) / 'official'}" in gate


def test_up_names_the_users_plugin_of_the_version_that_the_program_asks_for(
    rehearsal: Rehearsal, tools: Tools, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = f"v{importlib.metadata.version('pulumi-kubernetes')}"
    plant(own, "v4.9.0")
    installation.install(rehearsal, tools)
    assert capsys.readouterr().err == ""
    plant(own, asked)
    plant(own, "v99.0.0")
    installation.install(rehearsal, tools)
    shown = capsys.readouterr().err
    assert f"resource-kubernetes-{asked}" in shown and "--official-kubernetes-plugin" in shown
    installation.install(rehearsal, tools, official_kubernetes=True)
    assert version(rehearsal) == asked


def test_an_allowed_provider_runs_with_the_users_plugin(
    rehearsal: Rehearsal, tools: Tools, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RehearsalError, match="Install it: pulumi plugin install resource time"):
        installation.install(rehearsal, tools, allowed=["time"])
    for name, planted in (("time", "v0.1.0"), ("time", "v0.0.9"), ("time-other", "v9.0.0")):
        plant(own, planted, name)
    installation.install(rehearsal, tools, allowed=["time"])
    assert version(rehearsal, "time") == "v0.1.0"
    warning = "using your plugin resource-time-v0.1.0, which reaches nothing"
    assert warning in capsys.readouterr().err
    installation.install(rehearsal, tools)
    assert not list(rehearsal.pulumi_home.glob("plugins/resource-time-*")), "it was allowed once"


def test_plugins_that_the_project_names_are_not_run(rehearsal: Rehearsal, tools: Tools) -> None:
    plugins = {"providers": [{"name": "gcp", "path": "bin"}]}
    (rehearsal.project / "Pulumi.yaml").write_text(
        yaml.safe_dump({"name": "t", "runtime": "python", "plugins": plugins})
    )
    with pytest.raises(RehearsalError, match="names its own plugins for gcp"):
        installation.install(rehearsal, tools)


@pytest.mark.parametrize("runtime", ["nodejs", "go", "dotnet", "java"])
def test_a_language_that_the_built_cli_does_not_run_is_named(
    runtime: str, rehearsal: Rehearsal, tools: Tools
) -> None:
    project = {"name": "t", "runtime": runtime}
    (rehearsal.project / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    built = dataclasses.replace(tools, pulumi_is_official=False)
    with pytest.raises(RehearsalError, match=f"the runtime is {runtime}.*Install Pulumi's own CLI"):
        installation.install(rehearsal, built)
    installation.install(rehearsal, dataclasses.replace(tools, pulumi_is_official=True))


def test_the_rehearsals_shell_keeps_the_users_official_plugin(
    rehearsal: Rehearsal, tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.install(rehearsal, tools)
    monkeypatch.setenv("PULUMI_HOME", str(rehearsal.pulumi_home))
    none = r"no plugin of the provider kubernetes in .*home/\.pulumi"
    with pytest.raises(RehearsalError, match=none):
        installation.install(rehearsal, tools, official_kubernetes=True)
    assert (plugin(rehearsal) / "pulumi-resource-kubernetes").exists(), "what was there is gone"
    plant(tmp_path / "home" / ".pulumi", "v4.30.0")
    installation.install(rehearsal, tools, official_kubernetes=True)
    assert version(rehearsal) == "v4.30.0"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "x" * 101])
def test_a_name_that_is_no_stacks_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RehearsalError, match="no stack can be named"):
        Rehearsal.of(name, tmp_path)
    assert Rehearsal.of("a.b_c-1", tmp_path).root == tmp_path / ".rehearsal" / "a.b_c-1"


@pytest.mark.parametrize("character", [*',:"\n\r\t\x01\x1b\x7f\x85\x9b', "\udcff"])
def test_a_path_that_tools_cannot_read_is_refused(character: str, tmp_path: Path) -> None:
    folder = tmp_path / f"a{character}b"
    with pytest.raises(RehearsalError) as error:
        Rehearsal.of("dev", folder)
    assert str(error.value) == (
        f"{str(folder)!r} has the character {character!r}, which tools cannot read in a path. "
        "Rename or move the folder"
    )
    assert str(error.value).isprintable()


@pytest.mark.parametrize("character", "\\'$`#?%*[]{}~!=@;&|() é日\u2028")
def test_other_characters_are_allowed_in_a_path(character: str, tmp_path: Path) -> None:
    folder = tmp_path / f"a{character}b"
    assert Rehearsal.of("dev", folder).project == folder


def stack_file(rehearsal: Rehearsal, text: str | bytes) -> Path:
    """Write the stack file of the project, with the time of an older one."""
    path = rehearsal.project / "Pulumi.dev.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (0, 0))
    rehearsal.make()
    return path


def rehearsed(rehearsal: Rehearsal) -> Any:
    project_files.refresh_stack_file(rehearsal)
    return yaml.safe_load(project_files.stack_file(rehearsal).read_text())


def test_a_stack_file_is_copied_again_and_keeps_its_salt(rehearsal: Rehearsal) -> None:
    stack_file(rehearsal, "config: {t:insecure: true}")
    assert rehearsed(rehearsal) == {"config": {"t:insecure": True}}
    more = "config: {t:insecure: true, t:more: 1}\nencryptionsalt: s\n"
    project_files.stack_file(rehearsal).write_text(more)
    assert rehearsed(rehearsal)["config"]["t:more"] == 1, "what `pulumi config set` said"
    stack_file(rehearsal, "config: {t:insecure: false}")
    assert rehearsed(rehearsal) == {"config": {"t:insecure": False}, "encryptionsalt": "s"}


def test_settings_are_in_the_project_secrets_in_the_rehearsal(
    rehearsal: Rehearsal, tools: Tools, tmp_path: Path
) -> None:
    path = stack_file(rehearsal, "config: {}")
    (tmp_path / "cli").write_text('#!/bin/sh\nprintf %s "$PULUMI_OPTION_CONFIG_FILE"')
    (tmp_path / "cli").chmod(0o700)
    installation.install(rehearsal, dataclasses.replace(tools, pulumi=tmp_path / "cli"))
    # A secret is removed too, which is in the rehearsal's copy.
    for words, edited in {
        "config set a b -s dev": f"{path}",
        "config -s dev set a b": f"{path}",
        "config set-all --plaintext a=b": f"{path}",
        "config rm a": f"the copy{path}",
        "config --stack dev rm a": f"the copy{path}",
        "config set --secret a b": "the copy",
        "config": "the copy",
        "config get a": "the copy",
        "preview -m config": "the copy",
        "config -s settled": "the copy",
    }.items():
        command = [rehearsal.bin_dir / "pulumi", *words.split()]
        given = os.environ | {"PULUMI_OPTION_CONFIG_FILE": "the copy"}
        assert subprocess.check_output(command, env=given, text=True) == edited, words


def test_encrypted_values_have_a_placeholder_and_are_named(
    rehearsal: Rehearsal, capsys: pytest.CaptureFixture[str]
) -> None:
    config = "t:deep: {list: [{secure: AAAB}, plain]}, t:key: {secure: AAAC}, t:open: {a: 1}"
    stack_file(rehearsal, f"config: {{{config}}}")
    deep = {"list": [project_files.PLACEHOLDER, "plain"]}
    expected = {"t:deep": deep, "t:key": project_files.PLACEHOLDER, "t:open": {"a": 1}}
    assert rehearsed(rehearsal) == {"config": expected}
    said = " ".join(capsys.readouterr().err.split())
    assert "holds encrypted values, and a rehearsal has no key to them" in said
    assert 'the program gets "rehearsed"' in said
    assert "for t:deep, t:key" in said


def test_a_secret_of_the_rehearsal_survives_an_edit(rehearsal: Rehearsal) -> None:
    stack_file(rehearsal, "config: {t:key: {secure: AAAB}}")
    rehearsed(rehearsal)
    secrets = {"t:key": {"secure": "v1:x"}, "t:more": {"secure": "v1:y"}}
    mine = {"config": secrets, "encryptionsalt": "s"}
    project_files.stack_file(rehearsal).write_text(yaml.safe_dump(mine))
    stack_file(rehearsal, "config: {t:key: {secure: AAAB}, t:open: 1}")
    assert rehearsed(rehearsal) == mine | {"config": secrets | {"t:open": 1}}


def test_a_plain_value_replaces_a_secret_of_the_rehearsal(rehearsal: Rehearsal) -> None:
    stack_file(rehearsal, "config: {t:open: 1}")
    rehearsed(rehearsal)
    secrets = "config: {t:key: {secure: v1:x}, t:open: {secure: v1:y}}"
    project_files.stack_file(rehearsal).write_text(secrets)
    stack_file(rehearsal, "config: {t:open: 1, t:key: plain}")
    assert rehearsed(rehearsal) == {"config": {"t:open": {"secure": "v1:y"}, "t:key": "plain"}}


def test_the_folder_of_rehearsals_ignores_itself(rehearsal: Rehearsal) -> None:
    rehearsal.make()
    assert (rehearsal.project / ".rehearsal" / ".gitignore").read_text() == "*\n"


def test_files_of_a_moment_lie_in_the_rehearsals_folder(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal.make()
    monkeypatch.setenv("ML_FOUNDATIONS_REHEARSAL", str(rehearsal.root))
    with access.private_file("key") as path:
        assert path.parent == rehearsal.root


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("environment: [shared]", "Pulumi.dev.yaml imports environments"),
        ("config: {a: [}", "Pulumi.dev.yaml cannot be read"),
        ("config: {}".encode("utf-16"), "Pulumi.dev.yaml cannot be read"),
        ("- a", "Pulumi.dev.yaml is not a mapping"),
        (
            "config:\n  t:teams:\n    a: {}\n    a: {b: c}",
            '"a" is already on line 3, at line 4, column 5$',
        ),
    ],
)
def test_a_stack_file_that_cannot_be_rehearsed_is_an_error(
    rehearsal: Rehearsal, text: str | bytes, said: str
) -> None:
    stack_file(rehearsal, text)
    with pytest.raises(RehearsalError, match=said):
        project_files.refresh_stack_file(rehearsal)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "has no name and no runtime"), ("name: [", "cannot be read"), ("name: t", "no runtime")],
)
def test_a_project_that_is_none_is_an_error(rehearsal: Rehearsal, text: str, said: str) -> None:
    (rehearsal.project / "Pulumi.yaml").write_text(text)
    with pytest.raises(RehearsalError, match=said):
        project_files.project_settings(rehearsal.project)


def test_a_shell_without_a_replica_reaches_no_cluster() -> None:
    script = f'{environment.dead_shell()}\necho "$KUBECONFIG $PULUMI_BACKEND_URL"'
    given = os.environ | {"KUBECONFIG": "/real"}
    said = subprocess.run(["bash", "-c", script], env=given, capture_output=True, text=True)
    assert said.stdout.split()[:2] == ["/dev/null", "file:///dev/null"]
    assert "there is no replica" in said.stderr


@pytest.mark.parametrize("name", ["stack", "project", "nodes"])
def test_make_refuses_a_variable_in_lower_case(name: str) -> None:
    command = ["make", "-n", "up", f"{name}=prod"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"make knows no {name}=: write it in capitals" in done.stderr


def test_a_half_removed_rehearsal_gets_a_new_passphrase(rehearsal: Rehearsal, tools: Tools) -> None:
    stack_file(rehearsal, "config: {t:a: b}")
    installation.install(rehearsal, tools)
    copy = project_files.stack_file(rehearsal)
    copy.write_text("config: {t:a: b}\nencryptionsalt: old\n")
    (rehearsal.root / "passphrase").unlink()
    installation.install(rehearsal, tools)
    assert yaml.safe_load(copy.read_text()) == {"config": {"t:a": "b"}}


def test_no_credentials_of_the_users_are_found(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal.make()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/a/key.json")
    monkeypatch.setenv("PULUMI_K8S_ENABLE_PATCH_FORCE", "true")
    given = environment.process_environment(rehearsal)
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in given
    assert given["PULUMI_K8S_ENABLE_PATCH_FORCE"] == "true"
    for name in ("CLOUDSDK_CONFIG", "AWS_CONFIG_FILE", "AZURE_CONFIG_DIR"):
        assert given[name] == os.devnull
    exports = environment.shell_exports(rehearsal)
    assert f"export CLOUDSDK_CONFIG={os.devnull}" in exports
    assert "export PULUMI_STACK=dev" in exports, "config set needs no -s"


SECRETS = (
    *("GITHUB_TOKEN", "GH_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "CI_JOB_TOKEN", "TOKEN"),
    *("ACTIONS_ID_TOKEN_REQUEST_URL", "HF_TOKEN_PATH", "TOKEN_2", "hf_token", "GITHUBTOKEN"),
    *("OPENAI_API_KEY", "WANDB_API_KEY", "ANTHROPIC_APIKEY", "API_KEYS", "DD_APP_KEY", "API_KEY_1"),
    *("SSH_PRIVATE_KEY", "MINIO_ACCESS_KEY", "DEPLOY_KEY", "KEY", "SECRETKEY", "ACCESSKEY"),
    *("MY_SECRET", "SECRET", "CLIENT_SECRETS_FILE", "SLACK_SECRET1", "DJANGO_SECRET_VALUE"),
    *("DB_PASSWORD", "PGPASSWORD", "PASSWORDS", "DB_PASSWD", "DB_PASS", "SSHPASS", "MYSQL_PWD"),
    *("GPG_PASSPHRASE", "SNOWFLAKE_CREDENTIALS", "GIT_CREDENTIAL", "GH_PAT", "PAT_GITLAB"),
    *("CI_JOB_JWT", "CI_JOB_JWT_V2", "NPM_AUTH", "DOCKER_AUTH_CONFIG"),
)
"""Names of variables with a secret, as tools, clouds and CI systems have them."""
PASSED = (
    *("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "MONKEY", "PWD_AT_START", "COMPASS"),
    *("SSH_AUTH_SOCK", "XAUTHORITY", "AUTHOR", "PATTERN", "BYPASS", "PASSES", "MODEL", "KEYCLOAK"),
    *("OLDPWD", "PWD", "HOME", "LANG", "HTTPS_PROXY", "PULUMI_K8S_ENABLE_PATCH_FORCE"),
)
ADDRESSES = (
    "postgres://me:s3cr3t@db.example.com/x",
    "https://s3cr3t@github.com/a/b",
    "http://me:s3cr3t@mirror.example.com",
    "redis://:s3cr3t@cache.example.com",
    "see amqp://me:s3cr3t@queue.example.com, and more",
)


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a user with secrets. No message or file may have the text s3cr3t."""
    for name in os.environ:
        monkeypatch.delenv(name) if "ML_FOUNDATIONS" in name else None
    for name in (*SECRETS, *(f"{word}_TOKEN" for word in ("AWS", "PULUMI_ACCESS", "CLOUDSDK"))):
        monkeypatch.setenv(name, "s3cr3t")
    for number, address in enumerate(ADDRESSES):
        monkeypatch.setenv(f"DATABASE_{number}", address)
    for name in PASSED:
        monkeypatch.setenv(name, os.environ.get(name, "plain"))
    monkeypatch.setenv("PLAIN_URL", "https://example.com:80/a@b")
    monkeypatch.setenv("GOPROXY", "https://me:passed@proxy.example.com")
    return dict(os.environ)


def test_a_rehearsal_gets_no_secret_of_the_user(
    rehearsal: Rehearsal, users: dict[str, str]
) -> None:
    rehearsal.make()
    for given in (environment.process_environment(rehearsal), environment.without_credentials()):
        assert {name for name, value in given.items() if "s3cr3t" in value} == set()
        passed = {"GOPROXY", "PLAIN_URL", *PASSED}
        assert {name: given[name] for name in passed} == {name: users[name] for name in passed}


@pytest.mark.parametrize("is_dead", [False, True])
def test_the_shell_of_a_rehearsal_has_no_secret_of_the_user(
    rehearsal: Rehearsal, users: dict[str, str], is_dead: bool
) -> None:
    rehearsal.make()
    lines = environment.dead_shell() if is_dead else environment.shell_exports(rehearsal)
    assert "s3cr3t" not in lines
    done = subprocess.run(
        ["bash", "-c", f"{lines}\nenv"], capture_output=True, text=True, check=True, env=users
    )
    assert "s3cr3t" not in done.stdout and f"LANG={users['LANG']}" in done.stdout
    assert f"GOPROXY={users['GOPROXY']}" in done.stdout


def test_a_variable_whose_name_is_a_command_runs_nothing(
    rehearsal: Rehearsal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal.make()
    for name in ("X;touch ran;_TOKEN", "AWS_`touch ran`", "x\ntouch ran\n_TOKEN"):
        monkeypatch.setenv(name, "s3cr3t")
    lines = environment.shell_exports(rehearsal)
    subprocess.run(["bash", "-c", lines], check=True, cwd=tmp_path)
    assert not (tmp_path / "ran").exists()


def test_variables_that_the_user_names_are_kept_but_those_of_clouds_never(
    users: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_FOUNDATIONS_KEEP", "HF_TOKEN,DATABASE_0,AWS_TOKEN,NOT_SET")
    given = environment.without_credentials()
    kept = {name: value for name, value in given.items() if "s3cr3t" in value}
    assert kept == {name: users[name] for name in ("HF_TOKEN", "DATABASE_0")}


def test_no_proxy_leads_to_the_replica(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert environment.process_environment(rehearsal)["no_proxy"] == "127.0.0.1,localhost,::1"
    monkeypatch.setenv("NO_PROXY", "intern")
    found = environment.process_environment(rehearsal)
    assert found["no_proxy"] == found["NO_PROXY"] == "intern,127.0.0.1,localhost,::1"


def test_the_backends_address_is_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "50% é"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
    given = environment.process_environment(Rehearsal.of("dev", folder))
    assert "/50%25%20%C3%A9/" in given["PULUMI_BACKEND_URL"]


def test_the_users_own_pulumi_settings_are_not_the_rehearsals(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BACKEND_URL", "STACK", "ACCESS_TOKEN", "CONFIG_PASSPHRASE", "HOME", "PARALLEL"):
        monkeypatch.setenv(f"PULUMI_{name}", "the user's")
    assert "the user's" not in environment.process_environment(rehearsal).values()
