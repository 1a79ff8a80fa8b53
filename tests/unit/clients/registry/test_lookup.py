from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from datetime import timedelta

import pytest

from jobs.clients.registry.connection import registry_connection
from jobs.clients.registry.failures import NotInRegistryError, RegistryUnavailableError
from jobs.clients.registry.lookup import RegistryLookup, unknown_ids_mean_away
from jobs.clients.registry.process_schemas import MOST_SCHEMAS, UNKNOWN_SECONDS, ProcessSchemas
from jobs.config.services.registry import RegistrySettings
from jobs.records.formats.interface.problems import (
    NO_SCHEMA_ID,
    UNKNOWN_SCHEMA,
    ValueProblem,
    without_value,
)
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
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
        "from jobs.clients.registry.connection import RegistryConnection\n"
        "from jobs.clients.registry.lookup import RegistryLookup\n"
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


def schema(number: int) -> RegistrySchema:
    return RegistrySchema("AVRO", WriterSchema(f'"schema {number}"'))


class World:
    """A registry that knows an id from some time on, and a clock that only waiting moves."""

    def __init__(self, lag: float = 10.0) -> None:
        self.now = 1000.0
        self.known_from: dict[int, float] = {}
        self.away = False
        self.asked: Counter[int] = Counter()
        self.schemas = ProcessSchemas(self.ask, lag, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def ask(self, schema_id: SchemaId) -> RegistrySchema:
        number = schema_id.number or 0
        self.asked[number] += 1
        if self.away:
            raise RegistryUnavailableError("away")
        if self.known_from.get(number, float("inf")) > self.now:
            raise NotInRegistryError("The registry does not have it: no such id")
        return schema(number)

    def unknown(self, number: int) -> ValueProblem:
        with pytest.raises(ValueProblem) as told:
            self.schemas.find(SchemaId(number))
        return told.value


def test_a_known_id_is_asked_for_once() -> None:
    world = World()
    world.known_from[5] = 0
    for _ in range(3):
        assert world.schemas.find(SchemaId(5)) == schema(5)
    assert world.asked == {5: 1}


def test_a_registry_that_lags_is_waited_for() -> None:
    world = World()
    world.known_from[5] = world.now + 4
    assert world.schemas.find(SchemaId(5)) == schema(5)
    assert 4 <= world.now - 1000 <= 6


def test_an_unknown_id_is_waited_for_once_and_remembered_for_a_minute() -> None:
    world = World()
    problem = world.unknown(5)
    assert problem.error_class == UNKNOWN_SCHEMA
    assert problem.message == ("needs the schema with id 5, found none: The registry does not have it: no such id")
    assert without_value(problem.message) == "needs the schema with id 5"
    assert world.now - 1000 == pytest.approx(10)
    asked = world.asked[5]
    assert 5 <= asked <= 15
    assert world.unknown(5).message == problem.message
    assert world.asked[5] == asked
    world.now += UNKNOWN_SECONDS
    world.known_from[5] = 0
    assert world.schemas.find(SchemaId(5)) == schema(5)


def test_many_made_up_ids_hold_up_nobody_for_long() -> None:
    world = World()
    for number in range(500):
        world.unknown(number)
    # Each was asked for, and three of them were waited for.
    assert all(world.asked[number] for number in range(500))
    assert world.now - 1000 == pytest.approx(30)


def test_a_registry_that_is_away_is_no_answer() -> None:
    world = World()
    world.away = True
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            world.schemas.find(SchemaId(5))
    world.away = False
    world.known_from[5] = 0
    assert world.schemas.find(SchemaId(5)) == schema(5)


def test_a_registry_that_goes_away_while_it_is_waited_for() -> None:
    world = World()

    def sleep(seconds: float) -> None:
        world.now += seconds
        world.away = True

    schemas = ProcessSchemas(world.ask, 10.0, clock=lambda: world.now, sleep=sleep)
    with pytest.raises(OSError, match="away"):
        schemas.find(SchemaId(5))


def test_it_keeps_a_bounded_number_the_last_used_ones() -> None:
    world = World()
    world.known_from = dict.fromkeys(range(MOST_SCHEMAS + 2), 0)
    for number in range(MOST_SCHEMAS):
        world.schemas.find(SchemaId(number))
    world.schemas.find(SchemaId(0))
    world.schemas.find(SchemaId(MOST_SCHEMAS))
    world.schemas.find(SchemaId(0))
    world.schemas.find(SchemaId(1))
    assert (world.asked[0], world.asked[1]) == (1, 2)
    assert len(world.schemas.besides({})) == MOST_SCHEMAS


def test_what_the_driver_lacks_is_told_as_long_as_it_lacks_it() -> None:
    world = World()
    world.known_from = {1: 0, 2: 0}
    world.schemas.find(SchemaId(1))
    world.schemas.find(SchemaId(2))
    told = world.schemas.besides({SchemaId(1): schema(1)})
    assert told == {SchemaId(2): schema(2)}
    assert world.schemas.besides({SchemaId(1): schema(1)}) == told
    assert world.schemas.besides({SchemaId(1): schema(1), SchemaId(2): schema(2)}) == {}
