"""The embedded tls plugin: keys and certificates of the form that is asked for, made once."""

from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from ml_foundations.rehearsal.plugins.provider import CheckError, Resource, State
from ml_foundations.rehearsal.plugins.tls.provider import TlsProvider
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, Secret

from tests.support.cases import cases

PROVIDER = TlsProvider()


def resource(kind: str) -> Resource:
    return Resource("urn", f"tls:index/{kind[0].lower()}{kind[1:]}:{kind}", "r")


def made(kind: str, **inputs: object) -> State:
    checked = PROVIDER.check(resource(kind), {}, dict(inputs))
    state = PROVIDER.create(resource(kind), checked)
    assert PROVIDER.sdk[resource(kind).type].computed <= state.outputs.keys()
    return state


def private_pem(**inputs: object) -> str:
    return made("PrivateKey", **inputs).outputs["privateKeyPem"].value


def authority(**more: object) -> tuple[str, State]:
    pem = private_pem(algorithm="ECDSA", ecdsaCurve="P256")
    subject = {"commonName": "ca", "streetAddresses": ["a", "b"]}
    given = {"privateKeyPem": pem, "validityPeriodHours": 24, "subject": subject}
    signs = {"isCaCertificate": True, "allowedUses": ["cert_signing"]}
    return pem, made("SelfSignedCert", **(given | signs | more))


def public_key(**given: str) -> Properties:
    return PROVIDER.invoke("tls:index/getPublicKey:getPublicKey", given)


@pytest.mark.parametrize(
    ("inputs", "header", "ssh"),
    [
        ({"algorithm": "RSA"}, "RSA PRIVATE KEY", "ssh-rsa "),
        ({"algorithm": "ECDSA"}, "EC PRIVATE KEY", ""),
        ({"algorithm": "ECDSA", "ecdsaCurve": "P384"}, "EC PRIVATE KEY", "ecdsa-sha2-nistp384 "),
        ({"algorithm": "ED25519"}, "PRIVATE KEY", "ssh-ed25519 "),
    ],
)
def test_a_key_in_its_forms(inputs: Properties, header: str, ssh: str) -> None:
    outputs = made("PrivateKey", **inputs).outputs
    forms = ("privateKeyPem", "privateKeyPemPkcs8", "privateKeyOpenssh")
    secrets = [outputs[name] for name in forms]
    assert all(isinstance(secret, Secret) for secret in secrets), "a private key is told"
    pem, pkcs8, openssh = (secret.value for secret in secrets)
    assert pem.startswith(f"-----BEGIN {header}-----")
    assert pkcs8.startswith("-----BEGIN PRIVATE KEY-----")
    assert outputs["publicKeyOpenssh"].startswith(ssh)
    assert outputs["rsaBits"] == 2048
    found = [public_key(privateKeyPem=pem), public_key(privateKeyPem=pkcs8)]
    if ssh:
        assert outputs["publicKeyFingerprintMd5"].count(":") == 15
        found.append(public_key(privateKeyOpenssh=openssh))
    else:
        public = (outputs["publicKeyOpenssh"], outputs["publicKeyFingerprintSha256"])
        assert (openssh, *public) == ("", "", "")
    for key in found:
        assert key["algorithm"] == inputs["algorithm"]
        assert key["publicKeyPem"] == outputs["publicKeyPem"]


