"""The plugin as a process: ``python -m ml_foundations.rehearsal.plugins.kubernetes <engine address>``."""

from ml_foundations.rehearsal.plugins.kubernetes.provider import KubernetesProvider
from ml_foundations.rehearsal.plugins.servicer import serve

if __name__ == "__main__":
    serve(KubernetesProvider())
