"""Deployments that how-to pages begin with: `python -m tests.docs.lake payments` makes the folder `lake` of a reader.

Records and their coordinates are the same in every run: topics have one partition, and times are fixed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.local.broker.broker import LocalBroker

_FIRST = 1796025600000  # 2026-11-30 08:00 UTC
_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class Lake:
    """A deployment with one stream.

    Args:
        stream: Name of the stream.
        file: Text of its file.
        topics: Records by topic: key, value.
        settings: Text of `frazil.yaml`.
    """

    stream: str
    file: str
    topics: dict[str, list[tuple[str | None, str]]]
    settings: str = "{}\n"
    more: dict[str, str] = field(default_factory=dict)


def _payments() -> list[tuple[str | None, str]]:
    records: list[tuple[str | None, str]] = []
    for number in range(20):
        payment = {
            "id": f"p-{number}",
            "amount": number + 0.25,
            "status": "PAID" if number % 4 else "OPEN",
            "created_at": f"2026-11-30T08:{number:02}:00Z",
        }
        if number in (7, 15):
            payment["amount"] = "-566,000"
        records.append((f"p-{number}", json.dumps(payment)))
    return records


def _nested() -> list[tuple[str | None, str]]:
    values = [
        ("p-1", "4711 0001", "2026/11/30 17:00:00", "12.50", "sale"),
        ("p-2", "4711 0002", "today", "7", "sale"),
        ("p-3", "4711 0003", "2026/11/30 17:02:00", "1200", "test"),
    ]
    return [
        (None, json.dumps({"id": id_, "payload": {"card": card, "at": at, "amount": amount}, "kind": kind}))
        for id_, card, at, amount, kind in values
    ]


def _events() -> list[tuple[str | None, str]]:
    types = ["INS", "UPD", "INS", "DEL", "LOGIN"]
    return [
        (None, json.dumps({"id": f"e-{n}", "type": type_, "at": f"2026-11-30T08:0{n}:00Z", "amount": n}))
        for n, type_ in enumerate(types)
    ]


PAYMENTS = _payments()
"""Twenty payments; two have an amount that is no number."""

LAKES = {
    "events": Lake("events", "", {"events": _events()}),
    "nested": Lake("payments", "", {"payments": _nested()}),
    "payments": Lake(
        "payments",
        """\
stream: payments
source: {topics: [payments]}
decode:
  value: json
  schema: "id string not null, amount decimal(12,2), status string, created_at timestamptz"
table: {name: orders.payments}
""",
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
    for path, text in lake.more.items():
        (folder / path).write_text(text)
    address = LocalBroker(folder / ".frazil" / "broker", detached=True).start()
    for topic, records in lake.topics.items():
        produce(address, topic, records)
    if run:
        subprocess.run(["frazil", "run", lake.stream], cwd=folder, check=True)


def produce(address: str, topic: str, records: Sequence[tuple[str | None, str]]) -> None:
    """Produce records, a minute apart, to a topic of one partition, which is created if it is missing."""
    admin = AdminClient({"bootstrap.servers": address})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": address})
    for number, (key, value) in enumerate(records):
        producer.produce(topic, value, key, timestamp=_FIRST + number * _MINUTE, partition=0)
    producer.flush(30)


if __name__ == "__main__":
    make_lake(sys.argv[1], Path("lake"), run="--run" in sys.argv[2:])
