"""Logins at Kafka by somebody else's tokens and tickets: OAUTHBEARER by client credentials, and Kerberos."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator

from jobs.spec.base import LocalPath, SpecModel
from jobs.spec.secrets import Secret, reveal, text_or_secret

# A user may come from the environment as well: hosted brokers' users are generated API keys.
TextOrSecret = Annotated[str | Secret, PlainValidator(text_or_secret), PlainSerializer(str, return_type=str)]

_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_EXTENSIONS = {"logical_cluster": "logicalCluster", "identity_pool_id": "identityPoolId"}
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The system property without which Kafka's Java client, from 4.0 on, asks nobody for a token."""


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
    """What stands in a list of both clients, and has to mean the same in both."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", value):
        raise ValueError("must be of letters, digits, '.', '_' and '-', such as lkc-1a2b3")
    return value


def _principal(value: str) -> str:
    # librdkafka hands it to a shell that runs kinit.
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
        token_url: Where tokens are issued.
        client_id, client_secret: Of this deployment.
        scope: What is asked for; several separated by blanks.
        logical_cluster, identity_pool_id: As Confluent Cloud asks for them: `lkc-…`, `pool-…`.
        ca: PEM file of the authorities that sign the provider's certificate; without it each client's own list.
    """

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
        """The options of librdkafka; they hold the secret in the clear."""
        return {name: reveal(value) for name, value in self.unrevealed().items()}

    def unrevealed(self) -> dict[str, str | Secret]:
        """The options of librdkafka, with secrets as they are written."""
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
        """The options of Kafka's Java client; they hold the secret in the clear."""
        fields = {"clientId": reveal(self.client_id), "clientSecret": self.client_secret.reveal()}
        if self.scope:
            fields["scope"] = self.scope
        fields |= {f"extension_{name}": value for name, value in self._extensions.items()}
        if self.ca:
            # Java takes what belongs to the provider from here, and from nowhere else.
            fields |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        return {
            "sasl.jaas.config": jaas_config(_OAUTH_MODULE, fields),
            "sasl.login.callback.handler.class": _OAUTH_HANDLER,
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
        }


class Kerberos(SpecModel):
    """Tickets of a Kerberos realm for Kafka, by a keytab.

    Args:
        principal: Of this deployment.
        keytab: Its file, wherever tasks run, at the same path.
        service_name: Of the brokers' principals.
    """

    principal: Annotated[str, AfterValidator(_principal)]
    keytab: Annotated[LocalPath, BeforeValidator(_keytab)]
    service_name: _Name = "kafka"

    def librdkafka(self) -> dict[str, str]:
        """The options of librdkafka, which runs `kinit` with them."""
        return {
            "sasl.kerberos.service.name": self.service_name,
            "sasl.kerberos.principal": self.principal,
            "sasl.kerberos.keytab": str(self.keytab),
        }

    def java(self) -> dict[str, str]:
        """The options of Kafka's Java client."""
        fields = {"useKeyTab": "true", "storeKey": "true", "keyTab": str(self.keytab), "principal": self.principal}
        return {
            "sasl.jaas.config": jaas_config(_KERBEROS_MODULE, fields),
            "sasl.kerberos.service.name": self.service_name,
        }


def jaas_config(module: str, fields: dict[str, str]) -> str:
    """The text of `sasl.jaas.config`."""
    return f"{module} required {' '.join(f'{name}={jaas_quoted(value)}' for name, value in fields.items())};"


def jaas_quoted(value: str) -> str:
    r"""Quotes a value for ``sasl.jaas.config``, which Kafka reads with ``java.io.StreamTokenizer``.

    Inside quotes a backslash starts an escape (``\n``, ``\101``, or the next character itself), and a raw line break
    ends the value: so these, and the quote, are written as escapes, and everything else as it is.
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
