"""Routes whose topics decide: which they are, what they say of each topic, and what does not go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from jobs.base.errors import FrazilError
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.topic_route import TopicValue, topic_values
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.topic_tables import of_table, topic_tables
from jobs.tables.write.partitioning import partition_spec
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


def test_tables_that_are_there_may_say_their_columns_themselves() -> None:
    assert spec(decode={"value": "json", "schema": "table"}, route={"to": "lake.{value}"}).own_columns


def test_a_topic_goes_to_one_table() -> None:
    both = [*TABLES, {"match": "events.2", "table": "lake.two"}]
    with pytest.raises(FrazilError, match=r"route\.tables\[0\] \(lake\.events\) and route\.tables\[2\] \(lake\.two\)"):
        topic_tables(spec(route={"tables": both}), ["events.2"], {OWN})
    with pytest.raises(ValidationError, match=r"route\.tables\[2\]\.match: topic events\.2 is taken by"):
        spec(route={"tables": both}, source={"topics": ["events.2"]})
    with pytest.raises(ValidationError, match="if each table is to get every record, write by: \"'all'\""):
        spec(route={"tables": both}, source={"topics": ["events.2"]})
    every = [{"match": "all", "table": each} for each in (OWN, "lake.two")]
    assert spec(route={"by": "'all'", "to": None, "tables": every}).tables_follow
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
        (
            late(location="/tmp/x"),
            r"event_time\.late\.location: is the location of one table, and \{table\}_late names",
        ),
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
            r"event_time\.late\.table: would give the late rows of lake\.a to lake\.a_late, the stream's main table",
        ),
        ({**late(), "table": {"name": OWN, "branch": "b"}}, r"cannot be a table beside table\.branch"),
    ],
)
def test_names_that_late_rows_cannot_have_are_refused(more: dict[str, Any], said: str) -> None:
    route = more.pop("route", {})
    with pytest.raises(ValidationError, match=said):
        spec(route=route, **more)


SCHEMA = "id string not null, type string not null, at timestamptz, p struct<card: string, kind: string>, raw string"
NOT_NULL = "expect_column_values_to_not_be_null"
SORTED = {"compact": {"strategy": "sort", "sort_by": ["at"]}}
KAFKA = ["_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
DOCUMENT: dict[str, Any] = {
    "stream": "events",
    "source": {"topics": ["events"]},
    "decode": {"value": "json", "schema": SCHEMA},
    "table": {"name": "ev.own"},
}


def narrow(columns: object = None, entry: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    first: dict[str, Any] = {"match": "INS", "table": "ev.ins"} | (entry or {})
    if columns is not None:
        first["columns"] = columns
    return {**DOCUMENT, "route": {"by": "type", "tables": [first, {"match": "DEL", "table": "ev.del"}]}, **more}


def named(columns: object, **more: Any) -> dict[str, Any]:
    return {**DOCUMENT, "route": {"by": "type", "to": "ev.t_{value}", "columns": columns}, **more}


def narrow_spec(*args: Any, **more: Any) -> StreamSpec:
    return StreamSpec.model_validate(narrow(*args, **more))


def refused(tmp_path: Path, data: dict[str, Any]) -> str:
    """What `frazil validate` says of a file."""
    file = tmp_path / "streams" / "events.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(FrazilError) as error:
        load_stream(file)
    return str(error.value)


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        (["at", "id"], "id string not null, at timestamptz"),
        (["id", "p.card"], "id string not null, p struct<card string>"),
        (["id", "p.*"], "id string not null, p struct<card string, kind string>"),
        (["**.kind"], "p struct<kind string>"),
        ({"keep": ["type"]}, "type string not null"),
        (
            {"drop": ["raw", "p.card"]},
            "id string not null, type string not null, at timestamptz, p struct<kind string>",
        ),
        ({"drop": ["p", "raw"]}, "id string not null, type string not null, at timestamptz"),
    ],
)
def test_a_table_has_the_columns_that_its_entry_chooses_and_those_of_kafka(columns: object, kept: str) -> None:
    one = narrow_spec(columns)
    made = one.table_schema_for("ev.ins")
    plain = StreamSpec.model_validate({**DOCUMENT, "decode": {"value": "json", "schema": kept}})
    assert made.as_struct() == plain.table_schema.as_struct(), "also what is required stays so"
    assert [each.name for each in made.fields][-4:] == KAFKA
    assert one.table_schema_for("ev.del") == one.table_schema_for("ev.own") == one.table_schema
    assert not one.disagreements_with(made, "ev.ins") and one.disagreements_with(made, "ev.del")
    assert one.disagreements_with(made)


def test_tables_that_values_name_have_the_columns_of_the_route_and_no_others_have() -> None:
    data = named({"drop": ["raw"]})
    data["route"]["tables"] = [{"match": "INS", "table": "ev.t_INS"}]
    one = StreamSpec.model_validate(data).with_named_tables(["ev.t_a"])
    names = {each: [field.name for field in one.table_schema_for(each).fields] for each in one.target_names}
    assert "raw" not in names["ev.t_a"] and "at" in names["ev.t_a"]
    assert "raw" in names["ev.t_INS"], "an entry of the file's has its own"
    assert "raw" in names["ev.own"]


def test_columns_may_come_from_the_transforms_and_partitions_are_of_them() -> None:
    one = StreamSpec.model_validate(
        narrow(["day", "id"], {"partition_by": ["day"]}, transform=[{"compute": {"day": "date_trunc('day', at)"}}])
    )
    schema = one.table_schema_for("ev.ins")
    assert [each.name for each in schema.fields] == ["id", "day", *KAFKA]
    partitions = partition_spec(one.table_settings("ev.ins").partition_by, schema)
    assert [each.name for each in partitions.fields] == ["day"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (narrow(["id", "tipe"]), "route.tables[0].columns[1]: there is no column 'tipe'; did you mean 'type'?"),
        (narrow(["id", "p.nr"]), "route.tables[0].columns[1]: there is no column 'nr' in p"),
        (narrow({"drop": ["x.*"]}), "route.tables[0].columns.drop[0]: no column"),
        (narrow({"drop": ["*"]}), "no column would be left"),
        (narrow([]), "route.tables[0].columns"),
        (narrow("id"), "must be a list of columns"),
        (narrow({"keep": ["id"], "drop": ["at"]}), "must be either `keep`"),
        (narrow({"drp": ["at"]}), "did you mean 'drop'?"),
        (narrow(["id", "**"]), "needs a name behind it"),
        (narrow(["id", "_kafka_offset"]), "is a column of Kafka's own, and those are in every table"),
        (narrow(["id"], {"partition_by": ["day(at)"]}), "'at' among them; known: id, _kafka_topic"),
        (narrow(["id"], table={"name": "ev.own", "partition_by": ["day(at)"]}), "too few for ev.ins, of which"),
        (narrow(["id"], {"sort_by": ["at"]}), "of which sort_by asks for more"),
        (narrow(["id"], event_time={"column": "at"}), "of which event_time asks for more: 'at' is no column"),
        (narrow(["type"], table={"name": "ev.own", "identifier_fields": ["id"]}), "of which table.identifier_fields"),
        (narrow(["id"], maintenance=SORTED), "maintenance.compact.sort_by"),
        (narrow(["id"], {"table": "ev.own"}), "cannot be of ev.own, the stream's main table, which has all columns"),
        (
            narrow(["id"], contract={"tables": {"ev.ins": [{NOT_NULL: {"column": "at"}}]}}),
            "the rows have no column 'at'",
        ),
        (named(["at"], table={"name": "ev.own", "partition_by": ["id"]}), "too few for each ev.t_{value}"),
        (
            {**narrow(), "route": {"by": "type", "tables": [{"match": "a", "table": "ev.a"}], "columns": ["id"]}},
            "route.columns: is about dynamic tables",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place_before_any_record(
    tmp_path: Path, data: dict[str, Any], said: str
) -> None:
    message = refused(tmp_path, data)
    assert said in message and "streams/events.yaml:" in message


def test_a_contract_of_a_table_with_fewer_columns_speaks_of_those() -> None:
    expected = {"ev.ins": [{"expect_column_values_to_not_be_null": {"column": "id"}}],
                "ev.del": [{"expect_column_values_to_not_be_null": {"column": "at"}}]}  # fmt: skip
    narrow_spec(["id"], contract={"tables": expected})


def test_columns_change_the_configuration_and_without_them_nothing_does() -> None:
    settings = Settings.embedded(Path("/x"))
    kinds = [None, ["id"], ["id", "at"], {"drop": ["id"]}]
    assert len({narrow_spec(each).config_hash for each in kinds}) == len(kinds)
    assert narrow_spec(["id"]).config_hash == narrow_spec({"keep": ["id"]}).config_hash
    assert len({generation(narrow_spec(each), settings) for each in kinds}) == len(kinds)
    assert len({StreamSpec.model_validate(named(each)).config_hash for each in kinds}) == len(kinds)
