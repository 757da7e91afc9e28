"""The rehearsal's ``gke-gcloud-auth-plugin``: gives a token for the replicas to clients that ask it as GKE's."""

import json
import os
import sys

from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def credential(rehearsal: Rehearsal, exec_info: str) -> dict[str, object]:
    """The ExecCredential in the version that a client asks for by its KUBERNETES_EXEC_INFO, if it has any."""
    asked = json.loads(exec_info).get("apiVersion") if exec_info else API_VERSIONS[1]
    if asked not in API_VERSIONS:
        raise RehearsalError(
            f"gke-gcloud-auth-plugin: {asked} is not supported, only {' and '.join(API_VERSIONS)}"
        )
    if not all(
        process.running for process in kwok.processes(rehearsal) if process.name == "kube-apiserver"
    ):
        raise RehearsalError(
            f"gke-gcloud-auth-plugin: the rehearsal of {rehearsal.stack} is not up. Start it: {rehearsal.command('up')}"
        )
    return {"apiVersion": asked, "kind": "ExecCredential", "status": {"token": rehearsal.token}}


def main() -> None:
    """Print the credential; on failure, print the reason on standard error."""
    try:
        found = credential(Rehearsal.of_this_process(), os.environ.get("KUBERNETES_EXEC_INFO", ""))
    except (RehearsalError, OSError) as error:
        sys.exit(str(error))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
