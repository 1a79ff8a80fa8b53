"""Error responses of Kafka Connect's REST interface."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response


def error(status: int, message: str, *, headers: Mapping[str, str] | None = None) -> Response:
    """Response with an error in Connect's JSON format; the error code is the HTTP status."""
    return JSONResponse({"error_code": status, "message": message}, status_code=status, headers=headers)
