"""Formats of the payments: how they are written to a topic, and the converter by which the Connect sink reads them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from typing import Literal, TypeAlias, get_args

from bench.avro_payments import AvroPayments
from bench.protobuf_payments import ProtobufPayments
from bench.versus.enveloped import enveloped
from bench.versus.records import Payments, Size, schema_text
from jobs.clients.registry.client import registry_client
from jobs.config.services.registry import RegistrySettings
from jobs.records.schema.parser import parse_schema

Format: TypeAlias = Literal["json", "avro", "protobuf", "connect_json"]
FORMATS: tuple[Format, ...] = get_args(Format)

_JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
# Confluent's API of the local registry, and its own, which its converter asks.
_CONFLUENT_API, _OWN_API = "/apis/ccompat/v7", "/apis/registry/v2"


@dataclass(frozen=True, slots=True)
class PaymentFormat:
    """Names of a format, and its reader.

    Attributes:
        title: Title for people.
        registry_kind: The registry's name for its schemas; None where none is needed.
        converter: The sink's, for people; None where the sink reads no such payments.
    """

    title: str
    registry_kind: str | None
    converter: str | None


PAYMENT_FORMATS: Mapping[Format, PaymentFormat] = {
    "json": PaymentFormat("plain JSON", None, "JsonConverter, `schemas.enable=false`"),
    "avro": PaymentFormat(
        "Avro, schema in a registry",
        "AVRO",
        "Apicurio's AvroConverter, `as-confluent`, which reads the same ids from the same registry",
    ),
    # Apicurio's converter of Protobuf makes structs of Timestamp, Date and Decimal, which fit no such column.
    "protobuf": PaymentFormat("Protobuf, schema in a registry", "PROTOBUF", None),
    "connect_json": PaymentFormat("JSON with its schema in each record", None, "JsonConverter, `schemas.enable=true`"),
}


def converter_properties(format_: Format, registry: str | None) -> dict[str, str]:
    """The worker's properties of the converter of values.

    Args:
        format_: Format with a converter.
        registry: The local registry's URL, for formats that need it.
    """
    if format_ != "avro":
        enabled = "true" if format_ == "connect_json" else "false"
        return {"value.converter": _JSON_CONVERTER, "value.converter.schemas.enable": enabled}
    assert registry is not None, "Avro has its schema in a registry"
    options = {
        "url": registry.replace(_CONFLUENT_API, _OWN_API),
        # Confluent's wire format: ids of four bytes, by which its API means the registry's ids of contents.
        "as-confluent": "true",
        "use-id": "contentId",
    }
    return {
        "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        **{f"value.converter.apicurio.registry.{key}": value for key, value in options.items()},
    }


def register(format_: Format, size: Size, topic: str, registry: str) -> int:
    """Register the schema of a topic's payments; returns its id.

    Args:
        format_: A format whose schemas are in a registry.
        size: Size of the payments.
        topic: Topic whose values have the schema.
        registry: URL of the registry.
    """
    declared = parse_schema(schema_text(size))
    kind = PAYMENT_FORMATS[format_].registry_kind
    assert kind is not None, f"{format_} needs no registry"
    text = (AvroPayments if format_ == "avro" else ProtobufPayments)(declared).schema.text
    client = registry_client(RegistrySettings(url=(registry,)))
    try:
        return client.register(f"{topic}-value", kind, text)
    finally:
        client.close()


def written(chunks: Iterable[Payments], format_: Format, size: Size, schema_id: int | None) -> Iterator[Payments]:
    """Payments in a format, in their order.

    Args:
        chunks: Payments as JSON.
        format_: Theirs.
        size: Size of the payments.
        schema_id: Id of their schema, where it is in a registry.
    """
    if format_ == "json":
        yield from chunks
        return
    # The producer's threads are not there after a fork.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        waiting: deque[tuple[Payments, Future[list[bytes]]]] = deque()
        for chunk in chunks:
            waiting.append((chunk, pool.submit(_encoded, chunk.values, format_, size, schema_id)))
            if len(waiting) > 2 * (os.cpu_count() or 1):
                yield _next(waiting)
        while waiting:
            yield _next(waiting)


def _next(waiting: deque[tuple[Payments, Future[list[bytes]]]]) -> Payments:
    chunk, values = waiting.popleft()
    return replace(chunk, values=values.result())


def _encoded(values: Sequence[bytes], format_: Format, size: Size, schema_id: int | None) -> list[bytes]:
    return encoder(format_, size, schema_id)(values)


@cache
def encoder(format_: Format, size: Size, schema_id: int | None) -> Callable[[Sequence[bytes]], list[bytes]]:
    """Function that encodes payments from JSON to a format; cached in each encoding process.

    Args:
        format_: Format other than JSON.
        size: Size of the payments.
        schema_id: Id of their schema; None for a format without a registry.
    """
    declared = parse_schema(schema_text(size))
    if format_ == "connect_json":
        return partial(enveloped, declared)
    assert schema_id is not None, f"{format_} has its schema in a registry"
    payments = (AvroPayments if format_ == "avro" else ProtobufPayments)(declared, schema_id)
    return lambda values: [payments.record(value) for value in values]
