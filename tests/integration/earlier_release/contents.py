"""Streams and records of the deployment, as they were made and as the test goes on with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.deployment_records import Value, produce

HOME = Path("/tmp/frazil-earlier-release")
# Held by whoever has something in `HOME`.
LOCK = HOME.with_name(f"{HOME.name}.lock")
DAYS = ("clicks.20261101", "clicks.20261102", "clicks.20261103")
QUEUE, CONNECT_SOURCE = "clicks.queue", "clicks.of.connect"
RETURNS, LETTERS = "orders.again", "orders.failed"

SETTINGS = {
    "spark": {"master": "local[2]", "driver_memory": "600m", "conf": {"spark.ui.enabled": "false"}},
    "lease_ttl": "10s",
}
STREAMS: dict[str, dict[str, Any]] = {
    "orders": {
        "description": "Driven by a driver.",
        "owner": "team:orders",
        "source": {"topics": ["orders"], "group": "orders-watched", "max_records_per_batch": 5000},
        "decode": {
            "value": "json",
            "schema": (
                "id string not null, amount decimal(12,2) not null, created_at timestamptz not null, payer string"
            ),
        },
        "table": {"name": "shop.orders", "partition_by": ["day(created_at)", "bucket(4, id)"]},
        "errors": {
            "stop_above": {"ratio": 0.9, "window": {"of": "1h", "ratio": 0.9}},
            "dead_letters": {
                "table": "shop.orders_failed",
                "topic": {"name": LETTERS, "create": True, "replication_factor": 1},
                "mask": {"columns": ["payer"], "headers": ["secret"]},
            },
        },
        "trigger": {"every": "1s"},
        "freshness": {"warn": "1h", "fail": "6h"},
        "slo": {"lag_records": 1000, "unknown_fields": ["$.debug"]},
    },
    "refunds": {
        "source": {"topics": ["refunds"]},
        "decode": {
            "value": "json",
            "unknown_fields": "fail",
            "schema": (
                "id long not null, at timestamptz not null, price double, tags map<string, string>,"
                " items list<struct<sku string not null, n int>>, note string"
            ),
        },
        "table": {
            "name": "shop.refunds",
            "partition_by": ["day(at)"],
            "properties": {"write.parquet.compression-codec": "zstd"},
        },
        "errors": {"stop_above": "off", "replay": {"park_after": 5}},
        "trigger": "available_now",
        "maintenance": {"compact": {"min_files": 2}, "expire": {"keep": "1s", "min_snapshots": 6}},
    },
    "clicks": {
        "source": {"topics_pattern": r"clicks\.\d{8}"},
        "decode": {"value": "json", "schema": "id string not null, page string, at timestamptz as epoch_ms not null"},
        "table": {"name": "web.clicks", "partition_by": ["hour(at)"]},
        "errors": {"stop_above": "off", "dead_letters": {"keep": "3650d"}},
        "trigger": "available_now",
    },
}


def order(number: int, **changed: Any) -> dict[str, Any]:
    """The record of an order."""
    day = f"2026-11-{1 + number % 3:02}T10:00:00Z"
    return {"id": f"o-{number}", "amount": number / 100, "created_at": day, "payer": f"P{number}"} | changed


def refund(number: int, **changed: Any) -> dict[str, Any]:
    """The record of a refund."""
    at, items = f"2026-11-{1 + number % 2:02}T00:00:00Z", [{"sku": f"s{number % 5}", "n": number}]
    return {"id": number, "at": at, "price": number / 8, "tags": {"kind": "a"}, "items": items} | changed


def click(number: int, **changed: Any) -> dict[str, Any]:
    """The record of a click."""
    return {"id": f"c-{number}", "page": f"/{number % 7}", "at": 1793527200000 + number * 60_000} | changed


def produce_letters(address: str, first: int, values: Sequence[Value]) -> None:
    """Put records that stood at these offsets and on into the queue, as a sink of Connect does."""
    for offset, value in enumerate(values, first):
        context = {
            "topic": CONNECT_SOURCE,
            "partition": "0",
            "offset": str(offset),
            "connector.name": "sink",
            "stage": "VALUE_CONVERTER",
            "exception.class.name": "org.apache.kafka.connect.errors.DataException",
            "exception.message": "no",
        }
        headers = [(f"__connect.errors.{name}", text.encode()) for name, text in context.items()]
        produce(address, QUEUE, [value], partitions=1, headers=headers)
