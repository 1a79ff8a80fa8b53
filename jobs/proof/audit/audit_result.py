"""Results of an audit: problems, operators' decisions, sums per partition, table and stream, and their sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from jobs.config.values.targets import TargetSpec
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_row import WHOLE_TABLE

ProblemKind = Literal[
    "gap",
    "overlap",
    "sum",
    "missing",
    "doubled",
    "unexpected",
    "both",
    "misrouted",
    "dead_letters",
    "not_counted",
    "rolled_back",
    "stopped",
]
# What a problem says of rows or records: that so many are not where they belong, or that so many are too many.
_TOO_FEW: frozenset[ProblemKind] = frozenset({"missing", "gap"})
_TOO_MANY: frozenset[ProblemKind] = frozenset({"doubled", "overlap", "unexpected", "both"})
Verdict = Literal["complete", "undecided", "changed_since", "incomplete"]

# Ranges that a sentence names.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class OperatorDecision:
    """A range that an operator passed over, or wanted to be read again."""

    table: str
    kind: str
    partition: TopicPartition
    range: OffsetRange
    answer: str | None
    note: str | None
    at: datetime
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class ForeignChange:
    """What an audit found that a snapshot of another writer did to the rows of a range.

    Attributes:
        rows: Rows it added; negative for rows it took out.
    """

    snapshot_id: int
    operation: str
    at: datetime
    rows: int


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """A problem in an audit's result: something that is not as it must be.

    Attributes:
        records: How many records or rows it is about.
        where: Offsets in question, as ranges.
        exact: Whether `where` holds the offsets in question and no others; if not, they are among them.
        more: How many ranges `where` leaves out.
        changes: What others did to these rows since, as far as snapshots tell.
        surplus: Of kinds that say that two numbers disagree: whether there are too many; None: that cannot be said.
    """

    kind: ProblemKind
    table: str
    partition: TopicPartition | None
    range: OffsetRange | None
    records: int
    sentence: str
    where: tuple[OffsetRange, ...] = ()
    exact: bool = True
    more: int = 0
    changes: tuple[ForeignChange, ...] = ()
    surplus: bool | None = None

    @property
    def missing(self) -> int:
        """How many rows or records it says are missing."""
        return self.records if self.kind in _TOO_FEW or self.surplus is False else 0

    @property
    def doubled(self) -> int:
        """How many rows or records it says are too many."""
        return self.records if self.kind in _TOO_MANY or self.surplus else 0

    @property
    def explained(self) -> bool:
        """Whether others took out exactly the rows in question, after they had landed."""
        return (
            self.kind == "missing"
            and bool(self.changes)
            and sum(change.rows for change in self.changes) == -self.records
        )


@dataclass(slots=True)
class PartitionSums:
    """The sums of one partition on one table.

    Attributes:
        ranges: How many ranges were counted in the table; 0 if only their stamps were looked at.
        rows: Rows found in the table; None if none were counted.
        missing, doubled: The sums over the problems of the partition.
    """

    partition: TopicPartition
    start: int
    end: int
    counts: Counts = field(default_factory=Counts)
    ranges: int = 0
    rows: int | None = None
    missing: int = 0
    doubled: int = 0


@dataclass(slots=True)
class TableAudit:
    """What was found on one table.

    Attributes:
        method: `rows`: coordinates are counted; `summaries`: rows per batch, by the snapshots' summaries; `none`: the
            table is not there.
        since: When it was audited last; None if all was looked at.
        unchecked: Batches whose snapshot has expired, so that nothing tells how many rows they added.
        unknown: Ranges whose stamps had expired before they were recorded: only the running totals speak of them.
        earlier: Rows that do not say which record they are of: others wrote them.
        missing, doubled: The sums over all problems of the table, those of no partition included.
    """

    target: TargetSpec
    method: str = "none"
    since: datetime | None = None
    partitions: list[PartitionSums] = field(default_factory=list)
    unknown: list[tuple[TopicPartition, OffsetRange]] = field(default_factory=list)
    unchecked: int = 0
    earlier: int = 0
    missing: int = 0
    doubled: int = 0

    @property
    def table(self) -> str:
        """The table's full name."""
        return self.target.name


