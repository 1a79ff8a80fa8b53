from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.base.errors import StreamStopped
from jobs.clients.registry.failures import NotInRegistryError, RegistryUnavailableError
from jobs.clients.registry.known_schemas import (
    COMPARED,
    KEY,
    MOST_CHARACTERS,
    MOST_SCHEMAS,
    KnownSchemas,
    RegistryRemadeError,
    forget_known_schemas,
    read_known_schemas,
    registry_of,
    same_schema,
)
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from tests.helpers.memory_store import InMemoryStore

REGISTRY = "http://registry:8081"
IDS = st.builds(SchemaId, st.integers(0, 2**32 - 1)) | st.builds(lambda guid: SchemaId(None, guid.hex), st.uuids())
SCHEMAS = st.builds(
    RegistrySchema,
    st.sampled_from(["AVRO", "PROTOBUF", "JSON"]),
    st.builds(WriterSchema, st.text(), st.lists(st.tuples(st.text(), st.text()), max_size=3).map(tuple)),
)


def avro(text: str) -> RegistrySchema:
    return RegistrySchema("AVRO", WriterSchema(text))


def known(store: InMemoryStore, registry: str = REGISTRY) -> KnownSchemas:
    return KnownSchemas(store, registry, "payments")


@given(st.dictionaries(IDS, SCHEMAS, max_size=5))
def test_what_was_learned_is_known_to_the_next_driver(learned: dict[SchemaId, RegistrySchema]) -> None:
    store = InMemoryStore()
    known(store).add(learned)
    assert known(store).schemas == learned
    assert read_known_schemas(store) == learned


def test_another_registry_begins_anew() -> None:
    store = InMemoryStore()
    known(store).add({SchemaId(1): avro('"int"')})
    other = known(store, "http://other:8081")
    assert other.schemas == {}
    other.add({SchemaId(1): avro('"long"')})
    assert known(store, "http://other:8081").schemas == {SchemaId(1): avro('"long"')}
    assert known(store).schemas == {}
    assert registry_of(store) == "http://other:8081"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"registry": 5}', b'{"registry": "\xff"}'])
def test_a_damaged_document_is_none(content: bytes) -> None:
    store = InMemoryStore()
    store.put(KEY, content)
    assert known(store).schemas == {}
    assert registry_of(store) is None


def test_it_is_written_only_when_there_is_something_new() -> None:
    store = InMemoryStore()
    schemas = known(store)
    schemas.add({SchemaId(1): avro('"int"')})
    store.delete(KEY)
    schemas.add({SchemaId(1): avro('"int"')})
    assert store.get(KEY) is None


