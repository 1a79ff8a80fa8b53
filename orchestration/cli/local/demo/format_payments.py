"""Payments of the demo in other formats than plain JSON: made as `frazil generate` makes records of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from jobs.base.system.private_files import private_folder
from jobs.clients.registry.client import registry_client
from jobs.clients.registry.failures import NotInRegistryError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.local.generate.derived_schema import derived_schema
from jobs.local.generate.record import generated
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from orchestration.cli.local.demo.payments import BAD_SHARE, MakePayment, Payment
from orchestration.cli.local.generate import Subjects, stream_generator
from resources.deployment import STREAMS_FOLDER, Deployment

DEMO_FORMATS: Mapping[str, str] = {
    "avro": "Avro",
    "protobuf": "Protobuf",
    "json_schema": "JSON Schema",
    "connect_json": "Connect's JSON",
}
"""Formats of the demo that have a home of their own, by the name that a stream's file gives them; with their titles."""
_COLUMNS = (
    "id string not null, payer string not null, amount decimal(12,2) not null, created_at timestamptz not null, "
    "document string, type string"
)
_PROTOBUF = """\
syntax = "proto3";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
message Payment {
  string id = 1;
  string payer = 2;
  confluent.type.Decimal amount = 3 [
    (confluent.field_meta).params = {key: "precision" value: "12"},
    (confluent.field_meta).params = {key: "scale" value: "2"}
  ];
  google.protobuf.Timestamp created_at = 4;
  optional string document = 5;
  optional string type = 6;
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


def format_deployment(deployment: Deployment, format_: str) -> Deployment:
    """The deployment of the demo in a format: a home with its stream, and with a local registry if it needs one.

    Args:
        format_: One of `DEMO_FORMATS`, or `json` where the deployment has no stream for the demo.
    """
    home = deployment.embedded / "demo" / format_
    made = Deployment.at(home)
    private_folder(made.streams_folder)
    with_registry = format_ in DEMO_FORMATS and FORMATS[format_].registry_kind is not None
    if with_registry:
        # Where the folder is, the settings name the local registry.
        private_folder(made.embedded / "registry")
    if format_ == "json":
        where, schema = "declared here", _COLUMNS
    else:
        where, schema = ("in a registry", _OF_REGISTRY) if with_registry else ("in each of them", _COLUMNS)
    text = _STREAM.format(format=format_, title=DEMO_FORMATS.get(format_, "JSON"), where=where, schema=schema)
    (home / STREAMS_FOLDER / "payments.yaml").write_text(text)
    return made


def payment_maker(spec: StreamSpec, topic: str, settings: Settings) -> MakePayment | None:
    """The maker of a stream's payments; None for plain JSON.

    A registry gets the schema of the demo's columns, unless it has one for the topic.

    Raises:
        FrazilError: The registry does not take the schema.
        RegistryError: The registry is unavailable.
    """
    format_, subject = spec.decode.format, f"{topic}-value"
    if format_ not in DEMO_FORMATS:
        return None
    if (kind := FORMATS[format_].registry_kind) is not None:
        client = registry_client(settings.registry)
        try:
            client.version(subject)
        except NotInRegistryError:
            client.register(subject, kind, payment_schema(format_))
        finally:
            client.close()
    generator = stream_generator(spec, settings, Subjects(subject, f"{topic}-key"))

    def make(number: int, created_at: datetime) -> Payment:
        made = generated(generator, "demo", number, created_at, BAD_SHARE)
        return Payment(made.key, made.value, made.kind)

    return make


def payment_schema(format_: str) -> str:
    """The schema of the payments that a registry gets."""
    if format_ == "protobuf":
        return _PROTOBUF
    return derived_schema(format_, iceberg_schema(parse_schema(_COLUMNS)).fields, "payment")