@dataclass(frozen=True, slots=True)
class MainAudit:
    """What was found of a stream's branch in main.

    Attributes:
        rows: Rows of main that were counted.
        unpublished: Rows of the branch that main lacks, since they are not published; None if nobody can say.
        left_out: Rows that main lacks since an operator has left them out.
    """

    rows: int
    unpublished: int | None
    left_out: int


@dataclass(frozen=True, slots=True)
class NotJudged:
    """Rows of a table of which an audit cannot say whether their route names it.

    Attributes:
        config: Hash of the configuration that they were landed under; None where it is not that of one.
        why: As the end of a sentence.
    """

    table: str
    config: str | None
    why: str
    rows: int


@dataclass(frozen=True, slots=True)
class RouteAudit:
    """What was found of the rows of a stream with a route, in a full audit.

    Attributes:
        judged: Rows that were held against the route that they were landed by.
        not_judged: The others, which the stream has read.
    """

    judged: int
    not_judged: tuple[NotJudged, ...] = ()


@dataclass(slots=True)
class StreamAudit:
    """What was found on all tables of a stream.

    Attributes:
        since: What was committed from then on was counted again; None: of what had been audited nothing was.
        queue: What came from dead-letter topics of Kafka Connect, which is in no range; None if nothing did.
        backfill: What backfills landed beside the stream, of what was counted now; None if there was none.
        recorded: Rows that this audit added to the ledger before it began.
        scanned: Rows of the tables that were read.
        pending: What is no problem yet: a commit that is still to come.
        notes: What else there is to know of it.
        main: Of a stream whose branch is published, what main has of it.
        route: Of a full audit of a stream that has, or had, a route; else None.
    """

    stream: str
    full: bool
    since: datetime | None = None
    queue: Counts | None = None
    backfill: Counts | None = None
    tables: list[TableAudit] = field(default_factory=list)
    problems: list[AuditProblem] = field(default_factory=list)
    decisions: list[OperatorDecision] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    recorded: int = 0
    scanned: int = 0
    seconds: float = 0.0
    main: MainAudit | None = None
    route: RouteAudit | None = None

    @property
    def verdict(self) -> Verdict:
        """Complete; undecided; complete until others deleted rows; or not complete.

        Undecided is what nobody can say yet, or any more: a batch that is not in all tables, and ranges whose stamps
        expired before they were recorded.
        """
        if not self.problems:
            return "undecided" if self.pending or any(table.unknown for table in self.tables) else "complete"
        return "changed_since" if all(problem.explained for problem in self.problems) else "incomplete"

    @property
    def missing(self) -> int:
        """Rows and records that are missing, over all problems."""
        return sum(problem.missing for problem in self.problems)

    @property
    def doubled(self) -> int:
        """Rows and records that are too many, over all problems."""
        return sum(problem.doubled for problem in self.problems)

    @property
    def read(self) -> int:
        """Records that the audited ranges of the coordinator read."""
        return sum(each.counts.read for table in self.tables if table.target.coordinator for each in table.partitions)

    def add_up(self) -> None:
        """Add what the list of problems says to the sums of the tables and their partitions; once."""
        for table in self.tables:
            sums = {each.partition: each for each in table.partitions}
            for problem in self.problems:
                if problem.table != table.table:
                    continue
                table.missing += problem.missing
                table.doubled += problem.doubled
                partition, range_ = problem.partition, problem.range
                if partition is None or range_ is None or not problem.missing + problem.doubled:
                    continue
                if partition not in sums:
                    # Of the partition no batch was committed here, or none is new.
                    sums[partition] = PartitionSums(partition, *range_)
                    table.partitions.append(sums[partition])
                sums[partition].missing += problem.missing
                sums[partition].doubled += problem.doubled


