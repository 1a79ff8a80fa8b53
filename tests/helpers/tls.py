"""Certificates for a broker on loopback, made anew for each run."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CLIENT_PASSWORD = "opensesame"


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files.

    Args:
        ca: The authority's certificate, for clients.
        keystore: The broker's private key and certificate, for `SecureListener`.
        client: A client's private key, encrypted with `CLIENT_PASSWORD`, and its certificate.
    """

    ca: Path
    keystore: Path
    client: Path


def make_tls(folder: Path) -> Tls:
    """Make an authority and a broker's certificate for 127.0.0.1 and localhost."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = (
        _certificate("frazil test authority", ca_key, "frazil test authority")
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        _certificate("localhost", key, "frazil test authority")
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(_usage(key_cert_sign=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    sealed = serialization.BestAvailableEncryption(CLIENT_PASSWORD.encode())
    tls = Tls(ca=folder / "ca.pem", keystore=folder / "broker.pem", client=folder / "client.pem")
    tls.client.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, sealed) + certificate.public_bytes(pem)
    )
    tls.ca.write_bytes(ca.public_bytes(pem))
    tls.keystore.write_bytes(private + certificate.public_bytes(pem) + ca.public_bytes(pem))
    return tls


def _certificate(subject: str, key: ec.EllipticCurvePrivateKey, issuer: str) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )


def _usage(*, key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
