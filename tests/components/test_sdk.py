"""Classes of Pulumi's SDKs, imported by themselves."""

import subprocess
import sys

import pytest
from ml_foundations.component.sdk import class_of

ALONE = """
import sys
from ml_foundations.component.sdk import class_of
network, pod, release = map(class_of, {paths})
assert not [name for name in sys.modules if name.endswith((".autoscaler", ".ReplicationController", ".Chart"))]
import pulumi_gcp, pulumi_kubernetes
# The SDK whole, imported afterwards, has the same classes, and all that an SDK has.
assert pulumi_gcp.compute.Network is pulumi_gcp.compute.network.Network is network
assert pulumi_kubernetes.core.v1.Pod is pod and pulumi_kubernetes.helm.v3.Release is release
assert pulumi_gcp.compute.Autoscaler and pulumi_gcp.compute.outputs and pulumi_kubernetes.core.v1.PodArgs
"""
PATHS = ["pulumi_gcp.compute.Network", "pulumi_kubernetes.core.v1.Pod", "pulumi_kubernetes.helm.v3.Release"]


def test_a_class_comes_without_those_beside_it_and_is_that_of_the_sdk() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE.format(paths=PATHS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", ["pulumi_kubernetes.core.v1.Nothing", "pulumi_kubernetes.nothing.v1.Pod"])
def test_there_is_none_of_another_name(path: str) -> None:
    assert class_of(path) is None
