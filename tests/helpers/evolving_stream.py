"""A stream whose table evolves: real tables, the driver's own batches, and tasks without Spark over a log in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.kafka.records import WHOLE, FetchedBlock
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.batch.tasks import slice_plan, task_results
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import BatchDone, TaskResults
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.streaming.task.run import run_split
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.starting_point import StartingPoint
from jobs.tables.commit.schema.schema_history import ChangeRecord, schema_history
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.tasks import TIMESTAMP

SINK = "orders.payments"


class EvolvingStream:
    """Open stream; several may write one table.

    Args:
        home: Folder of the deployment.
        name: Id of the stream, and name of its topic.
        columns: Columns of the table, as schema text.
        epoch: Epoch of the driver.
        decode: Further keys of the block `decode`.
        key: Columns of the key's struct, if the stream's file does not declare them.
        mask: The masked columns.
        more: Further blocks of the stream's file.
        evolve: The block `evolve`.

    Attributes:
        keys: Keys of the records that have one, by offset.
        headers: Headers of records, by offset.
        runs: Number of runs of a batch's tasks.
        surveys: Number of these runs that were surveys.
        survey: Whether a run may be a survey, instead of an exact run.
        between: Callback after the tasks of each run.
    """

    headers: Mapping[int, Mapping[str, bytes]] = MappingProxyType({})

    def __init__(
        self,
        home: Path,
        name: str = "payments",
        columns: str = "id string, n int",
        epoch: int = 1,
        decode: dict[str, Any] | None = None,
        key: str | None = None,
        mask: Sequence[str] = (),
        more: Mapping[str, Any] = MappingProxyType({}),
        **evolve: Any,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.spec: StreamSpec = StreamSpec.model_validate(
            {
                "stream": name,
                "source": {"topics": [name]},
                "decode": {"value": "json", "schema": "infer", **(decode or {})},
                "table": {"name": SINK},
                "errors": {
                    "dead_letters": {"table": f"orders.{name}_dead", "mask": {"columns": list(mask)}},
                    "stop_above": "off",
                },
                "evolve": evolve,
                **more,
            }
        )
        # Nobody connects: the log is in memory.
        (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
        self.settings: Settings = load_settings(None, home=home)
        self.catalog = connect_catalog(self.settings)
        of_key = rows_of(key).fields if key else None
        ensure_tables(self.spec, self.catalog, lambda: NewColumns(rows_of(columns), of_key))
        self.keys: dict[int, bytes] = {}
        self.log: list[bytes | None] = []
        self.at: TopicPartition = TopicPartition(name, 0)
        self.runs: int = 0
        self.surveys: int = 0
        self.survey: bool = True
        self.between: Callable[[], None] = lambda: None
        self.stream: OpenStream = self._opened(home, epoch)
        kafka: Any = SimpleNamespace(
            ends=lambda partitions: LogEnds({}, {}, {}), departures=lambda marks: {}, identities=lambda topics: {}
        )
        self.runner: BatchRunner = MemoryRunner(self, kafka)

    def _opened(self, home: Path, epoch: int) -> OpenStream:
        name = self.spec.stream
        lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
        targets = {each: Target(self.catalog, each, name) for each in self.spec.target_names}
        stands = self.catalog.load_table(SINK).properties.get(f"frazil.stamp.{name}")
        at = dict(Stamp.from_json(stands).position) if stands else {self.at: 0}
        for target in targets.values():
            target.claim(epoch, lambda newest: Stamp(name, "claim", -1, epoch, "c", start=at, position=at))
        folder = StreamFolder.at(home / f"state-{name}")
        folder.root.mkdir(exist_ok=True)
        given = (name, self.spec.config_hash, lease, targets, "", epoch)
        stream = OpenStream(*given, spec=self.spec, settings=self.settings, folder=folder, log=LogState({}, {}, {}))
        stream.positions = {each: dict(at) for each in targets}
        stream.begin = StartingPoint(at)
        return stream

    def land(self, *documents: Any, batch: int = 0) -> BatchDone:
        """Produce records, documents or bytes, None without a value, and land all that the log has."""
        self.log += [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in documents]
        self.runs = 0
        frame: Any = None
        return self.runner.run(frame, batch, {self.at: len(self.log)})

    @property
    def table(self) -> Table:
        return self.catalog.load_table(SINK)

    @property
    def columns(self) -> dict[str, str]:
        """The table's columns, without those of Kafka, with their types."""
        return {each.name: str(each.field_type) for each in self.table.schema().fields if each.name[:6] != "_kafka"}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table's rows of the stream by offset, without what says where they came from, and without nulls."""
        found = [each for each in self.table.scan().to_arrow().to_pylist() if each["_kafka_topic"] == self.spec.stream]
        found.sort(key=lambda each: each["_kafka_offset"])
        return [{k: v for k, v in each.items() if k[:6] != "_kafka" and v is not None} for each in found]

    @property
    def letters(self) -> dict[int, str]:
        """The classes of the dead letters, by offset."""
        rows = self.catalog.load_table(self.spec.dead_letter_table).scan().to_arrow().to_pylist()
        return {each["offset"]: each["error_class"] for each in rows}

    @property
    def history(self) -> tuple[ChangeRecord, ...]:
        return schema_history(self.table.properties)

    @property
    def files(self) -> list[Path]:
        """The data files that exist, referenced or not."""
        return sorted(Path(self.table.location().removeprefix("file://")).rglob("*.parquet"))


