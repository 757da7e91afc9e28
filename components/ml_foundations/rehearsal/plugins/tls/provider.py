"""Keys and certificates, as those of pulumi-tls.

Source: the schema of pulumi-tls, and the Terraform provider behind it. No certificate is renewed.
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
_NAMES = json.loads(Path(__file__).with_name("names.json").read_text())
_USES, _EXTENDED_USES, _SUBJECT = _NAMES.values()
"""Key uses by their names in ``cryptography``; other names' object identifiers (RFC 5280)."""
_ALLOWED = {"algorithm": _ALGORITHMS, "ecdsaCurve": _CURVES, "allowedUses": _USES | _EXTENDED_USES}


class TlsProvider(StatelessProvider):
    """A provider of private keys, certificate requests and certificates."""

    sdk: ClassVar[Sdk] = Sdk("tls")
    changes_in_place: ClassVar[frozenset[str]] = frozenset(("earlyRenewalHours",))

    def invoke(self, function: str, arguments: Properties) -> Properties:
        """Return the public key of a private one."""
        if function != "tls:index/getPublicKey:getPublicKey":
            return super().invoke(function, arguments)
        key = _read_key(arguments, next(iter(arguments), "privateKeyPem"))
        identity, outputs = _public_outputs(key)
        return arguments | outputs | {"algorithm": _algorithm(key), "id": identity}

    def check(self, resource: Resource, old: Properties, new: Properties) -> Properties:
        """Refuse values, types and inputs that the package does not have."""
        for name, allowed in _ALLOWED.items():
            value = new.get(name, [])
            for item in value if isinstance(value, list) else [value]:
                if item is not UNKNOWN and item not in list(allowed):
                    raise CheckError((name, f"accepts only {', '.join(sorted(allowed))}"))
        return super().check(resource, old, new)

    def generate(self, kind: str, inputs: Properties) -> tuple[str, Properties]:
        """Return a key, a request or a certificate."""
        generators = {"CertRequest": _certificate_request, "PrivateKey": _private_key}
        try:
            return generators.get(kind, _certificate)(inputs)
        except (TypeError, ValueError) as error:
            raise RehearsalError(f"{kind}: {error}") from None


def _private_key(inputs: Properties) -> tuple[str, Properties]:
    bits = int(inputs.get("rsaBits") or 2048)
    curve = inputs.get("ecdsaCurve") or "P224"
    pem_format = form.PrivateFormat.TraditionalOpenSSL
    match inputs["algorithm"]:
        case "RSA":
            key = rsa.generate_private_key(65537, bits)
        case "ECDSA":
            key = ec.generate_private_key(_CURVES[curve]())
        case _:
            key = ed25519.Ed25519PrivateKey.generate()
            pem_format = form.PrivateFormat.PKCS8
    identity, public = _public_outputs(key)
    has_openssh = bool(public["publicKeyOpenssh"])
    private = {
        "privateKeyOpenssh": _pem(key, form.PrivateFormat.OpenSSH) if has_openssh else Secret(""),
        "privateKeyPem": _pem(key, pem_format),
        "privateKeyPemPkcs8": _pem(key, form.PrivateFormat.PKCS8),
    }
    return identity, {"rsaBits": bits, "ecdsaCurve": curve, **private, **public}


def _pem(key: _Key, private_format: form.PrivateFormat) -> Secret:
    pem = key.private_bytes(form.Encoding.PEM, private_format, form.NoEncryption())
    return Secret(pem.decode())


def _certificate_request(inputs: Properties) -> tuple[str, Properties]:
    key = _read_key(inputs, "privateKeyPem")
    request = _sign_request(inputs, key)
    pem = request.public_bytes(form.Encoding.PEM).decode()
    identity = _sha1(request.public_bytes(form.Encoding.DER))
    return identity, {"certRequestPem": pem, "keyAlgorithm": _algorithm(key)}


def _sign_request(inputs: Properties, key: _Key) -> x509.CertificateSigningRequest:
    """Return a signed request for the subject and the alternative names of the inputs."""
    attributes: list[x509.NameAttribute[str]] = []
    for part, value in (inputs.get("subject") or {}).items():
        for text in [value] if isinstance(value, str) else value:
            attributes.append(x509.NameAttribute(x509.ObjectIdentifier(_SUBJECT[part]), text))
    builder = x509.CertificateSigningRequestBuilder(x509.Name(attributes))
    addresses = map(ipaddress.ip_address, inputs.get("ipAddresses") or ())
    names: list[x509.GeneralName] = [
        *map(x509.DNSName, inputs.get("dnsNames") or ()),
        *map(x509.IPAddress, addresses),
        *map(x509.UniformResourceIdentifier, inputs.get("uris") or ()),
    ]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, _digest(key))


