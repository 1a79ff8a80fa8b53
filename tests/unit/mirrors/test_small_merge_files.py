"""Files of small merges: which of a mirror's are read, and how many files of deletes stand beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import ManifestContent

from jobs.mirrors.merge.small_merge import new_rows, rows_there
from jobs.mirrors.merge.small_merge.mirror_files import MirrorFiles
from tests.helpers.mirror_changes import SMALL, rows_of
from tests.helpers.mirror_world import MirrorWorld, change


def test_deletes_are_brought_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads a data file reads those that are of several, so these stay few; and those with many are left."""
    monkeypatch.setattr(new_rows, "TOGETHER", 3)
    monkeypatch.setattr(new_rows, "FEW_POSITIONS", 11)
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], buckets=1)
    for first in (0, 10):
        world.land([change("r", first + n, 0, id=first + n, name="old", note="x") for n in range(10)])
        world.merged(by="process")
    files = list[list[int]]()
    newest = dict.fromkeys(range(20), "x")
    for n in range(10):
        changed = n % 10, 10 + n % 10
        world.land([change("u", 100 + 2 * n + m, id=key, name="new", note=str(n)) for m, key in enumerate(changed)])
        world.merged(by="process")
        newest |= dict.fromkeys(changed, str(n))
        files.append(sorted(each.file.record_count for each in mirror_files(world).deletes))
        head = world.mirror.current_snapshot()
        assert head is not None and head.summary is not None
        deletes = [each for each in head.manifests(world.mirror.io) if each.content == ManifestContent.DELETES]
        assert len(deletes) == 1
        assert head.summary["total-position-deletes"] == str(2 * n + 2) == str(sum(files[-1]))
        assert head.summary["total-delete-files"] == str(len(files[-1]))
        assert {key: row["note"] for (key,), row in world.rows().items()} == newest
    assert files == [[2], [2, 2], [2, 2, 2], [8], [2, 8], [2, 2, 8], [2, 2, 2, 8], [8, 8], [2, 8, 8], [2, 2, 8, 8]]


def mirror_files(world: MirrorWorld) -> MirrorFiles:
    head = world.mirror.metadata.current_snapshot_id
    assert head is not None
    return MirrorFiles.of(world.mirror, head)


def test_values_are_read_of_the_row_groups_that_have_them(tmp_path: Path) -> None:
    properties = {"write.parquet.row-group-limit": "100"}
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], buckets=1, properties=properties)
    world.land(rows_of(1_050))
    world.merged(by="process")
    chosen = [0, 99, 100, 555, 556, 1_049]
    world.land([change("u", 2_000 + n, id=n, name="new", unavailable=["note"]) for n in chosen])
    world.merged(by="process")
    rows = world.rows()
    assert [key for (key,), row in sorted(rows.items()) if row["name"] == "new"] == chosen
    assert {row["note"] for row in rows.values()} == {"x"}
    groups = rows_there._ReadGroups(np.array(chosen))
    assert groups.chosen([100] * 10 + [50]) == [0, 1, 5, 10]
    assert groups.places.tolist() == [0, 99, 100, 255, 256, 349]


def test_deletes_of_one_data_file_are_brought_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a compaction or a first load nearly all rows that change are in one file; what is gone is left alone."""
    monkeypatch.setattr(new_rows, "TOGETHER", 3)
    monkeypatch.setattr(new_rows, "FEW_POSITIONS", 10)
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], buckets=1)
    world.land(rows_of(20))
    world.merged(by="process")
    files = list[list[int]]()
    for n in range(12):
        world.land([change("u", 100 + n, id=n, name="new", note="x")])
        world.merged(by="process")
        found = mirror_files(world).deletes
        files.append(sorted(each.file.record_count for each in found))
    few = [[1], [1, 1], [1, 1, 1], [4], [1, 4], [1, 1, 4], [7], [1, 7], [1, 1, 7], [10], [1, 10], [1, 1, 10]]
    assert files == few
    assert sorted(row["name"] for row in world.rows().values()) == [f"n{n}" for n in range(12, 20)] + ["new"] * 12

    def gone(*given: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(new_rows, "deleted_positions", gone)
    monkeypatch.setattr(new_rows, "TOGETHER", 2)
    world.land([change("u", 200, id=19, name="last", note="x")])
    world.merged(by="process")
    assert world.rows()[(19,)]["name"] == "last"


def test_orders_are_not_read_where_all_changes_are_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], buckets=1)
    read = list[list[str]]()
    batches = rows_there.table_batches
    monkeypatch.setattr(
        rows_there,
        "table_batches",
        lambda io, file, schema, columns, **how: read.append(columns) or batches(io, file, schema, columns, **how),
    )
    world.land(rows_of(6))
    world.merged(by="process")
    world.land([change("u", 10 + n, id=n, name="new") for n in range(3)])
    world.merged(by="process")
    assert read == [["id"]]
    # One of another partition is older than those, and not older than the first rows.
    world.land([change("u", 5, 9, id=5, name="new", partition=1), change("u", 6, 11, id=0, name="late", partition=1)])
    world.merged(by="process")
    assert sorted(read[1:]) == [["id"], ["id", "_change_order"]]
    assert {key: row["name"] for (key,), row in world.rows().items()} == {
        0: "late", 1: "new", 2: "new", 3: "n3", 4: "n4", 5: "new",
    }  # fmt: skip


def test_files_without_a_key_of_the_changes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], buckets=8)
    mirror = world.mirror
    for first in (0, 1000):
        rows = [{"id": first + n, "name": "x"} for n in range(100)]
        frame = pa.Table.from_pylist(rows, schema=mirror.schema().as_arrow())
        with mirror.transaction() as change_, change_.update_snapshot().fast_append() as append:
            for file in _dataframe_to_data_files(mirror.metadata, frame, mirror.io):
                append.append_data_file(file)
    read: list[str] = []
    batches = rows_there.table_batches
    monkeypatch.setattr(
        rows_there, "table_batches", lambda io, file, *more, **how: read.append(file) or batches(io, file, *more, **how)
    )
    world.land([change("u", 10, id=1005, name="new")])
    world.merged(by="process")
    assert len(read) == 1
    assert world.rows()[(1005,)]["name"] == "new"
