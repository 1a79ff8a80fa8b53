"""Pipeline of a stream: the stages that its records pass, from bytes to rows that its table holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from jobs.formats.decoder import DECODE_VALUE, ValueDecoder
from jobs.formats.decoder_spec import DecoderSpec
from jobs.formats.known_formats import FORMATS
from jobs.formats.record_columns import RecordColumns
from jobs.formats.registry_decoder import RegistryDecoder
from jobs.formats.registry_wire import KEY_SCHEMA_ID, VALUE_SCHEMA_ID
from jobs.pipeline.bisection import apply_stage
from jobs.pipeline.block import Block
from jobs.pipeline.record_stages import DecodeHeaders, DecodeKey
from jobs.pipeline.route import STAGE as ROUTE
from jobs.pipeline.route import Destinations, FitToRoutedTables
from jobs.pipeline.route_naming import NamingState
from jobs.pipeline.row_steps import RefuseDropped, RowSteps
from jobs.pipeline.stages import DecodeValue, Fit, FitToTable, Stage
from jobs.schema.needs import Need

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
    """What has to be fetched of a record beyond its value and coordinates, see `jobs.kafka.records.fetched_block`.

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
