"""Tables with columns of their own, on real tables: each evolves by itself, and each record is in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.opening import opening
from jobs.streaming.driver.tables import schema_evolution
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import TargetRecreatedError
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log, document
from tests.helpers.stories import Killed, audited, killed_at

BY_TOPIC: dict[str, Any] = {"by": "replace(_topic, '.', '_')", "to": "lake.{value}"}
Opened = Callable[..., LaneStream]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    known: Log = {}

    def make(route: dict[str, Any] = BY_TOPIC, epoch: int = 1, log: Log | None = None, **more: Any) -> LaneStream:
        known.update(log or {})
        return LaneStream(tmp_path / "home", route, known, monkeypatch, epoch, **more)

    return make


def at(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def test_each_topic_has_a_table_with_the_columns_of_its_records(opened: Opened) -> None:
    one = opened()
    one.produce("shop.a", {"id": 1, "n": 2}, {"id": 2})
    one.produce("shop.b", {"id": "x", "at": "now"})
    one.produce("shop.b", {"id": "y"}, partition=1)
    done = one.land()
    assert one.columns("lake.shop_a") == {"id": "long", "n": "long"}
    assert one.columns("lake.shop_b") == {"id": "string", "at": "string"}
    assert one.columns(OWN) == {}
    assert one.placed() == {
        "lake.shop_a": [("shop.a", 0, 0), ("shop.a", 0, 1)],
        "lake.shop_b": [("shop.b", 0, 0), ("shop.b", 1, 0)],
    }
    assert (done.counts.read, done.counts.landed, one.runs) == (4, 4, 1)
    audited(one)


def test_each_table_evolves_by_itself_within_the_batch(opened: Opened) -> None:
    one = opened()
    one.produce("shop.a", {"id": 1})
    one.produce("shop.b", {"id": "x"})
    one.land()
    one.produce("shop.a", {"id": 7, "new": True}, {"id": 2.5, "lost": 1})
    one.produce("shop.b", {"id": "y", "new": "text"}, {"id": 5})
    one.produce("shop.c", {"new": 1})
    done = one.land(1)
    assert one.columns("lake.shop_a") == {"id": "long", "new": "boolean"}
    assert one.columns("lake.shop_b") == {"id": "string", "new": "string"}
    assert one.columns("lake.shop_c") == {"new": "long"}
    assert (done.counts.landed, done.counts.dead) == (3, 2)
    assert set(one.letters()) == {("shop.a", 2), ("shop.b", 2)}
    one.land(2)
    after = opened(epoch=2)
    assert set(after.stream.targets) == {OWN, DEAD, "lake.shop_a", "lake.shop_b", "lake.shop_c"}
    after.produce("shop.b", {"id": "z", "new": "t", "more": [1]})
    after.land(0)
    assert after.columns("lake.shop_b")["more"] == "list<long>"
    audited(after)


def test_topics_of_a_day_each_are_one_stream_into_one_table(opened: Opened) -> None:
    route = {
        "by": "topic",
        "tables": [{"match": r"events\..*", "table": "lake.events"}, {"match": ["other"], "table": "lake.other"}],
    }
    one = opened(route)
    one.produce("events.20240101", {"id": "a"})
    one.produce("other", {"id": 1})
    one.land()
    assert one.columns("lake.events") == {"id": "string"} and one.columns("lake.other") == {"id": "long"}
    one.produce("events.20240102", {"id": "b", "n": 1})
    one.produce("unknown", {"id": "c"}, None)
    done = one.land(1)
    assert one.columns("lake.events") == {"id": "string", "n": "long"}
    assert one.placed() == {
        "lake.events": [("events.20240101", 0, 0), ("events.20240102", 0, 0)],
        "lake.other": [("other", 0, 0)],
        DEAD: [("unknown", 0, 0)],
    }
    assert one.letters() == {("unknown", 0): "unrouted: needs a topic that a table of the route takes, found 'unknown'"}
    assert (done.counts.landed, done.counts.dead, done.counts.tombstones) == (1, 1, 1)
    audited(one)


@pytest.mark.parametrize("unmatched", ["drop", {"table": "lake.rest"}, {"table": OWN}])
def test_what_no_entry_takes_follows_unmatched(opened: Opened, unmatched: Any) -> None:
    log: Log = {at("a"): [b'{"id":1}'], at("b"): [b'{"id":"x"}'] * 2, at("c"): [b'{"id":true,"m":1}', None]}
    one = opened({"by": "topic", "tables": [{"match": "a", "table": "lake.a"}], "unmatched": unmatched}, log=log)
    done = one.land()
    expected = {"lake.a": [("a", 0, 0)]}
    if unmatched == "drop":
        assert (done.counts.landed, done.counts.filtered, done.counts.tombstones) == (1, 3, 1)
    else:
        # One table: of two types of a field that of most records counts.
        expected[unmatched["table"]] = [("b", 0, 0), ("b", 0, 1)]
        expected[DEAD] = [("c", 0, 0)]
        assert one.columns(unmatched["table"]) == {"id": "string", "m": "long"}
    assert one.placed() == expected
    audited(one)


def test_unmatched_fail_stops_the_stream(opened: Opened) -> None:
    log: Log = {at("a"): [b'{"id":1}'], at("b"): [b'{"id":"x"}']}
    one = opened({"by": "topic", "tables": [{"match": "a", "table": "lake.a"}], "unmatched": "fail"}, log=log)
    with pytest.raises(FrazilError, match=r"no table of the route takes 1 of 2 records"):
        one.land()
    assert one.placed() == {}


def test_a_topic_that_two_entries_take_stops_the_stream_and_names_both(opened: Opened) -> None:
    tables = [{"match": "a.*", "table": "lake.a"}, {"match": ".*b", "table": "lake.b"}]
    one = opened({"by": "topic", "tables": tables}, log={at("a"): [b'{"id":1}'], at("ab"): [b'{"id":1}']})
    with pytest.raises(FrazilError, match=r"topic ab is taken by route.tables\[0\] \(lake.a\) and route.tables\[1\]"):
        one.land()
    assert one.placed() == {}


def test_a_topic_whose_records_say_no_columns_waits_for_those_that_do(opened: Opened) -> None:
    one = opened(log={at("a"): [b"{}", b"nope", None], at("b"): [b'{"id":1}']})
    done = one.land()
    assert one.placed() == {"lake.b": [("b", 0, 0)], DEAD: [("a", 0, 0), ("a", 0, 1)]}
    assert "unrouted: needs a table, and lake.a is not made yet" in one.letters()["a", 0]
    assert done.counts.tombstones == 1
    one.produce("a", {"id": "now"})
    one.land(1)
    assert one.placed()["lake.a"] == [("a", 0, 3)]
    audited(one)


def test_no_topic_names_a_table_of_somebody_else_or_one_that_cannot_be_made(opened: Opened) -> None:
    table = {"name": OWN, "partition_by": ["identity(day)"]}
    one = opened(log={at("a"): [b'{"day":"x"}'], at("theirs"): [b'{"day":"x"}'], at("c"): [b'{"id":1}']}, table=table)
    one.catalog.create_table("lake.theirs", one.catalog.load_table(OWN).schema())
    one.land()
    assert one.placed() == {"lake.a": [("a", 0, 0)], DEAD: [("c", 0, 0), ("theirs", 0, 0)]}
    assert "lake.theirs exists and is not one" in one.letters()["theirs", 0]
    assert "no column 'day'" in one.letters()["c", 0]
    one.produce("c", {"day": "y"})
    one.land(1)
    assert ("c", 0, 1) in one.placed()[DEAD], "it is asked again when the stream is opened anew"
    audited(one)


def test_a_table_of_the_file_that_cannot_be_made_stops_the_stream_and_is_named(opened: Opened) -> None:
    tables = [{"match": "a", "table": "lake.a", "partition_by": ["identity(day)"]}]
    one = opened({"by": "topic", "tables": tables}, log={at("a"): [b'{"id":1}']})
    with pytest.raises(FrazilError, match=r"table lake\.a, of topic a: .*no column 'day'"):
        one.land()
    assert not one.catalog.table_exists("lake.a")


def test_a_table_that_is_there_is_taken_with_its_columns(opened: Opened) -> None:
    tables = [{"match": "a", "table": "lake.a"}]
    one = opened({"by": "topic", "tables": tables}, log={at("a"): [b'{"id":1}']})
    schema = Schema(*one.catalog.load_table(OWN).schema().fields, NestedField(9, "id", StringType(), required=False))
    one.catalog.create_table("lake.a", schema)
    one.land()
    assert one.letters() == {("a", 0): "wrong_type: needs string, found a whole number"}


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("name", ["before_schema_commit", "after_schema_commit"])
def test_a_driver_killed_between_the_changes_of_two_tables_leaves_a_batch_that_runs_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    one = opened(log={at("a"): [b'{"id":1}'], at("b"): [b'{"id":"x"}']})
    one.land()
    one.produce("a", {"id": 2, "more": 1})
    one.produce("b", {"id": "y", "more": "z"})
    with monkeypatch.context() as patch:
        killed_at(patch, schema_evolution, name, nth)
        with pytest.raises(Killed):
            one.land(1)
    changed = [table for table in ("lake.a", "lake.b") if "more" in one.columns(table)]
    assert len(changed) == nth - (name == "before_schema_commit")
    after = opened(epoch=2)
    after.land()
    assert after.columns("lake.a") == {"id": "long", "more": "long"}
    assert after.columns("lake.b") == {"id": "string", "more": "string"}
    assert after.placed() == {"lake.a": [("a", 0, 0), ("a", 0, 1)], "lake.b": [("b", 0, 0), ("b", 0, 1)]}
    audited(after)


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("table", [OWN, "lake.b", "lake.c", DEAD])
def test_a_driver_killed_between_the_commits_of_two_tables_leaves_each_record_in_one_place(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, table: str, lost: bool
) -> None:
    one = opened(log={at("a"): [b'{"id":1}'], at("b"): [b'{"id":"x"}']})
    one.land()
    one.produce("a", {"id": 2, "more": 1}, b"bad")
    one.produce("b", {"id": "y"}, {"id": 5}, {"id": "z", "n": 1})
    one.produce("c", {"c": 1})
    with monkeypatch.context() as patch:
        commit = OpenStream.commit
        patch.setattr(OpenStream, "commit", lambda self, target, *given: _commit(commit, self, target, table, given))
        with pytest.raises(Killed):
            one.land(1)
    if lost:
        one.stream.folder.store.delete(one.stream.folder.pending(1))
    after = opened(epoch=2)
    # What comes later alters the tables before the batch is whole where its record is lost.
    after.produce("b", {"id": "later", "n": "text", "b2": 1})
    after.land()
    after.land(1)
    assert after.placed() == {
        "lake.a": [("a", 0, 0), ("a", 0, 1)],
        "lake.b": [("b", 0, 0), ("b", 0, 1), ("b", 0, 3)],
        "lake.c": [("c", 0, 0)],
        DEAD: [("a", 0, 2), ("b", 0, 2), ("b", 0, 4)],
    }
    audited(after)


def _commit(commit: Any, stream: OpenStream, target: Target, at_table: str, given: Any) -> Any:
    if target.name == at_table:
        raise Killed
    return commit(stream, target, *given)


def test_a_record_that_failed_by_its_own_tables_schema_fails_in_the_second_run_too(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table is altered between the two runs: the stamp tells the schema that each table had."""
    fail = {"decode": {"value": "json", "schema": "infer", "unknown_fields": "fail"}, "evolve": {"add": "ignore"}}
    one = opened(log={at("a"): [b'{"id":1}'], at("b"): [b'{"id":"x"}']}, **fail)
    one.land()
    with one.catalog.load_table("lake.b").update_schema() as update:
        update.add_column("first", StringType())
    one = opened(epoch=2, **fail)
    one.produce("a", {"id": 1, "more": 1}, {"id": 2})
    one.produce("b", {"id": "y", "more": 1}, {"id": "z", "first": "f"})
    with monkeypatch.context() as patch:
        commit = OpenStream.commit
        patch.setattr(OpenStream, "commit", lambda self, target, *given: _commit(commit, self, target, DEAD, given))
        with pytest.raises(Killed):
            one.land()
    one.stream.folder.store.delete(one.stream.folder.pending(2))
    for table in ("lake.a", "lake.b"):
        with one.catalog.load_table(table).update_schema() as update:
            update.add_column("more", LongType())
    after = opened(epoch=3, **fail)
    newest = after.stream.anchor.newest
    assert newest is not None and newest.schemas == {"lake.a": 0, "lake.b": 1}
    after.land()
    assert {place: said.partition(":")[0] for place, said in after.letters().items()} == {
        ("a", 1): "unknown_field",
        ("b", 1): "unknown_field",
    }
    audited(after)


