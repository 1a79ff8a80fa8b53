"""Load of the topic that both sides read: once for all rounds, and for all commands that keep its broker's folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.versus.formats import PAYMENT_FORMATS, Format, register, written
from bench.versus.records import Size, payments
from jobs.base.errors import FrazilError
from jobs.clients.kafka.record_producer import RecordProducer, ensure_topic
from jobs.clients.state_store.durable_files import write_durably
from orchestration.cli.local.demo.payments import PARTITIONS

_FLUSH_SECONDS = 120.0
_PATIENCE_SECONDS = 20.0
# As the demo's producer sends them: what a consumer fetches and unpacks depends on it.
PRODUCER = {"compression.type": "lz4", "linger.ms": 50, "batch.num.messages": 10_000}


@dataclass(frozen=True, slots=True)
class Load:
    """Payments in a topic.

    Args:
        topic: Name of the topic.
        size: Size of each payment.
        records: Number of records.
        value_bytes: Sum of the sizes of all values, without keys.
        cents: Sum of all amounts in cents.
        format: Format of the values.
    """

    topic: str
    size: Size
    records: int
    value_bytes: int
    cents: int
    format: Format = "json"


def loaded(
    folder: Path,
    address: str,
    size: Size,
    records: int,
    say: Callable[[str], None],
    *,
    format_: Format = "json",
    registry: str | None = None,
) -> Load:
    """Fill a topic of four partitions with payments, unless the broker of this folder has it already.

    Args:
        folder: Folder with a note for each full topic.
        address: Address of the broker.
        size: Size of each payment.
        records: Number of records.
        say: Callback for the progress.
        format_: Format of the values.
        registry: The local registry's URL, for formats that need it; their schema is registered there.

    Raises:
        FrazilError: The broker refuses, or does not have all records in the end; the registry refuses the schema.
    """
    topic = f"payments-{size}-{records}" + ("" if format_ == "json" else f"-{format_}")
    note = folder / f"{topic}.json"
    if note.exists():
        return Load(**json.loads(note.read_bytes()))
    ensure_topic(address, topic)
    if found := _records_in(address, topic):
        raise FrazilError(
            f"topic {topic} holds {found:,} records of a load that was not finished.", fix="remove the folder --keep"
        )
    schema_id = None
    if PAYMENT_FORMATS[format_].registry_kind:
        assert registry is not None, f"{format_} has its schema in a registry"
        schema_id = register(format_, size, topic, registry)
    load = _fill(address, Load(topic, size, records, 0, 0, format_), schema_id, say)
    write_durably(note, json.dumps(asdict(load)).encode())
    return load


def _fill(address: str, load: Load, schema_id: int | None, say: Callable[[str], None]) -> Load:
    """Produce what a load names; returns it with what became of it."""
    topic, records = load.topic, load.records
    options = {"bootstrap.servers": address, "queue.buffering.max.messages": 1_000_000, **PRODUCER}
    producer = RecordProducer(**options)
    began, said, sent, value_bytes, cents = time.monotonic(), 0.0, 0, 0, 0
    for chunk in written(payments(load.size, records), load.format, load.size, schema_id):
        for key, value in zip(chunk.keys, chunk.values, strict=True):
            producer.produce(topic, value, key)
        producer.poll()
        sent += len(chunk.values)
        value_bytes += sum(map(len, chunk.values))
        cents += chunk.cents
        if time.monotonic() - said > 5:
            said = time.monotonic()
            say(f"{topic}: {sent:,} of {records:,} records produced")
    producer.flush(_FLUSH_SECONDS)
    if (found := _records_in(address, topic)) != records:
        raise FrazilError(f"topic {topic} has {found:,} of {records:,} records.", fix="run this again")
    say(f"{topic}: {records:,} records of {value_bytes / records:.0f} bytes in {time.monotonic() - began:.0f} s")
    return replace(load, value_bytes=value_bytes, cents=cents)


def _records_in(address: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench-count", "log_level": 0})
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        while True:
            try:
                marks = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=5) for n in range(PARTITIONS)]
                return sum(high - low for low, high in filter(None, marks))
            except KafkaException:
                # The partitions of a topic that was just made have no leader yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()
