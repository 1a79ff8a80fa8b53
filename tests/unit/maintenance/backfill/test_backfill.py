"""A backfill fills the column of rows that are there, a group of files in a commit, and changes nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import DoubleType, StringType

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.backfill import backfill as module
from jobs.maintenance.backfill.backfill import Backfilled, backfill
from jobs.maintenance.backfill.promotion import (
    Promotion,
    parse_field,
    parse_type,
    promotion,
)
from jobs.maintenance.backfill.rescued_values import proposed_type, rescued_values
from jobs.proof.audit.other_writers import foreign_snapshots
from jobs.quality.schema_checks.alteration import alter_table
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.rescued_json import RescuingJsonDecoder
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.stamps import BACKFILL_KEY
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.target_writer import TargetWriter

COLUMNS = "id string not null, day date, items list<struct<sku string>>, payer struct<name string>, u uuid"
COORDINATES = ("_kafka_topic", "_kafka_partition", "_kafka_offset")


class Place:
    """A catalog with the table of a stream that keeps fields."""

    def __init__(self, home: Path, partition_by: Iterable[str] = ()) -> None:
        self.settings = Settings.embedded(home)
        self.catalog: Catalog = connect_catalog(self.settings)
        self.catalog.create_namespace("n")
        self.spec = StreamSpec.model_validate(
            {
                "stream": "s",
                "source": {"topics": ["t"]},
                "decode": {"value": "json", "schema": COLUMNS, "unknown_fields": "keep"},
                "table": {"name": "n.s", "partition_by": list(partition_by)},
            }
        )
        schema = self.spec.table_schema
        spec = partition_spec(self.spec.table.partition_by, schema)
        self.catalog.create_table("n.s", schema, partition_spec=spec)
        self.next = 0

    @property
    def table(self) -> Table:
        return self.catalog.load_table("n.s")

    def land(self, *records: dict[str, Any], columns: str = COLUMNS) -> None:
        """Append records as a task writes them, in a data file of their own for each partition."""
        declared = parse_schema(columns)
        decoder = RescuingJsonDecoder(JsonReferenceDecoder(declared), declared, column=True)
        rows = decoder.decode(pa.array([json.dumps(each).encode() for each in records])).rows
        offsets = pa.array(range(self.next, self.next + len(records)), pa.int64())
        self.next += len(records)
        for name, values in zip(COORDINATES, (["t"] * len(records), [0] * len(records), offsets), strict=True):
            kind = {"_kafka_topic": pa.string(), "_kafka_partition": pa.int32()}.get(name, pa.int64())
            rows = rows.append_column(name, pa.array(values, kind) if isinstance(values, list) else values)
        table = self.table
        writer = TargetWriter(table.metadata, table.io, file_prefix="b")
        writer.write(rows)
        commit_once(table, Append(writer.close()), summary={}, properties={})

    def promote(self, field: str, kind: str) -> Promotion:
        path, table = parse_field(field), self.table
        made = promotion(self.spec, table.schema(), path, parse_type(kind, path))
        assert made is not None
        if made.new is not None:
            asked = (lambda now: made.alteration(now, self.spec), table.metadata.current_schema_id, "me@here")
            alter_table(self.catalog, self.spec, *asked)
        return made

    def backfill(self, promoted: Promotion, **given: Any) -> Backfilled:
        return backfill(self.table, promoted, COORDINATES, verify=lambda: None, **given)

    def rows(self) -> list[dict[str, Any]]:
        """As the data files have them, by offset: PyIceberg's reader makes empty lists of nulls."""
        found: list[dict[str, Any]] = []
        for task in self.table.scan().plan_files():
            with self.table.io.new_input(task.file.file_path).open() as stream:
                found += pq.ParquetFile(stream).read().to_pylist()  # type: ignore[arg-type]
        return sorted(found, key=lambda row: row["_kafka_offset"])

    def paths(self) -> set[str]:
        return {task.file.file_path for task in self.table.scan().plan_files()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def record(number: int, **more: Any) -> dict[str, Any]:
    uuid = f"00000000-0000-0000-0000-{number:012d}"
    items = [None, [], [{"sku": "a"}, None]][number % 3]
    return {"id": f"r{number}", "day": f"2026-01-{number % 3 + 1:02d}", "items": items, "u": uuid, **more}


@pytest.mark.parametrize("partition_by", [(), ("day(day)",), ("bucket(4, id)", "day")])
def test_rows_get_the_column_and_nothing_else_changes(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    place = Place(tmp_path, partition_by)
    place.land(*(record(n, note=f"n{n}", more={"x": 1.50}) for n in range(6)))
    place.land(*(record(n) for n in range(6, 12)))
    place.land(*(record(n, **({"note": n} if n % 2 else {"note": "s"})) for n in range(12, 15)))
    before, untouched = place.rows(), place.paths()
    done = place.backfill(place.promote("$.note", "string"))
    after = place.rows()
    assert (done.rows, done.left, done.by_class) == (8, 1, {"wrong_type": 1})
    assert [(each.place.offset, each.error_class, each.field) for each in done.examples] == [
        (13, "wrong_type", "$.note")
    ]
    assert len(after) == len(before) == 15
    for was, now in zip(before, after, strict=True):
        note = json.loads(was["_extra"] or "{}").get("note")
        rest = '{"more":{"x":1.5}}' if note and was["_extra"].startswith('{"more"') else None
        expected = {"note": note, "_extra": rest} if isinstance(note, str) else {"_extra": was["_extra"]}
        assert now | {"note": now.get("note")} == was | {"note": None} | expected
    # Files that have kept nothing of the field stay.
    assert untouched & place.paths()
    again = place.backfill(place.promote("$.note", "string"))
    assert (again.rows, again.commits, again.left) == (0, 0, 1)


def test_a_backfill_is_no_foreign_writer(place: Place) -> None:
    place.land(record(0, note="a"))
    foreign = len(foreign_snapshots(place.table.metadata))
    place.backfill(place.promote("$.note", "string"))
    head = place.table.current_snapshot()
    assert head and head.summary and head.summary.additional_properties[BACKFILL_KEY] == "note"
    assert len(foreign_snapshots(place.table.metadata)) == foreign


def test_a_group_is_committed_before_the_next_is_begun(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_FILES", 2)
    for n in range(5):
        place.land(record(n, note=str(n)))
    promoted = place.promote("$.note", "string")

    def killed(name: str) -> None:
        if name == "backfill_after_commit":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            place.backfill(promoted)
    assert sum(row.get("note") is not None for row in place.rows()) == 2
    done = place.backfill(promoted)
    assert (done.rows, done.commits) == (3, 2)
    assert [row["note"] for row in place.rows()] == list("01234")


def test_a_run_that_dies_before_its_commit_has_changed_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.land(record(0, note="a"))
    promoted, before = place.promote("$.note", "string"), place.paths()

    def killed(name: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            place.backfill(promoted)
    assert place.paths() == before
    assert place.backfill(promoted).rows == 1


def interrupted(place: Place, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Have somebody else commit once, between the writing of the files and their commit."""
    left = [meanwhile]

    def passed(name: str) -> None:
        if name == "backfill_before_commit" and left:
            left.pop()()

    monkeypatch.setattr(module, "step", passed)


def test_a_stream_appends_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.land(record(0, note="a"))
    promoted = place.promote("$.note", "string")
    interrupted(place, monkeypatch, lambda: place.land(record(1, note="b"), columns=COLUMNS + ", note string"))
    assert place.backfill(promoted).rows == 1
    assert [row["note"] for row in place.rows()] == ["a", "b"]


def test_files_that_are_gone_meanwhile_stop_it_and_the_next_run_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.land(record(0, note="a"))
    place.land(record(1, note="b"))
    promoted = place.promote("$.note", "string")

    def compact() -> None:
        table = place.table
        table.overwrite(table.scan().to_arrow())

    interrupted(place, monkeypatch, compact)
    before = place.paths()
    with pytest.raises(FrazilError, match="changed meanwhile; 0 rows are filled, and nothing is lost") as stopped:
        place.backfill(promoted)
    assert stopped.value.fix == "run this again, which carries on"
    assert before.isdisjoint(place.paths()) and not any(row.get("note") for row in place.rows())
    done = place.backfill(promoted)
    assert (done.rows, [row["note"] for row in place.rows()]) == (2, ["a", "b"])


def test_another_column_meanwhile_stops_it_and_the_next_run_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.land(record(0, note="a"))
    promoted = place.promote("$.note", "string")

    def alter() -> None:
        with place.table.update_schema() as update:
            update.add_column("late", StringType())

    interrupted(place, monkeypatch, alter)
    with pytest.raises(FrazilError, match="changed meanwhile"):
        place.backfill(promoted)
    assert place.backfill(promoted).rows == 1
    assert [row["note"] for row in place.rows()] == ["a"]


def test_the_lock_is_asked_before_each_commit(place: Place) -> None:
    place.land(record(0, note="a"))
    promoted, before = place.promote("$.note", "string"), place.paths()

    def lost() -> None:
        raise FrazilError("the lock is lost")

    with pytest.raises(FrazilError, match="lock is lost"):
        backfill(place.table, promoted, COORDINATES, verify=lost)
    assert place.paths() == before


def test_a_nested_field_goes_into_its_struct(place: Place) -> None:
    place.land(record(0, payer={"name": "n", "iban": "X"}), record(1, payer=None), record(2))
    assert place.backfill(place.promote("$.payer.iban", "string")).rows == 1
    assert [row["payer"] for row in place.rows()] == [{"name": "n", "iban": "X"}, None, None]


def test_a_struct_is_made_for_a_nested_field(place: Place) -> None:
    place.land(record(0, geo={"lat": 1.5, "lon": 2}), record(1, geo={"lon": 3}), record(2))
    made = place.promote("$.geo.lat", "double")
    assert place.backfill(made).rows == 2
    found = [(row.get("geo"), row["_extra"]) for row in place.rows()]
    assert found == [({"lat": 1.5}, '{"geo":{"lon":2}}'), ({"lat": None}, '{"geo":{"lon":3}}'), (None, None)]
    assert place.backfill(place.promote("$.geo.lon", "long")).rows == 2
    assert [row.get("geo") for row in place.rows()] == [{"lat": 1.5, "lon": 2}, {"lat": None, "lon": 3}, None]


def test_a_file_with_deleted_rows_is_left_to_compaction(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.land(record(0, note="a"), record(1, note="b"))
    promoted, before = place.promote("$.note", "string"), place.paths()
    with_deletes = [FileScanTask(each.file, {each.file}) for each in place.table.scan().plan_files()]
    monkeypatch.setattr(module, "files_with_rescued_data", lambda _: with_deletes)
    done = place.backfill(promoted)
    assert (done.rows, list(done.skipped.values())) == (0, ["some of its rows are deleted by delete files"])
    assert place.paths() == before


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None], "long"),
        ([1, 2.5], "double"),
        (["a", "2026-01-01"], "string"),
        ([True], "boolean"),
        ([{"a": 1}, {"b": ["x"]}], "struct<a long, b list<string>>"),
        ([None], None),
    ],
)
def test_a_type_is_proposed(place: Place, values: list[Any], kind: str | None) -> None:
    place.land(*(record(n, v=value) for n, value in enumerate(values)), record(99))
    found = rescued_values(place.table, ("v",), COORDINATES, everything=True)
    proposed = proposed_type(found.seen, place.spec)
    assert found.rows == len(values)
    assert (str(proposed.type) if proposed.type else None) == kind


def test_a_partition_by_doubles_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.table.update_schema() as update:
        update.add_column("d", DoubleType())
    with place.table.update_spec() as spec:
        spec.add_identity("d")
    with pytest.raises(FrazilError, match="partitioned by a double"):
        place.backfill(place.promote("$.note", "string"))
