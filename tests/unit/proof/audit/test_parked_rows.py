"""Letters of parked tables, as an audit holds them behind a rollback, and behind a reset of offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.operator.reset import move_positions
from jobs.tables.commit.stamp.log_state import LogState
from tests.helpers.parking import (
    DEAD,
    DELETES,
    SINK,
    Answer,
    again,
    answered,
    audited,
    dropped,
    head,
    records,
    replayed,
    roll_back,
    unpark,
)
from tests.helpers.routed_stream import RoutedStream


@pytest.mark.parametrize("answer", ["reland", "keep"])
def test_letters_that_a_rollback_took_out_are_not_asked_for(tmp_path: Path, answer: str) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    after.land(batch=0)
    before = head(after, DEAD)
    after.land(*records(5), batch=1)
    assert after.letters_for(DELETES) == [1, 2, 6, 7]
    roll_back(after, DEAD, before)
    answered(after, Answer(rollback=answer))
    third = again(after, 40)
    third.land(*records(10), batch=0)
    came = [6, 7] if answer == "reland" else []
    assert third.letters_for(DELETES) == [1, 2, *came, 11, 12]
    audited(third, gone=DELETES)


def read_again(one: RoutedStream, at: int, epoch: int = 60) -> RoutedStream:
    """An operator resets the offsets of a stream whose letters were replayed, and a driver lands what follows."""
    one.stream.log = LogState({"payments": "id"}, {one.at: 0}, {one.at: len(one.log)})
    one.stream.epoch = epoch
    for target in one.stream.targets.values():
        target.read()
    move_positions(one.stream, one.catalog, {one.at: at}, "ada: once more", [])
    after = again(one, epoch + 20)
    after.land(batch=0)
    return after


def came_home(home: Path) -> RoutedStream:
    """A stream whose table was parked, and has the rows of all its letters."""
    after = again(dropped(home), 20)
    after.land(*records(5), batch=0)
    unpark(after, DELETES)
    third = again(after, 40)
    replayed(third)
    assert third.offsets(DELETES) == [1, 2, 6, 7]
    return third


@pytest.mark.parametrize("full", [True, False])
def test_a_record_that_is_read_again_stands_beside_the_row_that_a_replay_brought(tmp_path: Path, full: bool) -> None:
    after = read_again(came_home(tmp_path / "home"), 5)
    assert after.offsets(DELETES) == [1, 2, 6, 6, 7, 7]
    for _ in range(2):
        # The second audit follows the ledger from the first one on.
        fill_ledger(after.catalog, after.settings, [after.spec])
        assert audit(after.spec, after.settings, after.catalog, full=full).problems == []
    alone = audit(after.spec, after.settings, after.catalog, full=full, table=DELETES)
    assert alone.problems == []


def test_a_record_that_is_read_again_stands_there_no_third_time(tmp_path: Path) -> None:
    after = read_again(came_home(tmp_path / "home"), 5)
    table = after.catalog.load_table(DELETES)
    for offset in (2, 7):
        table.append(table.scan(row_filter=f"_kafka_offset = {offset}").to_arrow().slice(0, 1))
    fill_ledger(after.catalog, after.settings, [after.spec])
    found = audit(after.spec, after.settings, after.catalog, full=True)
    doubled = [each for each in found.problems if each.kind == "doubled" and each.table == DELETES]
    assert {offset for each in doubled for range_ in each.where for offset in range(*range_)} == {2, 7}


def test_a_record_that_is_read_again_while_its_table_is_parked_comes_home_once(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    after.land(*records(5), batch=0)
    third = read_again(after, 5)
    assert third.letters_for(DELETES) == [1, 2, 6, 6, 7, 7]
    unpark(third, DELETES)
    fourth = again(third, 90)
    replayed(fourth)
    assert fourth.offsets(DELETES) == [1, 2, 6, 7]
    audited(fourth)


def test_a_record_that_came_home_once_stands_there_no_second_time(tmp_path: Path) -> None:
    """Its table was suspended while the record was read twice, so two letters brought one row."""
    after = again(dropped(tmp_path / "home"), 20)
    after.land(*records(5), batch=0)
    third = read_again(after, 5)
    unpark(third, DELETES)
    fourth = again(third, 90)
    replayed(fourth)
    assert fourth.offsets(DELETES) == [1, 2, 6, 7]
    audited(fourth)
    table = fourth.catalog.load_table(DELETES)
    table.append(table.scan(row_filter="_kafka_offset = 6").to_arrow().slice(0, 1))
    fill_ledger(fourth.catalog, fourth.settings, [fourth.spec])
    for full, only in ((True, None), (False, DELETES)):
        found = audit(fourth.spec, fourth.settings, fourth.catalog, full=full, table=only)
        assert found.verdict == "incomplete"
        assert [problem.kind for problem in found.problems] == ["doubled"]


def test_rows_that_the_tables_own_ledger_knows_outlive_a_rollback_of_the_coordinator(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    after.land(*records(5), batch=0)
    unpark(after, DELETES)
    third = again(after, 40)
    third.land(batch=0)
    before = head(third, SINK)
    twice = read_again(read_again(third, 5), 5, epoch=100)
    roll_back(twice, SINK, before)
    answered(twice, Answer(rollback="keep"))
    last = again(twice, 140)
    last.land(batch=0)
    assert last.offsets(DELETES) == [6, 6, 7, 7]
    audited(last)
