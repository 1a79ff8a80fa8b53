"""Where each table of a stream stands after answers, resets, rollbacks and restores, on real tables.

In each story a second event meets a first one: an answer while a batch is half committed, a reset while the stream is
opened, a rollback of an answer. No record may be missing from a table or stand there twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.expressions import GreaterThanOrEqual
from pyiceberg.table.update import SetSnapshotRefUpdate

from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.operator.reset import reset
from jobs.streaming.operator.reset_request import reset_request
from jobs.tables.commit.protocol import target as target_module
from jobs.tables.commit.stamp.errors import RolledBackError
from tests.helpers.evolving_stream import SINK
from tests.helpers.opened_stream import OpenedStream

CHANGES, DELETES, DEAD = "orders.changes", "orders.deletes", f"{SINK}_dead"
TABLES = (SINK, CHANGES, DELETES, DEAD)


@pytest.fixture
def one(tmp_path: Path) -> OpenedStream:
    return OpenedStream(tmp_path / "home", trigger="available_now")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "STALE_SECONDS", 0.2)


class TestWhileTheStreamIsOpened:
    """The tables were read, and the lease is not taken yet, when an operator's command begins and ends."""

    def test_a_reset_is_followed(self, one: OpenedStream) -> None:
        with one.opened():
            for batch in range(3):
                one.land_next(batch=batch)
            one.land({"id": "z", "type": "OWN", "n": 1}, batch=3)
        before, kafka = one.placed(), cast("Any", one.kafka)

        def back_to_five() -> None:
            for name in TABLES:
                offset = "offset" if name == DEAD else "_kafka_offset"
                one.catalog.load_table(name).delete(GreaterThanOrEqual(offset, 5))  # pyright: ignore[reportCallIssue]
            reset(one.spec, one.settings, lambda: kafka, reset_request("payments:0=5"), "ada", "again from 5")

        with one.at_step("before_lease", back_to_five), one.opened() as stream:
            assert dict(stream.begin.offsets) == {one.at: 5}
            assert {name: at[one.at] for name, at in stream.positions.items()} == dict.fromkeys(TABLES, 5)
            one.land(batch=0)
        assert one.placed() == before

    def test_an_answer_is_followed(self, one: OpenedStream) -> None:
        one.land_elsewhere(10)
        with one.opened():
            one.land({"id": "z", "type": "OWN", "n": 1}, batch=0)
        before = one.placed()

        def another_topic() -> None:
            one.log, one.kafka.identity = [], "CcBBBBBBBBBBBBBBBBBBBQ"
            one.produce(20)
            one.answer(recreated_topic="payments")

        with one.at_step("before_lease", another_topic), one.opened() as stream:
            assert dict(stream.begin.offsets) == {one.at: 0}
            one.land(batch=0)
        assert one.placed() == {name: sorted(before[name] + rows) for name, rows in one.expected().items()}


class TestAHalfCommittedBatch:
    """The coordinator has a batch, the driver died before another table had it, and its record is there."""

    @pytest.mark.parametrize("table", [CHANGES, DELETES, DEAD])
    def test_an_audit_is_undecided_until_it_is_completed(self, one: OpenedStream, table: str) -> None:
        one.land_elsewhere()
        one.killed_before(table)
        found = one.audited()
        assert (found.verdict, found.problems) == ("undecided", [])
        (sentence,) = [each for each in found.pending if "frazil run payments" in each]
        assert "payments-0 [5, 10)" in sentence and table in sentence.partition("and not in")[2]
        one.open_and_close()
        assert one.audited().verdict == "complete"
        assert one.placed() == one.expected()

    def test_it_is_completed_before_the_topic_is_read_from_its_beginning(self, one: OpenedStream) -> None:
        one.land_elsewhere()
        one.killed_before(CHANGES)
        former = one.expected()
        one.log, one.kafka.identity = [], "CcBBBBBBBBBBBBBBBBBBBQ"
        one.answer(recreated_topic="payments")
        assert one.placed() == former
        one.land_elsewhere()
        assert one.placed() == {name: sorted(rows + one.expected()[name]) for name, rows in former.items()}

    def test_it_is_completed_before_lost_offsets_are_passed(self, one: OpenedStream) -> None:
        one.land_elsewhere()
        one.killed_before(CHANGES)
        one.produce(5)
        one.kafka.first = 12
        one.answer(lost_offsets=True)
        with one.opened():
            one.land(batch=0)
        want = {name: [at for at in rows if not 10 <= at < 12] for name, rows in one.expected().items()}
        assert one.placed() == want


