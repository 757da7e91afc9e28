"""The plugin's process: ``python -m rehearsal.plugins.gcp <engine address>``."""

from __future__ import annotations

from rehearsal.layout import Rehearsal
from rehearsal.plugins.gcp.provider import GcpProvider
from rehearsal.plugins.servicer import serve

if __name__ == "__main__":
    serve(GcpProvider(Rehearsal.of_this_process()))
