"""Names of tables and branches in Spark SQL."""

from __future__ import annotations

import pytest

from jobs.base.spark_names import spark_name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders.payments", "orders.payments"),
        ("lake.orders.payments_2", "lake.orders.payments_2"),
        ("raw-data.pay-ments", "`raw-data`.`pay-ments`"),
        ("orders.2026_payments", "orders.`2026_payments`"),
        ("audit-1", "`audit-1`"),
        ("größe", "`größe`"),
        ("it`s", "`it``s`"),
    ],
)
def test_parts_that_are_no_plain_identifiers_are_quoted(name: str, text: str) -> None:
    assert spark_name(name) == text
