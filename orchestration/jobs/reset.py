"""Reset job: a stream's offsets reset as a Dagster run, or the plan of that; and the report of a reset.

The report has the statements that keep records from landing twice.
"""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.failures import failure
from jobs.base.errors import FrazilError
from jobs.base.spark_names import spark_name
from jobs.config.values.targets import TargetSpec
from jobs.tables.commit.stamp.offsets import by_topic
from orchestration.formatting import thousands
from orchestration.jobs.runs import action_tags, run_config, tag_run
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

if TYPE_CHECKING:
    from jobs.streaming.operator.reset_plan import Counting, PlannedTable, ResetPlan
    from jobs.tables.commit.recovery.reset import ResetMove
    from jobs.tables.ledger.row_counter import RowsInRanges

JOB = "frazil_reset_offsets"
OP = "reset_offsets"
ACTION = "reset_offsets"


def reset_facts(plan: "ResetPlan", catalog: str, *, done: bool) -> dict[str, Any]:
    """Everything about a reset, as `frazil reset-offsets --json` prints it.

    Args:
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


def reset_rows(plan: "ResetPlan") -> list[dict[str, str | int]]:
    """Rows about a reset, one for each partition, for a table in Dagster's UI or on a terminal."""
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


def reset_text(move: "ResetMove") -> str:
    """The effect of a reset on a partition, in words."""
    if move.skipped:
        gone = f", {thousands(move.gone)} of them no longer kept" if move.gone else ""
        return f"{thousands(move.skipped)} skipped{gone}"
    return f"{thousands(move.again)} read again" if move.again else "stays"


def reset_sentences(plan: "ResetPlan", catalog: str) -> Iterator[str]:
    """The effect of a reset on the tables and the stamps, a sentence or a statement each."""
    if not plan.changed:
        yield "Nothing moves: the stream is at that position already."
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


def delete_statements(plan: "ResetPlan", catalog: str) -> Iterator[str]:
    """The report's Spark SQL that removes what would land a second time after a reset."""
    for table in plan.tables:
        counted, of_letters = table.rows, table.target.role == "dead_letters"
        of_stream = f"stream = '{plan.stream}' AND " if of_letters else ""
        name = spark_name(f"{catalog}.{table.target.name}")
        topic, partition, offset = map(_sql_name, table.target.coordinates)
        for move in plan.moves:
            if not move.again or (counted.rows is not None and not counted.rows.get(move.partition)):
                continue
            if counted.rows is None and "has no column" in counted.why_not:
                continue
            yield (
                f"DELETE FROM {name} WHERE {of_stream}{topic} = '{move.partition.topic}' AND {partition} = "
                f"{move.partition.partition} AND {offset} >= {move.range.start} AND {offset} < {move.range.end};"
            )


def _sql_name(column: str) -> str:
    """A column in Spark's SQL, quoted where its name is not plain."""
    plain = column.isidentifier() and column.isascii() and column not in ("partition", "offset")
    return column if plain else f"`{column.replace('`', '``')}`"


def rollback_steps(plan: "ResetPlan", catalog: str) -> list[str]:
    """The report's steps in place of a reset that only goes back; empty if no snapshot serves."""
    if plan.rollback is None or not plan.again:
        return []
    name = spark_name(plan.tables[0].target.name)
    return [
        f"CALL {spark_name(catalog)}.system.rollback_to_snapshot('{name}', {plan.rollback.snapshot_id});",
        f"frazil accept {plan.stream} --rollback reland --reason TEXT",
    ]


def _doubles(plan: "ResetPlan") -> str:
    parts = [
        f"{thousands(counted.total)} {what}" if counted.rows is not None else f"{what}: not counted, {counted.why_not}"
        for counted, what in ((_again_only(plan, table.rows), _called(table.target)) for table in plan.tables)
    ]
    return f"In the tables from these offsets now: {'; '.join(parts)}."


def _called(target: TargetSpec) -> str:
    return f"rows of {target.name}" if target.role == "rows" else "dead letters"


def _again_only(plan: "ResetPlan", counted: "RowsInRanges") -> "RowsInRanges":
    if counted.rows is None:
        return counted
    from jobs.tables.ledger.row_counter import RowsInRanges

    back = {move.partition for move in plan.moves if move.again}
    return RowsInRanges({partition: rows for partition, rows in counted.rows.items() if partition in back})


def _counted(counted: "RowsInRanges", move: "ResetMove") -> str:
    return "not counted" if counted.rows is None else thousands(counted.rows.get(move.partition, 0))


def _move_facts(plan: "ResetPlan", move: "ResetMove") -> dict[str, Any]:
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


def _rows_of(table: "PlannedTable", move: "ResetMove") -> int | None:
    return None if table.rows.rows is None else table.rows.rows.get(move.partition, 0)


