"""Downloads of the publishers' binaries: parallel, resumed after a cut connection, and checked.

Each file has a thread. A thread that waits for a name server cannot be interrupted, so the threads
are daemons, and the caller goes on without those that get no answer.
"""

import base64
import re
import ssl
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import urllib3
import yaml

from ml_foundations.kubernetes.words import listed, number
from ml_foundations.rehearsal.files import (
    draft_of,
    locked,
    read_json,
    require_free_space,
    write,
    write_json,
)
from ml_foundations.rehearsal.layout import cache_dir
from ml_foundations.rehearsal.progress import RehearsalError, Step
from ml_foundations.rehearsal.tools import releases
from ml_foundations.rehearsal.tools.manifest import fingerprint, is_verified, write_manifest
from ml_foundations.rehearsal.tools.releases import Release

_ANSWER_SECONDS = 5
"""A server that does not begin its answer within this time counts as unreachable."""
_SILENCE_SECONDS = 15
"""A connection on which nothing arrives for this time is cut and resumed."""
_ATTEMPTS = 4
"""A download ends after this number of connections on which nothing arrived."""
_PAUSE_SECONDS = 0.5
"""The pause before the next connection after one on which nothing arrived."""
_REDIRECTS = 5
"""The most redirects of a request."""
_MOST_BYTES = 512 * 1024**2
"""More than any publisher's file has."""
_CHUNK_BYTES = 2**18
_FREE_BYTES = 2 * 1024**3
"""The space that the downloads need at most, with the unpacked archives."""
_RECORD = "download.json"
_NO_PROXY = "cannot be reached (by the proxy in HTTPS_PROXY)"
_NO_ANSWER = f"cannot be reached (no answer within {_ANSWER_SECONDS} s)"


class _UnavailableError(Exception):
    """A server has not sent a file. The text follows the server's name."""


class _Transfer(threading.Thread):
    """A thread that gets one file and checks it."""

    def __init__(self, release: Release, part: Path, finish: Callable[["_Transfer"], None]) -> None:
        super().__init__(name=release.name, daemon=True)
        self.release = release
        self.part = part
        address = releases.address(release.url)
        self.host = urlsplit(address).netloc.rpartition("@")[2]
        self.source = _shown(address)
        """The address that sent the file, after redirects."""
        self.received = self.total = 0
        self.seconds = 0.0
        self.has_answer = self.is_cancelled = False
        self.unavailable = ""
        self.error: BaseException | None = None
        self._finish = finish

    def run(self) -> None:
        """Get the file. The caller reads ``unavailable`` and ``error`` afterwards."""
        started = time.monotonic()
        try:
            self._receive()
            self._require_wanted()
            self.received = self.total = self.part.stat().st_size
            actual = fingerprint(self.part)
            if actual != self.release.sha256:
                self.part.unlink()
                raise RehearsalError(
                    f"{self.source}: the SHA-256 is {actual}, and the pinned one is "
                    f"{self.release.sha256}. {_FIX}"
                )
            self.seconds = time.monotonic() - started
            self._finish(self)
        except _UnavailableError as error:
            self.unavailable = str(error)
        except BaseException as error:
            self.error = error

    def _receive(self) -> None:
        idle = 0
        while not (self.part.exists() and fingerprint(self.part) == self.release.sha256):
            before = self.received
            try:
                if self._read():
                    return
            except urllib3.exceptions.HTTPError as error:
                idle = 0 if self.received > before else idle + 1
                if not self.has_answer:
                    raise _UnavailableError(_reason(error)) from None
                if idle == _ATTEMPTS:
                    raise _UnavailableError("cannot be reached (any more)") from None
                time.sleep(_PAUSE_SECONDS * idle)

    def _read(self) -> bool:
        """Read what is missing. Return whether the server sent all of it."""
        start = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Range": f"bytes={start}-"} if start else {}
        response, address = _get(self.release.url, headers)
        with response:
            self.has_answer = True
            self.source = _shown(address)
            self._require_wanted()
            # The file is shorter than what an earlier run has kept.
            if response.status == 416 and start:
                self.part.unlink()
                return False
            if response.status not in (200, 206):
                raise _UnavailableError(f"did not send the tools (status {response.status})")
            if response.status != 206:
                start = 0
            self.received = start
            self.total = start + (response.length_remaining or 0)
            self._require_bounded(self.total)
            with self.part.open("ab" if start else "wb") as file:
                for chunk in response.stream(_CHUNK_BYTES, decode_content=False):
                    self._require_wanted()
                    file.write(chunk)
                    self.received += len(chunk)
                    self._require_bounded(self.received)
        return True

    def _require_bounded(self, size: int) -> None:
        if size > _MOST_BYTES:
            self.part.unlink(missing_ok=True)
            raise _UnavailableError(f"sent more than {_MOST_BYTES // 1024**2} MB for one file")

    def _require_wanted(self) -> None:
        if self.is_cancelled:
            raise _UnavailableError("is no longer needed")


