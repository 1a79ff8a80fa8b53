"""A stream with an event time whose driver's commits are made here, on a real catalog, without Kafka and Spark."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.gate import Verdict
from jobs.quality.publishing.gated import publish_if_fit
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.event_times import EventCounts, EventTimes, PartitionTime
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp

P = TopicPartition("payments", 0)

FILE = """\
stream: payments
source: {{topics: [payments]}}
decode: {{value: json, schema: "id long, at timestamptz as iso"}}
table: {{name: orders.payments, kafka_columns: false{partition_by}}}
event_time: {{column: at, grace: 10m, {more}}}
"""


GATE = """\
contract: {expectations: [{expect_column_values_to_not_be_null: {column: id}}]}
publish: {gate: contract, every: 5m}
"""


def write_file(home: Path, more: str = "closes: hour", partition_by: str = "", besides: str = "") -> None:
    """The stream's file.

    Args:
        more: Further settings of its event time.
        besides: Further blocks, such as `GATE`.
    """
    (home / "streams").mkdir(parents=True, exist_ok=True)
    by = f", partition_by: [{partition_by}]" if partition_by else ""
    (home / "streams" / "payments.yaml").write_text(FILE.format(more=more, partition_by=by) + besides)


class EventStream:
    """The stream's tables, and what one driver commits to them.

    Args:
        settings: Settings of its deployment.
        spec: The stream.
    """

    def __init__(self, settings: Settings, spec: StreamSpec) -> None:
        self.catalog = connect_catalog(settings)
        self.settings = settings
        self.spec = spec
        self.rows = 0
        self.first_ms: int | None = None
        self.watermark_ms: int | None = None
        ensure_tables(spec, self.catalog)
        self.target = Target(self.catalog, spec.table.name, spec.stream, branch=spec.branch_of(spec.table.name))
        start = Stamp(spec.stream, "claim", -1, 1, spec.config_hash, start={P: 0}, position={P: 0})
        self.target.claim(1, lambda newest: newest.claimed(1) if newest else start)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(self.spec.table.name)

    def files(self, times: Sequence[datetime | None]) -> list:
        values = pa.table({"id": list(range(len(times))), "at": list(times)}, schema=self.table.schema().as_arrow())
        return list(_dataframe_to_data_files(self.target.table.metadata, values, self.target.table.io, uuid.uuid4()))

    def land(
        self,
        times: Sequence[datetime | None],
        watermark: datetime,
        *,
        late: dict[datetime, int] | None = None,
        letters: int = 0,
        through: datetime | None = None,
        before: datetime | None = None,
    ) -> None:
        """Land a batch of rows with these event times, after which the watermark has this value.

        Args:
            times: Event times of the rows.
            watermark: The watermark after the batch.
            late: Numbers of late rows by the beginning of their hour.
            letters: Number of dead letters that the stamp names, and that are not written yet.
            through: Time through which the stream is complete after the batch.
            before: Time through which the stream was complete before it, as its driver reported.
        """
        at_ms = sorted(ms(each) for each in times if each is not None)
        self.first_ms = min([*at_ms[:1], *([self.first_ms] if self.first_ms is not None else [])], default=None)
        count, newest = len(times), self.target.newest
        assert newest is not None
        held = EventCounts(
            at_ms[0] if at_ms else None,
            at_ms[-1] if at_ms else None,
            periods={ms(start): rows for start, rows in (late or {}).items()},
            late=(0, 0, sum((late or {}).values()), 0, 0),
        )
        partition = PartitionTime(at_ms[-1] if at_ms else None, ms(watermark))
        times_ = EventTimes("at", ms(watermark), self.watermark_ms, {P: partition}, self.first_ms, held)
        seen, batch = self.target.seen(), {P: OffsetRange(self.rows, self.rows + count + letters)}
        stamp = Stamp(
            self.spec.stream,
            "batch",
            newest.batch + 1,
            newest.epoch,
            self.spec.config_hash,
            start={P: self.rows},
            position={P: self.rows + count + letters},
            rows={self.spec.table.name: count, **({self.spec.dead_letter_table: letters} if letters else {})},
            counts=Counts(read=count + letters, landed=count, dead=letters),
            event_time=times_,
            targets={self.spec.table.name: self.target.uuid},
            valid_through_ms=None if through is None else ms(through),
            before_ms=None if before is None else ms(before),
        )
        landed = self.target.land(stamp, self.files(times), seen=seen, batch=batch, position={P: self.rows})
        assert landed is ProposalOutcome.LANDED
        self.rows += count + letters
        self.watermark_ms = ms(watermark)

    def quiet(self, watermark: datetime) -> None:
        """The driver stamps a watermark while nothing comes."""

        def moved(newest: Stamp | None) -> Stamp:
            assert newest is not None
            assert newest.event_time is not None
            times = replace(newest.event_time.bare(), watermark_ms=ms(watermark))
            return replace(newest.claimed(newest.epoch), event_time=times)

        assert self.target.newest is not None
        self.target.claim(self.target.newest.epoch, moved, again=True)
        self.watermark_ms = ms(watermark)

    def publish(self, *, fit: bool = True) -> str:
        """Publish, or hold, what a gated stream has landed; what became of it."""
        verdict = Verdict(fit, () if fit else ("not fit",), f"contract {fit}")
        judge, by = lambda interval: verdict, "tester"
        return publish_if_fit(self.spec, self.settings, self.catalog, by, judge, verdict.judged_by).became

    def append_by_another(self, times: Sequence[datetime]) -> int:
        """Rows of another writer; returns the snapshot's id."""
        table = self.table
        table.append(pa.table({"id": [-1] * len(times), "at": list(times)}, schema=table.schema().as_arrow()))
        head = self.table.current_snapshot()
        assert head is not None
        return head.snapshot_id


def ms(at: datetime) -> int:
    """Milliseconds since 1970."""
    return round(at.timestamp() * 1000)


def hour(number: int, minutes: float = 0) -> datetime:
    """A time on the day of the tests."""
    return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=number, minutes=minutes)