def test_a_certificate_that_an_authority_signs() -> None:
    key, ca = authority()
    names = {"dnsNames": ["a.example.com"], "ipAddresses": ["10.0.0.1"], "uris": ["spiffe://a"]}
    rsa = private_pem(algorithm="RSA")
    request = made("CertRequest", privateKeyPem=rsa, subject={"commonName": "a"}, **names)
    state = made(
        "LocallySignedCert",
        caPrivateKeyPem=key,
        caCertPem=ca.outputs["certPem"],
        certRequestPem=request.outputs["certRequestPem"],
        allowedUses=["digital_signature", "key_encipherment", "server_auth"],
        validityPeriodHours=8,
    )
    leaf, root = (
        x509.load_pem_x509_certificate(each.outputs["certPem"].encode()) for each in (state, ca)
    )

    def extension(kind: Any, certificate: x509.Certificate = leaf) -> Any:
        return certificate.extensions.get_extension_for_class(kind).value

    leaf.verify_directly_issued_by(root)
    assert leaf.subject.rfc4514_string() == "CN=a"
    assert leaf.issuer == root.subject
    assert root.subject.rfc4514_string() == "STREET=b,STREET=a,CN=ca"
    told = extension(x509.SubjectAlternativeName)
    assert (told.get_values_for_type(x509.DNSName), len(list(told))) == (["a.example.com"], 3)
    usage = extension(x509.KeyUsage)
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert [use._name for use in extension(x509.ExtendedKeyUsage)] == ["serverAuth"]
    assert not extension(x509.BasicConstraints).ca
    assert extension(x509.BasicConstraints, root).ca
    assert state.id == str(leaf.serial_number)
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).total_seconds() == 8 * 3600
    assert state.outputs["validityEndTime"] == leaf.not_valid_after_utc.isoformat()
    assert (state.outputs["caKeyAlgorithm"], request.outputs["keyAlgorithm"]) == ("ECDSA", "RSA")


def test_a_certificate_stays_until_it_changes_or_expires() -> None:
    key, ca = authority(setAuthorityKeyId=True)
    root = x509.load_pem_x509_certificate(ca.outputs["certPem"].encode())
    public = serialization.load_pem_private_key(key.encode(), None).public_key()
    assert root.public_key() == public
    assert root.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    about = resource("SelfSignedCert")
    longer = PROVIDER.diff(about, ca, ca.inputs | {"validityPeriodHours": 25})
    assert longer.replaces == ["validityPeriodHours"]
    later = ca.inputs | {"earlyRenewalHours": 2}
    assert PROVIDER.diff(about, ca, later).changed == ["earlyRenewalHours"]
    assert not PROVIDER.diff(about, ca, later).replaces
    updated = PROVIDER.update(about, ca, later)
    assert updated.outputs == ca.outputs | {"earlyRenewalHours": 2}
    assert PROVIDER.preview(about, ca, later)["certPem"] == ca.outputs["certPem"]


@pytest.mark.parametrize(
    ("kind", "inputs", "said"),
    cases("""
algorithm: [PrivateKey, {algorithm: DSA}, "algorithm: accepts only ECDSA, ED25519, RSA"]
curve: [PrivateKey, {algorithm: ECDSA, ecdsaCurve: P1}, "ecdsaCurve: accepts only P224"]
unknown: [PrivateKey, {algorithm: RSA, bits: 1}, "bits: .* has no property of this name"]
nested: [CertRequest, {privateKeyPem: x, subject: {name: a}},
  "subject.name: .*Did you mean commonName"]
use: [SelfSignedCert, {privateKeyPem: x, validityPeriodHours: 1, allowedUses: [tls]},
  "allowedUses: accepts only any"]
"""),
)
def test_what_the_package_does_not_take_is_refused(
    kind: str, inputs: Properties, said: str
) -> None:
    with pytest.raises(CheckError, match=said):
        PROVIDER.check(resource(kind), {}, inputs)


def test_what_cannot_be_made_is_one_sentence() -> None:
    key, ca = authority()
    none = "privateKeyPem is not a private key of RSA, ECDSA, ED25519"
    with pytest.raises(RehearsalError, match=none):
        made("CertRequest", privateKeyPem="x")
    with pytest.raises(RehearsalError, match="needs a subject"):
        authority(subject={})
    with pytest.raises(RehearsalError, match="PrivateKey: "):
        made("PrivateKey", algorithm="RSA", rsaBits=100)
    request = made("CertRequest", privateKeyPem=key).outputs["certRequestPem"]
    signed = {"certRequestPem": request, "caCertPem": ca.outputs["certPem"]}
    given = signed | {"allowedUses": [], "validityPeriodHours": 1}
    with pytest.raises(RehearsalError, match="is not the key of caCertPem"):
        made("LocallySignedCert", caPrivateKeyPem=private_pem(algorithm="ED25519"), **given)
    with pytest.raises(RehearsalError, match="privateKeyPem is not a private key"):
        public_key()
    with pytest.raises(RehearsalError, match="getCertificate: a rehearsal does not answer"):
        PROVIDER.invoke("tls:index/getCertificate:getCertificate", {"url": "https://example.com"})