_FIX = (
    "Check the mirror or the proxy that sent it, then run the same command again, or build the "
    "tools from source: ML_FOUNDATIONS_TOOLS=build"
)


def download(requested: Sequence[Release]) -> dict[str, str]:
    """Download releases to the cache. Return the servers that have not sent theirs, and why.

    Raises:
        RehearsalError: a checksum is wrong, or the disk is full.
    """
    folder = cache_dir() / "downloads"
    with locked(folder, "downloads", "another command is downloading the tools"):
        missing = [release for release in requested if not is_verified(release.target)]
        if not missing:
            return {}
        fix = "Free some, or set XDG_CACHE_HOME to a folder on a larger disk"
        require_free_space(folder, _FREE_BYTES, f"to download the tools. {fix}")
        transfers: list[_Transfer] = []
        for release in missing:
            part = release.target.with_name(f"{release.target.name}.part")
            transfers.append(_Transfer(release, part, _install))
        return _run(transfers)


def fill_mirror(requested: Sequence[Release], folder: Path) -> None:
    """Download releases to a folder, in the layout of a mirror.

    Raises:
        RehearsalError: a server cannot be reached, or a checksum is wrong.
    """

    def keep(transfer: _Transfer) -> None:
        transfer.part.replace(folder / releases.path_of(transfer.release.url))

    transfers: list[_Transfer] = []
    for release in requested:
        path = folder / releases.path_of(release.url)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (path.exists() and fingerprint(path) == release.sha256):
            part = path.with_name(f"{path.name}.part")
            transfers.append(_Transfer(release, part, keep))
    if unavailable := _run(transfers):
        raise RehearsalError(f"{sentence(unavailable)}. Check the network, then run it again")


def record(release: Release) -> dict[str, Any]:
    """Return what is known of a finished download: its address, bytes and seconds."""
    return read_json(release.target / _RECORD, {})


def sentence(unavailable: Mapping[str, str]) -> str:
    """Return which servers have not sent their files, and why."""
    hosts: dict[str, list[str]] = {}
    for host, reason in unavailable.items():
        hosts.setdefault(reason, []).append(host)
    return ", ".join(f"{listed(names)} {reason}" for reason, names in hosts.items())


def _run(transfers: Sequence[_Transfer]) -> dict[str, str]:
    """Run transfers to their end. Return the servers that have not sent a file, and why."""
    for transfer in transfers:
        transfer.start()
    try:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < deadline and not all(map(_is_decided, transfers)):
            time.sleep(0.02)
        under_way: list[_Transfer] = []
        for transfer in transfers:
            if not _is_decided(transfer):
                transfer.unavailable = _NO_ANSWER
            elif not transfer.unavailable:
                under_way.append(transfer)
        if under_way:
            with Step(f"downloading {number(len(under_way), 'file')} (once)") as progress:
                _follow(under_way, progress)
    finally:
        for transfer in transfers:
            transfer.is_cancelled = True
    failed = [transfer for transfer in transfers if transfer.unavailable]
    return {transfer.host: transfer.unavailable for transfer in failed}


def _is_decided(transfer: _Transfer) -> bool:
    """Return whether a server has begun to answer, or the transfer has ended."""
    return transfer.has_answer or not transfer.is_alive()


def _follow(transfers: Sequence[_Transfer], progress: Step) -> None:
    """Show the progress until all transfers have ended. Raise the first error of one."""
    started = time.monotonic()
    already = sum(transfer.received for transfer in transfers)
    while True:
        is_last = not any(transfer.is_alive() for transfer in transfers)
        for transfer in transfers:
            if transfer.error:
                raise transfer.error
        if is_last:
            return
        received = sum(transfer.received for transfer in transfers)
        speed = (received - already) / max(time.monotonic() - started, 0.1)
        left = sum(max(transfer.total - transfer.received, 0) for transfer in transfers)
        progress.detail(
            f"{received / 1e6:.0f} of {(received + left) / 1e6:.0f} MB, {speed / 1e6:.1f} MB/s, "
            f"{left / max(speed, 1):.0f} s left"
        )
        time.sleep(0.05)


