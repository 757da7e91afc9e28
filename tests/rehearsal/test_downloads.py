"""Downloads of tools from a web server on loopback that has the publishers' layout and real faults."""

import base64
import dataclasses
import ipaddress
import os
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from ml_foundations.rehearsal import cli
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools import doctor, downloads, releases
from ml_foundations.rehearsal.tools.groups import GROUPS, HELM, KUBERNETES, PULUMI
from ml_foundations.rehearsal.tools.manifest import is_verified
from ml_foundations.rehearsal.tools.releases import Release

from tests.support.mirror import Mirror, archive, serving

CONTENT = os.urandom(300_000)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no proxy of the user's."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(downloads, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ml-foundations" / "downloads"


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    with serving(Mirror()) as mirror:
        monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", mirror.address)
        yield mirror


@pytest.fixture
def release(mirror: Mirror) -> Release:
    sha256 = mirror.add("example.com/v1/tool", CONTENT)
    return Release("tool", "https://example.com/v1/tool", tools=("tool",), sha256=sha256)


def part_of(release: Release, content: bytes) -> None:
    """Leave a part of a download, as an interrupted one does."""
    part = release.target.with_name(f"{release.target.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(content)


def parts(cache: Path) -> list[int]:
    return [path.stat().st_size for path in cache.glob("*.part")]


def reason(release: Release) -> str:
    """Why a release is not available, by the only server that is asked."""
    [found] = downloads.download([release]).values()
    return found


def test_a_download_is_kept_and_recorded(mirror: Mirror, release: Release) -> None:
    assert downloads.download([release]) == {}
    assert release.tool.read_bytes() == CONTENT and os.access(release.tool, os.X_OK)
    record = downloads.record(release)
    assert record["bytes"] == len(CONTENT) and record["sha256"] == release.sha256
    assert record["url"] == f"{mirror.address}/example.com/v1/tool"
    assert downloads.download([release]) == {} and len(mirror.requests) == 1


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_cut_connection_is_resumed(
    mirror: Mirror, release: Release, cache: Path, has_ranges: bool
) -> None:
    mirror.cut_after, mirror.cuts, mirror.has_ranges = 100_000, 2, has_ranges
    assert downloads.download([release]) == {}
    assert release.tool.read_bytes() == CONTENT
    asked = [asked for _, asked in mirror.requests]
    assert asked[:2] == ["", "bytes=100000-"] and len(asked) == 3
    assert not parts(cache)


def test_an_interrupted_download_goes_on_in_the_next_run(
    mirror: Mirror, release: Release, cache: Path
) -> None:
    mirror.cut_after, mirror.cuts = 0, 99
    part_of(release, CONTENT[:200_000])
    assert reason(release) == "cannot be reached (any more)"
    assert parts(cache) == [200_000]
    mirror.cuts = 0
    mirror.requests.clear()
    assert downloads.download([release]) == {}
    assert mirror.requests == [("example.com/v1/tool", "bytes=200000-")]
    assert release.tool.read_bytes() == CONTENT


def test_a_kept_part_that_is_too_long_is_thrown_away(release: Release) -> None:
    part_of(release, CONTENT + b"more")
    assert downloads.download([release]) == {}
    assert release.tool.read_bytes() == CONTENT


def test_a_wrong_checksum_is_an_error_and_leaves_nothing(
    mirror: Mirror, release: Release, cache: Path
) -> None:
    mirror.files["example.com/v1/tool"] = b"x" + CONTENT[1:]
    with pytest.raises(RehearsalError, match=f"the pinned one is {release.sha256}"):
        downloads.download([release])
    assert not release.target.exists() and not parts(cache)


def test_a_file_that_is_not_there(mirror: Mirror, release: Release) -> None:
    mirror.files.clear()
    host = mirror.address.removeprefix("http://")
    sentence = downloads.sentence(downloads.download([release]))
    assert sentence == f"{host} did not send the tools (status 404)"


def test_others_go_on_without_a_server_that_refuses(mirror: Mirror, release: Release) -> None:
    lost = dataclasses.replace(release, name="lost", url="https://example.com/v1/lost")
    assert len(downloads.download([lost, release])) == 1
    assert is_verified(release.target) and not lost.target.exists()


def test_no_server(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setattr(downloads, "_ANSWER_SECONDS", 60)
        started = time.monotonic()
        unavailable = downloads.download([release] * 3)
        assert time.monotonic() - started < 60, "a refusal is an answer"
        assert list(unavailable.values()) == ["cannot be reached"]


def test_servers_without_an_answer_cost_five_seconds_once(
    mirror: Mirror, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_ANSWER_SECONDS", 2)
    mirror.silent_seconds = 60
    many = [dataclasses.replace(release, name=f"tool{number}") for number in range(10)]
    started = time.monotonic()
    unavailable = downloads.download(many)
    assert 2 < time.monotonic() - started < 10 * 2, "not one after the other"
    assert list(unavailable.values()) == ["cannot be reached (no answer within 5 s)"]


def test_a_slow_server_is_waited_for(
    mirror: Mirror, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_ANSWER_SECONDS", 4)
    mirror.chunk_seconds = 1
    assert downloads.download([release]) == {}
    assert downloads.record(release)["seconds"] > 4


def test_a_proxy_is_used_unless_no_proxy_names_the_server(
    mirror: Mirror, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", "http://tools.invalid")
    monkeypatch.setenv("http_proxy", mirror.address.replace("//", "//me:secret@"))
    assert downloads.download([release]) == {}
    assert release.tool.read_bytes() == CONTENT

    monkeypatch.setenv("no_proxy", "tools.invalid")
    direct = dataclasses.replace(release, name="direct")
    assert list(downloads.download([direct])) == ["tools.invalid"]


def test_a_proxy_that_is_dead(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ML_FOUNDATIONS_MIRROR")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    assert downloads.download([release]) == {
        "example.com": "cannot be reached (by the proxy in HTTPS_PROXY)"
    }


def test_a_redirect_is_followed_also_when_a_download_goes_on(
    mirror: Mirror, release: Release
) -> None:
    content = mirror.files.pop("example.com/v1/tool")
    with serving(Mirror({"signed": content}, cut_after=100_000, cuts=1)) as other:
        mirror.redirects["example.com/v1/tool"] = f"{other.address}/signed"
        assert downloads.download([release]) == {}
    assert other.requests == [("signed", ""), ("signed", "bytes=100000-")]
    assert release.tool.read_bytes() == CONTENT


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1, which signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mirror")])
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(addresses, critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("certificate") / "both.pem"
    formats = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(signed.public_bytes(Encoding.PEM) + key.private_bytes(*formats))
    return file


@pytest.fixture
def secure(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A mirror with TLS, which the client trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(Mirror(), certificate) as mirror:
        monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", mirror.address)
        yield mirror


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("http://{plain}/tool", "redirected from https to http"),
        ("HTTP://{plain}/tool", "redirected from https to http"),
        ("http://me:s3cr3t@{plain}/tool", "redirected from https to http"),
        ("ftp://{plain}/tool", "redirected from https to ftp"),
        ("file:///etc/hostname", "redirected from https to file"),
        ("http://[bad", "redirected to an invalid address"),
        ("https://[bad", "redirected to an invalid address"),
        ("https:///tool", "did not send the tools (status 404)"),
        ("https://a..b/tool", "cannot be reached"),
        ("https://{secure}/{path}", "redirected more than 5 times"),
        ("/{path}", "redirected more than 5 times"),
        ("https://{secure}/down", "redirected from https to http"),
    ],
)
def test_no_redirect_leads_from_https_to_another_scheme_or_on_and_on(
    mirror: Mirror, secure: Mirror, release: Release, form: str, reason: str
) -> None:
    plain, path = mirror.address.removeprefix("http://"), "example.com/v1/tool"
    mirror.add("tool", CONTENT)
    at = secure.address.removeprefix("https://")
    secure.redirects[path] = form.format(plain=plain, secure=at, path=path)
    secure.redirects["down"] = f"http://{plain}/tool"
    assert downloads.download([release]) == {at: reason}
    assert not mirror.requests and not release.target.exists()


def test_a_redirect_to_https_is_followed_and_its_address_is_recorded(
    mirror: Mirror, certificate: Path, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(Mirror({"b": CONTENT}), certificate) as other:
        mirror.redirects["example.com/v1/tool"] = "/a"
        mirror.redirects["a"] = f"{other.address}/b?signature=s3cr3t#s3cr3t"
        monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", mirror.address.replace("//", "//me:s3cr3t@"))
        assert downloads.download([release]) == {}
    assert downloads.record(release)["url"] == f"{other.address}/b"
    assert doctor._download(release).startswith("downloaded, 0 MB in ")
    assert f" from {other.address}/b, SHA-256 {release.sha256[:12]}…" in doctor._download(release)
    basic = f"Basic {base64.b64encode(b'me:s3cr3t').decode()}"
    assert mirror.logins == [basic, basic] and other.logins == [""]
    assert other.requests == [("b?signature=s3cr3t", "")]


def test_a_wrong_file_behind_a_redirect_names_its_address_without_its_signature(
    mirror: Mirror, release: Release
) -> None:
    with serving(Mirror({"b": b"other"})) as other:
        address = other.address.replace("//", "//me:s3cr3t@")
        mirror.redirects["example.com/v1/tool"] = f"{address}/b?signature=s3cr3t"
        with pytest.raises(RehearsalError, match=f"^{other.address}/b: the SHA-256 is "):
            downloads.download([release])


@pytest.mark.parametrize("kept", [0, 100])
@pytest.mark.parametrize("status", [302, 304, 401, 403, 407, 416, 429, 500, 503])
def test_each_status_is_one_sentence(
    mirror: Mirror, release: Release, status: int, kept: int
) -> None:
    mirror.status = status
    if kept:
        part_of(release, CONTENT[:kept])
    assert reason(release) == f"did not send the tools (status {status})"


@pytest.mark.parametrize("length", ["", "99999999999999999999", "many", "-1"])
def test_a_file_has_a_bound_and_its_length_may_be_anything(
    mirror: Mirror, release: Release, cache: Path, monkeypatch: pytest.MonkeyPatch, length: str
) -> None:
    monkeypatch.setattr(downloads, "_MOST_BYTES", 100_000)
    monkeypatch.setattr(downloads, "_CHUNK_BYTES", 1_000)
    mirror.headers, mirror.closes = {"Content-Length": length} if length else {}, True
    assert reason(release) == "sent more than 0 MB for one file"
    assert not parts(cache)


@pytest.mark.parametrize(
    "form",
    [
        "http://me:s3cr3t@[bad",
        "http://me:s3cr3t[@proxy.invalid",
        "me:s3cr3t@[bad",
        "socks5://me:s3cr3t@proxy.invalid",
        "http://me:s3cr3t@proxy.invalid:port",
        "http://me:s3/cr3t@proxy.invalid",
        "http://me:s3cr3t€@127.0.0.1:1",
        "http://me:s3cr3t\udcff@127.0.0.1:1",
    ],
)
def test_an_invalid_proxy_is_one_sentence_without_its_password(
    mirror: Mirror, release: Release, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", "http://tools.invalid")
    monkeypatch.setenv("http_proxy", form)
    sentence = downloads.sentence(downloads.download([release]))
    assert sentence.startswith("tools.invalid cannot be reached") and "s3" not in sentence


def test_an_authority_of_the_company_is_trusted_if_ssl_cert_file_names_it(
    release: Release, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Mirror({"example.com/v1/tool": CONTENT}), certificate) as mirror:
        monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", mirror.address)
        assert reason(release) == "cannot be reached (certificate not trusted, see SSL_CERT_FILE)"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert downloads.download([release]) == {}


LOGINS = (
    ("me:s3cr3t", "me:s3cr3t"),
    ("me:s3cr3t%2F%40%3A%3F%23%5B%25", "me:s3cr3t/@:?#[%"),
    ("me:s3cr3t@more", "me:s3cr3t@more"),
    ("me:s3cr3t:more", "me:s3cr3t:more"),
    ("me:s3cr3t%E2%82%AC", "me:s3cr3t€"),
    ("s3cr3t", "s3cr3t:"),
)
"""Users and passwords, as they are in an address, and as a server reads them."""


@pytest.mark.parametrize(("in_address", "login"), LOGINS)
def test_a_mirror_with_a_password_which_nothing_shows(
    mirror: Mirror, release: Release, monkeypatch: pytest.MonkeyPatch, in_address: str, login: str
) -> None:
    mirror.login = base64.b64encode(login.encode()).decode()
    assert reason(release) == "did not send the tools (status 401)"
    address = mirror.address.replace("//", f"//{in_address}@")
    monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", address)
    assert downloads.download([release]) == {}
    assert downloads.record(release)["url"] == f"{mirror.address}/example.com/v1/tool"
    mirror.files["example.com/v1/tool"] = b"other"
    with pytest.raises(RehearsalError, match=f"^{mirror.address}/example"):
        downloads.download([dataclasses.replace(release, name="again")])


def published(mirror: Mirror, file: str, content: bytes, **more: Any) -> Release:
    sha256 = mirror.add(f"example.com/{file}", content)
    return Release("pulumi", f"https://example.com/{file}", sha256=sha256, **more)


def test_only_the_named_files_of_an_archive_are_unpacked(mirror: Mirror) -> None:
    tools = {"pulumi": b"cli", "pulumi-language-python": b"host"}
    others = {"README": b"text", "deep/pulumi-x": b"", "../../pulumi-y": b"outside"}
    content = archive("pulumi", tools | others)
    names = ("pulumi", "pulumi-*")
    release = published(mirror, "p.tar.gz", content, folder="pulumi", tools=names)
    assert downloads.download([release]) == {}
    assert release.tool.read_bytes() == b"cli" and os.access(release.tool, os.X_OK)
    kept = {"download.json", "manifest.json", "verified.json", *tools}
    assert tools.keys() <= {path.name for path in release.target.iterdir()} <= kept
    assert not list(release.target.parent.parent.glob("pulumi-y"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (archive("other", {"pulumi": b"cli"}), "has no pulumi/pulumi"),
        (b"no archive", "cannot be unpacked"),
    ],
    ids=["other files", "no archive"],
)
def test_an_archive_without_the_tool_is_an_error(mirror: Mirror, content: bytes, said: str) -> None:
    release = published(mirror, "p.tar.gz", content, folder="pulumi", tools=("pulumi",))
    with pytest.raises(RehearsalError, match=said):
        downloads.download([release])
    assert not release.target.exists()


def test_stages_are_split(mirror: Mirror) -> None:
    text = "---\nkind: Stage\nmetadata:\n  name: a\n---\nkind: Stage\nmetadata:\n  name: b\n"
    release = published(mirror, "stages.yaml", text.encode(), documents={"b": "x/b.yaml"})
    assert downloads.download([release]) == {}
    assert [path.name for path in release.tool.rglob("*.yaml")] == ["b.yaml"]
    assert (release.tool / "x" / "b.yaml").read_text() == "kind: Stage\nmetadata:\n  name: b\n"


def test_a_mirror_that_the_command_fills_serves_a_download(
    mirror: Mirror, release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two transfers of one address would write the same file.
    mirror.add("example.com/v2/tool", CONTENT)
    other = dataclasses.replace(release, name="other", url="https://example.com/v2/tool")
    folder = tmp_path / "mirror"
    downloads.fill_mirror([release, other], folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    filled: dict[str, bytes | Path] = {str(path.relative_to(folder)): path for path in files}
    assert filled.keys() == {"example.com/v1/tool", "example.com/v2/tool"}
    with serving(Mirror(filled)) as second:
        monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", f"{second.address}/")
        assert downloads.download([release, other]) == {}
    assert release.tool.read_bytes() == CONTENT

    monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", "http://127.0.0.1:1")
    with pytest.raises(RehearsalError, match=r"127.0.0.1:1 cannot be reached. Check the network"):
        downloads.fill_mirror([other], tmp_path / "other")


def test_the_command_tools_fetch_fills_a_mirror_for_an_architecture(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*more: str) -> None:
        doctor.fetch(cli._parse(["tools", "fetch", "--to", str(tmp_path / "m"), *more]))

    pins: dict[str, str] = {}
    for group in GROUPS.values():
        for release in releases.of_group(group, "arm64"):
            pins[release.url] = mirror.add(releases.path_of(release.url), release.url.encode())
    monkeypatch.setattr(releases, "_PINS", pins)
    fetch("--arch", "arm64")
    for path, content in mirror.files.items():
        assert (tmp_path / "m" / path).read_bytes() == content
    version = KUBERNETES.pinned("k8s.io/kubernetes")
    assert (tmp_path / f"m/dl.k8s.io/release/{version}/bin/linux/arm64/kubectl").exists()
    assert len(mirror.requests) == len(pins) == 10

    fetch("--arch", "arm64")
    assert len(mirror.requests) == 10, "what is there is not downloaded again"

    monkeypatch.setattr(releases, "architecture", str)
    with pytest.raises(RehearsalError, match="Add --arch amd64 or --arch arm64"):
        fetch()


def test_two_commands_download_once(mirror: Mirror, release: Release) -> None:
    mirror.chunk_seconds = 0.1
    with ThreadPoolExecutor(2) as commands:
        assert list(commands.map(downloads.download, [[release]] * 2)) == [{}, {}]
    assert len(mirror.requests) == 1


INVALID_MIRRORS = (
    "{login}@mirror.example.com/tools",
    "{login}",
    "{login}@",
    "mirror.example.com/{login}",
    "ftp://{login}@mirror.example.com",
    "file://{login}@mirror.example.com",
    "http:{login}@mirror.example.com",
    "http:/{login}@mirror.example.com",
    "https:///{login}@mirror.example.com",
    "http://me:1/{password}@mirror.example.com",
    "http://{login}/more@mirror.example.com",
    "http://{login}?more@mirror.example.com",
    "http://{login}#more@mirror.example.com",
    "http://{login}\\more@mirror.example.com",
    "http://{login}@mirror.example.com?token=1",
    "http://{login}@[mirror",
    "http://{login}[@mirror.example.com",
    "http://{login}]@mirror.example.com",
    "http://{login}@mirror.example.com:port",
    "http://{login}@mirror.example.com:99999",
    "http://{login}@mirror.example.com:0",
    "http://{login}@:80",
    "http://{login}@mirror.example.com/a tool",
    "http://{login}@mirror.example.com/\n",
    "http://{login}\r@mirror.example.com",
    "http://{login}\x1b[31m@mirror.example.com",
    "http://{login}é@mirror.example.com",
    "http://{login}\udcff@mirror.example.com",
)


@pytest.mark.parametrize("form", [*INVALID_MIRRORS, "mirror.example.com", "//mirror.example.com"])
def test_an_invalid_mirror_is_refused_and_not_shown(
    release: Release, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    address = form.format(login="me:s3cr3t", password="s3cr3t")
    monkeypatch.setenv("ML_FOUNDATIONS_MIRROR", address)
    with pytest.raises(RehearsalError) as error:
        downloads.download([release])
    assert str(error.value) == (
        "ML_FOUNDATIONS_MIRROR is not an address. Set it to one such as "
        "https://mirror.example.com/tools; in a password, write / as %2F, @ as %40, and so on"
    )


@pytest.mark.parametrize("arch", ("amd64", "arm64"))
def test_each_tool_has_a_release_whose_checksum_is_pinned(arch: str) -> None:
    for group in (KUBERNETES, HELM, PULUMI):
        table = {release.name: release for release in releases.of_group(group, arch)}
        wanted = set(group.provided) if group is not PULUMI else {"pulumi"}
        assert table.keys() == wanted
        for release in table.values():
            assert release.url.startswith("https://") and "{" not in release.url + release.folder
            assert re.fullmatch("[0-9a-f]{64}", release.sha256)


def test_each_pin_is_of_a_file_that_is_downloaded() -> None:
    urls: set[str] = set()
    for arch in ("amd64", "arm64"):
        for group in GROUPS.values():
            urls |= {release.url for release in releases.of_group(group, arch)}
    assert releases._PINS.keys() <= urls
