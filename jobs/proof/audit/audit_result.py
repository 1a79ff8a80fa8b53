"""Results of an audit: problems, operators' decisions, sums by partition, table and stream, and their sentences."""

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
# Problems about missing rows or records, and about surplus ones.
_TOO_FEW: frozenset[ProblemKind] = frozenset({"missing", "gap"})
_TOO_MANY: frozenset[ProblemKind] = frozenset({"doubled", "overlap", "unexpected", "both"})
Verdict = Literal["complete", "undecided", "changed_since", "incomplete"]

# Kind of a decision that stands for what a backfill landed.
BACKFILLED = "backfilled"

# Most ranges in a sentence.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class OperatorDecision:
    """A range that an operator passed over, had read again, or had landed by a backfill."""

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
    """Effect of another writer's snapshot on the rows of a range.

    Attributes:
        rows: Rows that it added; negative for rows that it removed.
    """

    snapshot_id: int
    operation: str
    at: datetime
    rows: int


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """A problem in an audit's result.

    Attributes:
        records: Number of records or rows concerned.
        where: Offsets in question, as ranges.
        exact: Whether `where` has exactly the offsets in question; otherwise it contains them.
        more: Number of ranges missing from `where`.
        changes: Other writers' later changes to these rows, as far as snapshots show them.
        surplus: For problems of differing numbers: whether there are too many; None if unknown.
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
        """Number of missing rows or records."""
        return self.records if self.kind in _TOO_FEW or self.surplus is False else 0

    @property
    def doubled(self) -> int:
        """Number of surplus rows or records."""
        return self.records if self.kind in _TOO_MANY or self.surplus else 0

    @property
    def explained(self) -> bool:
        """Whether others removed exactly the rows in question, after they had landed."""
        return (
            self.kind == "missing"
            and bool(self.changes)
            and sum(change.rows for change in self.changes) == -self.records
        )


@dataclass(slots=True)
class PartitionSums:
    """Sums of one partition on one table.

    Attributes:
        ranges: Number of ranges that were counted in the table; 0 if only their stamps were checked.
        rows: Rows found in the table; None if none were counted.
        missing, doubled: Sums over the partition's problems.
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
    """Audit result of one table.

    Attributes:
        method: `rows`: coordinates are counted; `summaries`: rows per batch, by the snapshots' summaries; `none`: the
            table does not exist.
        since: Time of the last audit; None if everything was audited.
        unchecked: Batches whose snapshot has expired, so that their added rows are unknown.
        unknown: Ranges whose stamps had expired before they were recorded: only running totals cover them.
        earlier: Rows without coordinates, from other writers.
        missing, doubled: Sums over all problems of the table, those without a partition included.
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
        """Full name of the table."""
        return self.target.name


@dataclass(frozen=True, slots=True)
class MainAudit:
    """Audit result of a stream's branch in main.

    Attributes:
        rows: Rows of main that were counted.
        unpublished: Rows of the branch that main lacks because they are not published; None if unknown.
        left_out: Rows that main lacks because an operator has left them out.
    """

    rows: int
    unpublished: int | None
    left_out: int


@dataclass(frozen=True, slots=True)
class NotJudged:
    """Rows of a table whose route the audit cannot judge.

    Attributes:
        config: Hash of their configuration; None if it is not a single one.
        why: Reason, the end of a sentence.
    """

    table: str
    config: str | None
    why: str
    rows: int


@dataclass(frozen=True, slots=True)
class RouteAudit:
    """Audit result of routed rows, in a full audit.

    Attributes:
        judged: Rows compared with the route by which they landed.
        not_judged: Other rows that the stream has read.
    """

    judged: int
    not_judged: tuple[NotJudged, ...] = ()


@dataclass(slots=True)
class StreamAudit:
    """Audit result of all tables of a stream.

    Attributes:
        since: Time from which earlier audited commits were counted again; None: none were.
        queue: Records from Kafka Connect's dead-letter topics, which are in no range; None without any.
        backfill: Records of backfills among those counted now; None without any.
        backfilled: Ranges that are counted now, if this is the audit of a backfill.
        recorded: Rows that this audit added to the ledger before it began.
        scanned: Number of rows read from the tables.
        pending: Commits that are still to come, which are no problem yet.
        notes: Further notes.
        main: Result for main, if the stream's branch is published.
        route: Result for routed rows in a full audit, if the stream has or had a route; otherwise None.
    """

    stream: str
    full: bool
    since: datetime | None = None
    queue: Counts | None = None
    backfill: Counts | None = None
    backfilled: list[OperatorDecision] = field(default_factory=list)
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

        Undecided means that nobody knows yet, or any more: a batch that some tables lack, or ranges whose stamps
        expired before they were recorded.
        """
        if not self.problems:
            return "undecided" if self.pending or any(table.unknown for table in self.tables) else "complete"
        return "changed_since" if all(problem.explained for problem in self.problems) else "incomplete"

    @property
    def missing(self) -> int:
        """Number of missing rows and records, over all problems."""
        return sum(problem.missing for problem in self.problems)

    @property
    def doubled(self) -> int:
        """Number of surplus rows and records, over all problems."""
        return sum(problem.doubled for problem in self.problems)

    @property
    def read(self) -> int:
        """Records that the audited ranges of the coordinator read."""
        return sum(each.counts.read for table in self.tables if table.target.coordinator for each in table.partitions)

    def add_up(self) -> None:
        """Add the problems to the sums of the tables and their partitions; call this once."""
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
                    # No batch of the partition was committed here, or none is new.
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
    """Sentence about records from Kafka Connect's dead-letter topics; None without any."""
    if audit.queue is None:
        return None
    rows, dead = audit.queue.landed, audit.queue.dead
    return (
        f"from dead-letter topics of Kafka Connect came {rows:,} row{'' if rows == 1 else 's'} and {dead:,} dead "
        f"letter{'' if dead == 1 else 's'}: they are of no range that this stream read, and are not counted here"
    )


def backfill_sentence(audit: StreamAudit) -> str | None:
    """Sentence about records of backfills among those counted now; None without any."""
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
    known = {"passed": "passed over", "again": "read again", BACKFILLED: "landed by a backfill"}
    what = known.get(decision.kind, "decided")
    place = "" if decision.partition == WHOLE_TABLE else f" {decision.partition} {decision.range}"
    said = f": {decision.answer}" if decision.answer else ""
    return f"{decision.table}{place} {what}{said} ({decision.note or 'no note'}, {decision.at:%Y-%m-%d %H:%M} UTC)"


def not_judged_sentence(rows: NotJudged) -> str:
    """Sentence about rows whose table cannot be judged."""
    under = f" landed under configuration {rows.config}" if rows.config else ""
    count = f"{rows.rows:,} row{'' if rows.rows == 1 else 's'}"
    return f"{rows.table}: of {count}{under} it is not judged whether the route sends them there: {rows.why}"


def more(count: int) -> str:
    """Words in an audit's sentence for unnamed entries."""
    return f" and {count - SHOWN:,} more" if count > SHOWN else ""
