"""Security of Kafka connections: one block of the settings, translated to the options of every client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from jobs.base.errors import FrazilError
from jobs.config.documents.base import (
    Flag,
    LocalPath,
    Problems,
    SpecModel,
)
from jobs.config.documents.secrets import Secret, reveal, text_or_secret

# A user may be a reference, too: users of hosted brokers are generated API keys.
TextOrSecret = Annotated[str | Secret, PlainValidator(text_or_secret), PlainSerializer(str, return_type=str)]

_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_EXTENSIONS = {"logical_cluster": "logicalCluster", "identity_pool_id": "identityPoolId"}
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""System property with the URLs at which Kafka's Java client, from 4.0 on, may request tokens."""


def _token_url(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s,]|\$\{", text):
        raise ValueError("must be a URL such as https://idp.example/oauth2/token, without references")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("must have no user, no password, no ? and no #; write client_id and client_secret beside it")
    return text


def _plain(value: str) -> str:
    """Check a value that goes into a list of both clients and has to mean the same in both."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", value):
        raise ValueError("must be of letters, digits, '.', '_' and '-', such as lkc-1a2b3")
    return value


def _principal(value: str) -> str:
    # librdkafka passes it to a shell that runs kinit.
    if not re.fullmatch(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?(@[A-Za-z0-9.-]+)?", value):
        raise ValueError("must be a principal such as frazil/host.example@EXAMPLE.COM")
    return value


def _keytab(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9._/~-]+", value):
        raise ValueError("must be a path of letters, digits, '.', '_', '-' and '/'")
    return value


_Name = Annotated[str, AfterValidator(_plain)]


class KafkaOAuth(SpecModel):
    """Tokens of an identity provider for Kafka, by client credentials; each client renews its own before it ends.

    Args:
        token_url: URL that issues tokens.
        client_id: Client id of this deployment.
        client_secret: Client secret, as a secret reference.
        scope: Scopes of the token, separated by blanks.
        logical_cluster: Value for Confluent Cloud, such as ``lkc-…``.
        identity_pool_id: Value for Confluent Cloud, such as ``pool-…``.
        ca: PEM file of the authorities that sign the provider's certificate. Without it, the client's own list.
    """

    example = "{token_url: 'https://login.example/token', client_id: frazil, client_secret: '${env:CLIENT_SECRET}'}"

    token_url: Annotated[str, BeforeValidator(_token_url)]
    client_id: TextOrSecret
    client_secret: Secret
    scope: str | None = None
    logical_cluster: _Name | None = None
    identity_pool_id: _Name | None = None
    ca: LocalPath | None = None

    @property
    def _extensions(self) -> dict[str, str]:
        return {theirs: value for ours, theirs in _EXTENSIONS.items() if (value := getattr(self, ours))}

    def librdkafka(self) -> dict[str, str]:
        """Return the options of librdkafka, with the secret in plain text."""
        return {name: reveal(value) for name, value in self.unrevealed().items()}

    def unrevealed(self) -> dict[str, str | Secret]:
        """Return the options of librdkafka, with secrets as references."""
        options: dict[str, str | Secret] = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
            "sasl.oauthbearer.client.id": self.client_id,
            "sasl.oauthbearer.client.secret": self.client_secret,
        }
        if self.scope:
            options["sasl.oauthbearer.scope"] = self.scope
        if self._extensions:
            options["sasl.oauthbearer.extensions"] = ",".join(f"{k}={v}" for k, v in self._extensions.items())
        if self.ca:
            options["https.ca.location"] = str(self.ca)
        return options

    def java(self) -> dict[str, str]:
        """Return the options of Kafka's Java client, with the secret in plain text."""
        fields = {"clientId": reveal(self.client_id), "clientSecret": self.client_secret.reveal()}
        if self.scope:
            fields["scope"] = self.scope
        fields |= {f"extension_{name}": value for name, value in self._extensions.items()}
        if self.ca:
            # Java reads the options for the identity provider only from here.
            fields |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        return {
            "sasl.jaas.config": jaas_config(_OAUTH_MODULE, fields),
            "sasl.login.callback.handler.class": _OAUTH_HANDLER,
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
        }


class Kerberos(SpecModel):
    """Tickets of a Kerberos realm for Kafka, by a keytab.

    Args:
        principal: Principal of this deployment.
        keytab: Keytab file, at the same path wherever tasks run.
        service_name: Service name of the brokers' principals.
    """

    example = "{principal: frazil@EXAMPLE.COM, keytab: /etc/frazil.keytab}"

    principal: Annotated[str, AfterValidator(_principal)]
    keytab: Annotated[LocalPath, BeforeValidator(_keytab)]
    service_name: _Name = "kafka"

    def librdkafka(self) -> dict[str, str]:
        """Return the options of librdkafka, which runs `kinit` with them."""
        return {
            "sasl.kerberos.service.name": self.service_name,
            "sasl.kerberos.principal": self.principal,
            "sasl.kerberos.keytab": str(self.keytab),
        }

    def java(self) -> dict[str, str]:
        """Return the options of Kafka's Java client."""
        fields = {"useKeyTab": "true", "storeKey": "true", "keyTab": str(self.keytab), "principal": self.principal}
        return {
            "sasl.jaas.config": jaas_config(_KERBEROS_MODULE, fields),
            "sasl.kerberos.service.name": self.service_name,
        }


def jaas_config(module: str, fields: dict[str, str]) -> str:
    """Return the text of `sasl.jaas.config`."""
    return f"{module} required {' '.join(f'{name}={jaas_quoted(value)}' for name, value in fields.items())};"


def jaas_quoted(value: str) -> str:
    r"""Quotes a value for ``sasl.jaas.config``, which Kafka reads with ``java.io.StreamTokenizer``.

    Inside quotes a backslash starts an escape (``\n``, ``\101``, or the next character itself), and a raw line break
    ends the value. So these and the quote are escaped; everything else stays unchanged.
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_WAYS = {"OAUTHBEARER": ("oauth",), "GSSAPI": ("kerberos",)}
_PASSWORD = ("user", "password")
_NOT_HERE = {
    "AWS_MSK_IAM": "is not among them: neither librdkafka nor Kafka's own Java client signs requests for AWS. "
    "Amazon MSK takes SCRAM-SHA-512 (secrets in AWS Secrets Manager) and certificates (protocol: SSL) as well"
}


def _mechanism(value: object) -> object:
    if isinstance(value, str) and (problem := _NOT_HERE.get(value.upper())):
        raise ValueError(problem)
    return value


class KafkaSecurity(SpecModel):
    """How clients of Kafka encrypt their connections and prove themselves.

    Args:
        protocol: Encryption and authentication of the connection.
        mechanism: SASL mechanism. Required by the SASL protocols.
        user: User for PLAIN and SCRAM.
        password: Password for PLAIN and SCRAM, as a secret reference.
        oauth: Token provider for OAUTHBEARER.
        kerberos: Principal and keytab for GSSAPI.
        ca: PEM file of the authorities that sign the brokers' certificates. Without it, the client's own list.
        certificate: PEM file of the client's certificate (mutual TLS).
        key: PEM file of the client's key (PKCS#8), if it is not in ``certificate``.
        key_password: Password of the key, as a secret reference.
        verify_hostname: Checks that the broker's certificate is for the host.
    """

    example = "{protocol: SASL_SSL, mechanism: PLAIN, user: frazil, password: '${env:KAFKA_PASSWORD}'}"

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None, BeforeValidator(_mechanism)
    ] = None
    user: TextOrSecret | None = None
    password: Secret | None = None
    oauth: KafkaOAuth | None = None
    kerberos: Kerberos | None = None
    ca: LocalPath | None = None
    certificate: LocalPath | None = None
    key: LocalPath | None = None
    key_password: Secret | None = None
    verify_hostname: Flag = True

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Secret references among its values."""
        of_oauth = (self.oauth.client_id, self.oauth.client_secret) if self.oauth else ()
        values = (self.user, self.password, self.key_password, *of_oauth)
        return tuple(value for value in values if isinstance(value, Secret))

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def token_url(self) -> str | None:
        """URL that issues tokens for the brokers; None if they take none."""
        return self.oauth.token_url if self.oauth else None

    @model_serializer(mode="wrap")
    def _without_unused(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out keys of later versions that are not used, so that no driver is restarted for them."""
        dumped: dict[str, Any] = handler(self)
        return {key: value for key, value in dumped.items() if value is not None or key not in ("oauth", "kerberos")}

    def _problems(self) -> Problems:
        if self.uses_sasl and self.mechanism is None:
            yield ("mechanism",), f"is required for the protocol {self.protocol}"
        needed = ("mechanism", *_WAYS.get(self.mechanism or "", _PASSWORD)) if self.uses_sasl else ()
        for name in ("mechanism", *_PASSWORD, "oauth", "kerberos"):
            given = getattr(self, name)
            if name in needed and name != "mechanism" and given in (None, ""):
                way = f"mechanism {self.mechanism}" if self.mechanism in _WAYS else f"protocol {self.protocol}"
                yield (name,), f"is required for the {way}"
            elif name not in needed and given is not None and self.uses_sasl:
                owner = next((mechanism for mechanism, way in _WAYS.items() if name in way), None)
                yield (
                    (name,),
                    f"is for the mechanism {owner}" if owner else f"is not used by the mechanism {self.mechanism}",
                )
            elif not self.uses_sasl and given is not None:
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

    The result contains secrets in plain text: pass it to the client only.

    Raises:
        FrazilError: A secret is not available.
    """
    if security is None:
        return {}
    options = {"security.protocol": security.protocol}
    if security.uses_sasl:
        options["sasl.mechanism"] = str(security.mechanism)
        if login := security.oauth or security.kerberos:
            options |= login.librdkafka()
        else:
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

    The result contains secrets in plain text: pass it to the client only. A certificate and key in two files are read
    here, because Java takes them only from one file or as text.

    Raises:
        FrazilError: A secret is not available, or a certificate or key cannot be read or used.
    """
    if security is None:
        return {}
    options = {"security.protocol": security.protocol}
    if security.uses_sasl:
        options["sasl.mechanism"] = mechanism = str(security.mechanism)
        if login := security.oauth or security.kerberos:
            options |= login.java()
        else:
            fields = {"username": reveal(security.user or ""), "password": reveal(security.password or "")}
            options["sasl.jaas.config"] = jaas_config(_LOGIN_MODULES[mechanism], fields)
    if security.uses_tls:
        # An empty text turns the check off in Java, `none` in librdkafka.
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
