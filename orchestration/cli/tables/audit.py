"""`frazil audit`: whether every record of a stream stands where it belongs, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

import click
from rich.console import Console

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, quick_catalog
from jobs.clients.kafka.metadata import quick_kafka
from jobs.proof.audit.audit import audit as audit_stream
from jobs.proof.audit.audit_result import (
    SHOWN,
    AuditProblem,
    OperatorDecision,
    PartitionSums,
    StreamAudit,
    TableAudit,
    backfill_sentence,
    decision_sentence,
    more,
    not_judged_sentence,
    problem_sentence,
    queue_sentence,
    verdict_sentence,
)
from jobs.proof.audit.earlier_rows import earlier_rows_sentence
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_row import WHOLE_TABLE
from orchestration.cli.common.durations import TimeOption
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.terminal import print_columns, print_json, progress_bar
from resources.deployment import Deployment

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
_LEFT_OUT_FIRST = ("ranges counted", "filtered", "tombstones", "partitions", "topic")
_SHOWN_PROBLEMS = 20
_PROGRESS = "{task.completed:,.0f} offsets looked at, {task.fields[rows]:,} rows read"


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
        "backfill": _counts_facts(audit.backfill) if audit.backfill is not None else None,
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
        "earlier_rows": table.earlier,
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
        print_columns(_COLUMNS, rows, text=_TEXT, optional=_LEFT_OUT_FIRST)
    for sentence in sentences(audit):
        console.print(sentence, markup=False)
    style = "green" if audit.verdict == "complete" else "red" if audit.verdict == "incomplete" else "yellow"
    console.print(verdict_sentence(audit), markup=False, style=style)


def _rows(table: TableAudit) -> Iterator[list[str | int | None]]:
    ordered = sorted(table.partitions, key=lambda line: line.partition)
    for topic, group in groupby(ordered, lambda line: line.partition.topic):
        lines = list(group)
        counts = sum((line.counts for line in lines), Counts())
        rows = [line.rows for line in lines if line.rows is not None]
        yield [
            *(table.table, topic, _numbers(lines), sum(line.ranges for line in lines)),
            *(counts.read, counts.landed, counts.dead, counts.tombstones, counts.filtered),
            sum(rows) if rows else None,
            sum(line.missing for line in lines),
            sum(line.doubled for line in lines),
        ]
    missing = table.missing - sum(line.missing for line in table.partitions)
    doubled = table.doubled - sum(line.doubled for line in table.partitions)
    if missing or doubled:
        # Known as a sum over several partitions only.
        yield [table.table, "all together", None, *(None,) * 7, missing, doubled]


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
                f"? {table.table}: of {named}{more(len(table.unknown))} there was no stamp of its own when it was "
                "recorded: checked by running totals only"
            )
        if table.method == "summaries":
            yield f"? {table.table}: its rows do not say where they came from: checked by what each batch added"
        if table.earlier:
            yield f"? {earlier_rows_sentence(table.table, table.earlier)}"
        if table.unchecked:
            yield f"? {table.table}: {table.unchecked:,} batches were not checked: their snapshots have expired"
    if audit.route is not None:
        yield from (f"? {not_judged_sentence(each)}" for each in audit.route.not_judged)
    beside = [said for said in (queue_sentence(audit), backfill_sentence(audit)) if said is not None]
    yield from (f"? {sentence}" for sentence in (*beside, *audit.notes, *audit.pending))


@click.command()
@stream_argument()
@click.option("--table", metavar="TABLE", help="Only this one: the stream's table, or its dead letters.")
@click.option("--full", is_flag=True, help="Count everything, also what was audited before.")
@click.option(
    "--since",
    type=TimeOption(past=True),
    help="Count again what was committed since: 24h, 2026-01-31, 2026-01-31T08:00Z; and what is new in any case.",
)
@click.option("--source", is_flag=True, help="Read Kafka, where it still has them, to name missing records exactly.")
@json_option()
@click.pass_obj
def audit(
    deployment: Deployment,
    stream: str,
    table: str | None,
    full: bool,
    since: datetime | None,
    source: bool,
    as_json: bool,
) -> None:
    """Show whether every record that STREAM read is in its tables, exactly once.

    First the stamps are copied to the ledger and checked: ranges without gap or overlap, and matching sums. Then the
    tables' new rows since the last audit are counted by topic, partition and offset. Status 0 only if nothing is
    missing, nothing doubled, and the stream waits for no operator's answer.
    """
    if full and since is not None:
        raise FrazilError("--full counts everything, --since a part of it.", fix=f"frazil audit {stream} --full")
    spec, settings = deployment.stream(stream), deployment.settings()
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(f"stream {stream}: {problem.message}", fix=f"frazil run {stream}") from None
    with catalog, progress_bar(_PROGRESS, bar=True) as bar:
        task = bar.add_task(f"audit {stream}", total=None, rows=0)

        def show_progress(done: int, total: int, rows: int) -> None:
            bar.update(task, completed=done, total=total or None, rows=rows)

        kafka = partial(quick_kafka, settings.kafka)
        found = audit_stream(
            spec, settings, catalog, table=table, full=full, since=since, kafka=kafka, on_progress=show_progress
        )
        if source and found.problems:
            _name_exactly(found, deployment, stream)
    if as_json:
        print_json(audit_facts(found))
    else:
        print_audit(found)
    if found.verdict != "complete":
        raise SystemExit(1)


def _name_exactly(found: StreamAudit, deployment: Deployment, stream: str) -> None:
    # Imported here: most audits do not need Kafka.
    from confluent_kafka import KafkaException

    from jobs.config.redaction import redacted
    from jobs.proof.audit.source_lookup import name_missing_offsets

    settings = deployment.settings()
    try:
        found.problems = name_missing_offsets(found.problems, settings.kafka, deployment.stream(stream).table.name)
    except (FrazilError, KafkaException) as problem:
        said = redacted(settings, problem.message if isinstance(problem, FrazilError) else str(problem))
        found.notes.append(f"Kafka could not be asked which records are missing: {said}")
