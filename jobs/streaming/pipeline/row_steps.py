"""Stages of a stream's own steps: transforms in order, then rules, each a stage of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.config.steps.steps import rules_of
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.problems import ValueProblem, untold
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.transforms.change_events.row_changes import with_key_decoder
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.frame import BATCH_TIME
from jobs.records.transforms.row_json import row_json
from jobs.records.transforms.transform import (
    NO_CHAIN,
    Applied,
    Chain,
    RowFailure,
    Rows,
    Transform,
    settled,
)
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.stages import RowStage, Stage

FILTERED = "filtered"
_FILTERED_NOW = "the stream's transforms drop the record now: dismiss the dead letter if that is right"


@dataclass(frozen=True)
class RowSteps:
    """Steps of rows between decoding and their table; pickled for the tasks.

    Attributes:
        decoded: Columns of decoded rows, with those of key and headers.
        chain: The transforms.
        rules: Rules for the rows after the transforms.
        choice: Removal of columns that the table lacks, after both.
        hide_values: Whether dead letters keep the row before a step without its values.
        refuse_dropped: Whether a record that a step drops has failed. Used for dead letters, which must not vanish
            because a filter was added later.
        route_asks: Parts of a record to fetch for the stream's route.
        ahead: Steps of values before the records' keys are read; None without such steps.
        values: Columns of values only; needed only with `ahead`.
        keep_tombstones: Whether records without a value are rows, which the first step handles.
        batch_time: Time of the batch, UTC, for now(); needed only if `asks_batch_time`.
    """

    decoded: Columns
    chain: Chain = NO_CHAIN
    rules: Chain = NO_CHAIN
    choice: Chain = NO_CHAIN
    hide_values: bool = False
    refuse_dropped: bool = False
    route_asks: frozenset[str] = frozenset()
    batch_time: datetime | None = None
    ahead: Transform | None = None
    values: Columns | None = None
    keep_tombstones: bool = False

    @property
    def asks(self) -> frozenset[str]:
        """Parts of a record to fetch for the steps, and for the route after them."""
        return self._asked - {BATCH_TIME}

    @property
    def asks_batch_time(self) -> bool:
        """Whether one of their expressions, or the route's, uses the batch's time."""
        return BATCH_TIME in self._asked

    @property
    def _asked(self) -> frozenset[str]:
        return self.chain.asks | self.rules.asks | self.route_asks

    @property
    def columns(self) -> Columns:
        """Columns after all steps."""
        return self.choice.output(self.chain.output(self.decoded))

    def first_stages(self) -> Iterator[Stage]:
        """Stage of values only, if there is one."""
        if self.ahead is not None and self.values is not None:
            take = TakeStep(self.ahead.name, self.ahead, self.values, hide_values=self.hide_values, last=False)
            yield RefuseDropped(take) if self.refuse_dropped else take

    def stages(self) -> Iterator[Stage]:
        """A stage for each step, with what it needs from the machine.

        Raises:
            FrazilError: The machine lacks it.
        """
        if self.asks_batch_time and self.batch_time is None:
            raise TypeError("expressions with now() need the time of the batch")
        between = self.chain.columns(self.decoded)
        steps = list(zip(self.chain.names, self.chain.steps, strict=True))
        steps += [(f"rules[{index}].{rule.name}", rule) for index, rule in enumerate(self.rules.steps)]
        steps += [("columns", choice) for choice in self.choice.steps]
        columns = [*between[:-1], *(between[-1] for _ in (*self.rules.steps, *self.choice.steps))]
        for number, ((name, step), before) in enumerate(zip(steps, columns, strict=True), 1):
            step.prepare()
            last = number == len(steps)
            take = TakeStep(name, step, before, self.batch_time, hide_values=self.hide_values, last=last)
            yield RefuseDropped(take) if self.refuse_dropped else take


def row_steps_of(spec: StreamSpec, rows: Schema | None = None, columns: RecordColumns | None = None) -> RowSteps | None:
    """The steps of a stream; None if rows go to their one table as decoded.

    Args:
        spec: The stream.
        rows: Columns of the values; None if the stream's file declares them.
        columns: Columns that do not come from the value; None likewise.
    """
    lane = spec.lane_columns
    chain = spec.chain
    if not chain and not spec.rules and spec.route is None and lane is None:
        return None
    beside = spec.record_columns if columns is None else columns
    values = spec.resolved.schema if rows is None else rows
    decoded = Columns.of(beside.beside(values))
    if columns is not None and columns.key is not None:
        chain = with_key_decoder(chain, columns.key.decoder)
    choice = lane.columns.step_on(chain.output(decoded)) if lane is not None else None
    return RowSteps(
        decoded,
        chain,
        rules_of(spec.rules),
        NO_CHAIN if choice is None else Chain((choice,)),
        hide_values=spec.errors.mask != NO_MASK,
        route_asks=spec.route.asks if spec.route else frozenset(),
        ahead=spec.changes.ahead if spec.changes else None,
        values=Columns.of(values),
        keep_tombstones=spec.changes is not None and spec.changes.keeps_tombstones,
    )


def asks_batch_time(spec: StreamSpec) -> bool:
    """Whether an expression of a stream's file uses the time of the batch."""
    route = spec.route.asks if spec.route else frozenset[str]()
    return BATCH_TIME in spec.chain.asks | rules_of(spec.rules).asks | route


