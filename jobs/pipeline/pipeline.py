"""Pipeline of a stream: the stages that its records pass, from bytes to rows that its table holds."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.formats.decoder_spec import DecoderSpec
from jobs.formats.known_formats import FORMATS
from jobs.pipeline.bisection import apply_stage
from jobs.pipeline.block import Block
from jobs.pipeline.stages import DecodeValue, Fit, FitToTable, Stage
from jobs.schema.kafka_columns import KafkaColumns


class Pipeline:
    """Takes blocks of records through stages; of a record that fails, the first stage that refuses it counts.

    Args:
        stages: In their order.
        destination: Name of the target that rows are for.
    """

    def __init__(self, stages: Sequence[Stage], destination: str) -> None:
        self._stages: tuple[Stage, ...] = tuple(stages)
        self._destination: str = destination

    def run(self, records: pa.RecordBatch) -> Block:
        """What becomes of each record: exactly one of row, failure and dropped.

        Args:
            records: With value, topic, partition, offset and timestamp.

        Raises:
            OSError, MemoryError: The machine or the network failed.
            ProjectionError: The table cannot hold rows of this stream at all.
        """
        block = Block.of(records, self._destination)
        for stage in self._stages:
            if not block.rows.num_rows:
                break
            block = apply_stage(stage, block)
        return block


def stream_pipeline(
    decoder: DecoderSpec,
    destination: str,
    fit: Fit,
    *,
    kafka: KafkaColumns,
    first: Sequence[Stage] = (),
    reference: bool = False,
) -> Pipeline:
    """The pipeline of a stream: in a task of its driver, in a replay, and for a dead-letter topic of Kafka Connect.

    Args:
        decoder: Of the values.
        destination: Name of the target that the rows are for.
        fit: Gives rows as that target's table holds them; raises as `TableFit.apply` does.
        kafka: The columns that rows have of Kafka's own.
        first: Stages before all others.
        reference: Decode by the reference alone: of records that have failed before, it is the faster one.
    """
    format_ = FORMATS[decoder.kind]
    decode = DecodeValue((format_.reference if reference else format_.block)(decoder), format_.probe)
    return Pipeline([*first, decode, FitToTable({destination: fit}, kafka=kafka)], destination)
