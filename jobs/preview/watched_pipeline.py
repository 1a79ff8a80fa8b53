"""Watched pipeline: a stream's own, which also keeps what was decoded and what became of each block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.pipeline.block import Block, Indices
from jobs.pipeline.pipeline import Pipeline, stream_pipeline
from jobs.pipeline.row_steps import RowSteps
from jobs.pipeline.stages import Stage
from jobs.schema.needs import Need
from jobs.transform.columns import Columns


@dataclass(frozen=True, slots=True)
class WatchedBlock:
    """A block of records on its way.

    Attributes:
        decoded: The rows before the stream's transforms.
        positions: The record of each of them.
        made: The block behind the pipeline.
    """

    decoded: pa.RecordBatch | None
    positions: Indices | None
    made: Block


class Watch:
    """Makes pipelines as `stream_pipeline` does, and keeps the blocks that pass them.

    Attributes:
        blocks: In their order.
    """

    def __init__(self) -> None:
        self.blocks: list[WatchedBlock] = []

    def pipeline(self, *args: Any, steps: RowSteps | None = None, **more: Any) -> Pipeline:
        """As `stream_pipeline`."""
        kept = _KeepDecoded()
        given = steps or RowSteps(Columns.of(Schema()))
        watched = _WatchedSteps(**{each.name: getattr(given, each.name) for each in fields(RowSteps)}, kept=kept)
        return _WatchedPipeline(stream_pipeline(*args, steps=watched, **more), kept, self.blocks)


class _KeepDecoded:
    """A stage that lets all rows pass, and remembers those of the last block."""

    name: str = "decoded"

    def __init__(self) -> None:
        self.last: Block | None = None

    def apply(self, block: Block) -> Block:
        self.last = block
        return block

    def probe(self, block: Block) -> Block:
        return block.part(0, 0)


@dataclass(frozen=True)
class _WatchedSteps(RowSteps):
    kept: _KeepDecoded = field(default_factory=_KeepDecoded, kw_only=True)

    def stages(self) -> Iterator[Stage]:
        yield self.kept
        yield from super().stages()


class _WatchedPipeline(Pipeline):
    def __init__(self, inner: Pipeline, kept: _KeepDecoded, blocks: list[WatchedBlock]) -> None:
        super().__init__((), "")
        self._inner: Pipeline = inner
        self._kept: _KeepDecoded = kept
        self._blocks: list[WatchedBlock] = blocks

    @property
    def groups(self) -> int:
        return self._inner.groups

    def landing_needs(self, block: Block) -> tuple[Need, ...]:
        return self._inner.landing_needs(block)

    def run(self, records: pa.RecordBatch) -> Block:
        self._kept.last = None
        made = self._inner.run(records)
        last = self._kept.last
        self._blocks.append(WatchedBlock(last and last.rows, None if last is None else last.positions, made))
        return made
