"""A deployment of its own in a temporary folder, on the real broker: produce, run, kill, and count what arrived."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.process.drain import Drained, DrainProgress, drain
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from tests.helpers.shared_servers import SPARK_CONF
from tests.helpers.topics import create_topic, idempotent_producer, read_topic
from tests.helpers.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
Coordinates = tuple[str, int, int]

SCHEMA = "id string not null, amount decimal(12,2) not null, created_at timestamptz not null, note string"
GOOD = "good"
NULL_AMOUNT = "amount is null: an optional column would take it"
TRUNCATED = "truncated"
TOMBSTONE = "tombstone"


def payment(number: int, kind: str) -> bytes | None:
    """A record's value."""
    if kind == TOMBSTONE:
        return None
    amount = None if kind == NULL_AMOUNT else number / 100
    text = json.dumps({"id": f"p-{number}", "amount": amount, "created_at": "2026-11-01T10:00:00Z", "note": "x" * 20})
    return text[:30].encode() if kind == TRUNCATED else text.encode()


@dataclass
class Pipeline:
    """One stream of its own: topic, tables, state."""

    home: Path
    address: str
    stream: str
    partitions: int = 2
    lease_ttl: str = "30s"
    numbers: int = 0
    changes: dict[str, Any] = field(default_factory=dict)
    catalog_settings: dict[str, Any] | None = None
    spark_settings: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        settings = {
            "kafka": {"bootstrap_servers": self.address},
            "spark": self.spark_settings or {"master": "local[2]", "driver_memory": "600m", "conf": SPARK_CONF},
            "lease_ttl": self.lease_ttl,
            **({"catalog": self.catalog_settings} if self.catalog_settings else {}),
        }
        (self.home / "frazil.yaml").write_text(yaml.safe_dump(settings))
        self.write_spec()

    @property
    def table_name(self) -> str:
        return f"tests.{self.stream}"

    @property
    def dead_name(self) -> str:
        return f"tests.{self.stream}_dead"

    @property
    def spec_file(self) -> Path:
        return self.home / "streams" / f"{self.stream}.yaml"

    def write_spec(self, schema: str = SCHEMA, **changes: Any) -> None:
        """Write the stream's file; `changes` replace whole top-level keys."""
        document: dict[str, Any] = {
            "stream": self.stream,
            "source": {"topics": [self.stream]},
            "decode": {"value": "json", "schema": schema},
            "table": {"name": self.table_name, "partition_by": ["day(created_at)"]},
            "trigger": "available_now",
        } | changes
        self.spec_file.parent.mkdir(exist_ok=True)
        self.spec_file.write_text(yaml.safe_dump(document))

    def spec(self) -> StreamSpec:
        return load_stream(self.spec_file)

    def settings(self) -> Settings:
        return load_settings(None, home=self.home)

    def catalog(self) -> Catalog:
        return connect_catalog(self.settings())

    def table(self) -> Table:
        """As the branch that the stream writes has it."""
        return stream_table(self.catalog(), self.spec(), self.table_name)

    def dead_table(self) -> Table:
        return self.catalog().load_table(self.dead_name)

    def folder(self) -> StreamFolder:
        return stream_folder(self.settings(), self.stream)

    def create_topic(self, topic: str | None = None, config: Mapping[str, str] | None = None) -> None:
        create_topic(self.address, topic or self.stream, self.partitions, config)

    def produce(self, kinds: Mapping[str, int], topic: str | None = None, partition: int | None = None) -> None:
        """Produce records of each kind, in turn over the partitions, transactions and headers left aside."""
        producer = idempotent_producer(self.address, topic or self.stream)
        order = [kind for kind, count in kinds.items() for _ in range(count)]
        for kind in order:
            self.numbers += 1
            producer.produce(
                topic or self.stream,
                key=f"k{self.numbers}".encode(),
                value=payment(self.numbers, kind),
                partition=self.numbers % self.partitions if partition is None else partition,
            )
            producer.poll(0)
        assert producer.flush(120) == 0

    def control(self, **options: Any) -> StreamControl:
        """What an operator can do to the stream."""
        return StreamControl(self.home, None, self.stream, **options)

    def beat(self) -> Heartbeat:
        """What the newest driver says of itself."""
        beat = read_heartbeat(self.folder().store)
        assert beat is not None
        return beat

    def wait_until_landed(self, seconds: float = 90.0) -> None:
        """Wait until the stream's driver stands at the end of the topic, by the stamps."""

        produced = len(read_topic(self.address, self.stream))
        catalog = self.catalog()

        def all_landed() -> bool:
            try:
                newest = history(catalog.load_table(self.table_name).metadata, self.stream).newest
            except NoSuchTableError:
                # The driver has not come so far.
                return False
            position = newest.position if newest else {}
            return sum(at for p, at in position.items() if p.topic == self.stream) == produced

        wait_for(all_landed, f"all records of {self.stream} to land", seconds)

    def drain(self, spark: SparkSession, on_progress: Callable[[DrainProgress], None] = lambda _: None) -> Drained:
        """Drain in this process, on a session that is there already."""
        return drain(self.spec(), self.settings(), self.kafka(), lambda: spark, on_progress=on_progress)

    def kafka(self) -> KafkaLog:
        """A connection to the broker."""
        return KafkaLog(self.settings().kafka)

    def accept(self, **answer: Any) -> list[str]:
        """Record an operator's answer."""
        return list(record_answer(self.spec(), self.settings(), self.kafka, Answer(**answer), "tester: trying it"))

    def start(self, steps: str = "", env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start `frazil run` as a process of its own, with the named steps armed."""
        return subprocess.Popen(
            [sys.executable, "-m", "orchestration.cli.main", "--home", str(self.home), "run", self.stream],
            cwd=ROOT,
            env={**os.environ, **(env or {}), "FRAZIL_STEPS": steps, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, steps: str = "", expect: int = 0) -> str:
        """Run to the end, or to the death that `steps` asks for; returns what it printed."""
        process = self.start(steps)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == expect, f"exit {process.returncode}, expected {expect}:\n{output}"
        return output

    def run_and_die(self, step: str) -> str:
        """Run until the step, where the process is killed with SIGKILL."""
        output = self.run(f"{step}=kill", expect=-signal.SIGKILL)
        assert f"step {step}: SIGKILL" in output
        return output

    def lose_state(self) -> None:
        """Take the state away, in one step: the JVM of a driver just killed may still be tidying up in there."""
        gone = self.settings().state.rename(tempfile.mkdtemp(prefix="lost-", dir=self.home))
        shutil.rmtree(gone, ignore_errors=True)

    def landed(self) -> Counter[Coordinates]:
        """How often each record stands in the table."""
        rows = self.table().scan(selected_fields=("_kafka_topic", "_kafka_partition", "_kafka_offset")).to_arrow()
        return Counter(zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True))

    def dead(self) -> Counter[Coordinates]:
        """How often each record stands in the dead letters."""
        rows = self.dead_table().scan(selected_fields=("topic", "partition", "offset")).to_arrow()
        return Counter(zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True))

    def assert_exactly_once(self, topics: Sequence[str] = ()) -> None:
        """Every record of the topics is in one place, once; tombstones are nowhere; the stamps are contiguous."""
        self.assert_each_once(topics)
        self.assert_contiguous()

    def assert_each_once(self, topics: Sequence[str] = ()) -> None:
        """Every record of the topics is in one place, once; tombstones are nowhere."""
        records = {
            (topic, partition, offset): value
            for topic in topics or (self.stream,)
            for partition, offset, value in read_topic(self.address, topic)
        }
        landed, dead = self.landed(), self.dead()
        assert [c for c, n in landed.items() if n != 1] == [], "doubled rows"
        assert [c for c, n in dead.items() if n != 1] == [], "doubled dead letters"
        assert landed.keys() & dead.keys() == set(), "landed and dead"
        tombstones = {at for at, value in records.items() if value is None}
        missing = records.keys() - landed.keys() - dead.keys() - tombstones
        assert missing == set(), f"lost: {sorted(missing)[:5]} of {len(missing)}"
        assert landed.keys() | dead.keys() == records.keys() - tombstones

    def assert_contiguous(self) -> None:
        """Each batch stamp of the table begins where the one before ended, and the totals are the sums."""
        stamps = [stamp for _, stamp in reversed(stamps_along_main(self.table().metadata, self.stream))]
        for before, after in itertools.pairwise(stamps):
            assert after.epoch >= before.epoch
            for partition, start in after.start.items():
                assert start <= before.position.get(partition, start) <= after.position[partition]
        newest = stamps[-1]
        counts = newest.totals
        assert counts.read == counts.landed + counts.dead + counts.tombstones + counts.filtered


def daily(one: Pipeline, count: int, **source: Any) -> list[str]:
    """A stream of daily topics, and so many of them."""
    days = [f"{one.stream}.2026110{day}" for day in range(1, count + 1)]
    one.write_spec(source={"topics_pattern": rf"{one.stream}\.\d{{8}}", **source})
    for day in days:
        one.create_topic(day)
    return days
