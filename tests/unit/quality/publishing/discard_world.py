"""A gated stream whose rows say which records they are of, its dead letters, and the log that its records came from."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.clients.kafka.records import whole_batch
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.result import ReplayResult
from jobs.dead_letters.replay.run import replay
from jobs.quality.publishing.discard_decision import DiscardResult
from jobs.quality.publishing.discarding import discard
from jobs.quality.publishing.gate import Gate, Verdict
from jobs.quality.publishing.gated import GateResult, publish_if_fit, release
from jobs.quality.publishing.interval import Interval
from jobs.tables.commit.history.discards import Discards
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from tests.unit.quality.publishing.branch_world import NAME, BranchWorld

BEGAN = datetime(2026, 1, 31, tzinfo=UTC)


class RecordLog:
    """The log of the topic: a record for each id, as long as it is kept.

    Attributes:
        first: The first offset that is kept.
        again: Whether the topic was recreated: the same offsets have other records.
    """

    def __init__(self) -> None:
        self.first, self.again = 0, False
        self.ids: dict[int, int] = {}

    def open(self) -> contextlib.AbstractContextManager[RecordLog]:
        return contextlib.nullcontext(self)

    def read(self, partition: TopicPartition, offsets: np.ndarray) -> Iterator[pa.RecordBatch]:
        there = [int(each) for each in range(offsets[0], offsets[-1] + 1) if each >= self.first and each in self.ids]
        if not there:
            return
        ids = [self.ids[each] for each in there]
        yield whole_batch(
            {
                "key": [b"k"] * len(ids),
                "value": [b'{"id": %d }' % each for each in ids],
                "headers": [[{"key": "trace", "value": b"1"}]] * len(ids),
                "topic": ["payments"] * len(ids),
                "partition": [0] * len(ids),
                "offset": [*there],
                "timestamp": [micros(each) + self.again for each in there],
                "timestampType": [0] * len(ids),
            }
        )


def micros(offset: int) -> int:
    return int((BEGAN + timedelta(seconds=offset)).timestamp()) * 1_000_000


class DiscardWorld(BranchWorld):
    """As its base; the row of the record at an offset has that offset, and its id is told by the log.

    Args:
        home: A folder of its own.
        more: Of the stream's file.
    """

    def __init__(self, home: Path, **more: Any) -> None:
        not_null = {"expect_column_values_to_not_be_null": {"column": "id"}}
        gated = {"contract": {"expectations": [not_null]}, "publish": {"gate": "contract"}}
        super().__init__(home, table={"name": NAME}, **gated, **more)
        self.catalog().create_table(self.spec.dead_letter_table, DEAD_LETTER_SCHEMA, properties={"format-version": "2"})
        self.log = RecordLog()
        self.bad: set[int] = set()
        self.contract = 0

    def data_file(self, ids: Sequence[int], table: Table | None = None) -> DataFile:
        table = table or self.table()
        offsets = [each % 1_000_000 for each in ids]
        if all(each >= 0 for each in ids):
            self.log.ids |= dict(zip(offsets, ids, strict=True))
        columns = {
            "id": pa.array(ids, pa.int64()),
            "_kafka_topic": pa.array(["payments"] * len(ids)),
            "_kafka_partition": pa.array([0] * len(ids), pa.int32()),
            "_kafka_offset": pa.array(offsets, pa.int64()),
            "_kafka_timestamp": pa.array([micros(each) for each in offsets], pa.timestamp("us", "UTC")),
        }
        frame = pa.table(columns).cast(table.schema().as_arrow())
        (made,) = _dataframe_to_data_files(table.metadata, frame, table.io, uuid.uuid4())
        return made

    def judge(self, interval: Interval) -> Verdict:
        ids = self.ids_in(interval.files)
        found = sorted(self.bad.intersection(ids))
        return Verdict(not found, tuple(f"id {each} is not accepted" for each in found), str(self.contract), len(ids))

    def publish_gated(self) -> GateResult:
        return publish_if_fit(self.spec, self.settings, self.catalog(), "x", self.judge, str(self.contract))

    def release(self) -> GateResult:
        return release(self.spec, self.settings, self.catalog(), "x", "known")

    def discard(self, through: int | None = None, by: str = "ann", why: str = "a load test") -> DiscardResult:
        return discard(self.spec, self.settings, self.catalog(), by, why, through=through, records=self.log.open)

    def correct(self) -> None:
        """Another contract, which accepts everything that has landed so far."""
        self.contract += 1
        self.bad = set()

    def replay(self, *reasons: str) -> ReplayResult:
        request = ReplayRequest(Selection(reasons=reasons or ("discarded",)), by="x")
        return replay(self.spec, self.settings, self.catalog(), request)

    def letters(self) -> list[dict[str, Any]]:
        table = self.catalog().load_table(self.spec.dead_letter_table)
        return sorted(table.scan().to_arrow().to_pylist(), key=lambda each: (each["first_seen"], each["offset"]))

    def lettered(self) -> Counter[int]:
        """How many letters of discards each record has, by its offset."""
        return Counter(each["offset"] for each in self.letters() if each["error_class"] == "discarded")

    @property
    def gate(self) -> Gate:
        return Gate.of(self.table().metadata.properties, "payments")

    @property
    def discards(self) -> Discards:
        return Discards.of(self.table().metadata.properties, "payments")
