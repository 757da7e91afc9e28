"""Pulumi's own plugins, where this machine has them: tests on them run there, and are skipped elsewhere."""

import os
from pathlib import Path

import pytest

from rehearsal import toolchain

HOME = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")


def has_plugin(package: str) -> bool:
    return any(path.is_dir() for path in HOME.glob(f"plugins/resource-{package}-v*"))


def has_cli() -> bool:
    return toolchain.official_pulumi(toolchain.PULUMI.pinned(toolchain.PULUMI.version_of)) is not None


needs_kubernetes_plugin = pytest.mark.skipif(
    not has_plugin("kubernetes"), reason="Pulumi's own kubernetes plugin is not installed"
)
needs_all = pytest.mark.skipif(
    not (has_plugin("kubernetes") and has_plugin("gcp") and has_cli()),
    reason="Pulumi's own CLI and its gcp and kubernetes plugins are not all installed",
)
