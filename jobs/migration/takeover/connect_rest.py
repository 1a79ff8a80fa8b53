"""REST client of a Kafka Connect worker: a connector's class, configuration and state, and its stop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret

_TIMEOUT_SECONDS = 15.0
_REBALANCE_SECONDS = 60.0
_PAUSE_SECONDS = 1.0


class ConnectWorkerError(FrazilError):
    """The worker of Kafka Connect does not answer, refuses, or has no such connector.

    Safe: Nothing was changed.
    Next: check the URL of `--connect` and its user, then run the command again
    """


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


class ConnectRest:
    """A worker by its REST address.

    Args:
        url: Such as `http://connect:8083`, without a user in it.
        user: User of basic authentication.
        password: Password of the user; read when a request is made.

    Raises:
        ConnectWorkerError: The URL is not that of a worker.
    """

    def __init__(self, url: str, user: str | None = None, password: Secret | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            raise ConnectWorkerError(
                "--connect takes the address of a worker, without a user and a password in it.",
                fix="--connect http://HOST:8083, with --connect-user and --connect-password '${env:NAME}'",
            )
        self._url: str = url.rstrip("/")
        self._user: str | None = user
        self._password: Secret | None = password

    def config(self, name: str) -> dict[str, str]:
        """Configuration of a connector.

        Raises:
            ConnectWorkerError: The worker has no such connector.
        """
        response = self._request("GET", f"/connectors/{quote(name, safe='')}/config")
        if response.status_code == 404:
            names = ", ".join(sorted(self._decode_json(self._request("GET", "/connectors")))) or "none"
            raise ConnectWorkerError(
                f"the worker at {self._url} has no connector {name}; it has {names}.",
                fix="name one of them; if the connector was deleted, leave --connect out",
            )
        return {str(key): str(value) for key, value in self._decode_json(response).items()}

    def state(self, name: str) -> ConnectorState | None:
        """State of a connector; None if the worker has none of that name."""
        response = self._request("GET", f"/connectors/{quote(name, safe='')}/status")
        if response.status_code == 404:
            return None
        document = self._decode_json(response)
        return ConnectorState(
            str(document["connector"]["state"]), tuple(str(task["state"]) for task in document.get("tasks", ()))
        )

    def stop(self, name: str) -> None:
        """Stop a connector: its tasks end, its offsets stay (Kafka 3.5 and later).

        Raises:
            ConnectWorkerError: The worker cannot stop connectors.
        """
        response = self._request("PUT", f"/connectors/{quote(name, safe='')}/stop")
        if response.status_code in (404, 405):
            raise ConnectWorkerError(
                f"the worker at {self._url} cannot stop connectors, as it is older than Kafka 3.5. A paused connector "
                "goes on writing what its tasks hold, so a pause is not enough.",
                fix=f"keep the configuration (curl {self._url}/connectors/{name}/config), delete the connector, whose "
                "group keeps the offsets, then leave --connect out",
            )
        self._refuse_failed(response)

    def _decode_json(self, response: requests.Response) -> Any:
        self._refuse_failed(response)
        try:
            return response.json()
        except ValueError:
            raise ConnectWorkerError(
                f"what answers at {self._url} is no worker of Kafka Connect.", fix="check the URL of --connect"
            ) from None

    def _refuse_failed(self, response: requests.Response) -> None:
        if response.status_code in (401, 403):
            raise ConnectWorkerError(
                f"the worker at {self._url} refuses the user ({response.status_code}).",
                fix="--connect-user USER --connect-password '${env:NAME}'",
            )
        if not response.ok:
            raise ConnectWorkerError(
                f"the worker at {self._url} answers {response.status_code} to {response.request.method} "
                f"{response.request.path_url}.",
                fix="read the worker's log, then run this again",
            )

    def _request(self, method: str, path: str) -> requests.Response:
        deadline = time.monotonic() + _REBALANCE_SECONDS
        while True:
            response = self._send(method, path)
            # A worker answers 409 while its cluster rebalances.
            if response.status_code != 409 or time.monotonic() > deadline:
                return response
            time.sleep(_PAUSE_SECONDS)

    def _send(self, method: str, path: str) -> requests.Response:
        with requests.Session() as session:
            # Neither a proxy nor a password of this user's files.
            session.trust_env = False
            auth = (self._user, self._password.reveal() if self._password else "") if self._user else None
            try:
                return session.request(
                    method, f"{self._url}{path}", auth=auth, timeout=_TIMEOUT_SECONDS, allow_redirects=False
                )
            except requests.RequestException as problem:
                raise ConnectWorkerError(
                    f"the worker at {self._url} does not answer ({type(problem).__name__}).",
                    fix="check the URL of --connect; if no worker runs any more, leave it out",
                ) from None
