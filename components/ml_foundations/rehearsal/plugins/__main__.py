"""The process of an embedded plugin: ``python -m ml_foundations.rehearsal.plugins gcp <engine address>``."""

import sys
from importlib import import_module

from ml_foundations.rehearsal.plugins.servicer import serve

if __name__ == "__main__":
    package = sys.argv.pop(1)
    serve(
        getattr(import_module(f"{__package__}.{package}.provider"), f"{package.title()}Provider")()
    )
