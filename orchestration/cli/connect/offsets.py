"""`frazil offsets`: where a stream stands; given back to the consumer group of a sink that is to go on."""

from __future__ import annotations

from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.migration.takeover.hand_back import HandBack, StreamOffsets, hand_back, plan_hand_back, stream_offsets
from jobs.tables.commit.stamp.offsets import by_topic
from orchestration.cli.common.catalogs import opened_catalog
from orchestration.cli.common.consent import consent_with_reason, show_plan
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.terminal import current_user, print_columns, print_json
from resources.deployment import Deployment

_COLUMNS = ("topic", "partition", "position", "kept by Kafka", "lag")


@click.command()
@stream_argument()
@click.option("--commit-to-group", "group", metavar="GROUP", help="Commit the positions as offsets of this group.")
@click.option("--control-topic", metavar="TOPIC", help="Control topic of the sink.  [default: that of the takeover]")
@click.option("--reason", help="Why; kept on the table with your name. Needed with --yes.")
@dry_run_option()
@yes_option()
@json_option()
@click.pass_obj
def offsets(
    deployment: Deployment,
    stream: str,
    group: str | None,
    control_topic: str | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the position of STREAM: the next offset of every partition.

    With --commit-to-group the positions become the offsets of a consumer group, so that an Iceberg sink goes on there.
    Its tables get a snapshot without rows by which the sink knows what is committed. Stream and connector have to be
    stopped.
    """
    spec, settings = deployment.stream(stream), deployment.settings()
    if group is None:
        if control_topic or reason or dry_run or yes:
            raise FrazilError(
                "--control-topic, --reason, --dry-run and --yes go with --commit-to-group.",
                fix=f"frazil offsets {stream} --commit-to-group GROUP",
            )
        with translate_errors(settings, stream), opened_catalog(settings, stream) as catalog:
            position = stream_offsets(spec, settings, catalog)
        if as_json:
            print_json(offsets_facts(position))
        else:
            _print_positions(position)
        return
    with translate_errors(settings, stream), opened_catalog(settings, stream) as catalog:
        plan = plan_hand_back(spec, settings, catalog, group, control_topic)
    if dry_run:
        if as_json:
            print_json(hand_back_facts(plan, done=False))
            return
        _print_positions(plan.offsets)
        show_plan([*_plan_lines(plan), "Nothing was changed."], as_json=False)
        return
    if plan.obstacle is not None:
        raise plan.obstacle
    if not as_json:
        _print_positions(plan.offsets)
    show_plan(_plan_lines(plan), as_json=as_json)
    why = consent_with_reason(f"Commit these offsets to {' and '.join(plan.groups)}?", yes=yes, reason=reason)
    with translate_errors(settings, stream):
        plan = hand_back(spec, settings, group, control_topic, f"{current_user()}: {why}")
    if as_json:
        print_json(hand_back_facts(plan, done=True))
        return
    click.echo(f"{stream}: its positions are the offsets of {' and '.join(plan.groups)}.")
    name = plan.sink.name if plan.sink else "NAME"
    click.echo(f"  Next: start the connector (PUT /connectors/{name}/resume); keep stream {stream} stopped")


def offsets_facts(position: StreamOffsets) -> dict[str, Any]:
    """A stream's positions as JSON."""
    return {
        "stream": position.stream,
        "positions": by_topic(position.positions),
        "kept": [
            {"topic": p.topic, "partition": p.partition, "start": kept.start, "end": kept.end, "lag": position.lag(p)}
            for p, kept in sorted(position.kept.items())
            if p in position.positions
        ],
        "taken_over_from": position.record and position.record.connector,
    }


def hand_back_facts(plan: HandBack, *, done: bool) -> dict[str, Any]:
    """The hand-back as JSON."""
    return offsets_facts(plan.offsets) | {
        "done": done,
        "groups": list(plan.groups),
        "control_topic": plan.sink and plan.sink.control_topic,
        "floor": {str(partition): at for partition, at in sorted(plan.floor.items())},
        "tables": list(plan.tables),
        "other_topics": list(plan.others),
        "obstacle": plan.obstacle and {"sentence": plan.obstacle.message, "next": plan.obstacle.fix},
    }


def _plan_lines(plan: HandBack) -> list[str]:
    lines = [f"These positions become the offsets of {' and '.join(plan.groups)}."]
    if plan.sink is not None:
        lines.append(
            f"{', '.join(plan.tables)}: a snapshot without rows records that all announcements on "
            f"{plan.sink.control_topic} are committed."
        )
    else:
        lines.append("No control topic is known for this group, so no table is changed: it is no Iceberg sink's.")
    if plan.others:
        lines.append(
            f"The group also has offsets of {', '.join(plan.others)}, which the stream does not read. They stay: if "
            "another stream has taken these over, hand them back too before you start the connector."
        )
    if plan.obstacle is not None:
        lines += [f"Not now: {plan.obstacle.message}", f"  Next: {plan.obstacle.fix}"]
    return lines


def _print_positions(position: StreamOffsets) -> None:
    rows: list[list[str | int | None]] = []
    for partition, at in position.positions.items():
        kept = position.kept.get(partition)
        rows.append(
            [
                partition.topic,
                partition.partition,
                at,
                str(kept) if kept else "topic is deleted",
                position.lag(partition),
            ]
        )
    print_columns(_COLUMNS, rows, text={"topic", "kept by Kafka"})
