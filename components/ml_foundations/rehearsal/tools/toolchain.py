"""The tools of a rehearsal: on PATH, in the user's cache, downloaded, or built from Go modules.

Each group of tools is built into a separate folder, and each downloaded file is unpacked to one.
Its name contains a hash of everything that decides the result. A finished folder is never changed,
and an unfinished one never used.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ml_foundations.rehearsal.files import draft_of, locked, require_free_space
from ml_foundations.rehearsal.layout import cache_dir
from ml_foundations.rehearsal.processes import without_logins
from ml_foundations.rehearsal.progress import RehearsalError, Step, console, styled
from ml_foundations.rehearsal.tools import downloads, go_command, releases
from ml_foundations.rehearsal.tools.groups import HELM, KUBERNETES, PULUMI, Group
from ml_foundations.rehearsal.tools.manifest import is_verified, write_manifest
from ml_foundations.rehearsal.tools.releases import Release

_FREE_BYTES = 5 * 1024**3
"""The space that a build needs at most, for Go's module and build caches and the binaries."""
_MAJOR = re.compile(r"/v\d+$")
"""The end of a package's path that is not in its binary's name."""


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
    """Download or build what is missing, verify the rest, and return all tools.

    Raises:
        RehearsalError: a build failed, a download is not the published file, the disk is full, or
            nothing that has the tools can be reached.
    """
    _download(missing())
    tools = _tools(KUBERNETES) | _tools(HELM)
    official = pulumi_release()
    return Tools(
        **{name.replace("-", "_"): path for name, path in tools.items()},
        pulumi=official or build(PULUMI) / "pulumi",
        pulumi_is_official=official is not None,
    )


def way() -> str:
    """Return how the user wants missing tools to be got: build, download or path; empty for any.

    Raises:
        RehearsalError: the setting is invalid.
    """
    setting = os.environ.get("ML_FOUNDATIONS_TOOLS", "")
    if setting not in ("", "build", "download", "path"):
        raise RehearsalError(
            f"ML_FOUNDATIONS_TOOLS: {setting!r} is invalid. Set it to build, download or path, or "
            "unset it"
        )
    return setting


def _download(groups: list[Group]) -> None:
    """Download the tools of groups that publishers have. What they do not send is built."""
    if not groups or way() in ("build", "path"):
        return
    needed: list[Release] = []
    for group in groups:
        needed += filter(lambda release: group.lacks(release.name), releases.of_group(group))
    unavailable = downloads.download(needed)
    if unavailable and not way():
        minutes = sum(group.minutes for group in missing())
        console().print(
            f"{downloads.sentence(unavailable)}: building from source, up to {minutes:g} minutes "
            "on 2 cores"
        )
    elif unavailable:
        raise RehearsalError(
            f"{downloads.sentence(unavailable)}. Check the network, HTTPS_PROXY and "
            "ML_FOUNDATIONS_MIRROR, or unset ML_FOUNDATIONS_TOOLS to build from source"
        )


def pulumi_release() -> Path | None:
    """Return Pulumi's own release: the one on PATH, or the downloaded one."""
    on_path = official_pulumi(PULUMI.pinned(PULUMI.version_of))
    return on_path or downloaded(PULUMI).get("pulumi")


def downloaded(group: Group) -> dict[str, Path]:
    """Return the tools and data files of a group that were downloaded."""
    if way() == "build":
        return {}
    verified = [release for release in releases.of_group(group) if is_verified(release.target)]
    return {release.name: release.tool for release in verified}


def official_pulumi(minimum: str) -> Path | None:
    """Return the ``pulumi`` on PATH if it is new enough and a release with language hosts."""
    for pulumi in _on_path("pulumi"):
        if shutil.which(pulumi.resolve().parent / "pulumi-language-python"):
            version = go_command.version(go_command.printed(pulumi, "version"))
            if version >= go_command.version(minimum):
                return pulumi
    return None


def parts(group: Group) -> tuple[Group, dict[str, Path]]:
    """Return the group without the tools on PATH or downloaded, and these; none if it is built."""
    tools = downloaded(group)
    if not any(map(group.without(tools).lacks, group.provided)):
        return group.without(tools), tools
    if is_built(group):
        return group, {}
    for name, (module, *arguments) in group.version_by.items():
        version = re.escape(group.pinned(module).removeprefix("v"))
        pinned = re.compile(rf"(?<![\w.])v?{version}(?![\w.-])")
        for path in _on_path(name):
            if pinned.search(go_command.printed(path, *arguments)):
                tools[name] = path
                break
    return group.without(tools), tools


def _tools(group: Group) -> dict[str, Path]:
    to_build, tools = parts(group)
    for name in filter(to_build.lacks, to_build.provided):
        tools[name] = build(to_build) / name
    return tools


