"""Security of Kafka connections: one block of the settings, translated to the options of every client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import PlainSerializer, PlainValidator, model_validator

from jobs.errors import FrazilError
from jobs.spec.base import Flag, LocalPath, Location, SpecModel, problems_at
from jobs.spec.secrets import Secret, reveal, text_or_secret

# A user may come from the environment as well: hosted brokers' users are generated API keys.
TextOrSecret = Annotated[str | Secret, PlainValidator(text_or_secret), PlainSerializer(str, return_type=str)]

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class KafkaSecurity(SpecModel):
    """The block ``kafka.security`` of the settings.

    Args:
        protocol: How the connection is encrypted and authenticated.
        mechanism, user, password: For the SASL protocols; all three are required there and refused elsewhere.
        ca: PEM file of the authorities that sign the broker's certificate; without it the client's own list is used.
        certificate, key, key_password: The client's certificate (mutual TLS), as PEM files; ``key`` may be left out if
            ``certificate`` holds both. Java reads only PKCS#8 keys (``BEGIN PRIVATE KEY``).
        verify_hostname: Whether the broker's certificate must be for the host that was connected to.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    user: TextOrSecret | None = None
    password: Secret | None = None
    ca: LocalPath | None = None
    certificate: LocalPath | None = None
    key: LocalPath | None = None
    key_password: Secret | None = None
    verify_hostname: Flag = True

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Those of its values that are references."""
        return tuple(v for v in (self.user, self.password, self.key_password) if isinstance(v, Secret))

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @model_validator(mode="after")
    def _fields_fit_the_protocol(self) -> KafkaSecurity:
        if problems := list(self._misfits()):
            raise problems_at(problems)
        return self

    def _misfits(self) -> Iterator[tuple[Location, str]]:
        for name in ("mechanism", "user", "password"):
            if self.uses_sasl and getattr(self, name) in (None, ""):
                yield (name,), f"is required for the protocol {self.protocol}"
            if not self.uses_sasl and getattr(self, name) is not None:
                yield (name,), f"is not used by the protocol {self.protocol}; did you mean SASL_{self.protocol}?"
        if not self.uses_tls:
            for name in ("ca", "certificate", "key", "key_password"):
                if getattr(self, name) is not None:
                    yield (name,), f"is not used by the protocol {self.protocol}, which does not encrypt"
        elif self.certificate is None:
            for name in ("key", "key_password"):
                if getattr(self, name) is not None:
                    yield (name,), "needs a certificate beside it"


def librdkafka_options(security: KafkaSecurity | None) -> dict[str, str]:
    """Translates to librdkafka's options (consumer, producer and admin client of confluent-kafka).

    The result holds secrets in the clear: hand it to the client, and nothing else.

    Raises:
        FrazilError: If a secret's environment variable is not set.
    """
    if security is None:
        return {}
    options = {"security.protocol": security.protocol}
    if security.uses_sasl:
        options["sasl.mechanism"] = str(security.mechanism)
        options["sasl.username"] = reveal(security.user or "")
        options["sasl.password"] = reveal(security.password or "")
    if security.uses_tls:
        options["ssl.endpoint.identification.algorithm"] = "https" if security.verify_hostname else "none"
        if security.ca:
            options["ssl.ca.location"] = str(security.ca)
        if security.certificate:
            options["ssl.certificate.location"] = str(security.certificate)
            options["ssl.key.location"] = str(security.key or security.certificate)
        if security.key_password:
            options["ssl.key.password"] = security.key_password.reveal()
    return options


def java_options(security: KafkaSecurity | None) -> dict[str, str]:
    """Translates to the options of Kafka's Java client; for Spark's source, put ``kafka.`` before each.

    The result holds secrets in the clear: hand it to the client, and nothing else. A certificate and key in two files
    are read here, since Java takes them from one file or as text only.

    Raises:
        FrazilError: If a secret's environment variable is not set, or a certificate or key cannot be read or used.
    """
    if security is None:
        return {}
    options = {"security.protocol": security.protocol}
    if security.uses_sasl:
        mechanism = str(security.mechanism)
        user, password = jaas_quoted(reveal(security.user or "")), jaas_quoted(reveal(security.password or ""))
        options["sasl.mechanism"] = mechanism
        options["sasl.jaas.config"] = f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
    if security.uses_tls:
        # Java turns the check off with an empty text, librdkafka with `none`.
        options["ssl.endpoint.identification.algorithm"] = "https" if security.verify_hostname else ""
        if security.ca:
            options["ssl.truststore.type"] = "PEM"
            options["ssl.truststore.location"] = str(security.ca)
        if security.certificate:
            options |= _java_keystore(security.certificate, security.key)
        if security.key_password:
            options["ssl.key.password"] = security.key_password.reveal()
    return options


def _java_keystore(certificate: Path, key: Path | None) -> dict[str, str]:
    if key is None or key == certificate:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificate)}
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _pem_text(certificate, "kafka.security.certificate"),
        "ssl.keystore.key": _pem_text(key, "kafka.security.key"),
    }


def _pem_text(path: Path, field: str) -> str:
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not PEM text"
        raise FrazilError(f"{field}: cannot read {path}: {reason}.") from None
    if any(f"BEGIN {kind} PRIVATE KEY" in text for kind in ("RSA", "EC", "DSA")):
        raise FrazilError(
            f"{field}: {path} holds a key in the old PEM form, which Java cannot read.",
            fix=f"openssl pkcs8 -topk8 -nocrypt -in {path} -out {path.with_suffix('.pkcs8.pem')}",
        )
    return text


def jaas_quoted(value: str) -> str:
    r"""Quotes a value for ``sasl.jaas.config``, which Kafka reads with ``java.io.StreamTokenizer``.

    Inside quotes a backslash starts an escape (``\n``, ``\101``, or the next character itself), and a raw line break
    ends the value: so these, and the quote, are written as escapes, and everything else as it is.
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
