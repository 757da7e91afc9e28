"""Everything that makes the processes of a rehearsal start and end faster, in one place.

Each ``pulumi`` command starts a language host twice, every plugin once and the program once. They
live for seconds:

- Searching for garbage was a fifth of the work of a plugin and a third of the work of a program,
  whose SDKs keep hundreds of thousands of objects until the end. ``collect_rarely`` raises the
  threshold and skips the last search.
- Importing Pulumi's whole SDK was half of the start of a plugin. ``without_init`` imports only its
  gRPC stubs.
"""

import atexit
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

PROGRAM_LAUNCHER = """
import atexit, gc, os, runpy, sys
gc.set_threshold(500_000)
atexit.register(gc.freeze)
del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The code that runs a script as ``python script`` does, but rarely collects garbage."""


def collect_rarely() -> None:
    """Collect garbage rarely in this process, and never when it ends."""
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


@contextmanager
def without_init(*packages: str) -> Generator[None]:
    """Let modules of these packages be imported without running the ``__init__`` of the packages.

    In this block, each of them is an empty package. Afterwards, an import of the package
    loads all of it, with the modules that this block has loaded.
    """
    root = PathFinder.find_spec(packages[0].partition(".")[0])
    loaded = {name: sys.modules.get(name) for name in packages}
    # A loaded package has this very type; a package that waits for a lazy import has a subtype.
    if root is None or type(loaded[packages[0]]) is ModuleType:
        yield
        return
    for name in packages:
        stand_in = sys.modules[name] = ModuleType(name)
        folders = root.submodule_search_locations or ()
        stand_in.__path__ = [str(Path(folder, *name.split(".")[1:])) for folder in folders]
    try:
        yield
    finally:
        for name, package in loaded.items():
            stand_in = sys.modules.pop(name)
            if package is not None:
                sys.modules[name] = package
                # The stand-in's modules, except those with the name of a class.
                for module_name, module in vars(stand_in).items():
                    if isinstance(module, ModuleType) and module_name.islower():
                        setattr(package, module_name, module)
