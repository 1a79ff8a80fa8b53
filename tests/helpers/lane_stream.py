"""A stream each of whose tables has columns of its own: real tables, the driver's batches, and a log in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import yaml

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import load_settings
from jobs.config.stream.models import StreamSpec
from jobs.records.schema.iceberg_schema import schema_text
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.batch.tasks import slice_plan, task_results
from jobs.streaming.driver.context.open_stream import OpenStream, known_targets
from jobs.streaming.driver.context.results import BatchDone, TaskResults
from jobs.streaming.driver.context.source_topics import coordinator_stamp
from jobs.streaming.driver.context.writer_schemas import writer_schemas
from jobs.streaming.driver.opening import takeover
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables import first_records
from jobs.streaming.driver.tables.gone_tables import refuse_gone, without_dropped
from jobs.streaming.driver.tables.new_rows import own_columns
from jobs.streaming.task.run import run_split
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.parked_target import held_by_letters
from jobs.tables.commit.recovery.starting_point import StartingPoint
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import Ranges, TopicPartition
from jobs.tables.commit.stamp.target_positions import restart_positions, target_positions
from tests.helpers.evolving_stream import block

OWN = "lake.stream"
DEAD = f"{OWN}_dead"
Log = dict[TopicPartition, list[bytes | None]]


def document(route: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The stream's file."""
    return {
        "stream": "shop",
        "source": {"topics_pattern": ".*"},
        "decode": {"value": "json", "schema": "infer"},
        "table": {"name": OWN},
        "errors": {"stop_above": "off"},
        **({"route": dict(route)} if route else {}),
        **more,
    }


