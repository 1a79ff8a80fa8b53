"""A driver of a quiet stream in a process of its own: it opens the stream, and looks until the watermark moves on."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobs.clients.kafka.metadata import LogEnds
from jobs.streaming.driver.context.progress import WorkLog
from jobs.streaming.driver.process.idle_watermark import IdleWatermark
from tests.helpers.routed_stream import RoutedStream

BLOCKS: dict[str, Any] = {
    "decode": {"value": "json", "schema": "id string not null, at timestamptz as iso not null"},
    "event_time": {"column": "at", "grace": "10m", "idle_after": "1s"},
}
_POLL_SECONDS = 0.02
_LONGEST_SECONDS = 120.0


def look_until_it_moves(home: str, epoch: int, above_ms: int) -> None:
    """Open the stream, and look until its watermark is above one, and once more.

    Args:
        home: Folder of the deployment.
        epoch: Epoch of the driver.
        above_ms: Watermark after the last batch.
    """
    world = RoutedStream(Path(home), epoch=epoch, **BLOCKS)
    # The logs end where the stream stands.
    kafka: Any = SimpleNamespace(ends=lambda end: LogEnds({}, dict(end), {}))
    watch = IdleWatermark(world.stream, world.spec.event_time, kafka, WorkLog(0.0), pause_seconds=0.0)
    deadline = time.monotonic() + _LONGEST_SECONDS
    while (world.stream.watermark_ms or 0) <= above_ms and time.monotonic() < deadline:
        watch.look()
        time.sleep(_POLL_SECONDS)
    watch.look()
    print(world.stream.watermark_ms)
