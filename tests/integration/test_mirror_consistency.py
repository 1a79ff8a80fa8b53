"""Mirrors compared with their changelogs by Spark: what agrees, what somebody has changed, and a part of the keys."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from jobs.base.errors import FrazilError
from jobs.mirrors.check.consistency import (
    BUCKETS,
    DAYS,
    Consistency,
    buckets_of_day,
    check_consistency,
    consistency_fix,
    consistency_sentence,
)
from jobs.mirrors.fold.merging_session import merging_session
from jobs.mirrors.run.mirror_status import mirror_status
from tests.integration.test_mirror import Merges
from tests.unit.mirrors.expiry import LATER, maintained
from tests.unit.mirrors.mirror_world import (
    AT,
    CHANGELOG,
    COLUMNS,
    MIRROR,
    Change,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import copy_on_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.integration


def compared(world: MirrorWorld, session: SparkSession, buckets: range | None = None) -> Consistency | None:
    with world.catalog() as catalog:
        return check_consistency(world.spec, world.mirror, world.settings, catalog, lambda: session, buckets)


def wrong(found: Consistency | None) -> dict[str, int]:
    assert found is not None
    return {"expected": found.rows, "found": found.found, **found.counts}


def test_every_key_is_held_against_its_changes(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path)
    merges = Merges(world, spark)
    session = merges.session
    world.land(*(Change(n, f"a{n}") for n in range(40)))
    merges.run()
    world.land(*(Change(n, None if n % 4 == 0 else f"b{n}") for n in range(20)), Change(4, "back"), Change(7, "c"))
    merges.run()
    rows = len(world.source())
    # Landed and not merged yet: the mirror is compared through its own stamp.
    world.land(Change(50, "later"))
    found = compared(world, session)
    assert wrong(found) == {"expected": rows, "found": rows, "missing": 0, "extra": 0, "different": 0}
    assert found is not None and found.consistent and consistency_fix(world.spec, found) is None
    assert f"All keys of {MIRROR} were compared" in consistency_sentence(found)

    # Each day has its own part, and all days together have every key.
    parts = [buckets_of_day(date(2026, 11, 26) + timedelta(days=day)) for day in range(DAYS)]
    assert sorted(bucket for part in parts for bucket in part) == list(range(BUCKETS))
    halves = [compared(world, session, range(first, first + BUCKETS // 2)) for first in (0, BUCKETS // 2)]
    assert all(each is not None and each.looked_at == BUCKETS // 2 and each.rows for each in halves)
    assert sum(each.rows for each in halves if each is not None) == rows
    merges.run()
    rows = len(world.source())

    # What somebody does to the mirror past its merges is found, and named.
    table = world.table()
    row = table.scan(row_filter="id = 33").to_arrow()
    spark_table = f"{world.settings.catalog.name}.{MIRROR}"
    merging_session(session, world.settings).sql(f"DELETE FROM {spark_table} WHERE id IN (30, 31)")
    assert len(mirror_status(world.spec, world.mirror, world.settings, world.catalog()).others) == 1
    table.refresh()
    with copy_on_write():
        table.append(_changed(row, "id", 99))
        table.overwrite(_changed(row, "name", "not so"), "id = 33")
    found = compared(world, session)
    assert wrong(found) == {"expected": rows, "found": rows - 1, "missing": 2, "extra": 1, "different": 1}
    assert found is not None and not found.consistent
    assert {(what, key["id"]) for what, key in found.examples} == {
        ("missing", 30), ("missing", 31), ("extra", 99), ("different", 33),
    }  # fmt: skip
    assert consistency_fix(world.spec, found) == f"frazil mirror rebuild customers --table {MIRROR}"
    merges.rebuild()
    assert world.rows() == world.source()

    # Without the snapshot that was merged there is nothing to compare with.
    head = world.changelog().current_snapshot()
    assert head is not None
    world.land(Change(1, "later"))
    world.changelog().maintenance.expire_snapshots().by_id(head.snapshot_id).commit()
    with pytest.raises(FrazilError, match="has expired"):
        compared(world, session)


def test_where_changes_have_expired_rows_with_changes_are_compared(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path)
    world.write(changes={"envelope": "debezium", "keep": "30d"})
    merges = Merges(world, spark)
    world.land(*(Change(n, f"a{n}") for n in range(20)))
    world.land(*(Change(n, None if n % 4 == 0 else f"b{n}") for n in range(10)))
    merges.run()
    world.at = LATER
    world.land(Change(4, "back"), Change(7, None), Change(15, "c"))
    (gone,) = maintained(world).done
    assert gone.detail["expired_changes"] == 30
    merges.run()
    found = compared(world, merges.session)
    assert wrong(found) == {"expected": 2, "found": 2, "missing": 0, "extra": 0, "different": 0}
    assert found is not None and found.adopted == len(world.source()) - 2
    with copy_on_write():
        table = world.table()
        table.append(_changed(table.scan(row_filter="id = 15").to_arrow(), "id", 7))
        table.delete("id = 4")
    assert wrong(compared(world, merges.session)) == {
        "expected": 2, "found": 2, "missing": 1, "extra": 1, "different": 0,
    }  # fmt: skip


def test_a_row_of_a_later_version_than_the_changes_that_are_left_is_not_compared(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = MirrorWorld(tmp_path)
    key = {"format": "json", "schema": "id long", "into": "_change_key"}
    decode = {"value": "json", "schema": "id long, name string, __op string, v long", "key": key}
    changes = {"envelope": "columns", "op": "__op", "order_by": "v", "keep": "30d"}
    world.write(decode=decode, changes=changes)
    merges = Merges(world, spark)
    world.position_shift = 1_000
    world.land(Change(1, "nine"), Change(2, "two"), Change(3, "three"), Change(3, None))
    merges.run()
    # Lower versions come behind, of a deletion among them; one row is new.
    world.position_shift, world.at = 0, AT + timedelta(days=1, hours=12)
    world.land(Change(1, "five"), Change(2, None), Change(3, "late"))
    world.position_shift = 2_000
    world.land(Change(4, "dan"))
    merges.run()
    assert world.rows() == {1: "nine", 2: "two", 4: "dan"}
    everything = {"expected": 3, "found": 3, "missing": 0, "extra": 0, "different": 0}
    assert wrong(compared(world, merges.session)) == everything
    (gone,) = maintained(world, AT + timedelta(days=31, hours=1)).done
    assert gone.detail["expired_changes"] == 4
    found = compared(world, merges.session)
    assert wrong(found) == {"expected": 2, "found": 2, "missing": 0, "extra": 0, "different": 0}
    assert found is not None and (found.adopted, found.undecided) == (1, 1)
    # A row that its changes tell is compared.
    with copy_on_write():
        table = world.table()
        table.overwrite(_changed(table.scan(row_filter="id = 4").to_arrow(), "name", "not so"), "id = 4")
    assert wrong(compared(world, merges.session)) == {
        "expected": 2, "found": 2, "missing": 0, "extra": 0, "different": 1,
    }  # fmt: skip


def test_a_row_whose_key_changed_and_that_the_filter_leaves_out_is_not_missing(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = MirrorWorld(tmp_path, where="name <> 'hidden'")
    merges = Merges(world, spark)
    world.land(Change(1, "hidden"), Change(2, "bob"))
    merges.run()
    # The new keys' rows lack the name, which stands in changes of the former keys.
    world.land(Change(1, None), Change(3, "hidden", moved_from=1), Change(2, None), Change(4, "bob", moved_from=2))
    merges.run()
    assert world.rows() == {4: "bob"}
    found = compared(world, merges.session)
    assert wrong(found) == {"expected": 1, "found": 1, "missing": 0, "extra": 0, "different": 0}
    assert found is not None and found.consistent
    assert "1 keys without a row are not compared: their changes do not say whether" in consistency_sentence(found)


def test_rows_that_are_kept_as_deleted_and_rows_outside_of_the_filter_are_none(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = MirrorWorld(tmp_path, deletes="soft", where="name <> 'hidden'")
    merges = Merges(world, spark)
    assert compared_or_nothing(world, merges.session) is None
    world.land(Change(1, "ann"), Change(2, "bob"), Change(3, "hidden"), Change(4, "cid"))
    merges.run()
    world.land(Change(2, None), Change(4, "hidden"), Change(5, "dan"))
    merges.run()
    assert wrong(compared(world, merges.session)) == {
        "expected": 2, "found": 2, "missing": 0, "extra": 0, "different": 0,
    }  # fmt: skip


def test_rows_of_an_adopted_table_are_compared_in_its_types(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path)
    narrow = NestedField(1, "id", IntegerType(), required=False)
    with world.catalog() as catalog:
        catalog.drop_table(CHANGELOG)
        fields = Schema(narrow, *COLUMNS.fields[1:])
        catalog.create_table(CHANGELOG, fields, properties={"format-version": "2"})
        # Another order of columns, a wider key, and rows of its own, of one of which a change comes.
        kinds = pa.schema([("name", pa.string()), pa.field("id", pa.int64(), nullable=False)])
        there = pa.Table.from_pylist([{"id": 1000, "name": "old"}, {"id": 3, "name": "old"}], kinds)
        catalog.create_table(MIRROR, kinds).append(there)
    merges = Merges(world, spark)
    world.land(*(Change(n, f"a{n}") for n in range(20)))
    merges.run()
    # A column that the changelog has got and no merge has seen yet.
    with world.changelog().update_schema() as change:
        change.add_column("n", IntegerType())
    found = compared(world, merges.session)
    assert wrong(found) == {"expected": 20, "found": 20, "missing": 0, "extra": 0, "different": 0}
    assert found is not None and found.adopted == 1 and found.consistent
    assert "1 rows have no change in the changelog, and are not compared" in consistency_sentence(found)


def compared_or_nothing(world: MirrorWorld, session: SparkSession) -> Consistency | None:
    """The same before the mirror is made: there is no table yet."""
    from jobs.mirrors.merge.mirror_table import ensure_mirror

    ensure_mirror(world.spec, world.mirror, world.catalog(), world.changelog().schema())
    return compared(world, session)


def _changed(row: pa.Table, column: str, value: object) -> pa.Table:
    where = row.schema.get_field_index(column)
    return row.set_column(where, row.schema.field(where), pa.array([value], row.schema.field(where).type))
