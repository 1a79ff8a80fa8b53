"""A stream with a route: real tables, the driver's own batches, and tasks without Spark over a log in memory."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.source_topics import coordinator_stamp
from jobs.streaming.driver.opening import takeover
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables.gone_tables import without_dropped
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.parked_target import held_by_letters, parked_target
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.starting_point import StartingPoint
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.target_positions import restart_positions, target_positions
from tests.helpers.evolving_stream import SINK, EvolvingStream, MemoryRunner

COLUMNS = "id string not null, type string, n int"
ROUTE: dict[str, Any] = {
    "by": "type",
    "tables": [
        {"match": "INS|UPD", "table": "orders.changes", "partition_by": ["bucket(2, id)"]},
        {"match": ["DEL", "UPD"], "table": "orders.deletes"},
        {"match": "OWN", "table": SINK},
    ],
}


class RoutedStream(EvolvingStream):
    """Open stream, with or without outputs.

    Args:
        home: Folder of the deployment.
        route: Block `route` of its file; None for a stream without outputs.
        epoch: Epoch of the driver.
        more: Further blocks of its file.
    """

    def __init__(self, home: Path, route: dict[str, Any] | None = None, epoch: int = 1, **more: Any) -> None:
        home.mkdir(parents=True, exist_ok=True)
        document: dict[str, Any] = {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": COLUMNS},
            "table": {"name": SINK},
            "errors": {"stop_above": "off"},
            **({"route": route} if route else {}),
            **more,
        }
        self.home: Path = home
        # For commands, which read it.
        (home / "streams").mkdir(exist_ok=True)
        (home / "streams" / "payments.yaml").write_text(yaml.safe_dump(document))
        self.spec: StreamSpec = StreamSpec.model_validate(document)
        (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
        self.settings = load_settings(None, home=home)
        self.catalog = connect_catalog(self.settings)
        self.spec = without_dropped(with_named_tables(self.spec, self.catalog), self.catalog)
        self.newest = coordinator_stamp(self.spec, self.catalog)
        known = dict(self.newest.targets) if self.newest else {}
        self.held = held_by_letters(self.spec, self.catalog, known, self.newest, parking=True)
        ensure_tables(self.spec, self.catalog, without=self.held)
        self.keys: dict[int, bytes] = {}
        self.log: list[bytes | None] = []
        self.at = TopicPartition("payments", 0)
        self.runs = self.surveys = 0
        self.survey = True
        self.between = lambda: None
        self.stream = self._opened(home, epoch)
        kafka: Any = SimpleNamespace(
            ends=lambda partitions: LogEnds({}, {}, {}), departures=lambda marks: {}, identities=lambda topics: {}
        )
        self.runner = MemoryRunner(self, kafka)

    def _opened(self, home: Path, epoch: int) -> OpenStream:
        """Open the stream as the driver does, without Kafka: claimed, and completed from earlier drivers' records."""
        lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
        targets: dict[str, Target] = {}
        for each in self.spec.target_names:
            if each in self.held:
                targets[each] = parked_target(self.spec, self.catalog, each, self.held[each])
            else:
                targets[each] = Target(self.catalog, each, "payments", branch=self.spec.branch_of(each))
                targets[each].read()
        folder = stream_folder(self.settings, "payments")
        folder.root.mkdir(parents=True, exist_ok=True)
        given = ("payments", self.spec.config_hash, lease, targets, "", epoch)
        stream = OpenStream(*given, spec=self.spec, settings=self.settings, folder=folder, log=LogState({}, {}, {}))
        kafka: Any = SimpleNamespace(first_start=lambda source, log: {self.at: 0})
        takeover.claim(stream, kafka)
        takeover.recover(stream, self.catalog)
        takeover.add_named_tables(stream)
        self.spec = stream.spec
        stamps = {name: target.newest for name, target in targets.items()}
        stream.positions = target_positions(stamps, self.spec.coordinator)
        stream.begin = StartingPoint(restart_positions(stream.positions))
        return stream

    def offsets(self, table: str) -> list[int]:
        """The offsets of a table's rows, ascending."""
        found = stream_table(self.catalog, self.spec, table).scan().to_arrow()
        return sorted(found.column("offset" if table.endswith("_dead") else "_kafka_offset").to_pylist())

    def placed(self) -> dict[str, list[int]]:
        """The offsets in each of its tables that has any."""
        there = [name for name in self.stream.spec.target_names if self.catalog.table_exists(name)]
        return {name: found for name in there if (found := self.offsets(name))}

    def letters_for(self, table: str) -> list[int]:
        """The offsets of the letters that wait, or have waited, for a table."""
        rows = self.catalog.load_table(self.spec.dead_letter_table).scan().to_arrow().to_pylist()
        return sorted(each["offset"] for each in rows if each["target"] == table)

    def expected(self) -> dict[str, list[int]]:
        """The same as the route has it, one record at a time, of records that all decode."""
        found: dict[str, list[int]] = {}
        assert self.spec.route is not None
        for offset, value in enumerate(self.log):
            if value is None:
                continue
            names = self.spec.route.destinations(json.loads(value).get("type"))
            for name in names or (self.spec.dead_letter_table,):
                found.setdefault(name, []).append(offset)
        return found
