"""The process of an embedded plugin: ``python -m ml_foundations.rehearsal.plugins gcp``."""

import sys
from importlib import import_module

from ml_foundations.rehearsal.plugins.servicer import serve

if __name__ == "__main__":
    package = sys.argv.pop(1)
    module = import_module(f"{__package__}.{package}.provider")
    provider_class = getattr(module, f"{package.title()}Provider")
    serve(provider_class())
