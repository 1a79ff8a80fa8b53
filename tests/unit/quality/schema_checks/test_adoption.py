"""What a table that others made lacks, and what one commit makes of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.adoption import NOTHING, Adoption, adoption, other_owner
from jobs.quality.schema_checks.alteration import (
    Alteration,
    alter_table,
    declared_alteration,
    file_alteration,
    proposed_alteration,
)
from jobs.records.schema.kafka_columns import ALL_NAMES, KAFKA_COLUMNS, PURPOSES, TYPES, KafkaColumns
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.records.schema.schema_change import SchemaChange, kafka_column_changes
from jobs.tables.commit.schema.schema_history import schema_history
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from jobs.tables.write.table_sort_order import sort_order_of, sort_order_text
from tests.helpers.sink_table import SINK_COLUMNS, SINK_ROWS, sink_table

NAME = "orders.payments"


def spec_of(schema: str = "table", table: dict[str, Any] | None = None, **more: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": schema},
            "table": {"name": NAME, **(table or {})},
            **more,
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return sink_table(connect_catalog(Settings.embedded(tmp_path)), NAME, SINK_ROWS)


def with_properties(table: Table, **properties: str) -> TableMetadata:
    with table.transaction() as change:
        change.set_properties({key.replace("__", "."): value for key, value in properties.items()})
    return table.metadata


@pytest.mark.parametrize("there", [each for n in range(5) for each in itertools.combinations(range(4), n)], ids=str)
def test_each_of_kafkas_columns_is_added_where_it_is_missing(there: tuple[int, ...]) -> None:
    columns = KAFKA_COLUMNS.columns
    fields = [ice.NestedField(2 + at, columns[at].name, columns[at].type, required=False) for at in there]
    changes, refused = kafka_column_changes(Schema(ice.NestedField(1, "id", ice.LongType()), *fields), KAFKA_COLUMNS)
    assert refused == ()
    assert [each.path for each in changes] == [(each.name,) for at, each in enumerate(columns) if at not in there]
    assert all(each.purpose and each.sentence == f"{each}, which {each.purpose}" for each in changes)


def test_every_part_has_a_purpose() -> None:
    assert PURPOSES.keys() == TYPES.keys()
    every = KafkaColumns(**ALL_NAMES)
    changes, _ = kafka_column_changes(Schema(), every)
    assert [each.type for each in changes] == list(TYPES.values())


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("_kafka_offset", ice.StringType(), "_kafka_offset is string in the table, where long is needed: name another"),
        ("_kafka_offset", ice.IntegerType(), "where long is needed: name another one in table.kafka_columns.offset"),
        ("_KAFKA_topic", ice.StringType(), "_kafka_topic cannot stand beside _KAFKA_topic: names differ by case only"),
        ("_kafka_partition", ice.LongType(), None),
    ],
)
def test_a_column_of_another_type_is_named(name: str, kind: ice.IcebergType, said: str | None) -> None:
    changes, refused = kafka_column_changes(Schema(ice.NestedField(1, name, kind)), KAFKA_COLUMNS)
    assert len(changes) == 3
    assert len(refused) == (0 if said is None else 1)
    assert said is None or said in refused[0]


def test_what_a_table_of_the_sink_lacks_is_offered_with_what_it_is_for(table: Table) -> None:
    found, refused = adoption(spec_of(table={"sort_by": ["createdAt"]}), table.metadata, table.schema())
    assert refused == ()
    assert [each.partition(",")[0] for each in found.sentences] == [
        "add column _kafka_topic string",
        "add column _kafka_partition int",
        "add column _kafka_offset long",
        "add column _kafka_timestamp timestamptz",
        "set sort order createdAt",
        "set a name mapping",
    ]


def test_without_kafkas_columns_nothing_else_is_offered(table: Table) -> None:
    assert adoption(spec_of(table={"kafka_columns": False}), table.metadata, table.schema()) == (NOTHING, ())


def test_a_column_to_sort_by_has_to_be_there(table: Table) -> None:
    _, refused = adoption(spec_of(table={"sort_by": ["created"]}), table.metadata, table.schema())
    assert "table.sort_by: 'created': no column 'created'" in refused[0]
    found, refused = adoption(spec_of(table={"sort_by": ["_kafka_timestamp"]}), table.metadata, table.schema())
    assert refused == () and found.sort_by is not None, "one of those that come is there then"


@pytest.mark.parametrize(
    ("properties", "whose"),
    [
        ({}, None),
        ({"frazil__stamp__payments": "{}"}, None),
        ({"frazil__stamp__payments~replay": "{}"}, None),
        ({"frazil__stamp__payments": "~2~{", "frazil__part__2__frazil__stamp__payments": "}"}, None),
        ({"frazil__adopted": "payments"}, None),
        ({"frazil__as-made": "payments 0/0"}, None),
        ({"frazil__as-made": "orders 0/0"}, "written by stream orders"),
        ({"frazil__adopted": "orders"}, "written by stream orders"),
        ({"frazil__stamp__payments": "{}", "frazil__stamp__orders~replay": "{}"}, "written by stream orders"),
        ({"frazil__mirror": "x"}, "a mirror"),
    ],
)
def test_a_table_of_others_is_given_to_nobody(table: Table, properties: dict[str, str], whose: str | None) -> None:
    metadata = with_properties(table, **properties)
    assert other_owner(metadata, "payments") == whose
    found, refused = adoption(spec_of(), metadata, table.schema(), "events.x", given=True)
    assert refused == (() if whose is None else (f"it is {whose}",))
    owned = {"frazil__adopted", "frazil__as-made"} & properties.keys()
    assert found.stream == (None if owned and whose is None else "payments")


def test_dead_letters_are_no_rows(tmp_path: Path) -> None:
    letters = sink_table(connect_catalog(Settings.embedded(tmp_path)), NAME, schema=DEAD_LETTER_SCHEMA)
    assert other_owner(letters.metadata, "payments") == "a dead-letter table"


def test_a_table_with_rows_is_no_changelog_and_an_empty_one_may_be(tmp_path: Path) -> None:
    key = {"format": "json", "schema": "infer", "into": "_change_key"}
    spec = spec_of(changes={"envelope": "upsert"}, decode={"value": "json", "schema": "infer", "key": key})
    catalog = connect_catalog(Settings.embedded(tmp_path))
    for name, rows, count in (("orders.rows", SINK_ROWS, 1), ("orders.empty", (), 0)):
        metadata = sink_table(catalog, name, rows).metadata
        assert len(adoption(spec, metadata, metadata.schema())[1]) == count


def test_an_order_alone_is_one_commit_and_no_other_schema(table: Table) -> None:
    spec = spec_of(table={"kafka_columns": False, "sort_by": ["payer.name desc", "id"]})
    before = table.metadata

    def decide(now: TableMetadata) -> Alteration:
        return proposed_alteration(spec, now, ())

    schema_id, done = alter_table(table.catalog, spec, decide, before.current_schema_id, "me@here")
    after = table.refresh().metadata
    assert schema_id == before.current_schema_id == after.current_schema_id
    assert done.sentences == ["set sort order payer.name desc, id, which Spark's writes follow"]
    assert sort_order_text(sort_order_of(after), after.schema()) == ("payer.name desc nulls last, id asc nulls first")
    assert [each.changes for each in schema_history(after.properties)] == [tuple(done.sentences)]
    assert decide(after) == Alteration()
    # Back and forth: an order that the table had is not written twice.
    other = spec_of(table={"kafka_columns": False, "sort_by": ["id"]})
    for each in (other, spec, other):
        alter_table(
            table.catalog, each, lambda now, each=each: proposed_alteration(each, now, ()), schema_id, "me@here"
        )
    assert len(table.refresh().metadata.sort_orders) == 3
    assert sort_order_text(sort_order_of(table.metadata), table.schema()) == "id asc nulls first"


def test_declared_columns_come_before_kafkas_in_one_commit(table: Table) -> None:
    spec = spec_of("id long not null, more string, createdAt timestamptz", table={"identifier_fields": ["id"]})

    def decide(now: TableMetadata) -> Alteration:
        return declared_alteration(spec, now)

    before = table.metadata.current_schema_id
    alter_table(table.catalog, spec, decide, before, "me@here")
    schema = table.refresh().schema()
    assert [each.name for each in schema.fields][-5:] == ["more", *(each.name for each in KAFKA_COLUMNS.columns)]
    assert schema.identifier_field_ids == [1]
    assert len(table.metadata.schemas) == 2, "one commit"
    assert len({each.field_id for each in schema.fields}) == len(schema.fields)
    assert {each.field_id for each in SINK_COLUMNS.fields} < {each.field_id for each in schema.fields}
    assert "_kafka_offset" in table.properties[NAME_MAPPING] and '"more"' in table.properties[NAME_MAPPING]
    assert decide(table.metadata) == Alteration()
    assert adoption(spec, table.metadata, schema) == (Adoption(), ())


def test_before_the_first_start_steps_wait_for_it_and_the_columns_do_not(table: Table) -> None:
    spec = spec_of("infer", transform=[{"drop": ["note"]}])
    found = file_alteration(spec, table.metadata)
    assert [each.path[0] for each in found.adoption.columns] == [each.name for each in KAFKA_COLUMNS.columns]
    assert found.opening is None and found.changes == ()


def test_a_change_for_nobody_tells_nothing_of_a_purpose() -> None:
    assert SchemaChange("add", ("n",), ice.LongType()).sentence == "add column n long"
