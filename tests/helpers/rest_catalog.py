"""A REST catalog over HTTP in front of a SQL catalog, which answers commits as a test says."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest

from tests.helpers.http_service import QuietHandler, serving_http

Answer = tuple[int, bool]


class RestStandIn:
    """Serves what loading a table and committing to it need, on a free port of the loopback.

    Args:
        connect: Connects to the catalog behind it; called for each request, which has a thread of its own.

    Attributes:
        answers: Statuses of the next commits' responses, each with whether the commit is carried out all the same.
            Later commits get the answer of the catalog behind.
        commits: Number of commits that were requested.
        config: Function that makes the config of a loaded table.
    """

    def __init__(self, connect: Callable[[], Catalog]) -> None:
        self.connect: Callable[[], Catalog] = connect
        self.answers: deque[Answer] = deque()
        self.always: Answer | None = None
        self.commits: int = 0
        self.config: Callable[[], dict[str, str]] = dict
        stand_in = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:  # noqa: N802
                if self.path.startswith("/v1/config"):
                    self.say(200, {"defaults": {}, "overrides": {}})
                    return
                try:
                    table = stand_in.connect().load_table(self.identifier())
                except NoSuchTableError as problem:
                    self.say(404, _error("NoSuchTableException", str(problem), 404))
                    return
                self.say(200, _loaded(table.metadata_location, table.metadata) | {"config": stand_in.config()})

            def do_POST(self) -> None:  # noqa: N802
                self.say(*stand_in.commit(self.identifier(), self.body()))

            def identifier(self) -> tuple[str, ...]:
                parts = self.path.split("/")
                return (parts[parts.index("namespaces") + 1], parts[parts.index("tables") + 1])

        self._open: contextlib.ExitStack = contextlib.ExitStack()
        self._serving = serving_http(Handler)
        self.port: int = 0

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

    def client(self) -> RestCatalog:
        """A client of it."""
        return RestCatalog("rest", uri=f"http://127.0.0.1:{self.port}")

    def __enter__(self) -> Self:
        self.port = self._open.enter_context(self._serving)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def _loaded(location: str, metadata: Any) -> dict[str, Any]:
    return {"metadata-location": location, "metadata": json.loads(metadata.model_dump_json())}


def _error(kind: str, message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}
