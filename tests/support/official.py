"""Pulumi's own plugins, where this machine has them: tests on them run there, and are skipped elsewhere."""

import os
from pathlib import Path

import pytest
import urllib3
from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.rehearsal.tools import groups, toolchain

HOME = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")


def has_plugin(package: str) -> bool:
    return any(path.is_dir() for path in HOME.glob(f"plugins/resource-{package}-v*"))


def has_cli() -> bool:
    return toolchain.official_pulumi(groups.PULUMI.pinned(groups.PULUMI.version_of)) is not None


def can_fetch_charts() -> bool:
    """Whether the home of the GPU Operator's chart answers."""
    try:
        urllib3.request("HEAD", GPU_OPERATOR.repo, timeout=5, retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return True


needs_kubernetes_plugin = pytest.mark.skipif(
    not has_plugin("kubernetes"), reason="Pulumi's own kubernetes plugin is not installed"
)
needs_all = pytest.mark.skipif(
    not (has_plugin("kubernetes") and has_plugin("gcp") and has_cli()),
    reason="Pulumi's own CLI and its gcp and kubernetes plugins are not all installed",
)
