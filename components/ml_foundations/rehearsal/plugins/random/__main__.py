"""The plugin's process: ``python -m ml_foundations.rehearsal.plugins.random <engine address>``."""

from ml_foundations.rehearsal.plugins.random.provider import RandomProvider
from ml_foundations.rehearsal.plugins.servicer import serve

if __name__ == "__main__":
    serve(RandomProvider())
