"""Pipeline of a stream: the stages of its records, from bytes to rows in its table's form."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from jobs.records.formats.interface.decoder import DECODE_VALUE, Failure, ValueDecoder
from jobs.records.formats.interface.decoder_spec import DecoderSpec
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.formats.registry_decoder import RegistryDecoder
from jobs.records.formats.registry_wire import KEY_SCHEMA_ID, VALUE_SCHEMA_ID
from jobs.records.schema.needs import Need
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.record_stages import DecodeHeaders, DecodeKey
from jobs.streaming.pipeline.route import STAGE as ROUTE
from jobs.streaming.pipeline.route import Destinations, FitToRoutedTables
from jobs.streaming.pipeline.route_naming import NamingState
from jobs.streaming.pipeline.row_steps import RefuseDropped, RowSteps
from jobs.streaming.pipeline.stages import (
    DecodeValue,
    Fit,
    FitToTable,
    RowStage,
    Stage,
)
from jobs.tables.write.projection import ProjectionError

DROPPED_NOW = "the stream's route drops the record now: dismiss the dead letter if that is right"

Routed: TypeAlias = tuple[Destinations, Mapping[str, Fit], NamingState | None]


class Pipeline:
    """Runs blocks of records through stages; a record fails by the first stage that refuses it.

    Args:
        stages: Stages in order.
        destination: Name of the rows' target.
        decoder: Decoder of the values.
    """

    def __init__(self, stages: Sequence[Stage], destination: str, decoder: ValueDecoder | None = None) -> None:
        self._stages: tuple[Stage, ...] = tuple(stages)
        self._destination: str = destination
        self._decoder: ValueDecoder | None = decoder

    @property
    def groups(self) -> int:
        """Number of writer schemas in the last block's records; 1 if they name none."""
        return self._decoder.groups if isinstance(self._decoder, RegistryDecoder) else 1

    def run(self, records: pa.RecordBatch) -> Block:
        """Run records through all stages: each becomes a row, fails or is dropped.

        Args:
            records: Records with value, topic, partition, offset and timestamp.

        Raises:
            OSError, MemoryError: The machine or the network failed.
            ProjectionError: The table cannot hold any row of this stream.
        """
        return self._through(records, self._stages)

    def landing_needs(self, block: Block) -> tuple[Need, ...]:
        """Needs of the decoded records of a block that no later stage takes out.

        Args:
            block: Block after the pipeline, with the fates of its records.
        """
        gone = [*block.filtered, *block.dropped, *(each.row for each in block.failures if each.stage != DECODE_VALUE)]
        if block.undecided or {need.row for need in block.needs}.isdisjoint(gone):
            return block.needs
        # A need names the first record that has it, but other records may share it.
        left = np.setdiff1d(np.arange(block.records.num_rows), gone)
        decode = next(at for at, stage in enumerate(self._stages) if stage.name == DECODE_VALUE)
        again = self._through(block.records.take(pa.array(left)), self._stages[: decode + 1])
        return tuple(need.at(int(left[need.row])) for need in again.needs)

    def _through(self, records: pa.RecordBatch, stages: Sequence[Stage]) -> Block:
        block = Block.of(records, self._destination)
        for stage in stages:
            if not block.rows.num_rows:
                break
            block = apply_stage(stage, block)
        return block


def fetched_parts(decoder: DecoderSpec, columns: RecordColumns, steps: RowSteps | None = None) -> frozenset[str]:
    """Parts of a record to fetch beyond value and coordinates, see `jobs.clients.kafka.records.fetched_block`.

    Args:
        decoder: Decoder of the values.
        columns: Columns of the rows that do not come from the value.
        steps: The stream's own steps, if it has any.
    """
    parts = columns.fetched | (steps.asks if steps else frozenset())
    if columns.schema_id == "prefix":
        return parts
    if FORMATS[decoder.kind].registry_kind is not None:
        parts |= {VALUE_SCHEMA_ID}
    if columns.key is not None and FORMATS[columns.key.decoder.kind].registry_kind is not None:
        parts |= {KEY_SCHEMA_ID}
    return parts