class MemoryRunner(BatchRunner):
    """A batch runner whose tasks run here, on the log in memory."""

    def __init__(self, world: EvolvingStream, kafka: Any) -> None:
        super().__init__(world.stream, kafka)
        self._world = world

    def _run_tasks(self, frame: Any, batch: int, ranges: Any, needs: Any, survey: bool = False) -> TaskResults:
        self._world.runs += 1
        self._world.surveys += survey
        plan = slice_plan(self._stream, batch, ranges, needs, survey=survey and self._world.survey)
        results = []
        for source, (start, end) in ranges.items():
            # Two splits: what is needed does not depend on how a batch is cut.
            middle = (start + end + 1) // 2
            for first, last in ((start, middle), (middle, end)):
                if first < last:
                    world = self._world
                    fetched = block(source, world.log[first:last], first, world.keys, world.headers)
                    results += run_split(plan, [fetched])
        self._world.between()
        return task_results(self._stream, results)


def block(
    source: TopicPartition,
    values: Sequence[bytes | None],
    first: int,
    keys: Mapping[int, bytes] = MappingProxyType({}),
    headers: Mapping[int, Mapping[str, bytes]] = MappingProxyType({}),
) -> FetchedBlock:
    """Records of one partition as a task takes them."""
    count = len(values)
    columns = {
        "key": [keys.get(first + number) for number in range(count)],
        "value": values,
        "headers": [None] * count,
        "topic": [source.topic] * count,
        "partition": [source.partition] * count,
        "offset": range(first, first + count),
        "timestamp": [TIMESTAMP] * count,
        "timestampType": [0] * count,
    }
    whole = pa.RecordBatch.from_arrays([pa.array(columns[each.name], each.type) for each in WHOLE], schema=WHOLE)
    needed = whole.select(["key", "value", "topic", "partition", "offset", "timestamp"])
    found = [headers.get(first + number, {}).items() for number in range(count)]
    listed = [[{"key": key, "value": value} for key, value in each] for each in found]
    needed = needed.append_column("headers", pa.array(listed, WHOLE.field("headers").type))
    return FetchedBlock(source, needed, lambda rows: whole.take(pa.array(rows, pa.int64())))


def rows_of(columns: str) -> Schema:
    """The columns of a schema's text."""
    return iceberg_schema(parse_schema(columns))


def interrupted(home: Path, *records: Any, **options: Any) -> EvolvingStream:
    """A stream whose rows of a batch have landed, and whose letters have not: they have to be made anew."""
    one = EvolvingStream(home, **options)
    commit = OpenStream.commit

    def lost(stream: OpenStream, target: Target, *given: Any) -> ProposalOutcome:
        if target.name == one.spec.dead_letter_table:
            raise OSError("killed")
        return commit(stream, target, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenStream, "commit", lost)
        with pytest.raises(OSError, match="killed"):
            one.land(*records)
    one.stream.folder.store.delete(one.stream.folder.pending(1))
    return one
