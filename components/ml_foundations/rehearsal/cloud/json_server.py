"""Servers on loopback that answer GET requests with JSON."""

import json
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from typing_extensions import override

from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.control_plane.configuration import LOOPBACK, Credentials

_MISSING = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}


def start(
    port: int, answer: Callable[[str], Object | None], identity: Credentials | None = None
) -> ThreadingHTTPServer:
    """Start a server, by TLS if it has an identity, and return it.

    ``answer`` returns the answer to a path with its query, or None if there is none.
    """

    class _Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content = answer(self.path)
            missing = {**_MISSING, "message": f"{self.path} is not known"}
            body = json.dumps(missing if content is None else content).encode()
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: controllers ask every few seconds."""

    server = ThreadingHTTPServer((LOOPBACK, port), _Handler)
    if identity is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.cert, identity.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    return server
