"""Values and names as Spark's SQL takes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobs.maintain.procedure_arguments import procedure_call, quoted, sql_value


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
