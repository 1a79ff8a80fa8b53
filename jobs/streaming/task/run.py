"""Run of a Spark task on its split of a batch: it decodes records, writes data files, and counts.

Its input is blocks of records; its output a few JSON texts, each a data file's descriptor or a tally. Nothing is
committed here, so nobody references the files of a failed or repeated attempt.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from jobs.clients.kafka.range_reader import MOST_BYTES
from jobs.clients.kafka.records import FetchedBlock
from jobs.config.values.targets import Role
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId
from jobs.records.formats.known_formats import FORMATS
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.lanes import Lane
from jobs.streaming.pipeline.pipeline import Routed, stream_pipeline
from jobs.streaming.pipeline.route import Destinations
from jobs.streaming.task.event_time import judge_block, late_rows
from jobs.streaming.task.needs import TaskNeeds, UnnamedTables
from jobs.streaming.task.plan import TaskPlan
from jobs.streaming.task.sinks import Sink, keep_within_budget
from jobs.streaming.task.tally import Tally, count_block, count_events
from jobs.streaming.task.ways import MakePipeline, Way, Ways
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.dead_letter_table.parked_letters import PARKED_STAGE, TABLE_PARKED, for_table
from jobs.tables.dead_letter_table.rows import dead_letter_rows

MOST_JOINED = 6
"""Most blocks that are joined; fewer if records are large, to hold at most two blocks' bytes at once."""


def joined_blocks(blocks: Iterable[FetchedBlock], groups: Callable[[], int]) -> Iterator[FetchedBlock]:
    """The blocks, joined in numbers that follow the groups of the last one.

    Args:
        blocks: Blocks of a split, in order.
        groups: Returns the number of writer schemas in the last block's records.
    """
    held: list[FetchedBlock] = []
    size = 0
    for block in blocks:
        if held and block.source != held[0].source:
            yield joined(held)
            held, size = [], 0
        held.append(block)
        size += block.records.column("value").nbytes
        if len(held) >= min(groups(), MOST_JOINED) or size * (len(held) + 1) > 2 * MOST_BYTES * len(held):
            yield joined(held)
            held, size = [], 0
    if held:
        yield joined(held)


def joined(blocks: Sequence[FetchedBlock]) -> FetchedBlock:
    """Consecutive blocks of one partition as one."""
    if len(blocks) == 1:
        return blocks[0]
    ends = np.cumsum([each.records.num_rows for each in blocks]).tolist()

    def whole(rows: Sequence[int]) -> pa.RecordBatch:
        begins = [0, *ends[:-1]]
        own = [[row - begin for row in rows if begin <= row < end] for begin, end in zip(begins, ends, strict=True)]
        return pa.concat_batches([block.whole(each) for block, each in zip(blocks, own, strict=True) if each])

    records, last = pa.concat_batches([each.records for each in blocks]), blocks[-1]
    return FetchedBlock(last.source, records, whole, last.leader_epoch, last.appended_ms)


LearnedSchema: TypeAlias = tuple[SchemaId, RegistrySchema]


class TaskResult(NamedTuple):
    """Report of a task about one file, one Kafka partition, a need, a new table, or a writer schema.

    A task that left records `undecided` has written and counted nothing. A `failed` task has its traceback as payload.

    Attributes:
        kind: `schema`: a schema from the registry; `unmet`: an id that the registry did not know.
        target: Target of a file or a need; otherwise empty.
    """

    kind: Literal["file", "tally", "need", "table", "schema", "unmet", "undecided", "failed"]
    target: str
    payload: str


