"""The ledger in a real catalog: filled once, whoever else does it, whoever is killed, whatever became of the tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import LedgerSettings, Settings
from jobs.proof.audit.ledger_fill import FillResult, fill_ledger
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts, PartitionCounts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.ledger.ledger_checkpoints import AuditCheckpoint, audit_checkpoints, record_audited
from jobs.tables.ledger.ledger_row import WHOLE_TABLE, LedgerRow, effective_rows
from jobs.tables.ledger.ledger_table import read_ledger
from tests.helpers.targets import pair, spec_with

ROOT = Path(__file__).parents[4]
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TABLE, DEAD = "orders.payments", "orders.payments_dead"
Connect = Callable[[], SqlCatalog]


def connect_to(home: Path) -> SqlCatalog:
    return SqlCatalog("test", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse")


def spec_of(stream: str = "payments") -> Any:
    return spec_with(stream, pair(TABLE, DEAD))


@pytest.fixture
def new_catalog(tmp_path: Path) -> Connect:
    return lambda: connect_to(tmp_path)


@pytest.fixture
def catalog(new_catalog: Connect) -> SqlCatalog:
    made = new_catalog()
    made.create_namespace("orders")
    for name in (TABLE, DEAD):
        create(made, name)
    return made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.embedded(tmp_path)


def create(catalog: SqlCatalog, name: str) -> None:
    catalog.create_table(name, Schema(NestedField(1, "id", LongType())), properties={"format-version": "2"})


def land(
    catalog: SqlCatalog, start: tuple[int, int], end: tuple[int, int], name: str = TABLE, stream: str = "payments"
) -> None:
    """Commit a batch as a driver would: on the dead letters, one letter per partition that has records."""
    target = Target(catalog, name, stream)
    target.read()
    at, to = dict(zip((P0, P1), start, strict=True)), dict(zip((P0, P1), end, strict=True))

    def counts(records: int) -> Counts:
        return Counts(records, records) if name == TABLE else Counts(read=1, dead=1)

    parts = {p: PartitionCounts(at[p], counts(to[p] - at[p])) for p in at if to[p] > at[p]}
    total = sum((part.counts for part in parts.values()), Counts())
    stamp = Stamp(stream, "batch", 1, 1, "c", at, to, parts=parts, counts=total, generation="g")
    batch = {p: OffsetRange(at[p], to[p]) for p in at}
    target.land(stamp, (), seen=target.seen(), batch=batch, position=at)


def told(rows: list[LedgerRow]) -> list[tuple[Any, ...]]:
    return [
        (
            row.table,
            row.kind,
            "all" if row.partition == WHOLE_TABLE else str(row.partition),
            *row.range,
            row.counts and row.counts.read,
        )
        for row in rows
    ]


def expire_all_but_the_head(catalog: SqlCatalog, name: str) -> None:
    table = catalog.load_table(name)
    head = table.metadata.current_snapshot_id
    old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def test_filled_once_and_read_in_order(catalog: SqlCatalog, settings: Settings) -> None:
    assert fill_ledger(catalog, settings, [spec_of()]).rows == 0
    assert not catalog.table_exists("frazil.ledger"), "nothing new, so nothing is written"
    assert read_ledger(catalog, settings, "payments") == []
    land(catalog, (0, 0), (5, 3))
    land(catalog, (0, 0), (5, 3), DEAD)
    land(catalog, (5, 3), (5, 9))
    filled = fill_ledger(catalog, settings, [spec_of()])
    assert (filled.rows, filled.unknown) == (5, 0)
    rows = read_ledger(catalog, settings, "payments")
    assert told(rows) == [
        (TABLE, "batch", "t-0", 0, 5, 5),
        (TABLE, "batch", "t-1", 0, 3, 3),
        (TABLE, "batch", "t-1", 3, 9, 6),
        (DEAD, "batch", "t-0", 0, 5, 1),
        (DEAD, "batch", "t-1", 0, 3, 1),
    ]
    snapshot = catalog.load_table(TABLE).metadata.current_snapshot()
    assert snapshot is not None
    newest = rows[2]
    assert (newest.sequence, newest.snapshot_id, newest.config, newest.generation) == (
        2,
        snapshot.snapshot_id,
        "c",
        "g",
    )
    assert (newest.anchor, rows[3].anchor) == (True, False)
    assert newest.committed_at == datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    before = catalog.load_table("frazil.ledger").metadata_location
    assert fill_ledger(catalog, settings, [spec_of()]) == FillResult(0)
    assert catalog.load_table("frazil.ledger").metadata_location == before
    assert read_ledger(catalog, settings, "payments", DEAD) == rows[3:]
    assert read_ledger(catalog, settings, "payments", TABLE, after_sequence=1) == [newest]
    assert read_ledger(catalog, settings, "other") == []


def test_a_table_that_was_renamed_is_found_by_its_uuid(catalog: SqlCatalog, settings: Settings) -> None:
    land(catalog, (0, 0), (5, 0))
    fill_ledger(catalog, settings, [spec_of()])
    uuid = str(catalog.load_table(TABLE).metadata.table_uuid)
    catalog.rename_table(TABLE, "orders.paid")
    named = read_ledger(catalog, settings, "payments", TABLE)
    assert [row.table_uuid for row in named] == [uuid]
    assert read_ledger(catalog, settings, "payments", "orders.paid") == []
    assert read_ledger(catalog, settings, "payments", "orders.paid", uuid=uuid) == named
    assert read_ledger(catalog, settings, "payments", "orders.paid", after_sequence=1, uuid=uuid) == []
    assert read_ledger(catalog, settings, "payments", "orders.paid", uuid="another") == []


def test_many_fillers_at_once_write_every_row_once(
    catalog: SqlCatalog, new_catalog: Connect, settings: Settings
) -> None:
    land(catalog, (0, 0), (5, 3))
    # The ledger is not there yet, so they also race to make it.
    for rounds in range(3):
        barrier, problems = threading.Barrier(4), []

        def one(barrier: threading.Barrier = barrier, problems: list[Exception] = problems) -> None:
            connected = new_catalog()
            barrier.wait()
            try:
                fill_ledger(connected, settings, [spec_of()])
            except Exception as problem:
                problems.append(problem)

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert not problems
        assert len(read_ledger(catalog, settings, "payments")) == 2 + rounds
        land(catalog, (5 + rounds, 3), (6 + rounds, 3))


def test_made_and_filled_by_somebody_else_in_between(
    catalog: SqlCatalog, new_catalog: Connect, settings: Settings
) -> None:
    class Raced(SqlCatalog):
        """Somebody else makes and fills the ledger just before it is made here."""

        def create_table(self, *args: Any, **kwargs: Any) -> Any:
            assert fill_ledger(new_catalog(), settings, [spec_of()]).rows == 2
            return super().create_table(*args, **kwargs)

    land(catalog, (0, 0), (5, 3))
    raced = Raced(catalog.name, **catalog.properties)
    assert fill_ledger(raced, settings, [spec_of()]).rows == 0
    assert len(read_ledger(catalog, settings, "payments")) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_the_commit(catalog: SqlCatalog, settings: Settings, tmp_path: Path, when: str) -> None:
    land(catalog, (0, 0), (5, 3))
    script = f"""
        import os, signal
        from pathlib import Path
        from jobs.config.settings.settings import Settings
        from jobs.proof.audit import ledger_fill
        from tests.unit.proof.audit.test_ledger import connect_to, spec_of
        commit_once = ledger_fill.commit_once
        def killed(*args, **kwargs):
            if {when!r} == "after":
                commit_once(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)
        ledger_fill.commit_once = killed
        home = Path({str(tmp_path)!r})
        ledger_fill.fill_ledger(connect_to(home), Settings.embedded(home), [spec_of()])
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, env=environment, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    assert fill_ledger(catalog, settings, [spec_of()]).rows == (2 if when == "before" else 0)
    assert len(read_ledger(catalog, settings, "payments")) == 2