def _named(plan: "ResetPlan") -> str:
    position = plan.rollback.position if plan.rollback else {}
    concerned = [move.partition for move in plan.moves if move.again]
    named = ", ".join(f"{partition} {position.get(partition, 0)}" for partition in concerned[:5])
    return f"{named} and others" if len(concerned) > 5 else named


def _instant(millis: int | None) -> str | None:
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


class ResetConfig(dg.Config):
    """Configuration of a reset: the stream, the offsets, and whether to plan only."""

    stream: str = Field(description="The stream's id, as in its file. It has to be stopped.")
    to: str = Field(
        description="earliest, latest, a time such as 2026-01-31T08:00:00Z, or topic:partition=offset, several with "
        "commas. Offsets are next offsets, as everywhere in Kafka."
    )
    topics: list[str] = Field(
        default_factory=list, description="Only these topics, or single partitions as topic:3; all if none is named."
    )
    dry_run: bool = Field(default=True, description="Only show what it would do. Set it to false to do it.")
    reason: str = Field(default="asked in Dagster", description="Why; kept in the tables' stamps and as the run's tag.")
    by: str = Field(default="Dagster UI", description="Who asked for it.")


def reset_tags(config: ResetConfig) -> dict[str, str]:
    """The tags of a run that resets offsets, or shows what that would do."""
    return action_tags(ACTION, config.reason, config.by, stream=config.stream)


def reset_run_config(config: ResetConfig) -> dict[str, Any]:
    """The configuration of such a run."""
    return run_config(OP, config)


def perform_reset(deployment: Deployment, config: ResetConfig, on_count: "Counting" = lambda *_: None) -> "ResetPlan":
    """Move a stopped stream to other offsets, or find out what that would do.

    Args:
        on_count: Called with how far the counting of rows is.

    Raises:
        FrazilError: It cannot be done.
    """
    # Imported here and below: a code location that only loads should not wait for what Kafka and the catalog need.
    from jobs.clients.kafka.metadata import KafkaLog
    from jobs.streaming.operator.reset import plan_reset, reset
    from jobs.streaming.operator.reset_request import reset_request

    spec, settings = deployment.stream(config.stream), deployment.prepared_settings()
    request = reset_request(config.to, tuple(config.topics))

    def connect() -> KafkaLog:
        return KafkaLog(settings.kafka)

    if config.dry_run:
        return plan_reset(spec, settings, connect, request, on_count=on_count)
    return reset(spec, settings, connect, request, config.by, config.reason, on_count=on_count)


def reset_metadata(plan: "ResetPlan", catalog: str, *, done: bool) -> dict[str, Any]:
    """A reset as Dagster shows it."""
    from orchestration.jobs.reset import reset_facts, reset_rows, reset_sentences

    facts = reset_facts(plan, catalog, done=done)
    metadata: dict[str, Any] = {
        "done": done and bool(plan.changed),
        "meaning": dg.MetadataValue.md("\n\n".join(reset_sentences(plan, catalog))),
        "before": dg.MetadataValue.json(facts["before"]),
        "after": dg.MetadataValue.json(facts["after"]),
        "offsets_skipped": plan.skipped,
        "offsets_read_again": plan.again,
    }
    if plan.moves:
        metadata["partitions"] = dg.MetadataValue.table([dg.TableRecord(row) for row in reset_rows(plan)])
    if plan.obstacle:
        metadata["not_now"] = str(plan.obstacle)
    for key in ("command", "undo", "note"):
        if facts[key]:
            metadata[key] = facts[key]
    return metadata


def reset_job_of(act: "Callable[[Deployment, ResetConfig], ResetPlan]") -> dg.JobDefinition:
    """The job `frazil_reset_offsets`.

    Args:
        act: Does it; who runs the job in its own process learns here what it came to.
    """

    @dg.op(name=OP)
    def reset_offsets_op(context: dg.OpExecutionContext, config: ResetConfig, deployment: DeploymentResource) -> None:
        """Move a stopped stream to other offsets, or show first what that would do.

        The plan is a table in the metadata: per partition from where to where, what is skipped or read again, and how
        many rows of that range the tables hold now.
        """
        from orchestration.jobs.reset import reset_sentences

        tag_run(context, reset_tags(config))
        try:
            plan = act(deployment.deployment(), config)
        except FrazilError as problem:
            raise failure(problem) from None
        catalog = deployment.settings().catalog.name
        for sentence in reset_sentences(plan, catalog):
            context.log.info(sentence)
        context.add_output_metadata(reset_metadata(plan, catalog, done=not config.dry_run))

    @dg.job(
        name=JOB,
        executor_def=dg.in_process_executor,
        # A retry would do again what an operator may have undone meanwhile.
        tags={"dagster/max_retries": "0"},
        description="Move a stopped stream to other offsets. It only shows what that would do until dry_run is false.",
    )
    def job() -> None:
        reset_offsets_op()

    return job


reset_offsets_job = reset_job_of(perform_reset)
