"""Payments in formats with a schema: what the stream's own decoder makes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.formats.decoder_spec import DecoderSpec, TableSchema
from jobs.formats.known_formats import FORMATS
from jobs.formats.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.registry.connection import RegistryConnection
from jobs.registry.lookup import RegistryLookup
from orchestration.cli.demo.format_payments import _FORMATS, DEMO_FORMATS, format_deployment, format_writer
from orchestration.cli.demo.payments import payments
from resources.deployment import Deployment

NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("name", DEMO_FORMATS)
def test_good_ones_are_rows_and_bad_ones_fail(name: str) -> None:
    demo, format_ = _FORMATS[name], FORMATS[name]
    writer = WriterSchema(demo.schema)
    assert format_.writer_rows is not None
    rows = format_.writer_rows(writer, {})
    known = {SchemaId(7): RegistrySchema(format_.registry_kind or "", writer)}
    lookup = RegistryLookup(RegistryConnection("a", "a", 1.0, 1.0, {}), known)
    spec = DecoderSpec(name, TableSchema(rows.model_dump_json()), {"unknown_fields": "ignore"}, lookup)
    made = list(payments(0, 2000, NOW, format_writer(name, 7)))
    decoded = format_.block(spec).decode(pa.array([each.value for each in made], pa.binary()))
    good = [number for number, each in enumerate(made) if each.kind == "good"]
    assert set(good) <= set(decoded.positions.tolist())
    assert len(decoded.tombstones) == sum(each.kind == "tombstone" for each in made)
    failed = {failure.row for failure in decoded.failures}
    assert failed >= {n for n, each in enumerate(made) if each.kind in ("missing_field", "wrong_type", "empty_value")}
    assert len(decoded.positions) + len(failed) + len(decoded.tombstones) == len(made)
    first = decoded.rows.slice(0, 1).to_pylist()[0]
    assert first["payer"].encode() == made[good[0]].key
    assert first["created_at"].tzinfo is not None


@pytest.mark.parametrize("name", DEMO_FORMATS)
def test_its_home_has_its_stream_and_the_local_registry_if_it_needs_one(tmp_path: Path, name: str) -> None:
    deployment = format_deployment(Deployment.at(tmp_path), name)
    assert deployment.home == tmp_path / ".frazil" / "demo" / name
    spec = deployment.stream("payments")
    assert spec.decode.format == name
    assert spec.decode.needs_registry == (name != "connect_json")
    assert (deployment.settings().registry is not None) == spec.decode.needs_registry
