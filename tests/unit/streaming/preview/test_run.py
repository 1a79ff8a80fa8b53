"""Run of a preview: the offsets that it looks at, and a table that is made of a registry's schema."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.writer_schemas import schema_lookup
from jobs.streaming.driver.tables.new_rows import new_columns
from jobs.streaming.preview.preview import preview_stream
from jobs.streaming.preview.run import MOST_RECORDS, newest_ranges, selected_ranges
from jobs.streaming.preview.tables import tables_as_written
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.dead_letter_table.selection import parse_offsets
from tests.helpers.registry_server import RegistryServer, serving
from tests.unit.streaming.preview.previews import block_of, record

FIRST: dict[str, Any] = {"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "string"}]}
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [*FIRST["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}
P0, P1, Q0 = TopicPartition("p", 0), TopicPartition("p", 1), TopicPartition("q", 0)
LOG = {P0: OffsetRange(10, 100), P1: OffsetRange(0, 5), Q0: OffsetRange(3, 3)}


def avro(schema_id: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, value)
    return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()


def test_a_table_is_made_of_the_newest_schema_and_grows_with_the_next_one(tmp_path: Path) -> None:
    server = RegistryServer(
        {1: json.dumps(FIRST), 2: json.dumps(SECOND)}, newest={"payments-value": ("AVRO", json.dumps(FIRST))}
    )
    with serving(server) as running:
        (tmp_path / "frazil.yaml").write_text(f"registry: {{url: '{running.url}', timeout: 5s, lag: 100ms}}\n")
        settings = load_settings(None, home=tmp_path)
        spec = StreamSpec.model_validate(
            {
                "stream": "payments",
                "source": {"topics": ["payments"]},
                "decode": {"value": "avro", "schema": "registry"},
                "transform": [{"compute": {"label": "concat(id, '!')"}}, {"where": "id <> 'd'"}],
                "rules": [{"name": "known", "expect": "id <> 'e'"}],
                "table": {"name": "orders.payments"},
            }
        )
        log = LogState({"payments": "id"}, {}, {})
        tables = tables_as_written(spec, None, lambda: new_columns(spec, settings, log))
        assert tables[0].metadata.schema().column_names[0] == "id"
        block = block_of(
            [
                avro(1, FIRST, {"id": "a"}),
                avro(2, SECOND, {"id": "b", "note": "new"}),
                avro(7, FIRST, {"id": "c"}),
                b"{}",
                None,
                avro(1, FIRST, {"id": "d"}),
                avro(2, SECOND, {"id": "e", "note": "x"}),
            ]
        )
        found = preview_stream(spec, tables, [block], schemas=schema_lookup(spec, settings))
    assert found.changes.made == ("add column note string",)
    rows = [record(found, number).rows["orders.payments"] for number in (0, 1)]
    assert [(row["id"], row["label"], row["note"]) for row in rows] == [("a", "a!", None), ("b", "b!", "new")]
    assert record(found, 5).outcome == "filtered"
    broken = record(found, 6).letter
    assert broken and broken.error_class == "rule_violated"
    letters = [record(found, number).letter for number in (2, 3)]
    assert [letter and letter.error_class for letter in letters] == ["unknown_schema", "no_schema_id"]
    assert record(found, 4).outcome == "tombstone"
    assert not (tmp_path / ".frazil").exists() or not list((tmp_path / ".frazil").rglob("*.json"))


def selected(*texts: str) -> dict[TopicPartition, OffsetRange]:
    return dict(selected_ranges(LOG, map(parse_offsets, texts)))


@pytest.mark.parametrize(
    ("records", "ranges"),
    [
        (8, {P0: (96, 100), P1: (1, 5)}),
        (20, {P0: (85, 100), P1: (0, 5)}),
        (1_000, {P0: (10, 100), P1: (0, 5)}),
    ],
)
def test_the_newest_records_are_of_all_partitions_alike(
    records: int, ranges: dict[TopicPartition, tuple[int, int]]
) -> None:
    assert newest_ranges({P0: LOG[P0], P1: LOG[P1]}, records) == ranges


def test_nothing_is_newest_of_nothing() -> None:
    assert newest_ranges({}, 5) == {}
    assert newest_ranges({Q0: LOG[Q0]}, 5) == {}


@pytest.mark.parametrize(
    ("texts", "ranges"),
    [
        (["p"], {P0: (10, 100), P1: (0, 5)}),
        (["p:1"], {P1: (0, 5)}),
        (["p:0:17-42"], {P0: (17, 43)}),
        (["p:0:0-12"], {P0: (10, 13)}),
        (["p:0:90-"], {P0: (90, 100)}),
        (["p:0:20-21", "p:0:30-30", "p:1:2-2"], {P0: (20, 31), P1: (2, 3)}),
        (["q"], {}),
    ],
)
def test_offsets_are_taken_as_far_as_kafka_has_them(
    texts: list[str], ranges: dict[TopicPartition, tuple[int, int]]
) -> None:
    assert selected(*texts) == ranges


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("other", "does not read other; it reads p, q"),
        ("p:7", "does not read p-7; it reads p-0, p-1, q-0"),
        ("p:0:0-9", r"has none of the selected records of p-0: it has the offsets \[10, 100\)"),
        ("p:0:100-", "has none of the selected records"),
    ],
)
def test_offsets_that_mean_nothing_are_refused(text: str, said: str) -> None:
    with pytest.raises(FrazilError, match=said):
        selected(text)


def test_there_is_a_limit() -> None:
    log = {P0: OffsetRange(0, MOST_RECORDS), P1: OffsetRange(0, 1)}
    assert sum(end - start for start, end in selected_ranges(log, [parse_offsets("p:0")]).values()) == MOST_RECORDS
    with pytest.raises(FrazilError, match=r"100,001 records are asked for .* 100,000 at most"):
        selected_ranges(log, [parse_offsets("p")])
