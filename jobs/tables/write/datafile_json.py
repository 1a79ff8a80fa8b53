"""Data-file descriptors as JSON, for tasks' results and the pending record."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from jobs.base.errors import FrazilError

FORMAT = 1


class DataFileJsonError(FrazilError):
    """A descriptor of a data file cannot be kept or read.

    Safe: Nothing was changed.
    Next: start the stream once with the release that wrote it
    """


def to_json(data_file: DataFile, metadata: TableMetadata) -> dict[str, Any]:
    """A descriptor as values that any JSON encoder takes.

    Args:
        data_file: The descriptor, with its `spec_id` set.
        metadata: The table that the file was written for.

    Raises:
        DataFileJsonError: The partition values do not fit the partition spec.
    """
    spec_id = data_file.spec_id
    _check_partition(data_file.file_path, spec_id, len(data_file.partition), metadata)
    return {
        "v": FORMAT,
        "content": int(data_file.content),
        "path": data_file.file_path,
        "format": FileFormat(data_file.file_format).name,
        "spec": spec_id,
        "partition": [_tagged(data_file.partition[i]) for i in range(len(data_file.partition))],
        "records": data_file.record_count,
        "bytes": data_file.file_size_in_bytes,
        "column_sizes": _numbers(data_file.column_sizes),
        "values": _numbers(data_file.value_counts),
        "nulls": _numbers(data_file.null_value_counts),
        "nans": _numbers(data_file.nan_value_counts),
        "lower": _bounds(data_file.lower_bounds),
        "upper": _bounds(data_file.upper_bounds),
        "key": None if data_file.key_metadata is None else _base64(data_file.key_metadata),
        "splits": data_file.split_offsets,
        "equality_ids": data_file.equality_ids,
        "sort_order": data_file.sort_order_id,
    }


def from_json(document: Mapping[str, Any], metadata: TableMetadata) -> DataFile:
    """The inverse of `to_json`.

    Raises:
        DataFileJsonError: Another version wrote it, or the table has no such partition spec.
    """
    if document.get("v") != FORMAT:
        raise DataFileJsonError(
            f"a data file's descriptor has format {document.get('v')}, this version of frazil reads {FORMAT}",
            fix="start the stream once with the version that wrote it",
        )
    values = [_untagged(value) for value in document["partition"]]
    _check_partition(document["path"], document["spec"], len(values), metadata)
    data_file = DataFile.from_args(
        content=DataFileContent(document["content"]),
        file_path=document["path"],
        file_format=FileFormat[document["format"]],
        partition=Record(*values),
        record_count=document["records"],
        file_size_in_bytes=document["bytes"],
        column_sizes=_by_id(document["column_sizes"]),
        value_counts=_by_id(document["values"]),
        null_value_counts=_by_id(document["nulls"]),
        nan_value_counts=_by_id(document["nans"]),
        lower_bounds=_bytes_by_id(document["lower"]),
        upper_bounds=_bytes_by_id(document["upper"]),
        key_metadata=None if document["key"] is None else base64.b64decode(document["key"]),
        split_offsets=document["splits"],
        equality_ids=document["equality_ids"],
        sort_order_id=document["sort_order"],
    )
    data_file.spec_id = document["spec"]
    return data_file


def _check_partition(path: str, spec_id: int, values: int, metadata: TableMetadata) -> None:
    spec = metadata.specs().get(spec_id)
    if spec is None or len(spec.fields) != values:
        fields = "no such spec" if spec is None else f"{len(spec.fields)} fields in it"
        raise DataFileJsonError(
            f"{path} has {values} partition values of spec {spec_id}; the table at {metadata.location} has {fields}",
            fix="if the table was dropped and made again, remove the stream's pending record",
        )


def _tagged(value: object) -> Any:
    """A partition value, with its type if JSON does not show it; floats by their bits, NaN and -0.0 included."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": struct.pack(">d", value).hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": _base64(value)}
    if isinstance(value, UUID):
        return {"bytes": _base64(value.bytes)}
    raise DataFileJsonError(f"a partition value is a {type(value).__name__}, which is not Iceberg's internal form")


def _untagged(value: Any) -> Any:
    match value:
        case {"float": bits}:
            return struct.unpack(">d", bytes.fromhex(bits))[0]
        case {"decimal": text}:
            return Decimal(text)
        case {"bytes": text}:
            return base64.b64decode(text)
        case _:
            return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _numbers(by_id: Mapping[int, int] | None) -> dict[str, int] | None:
    return None if by_id is None else {str(key): value for key, value in by_id.items()}


def _bounds(by_id: Mapping[int, bytes] | None) -> dict[str, str] | None:
    return None if by_id is None else {str(key): _base64(value) for key, value in by_id.items()}


def _by_id(document: Mapping[str, int] | None) -> dict[int, int] | None:
    return None if document is None else {int(key): value for key, value in document.items()}


def _bytes_by_id(document: Mapping[str, str] | None) -> dict[int, bytes] | None:
    return None if document is None else {int(key): base64.b64decode(value) for key, value in document.items()}
