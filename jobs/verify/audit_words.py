"""An audit in words."""

from __future__ import annotations

from jobs.verify.audit_facts import Decision, Problem, StreamAudit
from jobs.verify.ledger_row import WHOLE

# Ranges that a sentence names.
SHOWN = 5


def verdict_sentence(audit: StreamAudit) -> str:
    """What it comes to."""
    since = any(table.since for table in audit.tables)
    if not audit.problems and not any(table.lines for table in audit.tables):
        return f"{audit.stream}: {'nothing is new since the last audit' if since else 'nothing has landed yet'}."
    read = f"{audit.read:,} records were read{' since the last audit' if since else ''}"
    if audit.verdict == "complete":
        return f"{audit.stream}: complete. {read}; each is a row, a dead letter, a tombstone or filtered, once."
    if audit.verdict == "changed_since":
        return f"{audit.stream}: complete as it landed, and others have deleted rows since. {read}."
    count = len(audit.problems)
    return f"{audit.stream}: not complete: {count:,} problem{'' if count == 1 else 's'}. {read}."


def problem_sentence(problem: Problem) -> str:
    """One problem in words, with the offsets in question."""
    place = f" {problem.partition} {problem.range}" if problem.partition and problem.range else ""
    where = ""
    if problem.where and problem.where != (problem.range,):
        named = ", ".join(str(range_) for range_ in problem.where[:SHOWN])
        which = "offsets" if problem.exact else "they are among offsets"
        where = f": {which} {named}{more(len(problem.where) + problem.more)}"
    return f"{problem.table}{place}: {problem.sentence}{where}"


def decision_sentence(decision: Decision) -> str:
    """One answer of an operator in words."""
    what = {"passed": "passed over", "again": "read again"}.get(decision.kind, "decided")
    place = "" if decision.partition == WHOLE else f" {decision.partition} {decision.range}"
    said = f": {decision.answer}" if decision.answer else ""
    return f"{decision.table}{place} {what}{said} ({decision.note or 'no note'}, {decision.at:%Y-%m-%d %H:%M} UTC)"


def more(count: int) -> str:
    """What a sentence says of those that it does not name."""
    return f" and {count - SHOWN:,} more" if count > SHOWN else ""
