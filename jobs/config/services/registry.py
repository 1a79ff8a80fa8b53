"""Registry block of the settings: address, login and certificates of the schema registry."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PlainSerializer

from jobs.base.errors import FrazilError
from jobs.config.documents.base import (
    Flag,
    LocalPath,
    Problems,
    SpecModel,
)
from jobs.config.documents.secrets import Secret
from jobs.config.documents.units import Duration
from jobs.config.services.security import TextOrSecret

_DEFAULT_PORTS = {"http": 80, "https": 443}


LINES_TO_ADD = "add to frazil.yaml: registry: {url: https://HOST:PORT}"


class LocalRegistryDown(FrazilError):
    """The local schema registry is not running.

    Safe: Nothing was changed.
    Next: `frazil up`
    """


def _url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a URL such as https://registry.example:8081, or a list of them")
    url = value.strip().rstrip("/")
    if "${" in url:
        raise ValueError("is not a secret; write user and password under basic")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL such as https://registry.example:8081") from None
    if parts.scheme not in _DEFAULT_PORTS or not host or any(char.isspace() for char in url):
        raise ValueError("must begin with http:// or https:// and a host, such as https://registry.example:8081")
    if "@" in parts.netloc:
        raise ValueError("has a user or a password in it; write basic: {user: NAME, password: '${env:NAME}'} beside it")
    if parts.query or parts.fragment:
        raise ValueError("must end with the path, without ? and #")
    return url


def _urls(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not items:
        raise ValueError("must be a URL such as https://registry.example:8081, or a list of them")
    return tuple(dict.fromkeys(_url(item) for item in items))


RegistryUrls = Annotated[
    tuple[str, ...], BeforeValidator(_urls), PlainSerializer(lambda urls: list(urls), return_type=list[str])
]


class BasicAuth(SpecModel):
    """A user and a password; of Confluent Cloud an API key and its secret.

    Args:
        user: User name.
        password: Password, as a secret reference.
    """

    example = "{user: frazil, password: '${env:REGISTRY_PASSWORD}'}"

    user: TextOrSecret
    password: Secret

    def _problems(self) -> Problems:
        if isinstance(self.user, str) and (not self.user or ":" in self.user):
            yield ("user",), "must be a name without a colon"


class BearerAuth(SpecModel):
    """A token that somebody else issues and renews.

    Args:
        token: The token, as a secret reference.
        logical_cluster: Value for Confluent Cloud, such as ``lsrc-…``.
        identity_pool_id: Value for Confluent Cloud, such as ``pool-…``.
    """

    example = "{token: '${env:REGISTRY_TOKEN}'}"

    token: Secret
    logical_cluster: str | None = None
    identity_pool_id: str | None = None


class OAuth(SpecModel):
    """Tokens from an identity provider, by client credentials; renewed before they expire.

    Args:
        token_url: URL that issues tokens.
        client_id: Client id of this deployment.
        client_secret: Client secret, as a secret reference.
        scope: Scopes of the token, separated by blanks.
        logical_cluster: Value for Confluent Cloud, such as ``lsrc-…``.
        identity_pool_id: Value for Confluent Cloud, such as ``pool-…``.
    """

    example = "{token_url: 'https://login.example/token', client_id: frazil, client_secret: '${env:CLIENT_SECRET}'}"

    token_url: Annotated[str, BeforeValidator(_url)]
    client_id: TextOrSecret
    client_secret: Secret
    scope: str | None = None
    logical_cluster: str | None = None
    identity_pool_id: str | None = None


class RegistryTls(SpecModel):
    """Certificates as PEM files; they have to be where the tasks run, too.

    Args:
        ca: Authorities that sign the registry's certificate. Without it, those that the machine trusts.
        certificate: The client's certificate (mutual TLS).
        key: The client's key, if it is not in ``certificate``.
        key_password: Password of the key, as a secret reference.
        verify: Checks the registry's certificate.
    """

    example = "{ca: /etc/ssl/ca.pem}"

    ca: LocalPath | None = None
    certificate: LocalPath | None = None
    key: LocalPath | None = None
    key_password: Secret | None = None
    verify: Flag = True

    def _problems(self) -> Problems:
        if self.certificate is None:
            yield from [
                ((name,), "needs a certificate beside it") for name in ("key", "key_password") if getattr(self, name)
            ]
        if self.ca is not None and not self.verify:
            yield ("ca",), "is not used with verify: false; leave one of them out"


class RegistrySettings(SpecModel):
    """The schema registry: any that speaks Confluent's API.

    Args:
        url: URL of the registry, or a list of URLs of the same registry. Without it, the local registry.
        basic: Login by user and password. At most one of ``basic``, ``bearer`` and ``oauth``.
        bearer: Login by a token.
        oauth: Login by OAuth client credentials.
        tls: Certificates of the connection.
        timeout: Timeout of one request.
        lag: How long an unknown id is asked for again, as registries lag behind producers.
        address_file: File in which the local registry notes its address.
    """

    example = "{url: 'https://registry.example:8081'}"

    url: RegistryUrls | None = None
    basic: BasicAuth | None = None
    bearer: Annotated[
        BearerAuth | None, BeforeValidator(lambda value: {"token": value} if isinstance(value, str) else value)
    ] = None
    oauth: OAuth | None = None
    tls: RegistryTls | None = None
    timeout: Duration = timedelta(seconds=10)
    lag: Duration = timedelta(seconds=10)
    address_file: Annotated[LocalPath | None, Field(repr=False)] = None

    def _problems(self) -> Problems:
        if (self.url is None) == (self.address_file is None):
            yield ("url",), "is required, such as https://registry.example:8081"
        ways = [name for name in ("basic", "bearer", "oauth") if getattr(self, name) is not None]
        yield from [((name,), f"is one way to log in, {ways[0]} another; leave one out") for name in ways[1:]]
        encrypted = [*(self.url or ()), *([self.oauth.token_url] if self.oauth else [])]
        if self.tls is not None and not any(url.startswith("https:") for url in encrypted):
            yield ("tls",), "is not used with http://; did you mean https://?"

    @property
    def is_local(self) -> bool:
        """Whether this is the local registry that ``frazil up`` starts."""
        return self.address_file is not None

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Secret references among its values."""
        values = (
            *((self.basic.user, self.basic.password) if self.basic else ()),
            *((self.bearer.token,) if self.bearer else ()),
            *((self.oauth.client_id, self.oauth.client_secret) if self.oauth else ()),
            *((self.tls.key_password,) if self.tls else ()),
        )
        return tuple(value for value in values if isinstance(value, Secret))

    @property
    def identity(self) -> str:
        """Identity of the registry: equal for all ways to write the same registry. It contains no secret."""
        if self.address_file is not None:
            return f"local:{self.address_file.parent}"
        return ",".join(sorted({_normalised(url) for url in self.url or ()}))

    def require_urls(self) -> tuple[str, ...]:
        """Return the URLs of the registry; for the local registry its present one.

        Raises:
            LocalRegistryDown: The settings name the local registry, which is not running.
        """
        if self.address_file is None:
            return self.url or ()
        noted = noted_address(self.address_file)
        if noted is None:
            raise LocalRegistryDown("The local schema registry is not running.", fix="frazil up")
        return (noted,)


def noted_address(address_file: Path) -> str | None:
    """Return the URL of the local registry; None unless it is running."""
    try:
        return address_file.read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _normalised(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    return f"{parts.scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}"
