"""Pulumi's own plugins: the kubernetes plugin is built for the tests, the others run where they are installed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import urllib3
from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.rehearsal.tools import groups, toolchain
from ml_foundations.rehearsal.tools.groups import Group
from packaging.version import Version

HOME = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
RELEASE = Version("4.25.0")
"""The tag of the commit that go.mod pins. The module has no tags, and no later release is published as one."""
_MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"
_NAME = "pulumi-resource-kubernetes"
KUBERNETES_PLUGIN = Group(
    _NAME,
    {_NAME: _NAME},
    minutes=12,
    version_of=_MODULE,
    # As Pulumi's release does it.
    version_variables=[f"{_MODULE}/pkg/version.Version={RELEASE}"],
    # The release embeds what is in this folder of the module.
    copies={"schema": (_MODULE, f"cmd/{_NAME}")},
    folder=Path(__file__).with_name(_NAME),
)


def has_plugin(package: str) -> bool:
    return any(path.is_dir() for path in HOME.glob(f"plugins/resource-{package}-v*"))


def has_cli() -> bool:
    return toolchain.official_pulumi(groups.PULUMI.pinned(groups.PULUMI.version_of)) is not None


@contextmanager
def kubernetes_plugin(home: Path) -> Iterator[None]:
    """Let rehearsals find the built plugin in a PULUMI_HOME, as a user has one."""
    plugin = home / "plugins" / f"resource-kubernetes-v{RELEASE}"
    plugin.parent.mkdir(parents=True)
    plugin.symlink_to(toolchain.build(KUBERNETES_PLUGIN))
    with patch.dict(os.environ, PULUMI_HOME=str(home)):
        yield


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
