"""Command `frazil backfill`: lands a range of offsets that a stream did not read, while the stream may run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from jobs.clients.catalog.translate import translate_errors
from jobs.clients.kafka.metadata import KafkaLog
from jobs.migration.offset_backfill.offset_sets import count
from jobs.migration.offset_backfill.plan import REASONS, BackfillPlan, BackfillRequest, End, plan_backfill
from jobs.migration.offset_backfill.run import BackfillResult, run_backfill, unfinished
from jobs.tables.commit.stamp.stamp_fields import Counts
from orchestration.cli.common.catalogs import catalog_of_command
from orchestration.cli.common.consent import consent, show_plan
from orchestration.cli.common.durations import TimeOption
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.terminal import current_user, print_columns, print_json, progress_bar
from resources.deployment import Deployment

_SHOWN_RANGES = 3


class EndOption(click.ParamType):
    """Parameter type of a range's end: an offset, `earliest`, `latest`, or a time as in `--since`."""

    name = "end"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Name of the option's value in the help."""
        return "WHERE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> End:
        """Parse the end.

        Raises:
            FrazilError: The text has none of the forms.
        """
        text = str(value).strip()
        if text == "earliest" or text == "latest":
            return text
        return int(text) if text.isdecimal() else TimeOption().convert(value, param, ctx)


@click.command()
@stream_argument()
@click.option("--from", "start", type=EndOption(), required=True, help="An offset, a time, or earliest.")
@click.option("--to", "end", type=EndOption(), required=True, help="An offset, a time, or latest; exclusive.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic, or partition as TOPIC:3.")
@click.option("--reason", help="Why; kept in the tables' stamps with your name.")
@dry_run_option()
@yes_option()
@json_option()
@click.pass_obj
def backfill(
    deployment: Deployment,
    stream: str,
    start: End,
    end: End,
    topics: tuple[str, ...],
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Land records that STREAM did not read: before its start, or skipped. The stream may run meanwhile.

    Records that the stream has read, or will read, are left out, and so are those of earlier backfills and replays.
    Times are such as 24h, 2026-01-31 or 2026-01-31T08:00Z; an offset counts in every partition. If a backfill was
    killed, the same command finishes it.
    """
    spec, settings = deployment.stream(stream), deployment.settings()
    request = BackfillRequest(start, end, topics)
    with translate_errors(settings, stream), catalog_of_command(settings, stream, looks=True) as catalog:
        kafka = KafkaLog(settings.kafka)
        plan = plan_backfill(spec, settings, catalog, kafka, request)
        plan = replace(plan, unfinished=unfinished(spec, settings, catalog))
        if dry_run or not (plan.offsets or plan.unfinished or plan.rolled_back):
            if as_json:
                print_json(backfill_facts(plan, None))
            else:
                _print_plan(plan)
            return
        if not as_json:
            _print_plan(plan)
        else:
            show_plan(plan_sentences(plan), as_json=True)
        keep = f"Keep the rollback of {', '.join(plan.rolled_back)}, and land" if plan.rolled_back else "Land"
        consent(f"{keep} {plan.offsets:,} offsets beside stream {stream}?", yes=yes)
        note = f"{current_user()}: {reason or 'backfill'}"
        with progress_bar("{task.completed:,.0f} of {task.total:,.0f} offsets", bar=True) as progress:
            task = progress.add_task(f"backfill {stream}", total=plan.offsets)

            def landed(offsets: int, total: int) -> None:
                progress.update(task, advance=offsets, total=total)

            result = run_backfill(spec, settings, catalog, kafka, request, note, landed)
    if as_json:
        print_json(backfill_facts(result.plan, result))
        return
    _print_result(result)
    click.echo(f"  Next: frazil audit {stream}")


def backfill_facts(plan: BackfillPlan, result: BackfillResult | None) -> dict[str, Any]:
    """Backfill as JSON.

    Args:
        plan: Plan of the backfill.
        result: Result of the backfill; None if only planned.
    """
    counts = result.counts if result else Counts()
    return {
        "stream": plan.stream,
        "dry_run": result is None,
        "offsets": plan.offsets,
        "ranges": [
            {"topic": at.topic, "partition": at.partition, "start": each.start, "end": each.end}
            for at, ranges in plan.ranges.items()
            for each in ranges
        ],
        "left_out": [
            {
                "reason": reason,
                "meaning": REASONS[reason],
                "topic": at.topic,
                "partition": at.partition,
                "offsets": count(ranges),
                "ranges": [[each.start, each.end] for each in ranges],
            }
            for reason, partitions in plan.left_out.items()
            for at, ranges in partitions.items()
        ],
        "rows_without_coordinates": plan.unlocated,
        "unfinished": plan.unfinished,
        "rolled_back": list(result.kept if result else plan.rolled_back),
        "read": counts.read,
        "landed": counts.landed,
        "dead": counts.dead,
        "tombstones": counts.tombstones,
        "filtered": counts.filtered,
        "batches": result.batches if result else 0,
        "finished_earlier_batch": bool(result and result.finished),
        "seconds": round(result.seconds, 3) if result else 0.0,
    }


def _print_plan(plan: BackfillPlan) -> None:
    rows = [[str(partition), _words(ranges), count(ranges), ""] for partition, ranges in plan.ranges.items()]
    rows += [
        [str(partition), _words(ranges), 0, f"{count(ranges):,} left out: {REASONS[reason]}"]
        for reason, partitions in plan.left_out.items()
        for partition, ranges in partitions.items()
    ]
    print_columns(["partition", "offsets", "to land", "why not"], rows, text=["partition", "offsets", "why not"])
    for line in plan_sentences(plan):
        click.echo(line)


def plan_sentences(plan: BackfillPlan) -> Iterator[str]:
    """Yield the sentences about a plan beside its ranges."""
    yield (
        f"{plan.stream}: {plan.offsets:,} offsets are to be landed."
        if plan.offsets
        else (f"{plan.stream}: nothing is to be landed.")
    )
    if plan.unlocated is None:
        yield "The table has no columns of topic, partition and offset: only stamps say what has landed."
    elif plan.unlocated:
        yield (
            f"{plan.unlocated:,} rows of the table do not say which records they are of, such as those of a sink. "
            "If some are of these offsets, they will be there twice."
        )
    for table in plan.rolled_back:
        said = f"Table {table} was rolled back, which took backfilled rows out of it."
        if table == plan.coordinator:
            yield f"{said} The offsets of these that are asked for are landed again; the others stay out."
        else:
            yield (
                f"{said} They stay out: a backfill lands what table {plan.coordinator} lacks. To have them back: "
                f"frazil reset-offsets {plan.stream} --to WHERE, which reads the records again."
            )
    if plan.unfinished:
        yield "An earlier backfill was interrupted within a batch, which is finished first."


def _words(ranges: tuple[Any, ...]) -> str:
    more = f" and {len(ranges) - _SHOWN_RANGES:,} more" if len(ranges) > _SHOWN_RANGES else ""
    return ", ".join(map(str, ranges[:_SHOWN_RANGES])) + more


def _print_result(result: BackfillResult) -> None:
    counts = result.counts
    click.echo(
        f"{counts.landed:,} landed, {counts.dead:,} dead letters, {counts.tombstones:,} tombstones and "
        f"{counts.filtered:,} filtered, in {result.batches:,} batches and {result.seconds:.1f} s"
    )
    if result.kept:
        click.echo(f"The rollback of {', '.join(result.kept)} is kept, as the tables' stamps say.")
    if result.finished:
        click.echo("A batch that an earlier backfill had left was finished first.")
