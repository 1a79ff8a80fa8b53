"""Settings, streams and records of the archived deployment of release 0.1.

Commit 14022cf1 of frazil 0.1.0 made `deployment.tar.xz` by its own commands, with the script that stood beside this
file. `expected.json` has the documents that the release printed, and the offsets of the records.

The settings name another catalog, state folder and ledger than the defaults. The streams are:

- `events`: routed by value into three tables. The last `frazil run` was killed between the commit of the coordinator
  table and those of the other tables, so its pending record exists. Dead letters have several causes. Some were
  replayed with a correction, one was dismissed, others have failed again or are exhausted. An operator's reset of
  offsets passed over some records.
- `payments`: gated by a contract. Snapshots were published, discarded and released. The next one is quarantined, and
  another waits behind it. An operator stopped the driver. Kafka has removed records that were not read, and nobody has
  answered that yet.
- `customers`: changes of Debezium, with a mirror that was merged once. Other changes have landed since, and two dead
  letters wait for a proposed column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.helpers.topics import idempotent_producer, messages_of
from tests.integration.deployment_records import Value, produce

HOME = Path("/tmp/frazil-release-0-1")
# Locked by the process that has a deployment in `HOME`.
LOCK = HOME.with_name(f"{HOME.name}.lock")
LEDGER = "operations.ledger"
STATE = HOME / "operations"
CUSTOMERS_TOPIC = "crm.public.customers"
NOT_SENT = "__debezium_unavailable_value"

STREAMS: dict[str, dict[str, Any]] = {
    "events": {
        "description": "Events of the shop, into a table by their type.",
        "owner": "team:shop",
        "source": {"topics": ["events"], "max_records_per_batch": 5000},
        "decode": {
            "value": "json",
            "schema": "id string not null, type string, at timestamptz not null, amount decimal(12,2), note string",
            "unknown_fields": "keep",
        },
        "table": {"name": "shop.other_events", "partition_by": ["day(at)"]},
        "route": {
            "by": "type",
            "tables": [
                {"match": "INS|UPD", "table": "shop.changed", "partition_by": ["bucket(2, id)"]},
                {"match": ["DEL", "UPD"], "table": "shop.removed", "columns": {"drop": ["note"]}},
                {"match": "NOTE", "table": "shop.other_events"},
            ],
        },
        "errors": {"stop_above": "off", "replay": {"park_after": 2}},
        "trigger": "available_now",
    },
    "payments": {
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "id string not null, amount decimal(12,2) not null, at timestamptz"},
        "table": {"name": "shop.payments", "partition_by": ["day(at)"]},
        "contract": {
            "expectations": [
                {
                    "expect_column_values_to_be_between": {"column": "amount", "min_value": 0, "max_value": 1000},
                    "name": "amount_is_usual",
                }
            ]
        },
        "publish": {"gate": "contract", "branch": "incoming"},
        "errors": {"stop_above": "off"},
        "trigger": {"every": "1s"},
        "freshness": {"warn": "1h", "fail": "6h"},
        "slo": {"lag_records": 1000},
    },
    "customers": {
        "source": {"topics": [CUSTOMERS_TOPIC]},
        "decode": {
            "value": "connect_json",
            "schema": "infer",
            "key": {"format": "connect_json", "schema": "infer", "into": "_change_key"},
        },
        "changes": {"envelope": "debezium"},
        "evolve": {"add": "propose"},
        "table": {"name": "raw.customers", "partition_by": ["day(_kafka_timestamp)"]},
        "mirrors": [{"table": "shop.customers", "buckets": 2}],
        "errors": {"stop_above": "off"},
        "trigger": "available_now",
    },
}
EVENT_TABLES = ("shop.changed", "shop.removed", "shop.other_events")
# Corrections that replays lay over the file of `events`.
CORRECTIONS: dict[str, dict[str, Any]] = {
    "everything.yaml": {"route": {"unmatched": {"table": "shop.other_events"}}},
    "amounts.yaml": {
        "decode": {
            "schema": (
                "id string not null, type string, at timestamptz not null, amount decimal(12,2) as text, note string"
            )
        }
    },
}


def event(number: int, **changed: Any) -> dict[str, Any]:
    """Record of an event; the number decides its type."""
    kind = ("INS", "UPD", "DEL", "NOTE")[number % 4]
    at = f"2026-11-{1 + number % 2:02}T10:00:00Z"
    return {"id": f"e-{number}", "type": kind, "at": at, "amount": number / 100, "note": f"n{number}"} | changed


def tables_of_event(value: bytes | None, *, corrected: bool = False) -> set[str] | None:
    """Tables where the record of an event belongs; none for a tombstone, None for a dead letter.

    Args:
        corrected: Whether a replay has landed the record with one of `CORRECTIONS`.
    """
    if value is None:
        return set()
    try:
        record = json.loads(value)
        if record["id"] is None or (isinstance(record["amount"], str) and not corrected):
            return None
    except (ValueError, TypeError):
        return None
    by_type = {
        "INS": {"shop.changed"},
        "UPD": {"shop.changed", "shop.removed"},
        "DEL": {"shop.removed"},
        "NOTE": {"shop.other_events"},
    }
    return by_type.get(record["type"], {"shop.other_events"} if corrected else None)


def payment(number: int, **changed: Any) -> dict[str, Any]:
    """Record of a payment with a usual amount."""
    return {"id": f"p-{number}", "amount": number % 1000, "at": f"2026-11-{1 + number % 2:02}T10:00:00Z"} | changed


def produce_payments(address: str, values: Sequence[Value]) -> None:
    """Produce payments to the partitions whose records Kafka does not remove."""
    produce(address, "payments", values, first=1)


def change(op: str, place: int, key: int, *, was: int | None = None, **values: Any) -> dict[str, Any]:
    """A change of a row of the source.

    Args:
        op: Debezium's letter for the operation.
        place: Position in the source's log.
        key: Key of the row.
        was: Former key, of a row whose key has changed.
        values: Columns of the row.
    """
    return {"op": op, "place": place, "key": key, "was": was, "values": values}


# Changes that have landed since the mirror was merged.
NOT_MERGED = [
    change("u", 200, 1, name="again", note=NOT_SENT),
    change("u", 201, 15, name="fifteen", note="of its own"),
    change("d", 202, 16),
    change("c", 203, 16, name="back", note=None),
    change("d", 204, 41),
    # A key that changes is a deletion, and a creation at the same place that leaves out what did not change.
    change("d", 205, 17),
    change("c", 205, 117, was=17, name="moved", note=NOT_SENT),
    change("c", 206, 50, name="fifty", note="50"),
    # A change that is sent a second time.
    change("u", 111, 1, name="changed 1", note=NOT_SENT),
]
# Changes with a column that the changelog lacks. They are dead letters until an operator adds it.
PROPOSING = [
    change("u", 210, 20, name="of a town", note=NOT_SENT, town="Riga"),
    change("c", 211, 51, name="new in town", note=None, town="Graz"),
]
# Changes that the test adds.
LAST = [
    change("u", 220, 20, name="later", note=NOT_SENT, town="Riga"),
    change("u", 221, 117, name="moved on", note=NOT_SENT, town="Oslo"),
    change("d", 222, 15),
    change("c", 223, 52, name="last", note="52", town=None),
]


def _schema(type_name: str, field: str = "", *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": type_name, "optional": optional, **({"field": field} if field else {}), **more}


def _row_schema(field: str, columns: Iterable[str]) -> dict[str, Any]:
    fields = [_schema("int64", "id", optional=False), *(_schema("string", name) for name in columns)]
    return _schema("struct", field, fields=fields)


def event_of(change: dict[str, Any]) -> dict[str, Any]:
    """Debezium's event of a change, with its schema, as Kafka Connect writes it."""
    gone, columns = change["op"] == "d", ("name", "note", *(["town"] if "town" in change["values"] else []))
    row = {"id": change["key"], **(dict.fromkeys(columns) if gone else change["values"])}
    at = 1_795_000_000_000 + 1000 * change["place"]
    source = {"connector": "postgresql", "name": "crm", "db": "crm", "ts_ms": at}
    source["sequence"] = json.dumps([str(change["place"]), str(change["place"] + 1)])
    texts = ("connector", "name", "db", "sequence")
    source_fields = [_schema("int64", "ts_ms"), *(_schema("string", name) for name in texts)]
    fields = [
        _row_schema("before", columns),
        _row_schema("after", columns),
        _schema("struct", "source", optional=False, fields=source_fields),
        _schema("string", "op", optional=False),
        _schema("int64", "ts_ms"),
    ]
    payload = {"before": row if gone else None, "after": None if gone else row, "source": source}
    payload |= {"op": change["op"], "ts_ms": at}
    return {"schema": _schema("struct", optional=False, fields=fields), "payload": payload}


