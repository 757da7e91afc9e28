"""The plugin's process: ``python -m ml_foundations.rehearsal.plugins.gcp <engine address>``."""

from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp.provider import GcpProvider
from ml_foundations.rehearsal.plugins.servicer import serve

if __name__ == "__main__":
    serve(GcpProvider(Rehearsal.of_this_process()))
