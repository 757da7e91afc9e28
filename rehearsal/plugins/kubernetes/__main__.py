"""The plugin as a process: ``python -m rehearsal.plugins.kubernetes <engine address>``."""

from rehearsal.plugins.kubernetes.provider import KubernetesProvider
from rehearsal.plugins.servicer import serve

if __name__ == "__main__":
    serve(KubernetesProvider())
