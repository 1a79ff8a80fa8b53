"""Replay pipeline: the stream's own pipeline for dead letters, without those that have landed already."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import And, EqualTo
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK
from jobs.dead_letters.replay.landed import (
    LETTER_COLUMNS,
    already_landed,
    are_discarded,
    are_rows,
    first_of,
    stand_in_table,
)
from jobs.dead_letters.replay.lanes import LaneRows, ReplayLanes
from jobs.dead_letters.replay.replay_state import ReplayOutcome
from jobs.dead_letters.replay.routing import (
    RowTables,
    names_beside,
    not_located,
    restricted_to,
    routed_to,
    without_table,
)
from jobs.records.formats.interface.decoder import DECODE_HEADER, Failure
from jobs.records.formats.interface.problems import DISCARDED, INVALID_UTF8
from jobs.records.formats.interface.writer_schema import SchemaLookup
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.schema.decoded_columns import decoded_digest
from jobs.records.schema.name_matching import EXACT_NAMES, NAME_MAPPING, NameRule
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.streaming.pipeline.block import Block, Indices
from jobs.streaming.pipeline.pipeline import Pipeline, Routed, stream_pipeline
from jobs.streaming.pipeline.row_steps import row_steps_of
from jobs.streaming.pipeline.stages import Stage
from jobs.tables.dead_letter_table.masking import (
    HEADERS,
    KEY,
    MARK,
    can_return,
)
from jobs.tables.dead_letter_table.parked_letters import PARKED_STAGE, TABLE_PARKED, TARGET
from jobs.tables.dead_letter_table.row_json import carried_columns, row_decoder
from jobs.tables.write.table_fit import TableFit

UNREADABLE = "letter_unreadable"
MASKED = "letter_masked"
REPLAY_STAGE = "replay"

_NONE: Indices = np.zeros(0, np.int64)
_ADDED_BY_DRIVER = f"the stream's driver adds the column {EXTRA_COLUMN} with the first record that needs it"


class WholeLetters:
    """Stage that passes dead letters with everything of their record, or row as JSON, that a row needs.

    Args:
        schema: Schema of the value.
        names: Rule that matches its fields with columns.
        besides: Other parts of a record in rows: `key`, `headers`.
        headers: Headers with columns; None if rows have nothing of headers.
        tombstones: Whether a record without a value is a row, so that its dead letter is complete without one.
    """

    name: str = REPLAY_STAGE

    def __init__(
        self,
        schema: Schema,
        names: NameRule,
        besides: Collection[str],
        headers: frozenset[str] | None = None,
        *,
        tombstones: bool = False,
    ) -> None:
        self._schema: Schema = schema
        self._names: NameRule = names
        self._besides: frozenset[str] = frozenset(besides) & {KEY, HEADERS}
        self._headers: frozenset[str] | None = headers
        self._tombstones: bool = tombstones

    def apply(self, block: Block) -> Block:
        """The block without dead letters that lack their value or a part of it."""
        letters = block.rows
        index = letters.schema.get_field_index("masked")
        masked = letters.column(index).to_pylist() if index >= 0 else [None] * letters.num_rows
        withheld = [bool(parts) and not can_return(parts, self._schema, self._besides, self._names) for parts in masked]
        there = letters.column("value").is_valid().to_numpy(zero_copy_only=False)
        if self._tombstones:
            there |= np.array([not parts for parts in masked], dtype=bool)
        whole = there & ~np.array(withheld, dtype=bool)
        if self._headers is not None:
            whole &= ~_without_headers(letters)
            masked_headers = _masked_headers(letters, self._headers)
            withheld = [one or other for one, other in zip(withheld, masked_headers, strict=True)]
            whole &= ~np.array(withheld, dtype=bool)
        failures = [_gone(row, withheld[row]) for row in np.flatnonzero(~whole).tolist()]
        kept = np.flatnonzero(whole)
        return block.with_rows(letters if not failures else letters.take(kept), kept, failures=failures)

    def probe(self, block: Block) -> Block:
        """No dead letters."""
        return block.part(0, 0)


def _without_headers(letters: pa.RecordBatch) -> np.ndarray:
    """Dead letters of records whose headers could not be read, and are lost."""
    stages, classes = (letters.column(name).to_pylist() for name in ("stage", "error_class"))
    lost = (DECODE_HEADER, INVALID_UTF8)
    unread = np.array([each == lost for each in zip(stages, classes, strict=True)], dtype=bool)
    return unread & letters.column("headers").is_null().to_numpy(zero_copy_only=False)


def _masked_headers(letters: pa.RecordBatch, names: frozenset[str]) -> list[bool]:
    """Dead letters in which one of these headers is masked."""
    found: list[list[dict[str, Any]] | None] = letters.column("headers").to_pylist()
    mark = MARK.encode()
    return [any(each["key"] in names and each["value"] == mark for each in headers or ()) for headers in found]


def _gone(row: int, withheld: bool) -> Failure:
    if withheld:
        message = "the dead letter does not keep the whole record: errors.dead_letters.mask left out what a row needs"
        return Failure(row, REPLAY_STAGE, MASKED, message, None)
    message = "the dead letter has no value, or none of the headers: its row was altered, or they could not be read"
    return Failure(row, REPLAY_STAGE, UNREADABLE, message, None)


def dead_letter_pipeline(
    spec: StreamSpec,
    table: Table,
    schemas: SchemaLookup | None = None,
    *,
    routed: Routed | None = None,
    batch_time: datetime | None = None,
) -> Pipeline:
    """Pipeline of a stream for its dead letters; those that lack parts of their record fail.

    Args:
        routed: The tables of the rows, see `stream_pipeline`.
        batch_time: Time for now() in expressions; None: the time of this call.
    """
    resolved = spec.resolved_for(table.schema(), table.properties)
    steps = row_steps_of(spec, resolved.schema, spec.record_columns_for(table.schema(), table.properties))
    columns = spec.record_columns
    besides = columns.fetched & {KEY, *([HEADERS] if columns.kafka.headers else [])}
    headers = frozenset(each.header for each in columns.headers) if HEADERS in columns.fetched else None
    whole = WholeLetters(
        resolved.schema,
        resolved.names,
        besides | (steps.asks if steps else frozenset()),
        headers,
        tombstones=steps is not None and steps.keep_tombstones,
    )
    return record_pipeline(spec, table, schemas, first=[whole], routed=routed, batch_time=batch_time)


def record_pipeline(
    spec: StreamSpec,
    table: Table,
    schemas: SchemaLookup | None = None,
    *,
    first: Sequence[Stage] = (),
    routed: Routed | None = None,
    batch_time: datetime | None = None,
) -> Pipeline:
    """Pipeline of a stream for records that have failed before.

    Args:
        first: Stages to run before all others.
        routed: The tables of the rows, see `stream_pipeline`.
        batch_time: Time for now() in expressions; None: the time of this call.
    """
    batch_time = batch_time or datetime.now(UTC)
    resolved = spec.resolved_for(table.schema(), table.properties)
    columns = spec.record_columns_for(table.schema(), table.properties).with_schemas(schemas)
    steps = row_steps_of(spec, resolved.schema, columns)
    if resolved.decoder.options.get("extra_column") is False:
        refused = dict(resolved.decoder.options.get("refused", ())) | {f"$.{EXTRA_COLUMN}": _ADDED_BY_DRIVER}
        resolved = resolved.with_options({"refused": tuple(refused.items())})
    return stream_pipeline(
        resolved.with_schemas(schemas).decoder,
        spec.table.name,
        TableFit(table.schema(), table.spec()).apply,
        columns=columns,
        steps=replace(steps, refuse_dropped=True, batch_time=batch_time) if steps else None,
        first=first,
        reference=True,
        routed=routed,
        hide_values=spec.errors.mask != NO_MASK,
    )


def row_pipeline(spec: StreamSpec, table: Table) -> Pipeline:
    """Pipeline of dead letters whose value is a row: it lands unchanged, in the table's present columns."""
    kafka = spec.kafka_columns
    return stream_pipeline(
        row_decoder(table.schema(), kafka),
        spec.table.name,
        TableFit(table.schema(), table.spec()).apply,
        columns=RecordColumns(kafka),
        first=[WholeLetters(carried_columns(table.schema(), kafka), EXACT_NAMES, RecordColumns(kafka).fetched)],
        reference=True,
        hide_values=spec.errors.mask != NO_MASK,
    )