def key_of(key: int) -> bytes:
    """Key of a change's record."""
    schema = _schema("struct", optional=False, fields=[_schema("int64", "id", optional=False)])
    return json.dumps({"schema": schema, "payload": {"id": key}}).encode()


def produce_changes(address: str, changes: Sequence[dict[str, Any]]) -> None:
    """Produce events of changes, with a tombstone behind each deletion. A row's changes are in one partition."""
    producer = idempotent_producer(address, CUSTOMERS_TOPIC)
    for change in changes:
        headers: list[tuple[str, str | bytes | None]] = []
        if change["was"] is not None:
            headers.append(("__debezium.oldkey", key_of(change["was"])))
        values: list[Value] = [event_of(change), None] if change["op"] == "d" else [event_of(change)]
        for value in values:
            encoded = json.dumps(value).encode() if value is not None else None
            key, partition = change["key"], change["key"] % 2
            producer.produce(CUSTOMERS_TOPIC, key=key_of(key), value=encoded, partition=partition, headers=headers)
    assert producer.flush(30) == 0


def source_rows(address: str, *, with_town: bool) -> dict[int, dict[str, Any]]:
    """Rows of the source by key: the topic's events applied one by one, in the order of the source's log.

    Args:
        with_town: Whether to apply events that have the column `town`.
    """
    events: dict[tuple[int, int], tuple[dict[str, Any], int | None]] = {}
    for message in messages_of(address, CUSTOMERS_TOPIC):
        value = message.value()
        if value is None:
            continue
        try:
            payload = json.loads(value)["payload"]
        except (ValueError, KeyError):
            continue
        row = payload["after"] or payload["before"]
        if "town" in row and not with_town:
            continue
        was = dict(message.headers() or []).get("__debezium.oldkey")
        old = json.loads(was)["payload"]["id"] if was is not None else None
        # An event that was sent twice has one position.
        events[int(json.loads(payload["source"]["sequence"])[1]), row["id"]] = payload, old
    rows: dict[int, dict[str, Any]] = {}
    gone: dict[int, dict[str, Any]] = {}
    for _, (payload, old) in sorted(events.items(), key=lambda item: item[0]):
        row = payload["after"]
        if row is None:
            key = payload["before"]["id"]
            gone[key] = rows.pop(key)
            continue
        before = rows.get(row["id"]) or (gone[old] if old is not None else {})
        rows[row["id"]] = {name: before.get(name) if value == NOT_SENT else value for name, value in row.items()}
    # The column is null in rows whose events lack it.
    return {key: row | ({"town": row.get("town")} if with_town else {}) for key, row in rows.items()}
