"""Stream of a backfill: a stream of its own on the tables of another one, which lands offset ranges later."""

from __future__ import annotations

from jobs.config.stream.models import StreamSpec
from jobs.config.stream.stream_targets import without_parking

_PART = "~backfill"


def backfill_id(stream: str) -> str:
    """Id under which backfills of a stream stamp its tables; no stream can have it."""
    return f"{stream}{_PART}"


def backfilled_stream(stream: str) -> str:
    """The stream whose dead letters and rows a backfill writes, by its id; any other id is returned unchanged."""
    return stream.removesuffix(_PART)


def as_backfill(spec: StreamSpec) -> StreamSpec:
    """The stream for its backfill: failures do not stop it, nothing is late, and no table is suspended.

    A backfill reads old records, so it does not move the stream's watermark.
    """
    return spec.model_copy(
        update={
            "stream": backfill_id(spec.stream),
            "errors": spec.errors.model_copy(update={"tolerance": "all", "stop_above": None, "topic": None}),
            "event_time": None,
            "route": without_parking(spec.route),
        }
    )
