"""Backfills on real tables, with a log in memory in place of Kafka: nothing is doubled or lost, whoever dies where."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.base.errors import FrazilError
from jobs.migration.offset_backfill import run as run_module
from jobs.migration.offset_backfill.plan import BackfillPlan, BackfillRequest, plan_backfill
from jobs.migration.offset_backfill.run import BackfillResult, run_backfill, unfinished
from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import BACKFILLED, decision_sentence
from jobs.streaming.driver.batch import batch as batch_module
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.operator import reset as reset_module
from jobs.streaming.operator.backfill_stream import backfill_id
from jobs.streaming.operator.reset import plan_reset, reset
from jobs.streaming.operator.reset_plan import ResetPlan
from jobs.streaming.operator.reset_request import reset_request
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.recovery.reset import ResetRefusedError
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from orchestration.cli.streams.backfill import backfill_facts, plan_sentences
from tests.helpers.evolving_stream import SINK, block
from tests.helpers.opened_stream import OpenedStream
from tests.helpers.routed_stream import ROUTE

P0 = TopicPartition("payments", 0)
ALL = BackfillRequest("earliest", "latest")


class World(OpenedStream):
    """A stream that has read what it did not skip."""

    def skip(self, count: int) -> None:
        """Produce records, and let an operator move the stream behind them."""
        self.produce(count)
        kafka: Any = self.kafka
        reset(self.spec, self.settings, lambda: kafka, reset_request("latest"), "ada", "skip them")

    def plan(self, request: BackfillRequest = ALL) -> BackfillPlan:
        kafka: Any = self.kafka
        return plan_backfill(self.spec, self.settings, self.catalog, kafka, request)

    def fill(self, request: BackfillRequest = ALL, most: int = 4) -> BackfillResult:
        kafka: Any = self.kafka
        return run_backfill(self.spec, self.settings, self.catalog, kafka, request, "ada: because", most=most)

    def table_rows(self, name: str) -> int:
        return self.catalog.load_table(name).scan().to_arrow().num_rows

    def left_out(self, request: BackfillRequest = ALL) -> Mapping[str, Any]:
        return {reason: each[P0] for reason, each in self.plan(request).left_out.items()}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[World]:
    """Worlds of which tasks read; the newest counts."""
    worlds: list[World] = []

    def read_split(reader: Any, pieces: Any, *more: Any) -> Iterator[Any]:
        world = worlds[-1]
        for partition, (start, end) in pieces:
            yield block(partition, world.log[start:end], start, world.keys, world.headers)

    monkeypatch.setattr(run_module, "read_split", read_split)
    return worlds


def made(read: list[World], home: Path, route: dict[str, Any] | None = None, **more: Any) -> World:
    world = World(home, route, trigger="available_now", **more)
    read.append(world)
    return world


def test_skipped_offsets_are_landed_and_others_left_out(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path)
    world.land_elsewhere(5)
    world.skip(7)
    world.land_elsewhere(3)
    world.produce(2)
    assert world.left_out() == {
        "read": (OffsetRange(0, 5), OffsetRange(12, 15)),
        "ahead": (OffsetRange(15, 17),),
    }
    assert world.plan().ranges == {P0: (OffsetRange(5, 12),)}
    result = world.fill()
    assert (result.counts.read, result.counts.landed, result.batches) == (7, 7, 2)
    assert world.offsets(SINK) == list(range(15))
    audited = world.audited()
    assert (audited.verdict, audited.problems) == ("complete", [])
    assert audited.backfill is not None and audited.backfill.landed == 7
    assert world.left_out()["backfilled"] == (OffsetRange(5, 12),) and world.fill().batches == 0
    world.land_elsewhere(0)
    assert world.offsets(SINK) == list(range(17))


def test_an_audit_names_what_backfills_landed_once_and_not_how_they_moved(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path)
    world.land_elsewhere(5)
    world.skip(7)
    world.land_elsewhere(3)
    world.fill(BackfillRequest(5, 8))
    world.fill(BackfillRequest(8, 9))
    world.fill(BackfillRequest(10, 12))
    first, again = (audit(world.spec, world.settings, world.catalog).decisions for _ in range(2))
    shown = [decision_sentence(each) for each in first]
    assert [each.partition(" (")[0] for each in shown] == [
        "orders.payments payments-0 [5, 12) passed over: reset",
        "orders.payments_dead decided: reset",
        "orders.payments payments-0 [5, 8) landed by a backfill",
        "orders.payments payments-0 [8, 9) landed by a backfill",
        "orders.payments payments-0 [10, 12) landed by a backfill",
    ]
    assert "landed by a backfill (ada: because, 2" in shown[2]
    assert BACKFILLED not in {each.kind for each in again}


def test_backfilled_rows_are_removed_before_a_reset_reads_them_again(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path)
    world.land_elsewhere(3)
    world.skip(6)
    world.fill(BackfillRequest(3, 8))
    world.produce(2)
    world.land_elsewhere(0)
    kafka: Any = world.kafka

    def move(to: int, *, dry_run: bool = False) -> ResetPlan:
        request = reset_request(f"payments:0={to}")
        if dry_run:
            return plan_reset(world.spec, world.settings, lambda: kafka, request)
        return reset(world.spec, world.settings, lambda: kafka, request, "ada", "again")

    obstacle = move(7, dry_run=True).obstacle
    assert obstacle is not None and "records of payments-0 [7, 8), which a backfill has landed" in obstacle.message
    with pytest.raises(ResetRefusedError, match="exist twice") as refused:
        move(7)
    assert refused.value.fix is not None and "--to payments:0=7 --dry-run, and run the DELETE" in refused.value.fix
    newest = history(stream_table(world.catalog, world.spec, SINK).metadata, "payments").newest
    assert newest is not None and newest.position == {P0: 11}
    # The stream's own rows may stand there twice, which an audit knows.
    assert move(8, dry_run=True).obstacle is None
    world.catalog.load_table(SINK).delete("_kafka_offset >= 7")
    move(7)
    world.land_elsewhere(0)
    assert world.offsets(SINK) == list(range(11))
    assert world.audited().doubled == 0


def test_several_holes_are_landed_pass_by_pass(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path)
    for _ in range(3):
        world.skip(2)
        world.land_elsewhere(2)
    assert world.plan().ranges == {P0: tuple(OffsetRange(at, at + 2) for at in (0, 4, 8))}
    world.fill(BackfillRequest(8, 10))
    world.fill(BackfillRequest(0, 1))
    assert world.offsets(SINK) == [0, 2, 3, 6, 7, 8, 9, 10, 11]
    world.fill()
    assert world.offsets(SINK) == list(range(12))
    assert world.audited().problems == []


def test_dead_letters_are_the_streams_and_name_no_batch(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path)
    world.land_elsewhere(1)
    world.log += [b"{", None, json.dumps({"id": "a", "type": "INS", "n": 1}).encode()]
    kafka: Any = world.kafka
    reset(world.spec, world.settings, lambda: kafka, reset_request("latest"), "ada", "skip them")
    counts = world.fill().counts
    assert (counts.landed, counts.dead, counts.tombstones) == (1, 1, 1)
    (letter,) = world.catalog.load_table(world.spec.dead_letter_table).scan().to_arrow().to_pylist()
    assert (letter["stream"], letter["offset"], letter["batch_id"], letter["epoch"]) == ("payments", 1, None, None)
    assert world.audited().verdict == "complete"


def test_a_route_takes_backfilled_records_to_its_tables(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path, ROUTE)
    world.land_elsewhere(5)
    world.skip(10)
    world.fill(most=3)
    assert world.placed() == {**world.expected(), world.spec.dead_letter_table: [4, 9, 14]}
    assert world.audited().problems == []


class Killed(Exception):
    """Stands for SIGKILL."""


def commits_die_before(table: str, patch: pytest.MonkeyPatch) -> None:
    commit = OpenStream.commit

    def dies(stream: OpenStream, target: Any, *given: Any) -> Any:
        if target.name == table:
            raise Killed
        return commit(stream, target, *given)

    patch.setattr(OpenStream, "commit", dies)


def steps_die_at(name: str, patch: pytest.MonkeyPatch, passes: int) -> None:
    left = [passes]

    def step(passed: str) -> None:
        if passed == name:
            left[0] -= 1
            if not left[0]:
                raise Killed

    for module in (run_module, batch_module, reset_module):
        patch.setattr(module, "step", step)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("table", ["orders.changes", "orders.deletes", "orders.payments_dead"])
def test_killed_between_tables_it_is_finished_by_the_next(
    read: list[World], tmp_path: Path, table: str, lost: bool
) -> None:
    world = made(read, tmp_path, ROUTE)
    world.land_elsewhere(5)
    world.skip(10)
    with pytest.MonkeyPatch.context() as patch:
        commits_die_before(table, patch)
        with pytest.raises(Killed):
            world.fill()
    assert unfinished(world.spec, world.settings, world.catalog)
    assert world.audited().verdict == "undecided"
    if lost:
        folder = world.settings.state / "streams" / "payments" / "backfill"
        for record in folder.glob("pending*"):
            record.unlink()
    result = world.fill()
    assert result.finished
    assert world.placed() == {**world.expected(), world.spec.dead_letter_table: [4, 9, 14]}
    assert world.audited().problems == []


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("step", ["before_backfill_pass", "after_reset_stamp", "after_backfill_pass", "after_tasks"])
def test_killed_anywhere_else_it_begins_again(read: list[World], tmp_path: Path, step: str, passes: int) -> None:
    world = made(read, tmp_path)
    world.skip(5)
    world.land_elsewhere(3)
    world.skip(5)
    with pytest.MonkeyPatch.context() as patch:
        steps_die_at(step, patch, passes)
        with pytest.raises(Killed):
            world.fill()
    world.fill()
    assert world.offsets(SINK) == list(range(13))
    assert world.audited().problems == []


def test_a_rollback_of_backfilled_rows_is_landed_again_once_the_stream_has_its_answer(
    read: list[World], tmp_path: Path
) -> None:
    world = made(read, tmp_path)
    world.land_elsewhere(3)
    world.skip(6)
    head = world.head(SINK)
    world.fill()
    world.roll_back(SINK, head)
    found = world.audited()
    assert {each.kind for each in found.problems} >= {"rolled_back"}
    assert all("~backfill" not in each.sentence for each in found.problems)
    if any(history(stream_table(world.catalog, world.spec, SINK).metadata, "payments").rolled_back for _ in "1"):
        with pytest.raises(FrazilError, match="rolled back"):
            world.fill()
        world.answer(rollback="keep")
    world.fill()
    assert world.offsets(SINK) == list(range(9))
    assert world.audited().problems == []


def test_a_plan_lands_again_what_a_rollback_took_out_of_the_coordinator(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path)
    world.land_elsewhere(3)
    world.skip(6)
    world.fill(BackfillRequest(3, 5))
    head = world.head(SINK)
    world.fill()
    world.roll_back(SINK, head)
    plan = world.plan()
    assert (plan.rolled_back, plan.ranges) == ((SINK,), {P0: (OffsetRange(5, 9),)})
    result = world.fill()
    assert (result.kept, result.counts.landed) == ((SINK,), 4)
    assert world.plan().rolled_back == () and world.offsets(SINK) == list(range(9))


def test_a_rollback_of_a_further_table_is_named_and_kept(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path, ROUTE)
    world.land_elsewhere(5)
    world.skip(10)
    head = world.head("orders.deletes")
    world.fill()
    world.roll_back("orders.deletes", head)
    plan = world.plan()
    assert (plan.rolled_back, plan.offsets) == (("orders.deletes",), 0)
    (said,) = [each for each in plan_sentences(plan) if "rolled back" in each]
    assert "Table orders.deletes was rolled back" in said and "They stay out" in said
    assert backfill_facts(plan, None)["rolled_back"] == ["orders.deletes"]
    assert world.fill().kept == ("orders.deletes",)
    assert world.placed()["orders.deletes"] == [1, 2]
    assert [each.answer for each in world.audited().decisions if each.table == "orders.deletes"][-1] == "rollback_keep"
    assert world.plan().rolled_back == ()


def test_rows_of_others_that_name_their_offsets_are_left_out(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path)
    world.skip(6)
    table = world.catalog.load_table(SINK)
    world.fill(BackfillRequest(2, 3))
    rows = world.catalog.load_table(SINK).scan().to_arrow()
    moved = rows.schema.get_field_index("_kafka_offset")
    other = rows.set_column(moved, rows.schema.field(moved), [[4]])
    table.refresh().append(other)
    assert world.left_out()["rows"] == (OffsetRange(4, 5),)
    world.fill()
    assert world.offsets(SINK) == list(range(6))


def test_offsets_that_kafka_lost_and_rows_without_coordinates_are_named(read: list[World], tmp_path: Path) -> None:
    world = made(read, tmp_path)
    world.skip(6)
    world.kafka.first = 2
    assert world.left_out(BackfillRequest(0, 6)) == {"gone": (OffsetRange(0, 2),)}
    world.fill()
    rows = world.catalog.load_table(SINK).scan(limit=1).to_arrow()
    at = rows.schema.get_field_index("_kafka_offset")
    world.catalog.load_table(SINK).append(rows.set_column(at, rows.schema.field(at), pa.array([None], pa.int64())))
    assert world.plan().unlocated == 1
    # An earlier position that retention has passed stops nothing.
    world.produce(20)
    world.land_elsewhere(0)
    world.kafka.first = 20
    world.skip(2)
    assert world.fill().counts.read > 0


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (BackfillRequest(5, 5), "there is no offset from 5 to 5"),
        (BackfillRequest(0, 5, ("other",)), "reads no other"),
        (BackfillRequest(0, 5, ("payments:7",)), "reads no payments:7"),
    ],
)
def test_what_means_nothing_is_refused(read: list[World], tmp_path: Path, request_: BackfillRequest, said: str) -> None:
    world = made(read, tmp_path)
    world.skip(6)
    with pytest.raises(FrazilError, match=said):
        world.plan(request_)


def test_values_without_a_table_stop_it_before_anything_lands(read: list[World], tmp_path: Path) -> None:
    route = {"by": "type", "to": "orders.t_{value}"}
    world = made(read, tmp_path, route)
    world.land_elsewhere(1)
    world.skip(4)
    with pytest.raises(FrazilError, match="tables that the stream has not made yet"):
        world.fill()
    assert sum(len(each) for each in world.placed().values()) == 1
    metadata = stream_table(world.catalog, world.spec, SINK).metadata
    newest = history(metadata, backfill_id("payments")).newest
    assert newest is not None and newest.totals.read == 0


def test_no_reset_moves_the_stream_between_the_plan_and_the_end(
    read: list[World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made(read, tmp_path)
    world.skip(5)
    kafka: Any = world.kafka
    refused: list[str] = []

    def plan(*given: Any) -> BackfillPlan:
        planned = plan_backfill(*given)
        with pytest.raises(ResetRefusedError) as problem:
            reset(world.spec, world.settings, lambda: kafka, reset_request("earliest"), "ada", "again")
        refused.append(problem.value.message)
        return planned

    monkeypatch.setattr(run_module, "plan_backfill", plan)
    world.fill()
    assert "stream payments is backfilled by process" in refused[0]
    world.land_elsewhere(1)
    assert world.offsets(SINK) == list(range(6))


def test_tables_without_coordinates_get_no_doubles_if_the_coordinator_is_rolled_back(
    read: list[World], tmp_path: Path
) -> None:
    world = made(read, tmp_path, ROUTE, table={"name": SINK, "kafka_columns": False})
    world.skip(10)
    head = world.head(SINK)
    world.fill()
    world.roll_back(SINK, head)
    world.fill()
    rows = {name: world.table_rows(name) for name in ("orders.changes", "orders.deletes")}
    assert rows == {"orders.changes": 4, "orders.deletes": 4}