def test_what_expired_before_it_was_filled_in_is_told(catalog: SqlCatalog, settings: Settings) -> None:
    land(catalog, (0, 0), (5, 3))
    fill_ledger(catalog, settings, [spec_of()])
    land(catalog, (5, 3), (7, 4))
    land(catalog, (7, 4), (8, 4))
    land(catalog, (8, 4), (9, 4))
    expire_all_but_the_head(catalog, TABLE)
    filled = fill_ledger(catalog, settings, [spec_of()])
    assert (filled.rows, filled.unknown) == (4, 3)
    assert told(read_ledger(catalog, settings, "payments", after_sequence=1)) == [
        (TABLE, "unknown", "all", 0, 0, 4),
        (TABLE, "unknown", "t-0", 5, 8, None),
        (TABLE, "unknown", "t-1", 3, 4, None),
        (TABLE, "batch", "t-0", 8, 9, 1),
    ]


def test_the_newest_stamp_is_known_also_when_all_have_expired(catalog: SqlCatalog, settings: Settings) -> None:
    land(catalog, (0, 0), (5, 0))
    table = catalog.load_table(TABLE)
    table.append(table.scan().to_arrow())
    expire_all_but_the_head(catalog, TABLE)
    assert fill_ledger(catalog, settings, [spec_of()]).rows == 1
    (row,) = read_ledger(catalog, settings, "payments")
    assert (row.kind, row.range, row.snapshot_id, row.sequence) == ("batch", (0, 5), 0, 1)
    assert fill_ledger(catalog, settings, [spec_of()]).rows == 0


