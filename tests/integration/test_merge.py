"""Merging on real Spark and Iceberg: the mirror has what one change at a time, in the source's order, makes of it."""

from __future__ import annotations

import random
import warnings
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pyiceberg.expressions import AlwaysTrue

from jobs.base.errors import FrazilError
from jobs.mirrors.fold.merging_session import merging_session
from jobs.mirrors.merge import merge as join_conf
from jobs.mirrors.merge.merge import table_path
from jobs.mirrors.model.errors import UnknownGenerationError
from jobs.mirrors.model.merge_plan import Deletes, MirrorState
from tests.helpers.mirror_changes import CHANGED_ROWS, CHANGES, REPEATS, SMALL, rows_of
from tests.helpers.mirror_world import BEGIN, By, MirrorWorld, Row, change
from tests.helpers.source_table import KEY, ROW, SourceTable, state_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


HISTORIES: list[tuple[int, int, Deletes, str | None]] = [(1, 3, "hard", None), (2, 2, "soft", "note IS NOT NULL")]


@pytest.mark.parametrize(("seed", "merges", "deletes", "where"), HISTORIES)
def test_random_histories_cut_anywhere(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    merges: int,
    deletes: Deletes,
    where: str | None,
) -> None:
    # The keys of the changes are a filter of the mirror's rows, as in a mirror that has many.
    monkeypatch.setattr(join_conf, "FEW_ROWS", 0)
    monkeypatch.setattr(join_conf, "ROWS_TO_A_KEY", 0)
    chosen = random.Random(seed)
    source = SourceTable(seed)
    source.run(300)
    world = MirrorWorld(tmp_path, spark, ROW, KEY, deletes=deletes, where=where)
    bounds = [0, *sorted(chosen.sample(range(20, len(source.log)), merges - 1)), len(source.log)]
    late = source.late()
    landed, waiting = list[Row](), list[Row]()
    for start, end in pairwise(bounds):
        part = [each for each in source.log[start:end] if each not in late] + waiting
        waiting = [each for each in source.log[start:end] if each in late]
        chosen.shuffle(part)
        landed += part
        world.land(part[: len(part) // 3])
        world.land(part[len(part) // 3 :])
        result = world.merged()
        assert result.counts.read == len(part)
        expected = state_after(landed)
        if where:
            expected = {key: row for key, row in expected.items() if row["note"] is not None}
        found = world.rows()
        if deletes == "soft":
            found = {key: row for key, row in found.items() if not row.pop("_change_deleted")}
        assert found == expected


def test_small_merges_and_those_of_spark_go_on_from_each_other(tmp_path: Path, spark: SparkSession) -> None:
    """Spark also brings the files together that both have left, and reads the same rows."""
    source = SourceTable(5, simple=True)
    source.run(200)
    world = MirrorWorld(tmp_path, spark, ROW, KEY, where="id < 20", buckets=2)
    path = table_path(world.settings, world.mirror)
    late = source.late(2)
    turns: list[tuple[By, str | None]] = [
        ("process", None), ("spark", None), ("process", "rewrite_position_delete_files"), ("process", None),
        ("either", "rewrite_data_files"), ("process", None),
    ]  # fmt: skip
    step = len(source.log) // len(turns) + 1
    landed = list[Row]()
    for number, (by, procedure) in enumerate(turns):
        part = [each for each in source.log[number * step : (number + 1) * step] if each not in late]
        # What comes late is merged by Spark.
        part += late if by == "either" else []
        landed += part
        world.land(part)
        world.merged(by=by)
        expected = {key: row for key, row in state_after(landed).items() if row["id"] < 20}
        for found in (world.rows(), _rows_of_spark(world, path)):
            assert found == expected
        if procedure is not None:
            own, catalog = merging_session(spark, world.settings), world.settings.catalog.name
            own.sql(
                f"CALL {catalog}.system.{procedure}(table => 'shop.customers', options => map('rewrite-all', 'true'))"
            )
    assert world.small == len([by for by, _ in turns if by == "process"])


def _rows_of_spark(world: MirrorWorld, path: str) -> dict[Any, Row]:
    assert world.session is not None
    rows = merging_session(world.session, world.settings).sql(f"SELECT * FROM {path}").collect()
    found = [row.asDict(recursive=True) for row in rows]
    assert len({(row["id"], row["part"]) for row in found}) == len(found)
    return {(row["id"], row["part"]): {name: row[name] for name in row if name != "_change_order"} for row in found}


def test_changes_of_rows(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    world.land(rows_of(6))
    first = world.merged()
    assert (first.counts.read, first.counts.upserts, len(first.snapshots)) == (6, 6, 1)
    assert world.rows() == {(n,): {"id": n, "name": f"n{n}", "note": "x"} for n in range(6)}
    world.land(CHANGES)
    files = world.files
    second = world.merged()
    assert (second.counts.read, second.counts.upserts, second.counts.deletes) == (8, 3, 2)
    assert world.rows() == CHANGED_ROWS
    # The same again, as if the stamp had been lost.
    again = world.merged(files=files, state=first.state)
    assert again.state == second.state
    assert world.rows() == CHANGED_ROWS
    # Changes that were sent before, a truncate of nothing older, and no files at all.
    world.land(REPEATS)
    repeats = world.merged()
    assert (repeats.counts.repeats, repeats.counts.upserts, repeats.snapshots) == (2, 0, ())
    assert world.merged().snapshots == ()
    # A truncate, with changes before and behind it.
    world.land([change("u", 20, id=1, name="x", note="x"), change("t", 21), change("c", 22, id=1, name="new")])
    truncated = world.merged()
    assert (truncated.counts.truncates, len(truncated.snapshots)) == (1, 2)
    assert world.rows() == {(1,): {"id": 1, "name": "new", "note": None}}


def test_an_older_version_does_not_bring_back_a_row_that_is_gone(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"], scope="key")

    def version(op: str, offset: int, number: int, key: int, name: str) -> Row:
        return change(op, offset, number, id=key, name=name, lineage=None)

    def alive() -> dict[int, str]:
        return {key: row["name"] for (key,), row in world.rows().items()}

    world.land([version("u", 0, 1, 1, "a"), version("u", 1, 1, 2, "b"), version("u", 2, 1, 3, "c")])
    world.merged()
    # There is no row of the third one.
    world.land([version("d", 3, 4, 1, "a"), version("d", 4, 4, 2, "b"), version("d", 5, 4, 7, "g")])
    assert world.merged().counts.deletes == 3
    # Older versions of all, one of a row that is there, and rows that are new: of one an older deletion is known.
    world.land([version("d", 6, 2, 4, "d"), version("u", 7, 3, 1, "late"), version("u", 8, 3, 2, "late")])
    world.land([version("u", 9, 2, 3, "cc"), version("u", 10, 1, 5, "e"), version("u", 11, 3, 4, "dd")])
    world.land([version("u", 12, 3, 7, "late")])
    assert world.merged().counts.refolded == 3
    expected = {3: "cc", 4: "dd", 5: "e"}
    assert alive() == expected
    # A later one does.
    world.land([version("u", 13, 5, 1, "new"), version("u", 14, 2, 6, "f")])
    world.merged()
    assert alive() == expected | {1: "new", 6: "f"}


def test_a_filter_without_an_answer_stops_a_mirror_and_leaves_its_rows(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"], where="10 / id > 1")
    world.land([change("c", 0, 50, id=1, name="a")])
    world.merged()
    world.land([change("c", 1, 61, id=0)])
    with pytest.raises(FrazilError, match=r"the filter of mirror shop\.customers has no answer for a row"):
        world.merged()
    assert world.rows() == {(1,): {"id": 1, "name": "a", "note": None}}


TYPES = (
    "k uuid, day date, n int, price decimal(12,2), at timestamptz, wall timestamp, small float, octets binary, "
    "eight fixed(8), yes boolean, u uuid, people list<struct<name string, age int>>, named map<string, decimal(5,1)>"
)


def test_every_type_of_column(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path, spark, TYPES, ["day", "k", "price"])
    row: dict[str, Any] = {
        "k": bytes(15) + b"\x01", "day": date(2026, 3, 1), "n": 5, "price": Decimal("1.25"), "at": BEGIN,
        "wall": BEGIN.replace(tzinfo=None), "small": 0.5, "octets": b"\x00", "eight": b"12345678", "yes": True,
        "u": bytes(15) + b"\x02", "people": [{"name": None, "age": 1}, None], "named": [("a", Decimal("1.5"))],
    }  # fmt: skip
    other = row | {"k": bytes(15) + b"\x03"}
    world.land([change("c", 0) | row, change("c", 1) | other])
    world.merged()
    assert sorted(world.rows().values(), key=lambda each: each["k"]) == [_shown(row), _shown(other)]
    less = row | {"n": 6, "people": None}
    world.land([change("u", 2, unavailable=["people"]) | less, change("d", 3) | other])
    world.merged()
    assert [*world.rows().values()] == [_shown(row | {"n": 6})]


def _shown(row: Row) -> Row:
    return row | {"k": UUID(bytes=row["k"]), "u": UUID(bytes=row["u"])}


def _names(world: MirrorWorld) -> dict[int, str]:
    return {key: row["name"] for (key,), row in world.rows().items()}


def _anew(world: MirrorWorld) -> None:
    """The mirror is made anew of all that its changelog has."""
    files = [task.file for task in world.changelog.scan(AlwaysTrue()).plan_files()]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Merge on read is not yet supported")
        world.mirror.delete(AlwaysTrue())
    world.merged(files=files, state=MirrorState())


def _unplaced(told: Row) -> Row:
    return told | {"_change_position": None, "_change_lineage": None}


def test_rows_that_are_read_anew_without_positions(tmp_path: Path, spark: SparkSession) -> None:
    """They are later than the changes before them, and than a truncate."""
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    log = [
        change("c", 0, id=1, name="a"), change("u", 1, id=1, name="b"), change("c", 2, id=2, name="c"),
        change("d", 3, id=2), change("r", 4, id=1, name="read"), change("r", 5, id=2, name="read"), change("t", 6),
        change("r", 7, id=1, name="again"), change("r", 8, id=3, name="three"), change("u", 9, id=3, name="drei"),
        change("r", 11, id=3, name="last"),
    ]  # fmt: skip
    expected = {0: {}, 6: {1: "read", 2: "read"}, 11: {1: "again", 3: "last"}}
    for start, end in pairwise(expected):
        world.land([_unplaced(each) for each in log[start:end]])
        world.merged()
        assert _names(world) == expected[end]
    # Folded again, as a change of the key comes late.
    world.land([_unplaced(change("u", 10, id=3, name="late"))])
    assert world.merged().counts.refolded == 1
    assert _names(world) == expected[11]
    _anew(world)
    assert _names(world) == expected[11]


def _failovers() -> list[Row]:
    """42 times two changes of the other of two servers, one of which is far ahead; three of all are of row 100."""
    log = list[Row]()
    for n in range(84):
        server, key = n // 2 % 2, 100 if n in (2, 18, 20) else n % 7
        log.append(change("u", n, n + 100 * server, id=key, name=f"n{n}", lineage=f"s{server}"))
    return log


def _after(log: list[Row]) -> dict[int, str]:
    return {each["id"]: each["name"] for each in sorted(log, key=lambda each: each["_kafka_offset"])}


def test_a_change_of_a_source_of_long_ago_comes_late(tmp_path: Path, spark: SparkSession) -> None:
    """The stamp has the newest sources alone, so its row cannot be folded again; all of the changelog tells."""
    log = _failovers()
    late = log.pop(2)
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    for start in (0, 30, 60):
        world.land(log[start : start + 30])
        world.merged(by="either")
        assert _names(world) == _after(log[: start + 30])
    before = _names(world)
    world.land([late])
    with pytest.raises(UnknownGenerationError, match="frazil mirror rebuild"):
        world.merged()
    assert _names(world) == before
    _anew(world)
    assert _names(world) == _after(log)
