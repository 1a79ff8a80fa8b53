"""Payments of the demo in formats whose schemas a registry keeps, and the deployment that lands them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from jobs.formats.known_formats import FORMATS
from jobs.formats.writer_schema import WriterSchema
from jobs.registry.client import registry_client
from jobs.spec.settings import Settings
from jobs.system.private_files import private_folder
from orchestration.cli.demo.payments import Kind, Record, WriteValue, json_value
from resources.deployment import STREAMS_FOLDER, Deployment

_AVRO = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "payer", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "created_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "document", "type": ["null", "string"], "default": None},
        {"name": "type", "type": ["null", "string"], "default": None},
    ],
}
_PROTOBUF = """\
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Payment {
  string id = 1;
  string payer = 2;
  int64 amount_cents = 3;
  google.protobuf.Timestamp created_at = 4;
  string document = 5;
  string type = 6;
}
"""
_STREAM = """\
# Written by `frazil demo --format {format}`: payments whose schema is in a registry.
stream: payments
description: Card payments as {title}, one row per event.
source:
  topics: [payments]
  max_records_per_batch: 100_000
decode:
  value: {format}
  schema: registry                # the columns are those of the subject payments-value
table:
  name: orders.payments
  partition_by: [day(created_at)]
errors:
  dead_letters: {{table: orders.payments_dead}}
  stop_above: {{ratio: 0.05}}
trigger: {{every: 10s}}
"""

Encode = Callable[[Record, datetime], bytes]


@dataclass(frozen=True, slots=True)
class _DemoFormat:
    """How the demo writes payments.

    Attributes:
        title: For people.
        kind: What registries call its schemas.
        schema: Its text.
        behind_id: What follows the id of the schema in each value.
        encoder: Makes what writes the payment itself.
    """

    title: str
    kind: str
    schema: str
    behind_id: bytes
    encoder: Callable[[], Encode]


def _avro() -> Encode:
    from fastavro import parse_schema, schemaless_writer

    schema = parse_schema(_AVRO)

    def encode(record: Record, created_at: datetime) -> bytes:
        buffer = io.BytesIO()
        amount = Decimal(str(record["amount"])).quantize(Decimal("0.01"))
        schemaless_writer(buffer, schema, record | {"amount": amount, "created_at": created_at})
        return buffer.getvalue()

    return encode


def _protobuf() -> Encode:
    from google.protobuf.message_factory import GetMessageClass

    from jobs.formats.protobuf.compile import message_of

    make: Any = GetMessageClass(message_of(WriterSchema(_PROTOBUF, message=(0,))))

    def encode(record: Record, created_at: datetime) -> bytes:
        cents = int(Decimal(str(record["amount"])).quantize(Decimal("0.01")) * 100)
        texts = {name: record[name] for name in ("id", "payer", "document", "type")}
        message = make(amount_cents=cents, **texts)
        message.created_at.FromDatetime(created_at)
        return message.SerializeToString()

    return encode


_FORMATS: Mapping[str, _DemoFormat] = {
    "avro": _DemoFormat("Avro", "AVRO", json.dumps(_AVRO), b"", _avro),
    "protobuf": _DemoFormat("Protobuf", "PROTOBUF", _PROTOBUF, b"\0", _protobuf),
}
DEMO_FORMATS = tuple(each for each in _FORMATS if each in FORMATS)
"""Formats of the demo that need a registry, by the name that a stream's file gives them."""


def format_deployment(deployment: Deployment, format_: str) -> Deployment:
    """The deployment of the demo in a format: a home of its own, with its stream and a local registry."""
    home = deployment.embedded / "demo" / format_
    made = Deployment.at(home)
    private_folder(made.streams_folder)
    # Where the folder is, the settings name the local registry.
    private_folder(made.embedded / "registry")
    (home / STREAMS_FOLDER / "payments.yaml").write_text(_STREAM.format(format=format_, title=_FORMATS[format_].title))
    return made


def payment_writer(format_: str, topic: str, settings: Settings) -> WriteValue | None:
    """What writes payments in a format, whose schema it registers; None where no registry has one.

    Raises:
        FrazilError: The registry does not take the schema.
        RegistryError: It cannot be asked.
    """
    if format_ not in _FORMATS:
        return None
    demo = _FORMATS[format_]
    client = registry_client(settings.registry)
    try:
        number = client.register(f"{topic}-value", demo.kind, demo.schema)
    finally:
        client.close()
    return registry_writer(format_, number)


def registry_writer(format_: str, number: int) -> WriteValue:
    """What writes payments in a format, as the serializers of a registry do.

    Args:
        format_: One of `DEMO_FORMATS`.
        number: The registry's id of the schema.
    """
    demo = _FORMATS[format_]
    prefix, encode = b"\0" + number.to_bytes(4, "big") + demo.behind_id, demo.encoder()

    def write(record: Record, created_at: datetime, kind: Kind, rng: random.Random) -> bytes | None:
        if kind in ("tombstone", "empty_value"):
            return json_value(record, created_at, kind, rng)
        if kind == "missing_field":
            # A producer that does not know of the registry.
            return json_value(record, created_at, "good", rng)
        value = prefix + encode(record, created_at.astimezone(UTC))
        if kind == "wrong_type":
            # The first field's bytes are none of a text.
            return prefix + b"\xff" * len(value)
        return value[: len(prefix) + rng.randrange(1, 20)] if kind == "truncated_json" else value

    return write
