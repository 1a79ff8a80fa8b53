"""Values as literals of Spark's SQL, and conditions on partitions."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from jobs.maintenance.measure.health_facts import PartitionFacts, PartitionValue
from jobs.maintenance.plan.procedure_arguments import (
    partition_filter,
    partition_literal,
    procedure_call,
    quoted,
    sql_value,
)


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


ID = UUID("9c12d441-03fe-4693-9a96-a0705ddf69c1")


class AnyJava:
    """Answers to whatever it is asked."""

    def __getattr__(self, name: str) -> AnyJava:
        return self

    def __call__(self, *_: object) -> AnyJava:
        return self


def test_a_partition_whose_column_is_gone_is_never_all_of_the_table() -> None:
    gone = PartitionValue("a", "a", "string", "identity", "u", "u", dropped=True)
    with pytest.raises(ValueError, match="the column of a was dropped"):
        partition_filter(AnyJava(), [PartitionFacts(0, (gone,), "a=u", (1,), 1)])


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
    assert partition_literal(PartitionValue("p", "c", kind, transform, value, "")) == literal
