"""The tools of a rehearsal, built once from pinned Go modules and kept in the user's cache.

A group of tools is built into a folder of its own whose name holds a hash of all that decides the result, so that a
finished folder is never written again, and an unfinished one never used.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ml_foundations.rehearsal.files import (
    draft_of,
    locked,
    require_free_space,
    stamp,
    write,
    write_json,
)
from ml_foundations.rehearsal.layout import cache_dir
from ml_foundations.rehearsal.progress import RehearsalError, Step, console
from ml_foundations.rehearsal.tools import go_command
from ml_foundations.rehearsal.tools.groups import HELM, KUBERNETES, PULUMI, Group

_FREE_BYTES = 5 * 1024**3
"""Room that a build takes at most: Go's module and build caches, and the binaries."""
_MAJOR = re.compile(r"/v\d+$")
"""The end of a package's path that is no part of its binary's name."""


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
    (kubernetes, stages), (helm, _) = map(_tools, (KUBERNETES, HELM))
    official = official_pulumi(PULUMI.pinned(PULUMI.version_of))
    return Tools(
        **{name.replace("-", "_"): path for name, path in (kubernetes | helm).items()},
        pulumi=official or build(PULUMI) / "pulumi",
        pulumi_is_official=official is not None,
        kwok_stages=stages / "kwok-stages",
    )


def official_pulumi(minimum: str) -> Path | None:
    """The ``pulumi`` on PATH, if it is Pulumi's own release, with its language hosts, and new enough."""
    for found in _on_path("pulumi"):
        has_hosts = shutil.which(found.resolve().parent / "pulumi-language-python")
        if has_hosts and go_command.version(
            go_command.printed(found, "version")
        ) >= go_command.version(minimum):
            return found
    return None


def parts(group: Group) -> tuple[Group, dict[str, Path]]:
    """What of a group is built, and the tools on PATH that are used as they are; none where all is built already."""
    yours = {} if is_built(group) else _pinned_on_path(group)
    return replace(group, left_out=frozenset(yours)), yours


def _tools(group: Group) -> tuple[dict[str, Path], Path]:
    """The tools of a group, and the folder of what is built."""
    rest, yours = parts(group)
    folder = build(rest)
    return yours | {name: folder / name for name in rest.built}, folder


def _pinned_on_path(group: Group) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, (module, *arguments) in group.version_by.items():
        version = re.escape(group.pinned(module).removeprefix("v"))
        pinned = re.compile(rf"(?<![\w.])v?{version}(?![\w.-])")
        for path in _on_path(name):
            if pinned.search(go_command.printed(path, *arguments)):
                found.setdefault(name, path)
    return found


def _on_path(name: str) -> Iterator[Path]:
    """The executables of a name on PATH, but for those of a rehearsal."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = Path(folder) / name
        if (
            found.is_absolute()
            and ".rehearsal" not in found.resolve().parts
            and shutil.which(found)
        ):
            yield found


def build(group: Group) -> Path:
    """The folder with a group's verified binaries, built first if it is missing or damaged.

    Raises:
        RehearsalError: the build failed, the disk is full, or a registry cannot be reached.
    """
    target = folder_of(group)
    if is_built(group):
        return target
    try:
        with locked(target.parent, group.name, f"{group.name} is being built by another command"):
            if not _verified(target):
                _build(group, target)
    except OSError as error:
        raise RehearsalError(_explain(group, str(error))) from error
    return target


def folder_of(group: Group) -> Path:
    """Where a group is, or will be once it is built."""
    return cache_dir() / "tools" / f"{group.name}-{group.key()}"


def to_build() -> list[Group]:
    """The groups that every rehearsal needs and that are still to be built."""
    own = [] if official_pulumi(PULUMI.pinned(PULUMI.version_of)) else [PULUMI]
    return [group for group in (KUBERNETES, HELM, *own) if not is_built(parts(group)[0])]


def is_built(group: Group) -> bool:
    """Whether a group is there, whole."""
    return not (group.built or group.copies) or _verified(folder_of(group))


@dataclass(frozen=True)
class _Go:
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
                # A go that is killed leaves its work behind: there, the next build removes it.
                env=go_command.environment(GOBIN=str(self.draft), GOTMPDIR=str(self.draft)),
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
        console().print(f"[yellow]![/] {target.name} is damaged and is built again")
    executable = go_command.find()
    _require_free_space(executable, target.parent)
    with (
        draft_of(target) as draft,
        Step(f"building {group.name} (once, up to {group.minutes:g} min on 2 cores)") as progress,
    ):
        _install(_Go(executable, group, draft, progress))
        _write_manifest(draft)


def _install(go: _Go) -> None:
    """Leave the group's binaries, under their own names, and its data files in the draft."""
    go.progress.detail("fetching modules")
    left_out = {go.group.binaries[name] for name in go.group.left_out}
    wanted = [
        tool
        for tool in go.run("list", "tool").split()
        if _MAJOR.sub("", tool).split("/")[-1] not in left_out
    ]
    if go.group.built:
        packages = frozenset(go.run("list", "-deps", *wanted).split())
        # The linker strips debug information: not to generate it is a tenth of the work.
        flags = ["-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", go.group.linker_flags]
        go.run("install", "-v", *flags, *wanted, packages=packages)
    for name, built in go.group.built.items():
        (go.draft / built).replace(go.draft / name)
    for folder, (module, source) in go.group.copies.items():
        go.run("mod", "download", module)
        listed = go.run("list", "-m", "-f", "{{.Dir}}", module).strip()
        shutil.copytree(Path(listed) / source, go.draft / folder, copy_function=shutil.copyfile)


def _explain(group: Group, output: str) -> str:
    """Why a build failed and what to do about it, then the end of its output."""
    reason = next(
        each["reason"] for each in go_command.FAILURES if re.search(each["said"], output, re.I)
    )
    return f"building {group.name}: {reason.format(room=_FREE_BYTES // 1024**3)}\n{output.strip()[-3000:]}"


def _require_free_space(executable: Path, folder: Path) -> None:
    caches = go_command.printed(executable, "env", "GOCACHE", "GOMODCACHE").splitlines()
    way_out = "Free some, or set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to folders on a larger disk"
    for wanted in (folder, *map(Path, filter(None, caches))):
        require_free_space(wanted, _FREE_BYTES, f"to build the tools. {way_out}")


def _write_manifest(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {str(path.relative_to(folder)): _fingerprint(path) for path in files}
    write_json(folder / "manifest.json", manifest)


def _verified(folder: Path) -> bool:
    """Whether a folder holds what was built.

    The SHA-256 of each file is checked again only when its size or times are not those of the last check: hashing
    half a gigabyte at every start would take seconds.
    """
    manifest_path, stamp_path = folder / "manifest.json", folder / "verified.json"
    try:
        manifest: dict[str, str] = json.loads(manifest_path.read_text())
        stamps = {name: stamp(folder / name) for name in manifest}
    except (OSError, ValueError):
        return False
    if stamp_path.exists() and stamp_path.read_text() == json.dumps(stamps):
        return True
    if any(_fingerprint(folder / name) != fingerprint for name, fingerprint in manifest.items()):
        return False
    with suppress(OSError):  # Without the stamps, the next check takes longer.
        write(stamp_path, json.dumps(stamps))
    return True


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
