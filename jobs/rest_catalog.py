"""REST catalog's client of PyIceberg, with an end to its waiting.

PyIceberg's own asks without a time-out: of a server, or a load balancer, that takes a request and never answers, a
driver would wait for ever. Relied upon, and pinned by `tests/unit/test_rest_catalog.py`: `RestCatalog._create_session`
calls `_config_headers(session)` before the session is used for anything, a token included.
"""

from __future__ import annotations

import functools
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import Response, Session

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""What it waits for the next byte of an answer; what becomes of a commit is asked of the table then."""


class BoundedRestCatalog(RestCatalog):
    """PyIceberg's client, of which every request ends in an answer or an error."""

    def _config_headers(self, session: Session) -> None:
        ask = session.request

        @functools.wraps(ask)
        def bounded(*args: Any, **options: Any) -> Response:
            if isinstance(session.verify, str):
                # Of the settings; where nothing is said, the environment's list of authorities would come before it.
                options.setdefault("verify", session.verify)
            return ask(*args, **{"timeout": (CONNECT_SECONDS, ANSWER_SECONDS), **options})

        # Not by an adapter: signed requests have one of their own.
        session.request = bounded  # type: ignore[method-assign]
        super()._config_headers(session)
