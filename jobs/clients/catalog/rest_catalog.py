"""PyIceberg's client of REST catalogs, with time-outs and renewed storage credentials.

PyIceberg's own client has no time-outs: a driver would wait for ever for a server or load balancer that accepts a
request and never answers. This module relies on three details, pinned by
`tests/unit/clients/catalog/test_rest_catalog.py`: `RestCatalog._create_session` calls `_config_headers(session)`
before any use of the session, even for a token; loaded and created tables come from `_response_to_table`; and a commit
ends with `_delete_old_metadata`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from requests import RequestException, Response, Session, exceptions

from jobs.tables.write.file_access import keys_of
from jobs.tables.write.renewed_file_io import RenewedFileIO, StoreFileIO

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""How long a request waits for the next byte, in seconds; after that, the table shows whether a commit succeeded."""


# How urllib3 begins a message, and an error number within one.
_POOL = re.compile(r"^HTTPS?Connection(?:Pool)?\(.*?\): |\[Errno -?\d+\] ")


def connection_problem(problem: RequestException) -> str:
    """Message for a request without an answer: the server's address, and the innermost reason.

    The address has no path and no query, as they may hold secrets.
    """
    reason: Any = problem.args[0] if problem.args else problem
    while (inner := getattr(reason, "reason", None)) is not None:
        reason = inner
    url = urlsplit(str(problem.request.url or "") if problem.request is not None else "")
    server = url.netloc.rpartition("@")[2]
    # A broken connection and a proxy's failure are a phrase and the error behind it.
    phrases = reason.args if isinstance(getattr(reason, "args", None), tuple) and len(reason.args) == 2 else (reason,)
    text = ": ".join(_POOL.sub("", str(phrase)).rstrip(".") for phrase in phrases)
    return f"{url.scheme}://{server}: {text}" if server else text


class BoundedRestCatalog(RestCatalog):
    """PyIceberg's client, whose requests all end in an answer or an error."""

    def _config_headers(self, session: Session) -> None:
        ask = session.request

        @functools.wraps(ask)
        def bounded(*args: Any, **options: Any) -> Response:
            if isinstance(session.verify, str):
                # Without an explicit value, the environment's list of authorities would override the settings.
                options.setdefault("verify", session.verify)
            try:
                return ask(*args, **{"timeout": (CONNECT_SECONDS, ANSWER_SECONDS), **options})
            except (exceptions.ConnectionError, exceptions.Timeout) as problem:
                problem.args = (connection_problem(problem),)
                raise

        # An adapter would not work: signed requests have their own.
        session.request = bounded  # type: ignore[method-assign]
        super()._config_headers(session)

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Leave former metadata files to the server, as Java's client does. If both delete them, one of them warns."""

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        table = super()._response_to_table(identifier_tuple, table_response)
        found = table.io.properties
        if type(table.io) not in (PyArrowFileIO, StoreFileIO) or keys_of(found) == keys_of(self.properties):
            return table
        uuid = table.metadata.table_uuid

        def load() -> Mapping[str, Any] | None:
            now = self.load_table(identifier_tuple)
            return now.io.properties if now.metadata.table_uuid == uuid else None

        table.io = RenewedFileIO(found, load)
        return table
