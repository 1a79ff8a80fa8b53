"""What a certificate finds in a mirror: each snapshot that main has shown against the changes that its stamp says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.local.certify.changes import ChangedRows, Row, source_change
from jobs.local.certify.mirror_reader import MirrorReader, row_problems
from jobs.local.certify.workspace import STREAM
from jobs.mirrors.model.mirror_stamp import MirrorStamp, mirror_id
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from tests.unit.mirrors.plain_merger import copy_on_write

NAME = "shop.payments_now"
AT = TopicPartition("changes", 0)
COLUMNS = pa.schema([("id", pa.string()), ("amount", pa.int64()), ("note", pa.string())])

NO_MERGE = "which is no merge that was published"


class World:
    """A mirror of which a test says what it shows, and when."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog: Catalog = catalog
        catalog.create_namespace("shop")
        catalog.create_table(NAME, COLUMNS)
        load: Any = SimpleNamespace(
            seed=4, numbers=lambda partition, start, end: range(start, end), ends=lambda: {AT: 40}
        )
        self.reader: MirrorReader = MirrorReader(NAME, catalog, load)

    def write(self, rows: Mapping[str, Row]) -> None:
        """Rows as a merge leaves them, which main is not to show before it is stamped."""
        found = [{"id": key, "amount": amount, "note": note} for key, (amount, note) in rows.items()]
        with copy_on_write():
            self.catalog.load_table(NAME).overwrite(pa.Table.from_pylist(found, COLUMNS), AlwaysTrue())

    def publish(self, through: int, epoch: int, *, claim: bool = False) -> None:
        """A stamped snapshot."""
        said = MirrorStamp("u", 1, 1, 1, ("id",), positions={STREAM: {AT: through}} if through else {})
        mirror = said.to_json() if through else {}
        kind = "claim" if claim else "batch"
        stamp = Stamp(mirror_id(STREAM, NAME), kind, 0, epoch, "c", start={}, position={}, mirror=mirror)
        Target(self.catalog, NAME, mirror_id(STREAM, NAME)).restamp(stamp)

    def merge(self, through: int, epoch: int, rows: Mapping[str, Row] | None = None) -> None:
        """Both; what main shows in between is looked at, and left out."""
        self.write(made(through) if rows is None else rows)
        assert all(NO_MERGE in each for each in self.reader.problems())
        self.publish(through, epoch)


def made(through: int) -> dict[str, Row]:
    rows = ChangedRows()
    rows.follow(source_change(4, number) for number in range(through))
    return rows.rows


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        yield World(catalog)


def test_what_is_published_is_compared_through_its_stamp(world: World) -> None:
    assert world.reader.problems() == [] == world.reader.merges()
    world.publish(0, 1, claim=True)
    assert world.reader.problems() == []
    world.merge(20, 1)
    world.publish(20, 2, claim=True)
    assert world.reader.problems() == []
    assert [each.epoch for each in world.reader.merges()] == [1], "a claim is no merge"
    world.merge(40, 2)
    assert world.reader.lacking() != []
    assert world.reader.problems() == [] == world.reader.lacking()
    assert [each.epoch for each in world.reader.merges()] == [1, 2]


def test_half_a_merge_is_seen(world: World) -> None:
    world.merge(20, 1)
    world.write(made(30))
    world.publish(40, 2)
    problems = world.reader.problems()
    assert any(NO_MERGE in each for each in problems)
    assert any("otherwise than their changes say" in each for each in problems)


def test_what_goes_back_is_seen(world: World) -> None:
    world.merge(30, 3)
    assert world.reader.problems() == []
    world.merge(20, 2)
    epoch, back = world.reader.problems()
    assert "is of epoch 2, behind one of 3" in epoch
    assert "goes back in changes" in back


def test_a_key_with_two_rows_is_seen(world: World) -> None:
    world.write(made(20))
    rows = world.catalog.load_table(NAME).scan(limit=1).to_arrow()
    world.catalog.load_table(NAME).append(rows.cast(COLUMNS))
    world.reader.problems()
    world.publish(20, 1)
    (twice,) = world.reader.problems()
    assert f"keys with several rows: {cast('str', rows['id'][0].as_py())}" in twice


def test_a_branch_that_an_attempt_has_left_is_seen(world: World) -> None:
    world.merge(40, 1)
    assert world.reader.problems() == []
    table = world.catalog.load_table(NAME)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "frazil-mirror-1-1-x").commit()
    assert world.reader.lacking() == ["the mirror has branches of attempts: frazil-mirror-1-1-x"]


def test_rows_in_words() -> None:
    assert row_problems({"a": (1, None)}, {"a": (1, None)}) == []
    said = row_problems({"a": (1, "x"), "c": (3, "z")}, {"a": (1, "y"), "b": (2, None)})
    assert said == [
        "1 rows that it lacks: b",
        "1 rows that it has and their changes do not make: c",
        "1 rows that it has otherwise than their changes say: a",
    ]
