"""Flush as its asker sees it: waits until the driver has landed what was there, and says what that was."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobs.errors import FrazilError
from jobs.state.store import StateStore
from jobs.supervise.heartbeat import Heartbeat, read_heartbeat
from jobs.supervise.lifecycle import ActionResult

FLUSH_SECONDS = 240.0
"""How long a flush is waited for, unless something else is said."""

_POLL_SECONDS = 0.25
_SHARED_POLL_SECONDS = 2.0
_SAY_SECONDS = 5.0


def await_flush(
    store: StateStore, stream: str, number: int, seconds: float, say: Callable[[str], None] = lambda line: None
) -> ActionResult:
    """Wait until the flush of this number is done.

    Args:
        store: The stream's part of the state store.
        seconds: For how long.
        say: Told every few seconds how far it is.

    Raises:
        FrazilError: The stream's driver failed, or it takes longer.
    """
    began = said = time.monotonic()
    while True:
        beat = read_heartbeat(store)
        if beat is not None and beat.work.flush.number >= number and beat.work.flush.done:
            return ActionResult(_sentence(stream, beat), beat, _facts(beat))
        if beat is not None and beat.state == "failed":
            why = beat.error.message if beat.error else "its driver failed"
            raise FrazilError(
                f"stream {stream}: {why}", fix=(beat.error and beat.error.fix) or f"frazil status {stream}"
            )
        now = time.monotonic()
        if now - began >= seconds:
            raise FrazilError(
                f"stream {stream} has not landed all that was there within {seconds:.0f} s: {_so_far(beat, number)}. "
                "It goes on with it.",
                fix=f"frazil status {stream}",
            )
        if now - said >= _SAY_SECONDS:
            said = now
            say(f"{stream}: {_so_far(beat, number)}, {now - began:.0f} s")
        time.sleep(_SHARED_POLL_SECONDS if store.shared else _POLL_SECONDS)


def _so_far(beat: Heartbeat | None, number: int) -> str:
    if beat is None:
        return "no driver has told of itself yet"
    if beat.work.flush.number < number:
        return f"its driver ({beat.state}) has not heard of it yet"
    flush = beat.work.flush
    return f"{flush.read:,} records read so far in {flush.batches} batches; its driver is {beat.state}"


def _sentence(stream: str, beat: Heartbeat) -> str:
    flush = beat.work.flush
    if not flush.read:
        return f"{stream} has landed what was there: nothing waited."
    batches = "a batch" if flush.batches == 1 else f"{flush.batches} batches"
    return (
        f"{stream} has landed what was there: {flush.read:,} records in {batches}, {flush.landed:,} landed, "
        f"{flush.dead:,} dead letters."
    )


def _facts(beat: Heartbeat) -> dict[str, int]:
    flush = beat.work.flush
    return {"batches": flush.batches, "read": flush.read, "landed": flush.landed, "dead": flush.dead}