def test_a_record_that_arrives_after_an_answer_is_not_applied(
    one: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its write gets no answer; a table is rolled back and its records are landed again; then the record arrives."""
    one.land_elsewhere()
    at = one.head(DELETES)
    one.land_elsewhere()
    put, late = LocalStore.put, list[tuple[Any, ...]]()

    def no_answer(self: LocalStore, key: str, content: bytes, **more: Any) -> None:
        if "pending-" in key:
            late.append((self, key, content))
            raise OSError(5, "no answer in time")
        put(self, key, content, **more)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put", no_answer)
        with pytest.raises(OSError, match="no answer"), one.opened():
            one.land({"id": "z", "type": "OWN", "n": 1}, batch=0)
    one.roll_back(DELETES, at)
    one.answer(rollback="reland")
    for store, key, content in late:
        put(store, key, content)
    with one.opened() as stream:
        assert stream.recovered == 0
        one.land_next()
    assert one.placed() == one.expected()
    assert one.audited().verdict == "complete"


class TestARollback:
    @pytest.mark.parametrize("table", [CHANGES, DEAD])
    def test_of_a_table_that_refused_the_first_batch_of_a_partition(self, one: OpenedStream, table: str) -> None:
        new = type(one.at)("payments", 1)
        one.produce(5)
        with one.opened():
            one.runner.run(None, 0, {one.at: 5})  # pyright: ignore[reportArgumentType]
            at = one.head(table)
            one.produce(5)
            one.runner.run(None, 1, {one.at: 10})  # pyright: ignore[reportArgumentType]
        one.kafka.partitions = 2
        with one.opened():
            one.roll_back(table, at)
            one.produce(5)
            with pytest.raises(RolledBackError):
                one.runner.run(None, 0, {one.at: 15, new: 8})  # pyright: ignore[reportArgumentType]
        one.answer(rollback="reland")
        with one.opened():
            one.runner.run(None, 0, {one.at: 15, new: 15})  # pyright: ignore[reportArgumentType]
        assert one.offsets(table) == sorted(2 * one.expected()[table])
        assert one.audited().verdict == "complete"

    @pytest.mark.parametrize("answer", ["keep", "reland"])
    def test_of_an_answer_takes_no_record_out(self, tmp_path: Path, answer: str) -> None:
        one, good, bad = OpenedStream(tmp_path / "home", None), {"id": "a", "type": "x", "n": 1}, {"type": "no id"}
        with one.opened():
            one.land(good, bad, good, bad, batch=0)
            at, dead_at = one.head(SINK), one.head(DEAD)
            one.land(good, good, good, batch=1)
        one.roll_back(SINK, at)
        one.answer(rollback=answer)
        one.roll_back(DEAD, dead_at)
        with one.opened():
            one.land(good, batch=0)
        rows = [0, 2, 7] if answer == "keep" else [0, 2, 4, 5, 6, 7]
        assert one.placed() == {SINK: rows, DEAD: [1, 3]}


class TestATableRestoredFromOlderMetadata:
    """Its uuid stays, and its newest commits are gone with the properties that told of them."""

    @staticmethod
    def after_three_batches(one: OpenedStream, table: str) -> None:
        one.land_elsewhere()
        location = one.catalog.load_table(table).metadata_location
        one.land_elsewhere()
        one.land_elsewhere()
        with one.opened():
            one.land({"id": "z", "type": "OWN", "n": 1}, batch=0)
        one.restore(table, location)

    @pytest.mark.parametrize("table", TABLES)
    def test_the_stream_stops_and_lands_again_what_it_lacks(self, one: OpenedStream, table: str) -> None:
        self.after_three_batches(one, table)
        found = one.audited()
        assert found.verdict == "incomplete"
        assert {(each.kind, each.table) for each in found.problems} >= {("gap", table)}
        for _ in range(3):
            with pytest.raises(RolledBackError, match=rf"{table} was restored from older metadata") as stop:
                one.open_and_close()
            assert "--rollback reland" in (stop.value.fix or "")
        one.answer(rollback="reland")
        with one.opened():
            one.land_next()
        one.open_and_close()
        assert one.placed() == one.expected()

    @pytest.mark.parametrize("table", [SINK, CHANGES])
    def test_its_records_can_be_left_out(self, one: OpenedStream, table: str) -> None:
        self.after_three_batches(one, table)
        kept = one.offsets(table)
        one.answer(rollback="keep")
        with one.opened():
            one.land_next()
        # No other table has rows of the newest batch, so none tells that the coordinator had it: it lands again.
        first, want = 15 if table == SINK else 16, one.expected()
        assert one.placed() == {**want, table: [*kept, *(at for at in want[table] if at >= first)]}

    @pytest.mark.parametrize("table", [SINK, CHANGES])
    def test_it_is_seen_under_a_driver_that_runs(self, one: OpenedStream, table: str) -> None:
        with one.opened():
            one.land_next(batch=0)
            location = one.catalog.load_table(table).metadata_location
            one.land_next(batch=1)
            assert location is not None
            one.restore(table, location)
            with pytest.raises(RolledBackError, match=rf"{table} was restored from older metadata"):
                one.land_next(batch=2)
        one.answer(rollback="reland")
        with one.opened():
            one.land_next()
        assert one.placed() == one.expected()

    def test_a_replica_that_lags_is_waited_for(self, one: OpenedStream, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(target_module, "STALE_SECONDS", 60.0)
        with one.opened() as stream:
            one.land_next(batch=0)
            old = one.catalog.load_table(CHANGES)
            one.land_next(batch=1)
            load, answers = type(one.catalog).load_table, [old]
            changes = stream.targets[CHANGES]
            monkeypatch.setattr(
                type(one.catalog), "load_table", lambda self, name: answers.pop() if answers else load(self, name)
            )
            changes.read()
            assert not answers and changes.newest is not None and changes.newest.position == {one.at: 10}


def test_a_stream_goes_on_where_its_file_names_another_branch(tmp_path: Path) -> None:
    """The former branch is claimed first, so the newest stamp is the driver's own when main is claimed."""
    on_branch = {"name": SINK, "branch": "ingest"}
    one = OpenedStream(tmp_path / "home", None, table=on_branch)
    with one.opened():
        one.land({"id": "a", "type": "x", "n": 1}, batch=0)
    table = one.catalog.load_table(SINK)
    branch = {"ref-name": "main", "type": "branch", "snapshot-id": table.refs()["ingest"].snapshot_id}
    one.catalog.commit_table(table, (), (SetSnapshotRefUpdate.model_validate(branch),))
    after = OpenedStream(tmp_path / "home", None, epoch=3)
    after.log = list(one.log)
    with after.opened():
        after.land({"id": "b", "type": "x", "n": 2}, batch=0)
    assert after.offsets(SINK) == [0, 1]


def test_a_stream_whose_coordinator_is_committed_to_again_and_again_is_not_opened(
    one: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.streaming.driver.opening import opening
    from jobs.streaming.driver.opening.takeover import MovedMeanwhileError

    def moved(*_: object) -> None:
        raise MovedMeanwhileError("another process committed")

    monkeypatch.setattr(opening, "claim", moved)
    with pytest.raises(MovedMeanwhileError):
        one.open_and_close()