def stream_pipeline(
    decoder: DecoderSpec,
    destination: str,
    fit: Fit,
    *,
    columns: RecordColumns,
    steps: RowSteps | None = None,
    first: Sequence[Stage] = (),
    reference: bool = False,
    routed: Routed | None = None,
    hide_values: bool = True,
) -> Pipeline:
    """Pipeline of a stream, for its driver's tasks, for replays, and for a dead-letter topic of Kafka Connect.

    Args:
        decoder: Decoder of the values.
        destination: Name of the rows' target.
        fit: Converts rows to that target's table; raises as `TableFit.apply` does.
        columns: Columns of the rows that do not come from the value.
        steps: The stream's own steps between decoding and the table, if it has any.
        first: Stages to run before all others.
        reference: Whether to use the reference decoder only, which is faster for records that have failed before.
        routed: The tables of the rows, the function that converts rows for each (`fit` is then unused), and the
            decisions about dynamic tables; None of these if there are none. For a route, `steps` determine the rows on
            which it decides.
        hide_values: Whether dead letters of rows contain no values.
    """
    format_ = FORMATS[decoder.kind]
    values = (format_.reference if reference else format_.block)(decoder)
    named = columns.schema_id if format_.registry_kind else "prefix"
    keep_tombstones = steps is not None and steps.keep_tombstones
    decode = DecodeValue(values, format_.probe, named=named, keep_tombstones=keep_tombstones)
    more: list[Stage] = list(steps.first_stages()) if steps is not None else []
    if (key := columns.key) is not None:
        keys = FORMATS[key.decoder.kind]
        keys_decoder = (keys.reference if reference else keys.block)(key.decoder)
        more.append(
            DecodeKey(key, keys_decoder, keys.probe, named=columns.schema_id if keys.registry_kind else "prefix")
        )
    if columns.headers:
        more.append(DecodeHeaders(columns.headers))
    if steps is not None:
        more.extend(steps.stages())
    last: Stage = FitToTable({destination: fit}, kafka=columns.kafka, hide_values=hide_values)
    if routed is not None:
        rows = steps.columns if steps else None
        time = steps.batch_time if steps else None
        fitted = FitToRoutedTables(*routed, kafka=columns.kafka, columns=rows, batch_time=time, hide_values=hide_values)
        last = RefuseDropped(fitted, ROUTE, DROPPED_NOW) if steps and steps.refuse_dropped else fitted
    return Pipeline([*first, decode, *more, last], destination, values)


UNEXPECTED = "unexpected_error"


def apply_stage(stage: Stage, block: Block) -> Block:
    """Apply a stage to a block with rows; a record for which it raises becomes a failure.

    Raises:
        Exception: The stage raises for its probe too, so it is broken, and no record is at fault. OSError, MemoryError
            and ProjectionError are always raised.
    """
    made = _attempt(stage, block)
    if isinstance(made, Block):
        return made
    # An error here concerns no record. It must not have the errors above as context, as they may quote one.
    stage.apply(stage.probe(block))
    return block.replaced_by(list(_isolated(stage, block.part(0, block.rows.num_rows), made)))


def _isolated(stage: Stage, part: Block, failure: Failure) -> Iterator[Block]:
    """Results of a stage for the halves of a part for which it failed, in order."""
    count = part.rows.num_rows
    if count == 1:
        if isinstance(stage, RowStage):
            failure = failure.met(stage.before(part))
        yield part.with_rows(part.rows.slice(0, 0), slice(0, 0), failures=[failure])
        return
    for half in (part.part(0, count // 2), part.part(count // 2, count)):
        made = _attempt(stage, half)
        if isinstance(made, Block):
            yield made
        else:
            yield from _isolated(stage, half, made)


def _attempt(stage: Stage, block: Block) -> Block | Failure:
    """The block after the stage, or the failure of its first row: the row at fault, if it is the only one."""
    try:
        return stage.apply(block)
    except ValueProblem as problem:
        return Failure(0, stage.name, problem.error_class, problem.message, problem.field)
    except (OSError, MemoryError, ProjectionError):
        raise
    except Exception as problem:
        return Failure(0, stage.name, UNEXPECTED, _described(problem), None)


def _described(problem: Exception) -> str:
    """Description of a fault in frazil caused by a record; without the exception's text, which may quote the record."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(problem).__name__}{place}"
