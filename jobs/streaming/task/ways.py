"""Outputs of a task: the pipeline of each topic's records, and the table that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from jobs.config.values.mask import NO_MASK
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.record_columns import RecordColumns
from jobs.streaming.pipeline.lanes import Lane, undecoded_pipeline, unrouted_pipeline
from jobs.streaming.pipeline.pipeline import Pipeline, Routed
from jobs.streaming.pipeline.record_stages import ReadHeaders
from jobs.streaming.pipeline.row_steps import RowSteps
from jobs.streaming.task.plan import TaskPlan
from jobs.streaming.task.sinks import Sink

MakePipeline: TypeAlias = Callable[..., Pipeline]
"""Like `stream_pipeline`, with a decoder, a destination and a fit."""


class Way(NamedTuple):
    """Output of some records.

    Attributes:
        table: Table of their rows; the coordinator's if none has a row.
        columns: Columns of the rows that do not come from the value.
        late: Table of their late rows; None if those go where the others go.
    """

    table: str
    pipeline: Pipeline
    resolved: ResolvedSchema
    columns: RecordColumns
    late: str | None = None
    decoded: bool = True


class Ways:
    """Outputs by topic: one for all, unless each table has its own columns.

    Args:
        routed: Returns the tables of the rows, for a stream whose tables share their columns, or for an output with a
            table of late rows.
    """

    def __init__(
        self, plan: TaskPlan, sinks: Mapping[str, Sink], make: MakePipeline, routed: Callable[[Lane | None], Routed]
    ) -> None:
        self._plan: TaskPlan = plan
        self._sinks: Mapping[str, Sink] = sinks
        self._make: MakePipeline = make
        self._routed: Callable[[Lane | None], Routed] = routed
        self._coordinator: str = next(each.target.name for each in plan.targets if each.target.coordinator)
        self._lanes: dict[str, Lane] = {topic: lane for lane in plan.lanes for topic in lane.topics}
        self._known: dict[str, Way] = {}
        self._only: Way | None = None
        if not plan.lanes:
            more = {"routed": routed(None)} if plan.several else {}
            made = self._made(sinks[self._coordinator], plan.resolved, plan.columns, plan.steps, **more)
            self._only = Way(self._coordinator, made, plan.resolved, plan.columns, plan.late_table)

    def of(self, topic: str) -> Way:
        """Output of a topic's records."""
        if self._only is not None:
            return self._only
        lane = self._lanes[topic]
        name = lane.table or f"no table: {lane.refused}"
        if name not in self._known:
            if lane.table is None:
                made = unrouted_pipeline(lane, self._coordinator)
            elif not lane.decoded:
                made = undecoded_pipeline(lane.table)
            else:
                more = {"routed": self._routed(lane)} if lane.late else {}
                made = self._made(self._sinks[lane.table], lane.resolved, lane.columns, lane.steps, **more)
            at = lane.table or self._coordinator
            self._known[name] = Way(at, made, lane.resolved, lane.columns, lane.late, lane.decoded)
        return self._known[name]

    def _made(
        self, sink: Sink, resolved: ResolvedSchema, columns: RecordColumns, steps: RowSteps | None, **routed: Any
    ) -> Pipeline:
        fetched = columns.fetched | (steps.asks if steps else frozenset())
        return self._make(
            resolved.decoder,
            sink.target.name,
            lambda rows: sink.fit(rows) if sink.parked else sink.writer.fit(rows),
            columns=columns,
            steps=steps,
            first=[ReadHeaders()] if "headers" in fetched else [],
            hide_values=self._plan.mask != NO_MASK,
            **routed,
        )
