"""Keys whose values are templates: what was decided without the value is left to a person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import Conversion, convert
from tests.unit.migration.test_import_secrets import BASE

TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"


def conversion(tmp_path: Path, *connectors: dict[str, str]) -> Conversion:
    (tmp_path / "c.json").write_text(json.dumps([{"name": f"c{n}", "config": c} for n, c in enumerate(connectors)]))
    return convert(read_sources([str(tmp_path / "c.json")]))


@pytest.mark.parametrize(
    "key",
    [
        "errors.tolerance",
        "value.converter.schemas.enable",
        "iceberg.tables.evolve-schema-enabled",
        "iceberg.tables.upsert-mode-enabled",
        "iceberg.tables.default-commit-branch",
        "iceberg.tables.dynamic-enabled",
        "iceberg.tables.schema-case-insensitive",
        "iceberg.control.commit.interval-ms",
        "transforms",
    ],
)
@pytest.mark.parametrize("value", ["${VALUE}", "{{ .Values.value }}", "${file:/x.properties:value}"])
def test_a_template_is_not_taken_for_the_default(key: str, value: str, tmp_path: Path) -> None:
    (one,) = conversion(tmp_path, BASE | {"connector.class": TABULAR, key: value}).connectors
    assert {answer.key: str(answer.heading) for answer in one.answers}[key] == "decide"
    assert one.outcome == "decide"


def test_a_secret_whose_template_became_a_reference_needs_no_decision(tmp_path: Path) -> None:
    (one,) = conversion(tmp_path, BASE | {"iceberg.catalog.token": "${file:/x.properties:token}"}).connectors
    assert one.outcome == "converted"


def test_read_committed_beside_a_connector_that_reads_everything_is_to_decide(tmp_path: Path) -> None:
    committed = {"consumer.override.isolation.level": "read_committed", "iceberg.tables": "shop.other"}
    found = conversion(tmp_path, BASE, BASE | committed)
    assert found.settings["kafka"]["isolation"] == "read_uncommitted"
    assert [one.outcome for one in found.connectors] == ["converted", "decide"]
    headings = {answer.key: str(answer.heading) for answer in found.connectors[1].answers}
    assert headings["consumer.override.isolation.level"] == "decide"


@pytest.mark.parametrize(
    ("written", "partitions"),
    [
        ("bucket(id, 16), days(ts)", ["bucket(16, id)", "day(ts)"]),
        ("truncate( name , 4 ),region", ["truncate(4, name)", "region"]),
        ("bucket(16, id)", None),
        ("Days(ts)", None),
        ("identity(id)", None),
        ("day (ts)", None),
    ],
)
def test_partitions_that_the_sink_did_not_understand_made_none(
    written: str, partitions: list[str] | None, tmp_path: Path
) -> None:
    (one,) = conversion(tmp_path, BASE | {"iceberg.tables.default-partition-by": written}).connectors
    assert one.streams[0]["table"].get("partition_by") == partitions
    headings = {answer.key: str(answer.heading) for answer in one.answers}
    assert headings["iceberg.tables.default-partition-by"] == ("no_effect" if partitions is None else "same")
