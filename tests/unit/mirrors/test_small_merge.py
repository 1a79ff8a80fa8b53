"""Small merges, without Spark: the mirror has what one change at a time would have made of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

from jobs.mirrors.merge.small_merge import new_rows, rows_there, small_merge
from jobs.mirrors.model.merge_plan import Deletes
from tests.helpers.mirror_changes import CHANGED_ROWS, CHANGES, REPEATS, SMALL, rows_of
from tests.helpers.mirror_world import BEGIN, MirrorWorld, Row, change
from tests.helpers.source_table import KEY, ROW, SourceTable, state_after


@pytest.mark.parametrize(
    ("seed", "deletes", "where"),
    [(1, "hard", None), (2, "soft", None), (3, "hard", "name <> 'n7' AND id < 20"), (4, "soft", "id < 20")],
)
def test_random_histories_cut_anywhere(tmp_path: Path, seed: int, deletes: Deletes, where: str | None) -> None:
    chosen = random.Random(seed)
    source = SourceTable(seed, simple=True)
    source.run(250)
    world = MirrorWorld(tmp_path, None, ROW, KEY, deletes=deletes, where=where, buckets=2)
    bounds = [0, *sorted(chosen.sample(range(20, len(source.log)), 3)), len(source.log)]
    for start, end in pairwise(bounds):
        part = source.log[start:end]
        chosen.shuffle(part)
        world.land(part)
        result = world.merged(by="process")
        assert result.counts.read == len(part)
        expected = state_after(source.log[:end])
        if where:
            expected = {key: row for key, row in expected.items() if row["name"] != "n7" and row["id"] < 20}
            if "name" not in where:
                assert not [row for row in expected.values() if row["name"] == "n7"]
        found = world.rows()
        if deletes == "soft":
            found = {key: row for key, row in found.items() if not row.pop("_change_deleted")}
        assert found == expected


def test_changes_of_rows(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path, None, SMALL, ["id"])
    world.land(rows_of(6))
    first = world.merged(by="process")
    assert (first.counts.read, first.counts.upserts, len(first.snapshots)) == (6, 6, 1)
    world.land(CHANGES)
    files = world.files
    second = world.merged(by="process")
    assert (second.counts.read, second.counts.upserts, second.counts.deletes) == (8, 3, 2)
    assert world.rows() == CHANGED_ROWS
    told = world.mirror.current_snapshot()
    assert told is not None and told.summary is not None
    said = {key: told.summary[key] for key in ("added-records", "added-position-deletes", "total-position-deletes")}
    assert said == {"added-records": "3", "added-position-deletes": "3", "total-position-deletes": "3"}
    # The same again, as if the stamp had been lost: nothing is written.
    again = world.merged(files=files, state=first.state, by="process")
    assert (again.state, again.snapshots) == (second.state, ())
    # Changes that were sent before, and no files at all.
    world.land(REPEATS)
    repeats = world.merged(by="process")
    assert (repeats.counts.repeats, repeats.counts.upserts, repeats.snapshots) == (2, 0, ())
    assert world.merged(by="process").snapshots == ()
    assert world.rows() == CHANGED_ROWS


def test_a_key_whose_name_begins_with_a_dot(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path, None, "`.id` long, name string", [".id"])
    world.land([change("c", 0, **{".id": 1}, name="a"), change("c", 1, **{".id": 2}, name="b")])
    world.merged(by="process")
    world.land([change("u", 2, **{".id": 1}, name="new"), change("d", 3, **{".id": 2})])
    world.merged(by="process")
    assert world.rows() == {(1,): {".id": 1, "name": "new"}}


def test_a_compressed_transaction_of_mysql_comes_whole(tmp_path: Path) -> None:
    """All of its events have one place, and the rows of each are counted from 0; part of it was sent twice."""
    world = MirrorWorld(tmp_path, None, SMALL, ["id"])

    def at(op: str, offset: int, row: int, **values: Any) -> Row:
        position = f"00000003/{260:016x}/{row:08x}"
        return change(op, offset, lineage="mysql/shop/bin/1", **values) | {"_change_position": position}

    world.land([at("c", n, n % 109, id=n, name="new") for n in range(1_000)])
    assert world.merged(by="process").counts.repeats == 0
    later = [at("u", 1_000, 3, id=7, name="u"), at("d", 1_001, 0, id=8), at("u", 1_002, 0, id=7, name="last")]
    world.land([*later, *(each | {"_kafka_offset": each["_kafka_offset"] + 3} for each in later)])
    world.merged(by="process")
    assert {key: row["name"] for (key,), row in world.rows().items()} == {
        n: "last" if n == 7 else "new" for n in range(1_000) if n != 8
    }


def test_rows_of_one_key_that_stand_there_twice_are_all_changed(tmp_path: Path) -> None:
    """As an adopted table may have them; they have no order yet, so each change is later."""
    world = MirrorWorld(tmp_path, None, SMALL, ["id"])
    mirror = world.mirror
    twice = [{"id": 1, "name": "a", "note": "kept"}, {"id": 1, "name": "b", "note": "other"}, {"id": 2, "name": "c"}]
    mirror.append(pa.Table.from_pylist(twice, schema=mirror.schema().as_arrow()))
    world.land([change("u", 0, id=1, name="new", unavailable=["note"]), change("d", 1, id=2)])
    world.merged(by="process")
    found = sorted(world.mirror.scan().to_arrow().to_pylist(), key=lambda row: row["note"])
    assert [(row["name"], row["note"]) for row in found] == [("new", "kept"), ("new", "other")]


def test_columns_that_were_widened_renamed_and_added_since(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path, None, "id int, name string", ["id"])
    world.land([change("r", at, 0, id=n, name=f"n{n}") for at, n in enumerate((1, 2, 3, 2**31 - 1))])
    world.merged(by="process")
    for table in (world.changelog, world.mirror):
        with table.update_schema() as update:
            update.update_column("id", LongType()).rename_column("name", "called").add_column("more", LongType())
    world.columns = ("id", "called", "more")
    world.land(
        [
            change("u", 10, id=2, more=2, unavailable=["called"]),
            change("u", 11, id=2**31 - 1, called="last", unavailable=["more"]),
            change("c", 12, id=2**40, called="new"),
        ]
    )
    world.merged(by="process")
    assert {key: (row["called"], row["more"]) for (key,), row in world.rows().items()} == {
        1: ("n1", None), 2: ("n2", 2), 3: ("n3", None), 2**31 - 1: ("last", None), 2**40: ("new", None),
    }  # fmt: skip


def test_columns_of_the_mirror_alone_keep_their_values(tmp_path: Path) -> None:
    """Such as an operator has added, or an adopted table has, or a changelog has no more."""
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], deletes="soft")
    world.land(rows_of(2))
    world.merged(by="process")
    with world.mirror.update_schema() as update:
        update.add_column("extra", StringType())
    mirror = world.mirror
    theirs = {"id": 9, "name": "theirs", "note": "n", "extra": "kept", "_change_deleted": False}
    mirror.append(pa.Table.from_pylist([theirs], schema=mirror.schema().as_arrow()))
    world.land(
        [
            change("u", 10, id=9, name="ours", unavailable=["note"]),
            change("u", 11, id=1, name="one", note="1"),
            change("c", 12, id=5, name="five"),
        ]
    )
    world.merged(by="process")
    world.land([change("u", 13, id=9, name="again", note="m")])
    world.merged(by="process")
    world.land([change("d", 14, id=9)])
    world.merged(by="process")
    found = {key: (row["name"], row["note"], row["extra"]) for (key,), row in world.rows().items()}
    assert found == {0: ("n0", "x", None), 1: ("one", "1", None), 5: ("five", None, None), 9: ("again", "m", "kept")}
    assert world.rows()[(9,)]["_change_deleted"]


def _none(world: MirrorWorld, patch: pytest.MonkeyPatch) -> None:
    pass


def _copy_on_write(world: MirrorWorld, patch: pytest.MonkeyPatch) -> None:
    with world.mirror.transaction() as change_:
        change_.set_properties({"write.merge.mode": "copy-on-write"})


def _other_partitions(world: MirrorWorld, patch: pytest.MonkeyPatch) -> None:
    with world.mirror.update_spec() as update:
        update.add_field("name", IdentityTransform())


def _few(module: Any, name: str) -> Callable[[MirrorWorld, pytest.MonkeyPatch], None]:
    return lambda world, patch: patch.setattr(module, name, 1)


NOT_SMALL: dict[str, tuple[Callable[[MirrorWorld, pytest.MonkeyPatch], None], list[Row]]] = {
    "changes have come late": (_none, [change("u", 2, 60, id=1)]),
    "the source was truncated": (_none, [change("t", 50)]),
    "values were sent before": (_none, [change("c", 51, id=99, unavailable=["note"])]),
    "no row of the mirror has": (_none, [change("u", 51, id=99, unavailable=["note"])]),
    "removed by a later change": (_none, [change("u", 51, 40, id=99, partition=1)]),
    "the filter reads values": (_none, [change("u", 51, id=1, unavailable=["note"])]),
    "the filter has no answer": (_none, [change("u", 51, id=1, note="x", name="")]),
    "there are many changes": (_few(small_merge, "MOST_ROWS"), rows_of(2, 60)),
    "more than 1 rows": (_few(rows_there, "MOST_ROWS"), [change("u", 51 + n, id=n) for n in range(6)]),
    "more than 1 files": (_few(rows_there, "MOST_FILES"), [change("u", 51 + n, id=n) for n in range(6)]),
    "stand in more than 1": (_few(small_merge, "_MOST_MET"), [change("u", 51 + n, id=n) for n in range(3)]),
    "values of more than": (_few(new_rows, "MOST_BYTES"), [change("u", 51, id=1, unavailable=["note"])]),
    "write.merge.mode": (_copy_on_write, [change("u", 51, id=1)]),
    "former partitions": (_other_partitions, [change("u", 51, id=1)]),
}


@pytest.mark.parametrize("why", NOT_SMALL)
def test_what_is_left_to_spark_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    prepared, changes = NOT_SMALL[why]
    where = {"the filter reads values": "note <> 'y'", "the filter has no answer": "10 / length(name) > 0"}.get(why)
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], where=where)
    world.land([*rows_of(6), change("d", 45, 45, id=77)])
    world.merged(by="process")
    prepared(world, monkeypatch)
    files = {*tmp_path.rglob("*.parquet")}
    world.land(changes)
    landed = {*tmp_path.rglob("*.parquet")} - files
    caplog.set_level("INFO")
    with pytest.raises(AssertionError, match="left to Spark"):
        world.merged(by="process")
    assert why in caplog.text
    assert {*tmp_path.rglob("*.parquet")} == files | landed
    branch = world.mirror.metadata.refs[f"frazil-mirror-1-{world.attempts}"]
    assert branch.snapshot_id == world.mirror.metadata.current_snapshot_id


def test_a_row_that_stays_as_deleted_has_no_values_for_a_later_change(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], deletes="soft")
    world.land(rows_of(3))
    world.merged(by="process")
    world.land([change("d", 10, id=1)])
    world.merged(by="process")
    assert world.rows()[(1,)] == {"id": 1, "name": "n1", "note": "x", "_change_deleted": True}
    world.land([change("u", 11, id=1, name="back", unavailable=["note"])])
    with pytest.raises(AssertionError, match="left to Spark"):
        world.merged(by="process")
    world.land([change("c", 12, id=1, name="anew", note="y")])
    world.merged(by="process")
    assert world.rows()[(1,)] == {"id": 1, "name": "anew", "note": "y", "_change_deleted": False}


def test_every_type_of_column(tmp_path: Path) -> None:
    kinds = (
        "day date, n int, price decimal(12,2), at timestamptz, wall timestamp, small float, octets binary, "
        "eight fixed(8), yes boolean, u uuid, people list<struct<name string not null, age int>>, "
        "named map<string, decimal(5,1)>, place struct<x double not null, far struct<y long>>"
    )
    world = MirrorWorld(tmp_path, None, kinds, ["day", "price", "at", "octets", "yes"], deletes="soft")
    row: Row = {
        "day": date(2026, 3, 1), "n": 5, "price": Decimal("1.25"), "at": BEGIN, "wall": BEGIN.replace(tzinfo=None),
        "small": 0.5, "octets": b"\x00", "eight": b"12345678", "yes": True, "u": bytes(15) + b"\x02",
        "people": [{"name": "a", "age": None}, None], "named": [("a", Decimal("1.5"))],
        "place": {"x": 0.1, "far": {"y": None}},
    }  # fmt: skip
    other = row | {"octets": b"\x00\x00"}
    world.land([change("c", 0) | row, change("c", 1) | other])
    world.merged(by="process")
    left_out = [name for name in row if name not in world.key and name != "n"]
    less = row | {"n": 6} | dict.fromkeys(left_out)
    world.land([change("u", 2, unavailable=left_out) | less, change("d", 3) | other])
    world.merged(by="process")
    shown = row | {"u": UUID(bytes=row["u"])}
    expected = [shown | {"n": 6, "_change_deleted": False}, shown | {"octets": b"\x00\x00", "_change_deleted": True}]
    assert sorted(world.rows().values(), key=lambda found: len(found["octets"])) == expected
