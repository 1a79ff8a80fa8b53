"""Columns that tables of a route have of their own: which, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.errors import FrazilError
from jobs.spec.generation import generation
from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.write.partitioning import partition_spec

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


def document(columns: object = None, entry: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    first: dict[str, Any] = {"match": "INS", "table": "ev.ins"} | (entry or {})
    if columns is not None:
        first["columns"] = columns
    return {**DOCUMENT, "route": {"by": "type", "tables": [first, {"match": "DEL", "table": "ev.del"}]}, **more}


def named(columns: object, **more: Any) -> dict[str, Any]:
    return {**DOCUMENT, "route": {"by": "type", "to": "ev.t_{value}", "columns": columns}, **more}


def spec(*args: Any, **more: Any) -> StreamSpec:
    return StreamSpec.model_validate(document(*args, **more))


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
    one = spec(columns)
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
        document(["day", "id"], {"partition_by": ["day"]}, transform=[{"compute": {"day": "date_trunc('day', at)"}}])
    )
    schema = one.table_schema_for("ev.ins")
    assert [each.name for each in schema.fields] == ["id", "day", *KAFKA]
    partitions = partition_spec(one.table_settings("ev.ins").partition_by, schema)
    assert [each.name for each in partitions.fields] == ["day"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (document(["id", "tipe"]), "route.tables[0].columns[1]: there is no column 'tipe'; did you mean 'type'?"),
        (document(["id", "p.nr"]), "route.tables[0].columns[1]: there is no column 'nr' in p"),
        (document({"drop": ["x.*"]}), "route.tables[0].columns.drop[0]: no column"),
        (document({"drop": ["*"]}), "no column would be left"),
        (document([]), "route.tables[0].columns"),
        (document("id"), "must be a list of columns"),
        (document({"keep": ["id"], "drop": ["at"]}), "must say either `keep`"),
        (document({"drp": ["at"]}), "did you mean 'drop'?"),
        (document(["id", "**"]), "needs a name behind it"),
        (document(["id", "_kafka_offset"]), "is a column of Kafka's own, and those are in every table"),
        (document(["id"], {"partition_by": ["day(at)"]}), "'at' among them; known: id, _kafka_topic"),
        (document(["id"], table={"name": "ev.own", "partition_by": ["day(at)"]}), "too few for ev.ins, of which"),
        (document(["id"], {"sort_by": ["at"]}), "of which sort_by asks for more"),
        (document(["id"], event_time={"column": "at"}), "of which event_time asks for more: 'at' is no column"),
        (document(["type"], table={"name": "ev.own", "identifier_fields": ["id"]}), "of which table.identifier_fields"),
        (document(["id"], maintenance=SORTED), "maintenance.compact.sort_by"),
        (document(["id"], {"table": "ev.own"}), "cannot be of ev.own, the stream's own table, which has all columns"),
        (
            document(["id"], contract={"tables": {"ev.ins": [{NOT_NULL: {"column": "at"}}]}}),
            "the rows have no column 'at'",
        ),
        (named(["at"], table={"name": "ev.own", "partition_by": ["id"]}), "too few for each ev.t_{value}"),
        (
            {**document(), "route": {"by": "type", "tables": [{"match": "a", "table": "ev.a"}], "columns": ["id"]}},
            "route.columns: is of tables that values name",
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
    spec(["id"], contract={"tables": expected})


def test_columns_change_the_configuration_and_without_them_nothing_does() -> None:
    settings = Settings.embedded(Path("/x"))
    kinds = [None, ["id"], ["id", "at"], {"drop": ["id"]}]
    assert len({spec(each).config_hash for each in kinds}) == len(kinds)
    assert spec(["id"]).config_hash == spec({"keep": ["id"]}).config_hash
    assert len({generation(spec(each), settings) for each in kinds}) == len(kinds)
    assert len({StreamSpec.model_validate(named(each)).config_hash for each in kinds}) == len(kinds)
