"""Report of a reset of offsets: sentences, facts, and the statements that keep records from landing twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from jobs.commit.offsets import by_topic
from jobs.commit.reset import ResetMove
from jobs.operator.reset_plan import PlannedTable, ResetPlan
from jobs.spec.targets import TargetSpec
from jobs.verify.row_counter import RowsInRanges
from orchestration.formatting import thousands


def reset_facts(plan: ResetPlan, catalog: str, *, done: bool) -> dict[str, Any]:
    """Everything about a reset, as `frazil reset-offsets --json` prints it.

    Args:
        catalog: The catalog's name, as Spark SQL knows it.
        done: Whether it was done; otherwise it is what would be.
    """
    changed = plan.changed
    return {
        "stream": plan.stream,
        "table": plan.table("rows").target.name,
        "dead_letter_table": plan.table("dead_letters").target.name,
        "to": plan.request.to,
        "topics": list(plan.request.only),
        "done": done,
        "allowed": plan.obstacle is None,
        "obstacle": plan.obstacle and {"sentence": plan.obstacle.message, "next": plan.obstacle.fix},
        "unfinished_batch": plan.unfinished and not done,
        "partitions": [_move_facts(plan, move) for move in plan.moves],
        "before": by_topic({move.partition: move.before for move in changed}),
        "after": by_topic({move.partition: move.after for move in changed}),
        "offsets_skipped": plan.skipped,
        "offsets_read_again": plan.again,
        "rows_in_range": {
            "table": plan.table("rows").rows.total,
            "dead_letters": plan.table("dead_letters").rows.total,
        },
        "complete_through": {"before": _instant(plan.valid_through_ms[0]), "after": _instant(plan.valid_through_ms[1])},
        "delete_first": list(delete_statements(plan, catalog)),
        "rollback_instead": rollback_steps(plan, catalog),
        "command": None if done else plan.command(),
        "undo": plan.undo if done else None,
        "note": plan.note or None,
    }


def reset_rows(plan: ResetPlan) -> list[dict[str, str | int]]:
    """One row per partition, for a table in Dagster's UI or on a terminal."""
    return [
        {
            "partition": str(move.partition),
            "from": move.before,
            "to": move.after,
            "what": reset_text(move),
            "kept by Kafka": f"{move.kept.start} to {move.kept.end}",
            "rows in table": _counted(plan.table("rows").rows, move),
            "dead letters": _counted(plan.table("dead_letters").rows, move),
        }
        for move in plan.moves
    ]


def reset_text(move: ResetMove) -> str:
    """What a reset does to a partition, in words."""
    if move.skipped:
        gone = f", {thousands(move.gone)} of them no longer kept" if move.gone else ""
        return f"{thousands(move.skipped)} skipped{gone}"
    return f"{thousands(move.again)} read again" if move.again else "stays"


def reset_sentences(plan: ResetPlan, catalog: str) -> Iterator[str]:
    """What a reset means for the tables and the stamps, a sentence or a statement each."""
    if not plan.changed:
        yield "Nothing moves: the stream stands there already."
        return
    if plan.unfinished:
        yield "A batch was being committed when the last driver ended; it is finished first, so `from` may be later."
    if plan.skipped:
        yield (
            f"{thousands(plan.skipped)} offsets are passed over for good: nothing reads them later, and the stamps of "
            f"{plan.tables[0].target.name} say who passed them over, and why."
        )
    if plan.again:
        yield (
            f"{thousands(plan.again)} offsets are read again, on {plan.names} alike, and their "
            "records land a second time unless they are removed first."
        )
        yield _doubles(plan)
    statements = list(delete_statements(plan, catalog))
    if statements:
        yield "To have nothing twice, remove these rows while the stream is stopped, with Spark SQL:"
        yield from (f"  {statement}" for statement in statements)
    steps = rollback_steps(plan, catalog)
    if steps:
        yield (
            "Or do not reset: roll the table back to its newest snapshot without them, which also takes out whatever "
            f"else was written to it since, and let the stream land it again from {_named(plan)}:"
        )
        yield from (f"  {step}" for step in steps)
    if plan.late_below_ms is not None:
        becomes = f"goes to {plan.late_table}" if plan.late_table else "becomes a dead letter"
        yield (
            f"The watermark stays at {_instant(plan.late_below_ms)}: what is read again and happened before then is "
            f"late, and {becomes} (event_time.late). To land it, set event_time.late to land first."
        )
    before, after = plan.valid_through_ms
    if before != after:
        now = _instant(after) or "not known, until the stream has caught up"
        yield f"Complete through: {_instant(before) or 'not known'} now, then {now}."


