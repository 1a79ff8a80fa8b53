"""Records of a preview and their fates, from a pipeline that keeps its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from jobs.clients.kafka.records import FetchedBlock
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.needs import Coordinates, Need
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.row_json import value_of
from jobs.streaming.pipeline.block import Block, Indices
from jobs.streaming.pipeline.pipeline import Pipeline, stream_pipeline
from jobs.streaming.pipeline.row_steps import RowSteps
from jobs.streaming.pipeline.stages import Stage
from jobs.streaming.preview.record import Outcome, PreviewedLetter, PreviewedRecord
from jobs.streaming.preview.values import Row
from jobs.streaming.task.plan import TaskPlan
from jobs.tables.dead_letter_table.rows import dead_letter_rows

LONGEST_VALUE = 4_000
"""Most characters of a record's value in its dead letter."""


@dataclass(frozen=True, slots=True)
class WatchedBlock:
    """A block of records in the pipeline.

    Attributes:
        decoded: Rows before the stream's transforms.
        positions: Record of each of these rows.
        made: The block after the pipeline.
    """

    decoded: pa.RecordBatch | None
    positions: Indices | None
    made: Block


class Watch:
    """Makes pipelines like `stream_pipeline`, and keeps their blocks.

    Attributes:
        blocks: Blocks in order.
    """

    def __init__(self) -> None:
        self.blocks: list[WatchedBlock] = []

    def pipeline(self, *args: Any, steps: RowSteps | None = None, **more: Any) -> Pipeline:
        """As `stream_pipeline`."""
        kept = _KeepDecoded()
        given = steps or RowSteps(Columns.of(Schema()))
        watched = _WatchedSteps(**{each.name: getattr(given, each.name) for each in fields(RowSteps)}, kept=kept)
        return _WatchedPipeline(stream_pipeline(*args, steps=watched, **more), kept, self.blocks)


class _KeepDecoded:
    """Stage that passes all rows on, and keeps those of the last block."""

    name: str = "decoded"

    def __init__(self) -> None:
        self.last: Block | None = None

    def apply(self, block: Block) -> Block:
        self.last = block
        return block

    def probe(self, block: Block) -> Block:
        return block.part(0, 0)


@dataclass(frozen=True)
class _WatchedSteps(RowSteps):
    kept: _KeepDecoded = field(default_factory=_KeepDecoded, kw_only=True)

    def stages(self) -> Iterator[Stage]:
        yield self.kept
        yield from super().stages()


class _WatchedPipeline(Pipeline):
    def __init__(self, inner: Pipeline, kept: _KeepDecoded, blocks: list[WatchedBlock]) -> None:
        super().__init__((), "")
        self._inner: Pipeline = inner
        self._kept: _KeepDecoded = kept
        self._blocks: list[WatchedBlock] = blocks

    @property
    def groups(self) -> int:
        return self._inner.groups

    def landing_needs(self, block: Block) -> tuple[Need, ...]:
        return self._inner.landing_needs(block)

    def run(self, records: pa.RecordBatch) -> Block:
        self._kept.last = None
        made = self._inner.run(records)
        last = self._kept.last
        self._blocks.append(WatchedBlock(last and last.rows, None if last is None else last.positions, made))
        return made


def previewed_records(
    plan: TaskPlan, watched: Sequence[WatchedBlock], blocks: Sequence[FetchedBlock], tables: Mapping[str, Schema]
) -> Iterator[PreviewedRecord]:
    """Fate of each record of a task.

    Args:
        tables: Columns of each table of rows, by name.
    """
    letters = _letters(plan, watched, blocks)
    for each in watched:
        made = each.made
        where, times = places(made.records), made.records.column("timestamp").to_pylist()
        decoded = _by_record(each.decoded, each.positions)
        rows = _rows(made, tables)
        outcomes = _outcomes(made)
        warned = _warned(made)
        for record, at in enumerate(where):
            yield PreviewedRecord(
                at,
                times[record],
                outcomes[record],
                decoded.get(record),
                {table: found[record] for table, found in rows.items() if record in found},
                letters.get(at),
                tuple(warned.get(record, ())),
            )


def unread_records(blocks: Sequence[FetchedBlock], read: Sequence[FetchedBlock]) -> Iterator[PreviewedRecord]:
    """Records whose topics a stream does not read."""
    for block in blocks:
        if not any(block is each for each in read):
            times = block.records.column("timestamp").to_pylist()
            yield from (
                PreviewedRecord(at, time, "not_read") for at, time in zip(places(block.records), times, strict=True)
            )


