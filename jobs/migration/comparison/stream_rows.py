"""Rows that a stream makes of records of Kafka, staged for a comparison; nothing is written to its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, NestedField, StructType

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import find_table
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.migration.comparison.staged_rows import PLACE, StagedRows
from jobs.records.schema.needs import Coordinates
from jobs.streaming.driver.context.writer_schemas import schema_lookup
from jobs.streaming.driver.tables.new_rows import NewColumns, new_columns
from jobs.streaming.preview.preview import asked_parts, preview_stream
from jobs.streaming.preview.record import PreviewedLetter, PreviewedRecord
from jobs.streaming.preview.run import part_with_tables, read_records
from jobs.streaming.preview.values import Hiding
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition

LETTERS_KEPT = 100
"""Records of each cause that are kept to be shown."""
_CHUNK = 20_000
_INDEX = re.compile(r"\[\d+\]")


@dataclass(slots=True)
class StreamRows:
    """What the stream makes of the records.

    Attributes:
        table: Its table whose rows are compared.
        metadata: Of that table, as it is or would be made.
        schema: Its columns, with those that the records lead to.
        types: Iceberg types of the columns of its top, by name.
        records: How many records were read.
        causes: Numbers of the causes for which records make no row.
        counts: Records of each cause.
        letters: The first records of each cause, with their dead letters.
        hidings: What may not be shown of the rows.
        left_out: Records by the path of a field that no column takes.
        notes: What else is to be known, as sentences.
    """

    table: str
    metadata: TableMetadata
    schema: Schema
    types: dict[str, IcebergType] = field(default_factory=dict)
    records: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    letters: dict[int, list[tuple[Coordinates, PreviewedLetter | None]]] = field(default_factory=dict)
    hidings: list[Hiding] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def hides(self, column: str) -> bool:
        """Whether nothing of a column may be shown."""
        return any(each.hides(column) for each in self.hidings)

    def cause(self, text: str) -> int:
        """The number of a cause."""
        return self.causes.setdefault(text, len(self.causes))


def stage_stream(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    output: str | None,
    ranges: Ranges,
    staged: StagedRows,
    on_progress: Callable[[int, int], None],
) -> StreamRows:
    """Take records through the stream's pipeline and stage their rows.

    Args:
        output: The stream's table whose rows are staged; None for its main table.
        on_progress: Told how many more of how many records have been read.

    Raises:
        FrazilError: Kafka or the registry does not answer, or the stream has no such table.
    """

    def new(of_table: StreamSpec) -> NewColumns:
        return new_columns(of_table, settings, KafkaLog(settings.kafka).state(of_table.source))

    spec, unadopted = _as_it_stands(with_named_tables(spec, catalog), catalog, output)
    part, tables = part_with_tables(spec, sorted({each.topic for each in ranges}), catalog, new)
    name = output or part.table.name
    own = next((each for each in tables if each.target.name == name and each.target.role == "rows"), None)
    if own is None:
        names = [each.target.name for each in tables if each.target.role == "rows"]
        raise FrazilError(
            f"stream {spec.stream} has no table {name} of rows; it has {', '.join(names)}.", fix=f"--output {names[0]}"
        )
    made = StreamRows(name, own.metadata, own.metadata.schema())
    if unadopted:
        made.notes[f"table {name} lacks {unadopted}, which `{spec.apply_command}` adds before the first run."] = None
    lookup, parts = schema_lookup(spec, settings), asked_parts(part, tables)
    total = sum(each.end - each.start for each in ranges.values())
    for chunk in chunks(ranges, _CHUNK):
        preview = preview_stream(part, tables, read_records(settings, spec.stream, chunk, parts), schemas=lookup)
        schema = next(each.schema for each in preview.tables if each.name == name)
        made.schema = schema
        made.types |= {each.name: each.field_type for each in schema.fields}
        made.hidings.append(preview.hiding(name))
        for path, count in preview.left_out.items():
            made.left_out[path] = made.left_out.get(path, 0) + count
        changes = [f"frazil would change its table: {each}" for each in preview.changes.made]
        made.notes |= dict.fromkeys([*preview.notes, *changes])
        _stage_records(made, preview.records.values(), schema.fields, staged)
        made.records += len(preview.records)
        on_progress(sum(each.end - each.start for each in chunk.values()), total)
    return made


def _as_it_stands(spec: StreamSpec, catalog: Catalog, output: str | None) -> tuple[StreamSpec, str]:
    """The stream without Kafka's columns if its table lacks them, and which those are: a sink's table, not adopted."""
    table = find_table(catalog, output or spec.table.name)
    lacking = sorted(spec.kafka_columns.names - {*table.schema().column_names}) if table else []
    if not lacking:
        return spec, ""
    return spec.model_copy(update={"table": spec.table.model_copy(update={"kafka_columns": False})}), ", ".join(lacking)


def chunks(ranges: Ranges, most: int) -> Iterator[dict[TopicPartition, OffsetRange]]:
    """Ranges of at most so many offsets each, that cover the given ones in their order."""
    chunk, room = dict[TopicPartition, OffsetRange](), most
    for partition, range_ in ranges.items():
        start = range_.start
        while start < range_.end:
            end = min(range_.end, start + room)
            chunk[partition] = OffsetRange(start, end)
            room -= end - start
            start = end
            if not room:
                yield chunk
                chunk, room = {}, most
    if chunk:
        yield chunk


def _stage_records(
    made: StreamRows, records: Iterable[PreviewedRecord], fields: Sequence[NestedField], staged: StagedRows
) -> None:
    rows: list[Mapping[str, Any]] = []
    places: list[Coordinates] = []
    absent: list[tuple[int, Coordinates]] = []
    for record in records:
        if (row := record.rows.get(made.table)) is not None:
            rows.append(row)
            places.append(record.at)
            continue
        number = made.cause(_cause(record))
        made.counts[number] = made.counts.get(number, 0) + 1
        absent.append((number, record.at))
        kept = made.letters.setdefault(number, [])
        if len(kept) < LETTERS_KEPT:
            kept.append((record.at, record.letter))
    if rows:
        types = schema_to_pyarrow(StructType(*fields), include_field_ids=False)
        columns = {each.name: _arrow([row.get(each.name) for row in rows], each.type) for each in types}
        place = {name: pa.array([each[n] for each in places]) for n, name in enumerate(PLACE)}
        staged.add("ours", pa.table(columns), place)
    staged.add_absent([number for number, _ in absent], [at for _, at in absent])


def _arrow(values: list[Any], of_type: pa.DataType) -> pa.Array:
    """A column of values; times that Python has none for come as texts, and become numbers."""
    try:
        return pa.array(values, of_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        if not pa.types.is_temporal(of_type):
            raise
        unit = "D" if pa.types.is_date(of_type) else of_type.unit
        numbers = [
            each if each is None else int(np.datetime64(str(each).removesuffix("Z"), unit).astype(np.int64))
            for each in values
        ]
        return pa.array(numbers, pa.int32() if unit == "D" else pa.int64()).cast(of_type)


def _cause(record: PreviewedRecord) -> str:
    """Why a record has no row in the table, in words."""
    if (letter := record.letter) is not None:
        at = f" at {_INDEX.sub('[]', letter.field)}" if letter.field else ""
        return f"dead: {letter.error_class} in {_INDEX.sub('', letter.stage)}{at}"
    if record.outcome == "landed":
        return f"lands in {', '.join(sorted(record.rows))}"
    return record.outcome.replace("_", " ")
