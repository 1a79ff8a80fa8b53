"""Replay pipeline: the stream's own pipeline for dead letters, of which those that have landed already are left out."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.deadletter.masking import HEADERS, KEY, MARK, can_return
from jobs.formats.decoder import DECODE_HEADER, Failure
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.formats.problems import INVALID_UTF8
from jobs.formats.record_columns import RecordColumns
from jobs.formats.writer_schema import SchemaLookup
from jobs.pipeline.block import Block
from jobs.pipeline.pipeline import Pipeline, stream_pipeline
from jobs.pipeline.row_steps import row_steps_of
from jobs.pipeline.stages import Stage
from jobs.replay.landed import LETTER_COLUMNS, already_landed, first_of
from jobs.replay.outcome import ReplayOutcome
from jobs.schema.kept_fields import EXTRA_COLUMN
from jobs.schema.name_matching import NAME_MAPPING
from jobs.spec.models import StreamSpec
from jobs.write.table_fit import TableFit

UNREADABLE = "letter_unreadable"
MASKED = "letter_masked"
REPLAY_STAGE = "replay"
_ADDED_BY_DRIVER = f"the stream's driver adds the column {EXTRA_COLUMN} with the first record that needs it"


def dead_letter_pipeline(spec: StreamSpec, table: Table, schemas: SchemaLookup | None = None) -> Pipeline:
    """The pipeline of a stream for its dead letters: those that do not hold their record fail, and say so.

    Args:
        spec: The stream, corrected or not.
        table: The stream's table.
        schemas: Finds the writer schemas of records that name theirs.
    """
    steps = row_steps_of(spec)
    asks = steps.asks if steps else frozenset[str]()
    whole = WholeLetters(spec.resolved_for(table.schema(), table.properties), spec.record_columns, asks)
    return record_pipeline(spec, table, schemas, first=[whole])


def record_pipeline(
    spec: StreamSpec, table: Table, schemas: SchemaLookup | None = None, *, first: Sequence[Stage] = ()
) -> Pipeline:
    """The pipeline of a stream for records that have failed before.

    Args:
        spec: The stream, corrected or not.
        table: The stream's table.
        schemas: Finds the writer schemas of records that name theirs.
        first: Stages before all others.
    """
    resolved, steps = spec.resolved_for(table.schema(), table.properties), row_steps_of(spec)
    if resolved.decoder.options.get("extra_column") is False:
        refused = dict(resolved.decoder.options.get("refused", ())) | {f"$.{EXTRA_COLUMN}": _ADDED_BY_DRIVER}
        resolved = resolved.with_options({"refused": tuple(refused.items())})
    return stream_pipeline(
        resolved.with_schemas(schemas).decoder,
        spec.table.name,
        TableFit(table.schema(), table.spec()).apply,
        columns=spec.record_columns_for(table.schema(), table.properties).with_schemas(schemas),
        steps=replace(steps, refuse_dropped=True) if steps else None,
        first=first,
        reference=True,
    )


class WholeLetters:
    """The stage that passes dead letters which hold all of their record that a row needs.

    Args:
        resolved: The rows that values are decoded to.
        columns: Those of the rows that are not from the value.
        asks: What the stream's own steps ask of a record beside its value.
    """

    name: str = REPLAY_STAGE

    def __init__(self, resolved: ResolvedSchema, columns: RecordColumns, asks: frozenset[str] = frozenset()) -> None:
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
        whole = letters.column("value").is_valid().to_numpy(zero_copy_only=False) & ~np.array(withheld, dtype=bool)
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


class ReplayPipeline:
    """Takes batches of dead letters through the pipeline, those left out whose rows the stream's table has.

    Args:
        spec: The stream, corrected or not.
        schemas: Finds the writer schemas of records that name theirs.
    """

    def __init__(self, spec: StreamSpec, schemas: SchemaLookup | None = None) -> None:
        self._spec: StreamSpec = spec
        self._schemas: SchemaLookup | None = schemas
        self._made: tuple[Schema, PartitionSpec, str | None, Pipeline] | None = None

    def _pipeline(self, sink: Table) -> Pipeline:
        """One for all batches: the decoder learns; another when the table's columns or partitions change meanwhile."""
        now = sink.schema(), sink.spec(), sink.properties.get(NAME_MAPPING)
        if self._made is None or self._made[:3] != now:
            self._made = *now, dead_letter_pipeline(self._spec, sink, self._schemas)
        return self._made[3]

    def process(self, sink: Table, table: Table, letters: pa.RecordBatch) -> tuple[pa.RecordBatch, ReplayOutcome]:
        """What becomes of the letters of a batch.

        Args:
            sink: The stream's table.
            table: Of the letters; tells what has landed where the stream's table does not say where rows come from.

        Returns:
            Rows for the stream's table, and which letters they are of. A letter of a record that another letter lands
            counts as already landed.
        """
        there = self._already_landed(sink, table, letters)
        first = first_of(letters)
        alone = first == np.arange(letters.num_rows)
        kept = np.flatnonzero(alone & ~there)
        block = self._pipeline(sink).run(letters if len(kept) == letters.num_rows else letters.take(pa.array(kept)))
        landed = kept[block.positions]
        outcome = ReplayOutcome(
            landed,
            np.flatnonzero(there | (~alone & np.isin(first, landed))),
            [failure.at(int(kept[failure.row])) for failure in block.failures],
        )
        # Another letter of a record that failed may keep more of it.
        rest = np.flatnonzero(~there & ~alone & ~np.isin(first, landed))
        if not len(rest):
            return block.rows, outcome
        rows, others = self.process(sink, table, letters.take(pa.array(rest)))
        return (
            pa.concat_batches([each for each in (block.rows, rows) if each.num_rows] or [rows]),
            ReplayOutcome(
                np.concatenate([landed, rest[others.landed]]),
                np.concatenate([outcome.already_landed, rest[others.already_landed]]),
                [*outcome.failures, *(failure.at(int(rest[failure.row])) for failure in others.failures)],
            ),
        )

    def _already_landed(self, sink: Table, table: Table, letters: pa.RecordBatch) -> np.ndarray:
        kafka = self._spec.kafka_columns
        if kafka.locate_rows_of(sink.schema()):
            return already_landed(sink, letters, columns=kafka.instant_coordinates)
        if "state" not in table.schema().column_names:
            return np.zeros(letters.num_rows, dtype=bool)
        return already_landed(table, letters, columns=LETTER_COLUMNS, only=EqualTo("state", "replayed"))
