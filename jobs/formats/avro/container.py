"""Container blocks: many Avro records of one schema, read by DataFusion into Arrow at once, or not at all.

Records carry no length: one that is too short or too long shifts all that follow, perhaps without an error. So each is
followed by a marker, eight random bytes drawn for the block, which the reading schema declares as its last field. If
every row ends with the marker, every record was read from its first byte to its last: a record that ends elsewhere
meets other bytes there, or the marker of a later one, and then some row has none. No writer can know the marker.

The block lies in memory, in a file without a name that is gone with the process; the next block is written over it. Its
header claims more records than there are, and DataFusion is asked for as many as there are: at the end of a block of
which bytes are left it would look for the next record for ever.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from functools import lru_cache
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MARKER = "marker"
"""Name of the last field of a reading schema."""
MARKER_SIZE = 8

LARGEST_BLOCK = 1 << 30
"""Bytes."""

LARGEST_SPARE = 32 << 20
"""Bytes of a file that is kept for the next block."""

_BEYOND = bytes(64)
_spare: list[tuple[int, int]] = []


class UnreadableBlock(Exception):
    """A block in which some record is not as its schema says, or none that DataFusion reads."""


def read_block(schema: dict[str, Any], arrow: pa.Schema, values: pa.BinaryArray) -> pa.RecordBatch:
    """The records of a block as DataFusion reads them.

    Args:
        schema: Avro's, a record whose last field is MARKER, a fixed of MARKER_SIZE bytes.
        arrow: What DataFusion makes of it.
        values: At least one, none of them null, LARGEST_BLOCK at most.

    Returns:
        As many rows as values, without the marker.

    Raises:
        UnreadableBlock: At least one of them is no record of the schema, to the byte.
        OSError: The block cannot be written.
    """
    marker = secrets.token_bytes(MARKER_SIZE)
    joined = pc.binary_join_element_wise(  # pyright: ignore[reportAttributeAccessIssue]
        values, pa.scalar(marker, pa.binary()), pa.scalar(b"", pa.binary())
    )
    file = _new_file()
    try:
        _write(file, schema, joined)
        rows = _read(file, arrow, len(values))
    except BaseException:
        os.close(file)
        raise
    _keep(file)
    if rows.num_rows != len(values) or not _all_are(rows.column(rows.num_columns - 1), marker):
        raise UnreadableBlock
    return rows.select(list(range(rows.num_columns - 1)))


def _new_file() -> int:
    """A file in memory; that of a former block where there is one, whose pages need not be made anew."""
    with suppress(IndexError):
        process, file = _spare.pop()
        if process == os.getpid():
            return file
        # The process of which this one is a fork goes on with the same file.
        os.close(file)
    return os.memfd_create("frazil-avro", os.MFD_CLOEXEC)


def _keep(file: int) -> None:
    if _spare or os.fstat(file).st_size > LARGEST_SPARE:
        os.close(file)
    else:
        _spare.append((os.getpid(), file))


def _write(file: int, schema: dict[str, Any], records: pa.BinaryArray) -> None:
    _, offsets, data = records.buffers()
    ends = np.frombuffer(offsets, np.int32)[records.offset : records.offset + len(records) + 1]
    body = memoryview(data)[int(ends[0]) : int(ends[-1])]
    size = len(body) + len(_BEYOND)
    sync = secrets.token_bytes(16)
    head = b"Obj\x01" + _header(json.dumps(schema)) + sync + _number(size) + _number(size)
    os.lseek(file, 0, os.SEEK_SET)
    for part in (head, body, _BEYOND, sync):
        left = memoryview(part)
        while left:
            left = left[os.write(file, left) :]
    os.ftruncate(file, os.lseek(file, 0, os.SEEK_CUR))


def _read(file: int, arrow: pa.Schema, count: int) -> pa.RecordBatch:
    try:
        frame = _context(count).read_avro(f"/proc/self/fd/{file}", arrow, file_extension="")
        batches = frame.limit(count).collect()
    except Exception as error:
        raise UnreadableBlock(str(error)) from error
    except BaseException as error:
        # A panic within DataFusion, which is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise UnreadableBlock(str(error)) from error
    if len(batches) != 1:
        raise UnreadableBlock
    return batches[0]


@lru_cache(maxsize=4)
def _context(count: int) -> datafusion.SessionContext:
    """A context that gives so many rows at once, and reads no further."""
    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1).with_batch_size(count))


@lru_cache(maxsize=64)
def _header(schema: str) -> bytes:
    pairs = (b"avro.schema", schema.encode(), b"avro.codec", b"null")
    return _number(2) + b"".join(_number(len(each)) + each for each in pairs) + _number(0)


def _number(number: int) -> bytes:
    """A number that is not negative, as Avro writes it."""
    number, found = number << 1, bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _all_are(markers: pa.FixedSizeBinaryArray, marker: bytes) -> bool:
    data = np.frombuffer(markers.buffers()[1], np.uint64)[markers.offset : markers.offset + len(markers)]
    return markers.null_count == 0 and bool((data == np.frombuffer(marker, np.uint64)).all())
