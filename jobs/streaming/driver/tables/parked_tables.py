"""Parked tables of a stream: those that take no commits any more, and whose place letters of their records hold.

Parking is decided by whoever opens the stream and has claimed it. A driver that meets such a table while it runs ends
the query, once all other tables have the batch, and opens the stream anew.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pyiceberg.exceptions import NoSuchTableError

from jobs.base.errors import StreamStopped
from jobs.base.failpoints import step
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.tables.commit.protocol.parked_target import (
    ParkedTarget,
    held_by_letters,
    letters_held,
    parked_target,
    why_unable,
)
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.stamp.errors import (
    CommitDeniedError,
    TableForbiddenError,
    TableUnableError,
    TargetRecreatedError,
    table_gone,
)
from jobs.tables.commit.stamp.offsets import Positions
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import of_known_topics, target_positions

log = logging.getLogger(__name__)

NOTE = "route.on_table_error: parked by the driver, as"
UNABLE = (TargetRecreatedError, TableForbiddenError, CommitDeniedError)
"""What a table does that is parked then: it is gone or another one, may not be read, or refuses its commit for good."""


def take_places(stream: OpenStream) -> frozenset[str]:
    """Let letters hold the place of each target that is parked, or is to be, by what the claimed coordinator says.

    Returns:
        Those that were parked now, and are claimed.

    Raises:
        TargetRecreatedError, TableForbiddenError: A table is gone, or may not be read, that is not to be parked.
    """
    newest, catalog = stream.anchor.newest, stream.anchor.catalog
    if newest is None:
        return frozenset()
    known = {name: target.identity for name, target in stream.targets.items()} | dict(newest.targets)
    held = held_by_letters(stream.spec, catalog, known, newest, parking=True)
    for name, target in list(stream.targets.items()):
        if name in held and not isinstance(target, ParkedTarget):
            stream.targets[name] = parked_target(stream.spec, catalog, name, held[name])
        elif name not in held and isinstance(target, ParkedTarget):
            # It was put back, or an operator has said so, since this driver looked.
            stream.targets[name] = _real(stream, name)
    new = frozenset(name for name in held if name not in newest.parked)
    park(stream, {name: why_unable(catalog, name, held[name]) or "it was away" for name in held if name in new})
    return new


def _real(stream: OpenStream, name: str) -> Target:
    try:
        target = Target(stream.anchor.catalog, name, stream.id, branch=stream.spec.branch_of(name))
    except NoSuchTableError:
        raise table_gone(stream.id, name) from None
    target.read()
    return target


def park(stream: OpenStream, unable: Mapping[str, str]) -> None:
    """Park targets of a stream that is claimed.

    The place of each begins where the table stands, as far as known. A batch that it may lack is missing there, and its
    tasks run again for its letters.
    """
    if not unable:
        return
    anchor, newest = stream.anchor, stream.anchor.newest
    if newest is None:
        raise TypeError("a stream that has never been stamped has no table to park")
    stamps = {
        name: None if name in unable and isinstance(target, ParkedTarget) else target.newest
        for name, target in stream.targets.items()
    }
    positions = target_positions(of_known_topics(stamps, anchor.name), anchor.name)
    step("before_parking")
    for name in unable:
        target = stream.targets[name]
        if not isinstance(target, ParkedTarget):
            target = parked_target(stream.spec, anchor.catalog, name, target.identity)
        # Whatever letters of an earlier time say.
        target.claim(stream.epoch, _from(stream, target, newest, positions[name]), again=True)
        stream.targets[name] = target
    now_ms = time.time_ns() // 1_000_000

    def parked(now: Stamp | None) -> Stamp:
        stamp = now or newest
        since = {**stamp.parked, **dict.fromkeys(unable, now_ms)}
        uuids = {name: stream.targets[name].identity for name in unable}
        held = letters_held(stream.targets, stamp, unable)
        stamp = replace(stamp.decided(Decision("parked")), targets={**stamp.targets, **uuids}).with_parked(since, held)
        generation = stream.generation or stamp.generation
        return replace(signed_answer(stamp, stream.epoch, _note(unable)), generation=generation)

    step("between_parking")
    anchor.claim(stream.epoch, parked, again=True)
    step("after_parking")
    for name, why in unable.items():
        log.error(
            "stream %s: table %s is parked: %s. Its records are kept as dead letters from here on. Next: %s",
            *(stream.id, name, why, next_command(stream.id, name)),
        )


def next_command(stream: str, table: str) -> str:
    """What an operator does about a parked table."""
    back = f"put {table} back, or see that it takes commits, and the columns of the stream's rows"
    return f"{back}; stop the stream, `frazil accept {stream} --unpark {table}`"


def _note(unable: Mapping[str, str]) -> str:
    told = [f"{name}: {why}" for name, why in list(unable.items())[:5]]
    more = f"; and {len(unable) - 5} more" if len(unable) > 5 else ""
    return f"{NOTE} {'; '.join(told)}{more}"


def _from(stream: OpenStream, target: Target, anchored: Stamp, position: Positions) -> Callable[[Stamp | None], Stamp]:
    def make(newest: Stamp | None) -> Stamp:
        claimed = stream.claim_of(newest, stream=target.stream)
        return replace(claimed, start=anchored.start, position=position, ends={}, rows={})

    return make


def _noting(
    stream: OpenStream, problems: tuple[type[StreamStopped], ...], unable: dict[str, str]
) -> Callable[[str], contextlib.AbstractContextManager[None]]:
    """A block for what is done on one target; notes that the target is unable, if it is to be parked for that."""

    @contextlib.contextmanager
    def on(name: str) -> Iterator[None]:
        try:
            yield
        except problems as problem:
            if not stream.spec.parks(name) or isinstance(stream.targets.get(name), ParkedTarget):
                raise
            unable[name] = problem.message

    return on


@contextlib.contextmanager
def parking_where_unable(stream: OpenStream) -> Iterator[Callable[[str], contextlib.AbstractContextManager[None]]]:
    """Park, at the end of the block, the targets that turned out to take no commits within it.

    Gives:
        A block for what is done on one target.
    """
    unable: dict[str, str] = {}
    yield _noting(stream, UNABLE, unable)
    park(stream, unable)


@contextlib.contextmanager
def reopened_where_unable(stream: OpenStream) -> Iterator[None]:
    """Tell the end of a driver that has met a table which is to be parked.

    Raises:
        TableUnableError: It has; the stream is to be opened again.
    """
    try:
        yield
    except (TargetRecreatedError, TableForbiddenError) as gone:
        held = isinstance(stream.targets.get(gone.table), ParkedTarget)
        if held or not stream.spec.parks(gone.table):
            raise
        raise unable_error(stream, {gone.table: gone.message}) from gone


@contextlib.contextmanager
def parked_where_refused(
    stream: OpenStream, refused: tuple[type[StreamStopped], ...] = (CommitDeniedError,)
) -> Iterator[Callable[[str], contextlib.AbstractContextManager[None]]]:
    """Park, at the end of the block, the tables that refuse within it to have their columns changed.

    They are parked at once, and nothing of a batch is recorded yet: whoever opens the stream sees nothing wrong with
    such tables. One that is gone, or may not be read, is parked when the stream is opened again, as ever.

    Gives:
        A block for what is done on one table.

    Raises:
        TableUnableError: One was parked; the stream is to be opened again.
    """
    unable: dict[str, str] = {}
    yield _noting(stream, refused, unable)
    if unable:
        stream.lease.verify()
        park(stream, unable)
        raise unable_error(stream, unable, "is parked")


def unable_error(
    stream: OpenStream, unable: Mapping[str, str], becomes: str = "is parked when the stream is opened again"
) -> TableUnableError:
    """The error with which a driver opens the stream again, to park what takes no commits."""
    return TableUnableError(
        f"stream {stream.id}: {', '.join(unable)} takes no commits, and {becomes}: {' '.join(unable.values())}",
        fix=f"frazil run {stream.id}",
    )
