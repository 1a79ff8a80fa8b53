"""Error of Kafka Connect's REST interface, as JSON."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response


def error(status: int, message: str, *, headers: Mapping[str, str] | None = None) -> Response:
    """An error as Connect shapes it; its code is the status."""
    return JSONResponse({"error_code": status, "message": message}, status_code=status, headers=headers)
