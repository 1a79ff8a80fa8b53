"""Suspended tables of a stream: they take no commits, and their records become dead letters in a placeholder.

A process that has opened and claimed the stream suspends tables. If a running driver meets such a table, it ends the
query once all other tables have the batch, and reopens the stream.
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

NOTE = "route.on_table_error: suspended by the driver, as"
UNABLE = (TargetRecreatedError, TableForbiddenError, CommitDeniedError)
"""Errors of a table that suspend it: it was dropped or recreated, may not be read, or refuses its commit for good."""


def take_places(stream: OpenStream) -> frozenset[str]:
    """Replace each suspended target by its placeholder, and suspend others, by the claimed coordinator's stamp.

    Returns:
        Tables that were suspended now, and are claimed.

    Raises:
        TargetRecreatedError, TableForbiddenError: A table that may not be suspended was dropped, or may not be read.
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
            # It was put back or resumed since this driver looked.
            stream.targets[name] = _real(stream, name)
    new = frozenset(name for name in held if name not in newest.parked)
    park(stream, {name: why_unable(catalog, name, held[name]) or "it was unavailable" for name in held if name in new})
    return new


def _real(stream: OpenStream, name: str) -> Target:
    try:
        target = Target(stream.anchor.catalog, name, stream.id, branch=stream.spec.branch_of(name))
    except NoSuchTableError:
        raise table_gone(stream.id, name) from None
    target.read()
    return target


def park(stream: OpenStream, unable: Mapping[str, str]) -> None:
    """Suspend targets of a claimed stream.

    Each placeholder begins at the table's position, as far as known. If the table may lack a batch, the placeholder
    lacks it too, and the tasks run again for its dead letters.
    """
    if not unable:
        return
    anchor, newest = stream.anchor, stream.anchor.newest
    if newest is None:
        raise TypeError("a stream that has never been stamped has no table to suspend")
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
        # Overrides what dead letters of an earlier time left.
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
            "stream %s: table %s is suspended: %s. Its records become dead letters from here on. Next: %s",
            *(stream.id, name, why.rstrip("."), next_command(stream.id, name)),
        )


def next_command(stream: str, table: str) -> str:
    """What an operator does about a parked table."""
    back = f"restore {table}, or let it take commits, and the columns of the stream's rows"
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
    """Block for an operation on one target; records the target as unable if it is to be suspended for its error."""

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
    """Suspend, at the end of the block, the targets that proved unable to take commits.

    Gives:
        A block for an operation on one target.
    """
    unable: dict[str, str] = {}
    yield _noting(stream, UNABLE, unable)
    park(stream, unable)


@contextlib.contextmanager
def reopened_where_unable(stream: OpenStream) -> Iterator[None]:
    """Report the end of a driver that has met a table which is to be suspended.

    Raises:
        TableUnableError: It has met one; the stream is to be reopened.
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
    """Suspend, at the end of the block, the tables that refuse a change of their columns within it.

    They are suspended at once, before anything of the batch is recorded, because a new opening would find nothing wrong
    with them. A dropped or unreadable table is suspended when the stream is reopened, as usual.

    Gives:
        A block for an operation on one table.

    Raises:
        TableUnableError: A table was suspended; the stream is to be reopened.
    """
    unable: dict[str, str] = {}
    yield _noting(stream, refused, unable)
    if unable:
        stream.lease.verify()
        park(stream, unable)
        raise unable_error(stream, unable, "is suspended")


def unable_error(
    stream: OpenStream, unable: Mapping[str, str], becomes: str = "is suspended when the stream is reopened"
) -> TableUnableError:
    """Error after which a driver reopens the stream, to suspend what takes no commits."""
    return TableUnableError(
        f"stream {stream.id}: {', '.join(unable)} takes no commits, and {becomes}: {' '.join(unable.values())}",
        fix=f"frazil run {stream.id}",
    )
