"""Dropped tables of a stream: tables that it has written and that were dropped or renamed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator
from dataclasses import replace

from pyiceberg.catalog import Catalog

from jobs.base.failpoints import step
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.tables.commit.protocol.named_tables import with_tables_of
from jobs.tables.commit.protocol.refusals import is_there
from jobs.tables.commit.recovery.accept import recreated_table, signed_answer
from jobs.tables.commit.stamp.errors import TableDroppedError, TableGoneError, table_gone
from jobs.tables.commit.stamp.stamps import Stamp

log = logging.getLogger(__name__)

NOTE = "route.recreate: dropped, and restarted by the driver"


def refuse_gone(spec: StreamSpec, catalog: Catalog, written: Collection[str], newest: Stamp | None = None) -> None:
    """Raise for a dropped table before another is created in its place. Suspended tables are left alone.

    Args:
        written: Tables that the stream knows as its targets, by its coordinator and its lease.
        newest: The coordinator's newest stamp, if tables may be suspended.

    Raises:
        TargetRecreatedError: A table was dropped; the message names it, and the answer.
    """
    for name in spec.target_names:
        if newest is not None and (name in newest.parked or spec.parks(name)):
            continue
        if name in written and not is_there(catalog, name):
            raise table_gone(spec.stream, name)


def without_dropped(spec: StreamSpec, catalog: Catalog) -> StreamSpec:
    """The stream without dynamic tables that were dropped, if they are to begin anew."""
    if spec.route is None or not spec.route.recreate:
        return spec
    return spec.without_named_tables([name for name in spec.named_tables if not is_there(catalog, name)])


def begin_dropped_anew(stream: OpenStream) -> None:
    """Record on the claimed coordinator that dropped dynamic tables are no targets any more.

    Once a record names such a table again, it gets what follows the coordinator's position. That is what `frazil accept
    --recreated` does; here the stream's file answers beforehand.
    """
    newest, catalog, anchor = stream.anchor.newest, stream.anchor.catalog, stream.anchor
    if newest is None or stream.spec.route is None or not stream.spec.route.recreate:
        return
    known = with_tables_of(stream.spec, newest, catalog).named_tables
    dropped = [name for name in known if name in newest.targets and not is_there(catalog, name)]
    if not dropped:
        return

    def anew(now: Stamp | None) -> Stamp:
        stamp = now or newest
        for name in dropped:
            stamp = recreated_table({anchor.name: stamp}, anchor.name, name, stream.config)[anchor.name]
        return replace(signed_answer(stamp, stream.epoch, NOTE), generation=stream.generation or stamp.generation)

    step("before_dropped_tables")
    anchor.claim(stream.epoch, anew, again=True)
    step("after_dropped_tables")
    stream.spec = stream.spec.without_named_tables(dropped)
    for name in dropped:
        stream.targets.pop(name, None)
    log.warning("stream %s: %s was dropped, and is recreated when a record names it", stream.id, ", ".join(dropped))


@contextlib.contextmanager
def reopened_where_dropped(stream: OpenStream) -> Iterator[None]:
    """Report the end of a driver during which a dynamic table was dropped that is to begin anew.

    Raises:
        TableDroppedError: A table was dropped; the stream is to be reopened.
    """
    try:
        yield
    except TableGoneError as gone:
        route = stream.spec.route
        if route is None or not route.recreate or gone.table not in stream.spec.named_tables:
            raise
        raise TableDroppedError(
            f"stream {stream.id}: table {gone.table} was dropped under the driver, and is recreated.",
            fix=f"frazil run {stream.id}",
        ) from gone
