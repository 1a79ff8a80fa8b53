"""An audit as people and programs read it: a table of sums, the problems, and the facts of both."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import Console

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.stamp_fields import Counts
from jobs.verify.audit_result import (
    SHOWN,
    AuditProblem,
    OperatorDecision,
    PartitionSums,
    StreamAudit,
    TableAudit,
    decision_sentence,
    more,
    not_judged_sentence,
    problem_sentence,
    queue_sentence,
    verdict_sentence,
)
from jobs.verify.ledger_row import WHOLE_TABLE
from orchestration.cli.terminal import print_columns
from orchestration.formatting import thousands

_COLUMNS = (
    "table",
    "topic",
    "partitions",
    "ranges counted",
    "read",
    "landed",
    "dead",
    "tombstones",
    "filtered",
    "rows found",
    "missing",
    "doubled",
)
_TEXT = {"table", "topic", "partitions"}
_SHOWN_PROBLEMS = 20


def audit_facts(audit: StreamAudit) -> dict[str, Any]:
    """An audit as JSON."""
    return {
        "stream": audit.stream,
        "verdict": audit.verdict,
        "full": audit.full,
        "since": audit.since,
        "seconds": round(audit.seconds, 3),
        "records_audited": audit.read,
        "missing": audit.missing,
        "doubled": audit.doubled,
        "rows_scanned": audit.scanned,
        "ledger_rows_added": audit.recorded,
        "tables": [_table_facts(table) for table in audit.tables],
        "problems": [problem_facts(problem) for problem in audit.problems],
        "answers": [_decision_facts(decision) for decision in audit.decisions],
        "connect_queue": _counts_facts(audit.queue) if audit.queue is not None else None,
        "main": audit.main
        and {"rows": audit.main.rows, "unpublished": audit.main.unpublished, "left_out": audit.main.left_out},
        "route": audit.route
        and {
            "judged": audit.route.judged,
            "not_judged": [
                {"table": each.table, "config": each.config, "rows": each.rows, "why": each.why}
                for each in audit.route.not_judged
            ],
        },
        "pending": audit.pending,
        "notes": audit.notes,
    }


def _table_facts(table: TableAudit) -> dict[str, Any]:
    return {
        "table": table.table,
        "role": "sink" if table.target.role == "rows" else "dead letters",
        "method": table.method,
        "audited_before": table.since,
        "partitions": [
            {
                "topic": line.partition.topic,
                "partition": line.partition.partition,
                "start": line.start,
                "end": line.end,
                **_counts_facts(line.counts),
                "ranges_counted": line.ranges,
                "rows": line.rows,
                "missing": line.missing,
                "doubled": line.doubled,
            }
            for line in table.partitions
        ],
        "unknown": [{**_place(partition), **_range(range_)} for partition, range_ in table.unknown],
        "batches_unchecked": table.unchecked,
        "missing": table.missing,
        "doubled": table.doubled,
    }


def problem_facts(problem: AuditProblem) -> dict[str, Any]:
    """One problem as JSON."""
    return {
        "kind": problem.kind,
        "table": problem.table,
        **_place(problem.partition),
        **(_range(problem.range) if problem.range else {"start": None, "end": None}),
        "records": problem.records,
        "sentence": problem.sentence,
        "offsets": [[*range_] for range_ in problem.where],
        "exact": problem.exact,
        "more_ranges": problem.more,
        "changes": [
            {
                "snapshot_id": change.snapshot_id,
                "operation": change.operation,
                "at": change.at.isoformat(),
                "rows": change.rows,
            }
            for change in problem.changes
        ],
        "explained": problem.explained,
    }


def _decision_facts(decision: OperatorDecision) -> dict[str, Any]:
    return {
        "table": decision.table,
        "kind": decision.kind,
        **_place(None if decision.partition == WHOLE_TABLE else decision.partition),
        **_range(decision.range),
        "answer": decision.answer,
        "note": decision.note,
        "at": decision.at.isoformat(),
    }


def _counts_facts(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in ("read", "landed", "dead", "tombstones", "filtered")}


def _place(partition: TopicPartition | None) -> dict[str, Any]:
    return {
        "topic": partition.topic if partition else None,
        "partition": partition.partition if partition else None,
    }


def _range(range_: OffsetRange) -> dict[str, int]:
    return {"start": range_.start, "end": range_.end}


def print_audit(audit: StreamAudit) -> None:
    """A line per table and topic, then what is wrong, then what operators decided."""
    rows = [cells for table in audit.tables for cells in _rows(table)]
    console = Console(highlight=False, soft_wrap=True)
    if rows:
        print_columns(_COLUMNS, rows, text=_TEXT)
    for sentence in sentences(audit):
        console.print(sentence, markup=False)
    style = "green" if audit.verdict == "complete" else "red" if audit.verdict == "incomplete" else "yellow"
    console.print(verdict_sentence(audit), markup=False, style=style)


def _rows(table: TableAudit) -> Iterator[tuple[str, ...]]:
    for topic, group in groupby(
        sorted(table.partitions, key=lambda line: line.partition), lambda line: line.partition.topic
    ):
        lines = list(group)
        counts = sum((line.counts for line in lines), Counts())
        rows = [line.rows for line in lines if line.rows is not None]
        yield (
            table.table,
            topic,
            _numbers(lines),
            thousands(sum(line.ranges for line in lines)),
            thousands(counts.read),
            thousands(counts.landed),
            thousands(counts.dead),
            thousands(counts.tombstones),
            thousands(counts.filtered),
            thousands(sum(rows) if rows else None),
            thousands(sum(line.missing for line in lines)),
            thousands(sum(line.doubled for line in lines)),
        )
    missing = table.missing - sum(line.missing for line in table.partitions)
    doubled = table.doubled - sum(line.doubled for line in table.partitions)
    if missing or doubled:
        # Known as a sum over several partitions only.
        yield (table.table, "all together", "–", *("–",) * 7, thousands(missing), thousands(doubled))


def _numbers(lines: list[PartitionSums]) -> str:
    numbers = [line.partition.partition for line in lines]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")


def sentences(audit: StreamAudit) -> Iterator[str]:
    """The output of an audit beyond the sums, a line each: problems first."""
    for problem in audit.problems[:_SHOWN_PROBLEMS]:
        yield f"! {problem_sentence(problem)}"
        for change in problem.changes:
            did = f"added {change.rows:,}" if change.rows > 0 else f"took out {-change.rows:,}"
            yield f"    snapshot {change.snapshot_id} ({change.operation}, {change.at:%Y-%m-%d %H:%M} UTC) {did}"
    if len(audit.problems) > _SHOWN_PROBLEMS:
        yield f"! {len(audit.problems) - _SHOWN_PROBLEMS:,} more problems: frazil audit {audit.stream} --json"
    for decision in audit.decisions:
        yield f"* {decision_sentence(decision)}"
    for table in audit.tables:
        if table.unknown:
            named = ", ".join(f"{partition} {range_}" for partition, range_ in table.unknown[:SHOWN])
            yield (
                f"? {table.table}: of {named}{more(len(table.unknown))} no stamp told by itself when it was recorded: "
                "checked by running totals only"
            )
        if table.method == "summaries":
            yield f"? {table.table}: its rows do not say where they came from: checked by what each batch added"
        if table.unchecked:
            yield f"? {table.table}: {table.unchecked:,} batches were not checked: their snapshots have expired"
    if audit.route is not None:
        yield from (f"? {not_judged_sentence(each)}" for each in audit.route.not_judged)
    said = queue_sentence(audit)
    yield from (f"? {sentence}" for sentence in (*([said] if said else []), *audit.notes, *audit.pending))