class ReplayPipeline:
    """Takes batches of dead letters through the pipeline, without those whose rows the tables have.

    Args:
        spec: The stream, corrected or not, with its dynamic tables.
        parked: Its tables that take no rows at the moment.

    Attributes:
        batch_time: Time of the run for now() in expressions.
        unknown_fields: Records of the newest batch by the path of a field without a column.
    """

    def __init__(
        self,
        spec: StreamSpec,
        tables: RowTables,
        schemas: SchemaLookup | None = None,
        parked: Collection[str] = (),
    ) -> None:
        self.batch_time: datetime = datetime.now(UTC).replace(microsecond=0)
        self.unknown_fields: Counter[str] = Counter()
        self._spec: StreamSpec = spec
        self._tables: RowTables = tables
        self._schemas: SchemaLookup | None = schemas
        self._parked: Collection[str] = parked
        self._several: bool = spec.route is not None
        own = spec.own_columns
        self._lanes: ReplayLanes | None = ReplayLanes(spec, tables, self._of_lane) if own else None
        self._made: dict[str | None, tuple[Schema, PartitionSpec, str | None, str | None, Pipeline, Pipeline]] = {}

    def _pipelines(self, sink: Table, only: str | None) -> tuple[Pipeline, Pipeline]:
        """Pipelines for all batches, as decoders learn; new ones if the table's columns or partitions change."""
        decoded = decoded_digest(sink.properties, self._spec.stream)
        now = sink.schema(), sink.spec(), sink.properties.get(NAME_MAPPING), decoded
        if only not in self._made or self._made[only][:4] != now:
            routed = routed_to(self._spec, self._tables, only, self._parked) if self._spec.route else None
            records = dead_letter_pipeline(self._spec, sink, self._schemas, routed=routed, batch_time=self.batch_time)
            self._made[only] = *now, records, row_pipeline(self._spec, sink)
        return self._made[only][4:]

    def _of_lane(self, spec: StreamSpec, table: Table) -> Pipeline:
        return dead_letter_pipeline(spec, table, self._schemas, batch_time=self.batch_time)

    def _run(self, letters: pa.RecordBatch, only: str | None) -> tuple[list[LaneRows], list[Failure]]:
        """Rows of dead letters, and failures of the others: by records, or by rows as JSON."""
        if self._lanes is not None:
            outcome = self._lanes.outcome(letters, only=only, parked=self._parked)
            self.unknown_fields.update(outcome.unknown_fields)
            return outcome.rows, outcome.failures
        own = self._spec.table.name
        records, rows = self._pipelines(self._tables.table(own), only)
        as_rows = are_rows(letters)
        made: list[LaneRows] = []
        failures: list[Failure] = []
        for number, (pipeline, those) in enumerate(
            [(records, np.flatnonzero(~as_rows)), (rows, np.flatnonzero(as_rows))]
        ):
            if number and not len(those):
                continue
            block = pipeline.run(letters if len(those) == letters.num_rows else letters.take(pa.array(those)))
            self.unknown_fields.update(block.unknown_fields)
            if number or self._spec.route is None:
                made.append(LaneRows(own, block.rows, those[block.positions]))
            else:
                block = restricted_to(block, only, self._parked)
                made += [LaneRows(name, each.rows, those[each.positions]) for name, each in block.routed.items()]
                block = replace(
                    block, failures=sorted([*block.failures, *without_table(block)], key=lambda each: each.row)
                )
            failures += [failure.at(int(those[failure.row])) for failure in block.failures]
        return made, failures

    def process(self, table: Table, letters: pa.RecordBatch) -> tuple[dict[str, pa.RecordBatch], ReplayOutcome]:
        """Fate of a batch's dead letters.

        Args:
            table: Dead-letter table, which shows what has landed if the stream's rows lack coordinates.

        Returns:
            Rows for each table, with their dead letters: with a route, only those that the table lacks. If another dead
            letter lands the same record, it counts as already landed. A dead letter that waits for a table lands only
            there.
        """
        self.unknown_fields.clear()
        made, outcomes = list[LaneRows](), list[ReplayOutcome]()
        first, taken = first_of(letters), dict[str, Indices]()
        for only, those in _by_target(letters):
            part = letters if len(those) == letters.num_rows else letters.take(pa.array(those))
            rows, outcome = self._processed(table, part, only)
            moved = [LaneRows(each.table, each.rows, those[each.letters]) for each in rows]
            once = [_first_time(each, first, taken.setdefault(each.table, _NONE)) for each in moved]
            for each in once:
                taken[each.table] = np.union1d(taken[each.table], first[each.letters])
            landed = np.unique(np.concatenate([_NONE, *(each.letters for each in once)]))
            again = np.setdiff1d(those[outcome.landed], landed, assume_unique=True)
            outcomes.append(
                ReplayOutcome(
                    np.setdiff1d(those[outcome.landed], again, assume_unique=True),
                    np.concatenate([those[outcome.already_landed], again]),
                    [failure.at(int(those[failure.row])) for failure in outcome.failures],
                )
            )
            made += once
        return _joined(made), ReplayOutcome(
            np.concatenate([_NONE, *(each.landed for each in outcomes)]),
            np.concatenate([_NONE, *(each.already_landed for each in outcomes)]),
            [failure for each in outcomes for failure in each.failures],
        )

    def _processed(
        self, table: Table, letters: pa.RecordBatch, only: str | None
    ) -> tuple[list[LaneRows], ReplayOutcome]:
        """As `process`, for dead letters that wait for the same table, or for none."""
        if only is not None and only not in {each.name for each in self._spec.targets if each.role == "rows"}:
            why = f"waits for a row in {only}, which is no table of the stream any more"
            every = range(letters.num_rows)
            return [], ReplayOutcome(
                _NONE, _NONE, [Failure(row, PARKED_STAGE, TABLE_PARKED, why, None) for row in every]
            )
        # The route decides about a dead letter only after the pipeline.
        there = self._stands(table, letters) if not self._several else np.zeros(letters.num_rows, dtype=bool)
        first = first_of(letters)
        alone = first == np.arange(letters.num_rows)
        kept = np.flatnonzero(alone & ~there)
        made, failures = self._run(letters if len(kept) == letters.num_rows else letters.take(pa.array(kept)), only)
        made = [LaneRows(each.table, each.rows, kept[each.letters]) for each in made]
        if self._several:
            every = np.unique(np.concatenate([_NONE, *(each.letters for each in made)]))
            made = [self._lacking(each, letters) for each in made]
        else:
            every = _NONE
        landed = np.unique(np.concatenate([_NONE, *(each.letters for each in made)]))
        there[np.setdiff1d(every, landed, assume_unique=True)] = True
        home = every if self._several else landed
        outcome = ReplayOutcome(
            landed,
            np.flatnonzero(there | (~alone & np.isin(first, home))),
            [failure.at(int(kept[failure.row])) for failure in failures],
        )
        # Another dead letter of a failed record may keep more of it.
        rest = np.flatnonzero(~there & ~alone & ~np.isin(first, home))
        if not len(rest):
            return made, outcome
        rows, others = self._processed(table, letters.take(pa.array(rest)), only)
        return (
            [*made, *(LaneRows(each.table, each.rows, rest[each.letters]) for each in rows)],
            ReplayOutcome(
                np.concatenate([landed, rest[others.landed]]),
                np.concatenate([outcome.already_landed, rest[others.already_landed]]),
                [*outcome.failures, *(failure.at(int(rest[failure.row])) for failure in others.failures)],
            ),
        )

    def _lacking(self, rows: LaneRows, letters: pa.RecordBatch) -> LaneRows:
        """Rows for one of a route's tables, without records that have a row there or among its late rows."""
        kafka, mine = self._spec.kafka_columns, letters.take(pa.array(rows.letters))
        lacks = np.ones(mine.num_rows, dtype=bool)
        for name in names_beside(self._spec, rows.table):
            held = self._tables.held(name)
            if not kafka.locate_rows_of(held.schema()):
                raise not_located(self._spec, name)
            lacks &= ~stand_in_table(held, mine, self._spec.stream, columns=kafka.instant_coordinates)
        return rows if lacks.all() else LaneRows(rows.table, rows.rows.filter(pa.array(lacks)), rows.letters[lacks])

    def _stands(self, table: Table, letters: pa.RecordBatch) -> np.ndarray:
        """Which records have landed in the stream's single table, or among its late rows."""
        kafka = self._spec.kafka_columns
        sinks = [self._tables.held(name) for name in names_beside(self._spec, self._spec.table.name)]
        if all(kafka.locate_rows_of(each.schema()) for each in sinks):
            columns, stream = kafka.instant_coordinates, self._spec.stream
            return np.logical_or.reduce([stand_in_table(each, letters, stream, columns=columns) for each in sinks])
        if "state" not in table.schema().column_names:
            return np.zeros(letters.num_rows, dtype=bool)
        replayed, discarded = EqualTo("state", "replayed"), are_discarded(letters)
        found = already_landed(table, letters, columns=LETTER_COLUMNS, only=replayed)
        if discarded.any():
            # A replay before the discard does not count.
            again = And(replayed, EqualTo("error_class", DISCARDED))
            found[discarded] = already_landed(table, letters, columns=LETTER_COLUMNS, only=again)[discarded]
        return found


