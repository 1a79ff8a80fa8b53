"""Whole letters: the stages of a replay that pass dead letters which hold all that a row needs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.deadletter.masking import HEADERS, KEY, MARK, can_return
from jobs.formats.decoder import DECODE_HEADER, Failure
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.formats.problems import INVALID_UTF8
from jobs.formats.record_columns import RecordColumns
from jobs.pipeline.block import Block

UNREADABLE = "letter_unreadable"
MASKED = "letter_masked"
REPLAY_STAGE = "replay"


class WholeLetters:
    """The stage that passes dead letters which hold all of their record that a row needs.

    Args:
        resolved: The rows that values are decoded to.
        columns: Those of the rows that are not from the value.
        asks: What the stream's own steps ask of a record beside its value.
        tombstones: Whether a record without a value is a row: its letter has none, and is whole.
    """

    name: str = REPLAY_STAGE

    def __init__(
        self,
        resolved: ResolvedSchema,
        columns: RecordColumns,
        asks: frozenset[str] = frozenset(),
        *,
        tombstones: bool = False,
    ) -> None:
        self._tombstones: bool = tombstones
        self._resolved: ResolvedSchema = resolved
        self._columns: RecordColumns = columns
        of_columns = columns.fetched & {KEY, *([HEADERS] if columns.kafka.headers else [])}
        self._besides: frozenset[str] = of_columns | (asks & {KEY, HEADERS})

    def apply(self, block: Block) -> Block:
        """The block without the letters that have no value, or not the whole of it."""
        letters = block.rows
        index = letters.schema.get_field_index("masked")
        masked = letters.column(index).to_pylist() if index >= 0 else [None] * letters.num_rows
        rows, names = self._resolved.schema, self._resolved.names
        withheld = [bool(parts) and not can_return(parts, rows, self._besides, names) for parts in masked]
        there = letters.column("value").is_valid().to_numpy(zero_copy_only=False)
        if self._tombstones:
            there |= np.array([not parts for parts in masked], dtype=bool)
        whole = there & ~np.array(withheld, dtype=bool)
        if HEADERS in self._columns.fetched:
            whole &= ~_without_headers(letters)
            masked_headers = _masked_headers(letters, frozenset(each.header for each in self._columns.headers))
            withheld = [one or other for one, other in zip(withheld, masked_headers, strict=True)]
            whole &= ~np.array(withheld, dtype=bool)
        failures = [_gone(row, withheld[row]) for row in np.flatnonzero(~whole).tolist()]
        kept = np.flatnonzero(whole)
        return block.with_rows(letters if not failures else letters.take(kept), kept, failures=failures)

    def probe(self, block: Block) -> Block:
        """No letters."""
        return block.part(0, 0)


def _without_headers(letters: pa.RecordBatch) -> np.ndarray:
    """Letters of records whose headers could not be read, so that nobody knows them any more."""
    stages, classes = (letters.column(name).to_pylist() for name in ("stage", "error_class"))
    lost = (DECODE_HEADER, INVALID_UTF8)
    unread = np.array([each == lost for each in zip(stages, classes, strict=True)], dtype=bool)
    return unread & letters.column("headers").is_null().to_numpy(zero_copy_only=False)


def _masked_headers(letters: pa.RecordBatch, names: frozenset[str]) -> list[bool]:
    """Letters in which a header of these names is masked."""
    found: list[list[dict[str, Any]] | None] = letters.column("headers").to_pylist()
    mark = MARK.encode()
    return [any(each["key"] in names and each["value"] == mark for each in headers or ()) for headers in found]


def _gone(row: int, withheld: bool) -> Failure:
    if withheld:
        message = "the letter does not keep the whole record: errors.dead_letters.mask left out what a row needs"
        return Failure(row, REPLAY_STAGE, MASKED, message, None)
    message = "the letter has no value, or none of the headers: its row was altered, or they could not be read"
    return Failure(row, REPLAY_STAGE, UNREADABLE, message, None)


class WholeRows:
    """The stage that passes dead letters which hold all of a row as JSON.

    Args:
        rows: What the value holds.
        besides: What of a record the table has, too, such as `key`.
    """

    name: str = REPLAY_STAGE

    def __init__(self, rows: Schema, besides: Collection[str]) -> None:
        self._rows: Schema = rows
        self._besides: frozenset[str] = frozenset(besides) & {KEY, HEADERS}

    def apply(self, block: Block) -> Block:
        """The block without the letters that have no value, or not the whole of it."""
        letters = block.rows
        masked, there = letters.column("masked").to_pylist(), letters.column("value").is_valid().to_pylist()
        withheld = [bool(parts) and not can_return(parts, self._rows, self._besides) for parts in masked]
        whole = np.array([value and not gone for value, gone in zip(there, withheld, strict=True)], dtype=bool)
        failures = [_gone(row, withheld[row]) for row in np.flatnonzero(~whole).tolist()]
        kept = np.flatnonzero(whole)
        return block.with_rows(letters if not failures else letters.take(kept), kept, failures=failures)

    def probe(self, block: Block) -> Block:
        """No letters."""
        return block.part(0, 0)
