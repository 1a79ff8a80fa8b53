"""Pipeline of a stream: the stages that its records pass, from bytes to rows that its table holds."""

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

DROPPED_NOW = "the stream's route drops the record now: dismiss its letter if that is right"

Routed: TypeAlias = tuple[Destinations, Mapping[str, Fit], NamingState | None]


class Pipeline:
    """Takes blocks of records through stages; of a record that fails, the first stage that refuses it counts.

    Args:
        stages: In their order.
        destination: Name of the target that rows are for.
        decoder: Of the values.
    """

    def __init__(self, stages: Sequence[Stage], destination: str, decoder: ValueDecoder | None = None) -> None:
        self._stages: tuple[Stage, ...] = tuple(stages)
        self._destination: str = destination
        self._decoder: ValueDecoder | None = decoder

    @property
    def groups(self) -> int:
        """How many writer schemas the last block's records had; 1 if they name none."""
        return self._decoder.groups if isinstance(self._decoder, RegistryDecoder) else 1

    def run(self, records: pa.RecordBatch) -> Block:
        """What becomes of each record: exactly one of row, failure and dropped.

        Args:
            records: With value, topic, partition, offset and timestamp.

        Raises:
            OSError, MemoryError: The machine or the network failed.
            ProjectionError: The table cannot hold rows of this stream at all.
        """
        return self._through(records, self._stages)

    def landing_needs(self, block: Block) -> tuple[Need, ...]:
        """What those records of a block need whose values are decoded and which a later stage does not take out.

        Args:
            block: Behind the pipeline, with what else has become of its records.
        """
        gone = [*block.filtered, *block.dropped, *(each.row for each in block.failures if each.stage != DECODE_VALUE)]
        if block.undecided or {need.row for need in block.needs}.isdisjoint(gone):
            return block.needs
        # A need names the first record that has it: others may need the same.
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
        decoder: Of the values.
        columns: Those of the rows that are not from the value.
        steps: Of the stream's own, if it has any.
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
    """The pipeline of a stream: in a task of its driver, in a replay, and for a dead-letter topic of Kafka Connect.

    Args:
        decoder: Of the values.
        destination: Name of the target that the rows are for.
        fit: Gives rows as that target's table holds them; raises as `TableFit.apply` does.
        columns: Those of the rows that are not from the value.
        steps: The stream's own between decoding and the table, if it has any.
        first: Stages before all others.
        reference: Decode by the reference alone: of records that have failed before, it is the faster one.
        routed: The several tables of the rows, what gives rows as each of them holds them (`fit` is not asked then),
            and what is decided of tables that values name; None of the last if they name none. Of a route `steps` say
            what the rows are that it is asked of.
        hide_values: Whether dead letters of rows tell nothing of their values.
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
    """What a stage makes of a block with rows; a record that it raises for becomes a failure.

    Raises:
        Exception: What the stage raises for its probe: it is broken, which is no record's fault. Also OSError,
            MemoryError and ProjectionError, whatever they are raised for.
    """
    made = _attempt(stage, block)
    if isinstance(made, Block):
        return made
    # What is raised here is about no record, and has none of the exceptions above, which may quote one, as its context.
    stage.apply(stage.probe(block))
    return block.replaced_by(list(_isolated(stage, block.part(0, block.rows.num_rows), made)))


def _isolated(stage: Stage, part: Block, failure: Failure) -> Iterator[Block]:
    """What a stage makes of the parts of a part that it has failed for, in their order."""
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
    """The block behind the stage, or the failure of its first row: of the row at fault, if it has no other."""
    try:
        return stage.apply(block)
    except ValueProblem as problem:
        return Failure(0, stage.name, problem.error_class, problem.message, problem.field)
    except (OSError, MemoryError, ProjectionError):
        raise
    except Exception as problem:
        return Failure(0, stage.name, UNEXPECTED, _described(problem), None)


def _described(problem: Exception) -> str:
    """A fault of frazil's own that a record brings out. What the exception says may quote the record: left out."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(problem).__name__}{place}"
