"""Surveys of records with a writer schema: what lands is what exact runs would have landed, after two runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import IdentityTransform

from jobs.clients.registry import process_schemas
from jobs.clients.registry.client import registry_client
from jobs.clients.registry.connection import registry_connection
from jobs.clients.registry.known_schemas import KnownSchemas
from jobs.config.services.registry import RegistrySettings
from jobs.records.formats import conform
from jobs.streaming.driver.context.writer_schemas import WriterSchemas
from jobs.streaming.driver.tables import schema_evolution
from tests.helpers.evolving_stream import SINK, EvolvingStream
from tests.helpers.memory_store import InMemoryStore
from tests.helpers.registry_server import RegistryServer, serving

AUTO: dict[str, Any] = {"add": "auto", "widen": "auto", "relax": "auto"}
COLUMNS = "id string not null, n int, d decimal(4,2), s struct<a int not null>"


def connected(home: Path, columns: str = COLUMNS, **more: Any) -> EvolvingStream:
    return EvolvingStream(home, columns=columns, decode={"value": "connect_json", "schema": "table"}, **AUTO | more)


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


def field(name: str, kind: Any, *, optional: bool = False) -> dict[str, Any]:
    return (kind if isinstance(kind, dict) else {"type": kind}) | {"field": name, "optional": optional}


def envelope(fields: list[dict[str, Any]], payload: dict[str, Any]) -> bytes:
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()


def simple(number: int, *, n: str = "int32", optional: bool = False, **more: Any) -> bytes:
    fields = [field("id", "string", optional=optional), field("n", n)]
    return envelope(fields, {"id": None if optional else str(number), "n": number} | more)


@pytest.mark.parametrize("count", [40, 3_000])
def test_a_connect_batch_all_of_whose_records_need_a_change_runs_twice(
    home: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no record of the first run is explained; few records go to the reference decoder."""
    explained: list[str] = []
    failure = conform.Failure
    monkeypatch.setattr(conform, "Failure", lambda *given: explained.append(given[2]) or failure(*given))
    one = connected(home)
    done = one.land(*[simple(2**40 + number, n="int64", optional=True) for number in range(count)])
    assert (one.runs, one.surveys, done.counts.landed, done.counts.dead) == (2, 1, count, 0)
    assert explained == []
    (record,) = one.history
    assert sorted(record.changes) == ["let column id be null", "widen column n to long"]
    assert record.example == ("payments", 0, 0)
    assert len(one.files) == len(list(one.table.scan().plan_files()))
    one.land(simple(2**41, n="int64"), batch=1)
    assert one.runs == 1


def test_a_schema_that_only_adds_is_no_survey_for_nothing(home: Path) -> None:
    one = connected(home)
    one.land(envelope([field("id", "string"), field("new", "int64")], {"id": "a", "new": 1}))
    assert (one.runs, one.rows) == (2, [{"id": "a", "new": 1}])
    one.land(simple(2, n="int64"), batch=1)
    assert one.columns["n"] == "long"


def test_connects_decimals_need_a_wider_column_only_for_a_value_beyond_it(home: Path) -> None:
    """Their schema has no precision: a survey that took it for a need would be in vain, and the last one."""
    one = connected(home)

    def amount(unscaled: bytes, **more: Any) -> bytes:
        fields = [field("id", "string"), field("d", DECIMAL)]
        return envelope(fields, {"id": "a", "d": unscaled.decode()} | more)

    small, great = b"AQ==", b"D0JA"  # 0.01, and 10000.00
    one.land(*[amount(small)] * 100)
    assert (one.runs, one.columns["d"]) == (1, "decimal(4, 2)")
    done = one.land(*[amount(small)] * 100, amount(great), batch=1)
    assert (one.runs, done.counts.dead) == (2, 0)
    assert one.columns["d"].startswith("decimal(") and one.columns["d"] != "decimal(4, 2)"


def test_a_record_that_no_change_lets_land_leads_to_none_in_a_survey(home: Path) -> None:
    one = connected(home)
    fields = [field("id", "int32"), field("n", "int64")]
    done = one.land(*[envelope(fields, {"id": 1, "n": 2**40})] * 100)
    assert (one.runs, done.counts.dead, one.columns["n"], one.history) == (1, 100, "int", ())
    assert set(one.letters.values()) == {"wrong_type"}


def test_what_is_out_of_range_in_a_record_that_never_lands_widens_no_decimal(home: Path) -> None:
    """As in exact runs, in which its first reason is another one."""
    kinds: list[str] = []
    for surveyed in (True, False):
        one = connected(home / str(surveyed))
        one.survey = surveyed
        fields = [field("n", "int64"), field("d", DECIMAL)]
        lost = envelope([field("id", "int32"), *fields], {"id": 1, "n": 2**40, "d": "D0JA"})
        landing = envelope([field("id", "string"), *fields], {"id": "a", "n": 5, "d": "AQ=="})
        one.land(lost, *[landing] * 3)
        assert one.letters == {0: "wrong_type"}
        kinds.append(one.columns["d"])
    assert kinds[0] == kinds[1]


