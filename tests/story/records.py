"""Records that the story produces, with the row or the dead letter that each of them has to become.

Rows are written down here as Python values, before they are encoded: what lands is compared with them, and no decoder
of frazil takes part in saying what is right.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.helpers.topics import create_topic, idempotent_producer

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""
Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN = datetime(2026, 11, 1, 22, tzinfo=UTC)
TOKYO = timezone(timedelta(hours=9))


@dataclass(frozen=True, slots=True)
class Record:
    """A record of Kafka, and what it has to become.

    Attributes:
        row: The row's values by column; None if the record becomes no row.
        error: Class of its dead letter; None if it becomes none.
        corrected: The row that its dead letter becomes when it is replayed with the story's correction; None of others.
        key: The record's key.
        headers: Name and value of each.
    """

    value: bytes | None
    row: Row | None = None
    error: str | None = None
    corrected: Row | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Topic:
    """A topic of the story, and all records that were produced to it, by place.

    Args:
        address: The broker.
        name: Name of the topic, which is created.
    """

    def __init__(self, address: str, name: str, partitions: int = 2) -> None:
        self.name: str = name
        self.records: dict[Place, Record] = {}
        self._partitions: int = partitions
        self._address: str = address
        create_topic(address, name, partitions)

    def produce(self, records: Iterable[Record]) -> None:
        """Produce records, in turn over the partitions, and keep the offset that the broker gives each."""
        producer = idempotent_producer(self._address, self.name)
        for number, record in enumerate(records):
            producer.produce(
                self.name,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=number % self._partitions,
                on_delivery=partial(self._delivered, record),
            )
            producer.poll(0)
        assert producer.flush(120) == 0

    def _delivered(self, record: Record, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        self.records[self.name, partition, offset] = record

    @property
    def rows(self) -> dict[Place, Row]:
        """The row of each record that has to become one."""
        return {place: record.row for place, record in self.records.items() if record.row is not None}

    @property
    def corrected(self) -> dict[Place, Row]:
        """The row of each record whose dead letter comes back with the correction."""
        return {place: record.corrected for place, record in self.records.items() if record.corrected is not None}

    @property
    def errors(self) -> dict[Place, str]:
        """The class of each record that has to become a dead letter."""
        return {place: record.error for place, record in self.records.items() if record.error is not None}

    @property
    def tombstones(self) -> int:
        """How many records have no value."""
        return sum(record.value is None for record in self.records.values())

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the records, as `frazil run --json` has them."""
        return {
            "read": len(self.records),
            "landed": len(self.rows),
            "dead": len(self.errors),
            "tombstones": self.tombstones,
            "filtered": 0,
        }

    def committed(self, group: str) -> dict[str, dict[str, int]]:
        """Offsets that a consumer group has committed, in the form of `position`.

        Args:
            group: Name of the consumer group.
        """
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": group, "enable.auto.commit": False})
        try:
            asked = [TopicPartition(self.name, partition) for partition in range(self._partitions)]
            found = consumer.committed(asked, timeout=60)
        finally:
            consumer.close()
        return {self.name: {str(each.partition): each.offset for each in found}}

    @property
    def position(self) -> dict[str, dict[str, int]]:
        """The offset behind the last record of each partition, as JSON of frazil has positions."""
        ends = {str(partition): 0 for partition in range(self._partitions)}
        for _, partition, offset in self.records:
            ends[str(partition)] = max(ends[str(partition)], offset + 1)
        return {self.name: ends}


def payment_row(number: int) -> Row:
    """The row of a payment: decimals of both signs and sizes, microseconds, null and nested values."""
    amount = Decimal("9999999999.99") if number == 0 else Decimal(number * 137 - 4_000) / 100
    return {
        "id": f"p-{number} é",
        "amount": amount,
        "created_at": BEGIN + timedelta(minutes=number, microseconds=number * 1_001),
        "due": None if number % 3 == 0 else date(2027, 1, 1) + timedelta(days=number),
        "payer": None if number % 7 == 0 else {"name": f"payer {number}", "city": None if number % 2 else "Köln"},
        "items": [{"sku": f"s{item}", "quantity": None if item else number} for item in range(number % 3)],
    }


def payment(number: int, **changed: Any) -> bytes:
    """A payment as JSON: the amount as a number, the time in Tokyo's zone.

    Args:
        number: Number of the payment.
        changed: Fields that are sent otherwise.
    """
    row = payment_row(number)
    document = row | {
        # A float of this size prints its two digits as they are.
        "amount": float(row["amount"]),
        "created_at": row["created_at"].astimezone(TOKYO).isoformat(),
        "due": row["due"] and row["due"].isoformat(),
        "no_column_for_this": number,
    }
    return json.dumps(document | changed, ensure_ascii=False).encode()


def payments(numbers: Sequence[int]) -> list[Record]:
    """Payments, most of them good: some are cut off, have a wrong type or a null, or are tombstones."""
    return [_payment_record(number) for number in numbers]