def _by_target(letters: pa.RecordBatch) -> list[tuple[str | None, Indices]]:
    """Dead letters by the table that they wait for; first those that wait for none."""
    index = letters.schema.get_field_index(TARGET)
    if index < 0 or letters.column(index).null_count == letters.num_rows:
        return [(None, np.arange(letters.num_rows, dtype=np.int64))]
    found: dict[str | None, list[int]] = {}
    for row, table in enumerate(letters.column(index).to_pylist()):
        found.setdefault(table, []).append(row)
    return [(table, np.array(found[table], np.int64)) for table in sorted(found, key=lambda each: each or "")]


def _first_time(rows: LaneRows, first: Indices, taken: Indices) -> LaneRows:
    """Rows without those that another dead letter of the batch lands in the same table."""
    new = ~np.isin(first[rows.letters], taken)
    return rows if new.all() else LaneRows(rows.table, rows.rows.filter(pa.array(new)), rows.letters[new])


def _joined(made: Sequence[LaneRows]) -> dict[str, pa.RecordBatch]:
    """Rows of each table with any."""
    parts: dict[str, list[pa.RecordBatch]] = {}
    for each in made:
        if each.rows.num_rows:
            parts.setdefault(each.table, []).append(each.rows)
    return {name: pa.concat_batches(those) for name, those in parts.items()}
