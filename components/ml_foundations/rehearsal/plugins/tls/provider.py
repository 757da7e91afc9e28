"""Keys and certificates, as pulumi-tls has them.

Source: the schema of pulumi-tls, and the Terraform provider behind it. Nothing is renewed before it ends.
"""

import base64
import hashlib
import ipaddress
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.plugins.generated_values import StatelessProvider
from ml_foundations.rehearsal.plugins.provider import CheckError, Resource
from ml_foundations.rehearsal.plugins.sdk import Sdk
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, Secret

_Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_ALGORITHMS = {
    "RSA": rsa.RSAPrivateKey,
    "ECDSA": ec.EllipticCurvePrivateKey,
    "ED25519": ed25519.Ed25519PrivateKey,
}
_CURVES = {"P224": ec.SECP224R1, "P256": ec.SECP256R1, "P384": ec.SECP384R1, "P521": ec.SECP521R1}
_USES, _EXTENDED_USES, _SUBJECT = json.loads(
    Path(__file__).with_name("names.json").read_text()
).values()
"""Uses of a key by the library's names; extended uses and parts of a subject by their object identifiers (RFC 5280)."""
_TAKES = {"algorithm": _ALGORITHMS, "ecdsaCurve": _CURVES, "allowedUses": _USES | _EXTENDED_USES}


class TlsProvider(StatelessProvider):
    """Private keys, and what is signed with them."""

    sdk: ClassVar[Sdk] = Sdk("tls")
    changes_in_place: ClassVar[frozenset[str]] = frozenset(("earlyRenewalHours",))

    def invoke(self, function: str, arguments: Properties) -> Properties:
        """The public key of a private one."""
        if function != "tls:index/getPublicKey:getPublicKey":
            return super().invoke(function, arguments)
        key = _read_key(arguments, next(iter(arguments), "privateKeyPem"))
        identity, outputs = _public(key)
        return arguments | outputs | {"algorithm": _algorithm(key), "id": identity}

    def check(
        self, resource: Resource, old: Properties, new: Properties, seed: bytes
    ) -> Properties:
        """Refuse values that the package does not take, too."""
        for name, known in _TAKES.items():
            given = new.get(name, [])
            if any(
                value not in [*known, UNKNOWN]
                for value in (given if isinstance(given, list) else [given])
            ):
                raise CheckError([(name, f"takes {', '.join(sorted(known))}")])
        return super().check(resource, old, new, seed)

    def make(self, kind: str, given: Properties) -> tuple[str, Properties]:
        """A key, a request or a certificate."""
        try:
            return {"CertRequest": _request, "PrivateKey": _private_key}.get(kind, _certificate)(
                given
            )
        except (TypeError, ValueError) as error:
            raise RehearsalError(f"{kind}: {error}") from None


def _private_key(given: Properties) -> tuple[str, Properties]:
    bits, curve = int(given.get("rsaBits") or 2048), given.get("ecdsaCurve") or "P224"
    usual = form.PrivateFormat.TraditionalOpenSSL
    match given["algorithm"]:
        case "RSA":
            key = rsa.generate_private_key(65537, bits)
        case "ECDSA":
            key = ec.generate_private_key(_CURVES[curve]())
        case _:
            key, usual = ed25519.Ed25519PrivateKey.generate(), form.PrivateFormat.PKCS8
    identity, public = _public(key)
    forms = {"privateKeyPem": usual, "privateKeyPemPkcs8": form.PrivateFormat.PKCS8}
    forms |= {"privateKeyOpenssh": form.PrivateFormat.OpenSSH} if public["publicKeyOpenssh"] else {}
    private = {
        name: key.private_bytes(form.Encoding.PEM, of, form.NoEncryption())
        for name, of in forms.items()
    }
    hidden = {
        name: Secret(text.decode()) for name, text in ({"privateKeyOpenssh": b""} | private).items()
    }
    return identity, {"rsaBits": bits, "ecdsaCurve": curve} | hidden | public


def _request(given: Properties) -> tuple[str, Properties]:
    key = _read_key(given, "privateKeyPem")
    made = _requested(given, key)
    pem, der = (made.public_bytes(encoding) for encoding in (form.Encoding.PEM, form.Encoding.DER))
    return _sha1(der), {"certRequestPem": pem.decode(), "keyAlgorithm": _algorithm(key)}


