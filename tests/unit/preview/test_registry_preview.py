"""Previews of records whose writer schemas a registry has: the table is made of its newest, and grows with others."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro

from jobs.commit.log_state import LogState
from jobs.preview.preview import preview_stream
from jobs.preview.tables import tables_as_written
from jobs.spec.models import StreamSpec
from jobs.spec.settings import load_settings
from jobs.stream.new_rows import new_columns
from jobs.stream.writer_schemas import schema_lookup
from tests.helpers.registry_server import RegistryServer, serving
from tests.unit.preview.previews import block_of, record

FIRST: dict[str, Any] = {"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "string"}]}
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [*FIRST["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}


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
