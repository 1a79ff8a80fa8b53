"""Second runs of batches with real tables: what failed the first time is a dead letter, whatever was mended since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.name_mapping import create_mapping_from_schema

from jobs.base.errors import FrazilError
from jobs.clients.registry import process_schemas
from jobs.clients.registry.client import registry_client
from jobs.clients.registry.connection import registry_connection
from jobs.clients.registry.known_schemas import KnownSchemas
from jobs.config.services.registry import RegistrySettings
from jobs.config.stream.event_time import EventTime
from jobs.quality.schema_checks.alteration import alter_table, renaming_alteration
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.schema.difference import parse_rename
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.second_run import stamped_ids
from jobs.streaming.driver.context.writer_schemas import WriterSchemas
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.evolving_stream import SINK, EvolvingStream
from tests.helpers.memory_store import InMemoryStore
from tests.helpers.registry_server import RegistryServer, serving

FAIL: dict[str, Any] = {"decode": {"schema": "table", "unknown_fields": "fail"}}


def cut_short(one: EvolvingStream, *records: Any) -> None:
    """Land a batch of which the rows are committed and the letters are not, and lose its record."""
    commit = one.stream.commit

    def lost(target: Target, *given: Any) -> ProposalOutcome:
        if target.name == one.spec.dead_letter_table:
            raise OSError("killed")
        return commit(target, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenStream, "commit", lambda self, *given: lost(*given))
        with pytest.raises(OSError, match="killed"):
            one.land(*records)
    one.stream.folder.store.delete(one.stream.folder.pending(1))


def rename(one: EvolvingStream, text: str) -> None:
    given = (one.table.metadata.current_schema_id, "me@here")
    renames = [parse_rename(text)]
    alter_table(one.catalog, one.spec, lambda now: renaming_alteration(one.spec, now, renames), *given)
    one.stream.anchor.table = one.table


def map_names(one: EvolvingStream, **further: list[str]) -> None:
    """Give columns further names, by hand."""
    schema = one.table.schema()
    mapping = create_mapping_from_schema(schema).model_dump(by_alias=True)
    for each in mapping:
        each["names"] += further.get(each["names"][0], [])
    with one.table.transaction() as change:
        change.set_properties({NAME_MAPPING: json.dumps(mapping)})
    one.stream.anchor.table = one.table


def test_a_column_renamed_between_two_runs_takes_no_record_of_the_first(home: Path) -> None:
    one = EvolvingStream(home, **FAIL)
    cut_short(one, {"id": "a", "m": 1}, {"id": "b", "n": 2})
    assert one.rows == [{"id": "b", "n": 2}] and one.letters == {}
    rename(one, "n=m")
    one.land({"id": "c", "m": 3}, {"id": "d", "n": 4}, batch=1)
    assert one.letters == {0: "unknown_field"}
    assert one.rows == [{"id": "b", "m": 2}, {"id": "c", "m": 3}, {"id": "d", "m": 4}]


@pytest.mark.parametrize("many", [0, 200])
@pytest.mark.parametrize("before", [True, False])
def test_a_mapping_that_was_altered_between_two_runs_changes_no_decision(home: Path, before: bool, many: int) -> None:
    """Names that came lose no letter, names that went make no second one; of very many the older metadata tells."""
    more = [f"other name {number}" for number in range(many)]
    one = EvolvingStream(home, **FAIL)
    if before:
        map_names(one, n=["m", *more])
    else:
        map_names(one, id=["ident", *more])
    cut_short(one, {"id": "a", "m": 1}, {"id": "b", "x": 2})
    stamped = one.stream.anchor.newest
    assert stamped is not None and isinstance(stamped.names, str) == (many > 0)
    if before:
        map_names(one)
    else:
        map_names(one, n=["m"])
    one.land({"id": "c", "m": 3}, batch=1)
    first = {1: "unknown_field"} if before else {0: "unknown_field", 1: "unknown_field"}
    assert one.letters == (first | {2: "unknown_field"} if before else first)
    found = [{"id": "a", "n": 1}] if before else [{"id": "c", "n": 3}]
    assert one.rows == found


def test_a_stamp_of_a_release_before_is_read_by_the_mapping_that_there_is(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = EvolvingStream(home, **FAIL)
    cut_short(one, {"id": "a", "m": 1})
    anchor = one.stream.anchor
    assert anchor.newest is not None and anchor.newest.names == {}
    old = json.loads(anchor.newest.to_json())
    del old["names"]
    anchor.newest = Stamp.from_json(json.dumps(old))
    map_names(one, n=["m"])
    one.land(batch=1)
    assert one.letters == {}
    assert [each for each in caplog.messages if "1 were to become dead letters, and 0 do now" in each]


def test_only_the_coordinators_stamp_says_how_records_were_decided_on(home: Path) -> None:
    one = EvolvingStream(home)
    map_names(one, n=["m"])
    one.land({"id": "a", "m": 1}, {"id": 1})
    kept = {name: target.read() for name, target in one.stream.targets.items()}
    rows, letters = kept[SINK], kept[one.spec.dead_letter_table]
    assert rows is not None and letters is not None
    assert (rows.names, letters.names) == ({2: ("m",)}, None)
    assert rows.claimed(9).names == {2: ("m",)}, "a later driver completes the batch by it"


def test_a_stamp_keeps_the_ids_that_a_registry_gives_next() -> None:
    numbers = [SchemaId(number) for number in range(1000, 0, -1)]
    guids = [SchemaId(guid=f"{number:032x}") for number in range(100)]
    kept = stamped_ids({*numbers, *guids})
    assert kept == (*range(1, 51), *(f"{number:032x}" for number in range(10)))
    assert stamped_ids(frozenset()) == ()
    assert len(Stamp("s", "batch", 1, 1, "c", {}, {}, unknown_ids=kept).to_json()) < 700


AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]})


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serving(RegistryServer({1: AVRO})) as running:
        yield running


def avro(schema: int, text: str) -> bytes:
    return b"\0" + schema.to_bytes(4, "big") + bytes([2 * len(text)]) + text.encode()


def with_registry(home: Path, server: RegistryServer) -> EvolvingStream:
    one = EvolvingStream(home, columns="id string", decode={"value": "avro", "schema": "table"})
    options = {"url": server.url, "timeout": timedelta(seconds=5), "lag": timedelta(milliseconds=1)}
    settings = RegistrySettings.model_validate(options)
    known = KnownSchemas(InMemoryStore(), settings.identity, "payments")
    known.add({SchemaId(1): RegistrySchema("AVRO", WriterSchema(AVRO))})
    one.stream.schemas = WriterSchemas(registry_connection(settings), known, lambda: registry_client(settings))
    return one


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process remembers of registries ends with it."""
    monkeypatch.setattr(process_schemas, "_known", type(process_schemas._known)())


