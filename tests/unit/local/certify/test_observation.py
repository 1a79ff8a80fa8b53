"""What a certificate reads off tables and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog import Catalog

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.local.certify.action import publish
from jobs.local.certify.fixtures import create_tables
from jobs.local.certify.load import Expected
from jobs.local.certify.observation import Observer, planned_end
from jobs.local.certify.workspace import STREAM, Workspace, prepare_workspace
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return prepare_workspace(Settings.embedded(tmp_path), "run")


@pytest.fixture
def catalog(tmp_path: Path, workspace: Workspace) -> Iterator[Catalog]:
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        catalog.create_namespace(workspace.name)
        create_tables(workspace, catalog)
        yield catalog


def stamp(workspace: Workspace, kind: str, epoch: int, start: int, position: int, rows: dict[str, int]) -> Stamp:
    at = TopicPartition(workspace.name, 0)
    return Stamp(
        STREAM,
        kind,  # pyright: ignore[reportArgumentType]
        0,
        epoch,
        "c",
        start={at: start},
        position={at: position},
        rows=rows,
        counts=Counts(position - start, position - start) if kind == "batch" else Counts(),
        totals=Counts(position, position),
    )


def test_the_first_commit_of_the_next_driver(workspace: Workspace, catalog: Catalog) -> None:
    observer = Observer(workspace, catalog)
    table, dead = (Target(catalog, name, STREAM) for name in (workspace.table, workspace.dead_letters))
    assert observer.now().first_commit(0) is None
    rows = {workspace.table: 5, workspace.dead_letters: 1}
    table.restamp(stamp(workspace, "claim", 1, 0, 0, {}))
    table.restamp(stamp(workspace, "batch", 1, 0, 5, rows))
    # Killed here; the next driver claims, and commits the dead letters from the record before anything of its own.
    killed = observer.now()
    table.restamp(stamp(workspace, "claim", 2, 0, 5, rows))
    dead.restamp(stamp(workspace, "claim", 2, 0, 0, {}))
    assert observer.now().first_commit(1) is None, "a claim is no commit of records"
    dead.restamp(stamp(workspace, "batch", 2, 0, 5, rows))
    recovered = observer.now().first_commit(1)
    assert recovered is not None
    table.restamp(stamp(workspace, "batch", 2, 5, 9, {}))
    again = observer.now().first_commit(1)
    assert again == recovered, "the first one, whatever comes later"
    assert observer.now().first_commit(0) is not None
    assert observer.now().first_commit(2) is None
    assert killed.position == {TopicPartition(workspace.name, 0): 5}, "what was seen stays as it was"


def test_rows_that_should_be_there_are_missed(workspace: Workspace, catalog: Catalog) -> None:
    Target(catalog, workspace.table, STREAM).restamp(stamp(workspace, "batch", 1, 0, 2, {}))
    problems = Observer(workspace, catalog).now().problems(Expected({0: np.array([1, 2], dtype=np.uint8)}))
    assert len(problems) == 2, problems
    assert "lost from the table" in problems[0]
    assert "lost from the dead letters" in problems[1]


def test_each_table_of_a_route_is_held_against_its_own_records(tmp_path: Path) -> None:
    """Of four records, of which one is in two tables, the tables have the rows of none; their stamps say all."""
    workspace = prepare_workspace(Settings.embedded(tmp_path), "routed", "routed")
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        catalog.create_namespace(workspace.name)
        create_tables(workspace, catalog)
        observer = Observer(workspace, catalog)
        Target(catalog, workspace.table, STREAM).restamp(stamp(workspace, "batch", 1, 0, 4, {}))
        seen = observer.now()
        assert set(seen.tables) == {*workspace.row_tables, workspace.dead_letters}
        expected = Expected({0: np.array([1, 1, 1, 1], np.uint8)}, types={0: np.array([0, 1, 2, 3], np.uint8)})
        problems = [each for each in seen.problems(expected) if "lost from" in each]
    own, by_card, moved = workspace.row_tables
    assert own == workspace.table
    assert [each.partition(": ")[0] for each in problems] == [
        "1 records lost from the table",
        f"2 records lost from table {by_card}",
        f"2 records lost from table {moved}",
    ]


def test_each_table_that_a_type_names_is_held_against_its_records_also_one_that_is_not_there(tmp_path: Path) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "named", "named")
    types = ["card", "transfer", "cash", "voucher"]
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        catalog.create_namespace(workspace.name)
        create_tables(workspace, catalog)
        observer = Observer(workspace, catalog, lambda: types)
        Target(catalog, workspace.table, STREAM).restamp(stamp(workspace, "batch", 1, 0, 4, {}))
        seen = observer.now()
        own, card, *_ = workspace.row_tables
        assert seen.tables[own] is not None and seen.tables[card] is None
        types.append("new_1")
        of = np.array([0, 0, 4, 4, 4], np.uint8)
        expected = Expected({0: np.array([1, 1, 1, 2, 1], np.uint8)}, types={0: of}, names=tuple(types))
        found = seen.problems(expected)
        assert observer.now().tables[f"{workspace.name}.payments_of_new_1"] is None
    problems = [each.partition(": ")[0] for each in found if "lost from table" in each]
    # The last record lies behind what the stream has read.
    assert problems == [
        f"2 records lost from table {card}",
        f"1 records lost from table {workspace.name}.payments_of_new_1",
    ]


def test_main_of_a_gated_stream_is_told_from_its_branch(tmp_path: Path) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "gated", "gated")
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        catalog.create_namespace(workspace.name)
        create_tables(workspace, catalog)
        target = Target(catalog, workspace.table, STREAM, branch="ingest")
        target.claim(1, lambda newest: stamp(workspace, "claim", 1, 0, 0, {}))
        observer = Observer(workspace, catalog)
        assert observer.now().newest is not None, "its stamps are the branch's"
        assert observer.main() == {}
        assert publish(workspace.folder, fit=False) == "nothing new"


def test_before_there_are_tables(tmp_path: Path, workspace: Workspace) -> None:
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        observation = Observer(workspace, catalog).now()
    assert (observation.table, observation.newest, observation.heads) == (None, None, (None, None))
    assert observation.problems(Expected({0: np.array([1], dtype=np.uint8)})) == []


def test_where_the_batch_at_hand_was_to_end(tmp_path: Path) -> None:
    assert planned_end(tmp_path, 0.0) == {}
    offsets = tmp_path / "abc" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "9").write_text('v1\n{"batchTimestampMs":1}\n{"t":{"0":5}}')
    (offsets / "10").write_text('v1\n{"batchTimestampMs":1}\n{"t":{"0":7,"1":3}}')
    (offsets / ".11.tmp").write_text("v1")
    assert planned_end(tmp_path, 0.0) == {TopicPartition("t", 0): 7, TopicPartition("t", 1): 3}
    assert planned_end(tmp_path, time.time() + 60) == {}, "of an earlier driver"
    (offsets / "11").write_text("")
    assert planned_end(tmp_path, 0.0) == {}
