"""A REST catalog over HTTP in front of a SQL catalog, which answers commits as a test says."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest

Answer = tuple[int, bool]


class RestStandIn:
    """Serves what loading a table and committing to it need, on a free port of the loopback.

    Args:
        connect: Connects to the catalog behind it; called for each request, which has a thread of its own.

    Attributes:
        answers: For the next commits, the status that each is answered with, and whether it is carried out all the
            same. Further ones are answered as the catalog behind says.
        commits: How many were asked for.
        config: Makes what is handed out with a table that is loaded.
    """

    def __init__(self, connect: Callable[[], Catalog]) -> None:
        self.connect: Callable[[], Catalog] = connect
        self.answers: deque[Answer] = deque()
        self.always: Answer | None = None
        self.commits: int = 0
        self.config: Callable[[], dict[str, str]] = dict
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/v1/config"):
                    self.say(200, {"defaults": {}, "overrides": {}})
                    return
                try:
                    table = stand_in.connect().load_table(self.identifier())
                except NoSuchTableError as problem:
                    self.say(404, _error("NoSuchTableException", str(problem), 404))
                    return
                self.say(200, _loaded(table.metadata_location, table.metadata) | {"config": stand_in.config()})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.say(*stand_in.commit(self.identifier(), body))

            def identifier(self) -> tuple[str, ...]:
                parts = self.path.split("/")
                return (parts[parts.index("namespaces") + 1], parts[parts.index("tables") + 1])

            def say(self, status: int, document: Any) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def commit(self, identifier: tuple[str, ...], body: bytes) -> tuple[int, Any]:
        self.commits += 1
        status, lands = self.answers.popleft() if self.answers else self.always or (200, True)
        if lands:
            asked = CommitTableRequest.model_validate_json(body)
            catalog = self.connect()
            try:
                made = catalog.commit_table(catalog.load_table(identifier), asked.requirements, asked.updates)
            except CommitFailedException as problem:
                return 409, _error("CommitFailedException", str(problem), 409)
            if status == 200:
                return 200, _loaded(made.metadata_location, made.metadata)
        return status, _error("StandIn", f"the stand-in says {status}", status)

    @property
    def port(self) -> int:
        """On 127.0.0.1."""
        return self._server.server_address[1]

    def client(self) -> RestCatalog:
        """A client of it."""
        return RestCatalog("rest", uri=f"http://127.0.0.1:{self.port}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _loaded(location: str, metadata: Any) -> dict[str, Any]:
    return {"metadata-location": location, "metadata": json.loads(metadata.model_dump_json())}


def _error(kind: str, message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}
