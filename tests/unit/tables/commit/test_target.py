"""Claims, commits and their races on a real catalog: two `Target`s of one table are two drivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, NestedField, StringType

from jobs.tables.commit.protocol.compare_and_swap import Backoff
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import (
    CommitRefusedError,
    FencedError,
    RolledBackError,
    TargetRecreatedError,
)
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.write.column_statistics import ColumnStatistics
from jobs.tables.write.pyiceberg_files import new_data_file
from tests.unit.tables.commit.conftest import (
    NAME,
    SCHEMA,
    data_file,
    rows_of,
)

P0 = TopicPartition("t", 0)


def first(epoch: int) -> Callable[[Stamp | None], Stamp]:
    def make(newest: Stamp | None) -> Stamp:
        return newest.claimed(epoch) if newest else Stamp("s", "claim", -1, epoch, "c", start={P0: 0}, position={P0: 0})

    return make


def batch_stamp(epoch: int, start: int, end: int, rows: int = 3) -> Stamp:
    counts = Counts(read=rows, landed=rows)
    return Stamp("s", "batch", 0, epoch, "c", start={P0: start}, position={P0: end}, rows={NAME: rows}, counts=counts)


def land(target: Target, epoch: int, start: int, end: int, *, rows: int = 3, at: int | None = None) -> ProposalOutcome:
    """Run a batch whose tasks saw the table as the target has it now."""
    return prepare(target, epoch, start, end, rows=rows, at=at)()


def prepare(
    target: Target, epoch: int, start: int, end: int, *, rows: int = 3, at: int | None = None
) -> Callable[[], ProposalOutcome]:
    """The same, with the commit still to come."""
    seen, batch = target.seen(), {P0: OffsetRange(start, end)}
    files = [data_file(target.table, rows)] if rows else []
    stamp, position = batch_stamp(epoch, start, end, rows), {P0: start if at is None else at}
    ranges: Ranges = batch
    return lambda: target.land(stamp, files, seen=seen, batch=ranges, position=position)


@pytest.fixture
def connect(catalog: SqlCatalog, new_catalog: Callable[[], SqlCatalog]) -> Callable[[], Target]:
    return lambda: Target(new_catalog(), NAME, "s")


@pytest.fixture
def target(connect: Callable[[], Target]) -> Target:
    made = connect()
    made.claim(1, first(1))
    return made


def test_a_batch_lands_with_its_stamp_and_totals(target: Target, catalog: SqlCatalog) -> None:
    assert land(target, 1, 0, 3) is ProposalOutcome.LANDED
    assert land(target, 1, 3, 6) is ProposalOutcome.LANDED
    fresh = Target(catalog, NAME, "s")
    newest = fresh.read()
    assert newest is not None
    assert (newest.position, newest.start, newest.totals.landed) == ({P0: 6}, {P0: 3}, 6)
    assert rows_of(fresh.table) == 6
    assert fresh.greatest_epoch() == 1
    assert fresh.snapshot_id == target.snapshot_id


def test_an_older_epoch_is_fenced(target: Target, connect: Callable[[], Target]) -> None:
    commit = prepare(target, 1, 0, 3)
    connect().claim(2, first(2))
    with pytest.raises(FencedError, match=r"another driver took over \(epoch 2"):
        commit()
    assert rows_of(connect().table) == 0


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_claim_of_the_same_or_an_older_epoch_is_fenced(connect: Callable[[], Target], epoch: int) -> None:
    connect().claim(2, first(2))
    with pytest.raises(FencedError):
        connect().claim(epoch, first(epoch))


def test_a_claim_that_meets_a_commit_takes_its_position(target: Target, new_catalog: Callable[[], SqlCatalog]) -> None:
    commits = [prepare(target, 1, 0, 3)]

    def late(*args: Any, **kwargs: Any) -> int:
        if commits:
            commits.pop()()
        return commit_once(*args, **kwargs)

    other = Target(new_catalog(), NAME, "s", commit_once=late)
    claim = other.claim(2, first(2))
    assert (claim.position, claim.epoch, other.refusals) == ({P0: 3}, 2, 1)


def by_another_appender(table: Table) -> None:
    table.append(table.scan().to_arrow())


def by_compaction(table: Table) -> None:
    table.overwrite(table.scan().to_arrow())


def by_new_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("new", StringType())


def by_properties(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"a": "b"})


@pytest.mark.parametrize(
    "change", [by_another_appender, by_compaction, by_new_column, by_properties], ids=lambda change: change.__name__
)
def test_a_table_that_moved_under_the_batch_takes_the_same_files(
    target: Target, catalog: SqlCatalog, change: Callable[[Table], None]
) -> None:
    land(target, 1, 0, 3)
    commit = prepare(target, 1, 3, 8, rows=5)
    change(catalog.load_table(NAME))
    assert commit() is ProposalOutcome.LANDED
    table = catalog.load_table(NAME)
    assert rows_of(table) == (11 if change is by_another_appender else 8)
    assert target.refusals == (0 if change is by_properties else 1)
    assert target.newest is not None
    assert (target.newest.position, target.newest.totals.landed) == ({P0: 8}, 8)


def by_dropping_a_column(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("day")


def by_new_spec(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("day", IdentityTransform())


@pytest.mark.parametrize("change", [by_dropping_a_column, by_new_spec], ids=lambda change: change.__name__)
def test_files_that_no_longer_fit_are_not_committed(
    target: Target, catalog: SqlCatalog, change: Callable[[Table], None]
) -> None:
    commit = prepare(target, 1, 0, 3)
    change(catalog.load_table(NAME))
    assert commit() is ProposalOutcome.RUN_AGAIN
    assert rows_of(catalog.load_table(NAME)) == 0
    assert land(target, 1, 0, 3) is ProposalOutcome.LANDED, "the files of the second run fit"


def test_an_empty_commit_fits_any_schema(target: Target, catalog: SqlCatalog) -> None:
    commit = prepare(target, 1, 0, 3, rows=0)
    by_new_spec(catalog.load_table(NAME))
    assert commit() is ProposalOutcome.LANDED


def test_a_batch_that_is_there_is_not_committed_again(target: Target, connect: Callable[[], Target]) -> None:
    twin = connect()
    twin.read()
    commit = prepare(twin, 1, 0, 3)
    land(target, 1, 0, 3)
    assert commit() is ProposalOutcome.LANDED
    assert rows_of(connect().table) == 3


def test_a_batch_that_is_there_in_part_runs_again(target: Target) -> None:
    land(target, 1, 0, 3)
    assert land(target, 1, 0, 5, rows=5, at=0) is ProposalOutcome.RUN_AGAIN, "also without a refusal in between"
    assert rows_of(target.table) == 3
    assert land(target, 1, 0, 5, rows=2, at=3) is ProposalOutcome.LANDED
    assert rows_of(target.table) == 5


def test_a_target_ahead_of_the_batch_keeps_position_and_names_of_the_batch_before(target: Target) -> None:
    p1 = TopicPartition("t", 1)
    ahead = replace(batch_stamp(1, 0, 9), rows={NAME: 3, "orders.dead": 2})
    target.land(ahead, [], seen=target.seen(), batch={P0: OffsetRange(0, 9)}, position={P0: 0})
    stamp = replace(batch_stamp(1, 0, 1), start={P0: 0, p1: 0}, position={P0: 1, p1: 1}, rows={NAME: 1})
    batch = {P0: OffsetRange(0, 1), p1: OffsetRange(0, 1)}
    assert target.land(stamp, [], seen=target.seen(), batch=batch, position={P0: 9}) is ProposalOutcome.LANDED
    assert target.newest is not None
    assert target.newest.position == {P0: 9, p1: 1}
    assert target.newest.rows == {NAME: 1, "orders.dead": 2}


def test_a_retired_partition_leaves_the_stamp(target: Target) -> None:
    p1 = TopicPartition("t", 1)
    stamp = replace(batch_stamp(1, 0, 1), start={p1: 0}, position={p1: 1})
    target.land(stamp, [], seen=target.seen(), batch={p1: OffsetRange(0, 1)}, position={})
    assert target.newest is not None
    assert target.newest.position == {p1: 1}


def test_an_unknown_outcome_that_landed_is_not_repeated(
    target: Target, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, own = prepare(target, 1, 0, 3), target.table.catalog.commit_table

    def lands_and_fails(*args: Any) -> Any:
        own(*args)
        raise CommitStateUnknownException("504")

    monkeypatch.setattr(target.table.catalog, "commit_table", lands_and_fails)
    assert commit() is ProposalOutcome.LANDED
    assert rows_of(catalog.load_table(NAME)) == 3


def test_a_catalog_that_always_refuses_is_told_with_its_last_word(
    target: Target, new_catalog: Callable[[], SqlCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(new_catalog(), NAME, "s", partial(Backoff, most=3))
    target.read()

    def conflict(*args: Any) -> Any:
        raise CommitFailedException("another commit is under way")

    commit = prepare(target, 1, 0, 3)
    monkeypatch.setattr(target.table.catalog, "commit_table", conflict)
    with pytest.raises(CommitRefusedError, match=r"3 commits in a row on table orders\.payments.*is under way"):
        commit()


def test_a_recreated_table_is_recognised_by_a_commit(target: Target, catalog: SqlCatalog) -> None:
    commit = prepare(target, 1, 0, 3)
    catalog.drop_table(NAME)
    catalog.create_table(NAME, SCHEMA)
    with pytest.raises(TargetRecreatedError, match="was dropped and created again"):
        commit()
    with pytest.raises(TargetRecreatedError):
        target.read()


def test_a_recreated_table_is_recognised_by_a_claim_that_it_refused(target: Target, catalog: SqlCatalog) -> None:
    def after_recreation(*args: Any, **kwargs: Any) -> int:
        if catalog.load_table(NAME).metadata.snapshots:
            catalog.drop_table(NAME)
            catalog.create_table(NAME, SCHEMA)
        return commit_once(*args, **kwargs)

    other = Target(catalog, NAME, "s", commit_once=after_recreation)
    with pytest.raises(TargetRecreatedError):
        other.claim(2, first(2))
    assert catalog.load_table(NAME).metadata.snapshots == []


def test_a_table_that_is_gone(target: Target, catalog: SqlCatalog) -> None:
    catalog.drop_table(NAME)
    with pytest.raises(TargetRecreatedError, match=r"orders\.payments was dropped"):
        target.read()


def test_a_rolled_back_table_stops_and_names_the_records(target: Target, catalog: SqlCatalog) -> None:
    land(target, 1, 0, 3)
    before = target.snapshot_id
    land(target, 1, 3, 6)
    assert before is not None
    catalog.load_table(NAME).manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    commit = prepare(target, 1, 6, 9)
    for _ in range(2):
        with pytest.raises(RolledBackError, match=r"t-0 \[3, 6\)"):
            commit()
    with pytest.raises(RolledBackError):
        target.claim(2, first(2))


def test_two_streams_on_one_table_do_not_see_each_other(target: Target, catalog: SqlCatalog) -> None:
    land(target, 1, 0, 3)
    other = Target(catalog, NAME, "other")
    assert other.read() is None
    assert other.greatest_epoch() == 0
    other.claim(1, lambda newest: Stamp("other", "claim", -1, 1, "c", start={P0: 50}, position={P0: 50}))
    assert land(target, 1, 3, 6) is ProposalOutcome.LANDED
    newest, theirs = target.read(), other.read()
    assert newest is not None and theirs is not None
    assert (newest.position, theirs.position) == ({P0: 6}, {P0: 50})


def test_credentials_for_the_files_are_renewed_while_a_driver_lives(target: Target) -> None:
    before, metadata = target.table.io, target.table.metadata
    target.renew_access()
    assert target.table.io is before
    # The store takes them no longer; this catalog has no others.
    assert not target.renew_access(refused=True)
    assert target.table.io is not before
    assert target.table.metadata is metadata


def test_files_of_an_older_version_that_no_manifest_holds_are_written_again(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "amount", DecimalType(9, 2)))
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(50), "amount_trunc"))
    catalog.create_table("orders.cut", schema, partition_spec=spec, properties={"format-version": "2"})
    target = Target(catalog, "orders.cut", "s")
    target.claim(1, first(1))
    below = new_data_file(
        path=f"{target.table.location()}/data/x.parquet",
        size=1,
        partition=Record(Decimal("-10000000.00")),
        spec_id=0,
        statistics=ColumnStatistics(1),
    )
    head = target.snapshot_id
    outcome = target.land(
        batch_stamp(1, 0, 1, 1), [below], seen=target.seen(), batch={P0: OffsetRange(0, 1)}, position={P0: 0}
    )
    assert outcome is ProposalOutcome.RUN_AGAIN
    assert Target(catalog, "orders.cut", "s").snapshot_id == head
