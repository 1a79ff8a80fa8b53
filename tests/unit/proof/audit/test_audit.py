"""The audit on real tables: it counts what stands there, remembers how far it came, and says who changed rows since."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.expressions import EqualTo, In
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.proof.audit.other_writers import with_foreign_changes
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.ledger.ledger_table import read_ledger
from tests.helpers.real_stream import DEAD, SINK, TOPIC, RealStream, dead_rows
from tests.helpers.stream_history import FAILED, HOLE, ROW, TOMBSTONE

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    made = RealStream(tmp_path)
    made.land([ROW, FAILED, ROW, TOMBSTONE, HOLE, ROW])
    made.land([ROW, ROW, ROW], partition=1)
    made.land([ROW, ROW, FAILED])
    return made


def audited(stream: RealStream, **options) -> StreamAudit:
    return audit(stream.spec, stream.settings, stream.catalog(), **options)


def found(result: StreamAudit) -> list[tuple]:
    return [(p.kind, p.table, p.partition, p.records, p.where, p.exact) for p in result.problems]


def test_what_landed_well_is_complete(stream):
    result = audited(stream, window=4)
    assert result.problems == [] and result.pending == [] and result.verdict == "complete"
    assert result.read == 11 and result.scanned == 8 + 2
    assert [(t.table, t.method, sum(line.rows or 0 for line in t.partitions)) for t in result.tables] == [
        (SINK, "rows", 8),
        (DEAD, "rows", 2),
    ]


def test_the_second_audit_reads_only_what_is_new(stream):
    assert audited(stream).scanned == 10
    nothing = audited(stream)
    assert (nothing.scanned, nothing.verdict, nothing.tables[0].since is not None) == (0, "complete", True)
    stream.land([ROW, ROW])
    again = audited(stream)
    assert (again.scanned, again.read, again.verdict) == (2, 2, "complete")
    assert audited(stream, full=True).scanned == 12


def test_a_row_that_is_gone_is_found_with_the_snapshot_that_took_it(stream):
    stream.table().delete(EqualTo("id", "p-0-7"))
    result = audited(stream)
    assert found(result) == [("missing", SINK, P0, 1, ((7, 8),), True)]
    (change,) = result.problems[0].changes
    assert change.rows == -1 and change.snapshot_id == stream.table().current_snapshot().snapshot_id
    assert result.verdict == "changed_since"
    # What others do with rows that landed is told once; in full it is told again.
    assert audited(stream).verdict == "complete"
    assert audited(stream, full=True).verdict == "changed_since"


def test_a_row_that_is_there_twice_is_found(stream):
    stream.table().append(stream.sink_rows(P1, [1]))
    result = audited(stream)
    assert found(result) == [("doubled", SINK, P1, 1, ((1, 2),), True)]
    assert [change.rows for change in result.problems[0].changes] == [1]
    assert result.verdict == "incomplete"


def test_what_is_wrong_is_said_again_until_it_is_mended(stream):
    stream.table().append(stream.sink_rows(P1, [1, 2]))
    assert audited(stream, window=2).doubled == 2
    assert audited(stream).doubled == 2
    stream.table().delete(EqualTo("_kafka_partition", 1))
    stream.table().append(stream.sink_rows(P1, [0, 1, 2]))
    assert audited(stream).verdict == "complete"


def test_what_was_audited_before_is_looked_at_only_in_full(stream):
    audited(stream)
    stream.table().append(stream.sink_rows(P0, [0]))
    assert audited(stream).verdict == "complete"
    assert found(audited(stream, full=True)) == [("doubled", SINK, P0, 1, ((0, 1),), True)]


def test_dead_letters_are_counted_too_and_only_the_streams_own(stream):
    stream.table(DEAD).append(dead_rows(P0, [1], stream="another"))
    assert audited(stream).verdict == "complete"
    stream.table(DEAD).append(dead_rows(P0, [8]))
    result = audited(stream, full=True)
    assert found(result) == [("doubled", DEAD, P0, 1, ((8, 9),), True)]


def test_a_dead_letter_that_no_batch_put_there_is_found(stream):
    stream.land([ROW, TOMBSTONE], partition=1)
    stream.table(DEAD).append(dead_rows(P1, [4]))
    assert found(audited(stream)) == [("unexpected", DEAD, P1, 1, ((4, 5),), True)]


def test_what_is_read_again_after_an_audit_is_no_double(stream):
    audited(stream)
    stream.reset(0, 4)
    assert [d.answer for d in audited(stream).decisions] == ["reset", "reset"]
    stream.land([HOLE, ROW])
    assert audited(stream).problems == []
    stream.land([ROW])
    stream.land([ROW, FAILED, ROW, ROW])
    assert audited(stream).problems == []
    stream.land([ROW])
    # Past where it was before the reset, the beginning of the ledger is not needed any more.
    assert audited(stream).read == 1 and audited(stream, full=True).problems == []
    stream.table().append(stream.sink_rows(P0, [6]))
    assert found(audited(stream, full=True)) == [("doubled", SINK, P0, 1, ((6, 7),), True)]


def test_one_table_alone(stream):
    stream.table(DEAD).delete(EqualTo("offset", 1))
    assert audited(stream, table=SINK).problems == []
    result = audited(stream, table=DEAD)
    assert [(p.kind, p.table, p.records) for p in result.problems] == [("missing", DEAD, 1)]
    with pytest.raises(FrazilError, match=r"orders\.other is no table of stream payments"):
        audited(stream, table="orders.other")


def test_compaction_changes_nothing(stream):
    rows = stream.table().scan().to_arrow()
    stream.table().overwrite(rows)
    assert audited(stream).verdict == "complete"


def test_a_rollback_that_nobody_answered_shows_in_missing_rows(stream):
    table = stream.table()
    audited(stream)
    stream.land([ROW, ROW])
    audited(stream)
    parent = stream.table().current_snapshot().parent_snapshot_id
    stream.table().manage_snapshots().set_current_snapshot(snapshot_id=parent).commit()
    assert table.name() == ("orders", "payments")
    result = audited(stream, full=True)
    assert found(result) == [
        ("rolled_back", SINK, None, 0, (), True),
        ("missing", SINK, P0, 2, ((9, 11),), True),
    ]


def test_a_table_that_is_gone_is_a_problem(stream):
    audited(stream)
    stream.catalog().drop_table(DEAD)
    result = audited(stream)
    assert [(p.kind, p.table) for p in result.problems] == [("not_counted", DEAD)]


def test_nothing_has_landed_yet(tmp_path):
    result = audited(RealStream(tmp_path))
    assert (result.problems, result.read, result.verdict) == ([], 0, "complete")


def test_without_coordinates_batches_are_held_against_what_their_snapshots_added(tmp_path):
    stream = RealStream(tmp_path, kafka_columns=False)
    stream.land([ROW, FAILED, ROW])
    stream.land([ROW])
    result = audited(stream)
    assert (result.verdict, result.tables[0].method, result.tables[0].unchecked) == ("complete", "summaries", 0)
    stream.land([ROW, ROW])
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    table = stream.table()
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[-2].snapshot_id).commit()
    result = audited(stream, full=True)
    assert (result.verdict, result.tables[0].unchecked) == ("complete", 1)


def test_snapshots_that_expired_unrecorded_are_held_against_the_totals(stream):
    table = stream.table()
    first, second = (snapshot.snapshot_id for snapshot in table.metadata.snapshots[:2])
    table.maintenance.expire_snapshots().by_ids([first, second]).commit()
    result = audited(stream)
    assert result.problems == []
    assert {(p, tuple(r)) for p, r in result.tables[0].unknown} == {(P0, (0, 6)), (P1, (0, 3))}
    stream.table().delete(EqualTo("id", "p-0-2"))
    result = audited(stream, full=True)
    assert [(p.kind, p.partition, p.records) for p in result.problems] == [("missing", None, 1)]


def test_progress_is_told(stream):
    told: list[tuple[int, int, int]] = []
    audited(stream, window=4, on_progress=lambda *each: told.append(each))
    assert told[0] == (0, 12, 0) and told[-1] == (12, 12, 10)


def test_rows_that_others_deleted_are_named_among_holes(stream):
    stream.table().delete(EqualTo("id", "p-0-2"))
    assert found(audited(stream)) == [("missing", SINK, P0, 1, ((2, 3),), True)]


def test_what_a_rollback_took_out_after_an_audit_and_what_came_again(stream):
    audited(stream)
    stream.land([ROW, ROW, ROW])
    stream.land([TOMBSTONE, ROW])
    assert audited(stream).verdict == "complete"
    stream.roll_back(2, "reland")
    assert audited(stream).problems == []
    stream.land([ROW, ROW])
    result = audited(stream)
    assert result.problems == [] and result.scanned > 0
    stream.land([ROW, TOMBSTONE, ROW])
    stream.table().append(stream.sink_rows(P0, [11]))
    assert found(audited(stream)) == [("doubled", SINK, P0, 1, ((11, 12),), True)]


def test_what_an_operator_left_out_after_a_rollback_is_not_missing(stream):
    stream.land([ROW, ROW, ROW])
    audited(stream)
    stream.roll_back(1, "keep")
    result = audited(stream)
    assert result.problems == []
    assert ("passed", "rollback_keep", (9, 12)) in {(d.kind, d.answer, tuple(d.range)) for d in result.decisions}
    stream.land([ROW])
    assert audited(stream, full=True).verdict == "complete"


@pytest.mark.parametrize("call", range(1, 8))
def test_batches_that_land_during_an_audit_are_no_problem(stream, call, monkeypatch):
    catalog = stream.catalog()
    load, calls = catalog.load_table, 0

    def loaded(identifier):
        nonlocal calls
        calls += 1
        if calls == call:
            stream.land([ROW, FAILED, ROW])
            stream.land([FAILED, ROW], partition=1)
        return load(identifier)

    monkeypatch.setattr(catalog, "load_table", loaded)
    assert audit(stream.spec, stream.settings, catalog).problems == []
    result = audited(stream)
    assert (result.problems, result.pending, result.verdict) == ([], [], "complete")
    assert audited(stream, full=True).problems == []


def expire_all_but_the_heads(stream: RealStream) -> None:
    for name in (SINK, DEAD):
        table = stream.table(name)
        if old := [each.snapshot_id for each in table.metadata.snapshots[:-1]]:
            table.maintenance.expire_snapshots().by_ids(old).commit()


def test_dead_letters_lost_in_a_partition_that_went_quiet_are_found(stream):
    stream.land([ROW, FAILED, FAILED], dead_too=False)
    assert (audited(stream).verdict, len(audited(stream).pending)) == ("undecided", 1)
    stream.land([ROW, FAILED], partition=1)
    for full in (False, True):
        result = audited(stream, full=full)
        assert [(p.kind, p.table, p.partition, p.range, p.records) for p in result.problems] == [
            ("dead_letters", DEAD, P0, (9, 12), 2)
        ]
        assert (result.pending, result.verdict) == ([], "incomplete")


def test_unaudited_rows_of_a_table_that_was_renamed_are_found_missing(tmp_path):
    stream = RealStream(tmp_path)
    stream.land([ROW] * 10)
    audited(stream)
    stream.land([ROW] * 10)
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    stream.rename("orders.paid")
    stream.table().delete(In("id", {"p-0-12", "p-0-13", "p-0-14"}))
    result = audited(stream)
    assert found(result) == [("missing", "orders.paid", P0, 3, ((12, 15),), True)]
    assert result.verdict == "changed_since"


def test_a_table_that_was_renamed_goes_on_where_it_was(tmp_path):
    stream = RealStream(tmp_path)
    stream.land([ROW] * 9 + [FAILED])
    audited(stream)
    stream.land([ROW] * 10)
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    stream.rename("orders.paid")
    stream.land([ROW] * 10)
    result = audited(stream)
    assert (result.problems, result.pending, result.read, result.scanned) == ([], [], 20, 20)
    whole = audited(stream, full=True)
    assert (whole.problems, whole.pending, whole.notes, whole.read) == ([], [], [], 30)


@pytest.mark.parametrize("before", [False, True])
def test_a_reset_whose_stamp_expired_unrecorded_is_no_problem(tmp_path, before):
    stream = RealStream(tmp_path)
    stream.land([ROW] * 10)
    if before:
        audited(stream)
        stream.land([ROW] * 10)
    stream.reset(0, stream.position[P0] - 4)
    stream.land([ROW] * 4)
    stream.land([ROW] * 2)
    expire_all_but_the_heads(stream)
    result = audited(stream)
    assert (result.problems, result.verdict) == ([], "undecided")
    assert audited(stream, full=True).problems == []
    # How often a record of the hole was read nobody knows; how many rows there are, the totals do.
    stream.table().append(stream.sink_rows(P0, [stream.position[P0] - 4]))
    result = audited(stream, full=True)
    assert [(p.kind, p.table, p.records) for p in result.problems] == [("unexpected", SINK, 1)]
    assert result.verdict == "incomplete"


def test_a_topic_that_was_retired_and_came_back_is_complete(stream):
    audited(stream)
    stream.retire(0)
    stream.land([ROW, FAILED], partition=1)
    assert audited(stream).verdict == "complete"
    (noted,) = [row for row in read_ledger(stream.catalog(), stream.settings, "payments") if row.kind == "noted"]
    assert (noted.table, noted.partition, noted.range, noted.answer) == (SINK, P0, (0, 9), "retired")
    stream.land([ROW, ROW, HOLE, ROW])
    for full in (False, True):
        result = audited(stream, full=full)
        assert (result.problems, result.pending, result.verdict) == ([], [], "complete")
    stream.table().append(stream.sink_rows(P0, [7]))
    assert found(audited(stream, full=True)) == [("doubled", SINK, P0, 1, ((7, 8),), True)]


def test_others_appends_do_not_hide_who_deleted(stream):
    stream.table().delete(EqualTo("id", "p-0-7"))
    taker = stream.table().current_snapshot().snapshot_id
    for number in range(30):
        stream.table().append(stream.sink_rows(TopicPartition("another", 0), [number]))
    result = audited(stream)
    assert [(change.snapshot_id, change.rows) for change in result.problems[0].changes] == [(taker, -1)]
    assert (found(result), result.verdict) == ([("missing", SINK, P0, 1, ((7, 8),), True)], "changed_since")


def test_scattered_rows_that_are_gone_are_looked_for_together(tmp_path):
    scanned: list[int | None] = []

    class Watched(Table):
        def scan(self, *args, snapshot_id: int | None = None, **kwargs):
            scanned.append(snapshot_id)
            return super().scan(*args, snapshot_id=snapshot_id, **kwargs)

    stream = RealStream(tmp_path)
    stream.land([ROW] * 999 + [FAILED])
    stream.table().delete(In("id", {f"p-0-{10 * number}" for number in range(100)}))
    result = audited(stream)
    (problem,) = result.problems
    assert (problem.records, len(problem.where), problem.explained) == (100, 100, True)
    table = stream.table()
    watched = Watched(table.name(), table.metadata, table.metadata_location, table.io, table.catalog)
    assert with_foreign_changes([replace(problem, changes=())], watched, KAFKA_COLUMNS.coordinates, None) == [problem]
    assert scanned == [each.snapshot_id for each in table.snapshots()[:-3:-1]], (
        "once after the snapshot, once before it"
    )


def test_dead_letters_of_a_topic_that_came_back(stream):
    audited(stream)
    stream.retire(0)
    stream.land([ROW, FAILED], partition=1)
    stream.land([FAILED, ROW])
    result = audited(stream)
    assert (result.problems, result.pending, result.verdict) == ([], [], "complete")


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("identity", ["another", "same"])
@pytest.mark.parametrize(("offset", "hole"), [(0, None), (3, (9, 12)), (-4, (5, 9))])
def test_a_topic_that_came_back_is_held_to_where_it_ended_if_it_is_the_same(stream, between, identity, offset, hole):
    stream.identity = "same"
    stream.land([ROW], partition=1)
    ended = stream.position[P0]
    assert ended == 9
    stream.retire(0)
    stream.land([ROW], partition=1)
    if between:
        audited(stream)
    stream.identity = identity
    stream.come_back(0, ended + offset)
    stream.land([ROW] * 6)
    result = audited(stream)
    held = hole if identity == "same" else None
    assert [(p, tuple(r)) for p, r in result.tables[0].unknown] == ([(P0, held)] if held else [])


def test_a_topic_that_came_back_after_an_audit_begins_anywhere(stream):
    stream.retire(0)
    stream.land([ROW], partition=1)
    audited(stream)
    stream.position[P0] = 15
    stream.land([ROW])
    assert audited(stream).problems == []
