"""Measurement of a one-off run: records, seconds and CPU seconds, with its progress, facts and summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from jobs.base.errors import FrazilError
from jobs.base.system.cpu import tree_cpu_seconds
from jobs.tables.commit.stamp.event_times import EventCounts
from jobs.tables.commit.stamp.lateness import LATENESS_NAMES
from jobs.tables.commit.stamp.offsets import by_topic
from orchestration.cli.common.progress import left_text
from orchestration.formatting import span, thousands

if TYPE_CHECKING:
    # A meter is made before slow imports, so that it measures them.
    from jobs.streaming.driver.context.open_stream import OpenStream
    from jobs.streaming.driver.context.unknown_fields import UnknownField
    from jobs.streaming.driver.process.drain import Drained, DrainProgress


SHOWN_CAUSES = 3
MANY = 20
"""Least number of dead letters with which a run that landed nothing fails, as schema or producer must be wrong."""
_SHOWN_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurement at a batch's commit.

    Attributes:
        at: Seconds of a monotonic clock.
        cpu: CPU seconds of this process and its descendants; None if the system does not report them.
        read: Number of records read so far.
    """

    at: float
    cpu: float | None
    read: int


@dataclass(slots=True)
class Meter:
    """Meter that takes a sample after every batch. It starts with the run, so that the JVM's start counts."""

    clock: Callable[[], float] = time.monotonic
    cpu: Callable[[], float | None] = tree_cpu_seconds
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.samples.append(Sample(self.clock(), self.cpu(), 0))

    def sample(self, progress: DrainProgress) -> None:
        """Take a sample after a batch's commit."""
        self.samples.append(Sample(self.clock(), self.cpu(), progress.counts.read))

    def recent_rate(self) -> float:
        """Records per second of the last batch."""
        if len(self.samples) < 2:
            return 0.0
        before, last = self.samples[-2:]
        return (last.read - before.read) / max(last.at - before.at, 1e-9)


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed at which records were read.

    Attributes:
        records: Number of records read.
        seconds: Seconds of wall time.
        cpu_seconds: CPU seconds of this process, the JVM and the Python workers; None if unknown.
    """

    records: int
    seconds: float
    cpu_seconds: float | None

    @staticmethod
    def between(begin: Sample, end: Sample) -> Speed:
        """Speed between two samples."""
        cpu = None if begin.cpu is None or end.cpu is None else end.cpu - begin.cpu
        return Speed(end.read - begin.read, end.at - begin.at, cpu)

    def facts(self) -> dict[str, Any]:
        """Speed as JSON."""
        return {
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": None if self.cpu_seconds is None else round(self.cpu_seconds, 2),
            "records_per_second": _per(self.records, self.seconds),
            "records_per_cpu_second": _per(self.records, self.cpu_seconds),
        }


def run_facts(drained: Drained, meter: Meter) -> dict[str, Any]:
    """Facts about a finished run, as `frazil run --json` prints them.

    `whole` counts from the start of the command to the last commit, including the JVM's start. `steady` starts at the
    first batch's commit, after the JVM's warm-up, and is None with fewer than two batches.
    """
    counts = drained.counts
    end = Sample(meter.clock(), meter.cpu(), counts.read)
    batches = meter.samples[1:]
    unknown = _unknown_fields(drained)
    commit_seconds = sum(batch.commit_seconds for batch in drained.batches)
    return {
        "stream": drained.stream,
        "epoch": drained.epoch,
        "records": {
            "read": counts.read,
            "landed": counts.landed,
            "dead": counts.dead,
            "tombstones": counts.tombstones,
            "filtered": counts.filtered,
        },
        "adds_up": counts.read == counts.landed + counts.dead + counts.tombstones + counts.filtered,
        "dead_letters": dict(sum((Counter(batch.reasons) for batch in drained.batches), Counter[str]()).most_common()),
        "rule_warnings": dict(sum((Counter(batch.warned) for batch in drained.batches), Counter[str]()).most_common()),
        "late": _late(drained.events),
        "causes": _causes(drained),
        "unpublished_letters": drained.letters and drained.letters.unpublished,
        "letters_problem": drained.letters and drained.letters.problem,
        "unknown_fields": {path: met.records for path, met in unknown.items()},
        "unknown_field_examples": {
            path: {name: getattr(met, name) for name in ("topic", "partition", "offset", "within", "column")}
            for path, met in unknown.items()
            if met.topic
        },
        "batches": len(drained.batches),
        "files": sum(batch.files for batch in drained.batches),
        "refusals": drained.refusals,
        "retired_topics": list(drained.retired),
        "position": by_topic(drained.positions),
        "lag": sum(drained.lag.values()),
        "undecided_records": sum(drained.undecided.values()),
        "snapshot_id": drained.snapshot("rows"),
        "dead_letter_snapshot_id": drained.snapshot("dead_letters"),
        "valid_through_ms": drained.valid_through_ms,
        "whole": Speed.between(meter.samples[0], end).facts(),
        "steady": Speed.between(batches[0], batches[-1]).facts() if len(batches) > 1 else None,
        "query_seconds": round(drained.seconds, 3),
        "commit_seconds": round(commit_seconds, 3),
        "commit_share": round(commit_seconds / drained.seconds, 4) if drained.seconds else None,
    }


def _late(events: EventCounts) -> dict[str, Any]:
    """Counts of records behind the watermark, by lateness and by outcome."""
    return {
        "records": events.late_records,
        "by": dict(zip(LATENESS_NAMES, events.late, strict=True)),
        "latest_seconds": events.latest_ms / 1000,
        "dead_letters": events.dead,
        "in_their_table": events.aside,
    }


def landed_nothing(facts: dict[str, Any]) -> bool:
    """Whether a run failed because no record landed and many became dead letters."""
    return facts["records"]["landed"] == 0 and facts["records"]["dead"] >= MANY


def why_nothing_landed(facts: dict[str, Any]) -> FrazilError | None:
    """Error of a run that landed none of many records; None if it landed some, or read few."""
    if not landed_nothing(facts):
        return None
    stream, records = facts["stream"], facts["records"]
    return FrazilError(
        f"stream {stream}: not one of {records['read']:,} records landed; {records['dead']:,} are dead letters.",
        fix=f"frazil letters {stream}; correct decode.schema in streams/{stream}.yaml or the producer, then "
        f"frazil replay {stream}",
    )


def _causes(drained: Drained) -> list[dict[str, Any]]:
    # Imported here: a meter is made before PyIceberg is imported.
    from jobs.streaming.driver.context.results import most_frequent

    causes = most_frequent((batch.causes for batch in drained.batches), SHOWN_CAUSES)
    return [
        {
            "records": cause.count,
            "reason": cause.example.error_class,
            "stage": cause.example.stage,
            "field": cause.example.field,
            "needs": cause.example.needs,
            "example": {name: getattr(cause.example, name) for name in ("topic", "partition", "offset")},
        }
        for cause in causes.values()
    ]


def _unknown_fields(drained: Drained) -> dict[str, UnknownField]:
    total: dict[str, UnknownField] = {}
    for batch in drained.batches:
        for path, met in batch.unknown_fields.items():
            total[path] = total[path].plus(met) if path in total else met
    return dict(sorted(total.items(), key=lambda each: (-each[1].records, each[0])))


def _per(records: int, seconds: float | None) -> int | None:
    return round(records / seconds) if seconds else None


class BatchLines:
    """Printer of a line for each batch, which also lets the meter take a sample."""

    def __init__(self, console: Console, meter: Meter) -> None:
        self._console: Console = console
        self._meter: Meter = meter

    def opened(self, stream: OpenStream, total: int) -> None:
        self._console.print(f"{stream.spec.stream}: {total:,} records wait; epoch {stream.epoch}", markup=False)

    def progressed(self, progress: DrainProgress) -> None:
        self._meter.sample(progress)
        batch, counts = progress.batch, progress.counts
        begun, now = self._meter.samples[0].at, self._meter.samples[-1].at
        left = left_text(begun, counts.read, progress.total, now)
        self._console.print(
            f"batch {batch.batch}: {counts.read:,} of {progress.total:,} records"
            f"{left}, {batch.counts.landed:,} landed, "
            f"{batch.counts.dead:,} dead, {batch.counts.tombstones:,} tombstones, "
            + (f"{batch.counts.filtered:,} filtered, " if batch.counts.filtered else "")
            + f"{batch.seconds:.1f} s, "
            f"commit {batch.commit_seconds * 1000:.0f} ms, {self._meter.recent_rate():,.0f}/s",
            markup=False,
        )


def print_summary(console: Console, facts: dict[str, Any]) -> None:
    """Print the summary of a run from the facts of `run_facts`."""
    if problem := facts["letters_problem"]:
        waiting = facts["unpublished_letters"]
        count = "Dead letters" if waiting is None else f"{waiting:,} dead letters"
        said = f"{count} are in the table and not in their topic; the next run publishes them. {problem}"
        console.print(said, style="yellow", markup=False, soft_wrap=True)
    records, undecided = facts["records"], facts["undecided_records"]
    if not records["read"]:
        has = f"all but {undecided:,} records of open transactions" if undecided else "everything the topics hold"
        console.print(f"{facts['stream']}: nothing new; the table has {has}.")
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name in ("read", "landed", "dead", "tombstones", *(["filtered"] if records["filtered"] else [])):
        table.add_row(name, f"{records[name]:,}")
    for reason, count in facts["dead_letters"].items():
        table.add_row(f"  dead: {reason}", f"{count:,}")
    if late := facts["late"]["records"]:
        table.add_row("late", f"{late:,}")
        for name, count in facts["late"]["by"].items():
            if count:
                table.add_row(f"  by {'more than 1d' if name == 'more' else f'up to {name}'}", f"{count:,}")
        table.add_row("  the latest by", span(facts["late"]["latest_seconds"]))
        for key, name in (("dead_letters", "dead letters"), ("in_their_table", "in their own table")):
            if count := facts["late"][key]:
                table.add_row(f"  of them {name}", f"{count:,}")
    for rule, count in facts["rule_warnings"].items():
        table.add_row(f"  landed, against rule {rule}", f"{count:,}")
    for path, count in facts["unknown_fields"].items():
        table.add_row(f"  unknown field {path}", f"{count:,}")
    table.add_row("batches", f"{facts['batches']:,}")
    table.add_row("seconds", f"{facts['whole']['seconds']:,.1f}")
    for part, name in (("whole", "whole run"), ("steady", "without the first batch")):
        if speed := facts[part]:
            table.add_row(f"records per second, {name}", thousands(speed["records_per_second"]))
            table.add_row(f"records per CPU-second, {name}", thousands(speed["records_per_cpu_second"]))
    if facts["commit_share"] is not None:
        table.add_row("share of time in commits", f"{facts['commit_share']:.1%}")
    table.add_row("lag", f"{facts['lag']:,}")
    if undecided:
        table.add_row("in open transactions", f"{undecided:,}")
    done = "landed" if records["landed"] else "[red]nothing landed[/]; committed"
    console.print(f"[bold]{facts['stream']}[/]: {done} in snapshot {facts['snapshot_id']}")
    console.print(table)
    for path, met in list(facts["unknown_field_examples"].items())[:_SHOWN_FIELDS]:
        where = "topic {topic}, partition {partition}, offset {offset}".format(**met)
        column = f"; `{met['column']}` would take it (a guess)" if met["column"] else ""
        within = "" if met["within"] == "$" else f" within {met['within']}"
        console.print(f"{path} is not declared: such as {where}{column}{within}", markup=False, soft_wrap=True)
    if facts["causes"]:
        console.print("why records failed, the most frequent first:")
        for cause in facts["causes"]:
            console.print(f"  {_cause(cause)}", markup=False, soft_wrap=True)
        console.print(f"  Next: frazil letters {facts['stream']}", markup=False, soft_wrap=True)


def _cause(cause: dict[str, Any]) -> str:
    field = f" at {cause['field']}" if cause["field"] else ""
    needs = f": {cause['needs']}" if cause["needs"] else ""
    where = "topic {topic}, partition {partition}, offset {offset}".format(**cause["example"])
    return f"{cause['records']:,} × {cause['reason']}{field}{needs}; such as {where}"
