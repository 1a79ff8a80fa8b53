"""Proxy before a REST catalog: asks for tokens that expire, hands out keys of S3 that do, answers commits as told,
or hides a table's history.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tests.helpers.http_service import QuietHandler, serving_http

CREDENTIAL = "frazil-tests:a-credential-of-the-tests"
_COMMIT = re.compile(r"/v1/(?:.*/)?namespaces/[^/]+/tables/[^/]+")
_CUT = 0


@dataclass
class RestProxy:
    """Treatment of requests.

    Attributes:
        target: Port of the catalog.
        port: Port of the proxy, on 127.0.0.1.
        answers: Statuses of the next commits' responses (0: the connection is cut), each with whether the commit is
            carried out all the same.
        lifetime: Number of requests that a token is valid for; None if no token is needed.
        headless: Whether tables are shown with their newest snapshot alone, as some catalogs do.
        commits, tokens: Numbers of requested commits and tokens.
        vend: Function from a table's location to the vended keys, as properties, in place of the catalog's own.
        renewed: Number of requests for keys alone.
    """

    target: int
    port: int = 0
    answers: deque[tuple[int, bool]] = field(default_factory=deque)
    lifetime: int | None = None
    headless: bool = False
    commits: int = 0
    tokens: int = 0
    vend: Callable[[str], dict[str, str]] | None = None
    renewed: int = 0
    locations: dict[str, str] = field(default_factory=dict)
    seen_headers: dict[str, str] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    left: dict[str, int] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """The URI of the catalog through the proxy."""
        return f"http://127.0.0.1:{self.port}"

    def token(self, asked: str) -> tuple[int, dict[str, Any]]:
        form = {key: values[0] for key, values in parse_qs(asked).items()}
        given = f"{form.get('client_id')}:{form.get('client_secret')}"
        with self.guard:
            self.tokens += 1
            if form.get("grant_type") == "client_credentials" and given != CREDENTIAL:
                return 401, {"error": "invalid_client", "error_description": "who are you?"}
            made = f"token-of-the-tests-{next(self.numbers)}"
            self.left[made] = self.lifetime or 0
        return 200, {"access_token": made, "token_type": "bearer", "expires_in": 3600}

    def knows(self, authorization: str | None) -> bool:
        if self.lifetime is None:
            return True
        given = (authorization or "").removeprefix("Bearer ")
        with self.guard:
            self.left[given] = self.left.get(given, 0) - 1
            return self.left[given] >= 0

    def answer_of_commit(self) -> tuple[int, bool] | None:
        with self.guard:
            self.commits += 1
            return self.answers.popleft() if self.answers else None


@contextmanager
def rest_proxy(port: int) -> Iterator[RestProxy]:
    """Pass on what comes to a free port of the loopback to the catalog, until the end."""
    proxy = RestProxy(port)

    class Handler(QuietHandler):
        def handle_any(self) -> None:
            body = self.asked = self.body()
            proxy.seen_headers.update(self.headers.items())
            path = self.path.partition("?")[0]
            if path.endswith("/oauth/tokens"):
                self.say(*proxy.token(body.decode()))
                return
            if not proxy.knows(self.headers.get("Authorization")):
                self.say(401, _error("NotAuthorizedException", "the token has expired", 401))
                return
            if proxy.vend and path.endswith("/credentials"):
                location, proxy.renewed = proxy.locations[path.removesuffix("/credentials")], proxy.renewed + 1
                self.say(200, {"storage-credentials": [{"prefix": location, "config": proxy.vend(location)}]})
                return
            told = proxy.answer_of_commit() if self.command == "POST" and _COMMIT.fullmatch(path) else None
            if told is None or told[1]:
                status, content = self.passed_on(body)
            else:
                status, content = told[0], b""
            if told is None:
                self.give(status, content)
            elif told[0] == _CUT:
                self.close_connection = True
            else:
                self.say(told[0], _error("ProxyException", f"the proxy says {told[0]}", told[0]))

        do_GET = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

        def passed_on(self, body: bytes) -> tuple[int, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", proxy.target, timeout=60)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "accept-encoding")}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()

        def give(self, status: int, content: bytes) -> None:
            if proxy.vend and content.startswith(b"{") and b'"config"' in content and b'"metadata"' in content:
                content = self.with_keys(json.loads(content))
            if proxy.headless and content.startswith(b"{") and b'"metadata"' in content:
                content = _headless(content)
            self.say(status, content)

        def with_keys(self, document: Any) -> bytes:
            """A table that is loaded or made, with keys, and with the place where Java asks for the next ones."""
            assert proxy.vend is not None
            location, table = document["metadata"]["location"], self.path.partition("?")[0]
            if self.command == "POST" and not _COMMIT.fullmatch(table):
                table = f"{table}/{json.loads(self.asked)['name']}"
            proxy.locations[table] = location
            own = {key: value for key, value in document["config"].items() if not key.startswith("s3.")}
            where = {"client.refresh-credentials-endpoint": f"{table.lstrip('/')}/credentials"}
            return json.dumps({**document, "config": own | where | proxy.vend(location)}).encode()

    with serving_http(Handler) as proxy.port:
        yield proxy


def _headless(content: bytes) -> bytes:
    """A table without its history: the head's snapshot, and no other."""
    document = json.loads(content)
    metadata = document["metadata"]
    head = metadata.get("current-snapshot-id")
    metadata["snapshots"] = [each for each in metadata.get("snapshots", ()) if each["snapshot-id"] == head]
    metadata["snapshot-log"] = [each for each in metadata.get("snapshot-log", ()) if each["snapshot-id"] == head]
    metadata["metadata-log"] = []
    return json.dumps(document).encode()


def _error(kind: str, message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}