def run_split(
    plan: TaskPlan, blocks: Iterable[FetchedBlock], make_pipeline: MakePipeline = stream_pipeline
) -> list[TaskResult]:
    """Decode and write one split, and count the fates of its records."""
    work = _Split(plan, make_pipeline)
    try:
        with _no_garbage_collection():
            for block in joined_blocks(blocks, lambda: work.groups):
                work.process(block)
            return work.finish()
    except BaseException:
        work.abort()
        raise
    finally:
        _forget_archives()


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Turn off the search for unreachable cycles, as records make none.

    It would search thousands of objects repeatedly while a block is read, which takes longer than the reading.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _forget_archives() -> None:
    """Save the next task a tenth of a second of CPU.

    PySpark's worker invalidates the import caches before every task. Python then reads the directories of PySpark's zip
    archives again, unless they are forgotten. The next import that needs them restores them.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


class _Split:
    def __init__(self, plan: TaskPlan, make_pipeline: MakePipeline) -> None:
        self._plan: TaskPlan = plan
        self._tallies: dict[TopicPartition, Tally] = {}
        self._needs: dict[str, TaskNeeds] = {}
        self._unnamed: UnnamedTables = UnnamedTables()
        self._undecided: bool = False
        self._sinks: dict[str, Sink] = {each.target.name: Sink(each, plan.file_prefix) for each in plan.targets}
        self._coordinator: str = next(each.target.name for each in plan.targets if each.target.coordinator)
        self._rows: Sink = self._sink_of("rows")
        self._dead: Sink = self._sink_of("dead_letters")
        # The key of a dead letter is its record and first-seen time, so a record's letters for several tables differ in
        # it.
        parked = [name for name, sink in self._sinks.items() if sink.parked]
        self._apart: dict[str, timedelta] = {name: timedelta(microseconds=1 + at) for at, name in enumerate(parked)}
        self._at: tuple[TopicPartition, dict[str, np.ndarray], str | None] | None = None
        self._ways: Ways = Ways(plan, self._sinks, make_pipeline, self._routed)
        self._groups: int = 1

    def _routed(self, lane: Lane | None) -> Routed:
        """Tables of the rows, or of the rows of an output with a table of late rows."""
        plan, fits = self._plan, {name: sink.fit for name, sink in self._sinks.items()}
        if lane is not None:
            return Destinations(lane.table or self._coordinator, late=lane.late, which=self._late), fits, None
        which = self._late if plan.late_table else None
        return Destinations(self._coordinator, plan.route, plan.late_table, which), fits, plan.naming

    def _late(self, block: Block, rows: pa.RecordBatch) -> np.ndarray:
        """Which rows are for the table of late rows; rows of the present block, or of a part of it."""
        plan = self._plan
        if plan.event_time is None or self._at is None or (late := self._at[2]) is None:
            return np.zeros(rows.num_rows, dtype=bool)
        source, wanted, _ = self._at
        return late_rows(plan.event_time, source, block, rows, wanted[self._coordinator], wanted[late])

    @property
    def groups(self) -> int:
        """Number of writer schemas in the last block's records."""
        return self._groups

    def process(self, fetched: FetchedBlock) -> None:
        source, records = fetched.source, fetched.records
        tally = self._tallies.setdefault(source, Tally(source.topic, source.partition))
        offsets = records.column("offset").to_numpy()
        tally.after, tally.leader_epoch = int(offsets[-1]) + 1, fetched.leader_epoch
        tally.appended_ms = fetched.appended_ms
        tally.fetched += records.num_rows
        tally.fetched_bytes += records.nbytes
        way, lanes = self._ways.of(source.topic), bool(self._plan.lanes)
        asked = {self._coordinator, self._dead.target.name, way.table, way.late or way.table} if lanes else self._sinks
        wanted = {name: self._sinks[name].wants(source, offsets) for name in asked}
        failed = np.isin(offsets, list(self._plan.failed.get(source, ())))
        if failed.any():
            wanted = {name: each & ~failed for name, each in wanted.items()}
        if not any(each.any() for each in wanted.values()):
            return
        self._at = source, wanted, way.late
        block = way.pipeline.run(records)
        self._groups = way.pipeline.groups
        self._undecided |= block.undecided | self._unnamed.add(source, block, wanted[self._coordinator])
        if self._plan.event_time is not None and way.decoded and not self._undecided:
            apart = way.late or self._dead.target.name
            judged = judge_block(self._plan.event_time, source, block, wanted[self._coordinator], wanted[apart])
            block = judged.block
            count_events(tally, judged.counts, judged.greatest_ms)
        if block.needs:
            self._needs.setdefault(way.table, TaskNeeds()).add(source, block, way.pipeline.landing_needs(block))
        if self._undecided:
            return
        count_block(tally, block, wanted[self._coordinator], way.resolved.decoder)
        if lanes and way.late is None:
            self._land_lane(tally, fetched, block, wanted, way.table)
        elif not lanes and not self._plan.several:
            self._land(tally, block.destination, block.rows, wanted[block.destination][block.positions])
        else:
            self._land_routed(tally, fetched, block, wanted)
            failed[[failure.row for failure in block.failures]] = False
            tally.failures += int(failed.sum())
        failures = [failure for failure in block.failures if wanted[self._dead.target.name][failure.row]]
        if failures:
            self._dead.count(tally, len(failures))
            self._dead.writer.write(self._letters(fetched, failures, self._plan.first_seen, way))
        if self._plan.several or lanes:
            keep_within_budget(self._sinks.values())

    def _letters(
        self, fetched: FetchedBlock, failures: list[Failure], first_seen: datetime, way: Way, *, waits: bool = False
    ) -> pa.RecordBatch:
        # The dead letters' topic does not repeat letters that wait for a table: their records have no fault.
        waits = waits or not self._plan.numbered
        return dead_letter_rows(
            fetched.whole([failure.row for failure in failures]),
            failures,
            stream=self._plan.stream,
            config_hash=self._plan.config,
            batch_id=None if waits else self._plan.batch,
            epoch=None if waits else self._plan.epoch,
            first_seen=first_seen,
            mask=self._plan.mask,
            rows=way.resolved.schema,
            columns=way.columns,
            json_fields=FORMATS[way.resolved.decoder.kind].json_fields,
            names=way.resolved.names,
        )

    def _keep_parked(self, tally: Tally, fetched: FetchedBlock, target: str, records: np.ndarray) -> None:
        """Keep the records of rows for a suspended table: one dead letter each, which names it."""
        if not len(records):
            return
        sink, message = self._sinks[target], f"table {target} is suspended"
        failures = [Failure(row, PARKED_STAGE, TABLE_PARKED, message, None) for row in records.tolist()]
        first_seen, way = self._plan.first_seen + self._apart[target], self._ways.of(fetched.source.topic)
        letters = self._letters(fetched, failures, first_seen, way, waits=True)
        sink.count(tally, letters.num_rows)
        sink.writer.write(for_table(letters, target))

    def _land(self, tally: Tally, target: str, rows: pa.RecordBatch, wanted: np.ndarray) -> None:
        if not wanted.all():
            rows = rows.filter(pa.array(wanted))
        if rows.num_rows:
            self._sinks[target].count(tally, rows.num_rows)
            self._sinks[target].writer.add(rows)

    def _land_routed(self, tally: Tally, fetched: FetchedBlock, block: Block, wanted: dict[str, np.ndarray]) -> None:
        tally.failures += len(block.failures)
        for target, routed in block.routed.items():
            if self._sinks[target].parked:
                self._keep_parked(tally, fetched, target, routed.positions[wanted[target][routed.positions]])
                continue
            self._land(tally, target, routed.rows, wanted[target][routed.positions])
        own = block.routed.get(self._coordinator)
        landed = int(wanted[self._coordinator][block.positions].sum())
        mine = int(wanted[self._coordinator][own.positions].sum()) if own is not None else 0
        tally.elsewhere += landed - mine

    def _land_lane(
        self, tally: Tally, fetched: FetchedBlock, block: Block, wanted: dict[str, np.ndarray], table: str
    ) -> None:
        """Land the rows of a topic, which all go to one table."""
        tally.failures += len(block.failures)
        mine = wanted[table][block.positions]
        if self._sinks[table].parked:
            self._keep_parked(tally, fetched, table, block.positions[mine])
        else:
            self._land(tally, table, block.rows, mine)
        if table != self._coordinator:
            tally.elsewhere += int(wanted[self._coordinator][block.positions].sum())

    def finish(self) -> list[TaskResult]:
        needs = [TaskResult("need", name, each) for name, of in self._needs.items() for each in of.encoded()]
        if self._undecided:
            self.abort()
            tables = [TaskResult("table", "", each) for each in self._unnamed.encoded()]
            return [TaskResult("undecided", "", ""), *needs, *tables, *self._schemas()]
        files = [TaskResult("file", name, payload) for name, sink in self._sinks.items() for payload in sink.close()]
        tallies = [TaskResult("tally", "", msgspec.json.encode(tally).decode()) for tally in self._tallies.values()]
        return [*files, *tallies, *needs, *self._schemas()]

    def _schemas(self) -> list[TaskResult]:
        """Writer schemas that the registry was asked for, so that nobody asks again, and unknown ids."""
        plan = self._plan
        ways = [(each.resolved, each.columns) for each in plan.lanes] or [(plan.resolved, plan.columns)]
        found = [part for rows, of in ways for part in (rows.decoder.schemas, of.key and of.key.decoder.schemas)]
        lookups = [each for each in found if each]
        learned = lookups[0].learned() if lookups else {}
        unmet = sorted({each for lookup in lookups for each in lookup.unmet}, key=str)
        return [
            *(TaskResult("schema", "", msgspec.json.encode(each).decode()) for each in learned.items()),
            *(TaskResult("unmet", "", msgspec.json.encode(each).decode()) for each in unmet),
        ]

    def abort(self) -> None:
        for sink in self._sinks.values():
            sink.abort()

    def _sink_of(self, role: Role) -> Sink:
        return next(sink for sink in self._sinks.values() if sink.target.role == role)