def _certificate(inputs: Properties) -> tuple[str, Properties]:
    """Return a certificate: self-signed, or signed by the authority that the inputs name."""
    has_authority = "caCertPem" in inputs
    if has_authority:
        key = _read_key(inputs, "caPrivateKeyPem")
        request = x509.load_pem_x509_csr(inputs["certRequestPem"].encode())
        issuer = x509.load_pem_x509_certificate(inputs["caCertPem"].encode())
        if issuer.public_key() != key.public_key():
            raise ValueError("caPrivateKeyPem is not the key of caCertPem")
    else:
        key = _read_key(inputs, "privateKeyPem")
        request = issuer = _sign_request(inputs, key)
    if inputs.get("isCaCertificate") and not list(request.subject):
        raise ValueError("the certificate of an authority needs a subject")
    start = datetime.now(UTC).replace(microsecond=0)
    end = start + timedelta(hours=inputs["validityPeriodHours"])
    # The serial number is the id of a certificate, as in the Terraform provider.
    number = x509.random_serial_number()
    builder = x509.CertificateBuilder(
        issuer.subject, request.subject, request.public_key(), number, start, end
    )
    for extension, is_critical in _extensions(inputs, request, key):
        builder = builder.add_extension(extension, critical=is_critical)
    outputs = {
        "certPem": builder.sign(key, _digest(key)).public_bytes(form.Encoding.PEM).decode(),
        "caKeyAlgorithm" if has_authority else "keyAlgorithm": _algorithm(key),
        "readyForRenewal": False,
        "validityEndTime": end.isoformat(),
        "validityStartTime": start.isoformat(),
    }
    return str(number), {"earlyRenewalHours": 0, "isCaCertificate": False} | inputs | outputs


def _extensions(
    inputs: Properties, request: x509.CertificateSigningRequest, key: _Key
) -> list[tuple[x509.ExtensionType, bool]]:
    """Return the extensions of a certificate (RFC 5280), each with whether it is critical."""
    is_authority = bool(inputs.get("isCaCertificate"))
    uses = inputs["allowedUses"]
    path_length = inputs.get("maxPathLength") if is_authority else None
    extensions = list[tuple[x509.ExtensionType, bool]]()
    extensions.append((x509.BasicConstraints(is_authority, path_length), True))
    if not _USES.keys().isdisjoint(uses):
        flags = {name: use in uses for use, name in _USES.items()}
        extensions.append((x509.KeyUsage(**flags), True))
    # An authority copies what the request asks for, such as its alternative names.
    extensions += [(requested.value, False) for requested in request.extensions]
    extended = filter(None, map(_EXTENDED_USES.get, uses))
    if identifiers := list(map(x509.ObjectIdentifier, extended)):
        extensions.append((x509.ExtendedKeyUsage(identifiers), False))
    if is_authority or inputs.get("setSubjectKeyId"):
        subject_key = x509.SubjectKeyIdentifier.from_public_key(request.public_key())
        extensions.append((subject_key, False))
    if "caCertPem" in inputs or inputs.get("setAuthorityKeyId"):
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        extensions.append((authority_key, False))
    return extensions


def _read_key(inputs: Properties, name: str) -> _Key:
    text = str(inputs.get(name))
    load = form.load_ssh_private_key if "OPENSSH" in text else form.load_pem_private_key
    try:
        key = load(text.encode(), None)
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, _Key):
        raise RehearsalError(f"{name} is not a private key of {', '.join(_ALGORITHMS)}")
    return key


def _algorithm(key: _Key) -> str:
    return next(name for name, kind in _ALGORITHMS.items() if isinstance(key, kind))


def _digest(key: _Key) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def _public_outputs(key: _Key) -> tuple[str, Properties]:
    """Return the id and the outputs of a public key."""
    public_key = key.public_key()
    info = form.PublicFormat.SubjectPublicKeyInfo
    outputs = {"publicKeyPem": public_key.public_bytes(form.Encoding.PEM, info).decode()}
    names = ("publicKeyOpenssh", "publicKeyFingerprintMd5", "publicKeyFingerprintSha256")
    outputs |= dict.fromkeys(names, "")
    # OpenSSH does not know the curve P224, so that these outputs are empty for it.
    if not (isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp224r1"):
        line = public_key.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH).decode()
        md5 = form.ssh_key_fingerprint(public_key, hashes.MD5()).hex(":")
        sha256 = base64.b64encode(form.ssh_key_fingerprint(public_key, hashes.SHA256())).decode()
        outputs |= zip(names, (f"{line}\n", md5, f"SHA256:{sha256.rstrip('=')}"), strict=True)
    return _sha1(public_key.public_bytes(form.Encoding.DER, info)), outputs


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
