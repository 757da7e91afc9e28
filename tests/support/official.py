"""Pulumi's own plugins, where this machine has them: tests on them run there, and are skipped elsewhere."""

import os
from pathlib import Path

import pytest
import urllib3
from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.rehearsal.tools import groups, toolchain
from packaging.version import Version

HOME = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")


def has_plugin(package: str) -> bool:
    return any(path.is_dir() for path in HOME.glob(f"plugins/resource-{package}-v*"))


def kubernetes_plugin() -> Version:
    """The newest of Pulumi's own kubernetes plugins here; 0 where there is none."""
    names = [path.name for path in HOME.glob("plugins/resource-kubernetes-v*") if path.is_dir()]
    return max(
        (Version(name.removeprefix("resource-kubernetes-v")) for name in names),
        default=Version("0"),
    )


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
needs_kubernetes_plugin_4_29 = pytest.mark.skipif(
    kubernetes_plugin() < Version("4.29"),
    reason="Pulumi's own kubernetes plugin is not installed, or older than 4.29, which creates objects otherwise",
)
needs_all = pytest.mark.skipif(
    not (has_plugin("kubernetes") and has_plugin("gcp") and has_cli()),
    reason="Pulumi's own CLI and its gcp and kubernetes plugins are not all installed",
)
