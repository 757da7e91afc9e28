"""Pulumi's protocol: the stubs that the SDK carries, without the SDK, and a server for plugins and language hosts.

Each ``pulumi`` command starts a language host twice and every plugin once. Importing the whole SDK would take half of
such a start, and answering calls needs none of it.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import grpc

_THREADS = 1000
"""Calls served at once; most of them only wait, a plugin's for as long as it runs."""
_CHECK_SECONDS = 1


@contextmanager
def _bare_packages(*names: str) -> Generator[None]:
    """Let the modules of these packages be imported without running the packages' own ``__init__``."""
    top, before = (
        PathFinder.find_spec(names[0].partition(".")[0]),
        {name: sys.modules.get(name) for name in names},
    )
    # A package that is there whole is of this type; one that is to be imported lazily is of another.
    if top is None or type(before[names[0]]) is ModuleType:
        yield
        return
    for name in names:
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = [
            str(Path(folder, *name.split(".")[1:]))
            for folder in top.submodule_search_locations or ()
        ]
    try:
        yield
    finally:
        # A later import of the package gets all of it, with the modules that are already loaded.
        for name, package in before.items():
            bare = sys.modules.pop(name)
            if package is not None:
                sys.modules[name] = package
                # Not those that are named as their classes, whose place in the package they would take.
                for key, value in vars(bare).items():
                    if isinstance(value, ModuleType) and key.islower():
                        setattr(package, key, value)


with _bare_packages("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
    from pulumi.runtime.proto import engine_pb2 as engine_pb2
    from pulumi.runtime.proto import engine_pb2_grpc as engine_pb2_grpc
    from pulumi.runtime.proto import language_pb2 as language_pb2
    from pulumi.runtime.proto import language_pb2_grpc as language_pb2_grpc
    from pulumi.runtime.proto import plugin_pb2 as plugin_pb2
    from pulumi.runtime.proto import provider_pb2 as provider_pb2
    from pulumi.runtime.proto import provider_pb2_grpc as provider_pb2_grpc
    from pulumi.runtime.proto import status_pb2 as status_pb2


def serve(
    register: Callable[[grpc.Server], None],
    end: Callable[[], None] = lambda: None,
    grace: float | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, or until the engine is gone; the process ends with it.

    ``end`` is called first at the end; calls then have the seconds of ``grace`` to return.
    """
    parent = os.getppid()
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=sizes)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stopped = threading.Event()
    # A plugin has a process group of its own: this is the engine at its end. Ctrl-C comes as a call of Cancel.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    print(port, flush=True)
    # An engine that was killed tells its processes nothing, and does not end every host that it starts.
    while os.getppid() == parent and not stopped.wait(_CHECK_SECONDS):
        pass
    end()
    server.stop(grace).wait()
    # There is nothing left to do, and the engine waits for it: do not take the interpreter apart.
    os._exit(0)
