"""The rehearsal's ``gke-gcloud-auth-plugin``, which gives clients a token for the replicas."""

import json
import os
import sys

from ml_foundations.kubernetes import printable
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def credential(rehearsal: Rehearsal, exec_info: str) -> dict[str, object]:
    """Return the ExecCredential in the version that KUBERNETES_EXEC_INFO names, if it is set."""
    version = json.loads(exec_info).get("apiVersion") if exec_info else API_VERSIONS[1]
    error = ""
    if version not in API_VERSIONS:
        error = f"{version} is not supported, only {' and '.join(API_VERSIONS)}"
    for process in kwok.processes(rehearsal):
        if process.name == "kube-apiserver" and not process.running:
            fix = f"Start it: {rehearsal.command('up')}"
            error = error or f"the rehearsal of {rehearsal.stack} is not up. {fix}"
    if error:
        raise RehearsalError(f"gke-gcloud-auth-plugin: {error}")
    return {"apiVersion": version, "kind": "ExecCredential", "status": {"token": rehearsal.token}}


def main() -> None:
    """Print the credential; on failure, print the reason on standard error."""
    rehearsal = Rehearsal.of_this_process()
    exec_info = os.environ.get("KUBERNETES_EXEC_INFO", "")
    try:
        print(json.dumps(credential(rehearsal, exec_info)))
    except (RehearsalError, OSError) as error:
        sys.exit(printable.text(str(error)))


if __name__ == "__main__":
    main()