def _install(transfer: _Transfer) -> None:
    """Unpack a checked file to the folder of its release."""
    release = transfer.release
    with draft_of(release.target) as draft:
        if release.documents:
            _split(transfer.part, release.documents, draft / release.name)
        elif release.folder:
            _unpack(transfer.part, release, draft)
        else:
            transfer.part.replace(draft / release.name)
            (draft / release.name).chmod(0o755)
        write_json(
            draft / _RECORD,
            {
                "url": transfer.source,
                "sha256": release.sha256,
                "bytes": transfer.received,
                "seconds": round(transfer.seconds, 1),
            },
        )
        write_manifest(draft)
    transfer.part.unlink(missing_ok=True)


def _unpack(file: Path, release: Release, draft: Path) -> None:
    """Unpack the regular files that a release names. No path of the archive is used as it is."""
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                if member.isfile() and release.has(member.name.removeprefix("./")):
                    path = draft / Path(member.name).name
                    content = archive.extractfile(member)
                    assert content is not None
                    with content, path.open("wb") as output:
                        while chunk := content.read(_CHUNK_BYTES):
                            output.write(chunk)
                    path.chmod(0o755)
    except (tarfile.TarError, EOFError) as error:
        raise RehearsalError(f"{release.url} cannot be unpacked: {error}. {_FIX}") from None
    if not (draft / release.name).exists():
        raise RehearsalError(f"{release.url} has no {release.folder}/{release.name}. {_FIX}")


def _split(file: Path, paths: Mapping[str, str], draft: Path) -> None:
    """Write each named document of a YAML file to its path below a folder."""
    for text in re.split(r"^---\s*$", file.read_text(), flags=re.M):
        document = yaml.safe_load(text)
        if document and document["metadata"]["name"] in paths:
            write(draft / paths[document["metadata"]["name"]], text.strip() + "\n")


def _get(url: str, headers: dict[str, str]) -> tuple[urllib3.BaseHTTPResponse, str]:
    """Return the answer to a request for a publisher's file, and the address that sent it.

    The login of a mirror is for its own server, and no redirect leads from https to http.
    """
    first = address = releases.address(url)
    headers = headers | {"Accept-Encoding": "identity", "User-Agent": "ml-foundations"}
    for _ in range(_REDIRECTS + 1):
        is_of_mirror = _server(address) == _server(first)
        login = _login(first) if is_of_mirror else ""
        response = _pool(address).request(
            "GET",
            _without_login(address),
            headers=headers | ({"Authorization": login} if login else {}),
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=urllib3.Timeout(connect=_ANSWER_SECONDS, read=_SILENCE_SECONDS),
        )
        location = response.get_redirect_location()
        if not location:
            return response, address
        response.close()
        address = _redirected(address, location)
    raise _UnavailableError(f"redirected more than {_REDIRECTS} times")


def _redirected(address: str, location: str) -> str:
    """Return the address to which an answer from an address redirects."""
    try:
        target = urljoin(address, location)
        before = urlsplit(address).scheme
        after = urlsplit(target).scheme
    except ValueError:
        raise _UnavailableError("redirected to an invalid address") from None
    if after != "https" and (before, after) != ("http", "http"):
        raise _UnavailableError(f"redirected from {before} to {after}")
    return target


def _server(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _pool(address: str) -> urllib3.PoolManager:
    """Return a pool for an address. HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE apply."""
    scheme, server = _server(address)
    context = ssl.create_default_context()
    proxy = urllib.request.getproxies().get(scheme)
    if not proxy or urllib.request.proxy_bypass(server):
        return urllib3.PoolManager(ssl_context=context)
    if "//" not in proxy:
        proxy = f"http://{proxy}"
    try:
        login = _login(proxy)
        proxy = _without_login(proxy)
    except ValueError:
        raise _UnavailableError(_NO_PROXY) from None
    headers = {"Proxy-Authorization": login} if login else {}
    return urllib3.ProxyManager(proxy, ssl_context=context, proxy_headers=headers)


def _login(address: str) -> str:
    """Return the header for the user and password in an address; empty if it has none."""
    parts = urlsplit(address)
    if not parts.username:
        return ""
    login = unquote(f"{parts.username}:{parts.password or ''}")
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _without_login(address: str) -> str:
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()


def _shown(address: str) -> str:
    """Return an address without what may be secret: login and, as of signed addresses, query."""
    return _without_login(address).partition("?")[0]


def _reason(error: BaseException) -> str:
    """Return why a request failed, as words that follow the server's name."""
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, urllib3.exceptions.ProxyError):
        return _NO_PROXY
    if isinstance(cause, urllib3.exceptions.SSLError):
        return "cannot be reached (certificate not trusted, see SSL_CERT_FILE)"
    refused = urllib3.exceptions.NewConnectionError  # It is a TimeoutError, too.
    if isinstance(cause, urllib3.exceptions.TimeoutError) and not isinstance(cause, refused):
        return _NO_ANSWER
    return "cannot be reached"
