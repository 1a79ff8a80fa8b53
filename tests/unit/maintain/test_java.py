"""Values as Spark and Iceberg's Java take them, and the catalog as Spark is told of it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from jobs.errors import FrazilError
from jobs.maintain.facts import PartitionFacts, PartitionValue
from jobs.maintain.java import procedure_call, quoted, said, sql_value
from jobs.maintain.java_filter import literal_of, of_partitions
from jobs.spark.catalog_conf import catalog_conf
from jobs.spec.settings import CatalogSettings, Settings

ID = UUID("9c12d441-03fe-4693-9a96-a0705ddf69c1")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        ("it's \\ here", "'it\\'s \\\\ here'"),
        (datetime(2026, 3, 1, 12, 0, 0, 5000, tzinfo=UTC), "TIMESTAMP '2026-03-01 12:00:00.005000 UTC'"),
        ({"a": 1}, "map('a', '1')"),
    ],
)
def test_sql(value: object, text: str) -> None:
    assert sql_value(value) == text


def test_names_are_quoted_part_by_part() -> None:
    assert quoted("lake.raw-data.t`t") == "`lake`.`raw-data`.`t``t`"


@pytest.mark.parametrize("table", ["frazil.ledger", "lake.payments", "frazil.lake.payments"])
def test_a_procedure_is_told_the_catalog_of_its_table(table: str) -> None:
    name = f"`frazil`.`{table.replace('.', '`.`')}`"
    told = procedure_call("frazil", table, "expire_snapshots", {"retain_last": 1, "older_than": None})
    assert told == f"CALL `frazil`.system.expire_snapshots(table => '{name}', retain_last => 1)"


class AnyJava:
    """Answers to whatever it is asked."""

    def __getattr__(self, name: str) -> AnyJava:
        return self

    def __call__(self, *_: object) -> AnyJava:
        return self


def test_a_partition_whose_column_is_gone_is_never_all_of_the_table() -> None:
    gone = PartitionValue("a", "a", "string", "identity", "u", "u", dropped=True)
    with pytest.raises(ValueError, match="the column of a was dropped"):
        of_partitions(AnyJava(), [PartitionFacts(0, (gone,), "a=u", (1,), 1)])


@pytest.mark.parametrize(
    ("kind", "transform", "value", "literal"),
    [
        ("timestamptz", "identity", 1_772_366_400_000_001, "2026-03-01T12:00:00.000001+00:00"),
        ("timestamp", "identity", 5, "1970-01-01T00:00:00.000005"),
        ("timestamp_ns", "identity", -1, "1969-12-31T23:59:59.999999999"),
        ("timestamptz_ns", "identity", 1_772_366_400_000_000_001, "2026-03-01T12:00:00.000000001+00:00"),
        ("time", "identity", 60_000_000, "00:01:00.000000"),
        ("timestamptz", "day", 20513, 20513),
        ("date", "identity", 20513, 20513),
        ("string", "bucket[16]", 7, 7),
        ("decimal(9, 2)", "identity", Decimal("1.50"), "1.50"),
        ("uuid", "identity", ID.bytes, str(ID)),
        ("uuid", "identity", ID, str(ID)),
        ("binary", "identity", b"ab", b"ab"),
        ("boolean", "identity", True, True),
        ("string", "identity", "it's", "it's"),
    ],
)
def test_partition_values_become_what_java_can_read(kind: str, transform: str, value: Any, literal: Any) -> None:
    assert literal_of(PartitionValue("p", "c", kind, transform, value, "")) == literal


def test_secrets_are_taken_out_of_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASS", "hunter2")
    properties: Any = {"type": "sql", "uri": "postgresql://me:${env:PGPASS}@db/lake"}
    settings = Settings.embedded(tmp_path).model_copy(
        update={"catalog": CatalogSettings.model_validate({"properties": properties})}
    )
    told = said(settings, RuntimeError("cannot connect to postgresql://me:hunter2@db/lake\n\tat somewhere"))
    assert "hunter2" not in told and "RuntimeError: cannot connect" in told and "somewhere" not in told


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {"type": "sql", "uri": "sqlite:////data/catalog.db?timeout=30", "warehouse": "file:///w"},
            {"type": "jdbc", "uri": "jdbc:sqlite:/data/catalog.db?journal_mode=WAL&busy_timeout=30000"},
        ),
        (
            {"type": "sql", "uri": "postgresql+psycopg2://me:p%40ss@db:5433/lake?sslmode=require"},
            {"uri": "jdbc:postgresql://db:5433/lake?sslmode=require", "jdbc.user": "me", "jdbc.password": "p@ss"},
        ),
        ({"uri": "https://catalog/api", "token": "t"}, {"type": "rest", "uri": "https://catalog/api", "token": "t"}),
        ({"type": "rest", "uri": "http://c", "s3.region": "eu"}, {"type": "rest", "client.region": "eu"}),
        ({"type": "glue", "warehouse": "s3://w"}, {"type": "glue", "warehouse": "s3://w"}),
    ],
)
def test_the_catalog_in_the_words_of_java(properties: dict[str, str], expected: dict[str, str]) -> None:
    found = catalog_conf("lake", properties)
    assert {key: found.get(key) for key in expected} == expected
    assert found["cache-enabled"] == "false"


def test_a_catalog_that_java_does_not_have() -> None:
    with pytest.raises(FrazilError, match="cannot be told of a catalog of type dynamodb") as told:
        catalog_conf("lake", {"type": "dynamodb"})
    assert "spark.sql.catalog.lake.type" in (told.value.fix or "")
