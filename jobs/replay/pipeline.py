"""Replay pipeline: the stream's own pipeline for dead letters, of which those that have landed already are left out."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import And, EqualTo
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.deadletter.row_json import carried_columns, row_decoder
from jobs.formats.decoder import Failure
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.formats.problems import DISCARDED
from jobs.formats.record_columns import RecordColumns
from jobs.formats.writer_schema import SchemaLookup
from jobs.pipeline.pipeline import Pipeline, stream_pipeline
from jobs.pipeline.row_steps import RowSteps, row_steps_of
from jobs.pipeline.stages import Stage
from jobs.replay.discarded import are_discarded, are_rows, stand_in_table
from jobs.replay.landed import LETTER_COLUMNS, already_landed, first_of
from jobs.replay.outcome import ReplayOutcome
from jobs.replay.whole_letters import WholeLetters, WholeRows
from jobs.schema.kept_fields import EXTRA_COLUMN
from jobs.schema.name_matching import NAME_MAPPING
from jobs.spec.mask import NO_MASK
from jobs.spec.models import StreamSpec
from jobs.write.table_fit import TableFit

_ADDED_BY_DRIVER = f"the stream's driver adds the column {EXTRA_COLUMN} with the first record that needs it"


def dead_letter_pipeline(spec: StreamSpec, table: Table, schemas: SchemaLookup | None = None) -> Pipeline:
    """The pipeline of a stream for its dead letters: those that do not hold their record fail, and say so.

    Args:
        spec: The stream, corrected or not.
        table: The stream's table.
        schemas: Finds the writer schemas of records that name theirs.
    """
    resolved = spec.resolved_for(table.schema(), table.properties)
    steps = _steps(spec, table, resolved)
    asks = steps.asks if steps else frozenset[str]()
    whole = WholeLetters(resolved, spec.record_columns, asks)
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
    resolved = spec.resolved_for(table.schema(), table.properties)
    steps = _steps(spec, table, resolved)
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
        hide_values=spec.errors.mask != NO_MASK,
    )


def _steps(spec: StreamSpec, table: Table, resolved: ResolvedSchema) -> RowSteps | None:
    return row_steps_of(spec, resolved.schema, spec.record_columns_for(table.schema(), table.properties))


def row_pipeline(spec: StreamSpec, table: Table) -> Pipeline:
    """The pipeline of letters whose value is a row: it lands as it stood, by the columns that the table has now."""
    kafka = spec.kafka_columns
    return stream_pipeline(
        row_decoder(table.schema(), kafka),
        spec.table.name,
        TableFit(table.schema(), table.spec()).apply,
        columns=RecordColumns(kafka),
        first=[WholeRows(carried_columns(table.schema(), kafka), RecordColumns(kafka).fetched)],
        reference=True,
        hide_values=spec.errors.mask != NO_MASK,
    )


class ReplayPipeline:
    """Takes batches of dead letters through the pipeline, those left out whose rows the stream's table has.

    Args:
        spec: The stream, corrected or not.
        schemas: Finds the writer schemas of records that name theirs.
    """

    def __init__(self, spec: StreamSpec, schemas: SchemaLookup | None = None) -> None:
        self._spec: StreamSpec = spec
        self._schemas: SchemaLookup | None = schemas
        self._made: tuple[Schema, PartitionSpec, str | None, Pipeline, Pipeline] | None = None

    def _run(self, sink: Table, letters: pa.RecordBatch) -> tuple[list[pa.RecordBatch], np.ndarray, list[Failure]]:
        """The rows that letters become, whose they are, and why the others fail: by records, or by rows as JSON."""
        records, rows = self._pipelines(sink)
        as_rows = are_rows(letters)
        parts = [(records, np.flatnonzero(~as_rows)), (rows, np.flatnonzero(as_rows))]
        made: list[pa.RecordBatch] = []
        positions: list[np.ndarray] = []
        failures: list[Failure] = []
        for number, (pipeline, those) in enumerate(parts):
            if number and not len(those):
                continue
            block = pipeline.run(letters if len(those) == letters.num_rows else letters.take(pa.array(those)))
            made.append(block.rows)
            positions.append(those[block.positions])
            failures += [failure.at(int(those[failure.row])) for failure in block.failures]
        return made, np.concatenate(positions), failures

    def _pipelines(self, sink: Table) -> tuple[Pipeline, Pipeline]:
        """Those for all batches: the decoder learns; others when the table's columns or partitions change meanwhile."""
        now = sink.schema(), sink.spec(), sink.properties.get(NAME_MAPPING)
        if self._made is None or self._made[:3] != now:
            self._made = *now, dead_letter_pipeline(self._spec, sink, self._schemas), row_pipeline(self._spec, sink)
        return self._made[3:]

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
        made, positions, failures = self._run(
            sink, letters if len(kept) == letters.num_rows else letters.take(pa.array(kept))
        )
        landed = kept[positions]
        outcome = ReplayOutcome(
            landed,
            np.flatnonzero(there | (~alone & np.isin(first, landed))),
            [failure.at(int(kept[failure.row])) for failure in failures],
        )
        # Another letter of a record that failed may keep more of it.
        rest = np.flatnonzero(~there & ~alone & ~np.isin(first, landed))
        if not len(rest):
            return _joined(made), outcome
        rows, others = self.process(sink, table, letters.take(pa.array(rest)))
        return (
            _joined([*made, rows]),
            ReplayOutcome(
                np.concatenate([landed, rest[others.landed]]),
                np.concatenate([outcome.already_landed, rest[others.already_landed]]),
                [*outcome.failures, *(failure.at(int(rest[failure.row])) for failure in others.failures)],
            ),
        )

    def _already_landed(self, sink: Table, table: Table, letters: pa.RecordBatch) -> np.ndarray:
        kafka = self._spec.kafka_columns
        if kafka.locate_rows_of(sink.schema()):
            return stand_in_table(sink, letters, self._spec.stream, columns=kafka.instant_coordinates)
        if "state" not in table.schema().column_names:
            return np.zeros(letters.num_rows, dtype=bool)
        replayed, discarded = EqualTo("state", "replayed"), are_discarded(letters)
        found = already_landed(table, letters, columns=LETTER_COLUMNS, only=replayed)
        if discarded.any():
            # That the record's row was brought back before it was discarded says nothing.
            again = And(replayed, EqualTo("error_class", DISCARDED))
            found[discarded] = already_landed(table, letters, columns=LETTER_COLUMNS, only=again)[discarded]
        return found


def _joined(rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches([each for each in rows if each.num_rows] or [rows[-1]])
