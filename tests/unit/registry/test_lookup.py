from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import timedelta

import pytest

from jobs.formats.problems import NO_SCHEMA_ID, UNKNOWN_SCHEMA, ValueProblem
from jobs.formats.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.registry.connection import registry_connection
from jobs.registry.failures import RegistryUnavailableError
from jobs.registry.lookup import RegistryLookup, unknown_ids_mean_away
from jobs.spec.registry import RegistrySettings
from tests.helpers.registry_server import RegistryServer, serving

INT = RegistrySchema("AVRO", WriterSchema('"int"'))


def settings(url: str, **more: object) -> RegistrySettings:
    return RegistrySettings.model_validate({"url": url, "timeout": timedelta(seconds=5), "lag": "100ms", **more})


def test_what_the_driver_knows_is_known_without_the_registry() -> None:
    lookup = RegistryLookup(registry_connection(settings("http://127.0.0.1:1")), {SchemaId(5): INT})
    lookup = pickle.loads(pickle.dumps(lookup))
    assert lookup.find(SchemaId(5)) == INT
    assert lookup.learned() == {}
    with pytest.raises(RegistryUnavailableError, match="cannot be reached"):
        lookup.find(SchemaId(6))


def test_no_form_of_it_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_T_PW", "hunter2")
    for way in (
        {"basic": {"user": "me", "password": "${env:FRAZIL_T_PW}"}},
        {"bearer": "${env:FRAZIL_T_PW}"},
        {"oauth": {"token_url": "http://a/t", "client_id": "me", "client_secret": "${env:FRAZIL_T_PW}"}},
    ):
        lookup = RegistryLookup(registry_connection(settings("http://127.0.0.1:1", **way)))
        assert b"hunter2" in pickle.dumps(lookup)
        assert "hunter2" not in repr(lookup)


def test_the_rest_is_asked_for_once_by_all_lookups_of_a_process() -> None:
    with serving(RegistryServer({1: '"int"', 2: '"long"'})) as server:
        connection = registry_connection(settings(server.url))
        first = RegistryLookup(connection, {SchemaId(2): INT})
        assert first.find(SchemaId(1)) == INT
        assert first.find(SchemaId(2)) == INT
        second = pickle.loads(pickle.dumps(RegistryLookup(connection)))
        assert second.find(SchemaId(1)) == INT
        assert [path for path, _ in server.asked if "/ids/1" in path] == ["/schemas/ids/1"]
        assert first.learned() == {SchemaId(1): INT}
        assert RegistryLookup(connection, {SchemaId(1): INT}).learned() == {}


def test_an_unknown_id_is_a_record_at_fault() -> None:
    with serving(RegistryServer()) as server:
        lookup = RegistryLookup(registry_connection(settings(server.url)))
        with pytest.raises(ValueProblem) as told:
            lookup.find(SchemaId(99))
        assert told.value.error_class == UNKNOWN_SCHEMA
        assert told.value.message == (
            f"needs the schema with id 99, found none: The schema registry at {server.url} does not have it: "
            "Schema 99 not found"
        )


@pytest.mark.parametrize("schema_id", [SchemaId(2**32 - 1), SchemaId(None, "ab" * 16)])
def test_an_id_that_the_registry_cannot_look_up_is_a_record_at_fault(schema_id: SchemaId) -> None:
    server = RegistryServer()
    answer = server.answer
    server.answer = lambda path, headers, body: (  # type: ignore[method-assign]
        answer("/no/such/page", headers, body) if "4294967295" in path else answer(path, headers, body)
    )
    with serving(server):
        lookup = RegistryLookup(registry_connection(settings(server.url)))
        with pytest.raises(ValueProblem, match="does not look up such an id"):
            lookup.find(schema_id)


def test_a_guid_finds_its_schema() -> None:
    guid = "01234567-89ab-cdef-0123-456789abcdef"
    with serving(RegistryServer(guids={guid: '"int"'})) as server:
        lookup = RegistryLookup(registry_connection(settings(server.url)))
        assert lookup.find(SchemaId(None, guid.replace("-", ""))) == INT
        with pytest.raises(ValueProblem, match="needs the schema with GUID abab"):
            lookup.find(SchemaId(None, "ab" * 16))


def test_an_answer_without_a_schema_is_no_records_fault() -> None:
    with serving(RegistryServer(broken=(200, "{}"))) as server:
        lookup = RegistryLookup(registry_connection(settings(server.url)))
        with pytest.raises(OSError, match="answers as no schema registry does: without a schema"):
            lookup.find(SchemaId(1))


def test_a_wrong_address_is_no_records_fault() -> None:
    with serving(RegistryServer()) as server:
        lookup = RegistryLookup(registry_connection(settings(f"{server.url}/elsewhere")))
        with pytest.raises(OSError, match="answers as no schema registry does: HTTP 404"):
            lookup.find(SchemaId(1))


def test_what_is_known_costs_no_import_of_the_client() -> None:
    code = (
        "import sys\n"
        "from jobs.registry.connection import RegistryConnection\n"
        "from jobs.registry.lookup import RegistryLookup\n"
        "lookup = RegistryLookup(RegistryConnection('a', 'a', 1.0, 1.0, {}), {5: 6})\n"
        "assert lookup.find(5) == 6 and lookup.learned() == {}\n"
        "print([each for each in ('confluent_kafka', 'httpx2', 'authlib', 'fastavro') if each in sys.modules])\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("landed", "failures", "away"),
    [
        (0, {}, False),
        (5, {}, False),
        (0, {UNKNOWN_SCHEMA: 5}, True),
        (1, {UNKNOWN_SCHEMA: 5}, False),
        (0, {UNKNOWN_SCHEMA: 5, "out_of_range": 1}, False),
        (0, {UNKNOWN_SCHEMA: 5, NO_SCHEMA_ID: 1}, True),
        (0, {NO_SCHEMA_ID: 1}, False),
    ],
)
def test_a_batch_without_a_known_id_looks_like_a_registry_that_is_away(
    landed: int, failures: dict[str, int], away: bool
) -> None:
    assert unknown_ids_mean_away(landed, failures) is away
