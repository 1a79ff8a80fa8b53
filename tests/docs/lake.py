"""Deployments that how-to pages begin with: `python -m tests.docs.lake payments` makes the folder `lake` of a reader.

Records and their coordinates are the same in every run: topics have one partition, and times are fixed.
`python -m tests.docs.lake payments broker.example.com:9092` only produces the records, to those brokers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.local.broker.broker import LocalBroker

_FIRST = 1796025600000  # 2026-11-30 08:00 UTC
_MINUTE = 60_000
_PAYMENTS_FILE = """\
stream: payments
source: {topics: [payments]}
decode:
  value: json
  schema: "id string not null, amount decimal(12,2), status string, created_at timestamptz"
table: {name: orders.payments}
"""


@dataclass(frozen=True, slots=True)
class Message:
    """A record of Kafka."""

    value: str | None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lake:
    """A deployment with one stream.

    Args:
        stream: Name of the stream.
        file: Text of its file.
        topics: Records by topic.
        settings: Text of `frazil.yaml`.
    """

    stream: str
    file: str
    topics: Mapping[str, Sequence[Message]]
    settings: str = "{}\n"


def _payments() -> list[Message]:
    records: list[Message] = []
    for number in range(20):
        payment = {
            "id": f"p-{number}",
            "amount": number + 0.25,
            "status": "PAID" if number % 4 else "OPEN",
            "created_at": f"2026-11-30T08:{number:02}:00Z",
        }
        if number in (7, 15):
            payment["amount"] = "-566,000"
        records.append(Message(json.dumps(payment), f"p-{number}"))
    return records


def _nested() -> list[Message]:
    values = [
        ("p-1", "4711 0001", "2026/11/30 17:00:00", "12.50", "sale"),
        ("p-2", "4711 0002", "today", "7", "sale"),
        ("p-3", "4711 0003", "2026/11/30 17:02:00", "1200", "test"),
    ]
    return [
        Message(json.dumps({"id": id_, "payload": {"card": card, "at": at, "amount": amount}, "kind": kind}))
        for id_, card, at, amount, kind in values
    ]


def _events() -> list[Message]:
    types = ["INS", "UPD", "INS", "DEL", "LOGIN"]
    return [
        Message(json.dumps({"id": f"e-{n}", "type": type_, "at": f"2026-11-30T08:0{n}:00Z", "amount": n}))
        for n, type_ in enumerate(types)
    ]


def _later() -> list[Message]:
    return [Message(str(payment.value).replace('"p-', '"later-')) for payment in _payments()[:2]]


def _queue() -> list[Message]:
    """What a Connect sink that reads `payments` puts into its dead-letter queue; the stream has the second one."""
    return [
        Message(
            json.dumps({"id": f"q-{offset}", "amount": amount, "status": "PAID", "created_at": "2026-11-29T08:00:00Z"}),
            f"q-{offset}",
            (
                ("__connect.errors.topic", topic),
                ("__connect.errors.partition", "0"),
                ("__connect.errors.offset", str(offset)),
                ("__connect.errors.connector.name", "payments-sink"),
                ("__connect.errors.stage", "VALUE_CONVERTER"),
                ("__connect.errors.exception.class.name", "org.apache.kafka.connect.errors.DataException"),
                ("__connect.errors.exception.message", "cannot be converted"),
            ),
        )
        for topic, offset, amount in (
            ("payments.v1", 4100, 12.5),
            ("payments", 3, 3.25),
            ("payments.v1", 4107, 7.25),
            ("payments.v1", 4111, "twelve"),
        )
    ]


_SOURCE = {
    "version": "3.7.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "db": "shop",
    "schema": "public",
    "table": "customers",
}
_ROW_FIELDS = [
    {"field": "id", "type": "int32", "optional": False},
    {"field": "name", "type": "string", "optional": True},
]
_SOURCE_FIELDS = [
    *({"field": name, "type": "string", "optional": False} for name in _SOURCE),
    {"field": "ts_ms", "type": "int64", "optional": False},
    {"field": "snapshot", "type": "string", "optional": True},
    {"field": "lsn", "type": "int64", "optional": True},
]


def _change(number: int, op: str, before: dict[str, object] | None, after: dict[str, object] | None) -> Message:
    row: dict[str, object] = {
        "type": "struct",
        "fields": _ROW_FIELDS,
        "optional": True,
        "name": "shop.public.customers.Value",
    }
    source_type = {"type": "struct", "fields": _SOURCE_FIELDS, "optional": False, "name": "shop.Source"}
    schema = {
        "type": "struct",
        "name": "shop.public.customers.Envelope",
        "optional": False,
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {**source_type, "field": "source"},
            {"field": "op", "type": "string", "optional": False},
            {"field": "ts_ms", "type": "int64", "optional": True},
        ],
    }  # fmt: skip
    at = _FIRST + number * _MINUTE
    source = {**_SOURCE, "ts_ms": at, "snapshot": "false", "lsn": 1000 + number}
    image = after or before or {}
    key = {
        "schema": {"type": "struct", "name": "shop.public.customers.Key", "optional": False, "fields": _ROW_FIELDS[:1]},
        "payload": {"id": image["id"]},
    }
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": at}
    return Message(json.dumps({"schema": schema, "payload": value}), json.dumps(key))


def _changes() -> list[Message]:
    ada, grace = {"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}
    return [
        _change(0, "c", None, ada),
        _change(1, "c", None, grace),
        _change(2, "u", ada, {"id": 1, "name": "Ada L."}),
        _change(3, "d", grace, None),
    ]


PAYMENTS = _payments()
"""Twenty payments; two have an amount that is no number."""

LAKES = {
    "empty": Lake("payments", "", {"payments": ()}),
    "later": Lake("payments", "", {"payments": _later()}),
    "customers": Lake("customers", "", {"shop.public.customers": _changes()}),
    "queue": Lake(
        "payments",
        _PAYMENTS_FILE,
        {"payments": PAYMENTS, "payments.dlq": _queue()},
    ),
    "events": Lake("events", "", {"events": _events()}),
    "nested": Lake("payments", "", {"payments": _nested()}),
    "payments": Lake(
        "payments",
        _PAYMENTS_FILE,
        {"payments": PAYMENTS},
    ),
}


def make_lake(name: str, folder: Path, *, run: bool = False) -> None:
    """Write a deployment, start its broker, and produce its records.

    Args:
        name: One of `LAKES`.
        folder: Where it is made.
        run: True if its stream lands what the topics hold.
    """
    lake = LAKES[name]
    (folder / "streams").mkdir(parents=True)
    (folder / "frazil.yaml").write_text(lake.settings)
    if lake.file:
        (folder / "streams" / f"{lake.stream}.yaml").write_text(lake.file)
    address = LocalBroker(folder / ".frazil" / "broker", detached=True).start()
    for topic, records in lake.topics.items():
        produce(address, topic, records)
    if run:
        subprocess.run(["frazil", "run", lake.stream], cwd=folder, check=True)


def produce(address: str, topic: str, records: Sequence[Message]) -> None:
    """Produce records, a minute apart, to a topic of one partition, which is created if it is missing."""
    admin = AdminClient({"bootstrap.servers": address})
    if topic not in admin.list_topics(timeout=30).topics:
        # The records are older than Kafka keeps others, some day.
        admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result(30)
    producer = Producer({"bootstrap.servers": address})
    for number, record in enumerate(records):
        producer.produce(
            topic,
            record.value,
            record.key,
            timestamp=_FIRST + number * _MINUTE,
            partition=0,
            headers=[(name, value.encode()) for name, value in record.headers],
        )
    producer.flush(30)


if __name__ == "__main__":
    if len(sys.argv) > 2 and ":" in sys.argv[2]:
        for name, messages in LAKES[sys.argv[1]].topics.items():
            produce(sys.argv[2], name, messages)
    else:
        make_lake(sys.argv[1], Path("lake"), run="--run" in sys.argv[2:])
