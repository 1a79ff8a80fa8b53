"""The client against a real registry: schemas of each kind, references, and what is refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from jobs.clients.registry.client import Reference, RegistryClient, registry_client
from jobs.clients.registry.failures import NotInRegistryError, RefusedSchemaError
from jobs.config.services.registry import RegistrySettings
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema

pytestmark = pytest.mark.integration


def record(name: str, **fields: str) -> str:
    made = [{"name": each, "type": type_} for each, type_ in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": made})


@pytest.fixture
def client(registry: str) -> Iterator[RegistryClient]:
    made = registry_client(RegistrySettings.model_validate({"url": registry, "timeout": "20s"}))
    yield made
    made.close()


@pytest.fixture
def subject() -> str:
    return f"t{uuid.uuid4().hex[:8]}-value"


def test_what_is_registered_is_found(client: RegistryClient, subject: str) -> None:
    client.check()
    text = record(f"A{subject[:9]}", x="int")
    number = client.register(subject, "AVRO", text)
    assert client.register(subject, "AVRO", text) == number
    schema = RegistrySchema("AVRO", WriterSchema(text))
    assert client.schema(SchemaId(number)) == schema
    assert client.used_by(SchemaId(number)) == [(subject, 1)]
    newest = client.version(subject)
    assert (newest.version, newest.id, newest.schema) == (1, number, schema)
    assert client.version(subject, 1) == newest
    assert client.versions(subject) == [1]
    assert client.subjects(subject[:9]) == [subject]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("PROTOBUF", 'syntax = "proto3"; message Payment { string id = 1; }'),
        ("JSON", '{"type":"object","properties":{"id":{"type":"string"}}}'),
    ],
)
def test_other_kinds_of_schemas(client: RegistryClient, subject: str, kind: str, text: str) -> None:
    number = client.register(subject, kind, text)
    assert client.schema(SchemaId(number)) == RegistrySchema(kind, WriterSchema(text))


def test_references_come_before_whoever_needs_them(client: RegistryClient, subject: str) -> None:
    inner, middle = record("Inner", x="int"), record("Middle", inner="Inner")
    outer = record("Outer", middle="Middle", inner="Inner")
    client.register(f"{subject}-inner", "AVRO", inner)
    to_inner = Reference("Inner", f"{subject}-inner", 1)
    client.register(f"{subject}-middle", "AVRO", middle, [to_inner])
    to_middle = Reference("Middle", f"{subject}-middle", 1)
    number = client.register(subject, "AVRO", outer, [to_middle, to_inner])
    assert client.schema(SchemaId(number)).schema == WriterSchema(outer, (("Inner", inner), ("Middle", middle)))


def test_what_it_does_not_know(client: RegistryClient, subject: str) -> None:
    client.register(subject, "AVRO", record("A", x="int"))
    for question in (
        lambda: client.schema(SchemaId(2_000_000_000)),
        lambda: client.schema(SchemaId(2**32 - 1)),
        lambda: client.schema(SchemaId(None, uuid.uuid4().hex)),
        lambda: client.version("nobody-value"),
        lambda: client.version(subject, 7),
        lambda: client.versions("nobody-value"),
        lambda: client.used_by(SchemaId(2_000_000_000)),
    ):
        with pytest.raises(NotInRegistryError):
            question()


def test_an_incompatible_schema_is_refused(client: RegistryClient, subject: str) -> None:
    client.register(subject, "AVRO", record("A", x="int"))
    with pytest.raises(RefusedSchemaError, match="Incompatible"):
        client.register(subject, "AVRO", record("A", x="string"))
    with pytest.raises(RefusedSchemaError):
        client.register(subject, "AVRO", "{no schema")