def _payment_record(number: int) -> Record:
    match number % 30:
        case 11:
            return Record(payment(number)[:40], error="malformed_json")
        case 14:
            return Record(payment(number, amount="12,50"), error="wrong_type")
        case 17:
            return Record(payment(number, amount=None), error="null_in_required")
        case 20:
            # A producer that sends milliseconds since 1970; the correction reads them as such.
            at = payment_row(number)["created_at"].replace(microsecond=456_000)
            sent = payment(number, created_at=(at - EPOCH) // timedelta(milliseconds=1))
            return Record(sent, error="wrong_type", corrected=payment_row(number) | {"created_at": at})
        case 23:
            return Record(None)
        case _:
            return Record(payment(number), payment_row(number))


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


_LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": _decimal(9, 3)}],
}
_CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "name", "type": "string"}, {"name": "vip", "type": "boolean"}],
}


def _invoice_schema(quantity: str, more: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Invoice",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "total", "type": _decimal(12, 2)},
            {"name": "issued", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "quantity", "type": quantity},
            {"name": "customer", "type": _CUSTOMER},
            {"name": "lines", "type": {"type": "array", "items": _LINE}},
            {"name": "note", "type": ["null", "string"], "default": None},
            *more,
        ],
    }


INVOICE_V1 = _invoice_schema("int")
"""Schema of the first invoices."""
INVOICE_V2 = _invoice_schema("long", [{"name": "discount", "type": ["null", _decimal(5, 2)], "default": None}])
"""Its next version: `quantity` is wider, and `discount` is new and optional."""


def invoice_row(number: int) -> Row:
    """The row of an invoice of the first schema."""
    return {
        "id": f"i-{number}",
        "total": Decimal(number * 1_009 - 30_000) / 100,
        "issued": BEGIN + timedelta(hours=number % 5, microseconds=number),
        "quantity": number - 20,
        "customer": {"name": f"customer {number}", "vip": number % 4 == 0},
        "lines": [{"sku": f"s{line}", "price": Decimal(number * 10 + line) / 1_000} for line in range(1 + number % 2)],
        "note": None if number % 3 else f"note {number}",
    }


def wider_invoice_row(number: int) -> Row:
    """The row of an invoice of the second schema: a quantity beyond 32 bits, and a discount or none."""
    return invoice_row(number) | {
        "quantity": 2**40 + number,
        "discount": None if number % 2 else Decimal(number * 5) / 100,
    }


def avro(schema: dict[str, Any], schema_id: int, row: Row) -> bytes:
    """A row as Avro behind the id of its schema, as serializers of a registry write it."""
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, fastavro.parse_schema(schema), row)
    return struct.pack(">bI", 0, schema_id) + encoded.getvalue()


def invoices(numbers: Iterable[int], schema_id: int, unknown_id: int) -> list[Record]:
    """Invoices of the first schema; some are cut off, name no schema, or one that the registry does not have."""
    records: list[Record] = []
    for number in numbers:
        row = invoice_row(number)
        encoded = avro(INVOICE_V1, schema_id, row)
        match number % 20:
            case 7:
                records.append(Record(encoded[:-3], error="malformed_avro"))
            case 11:
                records.append(Record(b"plain text", error="no_schema_id"))
            case 13:
                records.append(Record(avro(INVOICE_V1, unknown_id, row), error="unknown_schema"))
            case 17:
                records.append(Record(None))
            case _:
                records.append(Record(encoded, row))
    return records


def wider_invoices(numbers: Iterable[int], schema_id: int) -> list[Record]:
    """Invoices of the second schema."""
    rows = [wider_invoice_row(number) for number in numbers]
    return [Record(avro(INVOICE_V2, schema_id, row), row) for row in rows]


PAID_BY = ("card", "wallet", "bank", "bank transfer", "cash", None)


def order_row(number: int) -> Row:
    """The row of an order, with all columns that a table of orders may have."""
    return {
        "id": number,
        "paid_by": PAID_BY[number % len(PAID_BY)],
        "total": Decimal(number * 7) / 100,
        "placed_at": BEGIN + timedelta(seconds=number),
    }


def orders(numbers: Iterable[int]) -> list[Record]:
    """Orders, of which some lack their total."""
    records: list[Record] = []
    for number in numbers:
        row = order_row(number)
        document = row | {"total": float(row["total"]), "placed_at": row["placed_at"].isoformat()}
        if number % 25 == 24:
            del document["total"]
            records.append(Record(json.dumps(document).encode(), error="missing_field"))
        else:
            records.append(Record(json.dumps(document).encode(), row))
    return records


def refunds(numbers: Iterable[int]) -> list[Record]:
    """Refunds; the amount is a hundredth of the number."""
    rows = [{"id": number, "amount": Decimal(number) / 100} for number in numbers]
    return [Record(json.dumps(row | {"amount": float(row["amount"])}).encode(), row) for row in rows]
