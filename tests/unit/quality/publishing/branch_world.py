"""A stream that writes a branch of a real table in a catalog of SQLite, and what others do to that table meanwhile."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing import (
    discarding,
    gated,
    publishing,
    remake,
)
from jobs.quality.publishing.publishing import Published, publish
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.protocol import target as target_module
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append, ReplaceFiles
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp

NAME = "orders.payments"
P0 = TopicPartition("payments", 0)
STEPS = ("publish_before_commit", "inside_publish", "publish_after_commit")


class Killed(BaseException):
    """The process ends here."""


class AtStep:
    """Ends the process at a step, or does something else there, once."""

    def __init__(self, name: str, action: Callable[[], object] | None = None) -> None:
        self.name, self.action, self.passed = name, action, False
        self.before = (publishing.step, target_module.step, gated.step, remake.step, discarding.step)

    def __call__(self, name: str) -> None:
        if name == self.name and not self.passed:
            self.passed = True
            if self.action is None:
                raise Killed
            self.action()

    def __enter__(self) -> AtStep:
        publishing.step = target_module.step = gated.step = remake.step = discarding.step = self
        return self

    def __exit__(self, *exc: object) -> None:
        publishing.step, target_module.step, gated.step, remake.step, discarding.step = self.before


class BranchWorld:
    """One table, whose stream `payments` lands on branch `ingest`; each row's id is its record's offset.

    Args:
        home: A folder of its own.
        schema: The stream's columns, `id` among them.
        partition_by: Of the table.
        more: Of the stream's file; with `publish` the branch is not named in `table`.
    """

    def __init__(
        self, home: Path, schema: str = "id long not null", partition_by: Sequence[str] = (), **more: Any
    ) -> None:
        self.home = home
        file = home / "streams" / "payments.yaml"
        file.parent.mkdir(parents=True)
        document = {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": schema},
            "table": {
                "name": NAME,
                "kafka_columns": False,
                "partition_by": list(partition_by),
                **({} if "publish" in more else {"branch": "ingest"}),
            },
        }
        self.file: Path = file
        self.document: dict[str, Any] = document | more
        self.write()
        self.settings: Settings = Settings.embedded(home)
        catalog = self.catalog()
        catalog.create_namespace("orders")
        catalog.create_table(NAME, self.spec.table_schema, properties={"format-version": "2"})
        self.epochs: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.foreign = 0

    def write(self, **more: Any) -> None:
        """Write the stream's file, with other blocks."""
        self.document |= more
        self.file.write_text(yaml.safe_dump(self.document, sort_keys=False))
        self.spec: StreamSpec = load_stream(self.file)

    def catalog(self) -> Catalog:
        return connect_catalog(self.settings)

    def table(self) -> Table:
        return self.catalog().load_table(NAME)

    def data_file(self, ids: Sequence[int], table: Table | None = None) -> DataFile:
        """A file of the table's present schema and spec, committed by nobody."""
        table = table or self.table()
        columns = {
            each.name: pa.array([1.5] * len(ids), pa.float64()) if each.name != "id" else pa.array(ids, pa.int64())
            for each in table.schema().fields
        }
        frame = pa.table(columns, schema=table.schema().as_arrow())
        (made,) = _dataframe_to_data_files(table.metadata, frame, table.io, uuid.uuid4())
        return made

    def target(self, stream: str = "payments", branch: str = "ingest") -> Target:
        return Target(self.catalog(), NAME, stream, branch=branch)

    def claim(self, stream: str = "payments") -> None:
        """A driver of the next epoch opens the stream, or a replay begins."""
        epoch = self.epochs[stream] = self.epochs.get(stream, 0) + 1
        first = Stamp(stream, "claim", -1, epoch, "c", start={P0: 0}, position={P0: 0})
        self.target(stream).claim(epoch, lambda newest: newest.claimed(epoch) if newest else first)

    def land(self, rows: int, stream: str = "payments", files: int = 1) -> list[int]:
        """Land a batch; returns the ids of its rows, which are unlike those of others."""
        if stream not in self.epochs:
            self.claim(stream)
        target = self.target(stream)
        target.read()
        start = self.ends.get(stream, 0)
        end = self.ends[stream] = start + rows * files
        base = 1_000_000 * (1 + sorted(["payments", "payments~replay", "others"]).index(stream))
        ids = [base + at for at in range(start, end)]
        made = [self.data_file(ids[at * rows : (at + 1) * rows], target.table) for at in range(files)]
        counts = Counts(len(ids), len(ids))
        epoch = self.epochs[stream]
        stamp = Stamp(stream, "batch", 0, epoch, "c", start={P0: start}, position={P0: end}, counts=counts)
        batch = {P0: OffsetRange(start, end)}
        done = target.land(stamp, made, seen=target.seen(), batch=batch, position={P0: start})
        assert done is ProposalOutcome.LANDED
        return ids

    def append_to_main(self, rows: int = 2, branch: str = "main") -> list[int]:
        """Another writer appends."""
        table = on_branch(self.table(), branch)
        ids = [-1 - self.foreign - at for at in range(rows)]
        self.foreign += rows
        commit_once(table, Append([self.data_file(ids, table)]), summary={}, properties={})
        return ids

    def compact(self, branch: str = "main") -> None:
        """Another one writes all rows of a branch into one file."""
        table = on_branch(self.table(), branch)
        files = [each.file for each in table.scan().plan_files()]
        if len(files) > 1:
            ids = table.scan().to_arrow().column("id").to_pylist()
            operation = ReplaceFiles(files, [self.data_file(ids, table)])
            commit_once(table, operation, summary={}, properties={})

    def publish(self) -> Published:
        return publish(self.spec, self.settings, self.catalog(), "tester")

    def ids_in(self, files: Sequence[DataFile]) -> list[int]:
        """The ids of the rows of data files, in their order."""
        paths = [each.file_path.removeprefix("file://") for each in files]
        return [each for path in paths for each in pq.read_table(path, columns=["id"]).column("id").to_pylist()]

    def lose_state(self) -> None:
        shutil.rmtree(self.settings.state, ignore_errors=True)

    def rows(self, branch: str = "main") -> Counter[int]:
        """How often each id stands on a branch."""
        return Counter(on_branch(self.table(), branch).scan().to_arrow().column("id").to_pylist())