@pytest.mark.parametrize("answer", ["keep", "reland"])
@pytest.mark.parametrize("seen", [True, False])
def test_rolled_back(catalog: SqlCatalog, settings: Settings, answer: Any, seen: bool) -> None:
    land(catalog, (0, 0), (5, 3))
    kept = catalog.load_table(TABLE).metadata.current_snapshot_id
    land(catalog, (5, 3), (9, 3))
    if seen:
        fill_ledger(catalog, settings, [spec_of()])
    assert kept is not None
    catalog.load_table(TABLE).manage_snapshots().rollback_to_snapshot(kept).commit()
    assert fill_ledger(catalog, settings, [spec_of()]).rows == (0 if seen else 2), (
        "what is not on main is not filled in"
    )
    target = Target(catalog, TABLE, "payments")
    (stamp,) = rollback({TABLE: target.history()}, TABLE, answer, "c").values()
    target.restamp(signed_answer(stamp, 1, "me: why"))
    land(catalog, (5 if answer == "reland" else 9, 3), (11, 3))
    fill_ledger(catalog, settings, [spec_of()])
    rows = read_ledger(catalog, settings, "payments", after_sequence=2)
    first = 5 if answer == "reland" else 9
    assert told(rows) == [
        (TABLE, "removed", "t-0", 5, 9, None),
        (TABLE, "again" if answer == "reland" else "passed", "t-0", 5, 9, None),
        (TABLE, "batch", "t-0", first, 11, 11 - first),
    ]
    assert {(row.answer, row.note) for row in rows[:2]} == {(f"rollback_{answer}", "me: why")}
    assert rows[0].since == 1
    stands = effective_rows(read_ledger(catalog, settings, "payments"))
    assert [(row.kind, *row.range) for row in stands if row.partition == P0] == [
        ("batch", 0, 5),
        (rows[1].kind, 5, 9),
        ("batch", first, 11),
    ]


def test_a_table_made_anew_has_rows_of_its_own(catalog: SqlCatalog, settings: Settings) -> None:
    land(catalog, (0, 0), (5, 3))
    fill_ledger(catalog, settings, [spec_of()])
    catalog.drop_table(TABLE)
    assert fill_ledger(catalog, settings, [spec_of()]).rows == 0
    create(catalog, TABLE)
    land(catalog, (0, 0), (2, 0))
    fill_ledger(catalog, settings, [spec_of()])
    rows = read_ledger(catalog, settings, "payments", TABLE)
    assert len({row.table_uuid for row in rows}) == 2
    now = str(catalog.load_table(TABLE).metadata.table_uuid)
    assert [(row.kind, *row.range) for row in rows if row.table_uuid == now] == [("batch", 0, 2)]


