"""OAuth tokens for a schema registry: asked for by client credentials, and renewed before they expire."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from jobs.registry.connection import TokenRequest
from jobs.registry.errors import RegistryError, RegistryRefusedError, RegistryUnavailableError
from jobs.registry.failures import passes, request_problem, tls_problem

# What is left of a token's life when the next one is asked for.
_RENEWED_AT = 0.2
_PASSING_ERRORS = ("server_error", "temporarily_unavailable", "slow_down")
_FIX = "check `registry: {oauth: …}` in frazil.yaml, then `frazil validate`"


class TokenSource:
    """Gives the header fields of requests, in the form that confluent-kafka's client takes from a custom provider.

    Its own provider knows neither the registry's certificates nor a time-out, and wants a token to name its end.

    Args:
        request: How tokens are asked for.
        timeout: Of a request, seconds.
        options: Of the registry's client; its certificates are used here, too.
        clock: Seconds.
    """

    def __init__(
        self,
        request: TokenRequest,
        timeout: float,
        options: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request: TokenRequest = request
        self._timeout: float = timeout
        self._clock: Callable[[], float] = clock
        self._lock: threading.Lock = threading.Lock()
        self._token: str | None = None
        self._renew_at: float | None = None
        self._shown: str = f"The identity provider at {request.url}"
        try:
            self._verify: ssl.SSLContext | bool = _tls_context(options)
        except OSError as problem:
            raise tls_problem(problem, self._shown, options) from None

    def fields(self, _: dict[str, Any]) -> dict[str, str]:
        """The fields of a request, with a token that still holds.

        Raises:
            RegistryError: There is no token to be had.
        """
        found = {
            "bearer.auth.token": self._current(),
            "bearer.auth.logical.cluster": self._request.logical_cluster or "",
        }
        if self._request.identity_pool_id:
            found["bearer.auth.identity.pool.id"] = self._request.identity_pool_id
        return found

    def forget(self) -> bool:
        """Ask for another token next time; returns whether there was one."""
        with self._lock:
            had, self._token = self._token is not None, None
            return had

    def _current(self) -> str:
        with self._lock:
            if self._token is None or (self._renew_at is not None and self._clock() >= self._renew_at):
                self._token, self._renew_at = self._fetched()
            return self._token

    def _fetched(self) -> tuple[str, float | None]:
        from authlib.integrations.base_client import OAuthError

        asked = self._clock()
        try:
            token = self._ask()
        except RegistryError:
            raise
        except OAuthError as problem:
            kind = RegistryUnavailableError if problem.error in _PASSING_ERRORS else RegistryRefusedError
            raise kind(f"{self._shown} gives no token: {problem.error}", fix=_FIX) from None
        except Exception as problem:
            raise request_problem(problem, self._shown, self._timeout) from None
        if not token.get("access_token"):
            raise RegistryRefusedError(f"{self._shown} gives no token: its answer has none", fix=_FIX)
        seconds = token.get("expires_in")
        return str(token["access_token"]), None if seconds is None else asked + float(seconds) * (1 - _RENEWED_AT)

    def _ask(self) -> Mapping[str, Any]:
        from authlib.integrations.httpx_client import OAuth2Client

        # Its stubs do not say that it is a context manager.
        made: Any = OAuth2Client(
            client_id=self._request.client_id,
            client_secret=self._request.client_secret,
            scope=self._request.scope,
            verify=self._verify,
            timeout=self._timeout,
        )
        with made as client:
            client.register_compliance_hook("access_token_response", self._unless_away)
            return client.fetch_token(url=self._request.url, grant_type="client_credentials")

    def _unless_away(self, response: Any) -> Any:
        if passes(response.status_code):
            raise RegistryUnavailableError(f"{self._shown} is not well: HTTP {response.status_code}", fix=_FIX)
        return response


def _tls_context(options: Mapping[str, Any]) -> ssl.SSLContext | bool:
    ca, certificate = options.get("ssl.ca.location"), options.get("ssl.certificate.location")
    if ca is None and certificate is None:
        return True
    context = ssl.create_default_context(cafile=ca or None)
    if ca is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, options["ssl.key.location"], options["ssl.key.password"])
    return context
