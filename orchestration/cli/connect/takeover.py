"""`frazil takeover`: go on where an Iceberg sink of Kafka Connect has ended, without a gap or a double."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import may_name_same_table
from jobs.migration.connect_worker import ConnectWorker
from jobs.migration.takeover.sink import (
    REPORT,
    Sink,
    UnknownSinkError,
    sink_of,
    sink_of_config,
    sink_of_report,
    with_options,
)
from jobs.migration.takeover.takeover import take_over_from_sink
from jobs.migration.takeover.takeover_plan import TakeoverPlan, TakeoverRequest, plan_takeover
from jobs.migration.takeover.takeover_seam import Seam, seam_of
from jobs.tables.commit.stamp.offsets import by_topic
from orchestration.cli.common.catalogs import SINK_CATALOG, opened_catalog
from orchestration.cli.common.consent import command_line, consent_with_reason, show_plan
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.terminal import current_user, print_columns, print_json, progress_bar
from orchestration.cli.connect.worker_options import worker_login, worker_login_options
from resources.deployment import Deployment

_COLUMNS = ("topic", "partition", "sink ended at", "announced", "kept by Kafka", "frazil starts at")
_SEAM = ("topic", "partition", "sink ended at", "frazil began at", "stands at", "gap")


@click.command()
@stream_argument()
@click.option("--from-connect", "connector", required=True, metavar="NAME", help="The connector.")
@click.option("--connect", "url", metavar="URL", help="A worker's REST address; without it, no worker is asked.")
@worker_login_options()
@click.option("--group", metavar="GROUP", help="The sink's group with the offsets, where no worker knows it.")
@click.option("--control-topic", metavar="TOPIC", help="The sink's control topic, where no worker knows it.")
@click.option("--stop-connector", is_flag=True, help="Stop the connector by REST first, and wait for its tasks.")
@click.option(
    "--passed-over",
    type=click.Choice(["complete", "leave"]),
    help="Files that the sink counts as committed, and no table has: commit them, or leave them out.",
)
@click.option("--trust-group", is_flag=True, help="Start at the group's offsets though the control topic has others.")
@click.option("--no-land", is_flag=True, help="Only stamp the start; the next run lands from there.")
@click.option("--reason", help="Why; kept in the tables' stamps with your name. Needed with --yes.")
@dry_run_option()
@yes_option()
@json_option()
@click.pass_obj
def takeover(
    deployment: Deployment,
    stream: str,
    connector: str,
    url: str | None,
    connect_user: str | None,
    connect_password: str | None,
    connect_ca: Path | None,
    group: str | None,
    control_topic: str | None,
    stop_connector: bool,
    passed_over: Any,
    trust_group: bool,
    no_land: bool,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Let STREAM go on where the Iceberg sink NAME of Kafka Connect has ended.

    Files that the sink has announced and not committed are committed first, each once. The sink's last snapshots are
    tagged, and the stream starts at the offsets of the sink's group. Then it lands the present records, and the
    transition is audited. The command is refused while the connector may still commit. If it was interrupted, the same
    command goes on.
    """
    spec, settings = deployment.stream(stream), deployment.settings()
    login = worker_login(connect_user, connect_password, connect_ca)
    worker = ConnectWorker(url, login) if url is not None else None
    if stop_connector and worker is None:
        raise FrazilError("--stop-connector needs the worker's address.", fix=command_line("--connect", "URL"))
    sink = _find_sink(deployment.home, connector, worker, group, control_topic)
    others = streams_of_same_tables(deployment, spec)
    request = TakeoverRequest(sink, worker, stop_connector, passed_over, trust_group, others)
    with translate_errors(settings, stream):
        # A plan creates no catalog.
        opened_catalog(settings, stream, fix=SINK_CATALOG).close()
        with _takeover_progress() as (_, on_read):
            plan = plan_takeover(spec, settings, request, on_read=on_read)
    lines = plan_lines(plan, stopped_first=stop_connector and not dry_run)
    if dry_run:
        if as_json:
            print_json(takeover_facts(plan, done=False))
            return
        _print_partitions(plan)
        show_plan([*lines, "Nothing was changed."], as_json=False)
        return
    if plan.obstacle is not None and not plan.passing and not stop_connector:
        raise plan.obstacle
    if not as_json:
        _print_partitions(plan)
    show_plan(lines, as_json=as_json)
    why = consent_with_reason(f"Take stream {stream} over from connector {connector}?", yes=yes, reason=reason)
    with translate_errors(settings, stream), _takeover_progress() as (on_wait, on_read):
        plan = take_over_from_sink(spec, settings, request, current_user(), why, on_wait=on_wait, on_read=on_read)
    click.echo(f"{stream}: taken over from connector {connector}.", err=as_json)
    seam = None if no_land else _land_and_audit(deployment, stream, plan)
    if as_json:
        print_json(takeover_facts(plan, done=True, seam=seam))
    elif seam is None:
        click.echo(f"  Next: frazil {'start' if spec.continuous else 'run'} {stream}")
    else:
        _print_seam(seam)
        click.echo(f"  Next: frazil {'start' if spec.continuous else 'run'} {stream}")
    if seam is not None and not seam.sound:
        raise unsound_seam(plan, seam)


