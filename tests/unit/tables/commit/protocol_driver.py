"""Drivers of the commit protocol's small world: the project's code, in a thread that stops wherever a crash can matter.

A driver goes on when the script says so; only one runs at a time, so a script always gives the same story.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.records.formats.interface.writer_schema import SchemaId
from jobs.records.schema.name_matching import aliases_of
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.context.open_stream import OpenStream, known_targets
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.driver.context.second_run import failed_before, table_as_decided, unknown_as_decided
from jobs.streaming.driver.opening import opening, takeover
from jobs.streaming.driver.tables.gone_tables import refuse_gone, reopened_where_dropped, without_dropped
from jobs.streaming.driver.tables.parked_tables import parked_where_refused, reopened_where_unable
from jobs.streaming.task.tally import Tally
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.parked_target import ParkedTarget
from jobs.tables.commit.stamp.errors import CommitDeniedError
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition
from jobs.tables.commit.stamp.target_positions import TargetNeed
from tests.unit.tables.commit.protocol_pauses import Killed, pause
from tests.unit.tables.commit.protocol_world import (
    DEAD,
    LATE_ID,
    PAIR,
    SCHEMAS,
    TABLE,
    Way,
    World,
)

DEADLINE_SECONDS = 120.0
Becoming: TypeAlias = Callable[[TopicPartition, int], set[str]]


class EveryonesLease:
    """A lease that whoever asks gets, and keeps, so that only the claims protect; its epochs go on."""

    def __init__(self, world: World) -> None:
        self.lost: None = None
        self._world = world

    def acquire(self, above: int) -> int:
        epoch = self._world.lease_epoch = 1 + max(self._world.lease_epoch, above)
        pause("has the lease")
        return epoch

    def verify(self) -> None:
        pause("verifies the lease")

    def release(self) -> None:
        pass


class Driver:
    """One driver process, as a thread that moves from pause to pause."""

    def __init__(self, world: World, config: str, batch_sizes: list[int]) -> None:
        self.world = world
        self.config = config
        self.sizes = batch_sizes
        self.at = "not started"
        self.error: Exception | None = None
        self.ended = False
        self.write_fails_late = False
        self.sends_twice = False
        self._kill = False
        # Each is released by one thread for the other, never twice: a story has thousands of pauses.
        self._go, self._paused = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._paused.acquire()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.driver = self  # type: ignore[attr-defined]
        self._thread.start()

    def advance(self) -> None:
        """Let it run to its next pause, or to its end."""
        if not self.ended:
            self._go.release()
            assert self._paused.acquire(timeout=DEADLINE_SECONDS), f"driver hangs after: {self.at}"

    def kill(self) -> None:
        self._kill = True
        while not self.ended:
            self.advance()

    def finish(self) -> None:
        while not self.ended:
            self.advance()

    def pause(self, at: str) -> None:
        self.at = at
        self._paused.release()
        self._go.acquire()
        if self._kill:
            raise Killed

    def _main(self) -> None:
        self._go.acquire()
        try:
            if not self._kill:
                self._run()
        except Killed:
            pass
        except Exception as problem:
            self.error = problem
        finally:
            self.ended = True
            self._paused.release()

    def _run(self) -> None:
        """What `opened` and `drain` do, without Spark; the lease always says yes, so that only the claims protect."""
        while True:
            with contextlib.suppress(takeover.MovedMeanwhileError), self._opened() as stream:
                self._land(stream, self.world)
                return

    @contextlib.contextmanager
    def _opened(self) -> Iterator[OpenStream]:
        world: Any = self.world
        spec = without_dropped(with_named_tables(world.spec(self.config), world), world)
        newest = history(world.load_table(spec.coordinator).metadata, "payments").newest
        refuse_gone(spec, world, newest.targets if newest else (), newest)
        targets = known_targets(spec, world, {}, parking=True)
        settings: Any = SimpleNamespace(catalog=SimpleNamespace(name="test"))
        stream = OpenStream(
            *("payments", self.config, EveryonesLease(world), targets),
            spec=spec,
            settings=settings,
            folder=StreamFolder(Path("nowhere"), world.store),
            log=world.state(None),
        )
        with reopened_where_unable(stream), reopened_where_dropped(stream), stream.held():
            takeover.claim(stream, world)
            opening.resume(stream, world, world)
            yield stream

    def _land(self, stream: OpenStream, world: Any) -> None:
        runner = Tasks(stream, world, self.config)
        at, batch = dict(stream.begin.offsets), 0
        while any(world.log[partition] > at.get(partition, 0) for partition in world.log):
            size = self.sizes[batch % len(self.sizes)]
            if any(at.get(partition, 0) > end for partition, end in world.log.items()):
                # Spark's query fails on a log that ends before; the stamps and the topics say why.
                opening.decide_start(stream, world)
            at = {partition: min(end, at.get(partition, 0) + size) for partition, end in world.log.items()}
            runner.run(None, batch, at)  # type: ignore[arg-type]
            pause("before Spark notes the batch")
            batch += 1


class Tasks(BatchRunner):
    """A batch runner whose tasks put the records' coordinates into files in memory."""

    def __init__(self, stream: OpenStream, world: World, config: str) -> None:
        super().__init__(stream, world)  # type: ignore[arg-type]
        self._world, self._config = world, config

    def _run_tasks(
        self, frame: Any, batch: int, ranges: Ranges, needs: dict[str, TargetNeed], survey: bool
    ) -> TaskResults:
        files: dict[str, list[DataFile]] = {}
        with parked_where_refused(self._stream) as on:
            for name, target in self._stream.targets.items():
                with on(name):
                    if name not in self._world.misfits or isinstance(target, ParkedTarget):
                        continue
                    raise CommitDeniedError(f"table {name} does not take the columns of the others")
        way = self._way(needs)
        if not needs[TABLE].nothing:
            waits = self._world.unnamed(ranges, self._stream.targets, way)
            if waits:
                return TaskResults(files, [], undecided=True, tables=waits)
        failed = failed_before(self._stream, ranges, needs, self._world.failed_letters)
        become = self._becoming(way, failed)
        for name in self._stream.targets:
            parked = isinstance(self._stream.targets[name], ParkedTarget)
            rows = [
                # A letter says which table it is for.
                (*self._world.record(partition, offset), name) if parked else self._world.record(partition, offset)
                for partition, (start, end) in ranges.items()
                if partition not in needs[name].skip
                for offset in range(max(start, needs[name].floors.get(partition, start)), end)
                if name in become(partition, offset) and offset not in failed.get(partition, ())
            ]
            files[name] = [self._written(rows)] if rows else []
        unmet = frozenset[SchemaId]() if way.known else frozenset({LATE_ID})
        tallies = [self._tally(p, range_, needs, become, failed.get(p, frozenset())) for p, range_ in ranges.items()]
        return TaskResults(files, tallies, unmet=unmet)

    def _becoming(self, way: Way, failed: Mapping[TopicPartition, Collection[int]]) -> Becoming:
        """What becomes of a record: a row of each table that it is for, or a letter, as one of them cannot hold it."""
        stream, world = self._stream, self._world
        # Nobody knows what a parked table holds; of one that is gone also not if it is asked.
        parked = {name for name, target in stream.targets.items() if isinstance(target, ParkedTarget)}
        known = world.tables.keys() - world.forbidden
        fitted = {name for name in stream.targets if name not in parked or (stream.fits_parked and name in known)}

        def become(partition: TopicPartition, offset: int) -> set[str]:
            unfit = world.unfit(partition, offset, way) & fitted or offset in failed.get(partition, ())
            return {DEAD} if unfit else world.destinations(partition, offset, way)

        return become

    def _way(self, needs: dict[str, TargetNeed]) -> Way:
        table = table_as_decided(self._stream, needs)
        known = self._world.registry_knows and LATE_ID not in unknown_as_decided(self._stream, needs)
        named = bool(aliases_of(SCHEMAS[table.current_schema_id], table.properties, TABLE))
        return Way(self._config, table.current_schema_id, named, known)

    def _tally(
        self,
        partition: TopicPartition,
        range_: OffsetRange,
        needs: dict[str, TargetNeed],
        become: Becoming,
        failed: Collection[int],
    ) -> Tally:
        lacked: dict[str, list[set[str]]] = {}
        for name, wanted in needs.items():
            first = max(range_.start, wanted.floors.get(partition, range_.start))
            offsets = range(first, range_.end) if partition not in wanted.skip else ()
            lacked[name] = [become(partition, offset) for offset in offsets if offset not in failed]
        read = lacked[TABLE]
        return Tally(
            *partition,
            read=len(read),
            landed=sum(bool(each - {DEAD}) for each in read),
            dead=sum(DEAD in each for each in read),
            tombstones=sum(not each for each in read),
            elsewhere=sum(bool(each - {DEAD}) and TABLE not in each for each in read),
            failures=self._failures(partition, range_, needs, become),
            rows={name: sum(name in each for each in of) for name, of in lacked.items()},
            **self._world.last_of(range_, partition),
        )

    def _failures(
        self, partition: TopicPartition, range_: OffsetRange, needs: dict[str, TargetNeed], become: Becoming
    ) -> int:
        """The records that fail of those that are read, whoever lacks them."""
        if len(needs) <= len(PAIR) or all(partition in each.skip for each in needs.values()):
            return 0
        return sum(DEAD in become(partition, offset) for offset in range(range_.start, range_.end))

    def _written(self, rows: list[tuple]) -> DataFile:
        path = f"mem://{len(self._world.files)}-{id(rows)}"
        self._world.files[path] = rows
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(rows),
            file_size_in_bytes=1,
        )
        file.spec_id = 0
        return file
