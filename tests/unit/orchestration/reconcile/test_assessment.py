"""The sensor asks the catalog before it has a driver ended for a changed file."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import StringType

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.supervision.state.observation import observe
from orchestration.cli.streams.status.collection import status_from_state
from orchestration.reconcile.assessment import assess_file_change
from orchestration.reconcile.decide import Action
from orchestration.reconcile.remote_queries import RemoteQueries
from orchestration.reconcile.stream_files import read_files
from orchestration.reconcile.supervisor_heartbeat import read_supervisor_heartbeat
from tests.unit.orchestration.reconcile.supervised_deployment import World, dead_process, events
from tests.unit.streaming.supervision.test_held_back import ROW


@pytest.fixture
def landed(world: World) -> World:
    world.write("orders")
    with connect_catalog(world.settings) as catalog:
        ensure_tables(world.deployment.stream("orders"), catalog)
        table = catalog.load_table("orders.orders")
        table.append(pa.Table.from_pylist([ROW], schema=table.schema().as_arrow()))
    return world


def add_column(world: World) -> None:
    text = world.file("orders").read_text().replace("not null\ntable:", "not null, note string\ntable:")
    assert "note string" in text
    world.file("orders").write_text(text)


def alter_table(world: World) -> None:
    with connect_catalog(world.settings) as catalog, catalog.load_table("orders.orders").update_schema() as change:
        change.add_column("note", StringType())


def configuration_check(tick: Any) -> dg.AssetCheckEvaluation:
    (found,) = [each for each in events(tick, dg.AssetCheckEvaluation) if each.check_name == "configuration"]
    return found


def test_a_column_that_the_table_lacks_is_held_back_and_the_check_says_why(landed: World) -> None:
    running = landed.drive("orders")
    add_column(landed)
    tick = landed.tick()
    decision = tick.decisions["orders"]
    assert decision.action is Action.HALT
    assert f"runs on under generation {running.generation}; nothing is changed, since " in decision.sentence
    assert "orders.yaml:7:3: decode.schema: table orders.orders cannot hold what is declared: Column note is" in (
        decision.sentence
    )
    assert tick.requests == []
    check = configuration_check(tick)
    assert not check.passed
    assert "Column note is declared" in (check.description or "")
    observed = observe("orders", read_files(landed.deployment), landed.settings)
    status = status_from_state(
        observed, landed.deployment.stream("orders"), read_supervisor_heartbeat(LocalStore(landed.settings.state))
    )
    assert status.file_problem == decision.sentence
    assert status.launched.generation != status.launched.wanted_generation

    alter_table(landed)
    tick = landed.tick()
    assert tick.decisions["orders"].action is Action.ROLL
    assert len(tick.requests) == 1


def test_one_that_has_died_is_started_as_it_was(landed: World) -> None:
    landed.drive("orders", **dead_process())
    add_column(landed)
    decision = landed.tick().decisions["orders"]
    assert decision.action in (Action.START, Action.BACKOFF)
    assert "it starts as it last ran, since " in decision.sentence
    assert "Column note is declared" in decision.sentence


def test_a_catalog_that_does_not_answer_holds_the_change_back(landed: World) -> None:
    def silent() -> Catalog:
        raise FrazilError("catalog frazil did not answer within 10 s")

    landed.drive("orders")
    landed.write("orders", "trigger: {every: 5s}\n")
    answering, landed.catalog = landed.catalog, silent
    decision = landed.tick().decisions["orders"]
    landed.catalog = answering
    assert decision.action is Action.HALT
    assert "unknown whether its table fits it: catalog frazil did not answer within 10 s" in decision.sentence
    assert landed.tick().decisions["orders"].action is Action.ROLL


def test_a_file_that_has_not_changed_asks_nobody(landed: World) -> None:
    landed.drive("orders")
    alter_table(landed)
    asked, connect = [], landed.catalog
    landed.catalog = lambda: asked.append("catalog") or connect()
    files = read_files(landed.deployment)
    observed = observe("orders", files, landed.settings)
    assert assess_file_change(observed, files, RemoteQueries(landed.catalog, None)) is observed
    assert asked == []
    assert landed.tick().decisions["orders"].action is Action.ADOPT
