"""The sensor of schemas: a changed file and an altered table are told before a record shows them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import StringType

from assets import dagster_names
from assets.schema_contract import SCHEMA_CONTRACT, downstream_of
from jobs.clients.catalog.catalog import CatalogUnavailableError, connect_catalog
from jobs.clients.registry.client import SubjectVersion
from jobs.clients.registry.failures import RegistryUnavailableError
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.records.formats.interface.writer_schema import RegistrySchema, WriterSchema
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.schema_change import SchemaChange
from jobs.streaming.driver.tables.schema_proposals import keep_proposal
from orchestration.definitions import build_definitions
from orchestration.sensors.schemas import SchemasCursor, SchemasTick, run_schemas_tick
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import create_table, deployment_in

NOW = 1_800_000_000.0


def nobody() -> Any:
    raise AssertionError("nobody asked for it")


class Place:
    """A deployment with a catalog, and the sensor's memory."""

    def __init__(self, home: Path, *streams: str) -> None:
        self.deployment: Deployment = Deployment.at(deployment_in(home, *streams))
        self.catalog: Catalog = connect_catalog(self.deployment.prepared_settings())
        self.memory: SchemasCursor = SchemasCursor()
        self.now: float = NOW
        self.schema: str | None = None
        self.questions: list[str] = []
        for spec in self.deployment.streams()[0]:
            create_table(self.catalog, spec)

    def tick(self, **options: Any) -> SchemasTick:
        self.memory = SchemasCursor.from_cursor(self.memory.to_cursor())
        asked = (self.memory, lambda _: ["lake/report"], self.now)
        return run_schemas_tick(self.deployment, lambda: self.catalog, self.registry, *asked, **options)

    def registry(self) -> Any:
        if self.schema is None:
            raise RegistryUnavailableError("the registry is away")
        return self

    def versions(self, subject: str) -> list[int]:
        """As a registry's client: there is the newest version alone."""
        return [len(self.schema or "")]

    def version(self, subject: str) -> SubjectVersion:
        """As a registry's client."""
        self.questions.append(subject)
        schema = RegistrySchema("PROTOBUF", WriterSchema(self.schema or ""))
        return SubjectVersion(subject, len(self.schema or ""), 1, schema)

    def close(self) -> None:
        """As a registry's client."""

    def declare(self, stream: str, column: str) -> None:
        file = self.deployment.streams_folder / f"{stream}.yaml"
        file.write_text(file.read_text().replace("id string not null,", f"id string not null, {column},"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "payments", "refunds")


def told(tick: SchemasTick) -> dict[str, dg.AssetCheckEvaluation]:
    return {event.asset_key.path[-1]: event for event in tick.events}


def test_what_fits_is_told_once(place: Place) -> None:
    first = told(place.tick())
    assert {name: event.passed for name, event in first.items()} == {"payments": True, "refunds": True}
    assert first["payments"].check_name == SCHEMA_CONTRACT
    assert place.tick().events == []
    place.now += 3600
    assert len(place.tick().events) == 2


def test_a_changed_file_is_told_before_a_record_comes(place: Place) -> None:
    place.tick()
    place.declare("payments", "note string")
    (event,) = place.tick().events
    assert not event.passed
    assert event.severity is dg.AssetCheckSeverity.ERROR
    assert (event.description or "").endswith(
        "note: string is not in the table. Made from the table: lake/report. Next: frazil schema apply payments"
    )
    assert "lake/report" in str(event.metadata["downstream"].value)


def test_a_table_altered_by_hand_is_told(place: Place) -> None:
    place.tick()
    with place.catalog.load_table("orders.refunds").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("amount")
        update.add_column("note", StringType())
    (event,) = place.tick().events
    assert event.asset_key.path[-1] == "refunds"
    assert not event.passed
    assert "amount" in (event.description or "")


def test_a_catalog_that_is_away_makes_no_check_fail(place: Place) -> None:
    def away() -> Catalog:
        raise CatalogUnavailableError("the catalog is away")

    with pytest.raises(CatalogUnavailableError):
        run_schemas_tick(place.deployment, away, place.registry, place.memory, lambda _: [], NOW)
    assert place.memory.streams == {}


PROTO = 'syntax = "proto3"; message M { string id = 1; int32 n = 2;%s }'


@pytest.fixture
def events(tmp_path: Path) -> Place:
    """A stream of Protobuf whose additions somebody decides about."""
    made = Place(tmp_path)
    (made.deployment.streams_folder / "events.yaml").write_text(
        "stream: events\nsource: {topics: [events]}\ndecode: {value: protobuf, schema: registry}\n"
        "table: {name: orders.events}\nevolve: {add: propose}\n"
    )
    schema = made.deployment.stream("events").table_schema_of(iceberg_schema(parse_schema("id string, n int")))
    made.catalog.create_namespace("orders")
    made.catalog.create_table("orders.events", schema)
    made.schema = PROTO % ""
    return made


def test_a_new_version_of_a_subject_is_told_before_a_record_comes(events: Place) -> None:
    assert [event.passed for event in events.tick().events] == [True]
    assert events.questions == ["events-value"]
    events.schema = PROTO % " string more = 3;"
    (event,) = events.tick().events
    assert (event.passed, event.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "more: string is not in the table" in (event.description or "")
    assert (event.description or "").endswith("Next: frazil schema check events --against events-value")


def test_what_the_policy_would_do_is_said_with_who_is_downstream(events: Place) -> None:
    file = events.deployment.streams_folder / "events.yaml"
    file.write_text(file.read_text().replace("add: propose", "add: auto"))
    events.schema = PROTO % " string more = 3; int64 total = 4;"
    (event,) = events.tick().events
    assert event.passed
    assert event.description == (
        f"Table orders.events takes what events-value version {len(events.schema)} brings. The first record of it "
        "changes the table: add column more string; add column total long. Made from the table: lake/report."
    )
    file.write_text(file.read_text().replace("add: auto", "add: ignore"))
    events.schema = PROTO.replace("int32 n", "string n") % " string more = 3;"
    (event,) = events.tick().events
    assert (event.passed, event.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert event.description == (
        f"Records of events-value version {len(events.schema)} would become dead letters: n: string is "
        "another type than the table's int. No column takes, so it is left out and counted: more. "
        "Made from the table: lake/report. Next: frazil schema check events --against events-value"
    )
    assert event.metadata["next"].value == "frazil schema check events --against events-value"


@pytest.mark.parametrize("answer", ["auto", "ignore", "propose"])
def test_a_field_that_was_renamed_is_told_before_it_is_a_column_of_its_own(events: Place, answer: str) -> None:
    file = events.deployment.streams_folder / "events.yaml"
    file.write_text(file.read_text().replace("add: propose", f"add: {answer}"))
    with events.catalog.load_table("orders.events").update_schema() as update:
        update.rename_column("id", "ids")
    (event,) = events.tick().events
    assert (event.passed, event.severity) == (False, dg.AssetCheckSeverity.WARN)
    said = "column ids may be called id now: frazil schema apply events --rename ids=id keeps its values together."
    assert f"Nothing is renamed by itself; {said}" in (event.description or "")
    if answer != "propose":
        assert event.metadata["next"].value == "frazil schema apply events --rename ids=id"


def test_a_column_renamed_in_the_file_is_told(place: Place) -> None:
    place.tick()
    file = place.deployment.streams_folder / "payments.yaml"
    file.write_text(file.read_text().replace("id string not null", "ids string not null"))
    (event,) = place.tick().events
    assert event.severity is dg.AssetCheckSeverity.ERROR
    assert "frazil schema apply payments --rename id=ids keeps its values" in (event.description or "")


def test_a_registry_that_is_away_changes_no_check(events: Place) -> None:
    events.schema = PROTO % " string more = 3;"
    assert [event.passed for event in events.tick().events] == [False]
    events.schema = None
    away = events.tick()
    assert away.events == []
    assert "the registry is away" in away.sentence


def test_a_proposal_is_told_until_it_is_made(events: Place) -> None:
    events.tick()
    store = stream_folder(events.deployment.settings(), "events").store
    keep_proposal(store, "events", "orders.events", SchemaChange("add", ("more",), StringType(), None, ("id",)))
    (event,) = events.tick().events
    assert (event.passed, event.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert (event.description or "").endswith(
        "add column more string, which looks like column id under another name. Next: frazil schema apply events"
    )
    assert "; or frazil schema apply events --rename id=more" in str(event.metadata["proposals"].value)
    with events.catalog.load_table("orders.events").update_schema() as update:
        update.add_column("more", StringType())
    assert [event.passed for event in events.tick().events] == [True]


def test_tables_are_looked_at_in_turn_and_changed_files_first(place: Place) -> None:
    assert place.tick(budget=0.0).looked_at == ["payments"]
    place.now += 1
    assert place.tick(budget=0.0).looked_at == ["refunds"]
    place.now += 1
    place.declare("refunds", "note string")
    assert place.tick(budget=0.0).looked_at == ["refunds"]


def test_streams_that_are_gone_are_forgotten(place: Place) -> None:
    place.tick()
    (place.deployment.streams_folder / "refunds.yaml").unlink()
    place.tick()
    assert list(place.memory.streams) == ["payments"]


def test_a_tick_over_hundreds_of_streams_stays_short(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, *(f"s{number:03d}" for number in range(300)))
    deployment = Deployment.at(home)
    catalog, memory = connect_catalog(deployment.prepared_settings()), SchemasCursor()
    run_schemas_tick(deployment, lambda: catalog, nobody, memory, lambda _: [], NOW)
    began = time.process_time()
    tick = run_schemas_tick(deployment, lambda: catalog, nobody, memory, lambda _: [], NOW + 30)
    assert time.process_time() - began < 10
    assert tick.looked_at
    assert len(memory.to_cursor()) < 300 * 70


def test_who_is_downstream_is_found_through_others(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments"))
    table = dg.AssetKey(["frazil", "orders", "payments"])
    report, mail = dg.AssetKey("report"), dg.AssetKey("mail")
    more = dg.Definitions(assets=[dg.AssetSpec(report, deps=[table]), dg.AssetSpec(mail, deps=[report])])
    graph = dg.Definitions.merge(build_definitions(deployment), more).get_repository_def().asset_graph
    keys = dagster_names.target_keys(deployment.settings(), deployment.stream("payments"))
    assert keys[0] == table
    assert downstream_of(graph, keys) == ["mail", "report"]
    assert downstream_of(graph, [dg.AssetKey("unknown")]) == []


def test_who_is_downstream_of_any_table_of_a_route_is_found(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments"))
    keys = [dg.AssetKey(["frazil", "orders", name]) for name in ("payments", "payments_dead", "changes", "deletes")]
    own, dead, changes, deletes = keys
    report, mail, other, letters = (dg.AssetKey(name) for name in ("report", "mail", "other", "letters"))
    more = [
        dg.AssetSpec(report, deps=[changes]),
        dg.AssetSpec(mail, deps=[report, own]),
        dg.AssetSpec(other, deps=[deletes]),
        dg.AssetSpec(letters, deps=[dead]),
    ]
    defined = dg.Definitions.merge(build_definitions(deployment), dg.Definitions(assets=more))
    graph = defined.get_repository_def().asset_graph
    assert downstream_of(graph, keys) == ["mail", "other", "report"]
    assert downstream_of(graph, keys[:2]) == ["mail"]
