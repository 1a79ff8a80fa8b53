"""REST client of a Kafka Connect worker: its connectors, their configuration and state, and their stop."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests
import urllib3

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret

_REBALANCE_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
_LARGEST_ANSWER = 64 * 1024 * 1024
# A whole answer may take this many timeouts: the timeout itself counts from one piece of an answer to the next.
_TIMEOUTS_PER_ANSWER = 6
_LOGIN_OPTIONS = "--connect-user USER --connect-password '${env:NAME}'"


class ConnectWorkerError(FrazilError):
    """A worker of Kafka Connect does not answer, refuses the request, or has no such connector.

    Safe: Nothing was changed.
    Next: check the worker's address and login; `curl URL/connectors` shows what answers there
    """


@dataclass(frozen=True, slots=True)
class WorkerLogin:
    """Login at a worker's REST API.

    Attributes:
        user: User of basic authentication; None without a login.
        password: Password, as a secret reference. Without a user, it is a bearer token.
        ca: PEM file of the authorities that sign the worker's certificate; None: those that the machine trusts.
        timeout: Seconds to wait for the next piece of an answer.
    """

    user: str | None = None
    password: Secret | None = None
    ca: Path | None = None
    timeout: float = 20.0


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """State of a connector and of its tasks, as Connect names them: `RUNNING`, `PAUSED`, `STOPPED`, `FAILED` …"""

    connector: str
    tasks: tuple[str, ...]

    @property
    def stopped(self) -> bool:
        """Whether no task can write any more."""
        return self.connector == "STOPPED" and not self.tasks

    def __str__(self) -> str:
        tasks = f", its tasks {', '.join(sorted(set(self.tasks)))}" if self.tasks else ", without tasks"
        return f"{self.connector}{tasks}"


@dataclass(frozen=True, slots=True)
class _Answer:
    request: str
    status: int
    content: bytes


def is_address(source: str) -> bool:
    """Whether a text is the address of a worker."""
    return re.match(r"https?://", source, re.IGNORECASE) is not None


class ConnectWorker:
    """A worker at its REST address.

    Args:
        address: URL without a user, such as `http://connect:8083`.
        login: User, password and authorities. A secret is read with each request.

    Raises:
        ConnectWorkerError: The address is no URL, or has a user in it.
    """

    def __init__(self, address: str, login: WorkerLogin | None = None) -> None:
        parts = urlsplit(address)
        # A password may hold a slash, which ends the part of a URL that has the user.
        if "@" in address:
            raise ConnectWorkerError(
                "The address of the worker has a user or a password in it, which a list of processes shows.",
                fix=f"{parts.scheme}://{address.rpartition('@')[2]} {_LOGIN_OPTIONS}",
            )
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ConnectWorkerError(f"{address} is no address of a worker.", fix="http://HOST:8083")
        self.address: str = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/connectors')}"
        self._login: WorkerLogin = login or WorkerLogin()

    def get(self, path: str) -> bytes:
        """Body of the answer to a GET request.

        Args:
            path: Path and query below the address.

        Raises:
            ConnectWorkerError: The worker does not answer with 200.
        """
        return self._successful(self._ask("GET", path))

    def config(self, name: str) -> dict[str, str]:
        """Configuration of a connector.

        Raises:
            ConnectWorkerError: The worker has no such connector.
        """
        answer = self._ask("GET", f"/connectors/{quote(name, safe='')}/config")
        if answer.status == 404:
            names = ", ".join(sorted(self._parsed(self._ask("GET", "/connectors")))) or "none"
            raise ConnectWorkerError(
                f"the worker at {self.address} has no connector {name}; it has {names}.",
                fix="name one of them; if the connector was deleted, leave --connect out",
            )
        return {str(key): str(value) for key, value in self._parsed(answer).items()}

    def state(self, name: str) -> ConnectorState | None:
        """State of a connector; None if the worker has none of that name."""
        answer = self._ask("GET", f"/connectors/{quote(name, safe='')}/status")
        if answer.status == 404:
            return None
        document = self._parsed(answer)
        try:
            tasks = tuple(str(task["state"]) for task in document.get("tasks", ()))
            return ConnectorState(str(document["connector"]["state"]), tasks)
        except (AttributeError, KeyError, TypeError):
            raise self.no_worker("the answer is no state of a connector") from None

    def stop(self, name: str) -> None:
        """Stop a connector: its tasks end, its offsets stay (Kafka 3.5 and later).

        Raises:
            ConnectWorkerError: The worker cannot stop connectors.
        """
        answer = self._ask("PUT", f"/connectors/{quote(name, safe='')}/stop")
        if answer.status in (404, 405):
            raise ConnectWorkerError(
                f"the worker at {self.address} cannot stop connectors, as it is older than Kafka 3.5. A paused "
                "connector goes on writing the records in its tasks, so a pause is not enough.",
                fix=f"keep the configuration (curl {self.address}/connectors/{name}/config), delete the connector, "
                "whose group keeps the offsets, then leave --connect out",
            )
        self._successful(answer)

    def no_worker(self, reason: str) -> ConnectWorkerError:
        """Error for an answer that no worker gives."""
        return ConnectWorkerError(
            f"{self.address} answers, but not as a worker of Kafka Connect: {reason}.",
            fix=f"curl {self.address}/connectors",
        )

    def _parsed(self, answer: _Answer) -> Any:
        content = self._successful(answer)
        try:
            return json.loads(content)
        except ValueError:
            raise self.no_worker("the answer is no JSON") from None

    def _successful(self, answer: _Answer) -> bytes:
        if answer.status in (401, 403):
            login = self._login
            refused = "refuses the login" if login.user or login.password else "needs a login"
            raise ConnectWorkerError(f"{self.address} {refused} (HTTP {answer.status}).", fix=_LOGIN_OPTIONS)
        if answer.status == requests.codes.conflict:
            raise ConnectWorkerError(
                f"{self.address} has been rebalancing its tasks for {_REBALANCE_SECONDS:.0f} s (HTTP 409).",
                fix=(
                    "run the command again when the workers have settled; the worker's log has the reason if "
                    "they do not"
                ),
            )
        if not 200 <= answer.status < 300:
            raise ConnectWorkerError(
                f"{self.address} answers HTTP {answer.status} to {answer.request}.",
                fix=f"curl {self.address}/connectors; the worker's log has the reason",
            )
        return answer.content

    def _ask(self, method: str, path: str) -> _Answer:
        deadline = time.monotonic() + _REBALANCE_SECONDS
        while True:
            answer = self._send(method, path)
            # A worker answers 409 while its cluster rebalances.
            if answer.status != requests.codes.conflict or time.monotonic() > deadline:
                return answer
            time.sleep(_PAUSE_SECONDS)

    def _send(self, method: str, path: str) -> _Answer:
        login = self._login
        with requests.Session() as session:
            # Neither a proxy nor a password of this user's files.
            session.trust_env = False
            if login.ca is not None:
                session.verify = str(login.ca)
            if login.user is not None:
                session.auth = (login.user, login.password.reveal() if login.password else "")
            elif login.password is not None:
                session.headers["Authorization"] = f"Bearer {login.password.reveal()}"
            try:
                # A redirect would carry the login to another host.
                response = session.request(
                    method, f"{self.address}{path}", timeout=login.timeout, allow_redirects=False, stream=True
                )
                with response:
                    return _Answer(f"{method} {path}", response.status_code, self._content(response))
            except requests.exceptions.SSLError:
                raise ConnectWorkerError(
                    f"{self.address} has a certificate that this machine does not trust.", fix="--connect-ca FILE.pem"
                ) from None
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as problem:
                raise ConnectWorkerError(
                    f"{self.address} does not answer: {type(problem).__name__}.",
                    fix=f"curl {self.address}/connectors; if no worker runs any more: an import takes files, and a "
                    "takeover needs no --connect",
                ) from None

    def _content(self, response: requests.Response) -> bytes:
        content, limit = bytearray(), _TIMEOUTS_PER_ANSWER * self._login.timeout
        end = time.monotonic() + limit
        while piece := response.raw.read1(1 << 16, decode_content=True):
            content += piece
            if len(content) > _LARGEST_ANSWER:
                raise self.no_worker(f"the answer has more than {_LARGEST_ANSWER // 1024**2} MB")
            if time.monotonic() > end:
                raise ConnectWorkerError(
                    f"{self.address} answers too slowly: {len(content)} bytes in {limit:.0f} s.",
                    fix=f"curl {self.address}/connectors",
                )
        return bytes(content)