def _requested(given: Properties, key: _Key) -> x509.CertificateSigningRequest:
    parts = {
        name: [part] if isinstance(part, str) else part
        for name, part in (given.get("subject") or {}).items()
    }
    pairs = [
        (x509.ObjectIdentifier(_SUBJECT[name]), text)
        for name, texts in parts.items()
        for text in texts
    ]
    builder = x509.CertificateSigningRequestBuilder(
        x509.Name([x509.NameAttribute(*pair) for pair in pairs])
    )
    names: list[x509.GeneralName] = [
        *map(x509.DNSName, given.get("dnsNames") or ()),
        *(x509.IPAddress(ipaddress.ip_address(text)) for text in given.get("ipAddresses") or ()),
        *map(x509.UniformResourceIdentifier, given.get("uris") or ()),
    ]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, _digest(key))


def _certificate(given: Properties) -> tuple[str, Properties]:
    """A certificate by one's own key, or of what was requested by an authority's; RFC 5280 names the extensions."""
    is_requested = "caCertPem" in given
    key = _read_key(given, "caPrivateKeyPem" if is_requested else "privateKeyPem")
    request = (
        x509.load_pem_x509_csr(given["certRequestPem"].encode())
        if is_requested
        else _requested(given, key)
    )
    issuer = (
        x509.load_pem_x509_certificate(given["caCertPem"].encode()) if is_requested else request
    )
    if issuer.public_key() != key.public_key():
        raise ValueError("caPrivateKeyPem is not the key of caCertPem")
    is_authority, uses = bool(given.get("isCaCertificate")), given["allowedUses"]
    if is_authority and not list(request.subject):
        raise ValueError("the certificate of an authority needs a subject")
    start = datetime.now(UTC).replace(microsecond=0)
    end, number = start + timedelta(hours=given["validityPeriodHours"]), x509.random_serial_number()
    builder = x509.CertificateBuilder(
        issuer.subject, request.subject, request.public_key(), number, start, end
    )
    constraints = x509.BasicConstraints(
        is_authority, given.get("maxPathLength") if is_authority else None
    )
    builder = builder.add_extension(constraints, critical=True)
    if any(use in _USES for use in uses):
        usage = x509.KeyUsage(**{name: use in uses for use, name in _USES.items()})
        builder = builder.add_extension(usage, critical=True)
    extensions: list[x509.ExtensionType] = [extension.value for extension in request.extensions]
    if extended := [
        x509.ObjectIdentifier(_EXTENDED_USES[use]) for use in uses if use in _EXTENDED_USES
    ]:
        extensions.append(x509.ExtendedKeyUsage(extended))
    if is_authority or given.get("setSubjectKeyId"):
        extensions.append(x509.SubjectKeyIdentifier.from_public_key(request.public_key()))
    if is_requested or given.get("setAuthorityKeyId"):
        extensions.append(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    outputs = {
        "certPem": builder.sign(key, _digest(key)).public_bytes(form.Encoding.PEM).decode(),
        "caKeyAlgorithm" if is_requested else "keyAlgorithm": _algorithm(key),
        "readyForRenewal": False,
        "validityEndTime": end.isoformat(),
        "validityStartTime": start.isoformat(),
    }
    return str(number), {"earlyRenewalHours": 0, "isCaCertificate": False} | given | outputs


def _read_key(given: Properties, name: str) -> _Key:
    text = str(given.get(name))
    load = form.load_ssh_private_key if "OPENSSH" in text else form.load_pem_private_key
    try:
        key = load(text.encode(), None)
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, _Key):
        raise RehearsalError(f"{name} is no private key of {', '.join(_ALGORITHMS)}")
    return key


def _algorithm(key: _Key) -> str:
    return next(name for name, kind in _ALGORITHMS.items() if isinstance(key, kind))


def _digest(key: _Key) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def _public(key: _Key) -> tuple[str, Properties]:
    """The id and the outputs of a public key; of a curve that OpenSSH lacks, those for OpenSSH are empty."""
    public, ssh, md5, sha256 = key.public_key(), "", "", ""
    if not (isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp224r1"):
        ssh = public.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH).decode() + "\n"
        blob = base64.b64decode(ssh.split()[1])
        md5 = hashlib.md5(blob, usedforsecurity=False).digest().hex(":")
        sha256 = "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    info = form.PublicFormat.SubjectPublicKeyInfo
    pem, der = (
        public.public_bytes(encoding, info) for encoding in (form.Encoding.PEM, form.Encoding.DER)
    )
    prints = {"publicKeyFingerprintMd5": md5, "publicKeyFingerprintSha256": sha256}
    return _sha1(der), {"publicKeyOpenssh": ssh, "publicKeyPem": pem.decode(), **prints}


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
