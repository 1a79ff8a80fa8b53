"""Rescued values of a field in a table's rows, and the type of a column that takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from jobs.config.stream.models import StreamSpec
from jobs.records.formats.json.inference import Doubt, InferenceRules, inferred
from jobs.records.formats.json.new_fields import new_field_types
from jobs.records.formats.json.seen_values import Place, SeenValues, parsed
from jobs.records.schema.declared import DeclaredType, Primitive
from jobs.records.schema.needs import Path
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.schema.tokens import ENCODINGS
from jobs.tables.write.data_file_rows import UnreadableFileError, data_files, stored_rows

SAMPLE_VALUES = 20_000
SAMPLE_FILES = 200
"""Most files that are read for a type, unless all are requested."""
_NOWHERE = Place("", -1, -1)


@dataclass(slots=True)
class RescuedValues:
    """Values of one field in `_extra`.

    Attributes:
        seen: Values, as those of the field `value` of records.
        rows: Rows with the field, null included.
        files: Data files that were read.
        all_files: Data files that may have rescued values.
    """

    seen: SeenValues = field(default_factory=SeenValues)
    rows: int = 0
    files: int = 0
    all_files: int = 0

    @property
    def complete(self) -> bool:
        """Whether all data files were read."""
        return self.files == self.all_files


@dataclass(frozen=True, slots=True)
class ProposedType:
    """Proposed type of a column for the values.

    Attributes:
        type: The type; None if all values are null.
        doubts: Doubts for a person to check.
        form: A type that all its texts look like, but that was not requested.
    """

    type: DeclaredType | None
    doubts: tuple[Doubt, ...] = ()
    form: str | None = None


def files_with_rescued_data(table: Table) -> list[FileScanTask]:
    """Data files that may have rescued values, by their statistics."""
    column = table.schema().find_field(EXTRA_COLUMN).field_id
    return [
        each for each in data_files(table) if (each.file.null_value_counts or {}).get(column) != each.file.record_count
    ]


def rescued_values(
    table: Table,
    path: Path,
    coordinates: Sequence[str],
    *,
    everything: bool = False,
    on_progress: Callable[[int, int, int], None] = lambda files, of, rows: None,
) -> RescuedValues:
    """Read the rescued values of a field.

    Args:
        path: Path of the field.
        coordinates: The columns of topic, partition and offset.
        everything: Whether to read all rows, or only some.
        on_progress: Called with files read, all files, and rows with the field.
    """
    files = files_with_rescued_data(table)
    found = RescuedValues(all_files=len(files))
    for task in files:
        if not everything and (found.rows >= SAMPLE_VALUES or found.files >= SAMPLE_FILES):
            break
        for record, place in _records(table, task.file, coordinates):
            has, value = _at(record, path)
            if has:
                found.rows += 1
                found.seen.add({"value": value}, place)
            if not everything and found.rows >= SAMPLE_VALUES:
                break
        found.files += 1
        on_progress(found.files, len(files), found.rows)
    return found


def proposed_type(seen: SeenValues, spec: StreamSpec) -> ProposedType:
    """Type of a column that takes the values of a field, by the stream's rules for new columns.

    Args:
        seen: Values, as those of the field `value` of records.
    """
    new = new_field_types(spec.decode.options.get("infer"))
    digits = Primitive("decimal", *new.decimal, ENCODINGS["decimal"][0]) if new.decimal else None
    columns = inferred(seen, InferenceRules(digits, new.times)).columns
    if not columns or columns[0].type is None:
        return ProposedType(None)
    first = columns[0]
    doubts: tuple[Doubt, ...] = tuple({doubt: None for each in columns for doubt in each.doubts})
    if "always_null" in first.doubts or "empty" in first.doubts:
        return ProposedType(None, doubts)
    timed = inferred(seen, InferenceRules(digits, times=True)).columns[0].type
    return ProposedType(first.type, doubts, str(timed) if timed != first.type else None)


def _records(table: Table, file: DataFile, coordinates: Sequence[str]) -> Iterator[tuple[object, Place]]:
    schema: Schema = table.schema()
    try:
        for rows in stored_rows(table.io, file, schema, {EXTRA_COLUMN, *coordinates}):
            if EXTRA_COLUMN not in rows.schema.names:
                return
            for text, place in zip(rows.column(EXTRA_COLUMN).to_pylist(), places_of(rows, coordinates), strict=True):
                if text is not None:
                    yield parsed(text.encode()), place
    except UnreadableFileError:
        # The backfill reports it; for the type it is only one missing sample.
        return


def places_of(rows: pa.RecordBatch, coordinates: Sequence[str]) -> Iterator[Place]:
    """Coordinates of rows' records, as far as the table has them.

    Args:
        coordinates: The columns of topic, partition and offset.
    """
    names = [each for each in coordinates if each in rows.schema.names]
    for row in rows.select(names).to_pylist():
        topic, partition, offset = (row.get(name) for name in coordinates)
        yield _NOWHERE if topic is None or partition is None or offset is None else Place(topic, partition, offset)


def _at(record: object, path: Path) -> tuple[bool, object]:
    for name in path:
        if not isinstance(record, dict) or name not in record:
            return False, None
        record = record[name]
    return True, record
