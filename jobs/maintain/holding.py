"""Who needs a table's snapshots: asked of the ledger, the state folder, the streams' files and the table itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.commit.history import stamps_along_main
from jobs.errors import FrazilError, first_line
from jobs.maintain.keeping import CEILING, Hold, readers, streams_of, time_of
from jobs.maintain.pending_notes import pending_notes
from jobs.redaction import redacted
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.lease import stream_lease
from jobs.verify import ledger_fill
from jobs.verify.ledger_checkpoints import fill_checkpoints_of
from jobs.verify.ledger_table import find_ledger

log = logging.getLogger(__name__)

# A record is written before its commit, on a clock that a snapshot's time may be ahead of.
_BEFORE_RECORD = timedelta(minutes=5)
_JOBS = {"replay": "a replay of its letters", "connect": "a queue of Kafka Connect that it takes over"}


def streams_at(specs: Sequence[StreamSpec], table: str) -> list[StreamSpec]:
    """The streams whose table, or dead letters, this is."""
    return [spec for spec in specs if table in spec.target_names]


def holds(
    catalog: Catalog,
    settings: Settings,
    specs: Sequence[StreamSpec],
    name: str,
    table: Table,
    now: datetime,
    *,
    to_be_filled: bool = False,
) -> list[Hold]:
    """Everybody who needs snapshots of the table.

    Args:
        specs: All streams of the deployment.
        table: As it is now, and after `fill_ledger`.
        to_be_filled: The ledger will be filled first: a plan is made.

    Raises:
        FrazilError: A pending record cannot be read.
    """
    return [
        *readers(table.metadata, now),
        *_unrecorded(catalog, settings, specs, name, table, now, to_be_filled=to_be_filled),
        *_pending(settings, name, table, now),
        *_at_work(settings, specs, name, table, now),
        *_windows(specs, name, now),
    ]


def fill_ledger(catalog: Catalog, settings: Settings, specs: Sequence[StreamSpec], name: str) -> str | None:
    """Write what the table's stamps say to the ledger; returns why it could not be, which then keeps them."""
    concerned = streams_at(specs, name)
    if not concerned:
        return None
    try:
        ledger_fill.fill_ledger(catalog, settings, concerned)
    except Exception as problem:
        said = problem.message if isinstance(problem, FrazilError) else f"{type(problem).__name__}: {problem}"
        told = redacted(settings, first_line(said))
        log.warning("the ledger could not be filled for table %s: %s", name, told)
        return told
    return None


def _unrecorded(
    catalog: Catalog,
    settings: Settings,
    specs: Sequence[StreamSpec],
    name: str,
    table: Table,
    now: datetime,
    *,
    to_be_filled: bool,
) -> Iterator[Hold]:
    """The stamps that the ledger lacks; what replays and queues stamp it never has."""
    streams = [stream for stream in streams_of(table.metadata) if "~" not in stream]
    found = find_ledger(catalog, settings) if streams else None
    recorded = found.metadata.properties if found else {}
    has_file = {spec.stream for spec in streams_at(specs, name)}
    uuid = str(table.metadata.table_uuid)
    for stream in streams:
        if to_be_filled and stream in has_file:
            continue
        known = fill_checkpoints_of(recorded, stream)
        after = known[uuid].sequence if uuid in known else -1
        lacking = [key for key, stamp in stamps_along_main(table.metadata, stream, after) if stamp.kind != "claim"]
        oldest = table.metadata.snapshot_by_id(lacking[-1]) if lacking else None
        if oldest is None:
            continue
        if stream in has_file:
            why = f"{len(lacking):,} stamps of stream {stream} are not in the ledger {settings.ledger.table} yet"
            yield Hold("ledger", time_of(oldest), why, warn=True)
        else:
            why = f"{len(lacking):,} stamps of stream {stream}, which no file names any more, are not in the ledger"
            yield Hold("ledger", max(time_of(oldest), now - CEILING), why, warn=True)


def _pending(settings: Settings, name: str, table: Table, now: datetime) -> Iterator[Hold]:
    """Whether a batch landed is told by its snapshot, for as long as its record stands."""
    for note in pending_notes(settings):
        if note.concerns(name, str(table.metadata.table_uuid)):
            old = now - note.written > CEILING
            why = f"the batch of {note.name} of stream {note.stream} is not finished: {note.command}"
            yield Hold("pending record", note.written - _BEFORE_RECORD, why, warn=old)


def _at_work(settings: Settings, specs: Sequence[StreamSpec], name: str, table: Table, now: datetime) -> Iterator[Hold]:
    """Replays read letters of the snapshot that they found; how long ago no lease tells."""
    named = {spec.stream for spec in streams_at(specs, name)}
    for stream in sorted(named | {stream.partition("~")[0] for stream in streams_of(table.metadata)}):
        for part, what in _JOBS.items():
            if _is_held(settings, stream, part):
                yield Hold(f"{part} of {stream}", now - CEILING, f"{what} is at work")


def _is_held(settings: Settings, stream: str, part: str) -> bool:
    try:
        record = stream_lease(settings, f"{stream}~{part}").read()
    except FrazilError:
        # What cannot be read may be held.
        return True
    return record is not None and record.held()


def _windows(specs: Sequence[StreamSpec], name: str, now: datetime) -> Iterator[Hold]:
    """A driver that starts counts the failures of the window anew, from the stamps."""
    for spec in specs:
        limit = spec.errors.stop_above
        if spec.table.name == name and limit is not None and limit.window is not None:
            why = f"stream {spec.stream} counts the failures of that time (errors.stop_above.window)"
            yield Hold("errors.stop_above.window", now - limit.window.of, why)
