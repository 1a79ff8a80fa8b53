"""Cases through the stream's own task: formats, keys, headers, routes, inferred columns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.cases.case_file import Case
from jobs.streaming.cases.case_run import CaseOutcome, run_case
from tests.unit.streaming.preview.previews import spec_of


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.embedded(tmp_path)


def outcome(spec: StreamSpec, settings: Settings, *records: Any) -> CaseOutcome:
    given = [record if isinstance(record, dict) and "value" in record else {"value": record} for record in records]
    return run_case(spec, settings, Case.model_validate({"name": "a", "records": given}))


def test_rows_and_letters_in_the_order_of_the_records(settings: Settings) -> None:
    spec = spec_of(
        "id string not null, amount decimal(12,2)",
        transform=[{"where": "id <> 'ignored'"}],
        table={"kafka_columns": True},
    )
    found = outcome(
        spec,
        settings,
        {"value": {"id": "b", "amount": Decimal("2.50")}, "partition": 1},
        {"value": "no json", "partition": 0},
        None,
        {"id": "ignored", "amount": 1},
        {"value": {"id": "a", "amount": Decimal("1.10")}, "timestamp": "2026-01-31T08:00:00Z", "offset": 40},
        {"id": "c", "amount": "x"},
    )
    rows = [
        (number, row["id"], row["amount"], row["_kafka_partition"], row["_kafka_offset"])
        for number, _, row in found.rows
    ]
    assert rows == [(1, "b", Decimal("2.50"), 1, 0), (5, "a", Decimal("1.10"), 0, 40)]
    assert str(found.rows[1][2]["_kafka_timestamp"]) == "2026-01-31 08:00:00+00:00"
    assert [(number, letter.error_class) for number, letter in found.letters] == [
        (2, "malformed_json"),
        (6, "wrong_type"),
    ]


def test_keys_and_headers(settings: Settings) -> None:
    spec = spec_of(
        decode={"key": {"format": "json", "schema": "k string", "into": "the_key"}},
        table={"kafka_columns": {"headers": "headers"}},
    )
    found = outcome(spec, settings, {"value": {"id": "a"}, "key": {"k": "x"}, "headers": {"trace": "abc"}})
    (_, _, row) = found.rows[0]
    assert row["the_key"] == {"k": "x"} and row["headers"] == [{"key": "trace", "value": b"abc"}]


def test_routes_and_topics(settings: Settings) -> None:
    spec = spec_of(
        route={"by": "kind", "tables": [{"match": "sale", "table": "orders.sales"}], "to": "orders.of_{value}"}
    )
    found = outcome(spec, settings, {"id": "a", "kind": "sale"}, {"id": "b", "kind": "other"})
    assert [(number, table) for number, table, _ in found.rows] == [(1, "orders.sales"), (2, "orders.of_other")]
    with pytest.raises(FrazilError, match="record 1 of case 'a' is of topic other, and the stream reads payments"):
        outcome(spec, settings, {"value": {}, "topic": "other"})


def test_inferred_columns_are_those_of_the_cases_records(settings: Settings) -> None:
    spec = StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics_pattern": "payments.*"},
            "decode": {"value": "json", "schema": "infer"},
            "table": {"name": "orders.payments"},
        }
    )
    found = outcome(spec, settings, {"value": {"id": "a", "n": 3}, "topic": "payments.v1"})
    (_, _, row) = found.rows[0]
    assert (row["id"], row["n"]) == ("a", 3)
    with pytest.raises(FrazilError, match="names no topic"):
        outcome(spec, settings, {"id": "a"})
    with pytest.raises(FrazilError, match="have no record yet"):
        outcome(spec, settings, {"value": None, "topic": "payments.v1"})


def test_columns_of_a_table_that_does_not_exist(settings: Settings) -> None:
    spec = StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "table"},
            "table": {"name": "orders.payments"},
        }
    )
    with pytest.raises(FrazilError):
        outcome(spec, settings, {"id": "a"})
