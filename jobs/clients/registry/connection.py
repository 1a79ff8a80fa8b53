"""Picklable connection data of a schema registry: addresses, and options of the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.config.documents.secrets import reveal
from jobs.config.services.registry import RegistrySettings

# A service that just started, or a load balancer, may break a connection. Longer failures are handled by the batch.
_RETRIES = {"max.retries": 1, "retries.wait.ms": 200, "retries.max.wait.ms": 1000}


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Parameters of a token request.

    Attributes:
        client_secret: Secret of the client, left out of the repr.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None
    logical_cluster: str | None
    identity_pool_id: str | None


@dataclass(frozen=True, slots=True)
class RegistryConnection:
    """All that a process needs to ask a registry; it is pickled for tasks.

    Attributes:
        identity: Identity of the registry, see `RegistrySettings.identity`.
        shown: Name of the registry in messages, without credentials.
        timeout: Time-out of a request, in seconds.
        lag: How long an unknown id is looked up again, in seconds.
        options: Options of confluent-kafka's client with secrets. Never logged, and left out of the repr.
        token: Token request for OAuth.
    """

    identity: str
    shown: str
    timeout: float
    lag: float
    options: Mapping[str, Any] = field(repr=False)
    token: TokenRequest | None = None


def registry_connection(settings: RegistrySettings) -> RegistryConnection:
    """Return the connection in the settings, with the present values of its secrets.

    Raises:
        LocalRegistryDown: The settings name the local registry, which is not running.
        FrazilError: A secret's environment variable is not set.
    """
    urls = settings.require_urls()
    timeout = settings.timeout.total_seconds()
    options: dict[str, Any] = {"url": ",".join(urls), "timeout": timeout, **_RETRIES, **_tls(settings)}
    token: TokenRequest | None = None
    if settings.basic is not None:
        user, password = reveal(settings.basic.user), settings.basic.password.reveal()
        options["basic.auth.user.info"] = f"{user}:{password}"
    if (bearer := settings.bearer) is not None:
        options["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        options["bearer.auth.token"] = bearer.token.reveal()
        # The client requires it; only Confluent Cloud reads it.
        options["bearer.auth.logical.cluster"] = bearer.logical_cluster or ""
        if bearer.identity_pool_id:
            options["bearer.auth.identity.pool.id"] = bearer.identity_pool_id
    if (oauth := settings.oauth) is not None:
        token = TokenRequest(
            oauth.token_url,
            reveal(oauth.client_id),
            oauth.client_secret.reveal(),
            oauth.scope,
            oauth.logical_cluster,
            oauth.identity_pool_id,
        )
    return RegistryConnection(settings.identity, ", ".join(urls), timeout, settings.lag.total_seconds(), options, token)


def _tls(settings: RegistrySettings) -> dict[str, Any]:
    tls = settings.tls
    if tls is None:
        return {}
    options: dict[str, Any] = {}
    if not tls.verify:
        options["ssl.ca.location"] = False
    elif tls.ca is not None:
        options["ssl.ca.location"] = str(tls.ca)
    if tls.certificate is not None:
        options["ssl.certificate.location"] = str(tls.certificate)
        options["ssl.key.location"] = str(tls.key or tls.certificate)
        # Without a password, OpenSSL would prompt at the terminal.
        options["ssl.key.password"] = tls.key_password.reveal() if tls.key_password else ""
    return options
