"""Manifest reader: the live files of a manifest, with the fields that health needs, through PyIceberg's Avro.

PyIceberg's own reading makes an object with all column statistics of each file. It also builds a reader for each
manifest, which for a stream's many small ones costs more than their content. This module makes a reader once for each
Avro schema, which manifests of one partition spec share, and skips unneeded fields.

Relied upon, and pinned by `tests/unit/maintenance/test_manifest_reader.py`: `AvroFile` with `decoder`, `header` and
`reader` set by its `__enter__`, and `_read_header`; `construct_reader` gives a `StructReader` whose `field_readers` are
in the order of the schema's fields, and which reads a field into the position beside it, or skips it where that is
None. (Its `resolve_reader`, made for reading less, cannot leave out a map.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, cast

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import Reader, StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from jobs.tables.write.manifest_doubles import exact_reader

_SCHEMA_KEY = "avro.schema"
# Positions of fields, by the specification's ids. Manifests of format version 1 list data files only, and have no
# content. Only deletion vectors, of version 3, have a content size.
_DATA_FILE_ID = 2
# status, snapshot_id, data_file, sequence_number
_OF_ENTRY = {0: 0, 1: 1, _DATA_FILE_ID: 2, 3: 3}
_OF_FILE = {
    134: 0,
    102: 1,
    103: 2,
    104: 3,
    145: 4,
}  # content, partition, record_count, file_size, content_size (in bytes)
# content, file_path, file_size
_NAMED = {134: 0, 100: 1, 104: 2}


class LiveFile(NamedTuple):
    """A file of a snapshot.

    Attributes:
        content: 0 data, 1 position deletes, 2 equality deletes.
        partition: Values in Iceberg's internal form, in the order of the spec's fields.
        size: Bytes; for a deletion vector its own, within a shared file.
        snapshot_id: Snapshot that added it.
    """

    content: int
    partition: tuple
    records: int
    size: int
    snapshot_id: int | None


class NamedFile(NamedTuple):
    """A data file of a snapshot, by its name.

    Attributes:
        path: Path of the file.
        size: Bytes.
        sequence: Sequence number of the commit that added it.
        snapshot_id: Snapshot of that commit.
    """

    path: str
    size: int
    sequence: int
    snapshot_id: int | None


class _Entries(AvroFile[Record]):
    __slots__ = ()
    of_file = _OF_FILE

    def __enter__(self) -> _Entries:
        with self.input_file.open() as file:
            self.decoder = new_decoder(file.read())
        self.header = self._read_header()
        self.reader = _reader(self.header.meta[_SCHEMA_KEY], tuple(self.of_file.items()))
        return self


class _NamedEntries(_Entries):
    __slots__ = ()
    of_file = _NAMED


@lru_cache(maxsize=256)
def _reader(avro_schema: str, of_file: tuple[tuple[int, int], ...]) -> Reader:
    schema = AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))
    fields = [
        (_OF_ENTRY.get(field.field_id), _narrowed(reader, dict(of_file)) if field.field_id == _DATA_FILE_ID else reader)
        for field, reader in _fields(construct_reader(schema))
    ]
    return exact_reader(StructReader(tuple(fields), Record, schema.as_struct()))


def _narrowed(reader: Reader, positions: dict[int, int]) -> Reader:
    fields = [(positions.get(field.field_id), each) for field, each in _fields(reader)]
    return StructReader(tuple(fields), Record, cast("StructReader", reader).struct)


def _fields(reader: Reader) -> Iterator[tuple[NestedField, Reader]]:
    whole = cast("StructReader", reader)
    return zip(whole.struct.fields, (each for _, each in whole.field_readers), strict=True)


def live_files(io: FileIO, manifest: ManifestFile) -> list[LiveFile]:
    """Files that the manifest lists and does not mark as deleted.

    Raises:
        FileNotFoundError: The manifest is missing.
    """
    with _Entries(io.new_input(manifest.manifest_path)) as entries:
        return [
            _live_file(entry, manifest.added_snapshot_id)
            for entry in entries
            if entry[0] != ManifestEntryStatus.DELETED.value
        ]


def named_files(io: FileIO, manifest: ManifestFile) -> list[NamedFile]:
    """Data files that the manifest lists and does not mark as deleted.

    Raises:
        FileNotFoundError: The manifest is missing.
    """
    with _NamedEntries(io.new_input(manifest.manifest_path)) as entries:
        listed = [each for each in entries if each[0] != ManifestEntryStatus.DELETED.value]
    return [_named_file(each, manifest) for each in listed if not each[2]._data[0]]


def _named_file(entry: Record, manifest: ManifestFile) -> NamedFile:
    _, path, size = entry[2]._data
    # An entry that its own commit added inherits the manifest's number and snapshot; format version 1 has no numbers.
    number = entry._data[3] if len(entry._data) > 3 and entry._data[3] is not None else manifest.sequence_number
    return NamedFile(path, size, number or 0, entry[1] if entry[1] is not None else manifest.added_snapshot_id)


def _live_file(entry: Record, added_by: int | None) -> LiveFile:
    content, partition, records, size, *more = entry[2]._data
    if more and more[0] is not None:
        # Deletion vectors of one commit share a file, and each would count the whole.
        size = more[0]
    # An entry that its own commit added inherits the manifest's snapshot.
    snapshot_id = entry[1] if entry[1] is not None else added_by
    return LiveFile(content or 0, tuple(partition._data), records, size, snapshot_id)
