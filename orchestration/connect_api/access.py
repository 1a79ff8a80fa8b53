"""Access to the Connect-shaped server: a token for all but this machine, and no requests of foreign web pages."""

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
"""Characters that a token has at least."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    name = host.strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


class Access:
    """ASGI middleware that lets a request through, or answers 401 or 403.

    Without a token only requests to a loopback name pass: a web page whose name is made to lead here is refused. A
    request that a page of another origin makes a browser send is refused, with a token, too. There are no CORS headers.

    Args:
        app: What answers.
        token: Reference to the token, read for each request; None for none.
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
            # A mounted file that is replaced right now: nobody is let in without it.
            return False
        return hmac.compare_digest(_given_token(authorization), expected.encode())


def read_token(token: Secret) -> str:
    """The token as it is now.

    Raises:
        FrazilError: Its variable or file is missing or empty, or it is too short.
    """
    text = token.reveal()
    if len(text) < LEAST_TOKEN:
        raise FrazilError(
            f"The token of {token} has fewer than {LEAST_TOKEN} characters.",
            fix="make one with: openssl rand -hex 32",
        )
    return text


def _given_token(authorization: str) -> bytes:
    """The token in a header: a bearer's, or the password of any user."""
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
    """The host of a header `Host`, without the port."""
    if header.startswith("["):
        return header.partition("]")[0].removeprefix("[")
    return header.partition(":")[0]
