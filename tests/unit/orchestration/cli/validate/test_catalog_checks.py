"""Validation of streams against a real catalog, without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.types import LongType, NestedField, StructType

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.partitioning import parse_sort_expr
from jobs.quality.schema_checks.alteration import Alteration, alter_table
from jobs.records.schema.schema_change import SchemaChange
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import NothingToAcceptError
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.table import DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table
from orchestration.cli.stream_files.validate.command import live_findings
from orchestration.cli.stream_files.validate.findings import Finding
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import create_table, deployment_in


def no_broker() -> KafkaLog:
    raise FrazilError("The local broker is not running.")


def of_tables(spec: StreamSpec, settings: Settings) -> list[Finding]:
    return [finding for finding in live_findings([spec], settings) if finding.subject == "table"]


def test_a_table_as_declared_is_fine(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
    (finding,) = of_tables(spec, settings)
    assert (finding.verdict, finding.sentence) == ("ok", "table orders.payments fits the stream's columns")


def test_columns_that_disagree_are_wrong(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
        with catalog.load_table(spec.table.name).update_schema() as change:
            change.delete_column("amount")
    findings = of_tables(spec, settings)
    assert [finding.verdict for finding in findings] == ["wrong"]
    assert "amount" in findings[0].sentence
    assert findings[0].fix == "frazil schema apply payments, or correct decode.schema in streams/payments.yaml"


@pytest.mark.parametrize("source", ["infer", "table", "declared"])
def test_a_table_that_engines_do_not_read_is_wrong_with_the_command_that_mends_it(
    settings: Settings, spec: StreamSpec, source: str
) -> None:
    decode = {"value": "json", "schema": source}
    if source == "declared":
        decode["schema"] = f"{spec.decode.schema_text}, created_at_day string, _pos long"
    data = spec.model_dump(mode="json") | {"decode": decode}
    changes = tuple(SchemaChange("add", (name,), LongType()) for name in ("created_at_day", "_pos"))
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
        schema_id = catalog.load_table(spec.table.name).metadata.current_schema_id
        alter_table(catalog, spec, lambda _: Alteration(changes), schema_id, "me@here")
    findings = of_tables(StreamSpec.model_validate(data), settings)
    assert [(each.verdict, each.fix) for each in findings] == [
        ("wrong", f"frazil schema apply payments --rename {name}=NEW") for name in ("created_at_day", "_pos")
    ]
    assert [each.sentence for each in findings] == [
        "table orders.payments: a partition field is called created_at_day, and Spark loads no table with a column of "
        "that name",
        "table orders.payments: _pos is a metadata column of Iceberg, and Spark reads no table with another one of "
        "that name",
    ]


def test_partitions_that_a_table_there_cannot_have_are_no_crash(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
        with catalog.load_table(spec.table.name).update_schema() as change:
            change.add_column("amount_bucket", LongType())
    by = {"name": spec.table.name, "partition_by": ["day(created_at)", "bucket(4, amount)"]}
    data = spec.model_dump(mode="json") | {"decode": {"value": "json", "schema": "table"}, "table": by}
    (finding,) = of_tables(StreamSpec.model_validate(data), settings)
    assert (finding.verdict, finding.fix) == (
        "wrong",
        "name the partition field otherwise: 'bucket(4, amount) as NAME'",
    )


def test_a_declared_column_that_no_new_table_can_have_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    decode = {"value": "json", "schema": f"{spec.decode.schema_text}, _pos long"}
    data = spec.model_dump(mode="json") | {"decode": decode}
    found = live_findings([StreamSpec.model_validate(data)], settings)
    (wrong,) = [each for each in found if (each.subject, each.verdict) == ("spec", "wrong")]
    assert wrong.sentence.startswith("table orders.payments cannot be made: _pos is a metadata column of Iceberg")


@pytest.mark.parametrize(
    ("columns", "by", "named"),
    [
        ("`größe` string", "größe", "größe"),
        ("s struct<`größe` string>", "s.`größe`", "s.größe"),
        ("`größe` string", "`größe` as size", None),
        # Iceberg escapes these.
        ("s struct<a string>", "s.a", None),
        ("`1x` int", "truncate(4, `1x`)", None),
        ("`😎` string", "`😎`", None),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_a_partition_field_that_duckdb_does_not_read_is_told(
    settings: Settings, spec: StreamSpec, columns: str, by: str, named: str | None, there: bool
) -> None:
    data = spec.model_dump(mode="json") | {
        "decode": {"value": "json", "schema": columns},
        "table": {"name": spec.table.name, "partition_by": [by]},
    }
    spec = StreamSpec.model_validate(data)
    if there:
        with connect_catalog(settings) as catalog:
            create_table(catalog, spec)
    told = [each.sentence for each in of_tables(spec, settings) if "DuckDB" in each.sentence]
    assert told == (
        [f"table orders.payments: DuckDB reads no table with a partition field called {named}"] if named else []
    )


def test_columns_of_a_contract_that_the_tables_lack_are_wrong(settings: Settings, spec: StreamSpec) -> None:
    entries = [{"expect_column_values_to_not_be_null": {"column": name}} for name in ("id", "amuont")]
    contract = {"expectations": entries, "dead_letters": [{"expect_column_to_exist": {"column": "x"}}, entries[1]]}
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
    data = spec.model_dump(mode="json") | {"decode": {"value": "json", "schema": "table"}, "contract": contract}
    findings = live_findings([StreamSpec.model_validate(data)], settings)
    found = [(each.verdict, each.sentence) for each in findings if each.subject == "contract"]
    at = "expect_column_values_to_not_be_null.column: the rows have no column 'amuont'"
    assert found == [
        ("wrong", f"contract.dead_letters[1].{at}"),
        ("wrong", f"contract.expectations[1].{at}; did you mean 'amount'?"),
    ]


def test_what_the_types_of_the_tables_never_meet_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    contract = {
        "expectations": [{"expect_column_values_to_be_between": {"column": "id", "min_value": 5}}],
        "dead_letters": [{"expect_column_values_to_match_regex": {"column": "offset", "regex": "^1"}}],
    }
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
    data = spec.model_dump(mode="json") | {"decode": {"value": "json", "schema": "table"}, "contract": contract}
    findings = live_findings([StreamSpec.model_validate(data)], settings)
    assert [each.sentence.split(": ", 1)[1] for each in findings if each.subject == "contract"] == [
        "could never pass: column offset holds whole numbers, and this expectation is about text",
        "could never pass: column id holds text, and 5 is none",
    ]


def test_a_struct_of_keys_that_the_table_lacks_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    key = {"format": "json", "schema": "table", "into": "key"}
    decode = {"value": "json", "schema": "table", "key": key}
    from_table = StreamSpec.model_validate(spec.model_dump(mode="json") | {"decode": decode})
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
        (finding,) = of_tables(from_table, settings)
        assert (finding.verdict, finding.fix) == (
            "wrong",
            "correct streams/payments.yaml, or alter table orders.payments",
        )
        assert finding.sentence == (
            "decode.key.schema: the table has no column key, whose fields would be those of a key"
        )
        with catalog.load_table(spec.table.name).update_schema() as change:
            change.add_column("key", StructType(NestedField(1, "n", LongType())))
    assert [each.verdict for each in of_tables(from_table, settings)] == ["ok"]


def test_another_sort_order_or_place_is_told(settings: Settings, spec: StreamSpec, tmp_path: Path) -> None:
    order = (parse_sort_expr("created_at desc"), parse_sort_expr("id nulls last"))
    place = f"file://{tmp_path}/elsewhere/payments"
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
    there = spec.table.model_copy(update={"location": place, "sort_by": order})
    said = [(each.verdict, each.sentence) for each in of_tables(spec.model_copy(update={"table": there}), settings)]
    words = "created_at desc nulls last, id asc nulls last"
    assert said[0] == (
        "wrong",
        f"table orders.payments is sorted by nothing, and by {words} in the file",
    )
    assert said[1][1].startswith("table orders.payments lies at ") and place in said[1][1]


def test_a_table_is_made_with_its_sort_order_at_its_place(settings: Settings, spec: StreamSpec, tmp_path: Path) -> None:
    place = f"{tmp_path}/elsewhere/payments"
    table = spec.table.model_copy(update={"location": place, "sort_by": (parse_sort_expr("created_at desc"),)})
    declared = spec.model_copy(update={"table": table})
    with connect_catalog(settings) as catalog:
        ensure_tables(declared, catalog)
        made = catalog.load_table(spec.table.name)
    assert made.location() == place
    assert [str(field.direction) for field in made.sort_order().fields] == ["DESC"]
    (finding,) = of_tables(declared, settings)
    assert finding.verdict == "ok"


def test_another_partitioning_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    other = spec.model_copy(update={"table": spec.table.model_copy(update={"partition_by": ()})})
    with connect_catalog(settings) as catalog:
        create_table(catalog, other)
    (finding,) = of_tables(spec, settings)
    assert finding.verdict == "wrong"
    assert "is partitioned by nothing, and by day(created_at)" in finding.sentence


def findings_of(deployment: Deployment, settings: Settings) -> list[Finding]:
    return list(live_findings(deployment.streams()[0], settings))


def wrong_of(deployment: Deployment, settings: Settings) -> list[tuple[str | None, str, str | None]]:
    """Stream, sentence and next command of what is wrong."""
    found = findings_of(deployment, settings)
    return [(each.stream, each.sentence, each.fix) for each in found if each.verdict == "wrong"]


def test_a_table_of_dead_letters_takes_no_rows(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments", "refunds"))
    settings = deployment.prepared_settings()
    letters = "orders.payments"
    with connect_catalog(settings) as catalog:
        by = partition_spec(DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA)
        ensure_table(catalog, letters, DEAD_LETTER_SCHEMA, by, create_table_properties({}))
        Target(catalog, letters, "others").claim(1, lambda newest: Stamp("others", "claim", -1, 1, "c", {}, {}))
        create_table(catalog, deployment.stream("refunds"))
    assert wrong_of(deployment, settings) == [
        (
            "payments",
            "table orders.payments is the dead-letter table of stream others; rows do not go there",
            "give table.name of stream payments another name",
        )
    ]
    (fine,) = of_tables(deployment.stream("refunds"), settings)
    assert fine.verdict == "ok", "the other stream is none the worse for it"


def test_dead_letters_go_to_no_other_table(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
        schema = spec.table_schema
        by = partition_spec(spec.table.partition_by, schema)
        ensure_table(catalog, spec.dead_letter_table, schema, by, create_table_properties({}))
    wrong, fine = of_tables(spec, settings)
    assert wrong.sentence.startswith(
        "table orders.payments_dead, for the dead letters of stream payments, is no dead-letter table"
    )
    assert wrong.fix == "name another one in errors.dead_letters.table of stream payments"
    assert fine.verdict == "ok"


def test_state_within_the_warehouse_is_wrong(deployment: Deployment) -> None:
    (deployment.home / "frazil.yaml").write_text("state: .frazil/warehouse/state\n")
    ((stream, sentence, fix),) = wrong_of(deployment, deployment.prepared_settings())
    assert stream is None
    assert "/.frazil/warehouse/state with its leases and checkpoints lies within the warehouse file://" in sentence
    assert fix == "set `state` in frazil.yaml to a folder elsewhere, and move there what is in it"


def test_state_within_a_table_is_wrong_for_that_stream_only(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments", "refunds"))
    settings = deployment.prepared_settings()
    with connect_catalog(settings) as catalog:
        create_table(catalog, deployment.stream("refunds"))
        schema = deployment.stream("payments").table_schema
        location = f"file://{settings.state.parent}"
        catalog.create_table("orders.payments", schema, location=location)
    ((stream, sentence, _),) = [each for each in wrong_of(deployment, settings) if "state folder" in each[1]]
    assert (stream, f"lies within table orders.payments at {location}" in sentence) == ("payments", True)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("format-version", "3", "format-version 3 cannot be written"),
        ("write.format.default", "orc", "write.format.default orc cannot be written; frazil writes Parquet"),
        ("write.parquet.compression-codec", "rar", "Unsupported compression: rar"),
        ("write.parquet.compression-level", "high", "high"),
        ("write.target-file-size-bytes", "128MB", "invalid literal for int"),
        ("write.metadata.metrics.default", "some", "Unsupported metrics mode"),
    ],
)
def test_a_new_table_that_could_not_be_written_is_wrong(
    settings: Settings, spec: StreamSpec, name: str, value: str, said: str
) -> None:
    table = spec.table.model_copy(update={"properties": {name: value}})
    changed = spec.model_copy(update={"table": table})
    (found,) = [each for each in live_findings([changed], settings) if each.stream and each.verdict == "wrong"]
    assert found.subject == "spec"
    assert said in found.sentence
    assert "table.properties" in (found.fix or "")


def test_a_table_that_is_there_and_cannot_be_written_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    catalog = connect_catalog(settings)
    create_table(catalog, spec)
    table = catalog.load_table(spec.table.name)
    with table.transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "rar"})
    (found,) = of_tables(spec, settings)[:1]
    assert (found.verdict, "Unsupported compression: rar" in found.sentence) == ("wrong", True)


def test_a_table_of_format_version_3_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    catalog = connect_catalog(settings)
    create_table(catalog, spec)
    # PyIceberg reads such metadata, and cannot write them either.
    file = Path(catalog.load_table(spec.table.name).metadata_location.removeprefix("file://"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format-version": 3, "next-row-id": 0}))
    (found,) = [each for each in of_tables(spec, settings) if each.verdict == "wrong"]
    assert "format version 3, whose manifests PyIceberg cannot write yet" in found.sentence
    with pytest.raises(FrazilError, match="format version 3"):
        create_table(catalog, spec)


def test_an_empty_table_of_frazils_follows_the_declaration(settings: Settings, spec: StreamSpec) -> None:
    catalog = connect_catalog(settings)
    ensure_tables(spec, catalog)
    decode = spec.decode.model_copy(update={"schema_text": "other decimal(5,2)"})
    changed = StreamSpec.model_validate(
        spec.model_dump(by_alias=True, exclude_unset=True)
        | {"decode": decode.model_dump(by_alias=True, exclude_unset=True), "table": {"name": spec.table.name}}
    )
    (found,) = of_tables(changed, settings)
    assert (found.verdict, "the next run makes it so" in found.sentence) == ("unchecked", True)
    with pytest.raises(NothingToAcceptError, match="the next run adds them"):
        record_answer(changed, settings, no_broker, Answer(recreated_table=spec.table.name), "ada: why")
    ensure_tables(changed, catalog)
    (found,) = of_tables(changed, settings)
    assert found.verdict == "ok"
    with pytest.raises(NothingToAcceptError, match="has not been dropped; it is the one"):
        record_answer(changed, settings, no_broker, Answer(recreated_table=spec.table.name), "ada: why")
