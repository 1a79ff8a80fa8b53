"""Stages of a stream's own steps: transforms in their order, then rules, each a stage of its own."""

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
_FILTERED_NOW = "the stream's transforms drop the record now: dismiss its letter if that is right"


@dataclass(frozen=True)
class RowSteps:
    """What rows pass between decoding and their table; travels to the tasks pickled.

    Attributes:
        decoded: The columns of rows as they were decoded, with those of key and headers.
        chain: The transforms.
        rules: What is asked of the rows behind them.
        choice: What leaves out of the rows behind both what their table does not have.
        hide_values: Whether the row before a step is kept in a dead letter without its values.
        refuse_dropped: Whether a record that a step drops has failed: of records that are dead letters already, which
            do not vanish because a filter came later.
        route_asks: What has to be fetched of a record for the stream's route.
        ahead: What values pass before the keys of their records are read; None of a stream without such a step.
        values: The columns of values alone; needed only with `ahead`.
        keep_tombstones: Whether records without a value are rows, which the first step makes something of.
        batch_time: Of the batch, UTC: what now() is; needed only if `asks_batch_time`.
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
        """What has to be fetched of a record for them, and for the route behind them."""
        return self._asked - {BATCH_TIME}

    @property
    def asks_batch_time(self) -> bool:
        """Whether an expression among them, or that of the route, asks for the batch's time."""
        return BATCH_TIME in self._asked

    @property
    def _asked(self) -> frozenset[str]:
        return self.chain.asks | self.rules.asks | self.route_asks

    @property
    def columns(self) -> Columns:
        """The columns behind all of them."""
        return self.choice.output(self.chain.output(self.decoded))

    def first_stages(self) -> Iterator[Stage]:
        """The stage of values alone, if there is one."""
        if self.ahead is not None and self.values is not None:
            take = TakeStep(self.ahead.name, self.ahead, self.values, hide_values=self.hide_values, last=False)
            yield RefuseDropped(take) if self.refuse_dropped else take

    def stages(self) -> Iterator[Stage]:
        """A stage for each step; what a step needs of the machine has been looked up.

        Raises:
            FrazilError: It is not there.
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
    """The steps of a stream; None where its rows go to their one table as they are decoded.

    Args:
        spec: The stream.
        rows: What values become; None of a stream whose file declares it.
        columns: Those that are not from the value; None as above.
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
    """Whether an expression of a stream's file asks for the time of the batch."""
    route = spec.route.asks if spec.route else frozenset[str]()
    return BATCH_TIME in spec.chain.asks | rules_of(spec.rules).asks | route


def prepare_steps(spec: StreamSpec) -> None:
    """See, before the first record, that this machine has what a stream's steps need.

    Raises:
        FrazilError: A secret or a package is not there.
    """
    for each in (*spec.chain.steps, *rules_of(spec.rules).steps):
        each.prepare()


class TakeStep:
    """One step of a stream, taken by each row of a block.

    Args:
        name: What dead letters call it: the list, the index in it, and the step.
        step: The step.
        columns: Those before it.
        batch_time: See `RowSteps`.
        hide_values: See `RowSteps`.
        last: Whether rows that have no value any more are tombstones behind it.
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
        """The block behind the step."""
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
            # What is masked in the record may stand under any name here.
            message = untold(message)
        return Failure(failure.row, self.name, failure.error_class, message, failure.path, before)

    def probe(self, block: Block) -> Block:
        """No rows: a step that fails for those is broken."""
        return block.part(0, 0)

    def before(self, block: Block) -> str:
        """The first row, as JSON."""
        return row_json(block.rows, 0, hidden=self._hide_values)


class RefuseDropped:
    """A stage whose dropped rows have failed instead.

    Args:
        take: The stage.
        by: What drops them, as dead letters call it; without it the stage.
        said: Why the record has failed.
    """

    def __init__(self, take: RowStage, by: str | None = None, said: str = _FILTERED_NOW) -> None:
        self.name: str = take.name
        self._take: RowStage = take
        self._by: str = by or take.name
        self._said: str = said

    def apply(self, block: Block) -> Block:
        """The block behind the stage, with a failure for each record that it filters or leaves without a value."""
        made = self._take.apply(block)
        earlier = {*block.filtered.tolist(), *block.dropped.tolist()}
        gone = sorted({*made.filtered.tolist(), *made.dropped.tolist()} - earlier)
        failures = [Failure(row, self._by, FILTERED, self._said, None) for row in gone]
        failures = sorted([*made.failures, *failures], key=lambda each: each.row)
        return replace(made, failures=failures, filtered=block.filtered, dropped=block.dropped)

    def probe(self, block: Block) -> Block:
        """As of the stage."""
        return self._take.probe(block)

    def before(self, block: Block) -> str:
        """As of the stage."""
        return self._take.before(block)


def aligned(rows: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """Rows in the schema of columns: decoders may call the elements of lists otherwise."""
    if rows.schema.equals(columns.arrow):
        return rows
    arrays = [
        found if (found := rows.column(field.name)).type == field.type else found.cast(field.type)
        for field in columns.arrow
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow)
