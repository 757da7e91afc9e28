"""Downloads of the publishers' binaries: parallel, resumed after a cut connection, and checked.

Each file has a thread. A thread that waits for a name server cannot be interrupted, so the threads
are daemons, and the caller goes on without those that get no answer.
"""

import re
import ssl
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

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
_CHUNK_BYTES = 2**18
_FREE_BYTES = 2 * 1024**3
"""The space that the downloads need at most, with the unpacked archives."""
_RECORD = "download.json"
_NO_ANSWER = f"cannot be reached (no answer within {_ANSWER_SECONDS} s)"


class _UnavailableError(Exception):
    """A server has not sent a file. The text follows the server's name."""


class _Transfer(threading.Thread):
    """A thread that gets one file and checks it."""

    def __init__(self, release: Release, part: Path, finish: Callable[["_Transfer"], None]) -> None:
        super().__init__(name=release.name, daemon=True)
        self.release = release
        self.part = part
        self.host = urlsplit(releases.address(release.url)).netloc.rpartition("@")[2]
        self.received = self.total = 0
        self.sha256 = ""
        self.seconds = 0.0
        self.has_answer = self.is_cancelled = False
        self.unavailable = ""
        self.error: BaseException | None = None
        self._finish = finish

    def run(self) -> None:
        """Get the file. The caller reads ``unavailable`` and ``error`` afterwards."""
        started = time.monotonic()
        try:
            self.sha256 = self.release.sha256 or self._published()
            self._receive()
            self._check()
            self.seconds = time.monotonic() - started
            self._finish(self)
        except _UnavailableError as error:
            self.unavailable = str(error)
        except BaseException as error:
            self.error = error

    def _published(self) -> str:
        """Return the SHA-256 in the publisher's file of checksums."""
        text = get_text(self.release.checksums)
        self.has_answer = True
        name = self.release.url.rpartition("/")[2]
        found = re.search(rf"^([0-9a-f]{{64}})(?:\s+\*?(?:\./)?{re.escape(name)})?\s*$", text, re.M)
        if not found:
            raise RehearsalError(
                f"{_shown(self.release.checksums)} has no SHA-256 of {name}. {_FIX}"
            )
        return found[1]

    def _receive(self) -> None:
        idle = 0
        while not (self.part.exists() and fingerprint(self.part) == self.sha256):
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
        with _get(self.release.url, headers) as response:
            self.has_answer = True
            self._require_wanted()
            if response.status == 416:  # The file is shorter than what an earlier run has kept.
                self.part.unlink()
                return False
            _require_success(response.status)
            if response.status != 206:
                start = 0
            self.received = start
            self.total = start + int(response.headers.get("Content-Length") or 0)
            with self.part.open("ab" if start else "wb") as file:
                for chunk in response.stream(_CHUNK_BYTES, decode_content=False):
                    self._require_wanted()
                    file.write(chunk)
                    self.received += len(chunk)
        return True

    def _require_wanted(self) -> None:
        if self.is_cancelled:
            raise _UnavailableError("is no longer needed")

    def _check(self) -> None:
        self._require_wanted()
        self.received = self.total = self.part.stat().st_size
        actual = fingerprint(self.part)
        if actual != self.sha256:
            self.part.unlink()
            source = "the pinned one" if self.release.sha256 else "the publisher's"
            raise RehearsalError(
                f"{_shown(self.release.url)}: the SHA-256 is {actual}, and {source} is "
                f"{self.sha256}. {_FIX}"
            )


_FIX = (
    "Check the mirror or the proxy that sent it, then run the same command again, or build the "
    "tools from source: ML_FOUNDATIONS_TOOLS=build"
)


def download(wanted: Sequence[Release]) -> dict[str, str]:
    """Download releases to the cache. Return the servers that have not sent theirs, and why.

    Raises:
        RehearsalError: a checksum is wrong, or the disk is full.
    """
    folder = cache_dir() / "downloads"
    with locked(folder, "downloads", "another command is downloading the tools"):
        missing = [release for release in wanted if not is_verified(release.target)]
        if not missing:
            return {}
        fix = "Free some, or set XDG_CACHE_HOME to a folder on a larger disk"
        require_free_space(folder, _FREE_BYTES, f"to download the tools. {fix}")
        transfers: list[_Transfer] = []
        for release in missing:
            part = release.target.with_name(f"{release.target.name}.part")
            transfers.append(_Transfer(release, part, _install))
        return _run(transfers)