def test_a_change_that_is_refused_leaves_the_letters_of_exact_runs(home: Path) -> None:
    letters: list[dict[int, str]] = []
    for surveyed in (True, False):
        one = connected(home / str(surveyed))
        with one.table.update_spec() as spec:
            spec.add_field("n", IdentityTransform())
        one.survey = surveyed
        one.stream.targets[SINK].read()
        one.land(*[simple(2**40, n="int64")] * 100, simple(1))
        assert one.runs == 1 + surveyed
        one.land(*[simple(2**40, n="int64")] * 100, batch=1)
        assert one.runs == 1, "what is refused is known from then on"
        letters.append(one.letters)
    assert letters[0] == letters[1] and set(letters[0].values()) == {"out_of_range"} and len(letters[0]) == 200


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serving(RegistryServer({})) as running:
        yield running


def with_registry(home: Path, server: RegistryServer, *schemas: dict[str, Any], **more: Any) -> EvolvingStream:
    server.schemas = {number: json.dumps(schema) for number, schema in enumerate(schemas, 1)}
    one = EvolvingStream(home, columns=COLUMNS, decode={"value": "avro", "schema": "table"}, **AUTO | more)
    options = {"url": server.url, "timeout": timedelta(seconds=5), "lag": timedelta(milliseconds=1)}
    registry = RegistrySettings.model_validate(options)
    known = KnownSchemas(InMemoryStore(), registry.identity, "payments")
    one.stream.schemas = WriterSchemas(registry_connection(registry), known, lambda: registry_client(registry))
    return one


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_schemas, "_known", type(process_schemas._known)())


def avro(number: int, schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    import io

    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, record)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def of(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


OLD, NEW = of(id="string", n="int"), of(id=["null", "string"], n="long", new="string")


def test_an_avro_batch_of_two_schemas_of_which_one_needs_a_change_runs_twice(
    home: Path, server: RegistryServer
) -> None:
    one = with_registry(home, server, OLD, NEW)
    records = [
        avro(2, NEW, {"id": None, "n": 2**40 + number, "new": "x"}) if number % 3 else avro(1, OLD, {"id": "a", "n": 1})
        for number in range(900)
    ]
    done = one.land(*records, avro(9, OLD, {"id": "a", "n": 1}))
    assert (one.runs, one.surveys, done.counts.landed, done.counts.dead) == (2, 1, 900, 1)
    assert one.letters == {900: "unknown_schema"}
    assert sorted(one.history[0].changes) == [
        "add column new string", "let column id be null", "widen column n to long",
    ]  # fmt: skip
    assert one.rows[1] == {"n": 2**40 + 1, "new": "x"} and one.rows[0] == {"id": "a", "n": 1}
    assert one.stream.anchor.newest is not None and one.stream.anchor.newest.unknown_ids == (9,)


def test_what_a_survey_needs_beside_is_kept_from_the_first_run_on(home: Path, server: RegistryServer) -> None:
    """A column for fields that no other takes is made with the other change, in one round."""
    one = with_registry(home, server, NEW)
    spec = one.spec.model_copy(
        update={"decode": one.spec.decode.model_copy(update={"unknown_fields": "keep"}),
                "evolve": one.spec.evolve.model_copy(update={"add": "ignore"})}
    )  # fmt: skip
    one.spec = one.stream.spec = spec
    done = one.land(*[avro(1, NEW, {"id": "a", "n": 2**40, "new": "x"})] * 100)
    assert (one.runs, done.counts.landed, len(one.history)) == (2, 100, 1)
    assert one.rows[0] == {"id": "a", "n": 2**40, "_extra": '{"new":"x"}'}


KINDS: dict[str, list[tuple[Any, Any]]] = {
    "id": [("string", "a"), ("int32", 1), (None, None)],
    "n": [("int32", 1), ("int64", 2**40), ("int64", 5), ("string", "x"), (None, None)],
    "d": [(DECIMAL, "AQ=="), (DECIMAL, "D0JA"), (None, None)],
    "new": [("int64", 1), ("string", "x"), (None, None), (None, None)],
}


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    fields, payload = [], {}
    for name, kinds in KINDS.items():
        kind, value = draw(st.sampled_from([kinds[0], *kinds]))
        if kind is None:
            continue
        optional = draw(st.sampled_from([False, False, True]))
        fields.append(field(name, kind, optional=optional))
        payload[name] = None if optional and draw(st.booleans()) else value
    inner = draw(st.sampled_from([None, "int32", "int64"]))
    if inner:
        optional = draw(st.booleans())
        fields.append({"type": "struct", "field": "s", "fields": [field("a", inner, optional=optional)]})
        payload["s"] = {"a": None if optional else 7}
    return envelope(fields, payload)


@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(envelopes(), min_size=1, max_size=10), min_size=1, max_size=2), st.booleans())
def test_batches_land_as_by_exact_runs_alone(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[bytes]], partitioned: bool
) -> None:
    def landed(surveyed: bool) -> list[Any]:
        one = connected(tmp_path_factory.mktemp("deployment"))
        if partitioned:
            with one.table.update_spec() as spec:
                spec.add_field("n", IdentityTransform())
            one.stream.targets[SINK].read()
        one.survey = surveyed
        found: list[Any] = []
        for number, records in enumerate(batches):
            done = one.land(*records, batch=number)
            found.append((done.counts, done.reasons, one.rows, one.letters, sorted(one.columns.items())))
            assert done.counts.read == len(records) == done.counts.landed + done.counts.dead
            assert one.runs <= schema_evolution.ROUNDS + 1 + surveyed
        return found

    assert landed(surveyed=True) == landed(surveyed=False)
