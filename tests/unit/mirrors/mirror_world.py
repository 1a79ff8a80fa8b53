"""A changelog and a mirror of it in a catalog of SQLite, with what others do to both meanwhile; a stand-in merges."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType, TimestamptzType

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.merge.mirror_table import ensure_mirror
from jobs.mirrors.model.mirror_stamp import MirrorStamp, mirror_id, mirrored
from jobs.mirrors.model.session import MirrorSession, mirror_session
from jobs.mirrors.run import merging
from jobs.mirrors.run.merging import Merged, merge_new
from jobs.tables.commit.protocol import target as target_module
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import ReplaceFiles
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from tests.unit.mirrors.plain_merger import P0, PlainMerger

CHANGELOG, MIRROR = "shop.customers_changes", "shop.customers"
AT = datetime(2026, 11, 1, tzinfo=UTC)
MIRROR_STEPS = ("mirror_before_merge", "mirror_after_merge", "mirror_before_publish", "mirror_after_publish")
COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "_change_op", StringType(), required=True),
    NestedField(4, "_change_at", TimestamptzType(), required=False),
    NestedField(5, "_change_position", StringType(), required=False),
    NestedField(6, "_change_lineage", StringType(), required=False),
    NestedField(7, "_change_transaction", StringType(), required=False),
    NestedField(8, "_change_unavailable", ListType(9, StringType(), element_required=False), required=False),
    NestedField(10, "_change_key", StructType(NestedField(11, "id", LongType(), required=False)), required=False),
    NestedField(12, "_change_old_key", StructType(NestedField(13, "id", LongType(), required=False)), required=False),
    NestedField(14, "_kafka_topic", StringType(), required=False),
    NestedField(15, "_kafka_partition", IntegerType(), required=False),
    NestedField(16, "_kafka_offset", LongType(), required=False),
    NestedField(17, "_kafka_timestamp", TimestamptzType(), required=False),
)

Rows = dict[int, str]


class Killed(BaseException):
    """The process ends here."""


class AtStep:
    """Ends the process at a step, or does something else there, once."""

    def __init__(self, name: str, action: Callable[[], object] | None = None) -> None:
        self.name, self.action, self.passed = name, action, False
        self.before = (merging.step, target_module.step)

    def __call__(self, name: str) -> None:
        if name == self.name and not self.passed:
            self.passed = True
            if self.action is None:
                raise Killed
            self.action()

    def __enter__(self) -> AtStep:
        merging.step = target_module.step = self
        return self

    def __exit__(self, *exc: object) -> None:
        merging.step, target_module.step = self.before


@dataclass(frozen=True)
class Change:
    """One change of the source: the row as it is then, or that it is gone.

    Attributes:
        moved_from: Key that the row had until then, whose deletion is the change before. The name is not sent.
    """

    id: int
    name: str | None
    op: str | None = None
    moved_from: int | None = None


class MirrorWorld:
    """Stream `customers`, whose changes land in a changelog, and one mirror of it.

    Args:
        home: A folder of its own.
        mirror: What the mirror's block says beside its table and key.
    """

    def __init__(self, home: Path, **mirror: Any) -> None:
        self.home = home
        file = home / "streams" / "customers.yaml"
        file.parent.mkdir(parents=True)
        self.document: dict[str, Any] = {
            "stream": "customers",
            "source": {"topics": ["customers"]},
            "decode": {
                "value": "connect_json",
                "schema": "infer",
                "key": {"format": "connect_json", "schema": "id long", "into": "_change_key"},
            },
            "changes": {"envelope": "debezium"},
            "table": {"name": CHANGELOG},
            "mirrors": [{"table": MIRROR, "buckets": 2, **mirror}],
        }
        self.file: Path = file
        self.write()
        self.settings: Settings = Settings.embedded(home)
        catalog = self.catalog()
        catalog.create_namespace("shop")
        catalog.create_table(CHANGELOG, COLUMNS, properties={"format-version": "2"})
        self.epoch = 0
        self.end = 0
        # Of the positions of changes to come, as after a restore of the source.
        self.position_shift = 0
        # Of the source that they come from.
        self.lineage = "db"
        # When changes come to Kafka.
        self.at = AT
        self.changes: list[Change] = []
        # Kafka's ids, as the stream stamps them.
        self.topics: dict[str, str] = {}
        # The stream stands at the ends of its topics.
        self.valid_through_ms: int | None = int((AT + timedelta(days=365)).timestamp() * 1000)

    def write(self, **more: Any) -> None:
        self.document |= more
        self.file.write_text(yaml.safe_dump(self.document, sort_keys=False))
        self.spec: StreamSpec = load_stream(self.file)
        self.mirror: Mirror = self.spec.mirrors[0]

    def catalog(self) -> Catalog:
        return connect_catalog(self.settings)

    def changelog(self) -> Table:
        return self.catalog().load_table(CHANGELOG)

    def table(self) -> Table:
        return self.catalog().load_table(MIRROR)

    def land(self, *changes: Change) -> None:
        """A batch of changes lands in the changelog; without any it is a batch of nothing."""
        target = Target(self.catalog(), CHANGELOG, "customers")
        if not self.epoch:
            self.epoch = 1
            first = Stamp("customers", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0})
            target.claim(1, lambda newest: first)
        target.read()
        start, self.end = self.end, self.end + len(changes)
        self.changes += changes
        rows: list[Mapping[str, object]] = [
            {
                "id": each.id,
                "name": each.name if each.moved_from is None else None,
                "_change_op": each.op or ("d" if each.name is None else "u" if each.moved_from is None else "c"),
                "_change_unavailable": None if each.moved_from is None else ["name"],
                "_change_old_key": None if each.moved_from is None else {"id": each.moved_from},
                "_change_at": self.at + timedelta(minutes=start + n),
                "_kafka_timestamp": self.at + timedelta(minutes=start + n),
                "_change_position": f"{start + n + self.position_shift - (each.moved_from is not None):016x}",
                "_change_lineage": self.lineage,
                "_change_key": {"id": each.id},
                "_kafka_topic": "customers",
                "_kafka_partition": 0,
                "_kafka_offset": start + n,
            }
            for n, each in enumerate(changes)
        ]
        files = self.data_files(target.table, rows)
        stamp = Stamp(
            "customers", "batch", 0, self.epoch, "c", start={P0: start}, position={P0: self.end},
            counts=Counts(len(rows), len(rows)), topics=self.topics, valid_through_ms=self.valid_through_ms,
        )  # fmt: skip
        batch = {P0: OffsetRange(start, self.end)}
        done = target.land(stamp, files, seen=target.seen(), batch=batch, position={P0: start})
        assert done is ProposalOutcome.LANDED

    def data_files(self, table: Table, rows: Sequence[Mapping[str, object]]) -> list[DataFile]:
        """Files of these rows, committed by nobody."""
        frame = pa.Table.from_pylist([*rows], schema=table.schema().as_arrow())
        return list(_dataframe_to_data_files(table.metadata, frame, table.io, uuid.uuid4())) if rows else []

    @contextlib.contextmanager
    def session(self) -> Iterator[MirrorSession]:
        """A process that merges."""
        catalog = self.catalog()
        table = ensure_mirror(self.spec, self.mirror, catalog, self.changelog().schema())
        with mirror_session(self.spec, self.mirror, self.settings, catalog, table, wait_seconds=0) as session:
            yield session

    def merge(self, **how: Any) -> Merged:
        with self.session() as session:
            return merge_new(session, PlainMerger(), **how)

    def merge_killed_at(self, step: str, **how: Any) -> bool:
        """A process that merges is killed at a step, if it comes there: it leaves lease and lock behind."""
        with AtStep(step) as at:
            try:
                self.merge(**how)
            except Killed:
                self.forget_state()
        return at.passed

    def forget_state(self) -> None:
        """All leases and locks are gone, as after the loss of the state folder."""
        shutil.rmtree(self.settings.state, ignore_errors=True)

    def rows(self) -> Rows:
        """What readers of the mirror's main see."""
        try:
            table = self.table()
        except Exception:
            return {}
        found = table.scan().to_arrow().to_pylist() if table.current_snapshot() else []
        assert len({row["id"] for row in found}) == len(found), "a key has one row"
        return {row["id"]: row["name"] for row in found}

    def stamp(self) -> MirrorStamp | None:
        """What the mirror's newest stamp says."""
        target = Target(self.catalog(), MIRROR, mirror_id("customers", MIRROR))
        return mirrored(target.read(), "customers", MIRROR)

    def source(self, through: int | None = None) -> Rows:
        """What the source had before the change of an offset; all of them without it."""
        rows: Rows = {}
        for each in self.changes[:through]:
            rows.pop(each.id, None)
            if each.name is not None:
                rows[each.id] = each.name
        return rows

    def check(self) -> None:
        """The mirror is what the source was at the position that it says."""
        try:
            self.table()
        except Exception:
            return
        said = self.stamp()
        assert self.rows() == self.source(said.state.next_offsets[P0] if said else 0)

    def compact(self, name: str) -> bool:
        """Somebody writes all files of a table anew; False if it has none."""
        table = self.catalog().load_table(name)
        head = table.current_snapshot()
        files = [task.file for task in table.scan().plan_files()] if head else []
        if not files:
            return False
        frame = table.scan().to_arrow()
        added = list(_dataframe_to_data_files(table.metadata, frame, table.io, uuid.uuid4()))
        commit_once(table, ReplaceFiles(files, added), summary={}, properties={})
        return True
