"""The commands ``doctor``, which lists the tools, and ``tools fetch``, which fills a mirror."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from functools import partial

from ml_foundations.kubernetes.words import number
from ml_foundations.rehearsal.progress import RehearsalError, console, output
from ml_foundations.rehearsal.tools import downloads, releases, toolchain
from ml_foundations.rehearsal.tools.groups import GROUPS, LANGUAGE_YAML, PULUMI, Group
from ml_foundations.rehearsal.tools.releases import Release


def doctor() -> None:
    """Print where each tool is, or where it will come from. The exit status is 0 in any case."""
    show = partial(output().print, soft_wrap=True)
    show(f"{'python':<24} {sys.version.split()[0]:<8} {sys.executable}")
    go = shutil.which("go") or "not on PATH: pip installs it"
    show(f"{'go':<24} {'':<8} {go}, used for building only")
    missing = toolchain.missing()
    for group in GROUPS.values():
        is_needed = any(group.source == needed.source for needed in missing)
        for name, state in _states(group, is_needed):
            module = group.version_by.get(name, [group.version_of])[0]
            version = group.pinned(module) if module else ""  # go.mod alone may have it.
            show(f"{name:<24} {version:<8} {state}")
    if missing:
        minutes = sum(group.minutes for group in missing)
        show(f"The first rehearsal gets the missing tools. A build takes up to {minutes:g} min.")
    else:
        show("The first rehearsal downloads and builds nothing.")


def fetch(args: argparse.Namespace) -> None:
    """Download all tools that publishers have to a folder that a web server can serve."""
    arch = args.arch or releases.architecture()
    if not arch:
        raise RehearsalError(
            "tools fetch: publishers have no binaries for this machine. Add --arch amd64 or "
            "--arch arm64"
        )
    files = [file for group in GROUPS.values() for file in releases.of_group(group, arch)]
    downloads.fill_mirror(files, args.to)
    console().print(
        f"{number(len(files), 'file')} in {args.to}. Serve the folder, then set "
        "ML_FOUNDATIONS_MIRROR to its address"
    )


def _states(group: Group, is_needed: bool) -> Iterator[tuple[str, str]]:
    """Yield the name of each tool of a group, and where it is or will come from."""
    on_path = toolchain.official_pulumi(PULUMI.pinned(PULUMI.version_of))
    if group is PULUMI and on_path:
        yield "pulumi", f"on PATH: {on_path}"
        return
    if group is LANGUAGE_YAML and toolchain.pulumi_release():
        yield from ((name, "part of pulumi") for name in group.binaries)
        return
    fetched = {release.name: release for release in releases.of_group(group)}
    to_build, tools = toolchain.parts(group)
    for name in group.binaries:
        release = fetched.get(name)
        if release and tools.get(name) == release.tool:
            yield name, _download(release)
        elif name in tools:
            yield name, f"on PATH: {tools[name]}"
        elif toolchain.is_built(to_build):
            path = toolchain.folder_of(to_build) / name
            yield name, f"built, {path.stat().st_size / 1e6:.0f} MB: {path}"
        else:
            yield name, _plan(group, release, is_needed)


def _download(release: Release) -> str:
    """Return the size, duration, checksum and address of a downloaded tool, and its path."""
    record = downloads.record(release)
    return (
        f"downloaded, {record['bytes'] / 1e6:.0f} MB in {record['seconds']:g} s from "
        f"{record['url']}, SHA-256 {record['sha256'][:12]}…: {release.tool}"
    )


def _plan(group: Group, release: Release | None, is_needed: bool) -> str:
    """Return how a tool that does not exist yet will be got."""
    build = f"built in up to {group.minutes:g} min on 2 cores"
    if not is_needed:
        return f"not needed yet, {build} when a program needs it"
    way = toolchain.way()
    if way == "path":
        return "missing on PATH"
    if not release or way == "build":
        return f"to be {build}"
    host = releases.path_of(release.url).partition("/")[0]
    return f"to be downloaded from {host}" + ("" if way == "download" else f", or {build}")