def unsound_seam(plan: TakeoverPlan, seam: Seam) -> FrazilError:
    """The error for a seam with missing or doubled records, or with an open question."""
    both = f" Connector {plan.sink.name} had committed since an earlier takeover, so records of both are doubled."
    return FrazilError(
        f"stream {plan.stream} has taken over. The audit found {seam.missing} missing and {seam.doubled} doubled "
        "records." + (both if plan.restarted else "") + "".join(f" Also, {sentence}" for sentence in seam.stops),
        fix=f"frazil audit {plan.stream}",
    )


def streams_of_same_tables(deployment: Deployment, spec: StreamSpec) -> tuple[StreamSpec, ...]:
    """Other streams whose values may name the tables that the stream's values name."""
    if spec.route is None or spec.route.to is None:
        return ()
    to, (specs, _) = spec.route.to, deployment.streams()
    return tuple(
        other
        for other in specs
        if other.stream != spec.stream
        and other.route is not None
        and other.route.to is not None
        and may_name_same_table(to, other.route.to)
    )


def _find_sink(
    home: Path, name: str, worker: ConnectWorker | None, group: str | None, control_topic: str | None
) -> Sink:
    """The sink by the worker, by the options, or by the report of `frazil import`."""
    if worker is not None and worker.state(name) is not None:
        return with_options(sink_of_config(name, worker.config(name)), group, control_topic)
    if group or control_topic:
        generation = "tabular" if (group or "").startswith("cg-control-") else "apache"
        return sink_of(name, generation, group=group, control_topic=control_topic)
    sink = sink_of_report(name, home / REPORT)
    if sink is None:
        raise UnknownSinkError(
            f"the group and control topic of connector {name} are unknown.",
            fix=command_line("--connect", "URL") + ", or --group GROUP --control-topic TOPIC",
        )
    return sink


@contextlib.contextmanager
def _takeover_progress() -> Iterator[tuple[Callable[[str], None], Callable[[int], None]]]:
    """Progress bar that shows what is waited for, and how many control events were read."""
    with progress_bar("{task.completed:,.0f} control events") as progress:
        task = progress.add_task("look at the sink", total=None)
        yield (
            lambda what: progress.update(task, description=f"wait for {what}"),
            lambda count: progress.update(task, description="read the control topic", completed=count),
        )