def test_a_table_that_was_dropped_is_begun_anew_once_that_is_accepted(opened: Opened) -> None:
    tables = [{"match": "a", "table": "lake.a"}, {"match": "b", "table": "lake.b"}]
    route = {"by": "topic", "tables": tables}
    one = opened(route, log={at("a"): [b'{"id":1}'], at("b"): [b'{"id":"x"}']})
    one.land()
    one.catalog.drop_table("lake.b")
    with pytest.raises(TargetRecreatedError, match=r"lake\.b"):
        opening._targets(one.stream.spec, one.settings, one.catalog, {}, lambda: NewColumns(Schema()))
    given = Answer(recreated_table="lake.b")
    record_answer(StreamSpec.model_validate(document(route)), one.settings, lambda: None, given, "ada")  # pyright: ignore[reportArgumentType]
    after = opened(route, epoch=3)
    after.produce("b", {"other": 1})
    after.land()
    assert after.columns("lake.b") == {"other": "long"}
    assert after.placed() == {"lake.a": [("a", 0, 0)], "lake.b": [("b", 0, 1)]}
    audited(after)


def test_steps_that_change_columns_make_each_table_of_what_its_own_records_decode_to(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {"transform": [{"rename": {"id": "key"}}, {"drop": ["secret"]}]}
    one = opened(log={at("a"): [b'{"id":1,"secret":1}'], at("b"): [b'{"id":"x","secret":"s"}']}, **steps)
    one.land()
    assert one.columns("lake.a") == {"key": "long"} and one.columns("lake.b") == {"key": "string"}
    one.produce("a", {"id": 2, "more": 1})
    one.produce("b", {"id": "y", "more": "m"}, {"id": 5})
    with monkeypatch.context() as patch:
        commit = OpenStream.commit
        patch.setattr(OpenStream, "commit", lambda self, target, *given: _commit(commit, self, target, "lake.b", given))
        with pytest.raises(Killed):
            one.land(1)
    one.stream.folder.store.delete(one.stream.folder.pending(1))
    after = opened(epoch=2, **steps)
    newest = after.stream.anchor.newest
    assert newest is not None and set(newest.decoded_of) == {"lake.a", "lake.b"}
    after.produce("b", {"id": "z", "more": "m", "later": True})
    after.land()
    assert after.columns("lake.a") == {"key": "long", "more": "long"}
    assert after.columns("lake.b") == {"key": "string", "more": "string", "later": "boolean"}
    assert after.placed() == {
        "lake.a": [("a", 0, 0), ("a", 0, 1)],
        "lake.b": [("b", 0, 0), ("b", 0, 1), ("b", 0, 3)],
        DEAD: [("b", 0, 2)],
    }
    audited(after)
