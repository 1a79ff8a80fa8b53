"""Exact doubles as partition values in manifests, which PyIceberg's compiled Avro decoder narrows.

That decoder (0.12) reads every double as the nearest float: 0.1 as 0.10000000149011612, 1.797e308 as infinity. Only
partition values of manifests are doubles. This module reads such a field by its eight bytes, and everything else as
PyIceberg does.

Relied upon, and pinned by `tests/unit/tables/write/test_pyiceberg_files.py`: `AvroFile` makes `reader` in its
`__enter__`, a `StructReader` whose `field_readers` are pairs of position and reader; `OptionReader.option`;
`DoubleReader`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader, OptionReader, Reader, StructReader
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, NestedField

# Field ids of an entry, by Iceberg's specification.
_DATA_FILE, _PARTITION = 2, 102
# Position of a data file's partition values, which it exposes by name only.
_PARTITION_PLACE = 3
_ZERO = (struct.pack("<f", 0.0), struct.pack("<d", 0.0))
_MINUS_ZERO = (struct.pack("<f", -0.0), struct.pack("<d", -0.0))


class _ExactDoubleReader(DoubleReader):
    def read(self, decoder: BinaryDecoder) -> float:
        return struct.unpack("<d", decoder.read(8))[0]


def exact_reader(reader: Reader) -> Reader:
    """The same reader, with exact doubles in its structs."""
    match reader:
        case StructReader():
            fields = tuple((position, exact_reader(each)) for position, each in reader.field_readers)
            return StructReader(fields, reader.create_struct, reader.struct)
        case OptionReader():
            return OptionReader(exact_reader(reader.option))
        case DoubleReader():
            return _ExactDoubleReader()
        case _:
            return reader


class _Entries(AvroFile[Record]):
    __slots__ = ()

    def __enter__(self) -> _Entries:
        super().__enter__()
        self.reader = exact_reader(self.reader)
        return self


def exact_partitions(io: FileIO, manifest: ManifestFile) -> Iterator[Record]:
    """The partition values of a manifest's entries, deleted ones too, in their order."""
    with _Entries(io.new_input(manifest.manifest_path)) as entries:
        fields = entries.schema.fields
        place = _place(fields, _DATA_FILE)
        inside = _place(fields[place].field_type.fields, _PARTITION)  # pyright: ignore[reportAttributeAccessIssue]
        for entry in entries:
            yield entry[place][inside]


def exact_entries(
    io: FileIO, manifest: ManifestFile, entries: Sequence[ManifestEntry], spec: PartitionSpec, schema: Schema
) -> None:
    """Set the exact partition values of the files in a manifest's entries.

    Args:
        entries: All entries of the manifest, deleted ones too, as PyIceberg reads them.
    """
    if places := positions_of_type(DoubleType, spec, schema):
        doubles = [(place, spec.fields[place].source_id) for place in places]
        for entry, partition in zip(entries, exact_partitions(io, manifest), strict=True):
            entry.data_file[_PARTITION_PLACE] = restored_doubles(entry.data_file, partition, doubles)


def _place(fields: Sequence[NestedField], field_id: int) -> int:
    return next(place for place, field in enumerate(fields) if field.field_id == field_id)


def positions_of_type(kind: type[DoubleType | FloatType], spec: PartitionSpec, schema: Schema) -> list[int]:
    """Positions of the partition fields whose values have the type: identities of such columns."""
    fields = spec.partition_type(schema).fields
    return [place for place, field in enumerate(fields) if isinstance(field.field_type, kind)]


def restored_doubles(file: DataFile, partition: Record, doubles: Sequence[tuple[int, int]]) -> Record:
    """The partition of a file, with doubles restored that earlier merges of its manifest have narrowed.

    All rows of a file have the same value in such a column, so the file's bounds, which are exact, have it.

    Args:
        file: The file with its bounds.
        partition: Its partition values exactly as in the manifest.
        doubles: Position and source column of each partition field with doubles.
    """
    for place, column in doubles:
        bounds = {(file.lower_bounds or {}).get(column), (file.upper_bounds or {}).get(column)}
        bound = bounds.pop()
        if bounds or bound is None or len(bound) != 8:
            continue
        (value,) = struct.unpack("<d", bound)
        with np.errstate(over="ignore", under="ignore"):
            if partition[place] != value and partition[place] == float(np.float32(value)):
                partition[place] = value
    return partition


def widen_zeros(manifest: ManifestFile, places: Sequence[int]) -> None:
    """Widen bounds of partition values that end at a zero to zeros of both signs.

    Java orders -0.0 before 0.0. Python compares them as equal, so PyIceberg's summary of a manifest may contain only
    one of the two.

    Args:
        manifest: The manifest; changed in place.
        places: Positions of the partition fields with floats or doubles.
    """
    for summary in ((manifest.partitions or ())[place] for place in places):
        if summary.lower_bound in _ZERO:
            summary[2] = _MINUS_ZERO[_ZERO.index(summary.lower_bound)]
        if summary.upper_bound in _MINUS_ZERO:
            summary[3] = _ZERO[_MINUS_ZERO.index(summary.upper_bound)]
