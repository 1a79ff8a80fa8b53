import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.spec.loading import load_streams
from jobs.spec.models import StreamSpec

BASE: dict[str, Any] = {
    "stream": "payments",
    "source": {"topics": ["payments"]},
    "decode": {"value": "json", "schema": "id string not null, amount decimal(12,2), at timestamptz as iso, n long"},
    "table": {"name": "orders.payments", "partition_by": ["day(at)"]},
}


def hash_after(change: Callable[[dict[str, Any]], Any]) -> str:
    data = copy.deepcopy(BASE)
    change(data)
    return StreamSpec.model_validate(data).config_hash


def setting(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data.setdefault(key, {})
        data[path[-1]] = to

    return change


def test_it_stays_what_it_is() -> None:
    # A change of this value rolls every stream of every deployment: make it on purpose only.
    value = hash_after(lambda _: None)
    assert re.fullmatch(r"[0-9a-f]{12}", value)
    assert value == "6eba1eed5f97"
    (example,) = load_streams(Path(__file__).parents[3] / "streams")
    assert example.config_hash == "2109efdbe835"


@pytest.mark.parametrize(
    "change",
    [
        setting("decode", "schema", to="id string, amount decimal(12,2), at timestamptz, n long"),
        setting("decode", "schema", to="id string not null, amount decimal(12,3), at timestamptz, n long"),
        setting("decode", "schema", to="id string not null, amount decimal(12,2), at timestamptz as epoch_ms, n long"),
        setting("decode", "schema", to="id string not null, at timestamptz, amount decimal(12,2), n long"),
        setting("decode", "schema", to="id string not null, amount decimal(12,2), at timestamptz, n int"),
        setting("decode", "unknown_fields", to="fail"),
        setting("table", "name", to="orders.payments2"),
        setting("table", "partition_by", to=[]),
        setting("table", "partition_by", to=["hour(at)"]),
        setting("table", "partition_by", to=["day(at)", "id"]),
        setting("table", "kafka_columns", to=False),
        setting("errors", "tolerance", to="none"),
        setting("errors", "dead_letters", to={"table": "orders.elsewhere"}),
        setting("errors", "tolerance", to="all"),
        setting("errors", "dead_letters", to={"mask": {"columns": ["id"]}}),
        setting("errors", "dead_letters", to={"mask": {"headers": ["h"]}}),
        setting("errors", "dead_letters", to={"mask": {"key": True}}),
    ],
)
def test_changes_with_what_changes_the_rows(change: Callable[[dict[str, Any]], None]) -> None:
    assert hash_after(change) != hash_after(lambda _: None)


@pytest.mark.parametrize(
    "change",
    [
        setting("stream", to="other"),
        setting("description", to="…"),
        setting("owner", to="team:x"),
        setting("source", "topics", to=["payments", "more"]),
        setting("source", "start", to="latest"),
        setting("source", "max_records_per_batch", to=5),
        setting("freshness", to={"warn": "1h", "fail": "2h"}),
        setting("trigger", to="available_now"),
        setting("table", "properties", to={"write.parquet.compression-level": 3}),
        setting("errors", "stop_above", to={"ratio": 0.5}),
        setting("errors", "stop_above", to={"count": 5, "window": {"of": "1h", "ratio": 0.1}}),
        setting("errors", "retry", to={"timeout": "5m", "max_delay": "1s"}),
        setting("errors", "replay", to={"automatic": True, "park_after": 1, "rate": 10}),
        setting("errors", "dead_letters", to={"topic": "payments.dead", "keep": "90d"}),
        # The same in other words.
        setting("errors", "dead_letters", to={"mask": {"columns": []}}),
        setting("errors", "dead_letters", to={"table": "orders.payments_dead"}),
        setting("errors", "tolerance", to="data"),
        setting("table", "kafka_columns", to=True),
        setting("table", "partition_by", to=["DAY( at )"]),
        setting("decode", "unknown_fields", to="ignore"),
        setting("decode", "schema", to="id string not null,\n amount decimal(12, 2),\n at timestamptz,\n n bigint\n"),
        setting("decode", "schema", to=["id string not null", "amount decimal(12,2)", "at timestamptz", "`n` long"]),
    ],
)
def test_does_not_change_with_anything_else(change: Callable[[dict[str, Any]], None]) -> None:
    assert hash_after(change) == hash_after(lambda _: None)
