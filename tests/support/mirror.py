"""A web server on loopback that has the publishers' files, and the faults of real ones."""

import hashlib
import io
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ml_foundations.rehearsal.engine import language_host
from ml_foundations.rehearsal.tools import releases
from ml_foundations.rehearsal.tools.groups import HELM, KUBERNETES, PULUMI
from ml_foundations.rehearsal.tools.releases import Release
from ml_foundations.rehearsal.tools.toolchain import Tools

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
    login: str = ""
    """The user and password that it asks for, in base64."""
    redirects: dict[str, str] = field(default_factory=dict)
    """The address to which a request for a path is sent on."""
    closes: bool = False
    """Whether each answer ends with the connection."""
    status: int = 0
    """The status of each answer, if it is not 0."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of each answer, in place of the usual ones."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """The path and the range of each request."""
    logins: list[str] = field(default_factory=list)
    """The user and password of each request, as its header has them."""

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
def serving(mirror: Mirror, certificate: Path | None = None) -> Iterator[Mirror]:
    """Serve the files, by TLS if there is a certificate, whose file has the key too."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            # A request to a proxy has the whole address.
            path = self.path.partition("//")[2].partition("/")[2] or self.path.lstrip("/")
            file = path.partition("?")[0]
            asked = self.headers.get("Range", "")
            mirror.requests.append((path, asked))
            mirror.logins.append(self.headers.get("Authorization", ""))
            time.sleep(mirror.silent_seconds)
            if error := _error(mirror, file):
                self.send_error(error)
                return
            if file in mirror.redirects:
                self.send_response(302)
                self.send_header("Location", mirror.redirects[file])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = mirror.files[file]
            data = content if isinstance(content, bytes) else content.read_bytes()
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            start *= mirror.has_ranges
            if start >= len(data) > 0:
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            headers = {"Content-Length": str(len(data) - start)} | mirror.headers
            for header in headers.items():
                self.send_header(*header)
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
            if is_cut or mirror.closes:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https" if certificate else "http"
        mirror.address = f"{scheme}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield mirror
        finally:
            server.shutdown()


def _error(mirror: Mirror, file: str) -> int:
    """The status with which a server refuses the last request, or 0."""
    if not mirror.logins[-1].endswith(mirror.login):
        return 401
    return mirror.status or (0 if file in mirror.files.keys() | mirror.redirects.keys() else 404)


def publish(tools: Tools, table: Path) -> Mirror:
    """The tools of this machine in the publishers' layout, with their checksums in a `releases.toml`.

    The archive of Pulumi has the project's own language host in place of Pulumi's.
    """
    mirror = Mirror()
    text = table.read_text()
    for group in (KUBERNETES, HELM, PULUMI):
        for release in releases.of_group(group):
            content = _content(release, tools)
            sha256 = mirror.add(releases.path_of(release.url), content)
            text = text.replace(release.sha256, sha256)
    table.write_text(text)
    return mirror


def _content(release: Release, tools: Tools) -> bytes | Path:
    if release.documents:
        return subprocess.run(
            [tools.kubectl, "kustomize", tools.kwok_stages / "fast"],
            capture_output=True,
            check=True,
        ).stdout
    tool: Path = getattr(tools, release.name.replace("-", "_"))
    if not release.folder:
        return tool
    files = {release.name: tool.read_bytes()}
    if release.name == "pulumi" and tools.pulumi_is_official:
        files = {path.name: path.read_bytes() for path in tool.resolve().parent.glob("pulumi*")}
    elif release.name == "pulumi":
        start = f"from {language_host.__name__} import main; main()"
        host = f'#!/bin/sh\nexec {sys.executable} -P -c "{start}" "$(dirname "$0")/pulumi-language-python-exec" "$@"\n'
        files["pulumi-language-python"] = host.encode()
        executor = tool.parent / "python" / "pulumi-language-python-exec"
        files[executor.name] = executor.read_bytes()
    return archive(release.folder, files)
