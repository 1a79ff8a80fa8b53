"""Tables that others made and a stream takes over: what lands beside their rows, and what is refused before."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema, parse_mapping_from_json

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import load_settings
from jobs.proof.audit.audit import audit
from jobs.quality.schema_checks.adoptable_tables import adopting_alteration
from jobs.quality.schema_checks.alteration import alter_table
from jobs.records.schema.identifier_fields import identifier_names
from jobs.tables.commit.stamp.errors import SchemaChangeError
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY
from jobs.tables.write.data_file_rows import EqualityDeletesError
from jobs.tables.write.table_sort_order import sort_order_of, sort_order_text
from orchestration.cli.main import main
from tests.helpers.evolving_stream import SINK
from tests.helpers.lane_stream import LaneStream, Log
from tests.helpers.lane_stream import document as lane_document
from tests.helpers.routed_stream import RoutedStream
from tests.helpers.sink_table import SINK_ROWS, sink_table, upsert_by_value

KAFKA = ["_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
FROM_TABLE: dict[str, Any] = {"decode": {"value": "json", "schema": "table"}}
EVENTS = Schema(
    ice.NestedField(1, "id", ice.StringType(), required=False),
    ice.NestedField(2, "type", ice.StringType(), required=False),
    ice.NestedField(3, "n", ice.IntegerType(), required=False),
)
EVENT: dict[str, Any] = {"id": "old", "type": "x", "n": 1}
NAMED: dict[str, Any] = {"by": "type", "to": "events.{value}"}


def made(home: Path) -> Catalog:
    home.mkdir(parents=True, exist_ok=True)
    (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
    return connect_catalog(load_settings(None, home=home))


def frazil(home: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["--home", str(home), *arguments])
    assert result.exit_code == code, result.output
    return result.output


def write(home: Path, **blocks: Any) -> None:
    """The stream's file, for a command before the first start."""
    (home / "streams").mkdir(exist_ok=True)
    file = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "table"},
        "table": {"name": SINK},
        "errors": {"stop_above": "off"},
        **blocks,
    }
    (home / "streams" / "payments.yaml").write_text(yaml.safe_dump(file))


def test_rows_land_exactly_beside_those_of_the_sink(tmp_path: Path) -> None:
    home = tmp_path / "home"
    sink_table(made(home), SINK, SINK_ROWS)
    table = {"name": SINK, "identifier_fields": ["id"], "sort_by": ["createdAt desc"]}
    with pytest.raises(FrazilError, match=r"lacks columns that name a row's record: _kafka_topic, ") as refused:
        RoutedStream(home, **FROM_TABLE, table=table)
    assert "frazil schema apply payments" in (refused.value.fix or "")
    assert "kafka_columns: false" in (refused.value.fix or "")
    frazil(home, "schema", "apply", "payments", "--yes")
    one = RoutedStream(home, **FROM_TABLE, table=table)
    names = [each.name for each in one.table.schema().fields]
    assert names == ["id", "amount", "createdAt", "ref", "payer", *KAFKA]
    assert identifier_names(one.table.schema()) == ["id"]
    assert sort_order_text(sort_order_of(one.table.metadata), one.table.schema()) == "createdAt desc nulls last"
    mapping = parse_mapping_from_json(one.table.properties["schema.name-mapping.default"])
    assert mapping == create_mapping_from_schema(one.table.schema())
    exact = (
        b'{"id": 1152921504606846976, "amount": 123456789012345678901234567890123456.78, "payer": {"name": "now"}, '
        b'"createdAt": "2026-03-02T14:00:00.123456+02:00", "ref": "00000000-0000-0000-0000-0000000000ff"}'
    )
    # More digits behind the point than the column has, another case, and no identifier: none is changed in silence.
    one.land(exact, {"id": 5, "amount": 0.005}, {"id": 6, "createdat": "2026-03-02T00:00:00Z"}, {"amount": 1})
    assert one.letters == {1: "precision_loss", 2: "key_case", 3: "missing_field"}
    rows = one.table.scan().to_arrow().sort_by([("id", "ascending")]).to_pylist()
    assert [each["id"] for each in rows] == [1, 2, 3, 2**60]
    assert all(each[name] is None for each in rows[:3] for name in KAFKA)
    assert [each["amount"] for each in rows[:3]] == [each["amount"] for each in SINK_ROWS]
    assert rows[-1]["amount"] == Decimal("123456789012345678901234567890123456.78")
    assert rows[-1]["createdAt"] == datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=UTC)
    assert rows[-1]["ref"] == uuid.UUID(int=255)
    assert [rows[-1][name] for name in KAFKA[:3]] == ["payments", 0, 0]


