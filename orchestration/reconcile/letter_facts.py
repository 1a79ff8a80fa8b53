"""How a stream's letters stand, found out beside a tick: counted in a thread, by files that were not counted before."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from assets.letters import KNOWN_FILES
from jobs.deadletter.tally import Tally, tally
from jobs.spec.settings import Settings
from jobs.state.paths import stream_folder
from orchestration.reconcile.background import Background

_COUNTING = Background()


@dataclass(frozen=True, slots=True)
class LetterFacts:
    """A stream's letters, and the records that it has read since its first run."""

    tally: Tally
    read: int


def counted_letters(table: Table, stream: str, seconds: float) -> Tally | None:
    """A stream's letters; None if they are not counted yet, so that a later tick asks again.

    What was begun for an earlier tick may tell of an earlier snapshot, which the tally names: of a table that always
    changes, and takes long to count, that is all there will ever be.
    """
    key = (str(table.metadata.table_uuid), stream)
    return _COUNTING.ask(key, seconds, lambda: tally(table, stream, KNOWN_FILES))


def replays_mark(settings: Settings, stream: str) -> int:
    """Changes whenever a replay, or a decision about letters, has begun or ended; 0 before the first. Reads no file."""
    folder = stream_folder(settings, stream).root / "replay"
    try:
        newest = max((each.stat().st_mtime_ns for each in folder.iterdir()), default=0)
    except OSError:
        return 0
    return newest // 1000 & 0xFFFFFFFF
