"""The client and the look-up of schemas against a real registry: one that knows, lags, is away, or was made anew."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.formats.problems import UNKNOWN_SCHEMA, ValueProblem
from jobs.formats.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.local_registry.registry import LocalRegistry
from jobs.registry.client import Reference, RegistryClient, registry_client
from jobs.registry.connection import registry_connection
from jobs.registry.errors import NotInRegistryError, RefusedSchemaError, RegistryUnavailableError
from jobs.registry.known_schemas import KnownSchemas, RegistryRemadeError
from jobs.registry.lookup import RegistryLookup
from jobs.spec.registry import RegistrySettings
from jobs.state.local_store import LocalStore
from jobs.system.processes import wait_until_dead

pytestmark = pytest.mark.integration


def record(name: str, **fields: str) -> str:
    made = [{"name": each, "type": type_} for each, type_ in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": made})


def settings(url: str, **more: Any) -> RegistrySettings:
    return RegistrySettings.model_validate({"url": url, "timeout": "20s", **more})


@pytest.fixture
def client(registry: str) -> Iterator[RegistryClient]:
    made = registry_client(settings(registry))
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
    assert not client.is_compatible(subject, "AVRO", record("A", x="string"))
    assert client.is_compatible(subject, "AVRO", record("A", x="long"))
    assert client.is_compatible(f"{subject}-new", "AVRO", record("A", x="string"))
    with pytest.raises(RefusedSchemaError, match="Incompatible"):
        client.register(subject, "AVRO", record("A", x="string"))
    with pytest.raises(RefusedSchemaError):
        client.register(subject, "AVRO", "{no schema")


def test_a_registry_that_lags_behind_its_producers(registry: str, client: RegistryClient, subject: str) -> None:
    lookup = RegistryLookup(registry_connection(settings(registry, lag="60s")))
    # Ids are given in order, and no other test registers meanwhile.
    following = client.register(f"{subject}-before", "AVRO", record(f"B{subject[:9]}", x="int")) + 1
    text = record(f"A{subject[:9]}", x="int")
    with pytest.raises(NotInRegistryError):
        client.schema(SchemaId(following))
    later = threading.Timer(1.0, client.register, [subject, "AVRO", text])
    later.start()
    try:
        assert lookup.find(SchemaId(following)).schema.text == text
    finally:
        later.join()
    assert lookup.described(SchemaId(following)) == f"id {following} (subject {subject}, version 1)"


def test_an_unknown_id_is_a_record_at_fault(registry: str) -> None:
    lookup = RegistryLookup(registry_connection(settings(registry, lag="500ms")))
    with pytest.raises(ValueProblem) as told:
        lookup.find(SchemaId(1_999_999_999))
    assert told.value.error_class == UNKNOWN_SCHEMA
    assert told.value.message.startswith("needs the schema with id 1999999999, found none: The schema registry at ")


@pytest.mark.timeout(400)
def test_a_registry_that_is_killed_comes_back_or_is_made_anew(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "state")
    kept = LocalRegistry(tmp_path / "kept", detached=True)
    with kept:
        address = RegistrySettings(address_file=kept.folder / "address", timeout=settings("http://a").timeout)
        client = registry_client(address)
        number = client.register("a-value", "AVRO", record("A", x="int"))
        schema = client.schema(SchemaId(number))
        known = KnownSchemas(store, address.identity, "payments")
        known.add({SchemaId(number): schema})

        running = kept.running()
        assert running is not None
        os.kill(running[0], signal.SIGKILL)
        assert wait_until_dead(*running, seconds=20)
        with pytest.raises(RegistryUnavailableError, match="cannot be reached"):
            client.schema(SchemaId(number))
        # A driver that has seen the id starts, and its tasks know it.
        again = KnownSchemas(store, address.identity, "payments")
        assert not again.compare(client.schema)
        lookup = RegistryLookup(registry_connection(address), again.schemas)
        assert lookup.find(SchemaId(number)) == schema
        with pytest.raises(OSError, match="cannot be reached"):
            lookup.find(SchemaId(number + 1))

        kept.start()
        back = registry_client(address)
        assert again.compare(back.schema)
        assert back.schema(SchemaId(number)) == schema
        back.close()
        client.close()

    anew = LocalRegistry(tmp_path / "anew", detached=True, keep=False)
    with anew:
        address_of_new = RegistrySettings(address_file=anew.folder / "address")
        client = registry_client(address_of_new)
        with pytest.raises(RegistryRemadeError, match="it has none of the 1 schemas"):
            again.compare(client.schema)
        assert client.register("b-value", "AVRO", record("B", y="string")) == number
        with pytest.raises(RegistryRemadeError, match=f"id {number} is another schema there"):
            again.compare(client.schema)
        client.close()
    assert anew.running() is None