def prepare_steps(spec: StreamSpec) -> None:
    """Check before the first record that this machine has what a stream's steps need.

    Raises:
        FrazilError: A secret or a package is missing.
    """
    for each in (*spec.chain.steps, *rules_of(spec.rules).steps):
        each.prepare()


class TakeStep:
    """Stage of one step of a stream.

    Args:
        name: Name in dead letters: the list, the index in it, and the step.
        step: The step.
        columns: Columns before the step.
        batch_time: See `RowSteps`.
        hide_values: See `RowSteps`.
        last: Whether rows without a value are tombstones after it.
    """

    def __init__(
        self,
        name: str,
        step: Transform,
        columns: Columns,
        batch_time: datetime | None = None,
        *,
        hide_values: bool,
        last: bool,
    ) -> None:
        self.name: str = name
        self._step: Transform = step
        self._columns: Columns = columns
        self._batch_time: datetime | None = batch_time
        self._hide_values: bool = hide_values
        self._last: bool = last

    def apply(self, block: Block) -> Block:
        """The block after the step."""
        frame = block.frame.at(self._batch_time)
        rows = Rows(self._columns, aligned(block.rows, self._columns), frame, block.gone)
        made = self._applied(rows)
        left, kept, gone, dropped = made.rows, made.kept, made.rows.tombstones, np.zeros(0, np.int64)
        if self._last and gone is not None:
            mask = gone.to_numpy(zero_copy_only=False)
            every = np.arange(rows.count) if kept is None else kept
            dropped, kept = every[mask], every[~mask]
            left, gone = left.take(np.flatnonzero(~mask)), None
        return block.with_rows(
            left.batch,
            slice(None) if kept is None else kept,
            failures=[self._failure(rows, each) for each in made.failures],
            dropped=dropped,
            filtered=made.filtered,
            changed=left.frame.changed,
            gone=gone,
            warned=made.warned,
        )

    def _applied(self, rows: Rows) -> Applied:
        try:
            return self._step.apply(rows)
        except ValueProblem as problem:
            if rows.count != 1:
                raise
            return settled(rows, [RowFailure(0, problem.error_class, problem.message, problem.field)])

    def _failure(self, rows: Rows, failure: RowFailure) -> Failure:
        message, before = failure.message, row_json(rows.batch, failure.row, hidden=self._hide_values)
        if self._hide_values:
            # Masked values may be under any name here.
            message = untold(message)
        return Failure(failure.row, self.name, failure.error_class, message, failure.path, before)

    def probe(self, block: Block) -> Block:
        """No rows: a step that fails for them is broken."""
        return block.part(0, 0)

    def before(self, block: Block) -> str:
        """The first row, as JSON."""
        return row_json(block.rows, 0, hidden=self._hide_values)


class RefuseDropped:
    """Stage whose dropped rows count as failed.

    Args:
        take: The stage.
        by: Name in dead letters of what drops the rows; None: the stage.
        said: Message of the failure.
    """

    def __init__(self, take: RowStage, by: str | None = None, said: str = _FILTERED_NOW) -> None:
        self.name: str = take.name
        self._take: RowStage = take
        self._by: str = by or take.name
        self._said: str = said

    def apply(self, block: Block) -> Block:
        """The block after the stage, with a failure for each record that it filters or leaves without a value."""
        made = self._take.apply(block)
        earlier = {*block.filtered.tolist(), *block.dropped.tolist()}
        gone = sorted({*made.filtered.tolist(), *made.dropped.tolist()} - earlier)
        failures = [Failure(row, self._by, FILTERED, self._said, None) for row in gone]
        failures = sorted([*made.failures, *failures], key=lambda each: each.row)
        return replace(made, failures=failures, filtered=block.filtered, dropped=block.dropped)

    def probe(self, block: Block) -> Block:
        """The stage's probe."""
        return self._take.probe(block)

    def before(self, block: Block) -> str:
        """The stage's row before."""
        return self._take.before(block)


def aligned(rows: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """Rows in the schema of columns: decoders may name the elements of lists otherwise."""
    if rows.schema.equals(columns.arrow):
        return rows
    arrays = [
        found if (found := rows.column(field.name)).type == field.type else found.cast(field.type)
        for field in columns.arrow
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow)