def places(records: pa.RecordBatch) -> list[Coordinates]:
    """Coordinates of records."""
    columns = (records.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return list(map(Coordinates, *columns))


def _outcomes(made: Block) -> list[Outcome]:
    found: list[Outcome] = ["landed"] * made.records.num_rows
    for record in made.dropped.tolist():
        found[record] = "tombstone"
    for record in made.filtered.tolist():
        found[record] = "filtered"
    for failure in made.failures:
        found[failure.row] = "dead"
    return found


def _warned(made: Block) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    landed = set(made.positions.tolist())
    for name, records in made.warned.items():
        for record in records.tolist():
            if record in landed:
                found.setdefault(record, []).append(name)
    return found


def _rows(made: Block, tables: Mapping[str, Schema]) -> Mapping[str, Mapping[int, Row]]:
    """Rows of each table, by record."""
    if made.routed:
        found = {table: _by_record(each.rows, each.positions) for table, each in made.routed.items()}
    else:
        # Before the first step rows are the records themselves, and no record has a row.
        found = {made.destination: _by_record(made.rows, made.positions)} if len(made.positions) else {}
    return {
        table: {record: _named(row, tables[table].as_struct()) for record, row in rows.items()}
        for table, rows in found.items()
    }


def _named(value: Any, kind: IcebergType) -> Any:
    """A value with the names of the table's columns; rows have the same order under the names of files."""
    match kind:
        case StructType() if isinstance(value, dict):
            return {
                each.name: _named(inner, each.field_type)
                for each, inner in zip(kind.fields, value.values(), strict=True)
            }
        case ListType() if isinstance(value, list):
            return [_named(each, kind.element_type) for each in value]
        case MapType() if isinstance(value, list):
            return [(_named(key, kind.key_type), _named(inner, kind.value_type)) for key, inner in value]
        case _:
            return value


def _by_record(rows: pa.RecordBatch | None, positions: Indices | None) -> Mapping[int, Row]:
    if rows is None or positions is None:
        return {}
    columns = {name: values_of(rows.column(index)) for index, name in enumerate(rows.schema.names)}
    return {
        record: {name: values[number] for name, values in columns.items()}
        for number, record in enumerate(positions.tolist())
    }


def values_of(column: pa.Array) -> list[Any]:
    """Values of a column for Python; as text if Python has no such value, such as a date after year 9999."""
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return [value_of(column, index) for index in range(len(column))]


def _letters(
    plan: TaskPlan, watched: Sequence[WatchedBlock], blocks: Sequence[FetchedBlock]
) -> dict[Coordinates, PreviewedLetter]:
    failures: dict[Coordinates, Failure] = {}
    for each in watched:
        if each.made.failures:
            where = places(each.made.records)
            failures |= {where[failure.row]: failure for failure in each.made.failures}
    found: dict[Coordinates, PreviewedLetter] = {}
    for block in blocks if failures else ():
        where = places(block.records)
        mine = [row for row, at in enumerate(where) if at in failures]
        if mine:
            letters = _rows_of(plan, block.whole(mine), [failures[where[row]] for row in mine])
            found |= {where[row]: letter_of(letter) for row, letter in zip(mine, letters, strict=True)}
    return found


def _rows_of(plan: TaskPlan, records: pa.RecordBatch, failures: Sequence[Failure]) -> list[dict[str, Any]]:
    """Dead letters as a batch would write them, masked by the plan."""
    return dead_letter_rows(
        records,
        failures,
        stream=plan.stream,
        config_hash=plan.config,
        batch_id=plan.batch,
        epoch=plan.epoch,
        first_seen=plan.first_seen,
        mask=plan.mask,
        rows=plan.resolved.schema,
        columns=plan.columns,
        json_fields=FORMATS[plan.resolved.decoder.kind].json_fields,
        names=plan.resolved.names,
    ).to_pylist()


def letter_of(row: Mapping[str, Any]) -> PreviewedLetter:
    """A row of the dead letters for a preview."""
    value: bytes | None = row["value"]
    text = None if value is None else value.decode("utf-8", "backslashreplace")
    if text is not None and len(text) > LONGEST_VALUE:
        text = f"{text[:LONGEST_VALUE]}…"
    return PreviewedLetter(
        row["error_class"],
        row["stage"],
        row["field"],
        row["message"],
        text,
        row.get("masked"),
        row.get("row_before"),
    )
