"""Steps that tests of programs over a replica have in common, and the objects that they begin with."""

import subprocess
from typing import Any

from tests.factories import Manifest, cluster_wide
from tests.support.project import Project

FOR_LONG: dict[str, Any] = {"annotations": {"pod-complete.stage.kwok.x-k8s.io/delay": "1h"}}
"""Pods with this run until they are stopped; those of other Jobs complete after some seconds."""

WHOLE_NODE: dict[str, Any] = {"image": "i", "cpu": "8", "memory": "64Gi", "gpu": "H100", "gpus": 8}
"""Each pod of a workload with these arguments takes a node of 8 H100s."""


def program(component: str, name: str, args: dict[str, Any], options: str = "here") -> str:
    """Return the lines of a program that declare a component."""
    return f"from ml_foundations import {component}\n{component}({name!r}, {args!r}, {options})\n"


def refreshed(project: Project) -> str:
    """Refresh the stack, and return what the command printed."""
    done = project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kubectl_in(project: Project, namespace: str, *args: str, stdin: str = "") -> str:
    """Do something as somebody else would."""
    options = ("--kubeconfig", project.cluster.kubeconfig, "-n", namespace)
    command = [project.rehearsal.bin_dir / "kubectl", *options, *args]
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pods_of(project: Project, namespace: str, app: str) -> list[dict[str, Any]]:
    """Return the pods of an app that are not on their way out."""
    label = f"app.kubernetes.io/name={app}"
    listed = project.kubectl("get", "pods", "-n", namespace, "-l", label)["items"]
    return [pod for pod in listed if not pod["metadata"].get("deletionTimestamp")]


def uid(obj: dict[str, Any]) -> str:
    return obj["metadata"]["uid"]


def restricted_namespace(name: str) -> Manifest:
    """Return a namespace stricter than a team's by default: the components' own defaults satisfy it."""
    namespace = cluster_wide("v1", "Namespace", name)
    namespace["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    return namespace


def waiting_class(name: str, **more: Any) -> Manifest:
    """Return a storage class whose volumes wait for their first consumer."""
    disks = {"provisioner": "pd.csi.storage.gke.io", "volumeBindingMode": "WaitForFirstConsumer"}
    return cluster_wide("storage.k8s.io/v1", "StorageClass", name, **disks, **more)
