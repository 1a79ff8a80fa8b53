"""`frazil compare` beside tables that the real Iceberg sink has filled from the same topic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

from bench.versus.sink_config import SinkConfig, sink_properties
from jobs.clients.install.artifacts import resolve_jars
from orchestration.cli.main import main
from tests.helpers.connect_worker import ConnectWorker
from tests.helpers.topics import idempotent_producer
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import Pipeline

pytestmark = pytest.mark.integration

PLACED, PLAIN = "sink.placed", "sink.plain"
COORDINATES = "topic=src_topic,partition=src_partition,offset=src_offset"
OURS = (
    "id string not null, qty int, wide long, ratio double, active string, local string, amount string, level int, "
    "note string, small double"
)
CASTS = [{"cast": {"local": "timestamptz", "amount": "decimal(12,3)"}}]
# What the sink's user has: narrower types, as many a table that was made by hand.
THEIRS = {
    "id": ice.StringType(), "qty": ice.IntegerType(), "wide": ice.IntegerType(), "ratio": ice.IntegerType(),
    "active": ice.BooleanType(), "local": ice.TimestampType(), "amount": ice.DecimalType(12, 2),
    "level": ice.IntegerType(), "note": ice.StringType(), "small": ice.FloatType(),
}  # fmt: skip
FIELDS: dict[str, Any] = {
    "id": {"type": "string"},
    "qty": {"type": "int64", "optional": True},
    "wide": {"type": "int64", "optional": True},
    "ratio": {"type": "double", "optional": True},
    "active": {"type": "string", "optional": True},
    "local": {"type": "string", "optional": True},
    "amount": {"type": "string", "optional": True},
    "level": {"type": "int32", "optional": True, "default": 7},
    "note": {"type": "string", "optional": True},
    "small": {"type": "double", "optional": True},
}
GOOD: dict[str, Any] = {
    "qty": 1, "wide": 2, "ratio": 3.0, "active": "true", "local": "2026-02-28T12:00:00Z", "amount": "10.500",
    "level": 1, "note": "n", "small": 0.5,
}  # fmt: skip
# What is wrong with each record: one field of it.
NASTY: list[dict[str, Any]] = [
    {}, {"wide": 2**31}, {"ratio": 1.9}, {"active": "yes"}, {"local": "2026-02-28T14:00:00+02:00"},
    {"amount": "10.555"}, {"level": None}, {"small": 0.1}, {"qty": 2**31},
]  # fmt: skip
ROUNDS = 4
GOOD_ROWS = len(NASTY) * ROUNDS


def envelope(number: int, changes: dict[str, Any]) -> bytes:
    payload = {"id": f"p-{number}", **GOOD, **changes}
    fields = [{"field": name, **of_type} for name, of_type in FIELDS.items()]
    schema = {"type": "struct", "optional": False, "fields": fields}
    return json.dumps({"schema": schema, "payload": payload}).encode()


class Sink:
    """A stream, and two tables that the sink has filled: with the coordinates of the records, and without."""

    def __init__(self, one: Pipeline) -> None:
        self.one: Pipeline = one

    def typed(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["--home", str(self.one.home), "compare", self.one.stream, *words])

    def facts(self, *words: str, status: int) -> Any:
        result = self.typed(*words, "--json")
        assert result.exit_code == status, result.output
        return json.loads(result.stdout)

    def rows(self, table: str) -> int:
        return self.one.catalog().load_table(table).scan().count()


def make_table(catalog: Catalog, name: str, *, placed: bool) -> None:
    columns = {**THEIRS}
    if placed:
        columns |= {
            "src_topic": ice.StringType(), "src_partition": ice.IntegerType(), "src_offset": ice.LongType(),
        }  # fmt: skip
    fields = [
        ice.NestedField(number, each, of_type, required=False)
        for number, (each, of_type) in enumerate(columns.items(), start=1)
    ]
    catalog.create_table(name, Schema(*fields))


def connectors(one: Pipeline, address: str) -> dict[str, dict[str, str]]:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    controls = [f"control-{one.stream}-{name}" for name in ("placed", "plain")]
    for future in admin.create_topics([NewTopic(each, 1, 1) for each in controls]).values():
        future.result(20)
    found: dict[str, dict[str, str]] = {}
    for table, control in zip((PLACED, PLAIN), controls, strict=True):
        sink = SinkConfig(one.stream, tasks=1, commit_ms=1_000, kafka_columns=False)
        found[f"iceberg-{control}"] = {
            **sink_properties(sink, control, one.settings().catalog),
            "iceberg.tables": table,
            "errors.tolerance": "all",
            "consumer.override.auto.offset.reset": "earliest",
        }
    found[f"iceberg-{controls[0]}"] |= {
        "transforms": "place",
        "transforms.place.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.place.topic.field": "src_topic",
        "transforms.place.partition.field": "src_partition",
        "transforms.place.offset.field": "src_offset",
    }
    return found


@pytest.fixture(scope="module")
def sink(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Sink:
    one = Pipeline(tmp_path_factory.mktemp("compare") / "home", broker, "compared")
    one.write_spec(
        decode={"value": "connect_json", "schema": OURS},
        transform=CASTS,
        table={"name": one.table_name, "partition_by": ["bucket(4, id)"], "identifier_fields": ["id"]},
        errors={"stop_above": "off"},
    )
    one.create_topic()
    catalog = one.catalog()
    catalog.create_namespace("sink")
    make_table(catalog, PLACED, placed=True)
    make_table(catalog, PLAIN, placed=False)
    producer = idempotent_producer(broker, one.stream)
    for number in range(GOOD_ROWS):
        value = envelope(number, NASTY[number % len(NASTY)])
        producer.produce(one.stream, key=f"p-{number}".encode(), value=value, partition=number % 2)
    producer.produce(one.stream, key=b"gone", value=None, partition=0)
    producer.produce(one.stream, key=b"broken", value=b"{", partition=1)
    assert producer.flush(60) == 0
    made = Sink(one)
    settings = {
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "offset.flush.interval.ms": "1000",
        "plugin.discovery": "service_load",
        "connector.client.config.override.policy": "All",
    }
    worker = ConnectWorker(
        one.home / "connect", broker, resolve_jars("connect"), settings=settings, connectors=connectors(one, broker)
    )
    with worker:
        worker.wait_until_running()

        def landed() -> bool:
            worker.check()
            return made.rows(PLACED) == made.rows(PLAIN) == GOOD_ROWS

        wait_for(landed, seconds=120, what="the sink to fill its tables")
    return made


def by_column(facts: Any) -> dict[str, tuple[str, int]]:
    """What differs by column; the column `active` has texts of booleans as well, which mean the same."""
    found = {each["column"]: (each["reason"], each["rows"]) for each in facts["differences"] if each["reason"] != FORM}
    (form,) = [each for each in facts["differences"] if each["reason"] == FORM]
    assert form["column"] == "active"
    return found


FORM = "other_form"
COERCED = {
    "wide": ("wrapped", ROUNDS),
    "ratio": ("fraction_cut", ROUNDS),
    "active": ("boolean_text", ROUNDS),
    "local": ("zone_dropped", ROUNDS),
    "amount": ("rounded", ROUNDS),
    "level": ("null_to_value", ROUNDS),
    "small": ("float_precision", ROUNDS),
}


def test_what_the_sink_made_of_each_record_is_named(sink: Sink) -> None:
    facts = sink.facts("--with", PLACED, "--coordinates", COORDINATES, status=3)
    assert facts["matched_by"] == "coordinates" and facts["whole_topics"]
    assert by_column(facts) == COERCED
    rows = facts["rows"]
    assert (rows["here"], rows["there"], rows["matched"]) == (GOOD_ROWS - ROUNDS, GOOD_ROWS, GOOD_ROWS - ROUNDS)
    assert (rows["equal"], rows["different"]) == (ROUNDS, GOOD_ROWS - 2 * ROUNDS)
    assert (rows["only_here"], rows["only_there"], rows["doubled_there"], rows["not_judged"]) == (0, 0, 0, 0)
    refused = {each["cause"].split(":")[0]: each for each in facts["without_row_here"]}
    taken = next(each for each in facts["without_row_here"] if each["rows_there"])
    assert (taken["records"], taken["rows_there"], taken["reason"]) == (ROUNDS, ROUNDS, "wrapped")
    assert (taken["examples"][0]["in_record"], taken["examples"][0]["there"]) == (2**31, -(2**31))
    assert refused["tombstone"]["rows_there"] == 0
    wide = next(each for each in facts["differences"] if each["column"] == "wide")
    assert (wide["examples"][0]["here"], wide["examples"][0]["there"]) == (2**31, -(2**31))
    tables = {each["fact"]: each for each in facts["tables"]}
    assert (tables["partitioning"]["here"], tables["partitioning"]["there"]) == ("bucket[4](id)", "nothing")
    assert tables["column wide"]["note"] == "the sink wraps numbers beyond 32 bits"
    assert any(name.startswith("kafka.connect.offsets.") for name in facts["sink"])


def test_without_coordinates_rows_are_matched_by_their_key(sink: Sink) -> None:
    facts = sink.facts("--with", PLAIN, status=3)
    assert (facts["matched_by"], facts["key"]) == ("key", ["id"])
    assert by_column(facts) == COERCED
    # Which of its rows are of refused records nobody can tell without coordinates.
    assert facts["rows"]["only_there"] == ROUNDS
    assert all(each["rows_there"] is None for each in facts["without_row_here"])


def test_a_part_of_the_topic_and_a_person_who_reads(sink: Sink) -> None:
    facts = sink.facts("--with", PLAIN, "--last", "10", status=3)
    assert facts["records"] == 10 and not facts["whole_topics"] and facts["rows"]["only_there"] == 0
    assert facts["rows"]["not_judged"] >= GOOD_ROWS - 10
    read = sink.typed("--with", PLACED, "--coordinates", COORDINATES, "--examples", "1")
    assert read.exit_code == 3
    assert f"{ROUNDS} × wide: a number beyond the column's bits wrapped around (wrapped)" in read.stdout
    assert read.stdout.rstrip().endswith("Different: see above.")


def test_columns_that_are_the_same_are_equal(sink: Sink) -> None:
    """The same stream with the sink's own types for what it compares."""
    one, path = sink.one, sink.one.spec_file
    kept = path.read_text()
    try:
        one.write_spec(
            decode={"value": "connect_json", "schema": "id string not null, note string", "unknown_fields": "ignore"},
            table={"name": "tests.narrow", "identifier_fields": ["id"]},
            errors={"stop_above": "off"},
        )
        catalog = one.catalog()
        narrow = catalog.create_table("sink.narrow", catalog.load_table(PLACED).schema().select("id", "note"))
        narrow.append(catalog.load_table(PLACED).scan(selected_fields=("id", "note")).to_arrow())
        facts = sink.facts("--with", "sink.narrow", "--key", "id", status=0)
        assert (facts["verdict"], facts["rows"]["equal"], facts["differences"]) == ("equal", GOOD_ROWS, [])
        # A row less, and one that nobody sent.
        narrow.delete("id = 'p-3'")
        facts = sink.facts("--with", "sink.narrow", status=3)
        assert facts["rows"]["only_here"] == 1 and facts["only_here"][0]["row"]["id"] == "p-3"
    finally:
        path.write_text(kept)


def test_what_cannot_be_compared_says_what_to_do(sink: Sink) -> None:
    for words, said in (
        (("--with", "sink.nothing"), "table sink.nothing does not exist"),
        (("--with", PLAIN, "--branch", "b"), "has no branch b"),
        (("--with", PLAIN, "--coordinates", "topic=a"), "has no column a"),
        (("--with", PLAIN, "--coordinates", "place"), "names no columns of a table"),
        (("--with", PLACED, "--coordinates", "offset=src_offset"), "lacks partition"),
        (("--with", PLAIN, "--key", "nothing"), "rows cannot be matched by nothing"),
        (("--with", PLAIN, "--output", "tests.other"), "has no table tests.other of rows"),
        (("--with", PLAIN, "--last", "5", "--since", "1h"), "--last and --since both say"),
    ):
        result = sink.typed(*words)
        assert result.exit_code == 1 and said in result.stderr and "Next: " in result.stderr, (words, result.output)
