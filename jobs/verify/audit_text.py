"""Text of an audit's result: its verdict, problems and decisions as sentences."""

from __future__ import annotations

from datetime import datetime

from jobs.verify.audit_result import AuditProblem, NotJudged, OperatorDecision, StreamAudit
from jobs.verify.ledger_row import WHOLE_TABLE

# Ranges that a sentence names.
SHOWN = 5


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