class LaneStream:
    """Open stream with outputs.

    Args:
        home: Folder of the deployment.
        route: Block `route` of its file.
        log: Records of its topics.
        monkeypatch: Fixture that lets samples be read from the log.
        epoch: Epoch of the driver.
        registry: URL of a schema registry.
        more: Further blocks of its file.

    Attributes:
        runs: Number of runs of the last batch's tasks.
        headers: Headers of records, by their offsets, whatever their topics.
        keys: Keys of records, by their topics and offsets.
    """

    keys: Mapping[tuple[str, int], bytes] = MappingProxyType({})

    def __init__(
        self,
        home: Path,
        route: Mapping[str, Any],
        log: Log,
        monkeypatch: pytest.MonkeyPatch,
        epoch: int = 1,
        registry: str | None = None,
        **more: Any,
    ) -> None:
        (home / "streams").mkdir(parents=True, exist_ok=True)
        file = document(route, **more)
        (home / "streams" / "shop.yaml").write_text(yaml.safe_dump(file))
        said = f"registry: {{url: '{registry}', timeout: 5s, lag: 10ms}}\n" if registry else ""
        (home / "frazil.yaml").write_text(f"kafka: {{bootstrap_servers: 'localhost:1'}}\n{said}")
        self.home: Path = home
        self.log: Log = log
        self.headers: dict[int, dict[str, bytes]] = {}
        self.runs: int = 0
        self.settings = load_settings(None, home=home)
        self.catalog = connect_catalog(self.settings)
        monkeypatch.setattr(first_records, "read_sample", self._sample)
        self.spec: StreamSpec = StreamSpec.model_validate(file)
        self.spec = without_dropped(with_named_tables(self.spec, self.catalog), self.catalog)
        newest = coordinator_stamp(self.spec, self.catalog)
        known = dict(newest.targets) if newest else {}
        refuse_gone(self.spec, self.catalog, known, newest)
        held = held_by_letters(self.spec, self.catalog, known, newest, parking=True)
        parkable = [name for name in known if self.spec.parks(name)]
        ensure_tables(
            self.spec,
            self.catalog,
            lambda: own_columns(self.spec, self.settings, self.state),
            without=held,
            parkable=parkable,
        )
        self.stream: OpenStream = self._opened(epoch)
        kafka: Any = SimpleNamespace(
            ends=lambda partitions: LogEnds({}, {}, {}),
            departures=lambda marks: {},
            identities=lambda topics: {},
            earliest=lambda partitions: dict.fromkeys(partitions, 0),
        )
        self.runner: BatchRunner = _Runner(self, kafka)

    @property
    def state(self) -> LogState:
        """The log, as Kafka would tell it."""
        ends = {at: len(records) for at, records in self.log.items()}
        return LogState({at.topic: "id" for at in self.log}, dict.fromkeys(self.log, 0), ends)

    def _sample(self, settings: Any, ranges: Ranges) -> Iterator[list[SampleRecord]]:
        for at, (start, end) in ranges.items():
            found = enumerate(self.log[at][start:end], start)
            yield [SampleRecord(at, offset, value, self.keys.get((at.topic, offset))) for offset, value in found]

    def _opened(self, epoch: int) -> OpenStream:
        """Open the stream as the driver does, without Kafka: claimed, and completed from earlier drivers' records."""
        lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
        targets = known_targets(self.spec, self.catalog, {}, parking=True)
        folder = stream_folder(self.settings, "shop")
        folder.root.mkdir(parents=True, exist_ok=True)
        given = ("shop", self.spec.config_hash, lease, targets, "", epoch)
        stream = OpenStream(*given, spec=self.spec, settings=self.settings, folder=folder, log=self.state)
        kafka: Any = SimpleNamespace(first_start=lambda source, log: dict.fromkeys(self.log, 0))
        stream.schemas = writer_schemas(self.spec, self.settings, self.state.topics)
        takeover.claim(stream, kafka)
        takeover.recover(stream, self.catalog)
        takeover.add_named_tables(stream)
        self.spec = stream.spec
        stamps = {name: target.newest for name, target in targets.items()}
        stream.positions = target_positions(stamps, self.spec.coordinator)
        stream.begin = StartingPoint(restart_positions(stream.positions))
        return stream

    def produce(self, topic: str, *documents: Any, partition: int = 0) -> None:
        """Add records, documents or bytes, to a topic."""
        records = self.log.setdefault(TopicPartition(topic, partition), [])
        records += [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in documents]

    def land(self, batch: int = 0) -> BatchDone:
        """Land all that the log has."""
        self.runs, frame = 0, None
        self.stream.log = self.state
        return self.runner.run(frame, batch, {at: len(records) for at, records in self.log.items()})  # pyright: ignore[reportArgumentType]

    def columns(self, table: str) -> dict[str, str]:
        """A table's columns, without those of Kafka, with their types."""
        fields = self.catalog.load_table(table).schema().fields
        return {each.name: schema_text(each.field_type) for each in fields if each.name[:6] != "_kafka"}

    def placed(self) -> dict[str, list[tuple[str, int, int]]]:
        """The topic, partition and offset of each row, by table; only of tables that have any."""
        found: dict[str, list[tuple[str, int, int]]] = {}
        for name in self.stream.spec.target_names:
            prefix = "" if name == self.spec.dead_letter_table else "_kafka_"
            if not self.catalog.table_exists(name):
                continue
            rows = (
                stream_table(self.catalog, self.stream.spec, name)
                .scan()
                .to_arrow()
                .select([f"{prefix}{each}" for each in _PLACE])
            )
            if rows.num_rows:
                found[name] = sorted(tuple(each.values()) for each in rows.to_pylist())
        return found

    def letters(self) -> dict[tuple[str, int], str]:
        """The message of each dead letter, by topic and offset."""
        rows = self.catalog.load_table(self.spec.dead_letter_table).scan().to_arrow().to_pylist()
        return {(each["topic"], each["offset"]): f"{each['error_class']}: {each['message']}" for each in rows}


_PLACE = ("topic", "partition", "offset")


class _Runner(BatchRunner):
    """A batch runner whose tasks run here, on the log in memory."""

    def __init__(self, world: LaneStream, kafka: Any) -> None:
        super().__init__(world.stream, kafka)
        self._world: LaneStream = world

    def _run_tasks(self, frame: Any, batch: int, ranges: Any, needs: Any, survey: bool = False) -> TaskResults:
        self._world.runs += 1
        plan = slice_plan(self._stream, batch, ranges, needs, survey=survey)
        results = []
        # All in one task, whose way changes with the topic, and each half in one of its own.
        for source, (start, end) in ranges.items():
            middle = (start + end + 1) // 2
            for first, last in ((start, middle), (middle, end)):
                if first < last:
                    values = self._world.log[source][first:last]
                    keys = {at: key for (topic, at), key in self._world.keys.items() if topic == source.topic}
                    results.append(block(source, values, first, keys, self._world.headers))
        return task_results(self._stream, run_split(plan, results))