def _on_path(name: str) -> Iterator[Path]:
    """Yield the executables of a name on PATH, except those of a rehearsal."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(folder) / name
        is_of_rehearsal = ".rehearsal" in path.resolve().parts
        if path.is_absolute() and not is_of_rehearsal and shutil.which(path):
            yield path


def build(group: Group) -> Path:
    """Return the folder with a group's verified binaries. It is built if it is missing or damaged.

    Raises:
        RehearsalError: the build failed, the disk is full, or a registry cannot be reached.
    """
    target = folder_of(group)
    if is_built(group):
        return target
    if way() == "path" or _must_download(group):
        names = ", ".join(filter(group.lacks, group.provided))
        raise RehearsalError(
            f"ML_FOUNDATIONS_TOOLS={way()} does not allow to build {names}. Unset it, or put the "
            "pinned versions on PATH, which ml-foundations doctor lists"
        )
    try:
        with locked(target.parent, group.name, f"{group.name} is being built by another command"):
            if not is_verified(target):
                _build(group, target)
    except OSError as error:
        raise RehearsalError(_explain(group, str(error))) from error
    return target


def folder_of(group: Group) -> Path:
    """Return the folder of a group, whether or not it is built."""
    return cache_dir() / "tools" / f"{group.name}-{group.key()}"


def missing() -> list[Group]:
    """Return the groups that every rehearsal needs, without the tools that exist."""
    needed = [KUBERNETES, HELM]
    if not pulumi_release():
        needed.append(PULUMI)
    return [group for group, _ in map(parts, needed) if not is_built(group)]


def is_built(group: Group) -> bool:
    """Return whether a group is built completely, or needs no build."""
    if not (group.built or group.copies):
        return True
    return not _must_download(group) and is_verified(folder_of(group))


def _must_download(group: Group) -> bool:
    """Return whether the user accepts only the publisher's binaries of a group that has some."""
    return way() == "download" and bool(releases.of_group(group))


@dataclass(frozen=True)
class _Go:
    executable: Path
    group: Group
    draft: Path
    progress: Step

    def run(self, *arguments: str, packages: frozenset[str] = frozenset()) -> str:
        """Run go and return its output. Compiled packages of ``packages`` count as progress."""
        compiled = 0
        last_lines: deque[str] = deque(maxlen=60)
        with (
            tempfile.TemporaryFile("w+") as output,
            subprocess.Popen(
                [self.executable, *arguments],
                cwd=self.group.source,
                # A killed go leaves files behind. In the draft, the next build removes them.
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
                        last_lines.append(line)
            except BaseException:
                process.terminate()
                raise
            if process.wait() != 0:
                raise RehearsalError(_explain(self.group, "".join(last_lines)))
            output.seek(0)
            return output.read()


def _build(group: Group, target: Path) -> None:
    """Build in a draft folder and rename it at the end. The caller holds the group's lock."""
    if target.exists():
        console().print(styled(("!", "yellow"), f" {target.name} is damaged and is built again"))
    executable = go_command.find()
    caches = go_command.printed(executable, "env", "GOCACHE", "GOMODCACHE").splitlines()
    fix = "Free some, or set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to folders on a larger disk"
    for path in (target.parent, *map(Path, filter(None, caches))):
        require_free_space(path, _FREE_BYTES, f"to build the tools. {fix}")
    with (
        draft_of(target) as draft,
        Step(f"building {group.name} (once, up to {group.minutes:g} min on 2 cores)") as progress,
    ):
        _install(_Go(executable, group, draft, progress))
        write_manifest(draft)


def _install(go: _Go) -> None:
    """Write the group's binaries, under the names of the tools, and its data files to the draft."""
    go.progress.detail("fetching modules")
    left_out = {go.group.binaries[name] for name in go.group.left_out}
    tools = go.run("list", "tool").split()
    tools = [tool for tool in tools if _MAJOR.sub("", tool).split("/")[-1] not in left_out]
    if go.group.built:
        packages = frozenset(go.run("list", "-deps", *tools).split())
        # The linker strips debug information. Not generating it saves a tenth of the work.
        flags = ["-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", go.group.linker_flags]
        go.run("install", "-v", *flags, *tools, packages=packages)
    for name, built in go.group.built.items():
        (go.draft / built).replace(go.draft / name)
    for folder, (module, source) in go.group.copies.items():
        go.run("mod", "download", module)
        listed = go.run("list", "-m", "-f", "{{.Dir}}", module).strip()
        shutil.copytree(Path(listed) / source, go.draft / folder, copy_function=shutil.copyfile)
        # Folders of Go's module cache are read-only, and a copy must be removable.
        for path, _, _ in os.walk(go.draft / folder):
            Path(path).chmod(0o755)


def _explain(group: Group, output: str) -> str:
    """Return why a build failed and how to fix it, then the end of its output."""
    failure = next(
        failure for failure in go_command.FAILURES if re.search(failure["pattern"], output, re.I)
    )
    reason = failure["reason"].format(room=_FREE_BYTES // 1024**3)
    return f"building {group.name}: {reason}\n{without_logins(output.strip()[-3000:])}"