def fill_mirror(wanted: Sequence[Release], folder: Path) -> None:
    """Download releases and their checksums to a folder, in the layout of a mirror.

    Raises:
        RehearsalError: a server cannot be reached, or a checksum is wrong.
    """
    transfers: list[_Transfer] = []
    for release in wanted:
        path = folder / release.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (release.sha256 and path.exists() and fingerprint(path) == release.sha256):
            part = path.with_name(f"{path.name}.part")
            transfers.append(_Transfer(release, part, lambda each: _keep(each, folder)))
    if unavailable := _run(transfers):
        raise RehearsalError(f"{sentence(unavailable)}. Check the network, then run it again")


def record(release: Release) -> dict[str, Any]:
    """Return what is known of a finished download: its SHA-256, bytes and seconds."""
    return read_json(release.target / _RECORD, {})


def sentence(unavailable: Mapping[str, str]) -> str:
    """Return which servers have not sent their files, and why."""
    hosts: dict[str, list[str]] = {}
    for host, reason in unavailable.items():
        hosts.setdefault(reason, []).append(host)
    return ", ".join(f"{listed(names)} {reason}" for reason, names in hosts.items())


def get_text(url: str) -> str:
    """Return a short text of a publisher or of the user's mirror."""
    try:
        with _get(url, {}) as response:
            _require_success(response.status)
            return response.read(2**20).decode(errors="replace")
    except urllib3.exceptions.HTTPError as error:
        raise _UnavailableError(_reason(error)) from None


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
                "url": _shown(release.url),
                "sha256": transfer.sha256,
                "is_pinned": bool(release.sha256),
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


def _keep(transfer: _Transfer, folder: Path) -> None:
    """Put a checked file into a mirror, next to the publisher's file of checksums."""
    release = transfer.release
    transfer.part.replace(folder / release.path)
    if release.checksums and not release.sha256:
        write(folder / releases.path_of(release.checksums), get_text(release.checksums), mode=0o644)


def _get(url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
    address = releases.address(url)
    headers = headers | {"Accept-Encoding": "identity", "User-Agent": "ml-foundations"}
    if login := _login(address):
        headers |= urllib3.make_headers(basic_auth=login)
    return _pool(address).request(
        "GET",
        address,
        headers=headers,
        preload_content=False,
        retries=urllib3.Retry(total=5, connect=0, read=0, other=0, status=0, redirect=5),
        timeout=urllib3.Timeout(connect=_ANSWER_SECONDS, read=_SILENCE_SECONDS),
    )


def _pool(address: str) -> urllib3.PoolManager:
    """Return a pool for an address. HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE apply."""
    parts = urlsplit(address)
    context = ssl.create_default_context()
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return urllib3.PoolManager(ssl_context=context)
    if "//" not in proxy:
        proxy = f"http://{proxy}"
    login = _login(proxy)
    headers = urllib3.make_headers(proxy_basic_auth=login) if login else {}
    return urllib3.ProxyManager(proxy, ssl_context=context, proxy_headers=headers)


def _login(address: str) -> str:
    """Return the user and password in an address; empty if it has none."""
    parts = urlsplit(address)
    return unquote(f"{parts.username}:{parts.password or ''}") if parts.username else ""


def _shown(url: str) -> str:
    """Return the address of a publisher's file without the user's password."""
    return re.sub("//[^/]*@", "//", releases.address(url))


def _require_success(status: int) -> None:
    if status not in (200, 206):
        raise _UnavailableError(f"did not send the tools (status {status})")


def _reason(error: BaseException) -> str:
    """Return why a request failed, as words that follow the server's name."""
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, urllib3.exceptions.ProxyError):
        return "cannot be reached (by the proxy in HTTPS_PROXY)"
    if isinstance(cause, urllib3.exceptions.SSLError):
        return "cannot be reached (certificate not trusted, see SSL_CERT_FILE)"
    refused = urllib3.exceptions.NewConnectionError  # It is a TimeoutError, too.
    if isinstance(cause, urllib3.exceptions.TimeoutError) and not isinstance(cause, refused):
        return _NO_ANSWER
    return "cannot be reached"