def test_a_schema_that_was_registered_between_two_runs_takes_no_record_of_the_first(
    home: Path, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = with_registry(home, server)
    cut_short(one, avro(1, "a"), avro(7, "b"), avro(9, "c"))
    assert one.rows == [{"id": "a"}]
    newest = one.stream.anchor.newest
    assert newest is not None and newest.unknown_ids == (7, 9)
    server.schemas[7] = AVRO
    monkeypatch.setattr(process_schemas, "_known", type(process_schemas._known)())
    one.land(avro(7, "d"), batch=1)
    assert one.letters == {1: "unknown_schema", 2: "unknown_schema"}
    assert one.rows == [{"id": "a"}, {"id": "d"}]
    newest = one.stream.anchor.newest
    assert newest is not None and newest.unknown_ids == ()
    assert "unknown" not in newest.to_json()


def test_a_second_run_of_nothing_but_unknown_ids_asks_no_registry(home: Path, server: RegistryServer) -> None:
    one = with_registry(home, server)
    cut_short(one, avro(7, "b"))
    server.broken = (500, "{}")
    one.land(batch=1)
    assert one.letters == {0: "unknown_schema"}


def test_tasks_that_disagree_about_the_registry_run_again(
    home: Path, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One asks just before the schema is registered, the other just after it: its records are all rows."""
    one, asked = with_registry(home, server), list[int]()
    answer = server.answer

    def late(path: str, headers: dict[str, str], body: str) -> tuple[int, str]:
        if path.startswith("/schemas/ids/7"):
            asked.append(1)
            # Each asks twice before it takes an id for unknown.
            if len(asked) > 2:
                server.schemas[7] = AVRO
        return answer(path, headers, body)

    monkeypatch.setattr(server, "answer", late)
    # Each split as in a process of its own.
    monkeypatch.setattr(process_schemas, "UNKNOWN_SECONDS", 0.0)
    done = one.land(avro(7, "a"), avro(7, "b"))
    assert (one.runs, len(asked), done.counts.landed, done.counts.dead) == (2, 3, 2, 0)
    assert one.rows == [{"id": "a"}, {"id": "b"}] and one.letters == {}
    assert len(one.files) == len(list(one.table.scan().plan_files())), "nothing of the first run is left"


def test_late_records_of_a_second_run_are_told_by_the_column_that_there_was(home: Path) -> None:
    """The file's column is gone since: the batch is completed first, and then the stream says so."""
    one = EvolvingStream(home, columns="id string, at timestamptz", **FAIL)
    spec = one.spec.model_copy(update={"event_time": EventTime.model_validate({"column": "at"})})
    one.spec = one.stream.spec = spec
    cut_short(one, {"id": "a", "at": "2026-01-01T00:00:00Z"}, {"id": "b", "x": 1})
    with one.table.update_schema() as update:
        update.rename_column("at", "made_at")
    one.stream.anchor.table = one.table
    one.land(batch=1)
    assert one.letters == {1: "unknown_field"}
    with pytest.raises(FrazilError, match="'at' is no column of the rows; its times are made_at"):
        one.land({"id": "c"}, batch=2)