def test_fields_in_other_cases_find_their_columns_if_the_file_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    sink_table(made(home), SINK, SINK_ROWS)
    decode: dict[str, Any] = {"decode": {"value": "json", "schema": "table", "case_insensitive": True}}
    write(home, **decode)
    frazil(home, "schema", "apply", "payments", "--yes")
    one = RoutedStream(home, **decode)
    one.land({"ID": 7, "createdat": "2026-03-02T00:00:00Z", "Payer": {"NAME": "x"}})
    (row,) = [each for each in one.table.scan().to_arrow().to_pylist() if each["id"] == 7]
    assert (row["payer"], row["createdAt"]) == ({"name": "x"}, datetime(2026, 3, 2, tzinfo=UTC))


def test_an_audit_counts_rows_of_before_and_calls_them_no_fault(tmp_path: Path) -> None:
    home = tmp_path / "home"
    sink_table(made(home), SINK, SINK_ROWS)
    write(home)
    frazil(home, "schema", "apply", "payments", "--yes")
    one = RoutedStream(home, **FROM_TABLE)
    one.land({"id": 10}, {"id": "x"})
    for full in (False, True):
        found = audit(one.spec, one.settings, one.catalog, full=full)
        assert (found.verdict, found.missing, found.doubled) == ("complete", 0, 0)
        assert [each.earlier for each in found.tables] == [3, 0]
    assert f"table {SINK} has 3 rows without Kafka offsets" in frazil(home, "audit", "payments")
    # Some of both in one file, as a compaction writes them.
    one.table.overwrite(one.table.scan().to_arrow())
    assert audit(one.spec, one.settings, one.catalog).tables[0].earlier == 3


def test_equality_deletes_of_a_former_sink_are_named_with_the_command_that_applies_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    table = sink_table(made(home), SINK, SINK_ROWS)
    upsert_by_value(table, {**SINK_ROWS[0], "amount": Decimal("99.00")})
    write(home)
    frazil(home, "schema", "apply", "payments", "--yes")
    assert f"table {SINK} has 1 equality delete" in frazil(home, "validate", "payments")
    one = RoutedStream(home, **FROM_TABLE)
    assert one.land({"id": 10}).counts.landed == 1
    with pytest.raises(EqualityDeletesError, match="only Spark applies") as refused:
        audit(one.spec, one.settings, one.catalog)
    assert refused.value.fix == f"frazil maintain {SINK} --only compact, which applies them"
    assert "equality deletes" in frazil(home, "query", "payments", code=1)
    plan = frazil(home, "maintain", SINK, "--plan", "--only", "compact")
    assert "would do compact" in plan


def test_a_table_of_another_topics_rows_is_no_changelog(tmp_path: Path) -> None:
    home = tmp_path / "home"
    sink_table(made(home), SINK, SINK_ROWS)
    key = {"format": "json", "schema": "infer", "into": "_change_key"}
    write(home, decode={"value": "json", "schema": "infer", "key": key}, changes={"envelope": "upsert"})
    said = frazil(home, "schema", "apply", "payments", "--yes", code=1)
    assert "name another table in table.name, and this one as a mirror" in " ".join(said.split())


def test_a_table_is_given_to_one_of_two_streams_that_ask_for_it_at_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    catalog = made(home)
    one = RoutedStream(home, NAMED)
    # With all columns, so that its schema stays what both were shown.
    sink_table(catalog, "events.sale", [], one.table.schema())
    other = one.spec.model_copy(update={"stream": "orders"})
    asked = [adopting_alteration(spec, catalog, "events.sale") for spec in (one.spec, other)]
    seen = catalog.load_table("events.sale").metadata.current_schema_id
    (first, alteration), (second, late) = asked
    alter_table(catalog, first, alteration, seen, "ada", table="events.sale")
    with pytest.raises(FrazilError, match="it is written by stream payments"):
        alter_table(catalog, second, late, seen, "bob", table="events.sale")
    assert catalog.load_table("events.sale").properties["frazil.adopted"] == "payments"


