"""Columns of an entry, of tables whose columns no file declares: what they keep, and drop, as they grow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.protocol.target import Target
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log, document
from tests.helpers.stories import audited

ENTRIES: dict[str, Any] = {
    "by": "topic",
    "tables": [
        {"match": "a.*", "table": "lake.a", "columns": ["id", "pay.*"]},
        {"match": ["b"], "table": "lake.b", "columns": {"drop": ["pay.card", "secret"]}},
        {"match": ["c"], "table": "lake.c"},
    ],
}
Opened = Callable[..., LaneStream]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    known: Log = {}

    def make(route: dict[str, Any] = ENTRIES, epoch: int = 1, **more: Any) -> LaneStream:
        return LaneStream(tmp_path / "home", route, known, monkeypatch, epoch, **more)

    return make


def rows(one: LaneStream, table: str) -> list[dict[str, Any]]:
    found = one.catalog.load_table(table).scan().to_arrow().sort_by("_kafka_offset").to_pylist()
    return [{key: value for key, value in row.items() if key[:6] != "_kafka"} for row in found]


def test_each_table_has_the_columns_that_it_keeps_and_evolution_brings_none_back(opened: Opened) -> None:
    one = opened()
    for topic in "abc":
        one.produce(topic, {"id": 1, "pay": {"card": "c", "sum": 2}, "other": "o"})
    one.land()
    assert one.columns("lake.a") == {"id": "long", "pay": "struct<card string, sum long>"}
    assert one.columns("lake.b") == {"id": "long", "pay": "struct<sum long>", "other": "string"}
    assert one.columns("lake.c")["pay"] == "struct<card string, sum long>"
    # A field to be left out that comes later, a new one that is kept, and a wider type of one that is left out.
    late = {"id": 2, "pay": {"card": "c", "sum": 3, "tip": 1}, "secret": "s", "more": True}
    for topic in ("a", "b", "c", "a2"):
        one.produce(topic, late)
    one.land(1)
    one.produce("b", {"id": 3, "secret": "t", "pay": {"card": None, "sum": 0.5}})
    one.land(2)
    assert one.columns("lake.a") == {"id": "long", "pay": "struct<card string, sum long, tip long>"}
    assert one.columns("lake.b") == {
        "id": "long",
        "pay": "struct<sum long, tip long>",
        "other": "string",
        "more": "boolean",
    }
    assert set(one.columns("lake.c")) == {"id", "pay", "other", "secret", "more"}
    assert rows(one, "lake.a")[-1] == {"id": 2, "pay": {"card": "c", "sum": 3, "tip": 1}}
    assert rows(one, "lake.b")[1] == {"id": 2, "pay": {"sum": 3, "tip": 1}, "other": None, "more": True}
    # A double does not go into a long, as ever.
    assert set(one.letters()) == {("b", 2)}
    # The next driver takes them as they are.
    after = opened(epoch=2)
    after.produce("b", {"id": 4, "secret": {"now": "a struct"}}, {"id": 5, "secret": "t", "new": 1})
    after.land(0)
    assert "secret" not in after.columns("lake.b") and after.columns("lake.b")["new"] == "long"
    audited(after)


@pytest.mark.parametrize("columns", [{"drop": ["secret", "pay.card"]}, ["id", "pay.sum"]])
@pytest.mark.parametrize("answer", ["fail", "propose"])
def test_nobody_is_asked_for_a_field_that_the_table_goes_without(opened: Opened, columns: Any, answer: str) -> None:
    tables = [{"match": "a", "table": "lake.a", "columns": columns}]
    one = opened({"by": "topic", "tables": tables}, evolve={"add": answer, "widen": answer, "relax": answer})
    one.produce("a", {"id": 1, "pay": {"sum": 1}})
    one.land()
    one.produce("a", {"id": 2, "secret": 1, "pay": {"sum": 2, "card": "c"}}, {"id": 3, "secret": 1.5})
    one.land(1)
    assert one.letters() == {} and one.columns("lake.a") == {"id": "long", "pay": "struct<sum long>"}
    assert [row["id"] for row in rows(one, "lake.a")] == [1, 2, 3]


def test_rules_and_steps_see_the_columns_that_a_table_goes_without(opened: Opened) -> None:
    more = {
        "transform": [{"compute": {"double": "n * 2"}}],
        "rules": [{"name": "small", "expect": "n < 10"}],
    }
    tables = [{"match": "a", "table": "lake.a", "columns": {"drop": ["n"]}}]
    one = opened({"by": "topic", "tables": tables}, **more)
    one.produce("a", {"id": "x", "n": 2}, {"id": "y", "n": 12}, {"id": "z", "n": 3, "new": "m"})
    one.land()
    assert rows(one, "lake.a") == [{"id": "x", "double": 4, "new": None}, {"id": "z", "double": 6, "new": "m"}]
    letter = one.catalog.load_table(DEAD).scan().to_arrow().to_pylist()[0]
    assert letter["offset"] == 1 and '"n": 12' in letter["row_before"].replace(":12", ": 12")


def test_tables_that_topics_name_have_the_routes_columns(opened: Opened) -> None:
    one = opened({"by": "topic", "to": "lake.{value}", "columns": {"drop": ["card", "**.secret"]}})
    one.produce("a", {"id": 1, "card": "c", "s": {"secret": 1, "open": 2}})
    one.produce("b", {"id": "x"})
    one.produce("c", {"card": "nothing else"})
    one.land()
    assert one.columns("lake.a") == {"id": "long", "s": "struct<open long>"}
    assert one.columns("lake.b") == {"id": "string"}
    assert "no column would be left" in one.letters()["c", 0] and not one.catalog.table_exists("lake.c")
    audited(one)


@pytest.mark.parametrize("answer", ["auto", "propose", "fail"])
def test_fields_to_be_left_out_for_which_there_is_no_room_are_left_out_and_counted(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    route = {"by": "topic", "to": "lake.{value}", "columns": {"drop": ["p"]}}
    evolve = {"add": answer, "limits": {"new_columns_per_hour": 2}}
    one = opened(route, evolve=evolve)
    one.produce("a", {"id": 1, "p": {"a": 1}})
    one.land()
    # A field that the table would have; with fail it would stop the stream.
    other = {"id": 8} if answer == "fail" else {"id": 8, "x": {"y": 1}}
    one.produce("a", *({"id": number, "p": {f"key{number}": 1}} for number in range(2, 8)), other)
    done = one.land(1)
    landed, refused = [*range(1, 9 if answer == "fail" else 8)], set() if answer == "fail" else {("a", 7)}
    assert [each["id"] for each in rows(one, "lake.a")] == landed and one.runs <= 3
    assert set(one.letters()) == refused, "a field that the table would have is refused as ever"
    assert sum(each.records for each in done.unknown_fields.values()) == 4
    one.produce("a", {"id": 9, "p": {"key7": 1}}, {"id": 10, "p": {"other": 2}})
    commit = Target.commit

    def failing(self: Target, *given: Any, **more: Any) -> Any:
        if self.name == "lake.a":
            raise SystemExit
        return commit(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Target, "commit", failing)
        with pytest.raises(SystemExit):
            one.land(2)
    for each in one.stream.folder.root.rglob("pending*"):
        each.unlink()
    after = opened(route, epoch=2, evolve=evolve)
    after.land(0)
    assert [each["id"] for each in rows(after, "lake.a")] == [*landed, 9, 10]
    assert set(after.letters()) == refused
    audited(after)


def test_a_table_of_the_file_that_would_keep_nothing_or_lacks_its_partition_stops_the_stream(opened: Opened) -> None:
    tables = [{"match": "a", "table": "lake.a", "columns": ["nothing"]}]
    one = opened({"by": "topic", "tables": tables})
    one.produce("a", {"id": 1})
    with pytest.raises(FrazilError, match=r"route\.tables\[0\]\.columns: leaves the table no column of its records"):
        one.land()
    tables = [{"match": "a", "table": "lake.a", "columns": {"drop": ["day"]}, "partition_by": ["identity(day)"]}]
    one = opened({"by": "topic", "tables": tables}, epoch=2)
    one.produce("a", {"id": 1, "day": "x"})
    with pytest.raises(FrazilError, match="no column 'day'"):
        one.land()
    assert not one.catalog.table_exists("lake.a")


def test_columns_that_a_table_is_to_have_no_more_stay_and_are_null_in_new_rows(opened: Opened) -> None:
    tables = [{"match": "a", "table": "lake.a"}]
    one = opened({"by": "topic", "tables": tables})
    one.produce("a", {"id": 1, "card": "c"})
    one.land()
    after = opened({"by": "topic", "tables": [tables[0] | {"columns": {"drop": ["card"]}}]}, epoch=2)
    after.produce("a", {"id": 2, "card": "d", "new": 1})
    after.land(0)
    assert rows(after, "lake.a") == [
        {"id": 1, "card": "c", "new": None},
        {"id": 2, "card": None, "new": 1},
    ]
    back = opened({"by": "topic", "tables": tables}, epoch=3)
    back.produce("a", {"id": 3, "card": "e", "new": 2})
    back.land(0)
    assert rows(back, "lake.a")[-1] == {"id": 3, "card": "e", "new": 2}
    audited(back)


def test_a_batch_that_landed_in_part_is_finished_by_the_columns_that_it_was_decided_by(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened()
    one.produce("b", {"id": 1, "secret": "s"})
    one.produce("c", {"id": 1})
    one.land()
    one.produce("b", {"id": 2, "secret": "t", "new": 1}, {"id": "no number", "secret": 1})
    one.produce("c", {"id": 2})
    commit = Target.commit

    def failing(self: Target, *given: Any, **more: Any) -> Any:
        if self.name == "lake.b":
            raise SystemExit
        return commit(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Target, "commit", failing)
        with pytest.raises(SystemExit):
            one.land(1)
    for each in one.stream.folder.root.rglob("pending*"):
        each.unlink()
    after = opened(epoch=2)
    after.land(0)
    assert rows(after, "lake.b") == [{"id": 1, "new": None}, {"id": 2, "new": 1}]
    assert set(after.letters()) == {("b", 2)}
    audited(after)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"decode": {"value": "json", "schema": "table"}}, "route.tables[0].columns: does not go with decode.schema"),
        (
            {"decode": {"value": "json", "schema": "infer", "unknown_fields": "keep"}},
            "route.tables[1].columns: would keep fields in _extra that it leaves out",
        ),
        ({"evolve": {"clash": "shadow"}}, "route.tables[0].columns: does not go with evolve.clash 'shadow'"),
    ],
)
def test_what_columns_do_not_go_with_is_said_with_its_place(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="validation error") as refused:
        StreamSpec.model_validate(document(ENTRIES, **given))
    assert said.partition(": ")[2] in str(refused.value)


def test_columns_of_kafka_and_of_the_streams_own_table_are_refused() -> None:
    tables = [{"match": "a", "table": "lake.a", "columns": {"drop": ["_kafka_topic"]}}]
    with pytest.raises(ValueError, match="is a column of Kafka's own"):
        StreamSpec.model_validate(document({"by": "topic", "tables": tables}))
    tables = [{"match": "a", "table": OWN, "columns": {"drop": ["x"]}}]
    with pytest.raises(ValueError, match="the stream's main table, which has all columns"):
        StreamSpec.model_validate(document({"by": "topic", "tables": tables}))
