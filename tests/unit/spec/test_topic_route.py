"""Routes whose topics decide: which they are, what they say of each topic, and what does not go with them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jobs.errors import FrazilError
from jobs.pipeline.route_naming import naming_state
from jobs.pipeline.topic_tables import of_table, topic_tables
from jobs.spec.models import StreamSpec
from jobs.spec.topic_route import TopicValue, topic_values
from tests.helpers.lane_stream import DEAD, OWN, document

TABLES = [{"match": r"events\..*", "table": "lake.events"}, {"match": ["orders"], "table": "lake.orders"}]


def spec(by: str = "topic", route: dict[str, Any] | None = None, **more: Any) -> StreamSpec:
    return StreamSpec.model_validate(document({"by": by, "tables": TABLES, **(route or {})}, **more))


@pytest.mark.parametrize(
    ("by", "decides"),
    [
        ("topic", True),
        ("replace(_topic, '.', '_')", True),
        ("sql:_topic", True),
        ("case when _topic like 'a%' then 'a' else 'b' end", True),
        ("column:topic", False),
        ("type", False),
        ("header:kind", False),
        ("concat(_topic, type)", False),
        ("case when _partition = 0 then _topic else 'b' end", False),
        ("'orders'", False),
        ("_topic || cast(now() as string)", False),
        ("_topic || cast(current_date as string)", False),
    ],
)
def test_what_the_topic_alone_decides_gives_each_table_columns_of_its_own(by: str, decides: bool) -> None:
    one = spec(by)
    assert (one.own_columns, one.grows, one.tables_follow) == (decides, decides, not decides)
    assert one.target_names == (OWN, DEAD, "lake.events", "lake.orders")


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("upper(_topic", r"route\.by: the expression is wrong at"),
        ("case when type then", r"route\.by: the expression is wrong at"),
        ("cast(_topic as double)", r"route\.by: cannot be an expression of type double"),
    ],
)
def test_an_expression_that_is_none_is_refused_with_what_is_wrong_with_it(by: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec(by)


def test_declared_columns_are_those_of_all_tables_whatever_decides() -> None:
    one = spec(decode={"value": "json", "schema": "id string"})
    assert not one.own_columns and not one.grows and one.for_table("lake.events") is one
    assert one.target_names == (OWN, DEAD, "lake.events", "lake.orders")


def test_a_table_is_a_target_once_the_coordinator_names_it() -> None:
    one = spec()
    assert one.target_names == (OWN, DEAD, "lake.events", "lake.orders"), "as the file says, for who asks no table"
    assert one.with_present_tables(()).target_names == (OWN, DEAD)
    there = one.with_present_tables([OWN, DEAD, "lake.orders"])
    assert there.target_names == (OWN, DEAD, "lake.orders")
    assert there.with_named_tables(["lake.events", "lake.foreign"]).target_names == one.target_names
    assert there.config_hash == one.config_hash


def test_the_stream_of_one_table_has_its_settings_and_no_route() -> None:
    tables = [{**TABLES[0], "partition_by": ["day(at)"], "properties": {"a": "1"}}]
    made = spec(route={"tables": tables}, table={"name": OWN, "properties": {"b": "2"}}).for_table("lake.events")
    assert (made.table.name, made.route, made.dead_letter_table) == ("lake.events", None, DEAD)
    assert dict(made.table.properties) == {"a": "1", "b": "2"} and len(made.table.partition_by) == 1


def test_values_of_topics() -> None:
    route = spec("case when _topic = 'x' then null else upper(_topic) end").route
    assert route is not None
    assert topic_values(route, ["a.b", "x", "a.b"]) == {"a.b": TopicValue("A.B"), "x": TopicValue(None)}
    failing = spec("cast(cast(_topic as int) as string)").route
    assert failing is not None
    found = topic_values(failing, ["7", "x"])
    assert found["7"] == TopicValue("7") and found["x"].value is None and "found none" in str(found["x"].failure)


def test_where_topics_go() -> None:
    one = spec(route={"to": "lake.{value}", "limit": 4})
    naming = naming_state(one, {"taken": "names a table of this stream"}, decided=False)
    found = topic_tables(one, ["events.1", "orders", "new", "un-safe", "taken"], {OWN}, naming)
    assert {topic: each.table for topic, each in found.items()} == {
        "events.1": "lake.events",
        "orders": "lake.orders",
        "new": "lake.new",
        "un-safe": None,
        "taken": None,
    }
    assert found["taken"].refused == "needs a topic that names a table of this stream, found 'taken'"
    unmade = topic_tables(one, ["orders"], {OWN}, naming, {"lake.orders": "no schema"})["orders"]
    assert unmade.table is None and unmade.unmade and "lake.orders is not made yet: no schema" in unmade.refused
    full = one.with_named_tables(["lake.a", "lake.b"])
    closed = topic_tables(full, ["new"], full.target_names, naming_state(full, {}, decided=False))
    assert closed["new"].table is None and "as many as route.limit allows" in closed["new"].refused


def test_a_topic_goes_to_one_table() -> None:
    both = [*TABLES, {"match": "events.2", "table": "lake.two"}]
    with pytest.raises(FrazilError, match=r"route\.tables\[0\] \(lake\.events\) and route\.tables\[2\] \(lake\.two\)"):
        topic_tables(spec(route={"tables": both}), ["events.2"], {OWN})
    with pytest.raises(ValidationError, match=r"route\.tables\[2\]\.match: topic events\.2 is taken by"):
        spec(route={"tables": both}, source={"topics": ["events.2"]})
    same = [*TABLES, {"match": "events.2", "table": "lake.events"}]
    found = topic_tables(spec(route={"tables": same}), ["events.2"], {OWN})
    assert found["events.2"].table == "lake.events"


def test_of_listed_topics_those_of_a_table_are_known() -> None:
    one = spec(source={"topics": ["events.1", "events.2", "orders", "other"]}, route={"unmatched": {"table": OWN}})
    assert of_table(one, "lake.events").source.topics == ("events.1", "events.2")
    assert of_table(one, OWN).source.topics == ("other",) and one.coordinator_has_rows
    assert of_table(spec(), "lake.events").source.topics is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"transform": [{"smt": {"type": "RegexRouter", "regex": "a", "replacement": "b"}}]},
            r"transform\[0\]: gives records another topic",
        ),
        ({"table": {"name": OWN, "kafka_columns": False}}, "table.kafka_columns.topic: is needed beside a route"),
        (
            {"decode": {"value": "json", "schema": "table"}, "route": {"to": "lake.{value}", "by": "topic"}},
            "route.to: names tables that are made",
        ),
        (
            {
                "event_time": {"column": "at", "grace": "1h", "late": "table"},
                "route": {"by": "topic", "tables": TABLES, "on_table_error": "park"},
            },
            "route.on_table_error: cannot be park where each table has columns and late rows of its own",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused_with_its_place(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        StreamSpec.model_validate({**document({"by": "topic", "tables": TABLES}), **more})


def late(table: str | None = None, **more: Any) -> dict[str, Any]:
    return {"event_time": {"column": "at", "late": {"table": table, **more} if table else {**more}}}


def test_each_table_has_one_for_its_late_rows() -> None:
    route = {"to": "lake.of_{value}", "tables": [{**TABLES[0], "partition_by": ["day(at)"], "branch": "b"}, TABLES[1]]}
    one = spec(route=route, **late(partition_by=["id"])).with_named_tables(["lake.of_a", "lake.of_a_late", OWN])
    timely = ["lake.events", "lake.orders", "lake.of_a"]
    assert one.target_names == (OWN, DEAD, *timely, *(f"{name}_late" for name in timely))
    assert one.named_tables == ("lake.of_a",) and one.late_table is None
    assert [one.late_rows_of(name) for name in one.target_names] == [None] * 5 + timely
    assert {each.name: each.branch for each in one.targets if each.branch != "main"} == {"lake.events": "b"}
    events = one.for_table("lake.events")
    assert events.target_names == ("lake.events", DEAD, "lake.events_late") and events.tables_follow
    behind = one.for_table("lake.events_late")
    assert (behind.table.name, behind.late_table, behind.target_names) == (
        "lake.events_late",
        None,
        ("lake.events_late", DEAD),
    )
    assert behind.branch_of("lake.events_late") == "main"
    assert list(map(str, one.table_settings("lake.events_late").partition_by)) == ["id"]
    plain = spec(route=route, **late())
    assert list(map(str, plain.table_settings("lake.events_late").partition_by)) == ["day(at)"]
    to_own = spec(route={"tables": [{"match": "a", "table": OWN}]}, **late())
    assert to_own.target_names == (OWN, DEAD, f"{OWN}_late")


def test_what_its_name_is_made_of_is_in_the_hash() -> None:
    hashes = [spec(**late(name)).config_hash for name in (None, "{table}_late", "{table}_behind", "late.{table}")]
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3
    assert spec(**late(properties={"a": "b"})).config_hash == hashes[0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (late("lake.behind"), r"event_time\.late\.table: has to have \{table\} in it, such as '\{table\}_late'"),
        (late(location="/tmp/x"), r"event_time\.late\.location: says where one table lies, and \{table\}_late names"),
        (
            {**late(), "route": {"to": "lake.{value}", "tables": [{"match": "a", "table": "lake.a_late"}]}},
            r"event_time\.late\.table: would give the late rows of lake\.a to lake\.a_late, a table of the route",
        ),
        (
            {
                **late(),
                "route": {"tables": [{"match": "b", "table": "lake.A"}, {"match": "a", "table": "lake.a_late"}]},
            },
            r"event_time\.late\.table: would give the late rows of lake\.a to lake\.a_late",
        ),
        (
            {**late("{table}_dead"), "route": {"to": "lake.{value}"}},
            r"event_time\.late\.table: would give the late rows of lake\.stream to lake\.stream_dead, the table",
        ),
        (
            {**late(), "table": {"name": "lake.a_late"}, "route": {"to": "lake.{value}"}},
            r"event_time\.late\.table: would give the late rows of lake\.a to lake\.a_late, the stream's own table",
        ),
        ({**late(), "table": {"name": OWN, "branch": "b"}}, r"cannot be a table beside table\.branch"),
    ],
)
def test_names_that_late_rows_cannot_have_are_refused(more: dict[str, Any], said: str) -> None:
    route = more.pop("route", {})
    with pytest.raises(ValidationError, match=said):
        spec(route=route, **more)