@pytest.mark.parametrize("whose", ["a mirror", "a dead-letter table"])
def test_a_table_that_frazil_keeps_for_something_else_gets_no_columns_for_rows(tmp_path: Path, whose: str) -> None:
    home = tmp_path / "home"
    catalog = made(home)
    name = SINK
    if whose == "a mirror":
        table = sink_table(catalog, name, [EVENT], EVENTS)
        with table.transaction() as change:
            change.set_properties({MIRROR_PROPERTY: "{}"})
    else:
        name = RoutedStream(home).spec.dead_letter_table
    write(home, table={"name": name}, errors={"dead_letters": {"table": "orders.others"}})
    before = catalog.load_table(name).metadata
    said = frazil(home, "schema", "apply", "payments", "--yes", code=1)
    assert f"it is {whose}" in " ".join(said.split())
    assert catalog.load_table(name).metadata == before


@pytest.mark.parametrize("columns", ["declared", "table"])
def test_a_table_that_a_value_names_is_taken_once_an_operator_gives_it(tmp_path: Path, columns: str) -> None:
    home = tmp_path / "home"
    catalog = made(home)
    more: dict[str, Any] = {} if columns == "declared" else FROM_TABLE
    if columns == "table":
        sink_table(catalog, SINK, schema=EVENTS)
        write(home)
        frazil(home, "schema", "apply", "payments", "--yes")
    for name in ("events.refund", "events.sale"):
        sink_table(catalog, name, [EVENT], EVENTS)
    one = RoutedStream(home, NAMED, **more)
    done = one.land({"id": "a", "type": "refund"}, {"id": "b", "type": "new"})
    assert (done.counts.landed, done.counts.dead) == (1, 1)
    (letter,) = one.catalog.load_table(f"{SINK}_dead").scan().to_arrow().to_pylist()
    assert "frazil schema apply payments --adopt events.refund" in letter["message"]
    said = frazil(home, "validate", "payments")
    assert "events.refund, events.sale" in said
    assert "frazil schema apply payments --adopt 'events.*'" in said
    before = one.catalog.load_table("events.sale").metadata
    assert "become a table of stream payments" in frazil(
        home, "schema", "apply", "payments", "--adopt", "events.*", "--dry-run"
    )
    assert one.catalog.load_table("events.sale").metadata == before
    frazil(home, "schema", "apply", "payments", "--adopt", "events.*", "--yes")
    two = RoutedStream(home, NAMED, epoch=2, **more)
    two.log = list(one.log)
    two.land({"id": "c", "type": "refund"}, {"id": "d", "type": "sale"}, batch=1)
    ids = {
        name: sorted(each["id"] for each in two.catalog.load_table(name).scan().to_arrow().to_pylist())
        for name in ("events.refund", "events.sale", "events.new")
    }
    assert ids == {"events.refund": ["c", "old"], "events.sale": ["d", "old"], "events.new": ["b"]}
    found = audit(two.spec, two.settings, two.catalog, full=True)
    assert found.verdict == "complete", found.problems
    assert {each.table: each.earlier for each in found.tables if each.earlier} == {"events.refund": 1, "events.sale": 1}


def test_a_table_of_another_stream_is_given_to_none(tmp_path: Path) -> None:
    home = tmp_path / "home"
    catalog = made(home)
    theirs = sink_table(catalog, "events.theirs", [EVENT], EVENTS)
    with theirs.transaction() as change:
        change.set_properties({"frazil.stamp.orders": "{}"})
    sink_table(catalog, "events.mine", [EVENT], EVENTS)
    RoutedStream(home, NAMED)
    said = frazil(home, "schema", "apply", "payments", "--adopt", "events.theirs", "--yes", code=1)
    assert "it is written by stream orders" in said
    # Of a pattern the others are given.
    said = frazil(home, "schema", "apply", "payments", "--adopt", "events.*", "--yes")
    assert "events.theirs is left out: it is written by stream orders" in said
    assert "Done: table events.mine is one of stream payments." in said
    assert "frazil.adopted" not in catalog.load_table("events.theirs").properties
    assert catalog.load_table("events.mine").properties["frazil.adopted"] == "payments"
    again = frazil(home, "schema", "apply", "payments", "--adopt", "events.mine", "--yes", code=2)
    assert "names no table that exists" in " ".join(again.split())


