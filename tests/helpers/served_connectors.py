"""The Connect-shaped server of a test, on a free port of the loopback, and requests to it or to a real worker."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import uvicorn

from jobs.base.system.ports import HOST
from jobs.config.documents.secrets import Secret
from orchestration.connect_api.actions import Begin
from orchestration.connect_api.connectors import Connectors
from orchestration.connect_api.server import connect_app
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for


@dataclass(frozen=True)
class Answer:
    """Answer to a request.

    Attributes:
        document: The body as JSON has it; None where it is empty.
        headers: Headers by name in lower case.
    """

    status: int
    document: Any
    headers: Mapping[str, str]


def ask(url: str, method: str, path: str, body: object = None, **headers: str) -> Answer:
    """Send a request; a body that is no bytes is sent as JSON.

    Args:
        headers: Headers; `_` stands for the hyphens that an argument's name cannot have.
    """
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    named = {"Content-Type": "application/json"} | {key.replace("_", "-"): value for key, value in headers.items()}
    request = urllib.request.Request(url + path, data=data, method=method, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return _answer(answer.status, answer.read(), answer.headers.items())
    except urllib.error.HTTPError as refused:
        with refused:
            return _answer(refused.code, refused.read(), refused.headers.items())


def _answer(status: int, body: bytes, headers: Any) -> Answer:
    return Answer(status, json.loads(body) if body else None, {name.lower(): value for name, value in headers})


@contextlib.contextmanager
def serving_connectors(deployment: Deployment, begin: Begin, token: Secret | None = None) -> Iterator[str]:
    """Serve a deployment's streams until the end of the block; gives the URL."""
    with socket.create_server((HOST, 0)) as listening:
        address = f"{HOST}:{listening.getsockname()[1]}"
        app = connect_app(Connectors(deployment, address), begin, deployment, token)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            wait_for(lambda: server.started, "the server to listen")
            yield f"http://{address}"
        finally:
            server.should_exit = True
            thread.join()
