"""The plugin's process: ``python -m rehearsal.plugins.gcp <engine address>``."""

from __future__ import annotations

import os
from pathlib import Path

from rehearsal.layout import Rehearsal
from rehearsal.plugins.gcp.provider import GcpProvider
from rehearsal.plugins.servicer import serve

if __name__ == "__main__":
    root = Path(os.environ["ML_FOUNDATIONS_REHEARSAL"])
    serve(GcpProvider(Rehearsal(stack=root.name, root=root)))