def test_a_table_of_another_topic_with_columns_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, at = tmp_path / "home", TopicPartition("refund", 0)
    catalog = made(home)
    sink_table(catalog, "lake.refund", [EVENT], EVENTS)
    sink_table(catalog, "lake.sale", [EVENT], EVENTS)
    (home / "streams").mkdir()
    route = {"by": "topic", "to": "lake.{value}", "tables": [{"match": "sale", "table": "lake.sale"}]}
    (home / "streams" / "shop.yaml").write_text(yaml.safe_dump(lane_document(route)))
    log: Log = {at: [b'{"id":"a","n":7}'], TopicPartition("sale", 0): [b'{"id":"b","more":1}']}
    one = LaneStream(home, route, dict(log), monkeypatch)
    with pytest.raises(FrazilError, match=r"lake\.sale was not made by frazil: .* _kafka_topic") as refused:
        one.land()
    assert "frazil schema apply shop --table lake.sale" in (refused.value.fix or "")
    frazil(home, "schema", "apply", "shop", "--table", "lake.sale", "--yes")
    two = LaneStream(home, route, dict(log), monkeypatch, epoch=2)
    two.land()
    assert list(two.letters()) == [("refund", 0)]
    frazil(home, "schema", "apply", "shop", "--adopt", "lake.refund", "--yes")
    three = LaneStream(home, route, dict(log), monkeypatch, epoch=3)
    three.produce("refund", {"id": "c", "n": 8})
    three.land(1)
    rows = three.catalog.load_table("lake.refund").scan().to_arrow().to_pylist()
    assert sorted((each["id"], each["n"], each["_kafka_offset"]) for each in rows) == [("c", 8, 1), ("old", 1, None)]
    rows = three.catalog.load_table("lake.sale").scan().to_arrow().to_pylist()
    assert sorted((each["id"], each["_kafka_offset"]) for each in rows) == [("b", 0), ("old", None)]
    assert three.columns("lake.sale") == {"id": "string", "type": "string", "n": "int", "more": "long"}


def test_a_further_table_that_others_made_gets_the_columns_on_demand_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    catalog = made(home)
    sink_table(catalog, SINK, [EVENT], EVENTS)
    sink_table(catalog, "orders.copy", [EVENT], EVENTS)
    route = {"by": "'all'", "tables": [{"match": "all", "table": SINK}, {"match": "all", "table": "orders.copy"}]}
    write(home, route=route)
    said = frazil(home, "schema", "apply", "payments", "--yes")
    assert "table orders.copy (schema 0) is to follow" in said
    one = RoutedStream(home, route, **FROM_TABLE)
    one.land({"id": "a", "type": "x"})
    for name in (SINK, "orders.copy"):
        rows = one.catalog.load_table(name).scan().to_arrow().to_pylist()
        assert sorted((each["id"], each["_kafka_offset"]) for each in rows) == [("a", 0), ("old", None)]


def test_a_further_table_that_lacks_them_stops_the_stream_with_the_command(tmp_path: Path) -> None:
    home = tmp_path / "home"
    catalog = made(home)
    sink_table(catalog, SINK, [EVENT], EVENTS)
    write(home)
    frazil(home, "schema", "apply", "payments", "--yes")
    sink_table(catalog, "orders.copy", [EVENT], EVENTS)
    route = {"by": "'all'", "tables": [{"match": "all", "table": SINK}, {"match": "all", "table": "orders.copy"}]}
    with pytest.raises(SchemaChangeError, match=r"orders\.copy was not made by frazil") as refused:
        RoutedStream(home, route, **FROM_TABLE)
    assert refused.value.fix == "frazil schema apply payments, which adds the columns"
