"""Changes of tables that no command test shows: tables that follow, sort order, place, and tables without rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.deployment_plan.change import Change, ChangeClass, Doer
from orchestration.deployment_plan.table_changes import TableFacts, foreign_streams, table_changes
from tests.unit.orchestration.plan_world import PlanWorld


@pytest.fixture
def world(tmp_path: Path) -> PlanWorld:
    return PlanWorld(tmp_path)


def changes(world: PlanWorld, *tables: str, written: frozenset[str] = frozenset()) -> list[Change]:
    """Of the stream, with its tables as the catalog has them."""
    spec = world.spec()
    with world.catalog() as catalog:
        found = {name: catalog.load_table(name).metadata for name in tables if catalog.table_exists(name)}
    return table_changes(spec, spec, TableFacts({name: found.get(name) for name in tables}, written, "lake"))


def test_a_table_without_rows_is_made_anew_by_the_next_start(world: PlanWorld) -> None:
    world.land()
    with world.catalog() as catalog:
        catalog.drop_table("orders.payments")
        catalog.drop_table("orders.payments_dead")
    world.make_tables()
    assert changes(world, "orders.payments") == []
    world.edit("[day(created_at)]", "[month(created_at)]")
    (change,) = changes(world, "orders.payments")
    assert (change.kind, change.doer) == (ChangeClass.METADATA, Doer.FRAZIL)
    assert "the next start makes it as the file declares" in change.sentence


def test_sort_order_and_identifier_fields_are_set_by_apply_and_a_place_stays(world: PlanWorld) -> None:
    world.land()
    world.edit(
        "[day(created_at)]}",
        "[day(created_at)], sort_by: [id], identifier_fields: [id], location: 'file:///elsewhere/payments'}",
    )
    found = changes(world, "orders.payments")
    by_apply = [each.sentence for each in found if each.doer is Doer.APPLY]
    assert any("identifier fields id" in each for each in by_apply)
    assert any("sort order id" in each for each in by_apply)
    (place,) = [each for each in found if each.kind is ChangeClass.NOTHING]
    assert place.drift
    assert "location is for a new table" in place.sentence


def test_tables_of_a_route_are_created_or_altered_one_by_one(world: PlanWorld) -> None:
    world.land()
    world.edit("freshness:", "route: {by: id, tables: [{match: a, table: orders.a}]}\nfreshness:")
    world.edit("created_at timestamptz not null", "created_at timestamptz not null, note string")
    found = changes(world, "orders.payments", "orders.a")
    assert [(each.place, each.doer) for each in found] == [
        ("orders.payments", Doer.APPLY),
        ("orders.a", Doer.FRAZIL),
    ]
    assert found[1].sentence == "table orders.a is created with 8 columns, partitioned by day(created_at)"


def test_a_written_table_that_is_gone_is_breaking(world: PlanWorld) -> None:
    world.make_tables()
    (change,) = changes(world, "orders.nowhere", written=frozenset({"orders.nowhere"}))
    assert (change.kind, change.drift) == (ChangeClass.BREAKING, True)
    assert "catalog lake has it no more" in change.sentence


def test_replays_and_the_stream_itself_are_no_other_streams(world: PlanWorld) -> None:
    world.land()
    with world.catalog() as catalog:
        metadata = catalog.load_table("orders.payments").metadata
    more = {"frazil.stamp.payments~replay": "x", "frazil.stamp.money": "x"}
    changed = metadata.model_copy(update={"properties": metadata.properties | more})
    assert foreign_streams("payments", changed) == ["money"]
    assert foreign_streams("money", changed) == ["payments"]