def verdict_sentence(audit: StreamAudit) -> str:
    """The verdict of an audit in words."""
    audited = [table.since for table in audit.tables if table.since is not None]
    if audit.verdict == "complete" and not any(table.partitions for table in audit.tables):
        return f"{audit.stream}: {_nothing(audit, max(audited, default=None))}"
    since = ""
    if audit.since is not None:
        since = f" since {audit.since:%Y-%m-%d %H:%M} UTC, or since the last audit"
    elif audited:
        since = " since the last audit"
    read = f"{audit.read:,} records were read{since}"
    if audit.verdict == "complete":
        return f"{audit.stream}: complete. {read}; each is a row, a dead letter, a tombstone or filtered, once."
    if audit.verdict == "undecided":
        why = "; ".join(audit.pending[:SHOWN]) or "the stamps of some ranges expired before they were recorded"
        return f"{audit.stream}: undecided: {why}. {read}."
    if audit.verdict == "changed_since":
        return f"{audit.stream}: complete as it landed, and others have deleted rows since. {read}."
    count = len(audit.problems)
    return f"{audit.stream}: not complete: {count:,} problem{'' if count == 1 else 's'}. {read}."


def _nothing(audit: StreamAudit, last: datetime | None) -> str:
    if last is not None:
        return (
            f"nothing is new since the last audit ({last:%Y-%m-%d %H:%M} UTC). What was counted before was not counted "
            f"again: frazil audit {audit.stream} --full, or --since 24h."
        )
    if audit.queue is not None:
        return "nothing of its own topics has landed yet."
    return "nothing has landed yet."


def queue_sentence(audit: StreamAudit) -> str | None:
    """What came from dead-letter topics of Kafka Connect; None if nothing did."""
    if audit.queue is None:
        return None
    rows, dead = audit.queue.landed, audit.queue.dead
    return (
        f"from dead-letter topics of Kafka Connect came {rows:,} row{'' if rows == 1 else 's'} and {dead:,} dead "
        f"letter{'' if dead == 1 else 's'}: they are of no range that this stream read, and are not counted here"
    )


def backfill_sentence(audit: StreamAudit) -> str | None:
    """What backfills landed, of what was counted now; None if there was none."""
    if audit.backfill is None or audit.backfill == Counts():
        return None
    rows, dead = audit.backfill.landed, audit.backfill.dead
    return (
        f"backfills landed {rows:,} row{'' if rows == 1 else 's'} and {dead:,} dead letter{'' if dead == 1 else 's'} "
        "of offsets that this stream did not read: they were counted as well"
    )


def problem_sentence(problem: AuditProblem) -> str:
    """One problem in words, with the offsets in question."""
    place = f" {problem.partition} {problem.range}" if problem.partition and problem.range else ""
    where = ""
    if problem.where and problem.where != (problem.range,):
        named = ", ".join(str(range_) for range_ in problem.where[:SHOWN])
        which = "offsets" if problem.exact else "they are among offsets"
        where = f": {which} {named}{more(len(problem.where) + problem.more)}"
    return f"{problem.table}{place}: {problem.sentence}{where}"


def decision_sentence(decision: OperatorDecision) -> str:
    """One answer of an operator in words."""
    what = {"passed": "passed over", "again": "read again"}.get(decision.kind, "decided")
    place = "" if decision.partition == WHOLE_TABLE else f" {decision.partition} {decision.range}"
    said = f": {decision.answer}" if decision.answer else ""
    return f"{decision.table}{place} {what}{said} ({decision.note or 'no note'}, {decision.at:%Y-%m-%d %H:%M} UTC)"


def not_judged_sentence(rows: NotJudged) -> str:
    """Rows in words of which nobody can say whether they belong where they stand."""
    under = f" landed under configuration {rows.config}" if rows.config else ""
    count = f"{rows.rows:,} row{'' if rows.rows == 1 else 's'}"
    return f"{rows.table}: of {count}{under} it is not judged whether the route sends them there: {rows.why}"


def more(count: int) -> str:
    """The words in an audit's sentence for those that it does not name."""
    return f" and {count - SHOWN:,} more" if count > SHOWN else ""
