"""Answers of an operator while a table is parked, on real tables: each stop has one that can be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.parked_target import parked_target
from jobs.tables.commit.stamp.errors import NothingToAcceptError, RolledBackError, TableGoneError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.evolving_stream import SINK
from tests.helpers.parking import (
    CHANGES,
    DEAD,
    DELETES,
    PARK,
    again,
    answered,
    audited,
    dropped,
    head,
    records,
    replayed,
    roll_back,
    rows_of,
    unpark,
)
from tests.helpers.routed_stream import RoutedStream


@pytest.mark.parametrize("both", [False, True], ids=["one is suspended", "two are"])
def test_another_table_is_landed_again_while_tables_are_parked(tmp_path: Path, both: bool) -> None:
    one = dropped(tmp_path / "home")
    if both:
        one.catalog.drop_table(CHANGES)
    after = again(one, 20)
    after.land(batch=0)
    before = head(after, SINK)
    after.land(*records(5), batch=1)
    roll_back(after, SINK, before)
    answered(after, Answer(rollback="reland"))
    third = again(after, 40)
    third.land(batch=0)
    assert third.offsets(SINK) == [3, 8]
    assert third.letters_for(DELETES) == [1, 2, 6, 7] and third.offsets(DEAD).count(4) == 1


class CutTopic:
    """Brokers whose topic was created again, or lost what it held from an offset on."""

    def __init__(self, one: RoutedStream, identity: str, end: int) -> None:
        self.identity: str = identity
        self.log = LogState({"payments": identity}, {one.at: 0}, {one.at: end})

    def state(self, source: object) -> LogState:
        return self.log

    def identities(self, topics: list[str]) -> dict[str, str]:
        return dict.fromkeys(topics, self.identity)

    def departures(self, marks: object) -> dict[TopicPartition, int]:
        return {}


@pytest.mark.parametrize("end", [0, 7])
def test_a_topic_is_begun_anew_while_a_table_is_parked(tmp_path: Path, end: int) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    after.land(*records(5), batch=0)
    decided = answered(after, Answer(recreated_topic="payments"), CutTopic(after, "another", end))
    assert decided.keys() >= {SINK, DEAD, DELETES}
    spec, known = after.spec, history(after.catalog.load_table(SINK).metadata, "payments").newest
    assert known is not None and set(known.parked) == {DELETES}
    place = parked_target(spec, after.catalog, DELETES, "").newest
    assert place is not None and place.position == known.position


def test_the_dead_letters_are_begun_anew_while_a_table_is_parked(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    after.land(*records(5), batch=0)
    after.catalog.drop_table(DEAD)
    with pytest.raises(TableGoneError, match=f"{DEAD} was dropped") as told:
        unpark(after, DELETES)
    assert told.value.fix is not None and f"frazil accept payments --recreated {DEAD}" in told.value.fix
    answered(after, Answer(recreated_table=DEAD))
    third = again(after, 40)
    third.land(*records(10), batch=0)
    assert third.letters_for(DELETES)[-2:] == [11, 12] and rows_of(third)[SINK] == [3, 8, 13]
    unpark(third, DELETES)
    fourth = again(third, 60)
    replayed(fourth)
    assert fourth.offsets(DELETES)[-2:] == [11, 12]


def test_a_stop_at_the_dead_letters_of_a_parked_table_tells_the_stream(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    place = parked_target(after.spec, after.catalog, DELETES, "")
    after.catalog.drop_table(DEAD)
    with pytest.raises(TableGoneError, match=f"stream payments: table {DEAD} was dropped") as told:
        place.read()
    assert told.value.fix is not None and f"frazil accept payments --recreated {DEAD}" in told.value.fix
    assert "stream payments: no" in place._given_up("no").message


def test_a_parked_table_that_values_name_is_begun_anew_where_the_file_says_so(tmp_path: Path) -> None:
    route = {"by": "type", "to": "events.{value}", "on_table_error": "park"}
    home, table = tmp_path / "home", "events.UPD"
    one = RoutedStream(home, route)
    one.land(*records(0))
    one.catalog.drop_table(table)
    parked = again(one, 20, route)
    parked.land(*records(5), batch=0)
    assert parked.letters_for(table) == [1, 6]
    fresh = {**route, "recreate": True}
    again(parked, 40, fresh).land(*records(10), batch=0)
    last = again(parked, 60, fresh)
    newest = history(last.table.metadata, "payments").newest
    assert newest is not None and not newest.parked
    assert last.offsets(table) == [11] and last.letters_for(table) == [1, 6]


def test_a_table_that_was_rolled_back_while_it_was_parked_is_unparked_without_its_rows(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*records(0))
    before = head(one, DELETES)
    one.land(*records(5), batch=1)
    one.land(*records(10), batch=2)
    one.catalog.rename_table(DELETES, "orders.elsewhere")
    after = again(one, 20)
    after.land(*records(15), batch=0)
    after.catalog.rename_table("orders.elsewhere", DELETES)
    roll_back(after, DELETES, before)
    with pytest.raises(RolledBackError, match=f"{DELETES} was rolled back") as told:
        unpark(after, DELETES)
    assert told.value.fix is not None and "--rollback keep` to leave the records out; then" in told.value.fix
    with pytest.raises(NothingToAcceptError, match="or suspended: its records were read") as refused:
        answered(after, Answer(rollback="reland"))
    assert refused.value.fix is not None and "frazil accept payments --rollback keep" in refused.value.fix
    assert answered(after, Answer(rollback="keep")).keys() == {f"{DELETES} (parked)"}
    unpark(after, DELETES)
    third = again(after, 40)
    third.land(*records(20), batch=0)
    replayed(third)
    assert third.offsets(DELETES) == [1, 2, 11, 12, 16, 17, 21, 22], "the newest batch had letters as well"
    audited(third)


@pytest.mark.parametrize("replay_first", [True, False])
def test_the_coordinator_is_begun_anew_while_a_table_is_parked(tmp_path: Path, replay_first: bool) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, PARK)
    one.land(*records(0))
    one.catalog.rename_table(DELETES, "orders.elsewhere")
    after = again(one, 20)
    after.land(*records(5), batch=0)
    after.catalog.rename_table("orders.elsewhere", DELETES)
    after.catalog.drop_table(SINK)
    answered(after, Answer(recreated_table=SINK))
    third = again(after, 40)
    if replay_first:
        replayed(third)
    third.land(*records(10), batch=0)
    replayed(third)
    assert third.offsets(SINK) == [3, 8, 13]
    assert third.offsets(DELETES) == [1, 2, 6, 7, 11, 12]


def test_the_coordinator_is_begun_anew_while_a_parked_table_is_gone(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    after.land(*records(5), batch=0)
    after.catalog.drop_table(SINK)
    told = list[str]()
    given = (after.spec, after.settings, lambda: pytest.fail("none is asked"), Answer(recreated_table=SINK), "ada: why")
    record_answer(*given, told.append)
    (said,) = told
    assert said.startswith(f"table {DELETES}") and "`frazil replay payments` only once the stream has caught up" in said
    third = again(after, 40)
    assert third.catalog.table_exists(DELETES), "nobody knows any more that it was parked: it is made, as any other"
    third.land(*records(10), batch=0)
    # It gets all that is read again; its letters find their rows.
    result = replayed(third)
    assert (result.replayed, result.standing) == (0, 4)
    assert third.offsets(SINK) == [3, 8, 13]
    assert third.offsets(DELETES) == [1, 2, 6, 7, 11, 12]


def test_a_parked_table_that_is_gone_is_made_when_it_is_unparked_while_another_one_was_begun_anew(
    tmp_path: Path,
) -> None:
    one = dropped(tmp_path / "home")
    after = again(one, 20)
    after.land(*records(5), batch=0)
    after.catalog.drop_table(DEAD)
    answered(after, Answer(recreated_table=DEAD))
    third = again(after, 40)
    third.land(*records(10), batch=0)
    unpark(third, DELETES)
    assert third.offsets(DELETES) == [], "it is rebuilt, and letters that are there wait"
    fourth = again(third, 60)
    fourth.land(*records(15), batch=0)
    # Those of the newest batch were made again.
    assert replayed(fourth).replayed == 4
    assert fourth.offsets(DELETES) == [6, 7, 11, 12, 16, 17]