def delete_statements(plan: ResetPlan, catalog: str) -> Iterator[str]:
    """The report's Spark SQL that removes what would land a second time after a reset."""
    for table in plan.tables:
        counted, of_letters = table.rows, table.target.role == "dead_letters"
        of_stream = f"stream = '{plan.stream}' AND " if of_letters else ""
        topic, partition, offset = map(_sql_name, table.target.coordinates)
        for move in plan.moves:
            if not move.again or (counted.rows is not None and not counted.rows.get(move.partition)):
                continue
            if counted.rows is None and "has no column" in counted.why_not:
                continue
            yield (
                f"DELETE FROM {catalog}.{table.target.name} WHERE {of_stream}{topic} = '{move.partition.topic}' AND "
                f"{partition} = {move.partition.partition} AND {offset} >= {move.range.start} AND "
                f"{offset} < {move.range.end};"
            )


def _sql_name(column: str) -> str:
    """A column in Spark's SQL, where some names of ours are words of its own."""
    plain = column.isidentifier() and column.isascii() and column not in ("partition", "offset")
    return column if plain else f"`{column.replace('`', '``')}`"


def rollback_steps(plan: ResetPlan, catalog: str) -> list[str]:
    """The report's steps in place of a reset that only goes back; empty if no snapshot serves."""
    if plan.rollback is None or not plan.again:
        return []
    return [
        f"CALL {catalog}.system.rollback_to_snapshot('{plan.tables[0].target.name}', {plan.rollback.snapshot_id});",
        f"frazil accept {plan.stream} --rollback reland --reason TEXT",
    ]


def _doubles(plan: ResetPlan) -> str:
    parts = [
        f"{thousands(counted.total)} {what}" if counted.rows is not None else f"{what}: not counted, {counted.why_not}"
        for counted, what in ((_again_only(plan, table.rows), _called(table.target)) for table in plan.tables)
    ]
    return f"In the tables from these offsets now: {'; '.join(parts)}."


def _called(target: TargetSpec) -> str:
    return f"rows of {target.name}" if target.role == "rows" else "dead letters"


def _again_only(plan: ResetPlan, counted: RowsInRanges) -> RowsInRanges:
    if counted.rows is None:
        return counted
    back = {move.partition for move in plan.moves if move.again}
    return RowsInRanges({partition: rows for partition, rows in counted.rows.items() if partition in back})


def _counted(counted: RowsInRanges, move: ResetMove) -> str:
    return "not counted" if counted.rows is None else thousands(counted.rows.get(move.partition, 0))


def _move_facts(plan: ResetPlan, move: ResetMove) -> dict[str, Any]:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "from": move.before,
        "to": move.after,
        "skipped": move.skipped,
        "read_again": move.again,
        "no_longer_kept": move.gone,
        "earliest": move.kept.start,
        "latest": move.kept.end,
        "rows_in_table": _rows_of(plan.table("rows"), move),
        "rows_in_dead_letters": _rows_of(plan.table("dead_letters"), move),
    }


def _rows_of(table: PlannedTable, move: ResetMove) -> int | None:
    return None if table.rows.rows is None else table.rows.rows.get(move.partition, 0)


def _named(plan: ResetPlan) -> str:
    position = plan.rollback.position if plan.rollback else {}
    concerned = [move.partition for move in plan.moves if move.again]
    named = ", ".join(f"{partition} {position.get(partition, 0)}" for partition in concerned[:5])
    return f"{named} and others" if len(concerned) > 5 else named


def _instant(millis: int | None) -> str | None:
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