def _land_and_audit(deployment: Deployment, stream: str, plan: TakeoverPlan) -> Seam:
    # Imported here: a dry run needs neither Spark nor the audit.
    from orchestration.cli.streams.run.command import land_once

    land_once(deployment, stream)
    settings = deployment.settings()
    with translate_errors(settings, stream), connect_catalog(settings) as catalog:
        return seam_of(deployment.stream(stream), settings, catalog, plan)


def plan_lines(plan: TakeoverPlan, *, stopped_first: bool = False) -> list[str]:
    """Effects of a takeover, one a line."""
    lines: list[str] = []
    for completion in plan.tables:
        if completion.files:
            lines.append(
                f"{completion.table}: {len(completion.files)} announced files with {completion.rows:,} rows are in no "
                "snapshot; they are committed."
            )
        elif completion.floor.offsets is not None:
            lines.append(f"{completion.table}: has all that the sink has announced.")
        if completion.left_out:
            lines.append(
                f"{completion.table}: {len(completion.left_out)} announced files are left out, by --passed-over."
            )
    lines += plan.notes
    if plan.position_set:
        lines.append(f"Stream {plan.stream} is at these offsets already.")
    if plan.obstacle is not None and stopped_first:
        lines.append("The connector is stopped first.")
    elif plan.obstacle is not None:
        lines += [f"Not now: {plan.obstacle.message}", f"  Next: {plan.obstacle.fix}"]
    return lines


def takeover_facts(plan: TakeoverPlan, *, done: bool, seam: Seam | None = None) -> dict[str, Any]:
    """A takeover as JSON."""
    return {
        "stream": plan.stream,
        "connector": plan.sink.name,
        "generation": plan.sink.generation,
        "group": plan.sink.offset_group,
        "control_topic": plan.sink.control_topic,
        "done": done,
        "allowed": plan.obstacle is None,
        "obstacle": plan.obstacle and {"sentence": plan.obstacle.message, "next": plan.obstacle.fix},
        # As a stream's file writes it in source.start.offsets.
        "start": {
            topic: {str(number): offset for number, offset in offsets.items()}
            for topic, offsets in by_topic(plan.start).items()
        },
        "partitions": [
            {
                "topic": start.partition.topic,
                "partition": start.partition.partition,
                "committed": start.committed,
                "announced": start.announced,
                "kept": list(start.kept),
                "start": start.start,
            }
            for start in plan.partitions
        ],
        "tables": [
            {
                "table": completion.table,
                "floor": completion.floor.offsets
                and {str(partition): offset for partition, offset in sorted(completion.floor.offsets.items())},
                "files": len(completion.files),
                "rows": completion.rows,
                "left_out": len(completion.left_out),
                "tag": plan.tags.get(completion.table),
            }
            for completion in plan.tables
        ],
        "notes": list(plan.notes),
        "seam": seam
        and {
            "missing": seam.missing,
            "doubled": seam.doubled,
            "partitions": [
                {
                    "topic": partition.partition.topic,
                    "partition": partition.partition.partition,
                    "sink_end": partition.sink_end,
                    "begin": partition.begin,
                    "position": partition.position,
                    "gap": partition.gap,
                }
                for partition in seam.partitions
            ],
        },
    }


def _print_partitions(plan: TakeoverPlan) -> None:
    rows: list[list[str | int | None]] = [
        [
            start.partition.topic,
            start.partition.partition,
            start.committed,
            start.announced,
            str(start.kept),
            start.start,
        ]
        for start in plan.partitions
    ]
    print_columns(_COLUMNS, rows, text={"topic", "kept by Kafka"})


def _print_seam(seam: Seam) -> None:
    rows: list[list[str | int | None]] = [
        [
            partition.partition.topic,
            partition.partition.partition,
            partition.sink_end,
            partition.begin,
            partition.position,
            partition.gap,
        ]
        for partition in seam.partitions
    ]
    print_columns(_SEAM, rows, text={"topic"})
    click.echo(f"audited {seam.read:,} records of frazil: {seam.missing} missing, {seam.doubled} doubled")
