"""Writer schemas of an open stream: ids that nobody knows, and a registry that is made anew while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from jobs.clients.registry.client import registry_client
from jobs.clients.registry.connection import registry_connection
from jobs.clients.registry.failures import (
    RegistryError,
    RegistryUnavailableError,
    RegistryWithoutSubjectError,
)
from jobs.clients.registry.known_schemas import KnownSchemas, RegistryRemadeError
from jobs.config.services.registry import RegistrySettings
from jobs.records.formats.interface.problems import UNKNOWN_SCHEMA
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.streaming.driver.batch.retry import is_transient, is_unavailable
from jobs.streaming.driver.context.writer_schemas import WriterSchemas
from jobs.streaming.driver.watch.watches import RegistryWatch
from jobs.tables.commit.stamp.stamp_fields import Counts
from tests.helpers.memory_store import InMemoryStore
from tests.helpers.registry_server import RegistryServer, serving
from tests.helpers.waiting import wait_for

ALL_UNKNOWN = Counts(read=3, dead=3), {UNKNOWN_SCHEMA: 3}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serving(RegistryServer({1: '"int"'})) as running:
        yield running


def schemas_of(server: RegistryServer, *subjects: str, known: dict[int, str] | None = None) -> WriterSchemas:
    settings = RegistrySettings.model_validate({"url": server.url, "timeout": timedelta(seconds=5)})
    kept = KnownSchemas(InMemoryStore(), settings.identity, "payments")
    kept.add({SchemaId(id_): RegistrySchema("AVRO", WriterSchema(text)) for id_, text in (known or {}).items()})
    return WriterSchemas(registry_connection(settings), kept, lambda: registry_client(settings), subjects)


def test_a_registry_with_a_subject_of_the_stream_proves_that_the_ids_are_made_up(server: RegistryServer) -> None:
    server.subjects = {"b-value": [1]}
    schemas = schemas_of(server, "a-value", "b-value")
    schemas.refuse_all_unknown(*ALL_UNKNOWN)
    # Made anew meanwhile: what it had before is no proof.
    server.subjects = {}
    with pytest.raises(RegistryWithoutSubjectError):
        schemas.refuse_all_unknown(*ALL_UNKNOWN)


@pytest.mark.parametrize("subjects", [("a-value", "b-value"), ()])
def test_a_registry_with_nothing_of_the_stream_is_waited_for_so_long_and_then_ends_the_driver(
    server: RegistryServer, subjects: tuple[str, ...]
) -> None:
    server.subjects = {"other-value": [1]}
    with pytest.raises(RegistryWithoutSubjectError) as told:
        schemas_of(server, *subjects).refuse_all_unknown(*ALL_UNKNOWN)
    named = "subject a-value or b-value" if subjects else "subject of the topics"
    assert f"knows none of the schema ids in the batch, and has no {named}: it is empty" in told.value.message
    assert "decode.subject" in (told.value.fix or "")
    assert is_transient(told.value)
    assert not is_unavailable(told.value)


def test_a_registry_that_cannot_be_asked_for_subjects_is_away(server: RegistryServer) -> None:
    schemas = schemas_of(server, "a-value")
    server.broken = (503, "{}")
    with pytest.raises(RegistryUnavailableError):
        schemas.refuse_all_unknown(*ALL_UNKNOWN)
    server.broken = (401, "{}")
    with pytest.raises(RegistryError):
        schemas.refuse_all_unknown(*ALL_UNKNOWN)


def test_a_registry_that_was_away_at_the_opening_is_known_again_by_what_the_stream_has_met(
    server: RegistryServer,
) -> None:
    schemas = schemas_of(server, "a-value", known={1: '"int"'})
    server.broken = (503, "{}")
    schemas.compare()
    with pytest.raises(RegistryUnavailableError, match="does not say whether it has those that the stream has met"):
        schemas.refuse_all_unknown(*ALL_UNKNOWN)
    server.broken = None
    schemas.refuse_all_unknown(*ALL_UNKNOWN)
    # And where it is another one, it is so by name.
    remade = schemas_of(server, "a-value", known={1: '"long"'})
    with pytest.raises(RegistryRemadeError):
        remade.refuse_all_unknown(*ALL_UNKNOWN)


def test_a_registry_that_lost_the_schemas_of_a_running_stream_is_waited_for(server: RegistryServer) -> None:
    schemas = schemas_of(server, "a-value", known={1: '"int"'})
    assert schemas.compare()
    schemas.learn({SchemaId(2): RegistrySchema("AVRO", WriterSchema('"string"'))})
    server.schemas = {}
    with pytest.raises(RegistryWithoutSubjectError, match="it has none of the 2 schemas that were looked for") as told:
        schemas.refuse_all_unknown(*ALL_UNKNOWN)
    assert is_transient(told.value)
    server.schemas = {1: '"int"'}
    schemas.refuse_all_unknown(*ALL_UNKNOWN)


def test_a_batch_with_a_known_id_asks_nobody(server: RegistryServer) -> None:
    schemas_of(server).refuse_all_unknown(Counts(read=3, landed=1, dead=2), {UNKNOWN_SCHEMA: 2})
    assert server.asked == []


@pytest.fixture
def watched() -> Iterator[Callable[[WriterSchemas], None]]:
    running: list[RegistryWatch] = []

    def watch(schemas: WriterSchemas) -> None:
        running.append(RegistryWatch(schemas, every=0.02, again=0.02))
        running[-1].start()

    yield watch
    for each in running:
        each.end()


def test_a_registry_that_is_made_anew_is_noticed_while_the_stream_runs(
    server: RegistryServer, watched: Callable[[WriterSchemas], None]
) -> None:
    schemas = schemas_of(server, known={1: '"int"'})
    watched(schemas)
    wait_for(lambda: bool(server.asked), "a first comparison")
    # Away, then without its schemas for a moment, as one that is just started: neither stops anything.
    for broken in ((503, "{}"), (200, "<html>")):
        server.broken, asked = broken, len(server.asked)
        wait_for(lambda asked=asked: len(server.asked) > asked + 4, "some questions")
    server.broken = None
    schemas.learn({})
    server.schemas[1] = '"long"'
    wait_for(lambda: schemas.remade is not None, "the comparison")
    with pytest.raises(RegistryRemadeError, match="id 1 is another schema there"):
        schemas.learn({})


def test_what_is_gone_for_a_moment_only_stops_nothing(
    server: RegistryServer, watched: Callable[[WriterSchemas], None], caplog: pytest.LogCaptureFixture
) -> None:
    schemas = schemas_of(server, known={1: '"int"'})
    answer, left = server.answer, [1]

    def once(path: str, headers: dict[str, str], body: str) -> tuple[int, str]:
        gone = "/ids/1" in path and left[0] > 0
        left[0] -= gone
        return answer(path.replace("/ids/1", "/ids/999") if gone else path, headers, body)

    server.answer = once  # type: ignore[method-assign]
    watched(schemas)
    wait_for(lambda: sum("/ids/1" in path for path, _ in server.asked) > 1, "comparisons that find it")
    assert schemas.remade is None
    assert "looked at again in" in caplog.text


def test_a_stream_that_knows_no_schema_asks_nobody(
    server: RegistryServer, watched: Callable[[WriterSchemas], None]
) -> None:
    schemas = schemas_of(server)
    watched(schemas)
    schemas.compare()
    assert server.asked == []
