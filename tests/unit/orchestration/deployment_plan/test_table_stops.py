"""Stops of a start at its tables that no command test shows: tables created again, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.deployment_plan.change import Change, ChangeClass
from orchestration.deployment_plan.table_changes import TableFacts
from orchestration.deployment_plan.table_stops import table_stops
from tests.unit.orchestration.plan_world import PlanWorld

OWN, DEAD = "orders.payments", "orders.payments_dead"


@pytest.fixture
def world(tmp_path: Path) -> PlanWorld:
    made = PlanWorld(tmp_path)
    made.land()
    return made


def facts_of(world: PlanWorld) -> TableFacts:
    with world.catalog() as catalog:
        own, letters = (catalog.load_table(name).metadata for name in (OWN, DEAD))
    uuids = {OWN: str(own.table_uuid), DEAD: str(letters.table_uuid)}
    return TableFacts({OWN: own}, frozenset(uuids), "lake", letters, uuids)


def stops(world: PlanWorld, facts: TableFacts) -> list[Change]:
    found = list(table_stops(world.spec(), facts))
    assert all(each.kind is ChangeClass.BREAKING and each.fix and each.stops for each in found)
    return found


def test_the_tables_that_the_stream_wrote_stop_nothing(world: PlanWorld) -> None:
    facts = facts_of(world)
    assert stops(world, facts) == []
    # A stream that has never run: its dead letters are made by its start.
    assert stops(world, TableFacts({OWN: None}, frozenset(), "lake")) == []


@pytest.mark.parametrize("name", [OWN, DEAD])
def test_a_table_that_was_created_again_waits_for_its_answer(world: PlanWorld, name: str) -> None:
    facts = facts_of(world)
    former: Mapping[str, str] = {**facts.uuids, name: "0b7f1a3e-0000-0000-0000-000000000000"}
    (stop,) = stops(world, replace(facts, uuids=former))
    assert (stop.place, f"--recreated {name}" in (stop.fix or "")) == (name, True)
    assert "was dropped and created again" in stop.sentence


def test_dead_letters_that_are_gone_or_none_stop_it(world: PlanWorld) -> None:
    facts = facts_of(world)
    (gone,) = stops(world, replace(facts, letters=None))
    assert f"table {DEAD} was dropped" in gone.sentence
    (other,) = stops(world, replace(facts, letters=facts.tables[OWN], uuids={}))
    assert f"table {DEAD}, for its dead letters, is no dead-letter table" in other.sentence
