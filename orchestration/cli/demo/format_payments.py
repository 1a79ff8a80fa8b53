"""Payments of the demo in other formats than plain JSON, and the deployment that lands them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from jobs.formats.connect_json.schema import connect_types
from jobs.formats.json_schema.schema import json_schema_types
from jobs.formats.known_formats import FORMATS
from jobs.formats.writer_schema import WriterSchema
from jobs.generate.derived_schema import derived_schema
from jobs.generate.json_encoding import JsonEncoder
from jobs.generate.rows import Row
from jobs.generate.values import RowEncoder, schema_prefix
from jobs.registry.client import registry_client
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.spec.settings import Settings
from jobs.system.private_files import private_folder
from orchestration.cli.demo.payments import Kind, Record, WriteValue, json_value
from resources.deployment import STREAMS_FOLDER, Deployment

_COLUMNS = (
    "id string not null, payer string not null, amount decimal(12,2) not null, created_at timestamptz not null, "
    "document string, type string"
)
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
# Written by `frazil demo --format {format}`: payments whose schema is {where}.
stream: payments
description: Card payments as {title}, one row per event.
source:
  topics: [payments]
  max_records_per_batch: 100_000
decode:
  value: {format}
  schema: {schema}
table:
  name: orders.payments
  partition_by: [day(created_at)]
errors:
  dead_letters: {{table: orders.payments_dead}}
  stop_above: {{ratio: 0.05}}
trigger: {{every: 10s}}
"""
_OF_REGISTRY = "registry                # the columns are those of the subject payments-value"


@dataclass(frozen=True, slots=True)
class _DemoFormat:
    """How the demo writes payments.

    Attributes:
        title: For people.
        schema: The text of their schema.
        encoder: Makes what writes the payment itself.
        message: Of Protobuf, the indexes of the message.
    """

    title: str
    schema: str
    encoder: Callable[[WriterSchema], RowEncoder]
    message: tuple[int, ...] | None = None


def _avro(schema: WriterSchema) -> RowEncoder:
    from jobs.generate.avro_encoding import AvroEncoder

    return AvroEncoder(schema, {})


def _protobuf(schema: WriterSchema) -> RowEncoder:
    from jobs.formats.protobuf.compile import message_of
    from jobs.generate.protobuf_encoding import ProtobufEncoder

    return ProtobufEncoder(message_of(schema), {})


def _derived(format_: str) -> str:
    return derived_schema(format_, iceberg_schema(parse_schema(_COLUMNS)).fields, "payment")


_FORMATS: Mapping[str, _DemoFormat] = {
    "avro": _DemoFormat("Avro", json.dumps(_AVRO), _avro),
    "protobuf": _DemoFormat("Protobuf", _PROTOBUF, _protobuf, (0,)),
    "json_schema": _DemoFormat(
        "JSON Schema", _derived("json_schema"), lambda schema: JsonEncoder(json_schema_types(schema), sends_null=False)
    ),
    "connect_json": _DemoFormat(
        "Connect's JSON", _derived("connect_json"), lambda schema: JsonEncoder(connect_types(schema.text))
    ),
}
DEMO_FORMATS = tuple(_FORMATS)
"""Formats of the demo that have a home of their own, by the name that a stream's file gives them."""


def format_deployment(deployment: Deployment, format_: str) -> Deployment:
    """The deployment of the demo in a format: a home with its stream, and with a local registry if it needs one."""
    home = deployment.embedded / "demo" / format_
    made = Deployment.at(home)
    private_folder(made.streams_folder)
    with_registry = FORMATS[format_].registry_kind is not None
    if with_registry:
        # Where the folder is, the settings name the local registry.
        private_folder(made.embedded / "registry")
    where, schema = ("in a registry", _OF_REGISTRY) if with_registry else ("in each of them", _COLUMNS)
    text = _STREAM.format(format=format_, title=_FORMATS[format_].title, where=where, schema=schema)
    (home / STREAMS_FOLDER / "payments.yaml").write_text(text)
    return made


def payment_writer(format_: str, topic: str, settings: Settings) -> WriteValue | None:
    """What writes payments in a format, whose schema it registers if a registry has to have it; None of plain JSON.

    Raises:
        FrazilError: The registry does not take the schema.
        RegistryError: It cannot be asked.
    """
    if format_ not in _FORMATS:
        return None
    kind = FORMATS[format_].registry_kind
    if kind is None:
        return format_writer(format_)
    client = registry_client(settings.registry)
    try:
        return format_writer(format_, client.register(f"{topic}-value", kind, _FORMATS[format_].schema))
    finally:
        client.close()


def format_writer(format_: str, number: int = 0) -> WriteValue:
    """What writes payments in a format, as its serializers do.

    Args:
        format_: One of `DEMO_FORMATS`.
        number: The registry's id of the schema, where one has it.
    """
    demo = _FORMATS[format_]
    encoder = demo.encoder(WriterSchema(demo.schema))
    before, behind = schema_prefix(number, demo.message), b""
    if FORMATS[format_].registry_kind is None:
        before, behind = b'{"schema":' + demo.schema.encode() + b',"payload":', b"}"

    def write(record: Record, created_at: datetime, kind: Kind, rng: random.Random) -> bytes | None:
        if kind in ("tombstone", "empty_value"):
            return json_value(record, created_at, kind, rng)
        if kind == "missing_field":
            # A producer that does not know of the schema.
            return json_value(record, created_at, "good", rng)
        body = encoder.encode(_row(record, created_at))
        if kind == "wrong_type":
            # Bytes that are no text, in the place of the first field or of all.
            return before + b"\xff" * len(body) + behind
        return (
            (before + body)[: len(before) + rng.randrange(1, 20)]
            if kind == "truncated_json"
            else before + body + behind
        )

    return write


def _row(record: Record, created_at: datetime) -> Row:
    amount = Decimal(str(record["amount"])).quantize(Decimal("0.01"))
    more = {"amount": amount, "amount_cents": int(amount * 100), "created_at": created_at.astimezone(UTC)}
    return record | more