def test_two_streams_on_one_table_and_one_without_tables(catalog: SqlCatalog, settings: Settings) -> None:
    land(catalog, (0, 0), (5, 3))
    land(catalog, (70, 0), (75, 0), stream="other")
    nowhere = spec_with("nowhere", pair("no.where", "no.where_dead"))
    filled = fill_ledger(catalog, settings, [spec_of(), spec_of("other"), nowhere])
    assert filled.rows == 3
    assert len(catalog.load_table("frazil.ledger").snapshots()) == 1, "one commit for all"
    assert told(read_ledger(catalog, settings, "other")) == [(TABLE, "batch", "t-0", 70, 75, 5)]
    land(catalog, (5, 3), (6, 3))
    assert fill_ledger(catalog, settings, [spec_of("other")]).rows == 0
    assert fill_ledger(catalog, settings, [spec_of(), spec_of("other"), nowhere]).rows == 1


def test_audit_marks_only_go_forward(catalog: SqlCatalog, settings: Settings) -> None:
    assert audit_checkpoints(catalog, settings, "payments") == {}
    at = datetime(2026, 11, 1, 12, 30, tzinfo=UTC)
    checkpoint = AuditCheckpoint(7, 99, at, complete=True, positions={P0: 5})
    record_audited(catalog, settings, "payments", {"u": checkpoint})
    assert audit_checkpoints(catalog, settings, "payments") == {"u": checkpoint}
    before = catalog.load_table("frazil.ledger").metadata_location
    record_audited(catalog, settings, "payments", {"u": replace(checkpoint, sequence=6)})
    record_audited(catalog, settings, "payments", {"u": checkpoint})
    assert catalog.load_table("frazil.ledger").metadata_location == before
    record_audited(catalog, settings, "payments", {"v": checkpoint})
    assert audit_checkpoints(catalog, settings, "payments") == {"u": checkpoint, "v": checkpoint}
    land(catalog, (0, 0), (5, 3))
    fill_ledger(catalog, settings, [spec_of()])
    assert audit_checkpoints(catalog, settings, "payments") == {"u": checkpoint, "v": checkpoint}
    assert len(read_ledger(catalog, settings, "payments")) == 2


def test_somebody_elses_table_is_not_written(catalog: SqlCatalog, settings: Settings) -> None:
    land(catalog, (0, 0), (5, 3))
    wrong = settings.model_copy(update={"ledger": LedgerSettings(table=TABLE)})
    with pytest.raises(FrazilError, match=f"table {TABLE} is no ledger: it has no column stream"):
        fill_ledger(catalog, wrong, [spec_of()])


@pytest.mark.parametrize("expired", [False, True])
def test_a_ledger_that_was_rolled_back_is_filled_again(
    catalog: SqlCatalog, settings: Settings, *, expired: bool
) -> None:
    land(catalog, (0, 0), (5, 3))
    fill_ledger(catalog, settings, [spec_of()])
    earlier = catalog.load_table("frazil.ledger")
    land(catalog, (5, 3), (5, 9))
    land(catalog, (0, 0), (5, 3), DEAD)
    fill_ledger(catalog, settings, [spec_of()])
    whole = told(read_ledger(catalog, settings, "payments"))
    back = {"ref-name": "main", "type": "branch", "snapshot-id": earlier.metadata.current_snapshot_id}
    now = catalog.load_table("frazil.ledger")
    catalog.commit_table(now, (), (SetSnapshotRefUpdate.model_validate(back),))
    if expired:
        expire_all_but_the_head(catalog, TABLE)
    # A fill of another stream commits on the earlier snapshot.
    land(catalog, (0, 0), (1, 1), stream="refunds")
    fill_ledger(catalog, settings, [spec_of("refunds")])
    assert fill_ledger(catalog, settings, [spec_of()]).rows == len(whole) - 2
    assert told(read_ledger(catalog, settings, "payments")) == whole
    assert fill_ledger(catalog, settings, [spec_of()]).rows == 0
