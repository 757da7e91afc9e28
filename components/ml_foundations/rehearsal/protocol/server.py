"""The gRPC server of a plugin or a language host."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

_THREADS = 1000
"""The calls that are served at once. Most only wait, until a resource is ready."""
_CHECK_SECONDS = 1
SIZES = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
"""The options of a server or channel with messages of any size."""


def serve(
    register: Callable[[grpc.Server], None],
    on_stop: Callable[[], None] = lambda: None,
    grace: float | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, or until the engine has ended; then end this process.

    ``register`` adds the servicers to the server. ``on_stop`` runs before the server stops, and the
    calls then have ``grace`` seconds to return.
    """
    engine = os.getppid()
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=SIZES)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stopped = threading.Event()
    # A plugin has its own process group, so these signals come from the engine. Ctrl-C comes as a
    # call of Cancel.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    print(port, flush=True)
    # An engine that was killed does not signal its processes, so the parent is polled.
    while os.getppid() == engine and not stopped.wait(_CHECK_SECONDS):
        pass
    on_stop()
    server.stop(grace).wait()
    # The engine waits for the end of this process: skip the interpreter's clean-up.
    os._exit(0)