def test_it_is_bounded_and_the_newest_stay() -> None:
    store = InMemoryStore()
    schemas = known(store)
    schemas.add({SchemaId(number): avro(f'"{number}"') for number in range(MOST_SCHEMAS + 10)})
    assert list(schemas.schemas) == [SchemaId(number) for number in range(10, MOST_SCHEMAS + 10)]
    big = "x" * (MOST_CHARACTERS // 2)
    schemas.add(
        {SchemaId(9000): avro(big), SchemaId(9001): avro(big), SchemaId(9002): avro("x" * (MOST_CHARACTERS + 1))}
    )
    assert list(schemas.schemas) == [SchemaId(9000), SchemaId(9001)]


def test_a_known_id_with_another_schema_stops_the_stream() -> None:
    schemas = known(InMemoryStore())
    schemas.add({SchemaId(1): avro('"int"')})
    with pytest.raises(RegistryRemadeError, match="id 1 was another schema before"):
        schemas.add({SchemaId(1): avro('"long"')})
    schemas.add({SchemaId(1): avro(' "int" ')})


class Registry:
    def __init__(self, schemas: dict[int, str]) -> None:
        self.schemas = schemas
        self.asked: list[int] = []
        self.away = False

    def ask(self, schema_id: SchemaId) -> RegistrySchema:
        number = schema_id.number or 0
        self.asked.append(number)
        if self.away:
            raise RegistryUnavailableError("away")
        if number not in self.schemas:
            raise NotInRegistryError("no such id")
        return avro(self.schemas[number])


def test_some_are_compared_at_a_start() -> None:
    store = InMemoryStore()
    texts = {number: f'"{number}"' for number in range(20)}
    known(store).add({SchemaId(number): avro(text) for number, text in texts.items()})
    registry = Registry(texts)
    assert known(store).compare(registry.ask)
    assert registry.asked == [0, 1, 17, 18, 19]
    assert len(registry.asked) == COMPARED


def test_a_registry_that_was_made_anew_stops_the_stream_with_the_way_on() -> None:
    store = InMemoryStore()
    known(store).add({SchemaId(1): avro('"int"'), SchemaId(2): avro('"long"')})
    with pytest.raises(StreamStopped) as told:
        known(store).compare(Registry({1: '"int"', 2: '"string"'}).ask)
    assert "stream payments: the schema registry at http://registry:8081 was recreated: id 2 is another" in str(
        told.value
    )
    assert told.value.fix is not None
    assert told.value.fix.endswith("frazil registry forget payments")


def test_a_registry_that_has_none_of_them_was_made_anew() -> None:
    store = InMemoryStore()
    known(store).add({SchemaId(1): avro('"int"'), SchemaId(2): avro('"long"')})
    with pytest.raises(RegistryRemadeError, match="it has none of the 2 schemas that were looked for"):
        known(store).compare(Registry({}).ask)


def test_a_schema_that_was_removed_for_good_is_still_known() -> None:
    store = InMemoryStore()
    known(store).add({SchemaId(1): avro('"int"'), SchemaId(2): avro('"long"')})
    assert known(store).compare(Registry({2: '"long"'}).ask)


def test_a_registry_that_is_away_keeps_nobody_from_starting() -> None:
    store = InMemoryStore()
    known(store).add({SchemaId(1): avro('"int"')})
    registry = Registry({})
    registry.away = True
    assert not known(store).compare(registry.ask)
    assert known(store).schemas == {SchemaId(1): avro('"int"')}


def test_nothing_known_is_nothing_to_compare() -> None:
    registry = Registry({})
    assert not known(InMemoryStore()).compare(registry.ask)
    assert registry.asked == []


def test_forgetting_begins_anew() -> None:
    store = InMemoryStore()
    known(store).add({SchemaId(1): avro('"int"')})
    assert forget_known_schemas(store) == 1
    assert known(store).schemas == {}
    assert forget_known_schemas(store) == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (avro('{"type":"int"}'), avro('{ "type" : "int" }'), True),
        (avro('{"type":"int"}'), avro('{"type":"long"}'), False),
        (avro("no json"), avro("no json"), True),
        (avro("no json"), avro("no  json"), False),
        (
            RegistrySchema("PROTOBUF", WriterSchema("message A {}")),
            RegistrySchema("PROTOBUF", WriterSchema("message  A {\n}\n")),
            True,
        ),
        (avro('"int"'), RegistrySchema("JSON", WriterSchema('"int"')), False),
        (
            RegistrySchema("AVRO", WriterSchema('"A"', (("A", '"int"'),))),
            RegistrySchema("AVRO", WriterSchema('"A"', (("A", '"long"'),))),
            False,
        ),
    ],
)
def test_blanks_make_no_other_schema(one: RegistrySchema, other: RegistrySchema, same: bool) -> None:
    assert same_schema(one, other) is same


def test_the_document_is_plain_json() -> None:
    store = InMemoryStore()
    known(store).add({SchemaId(7): avro('"int"')})
    assert json.loads(store.get(KEY) or b"") == {
        "registry": REGISTRY,
        "schemas": [{"kind": "AVRO", "text": '"int"', "number": 7}],
    }
