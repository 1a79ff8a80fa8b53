"""Resumption of a suspended table: an operator's statement that it takes commits, stamped on it and the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError, StreamStopped
from jobs.base.failpoints import step
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.tables.first_records import RecordsAwaitedError
from jobs.streaming.driver.tables.new_rows import NewColumns, SchemaAwaitedError, lane_columns
from jobs.streaming.driver.tables.previous_targets import previous_stamps
from jobs.streaming.driver.tables.routed_tables import ensure_routed_table
from jobs.streaming.driver.tables.row_table import ensure_row_table
from jobs.tables.commit.protocol.refusals import permitted
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.stamp.errors import NothingToAcceptError, RolledBackError, SchemaChangeError
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import NewestStamps, of_known_topics, target_positions


class UnparkTooEarlyError(StreamStopped):
    """A suspended table cannot return yet: a table, or the dead letters, lack the newest batch.

    Safe: Nothing was changed.
    Next: `frazil run S`, then `frazil accept S --unpark TABLE` again

    If the table was rolled back while it was suspended, `frazil accept S --rollback keep` comes first. The table's
    earlier rows cannot be landed again.
    """


def refuse_unless_parked(spec: StreamSpec, table: str, newest: Stamp | None) -> None:
    """Raise unless a table is suspended.

    Args:
        newest: The coordinator's newest stamp.

    Raises:
        NothingToAcceptError: The table is not suspended; the message names those that are.
    """
    parked = sorted(newest.parked) if newest else []
    if table in parked:
        return
    suspended = f"suspended are {', '.join(parked)}" if parked else "none is"
    raise NothingToAcceptError(
        f"table {table} of stream {spec.stream} is not suspended; {suspended}", fix="frazil status"
    )


def unpark_table(
    session: CommitSession,
    spec: StreamSpec,
    catalog: Catalog,
    table: str,
    note: str,
    *,
    make_target: Callable[..., Target] = Target,
    ensure: Callable[[StreamSpec, Catalog, str], object] = ensure_routed_table,
) -> dict[str, Decision]:
    """Resume a suspended table at the coordinator's position; its earlier records wait for a replay.

    A missing table is created by the stream's file. The table is claimed first: nobody who was about to commit before
    the suspension can commit any more, so a replay may read its rows.

    Args:
        session: Commit session of the stream, with the lease held.
        note: Author and reason.

    Raises:
        NothingToAcceptError: The table is not suspended.
        UnparkTooEarlyError: Its dead letters of the newest batch are incomplete, or another table lacks that batch.
        RolledBackError: A table was rolled back.
        TableForbiddenError: The table may still not be read.
        FrazilError: The table cannot hold the stream's rows, or somebody has committed meanwhile.
    """
    anchor = session.targets[spec.coordinator]
    for each in session.targets.values():
        each.read()
    newest = anchor.newest
    refuse_unless_parked(spec, table, newest)
    assert newest is not None, "it is suspended by a stamp"
    stamps = of_known_topics({name: each.newest for name, each in session.targets.items()}, anchor.name)
    letters = target_positions(stamps, anchor.name)[table]
    if any(letters.get(partition, -1) < at for partition, at in newest.position.items()):
        raise UnparkTooEarlyError(
            (
                f"stream {spec.stream}: table {table} is suspended, and some of its dead letters of the newest "
                "batch are not written yet."
            ),
            fix=f"frazil run {spec.stream}, which writes them; then give the same answer again",
        )
    _refuse_half(spec, session.targets, stamps, catalog)
    with permitted(spec.stream, table):
        ensure(spec, catalog, table)
    target = make_target(catalog, table, spec.stream, branch=spec.branch_of(table))
    try:
        target.claim(session.epoch, lambda known: _from(session, known, newest), again=True)
    except RolledBackError as back:
        # Its records would be landed again into a table that takes none.
        raise RolledBackError(
            back.message,
            fix=f"bring its snapshots back, or `frazil accept {spec.stream} --rollback keep` to leave the records out; "
            "then give the same answer again",
        ) from back
    step("after_unpark_claim")
    left = {name: at for name, at in newest.parked.items() if name != table}
    decision = Decision("unparked")
    # The newest batch's records for it are dead letters.
    rows, targets = {**newest.rows, table: 0}, {**newest.targets, table: target.uuid}
    stamp = replace(newest.decided(decision), rows=rows, targets=targets).with_parked(left)
    anchor.restamp(signed_answer(stamp, session.epoch, note))
    return {anchor.name: decision, table: decision}


def with_lost(note: str, lost: int | None) -> str:
    """Note of an answer, with the number of the table's missing dead letters."""
    return f"{note} ({lost:,} of its dead letters were missing)" if lost else note


def ensure_parked_table(
    spec: StreamSpec, catalog: Catalog, name: str, settings: Settings, kafka: Callable[[], KafkaLog]
) -> None:
    """Create a suspended table if it was dropped, and check that it holds the rows; a dependent one is aligned.

    A table with its own columns is created, as usual, from its topics' newest schemas or from their first records.

    Args:
        kafka: Connects to the brokers, if the table has to be created from records.

    Raises:
        FrazilError: The table cannot be created, or cannot hold the rows; it stays suspended.
    """
    again = "then give the same answer again"
    if not spec.own_columns:
        try:
            ensure_routed_table(spec, catalog, name)
        except SchemaChangeError as refused:
            # Otherwise the stream would go on, and the table would stay suspended.
            raise SchemaChangeError(refused.message, fix=f"alter table {name} so that it can; {again}") from refused
        return

    def columns() -> NewColumns:
        log = kafka().state(spec.source)
        return lane_columns(spec, name, settings, log, log.earliest)

    try:
        ensure_row_table(spec.for_table(name), catalog, columns)
    except (RecordsAwaitedError, SchemaAwaitedError) as awaited:
        # The command does not wait for records or schemas.
        raise FrazilError(awaited.message, fix=f"create table {name}; {again}") from awaited


def _refuse_half(spec: StreamSpec, targets: Mapping[str, Target], stamps: NewestStamps, catalog: Catalog) -> None:
    """Raise unless all tables have the newest batch: after the answer its pending record is of no use.

    Raises:
        UnparkTooEarlyError: A table lacks it.
    """
    former = previous_stamps(spec, targets, catalog)
    aside = {name: stamp for name, stamp in former.items() if name not in spec.target_names}
    if half := half_committed({**aside, **stamps}, spec.coordinator):
        raise UnparkTooEarlyError(
            f"stream {spec.stream}: the newest batch is not in {', '.join(half.lack)} yet.",
            fix=f"frazil run {spec.stream}, which gives it to all; then give the same answer again",
        )


def _from(session: CommitSession, known: Stamp | None, anchored: Stamp) -> Stamp:
    claimed = session.claim_of(known)
    return replace(claimed, start=anchored.start, position=anchored.position, ends={}, rows={})
