"""Access control of the Connect API server: a token for remote clients, and no cross-origin requests."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret
from orchestration.connect_api.answers import error

LEAST_TOKEN = 16
"""Smallest number of characters in a token."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one, so that only this machine reaches its server."""
    name = host.strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


class Access:
    """ASGI middleware that lets a request through, or answers 401 or 403.

    Without a token, only requests to a loopback name pass, which stops DNS rebinding. Cross-origin requests of browsers
    are refused even with a token. No CORS headers are sent.

    Args:
        app: The application that answers admitted requests.
        token: Reference to the token, read for each request; None if the server has no token.
    """

    def __init__(self, app: ASGIApp, token: Secret | None) -> None:
        self._app: ASGIApp = app
        self._token: Secret | None = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            await error(403, "Requests of web pages of another origin are refused")(scope, receive, send)
        elif self._token is None and not is_loopback(_host_of(headers.get("host", ""))):
            await error(403, "Without a token only requests to a loopback address are answered")(scope, receive, send)
        elif self._token is not None and not self._knows(headers.get("authorization", ""), self._token):
            refusal = error(401, "HTTP 401 Unauthorized", headers={"WWW-Authenticate": 'Basic realm="frazil"'})
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _knows(self, authorization: str, token: Secret) -> bool:
        try:
            expected = read_token(token)
        except FrazilError:
            # The mounted file may be missing while it is replaced. Nobody is admitted in that moment.
            return False
        return hmac.compare_digest(_given_token(authorization), expected.encode())


def read_token(token: Secret) -> str:
    """Read the current token.

    Raises:
        FrazilError: The token's variable or file is missing or empty, or the token is too short.
    """
    text = token.reveal()
    if len(text) < LEAST_TOKEN:
        raise FrazilError(
            f"The token of {token} has fewer than {LEAST_TOKEN} characters.",
            fix="make one with: openssl rand -hex 32",
        )
    return text


def _given_token(authorization: str) -> bytes:
    """Token in an `Authorization` header: the bearer token, or the password of any user."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""


def _host_of(header: str) -> str:
    """Host in a `Host` header, without the port."""
    if header.startswith("["):
        return header.partition("]")[0].removeprefix("[")
    return header.partition(":")[0]
