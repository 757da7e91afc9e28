"""A web server on loopback that has the publishers' files, and the faults of real ones."""

import hashlib
import io
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_CHUNK = 64 * 1024


@dataclass
class Mirror:
    """The files by path, and what is wrong with the server."""

    files: dict[str, bytes | Path] = field(default_factory=dict)
    address: str = ""
    cut_after: int = 0
    """The bytes after which each connection is cut, as often as `cuts` says."""
    cuts: int = 0
    chunk_seconds: float = 0
    """The pause before each 64 KiB."""
    silent_seconds: float = 0
    """The pause before each answer."""
    has_ranges: bool = True
    requests: list[tuple[str, str]] = field(default_factory=list)
    """The path and the range of each request."""

    def add(self, path: str, content: bytes | Path) -> str:
        """Add a file and return its SHA-256."""
        self.files[path] = content
        data = content if isinstance(content, bytes) else content.read_bytes()
        return hashlib.sha256(data).hexdigest()


def archive(folder: str, files: dict[str, bytes]) -> bytes:
    """A .tar.gz as publishers make it: executable files in a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}" if folder else name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@contextmanager
def serving(mirror: Mirror) -> Iterator[Mirror]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            # A request to a proxy has the whole address.
            path = self.path.partition("//")[2].partition("/")[2] or self.path.lstrip("/")
            asked = self.headers.get("Range", "")
            mirror.requests.append((path, asked))
            time.sleep(mirror.silent_seconds)
            content = mirror.files.get(path)
            if content is None:
                self.send_error(404)
                return
            data = content if isinstance(content, bytes) else content.read_bytes()
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            start *= mirror.has_ranges
            if start >= len(data) > 0:
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            self._send(data[start:])

        def _send(self, data: bytes) -> None:
            is_cut = mirror.cuts > 0 and len(data) > mirror.cut_after
            if is_cut:
                mirror.cuts -= 1
                data = data[: mirror.cut_after]
            for begin in range(0, len(data), _CHUNK):
                time.sleep(mirror.chunk_seconds)
                self.wfile.write(data[begin : begin + _CHUNK])
            if is_cut:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        mirror.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield mirror
        finally:
            server.shutdown()
