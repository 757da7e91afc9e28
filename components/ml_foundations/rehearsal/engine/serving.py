"""Serves a plugin or a language host to the engine that started this process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

_THREADS = 1000
"""Calls served at once; most of them only wait, a plugin's for as long as it runs."""
_CHECK_SECONDS = 1


def engine_address() -> str:
    """The address of the engine: the last argument that is no flag, or empty."""
    return next((word for word in reversed(sys.argv[1:]) if not word.startswith("-")), "")


def serve(
    register: Callable[[grpc.Server], None], end: Callable[[], None] = lambda: None, grace: float | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, or until the engine is gone; the process ends with it.

    Args:
        register: Adds what is served to the server.
        end: Called first at the end.
        grace: The seconds that calls then have to return.
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
