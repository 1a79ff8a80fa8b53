"""Command `frazil accept`: an operator's answer to a stream that has stopped."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.kafka.metadata import KafkaLog
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.stamp.stamp_fields import Decision
from orchestration.cli.common.catalogs import opened_catalog
from orchestration.cli.common.consent import consent_with_reason, show_plan
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.terminal import print_json
from resources.deployment import Deployment


def decision_lines(stamped: Mapping[str, Decision], *, done: bool = True) -> list[str]:
    """Lines about the recorded decision, or the one to be recorded: its tables, and each range of offsets."""
    if not stamped:
        return ["The table starts again; no other table is stamped."] if done else []
    lines = [f"{'Recorded' if done else 'To be recorded'} on {', '.join(stamped)}."]
    for name, decision in stamped.items():
        ranges = {
            "no longer in the table": decision.removed,
            "passed over": decision.passed,
            "to be read again": decision.again,
        }
        for what, each in ranges.items():
            lines += [f"  {name}: {partition} {range_} {what}" for partition, range_ in sorted(each.items())]
    return lines


def decision_facts(stamped: Mapping[str, Decision]) -> list[dict[str, Any]]:
    """Recorded decision, or the one to be recorded, as JSON: for each table, the ranges of offsets by outcome."""
    return [
        {"table": name}
        | {
            kind: [
                {"topic": at.topic, "partition": at.partition, "start": start, "end": end}
                for at, (start, end) in sorted(ranges.items())
            ]
            for kind, ranges in (("removed", said.removed), ("passed", said.passed), ("again", said.again))
        }
        for name, said in stamped.items()
    ]


@click.command()
@stream_argument()
@click.option(
    "--rollback", type=click.Choice(["keep", "reland"]), help="A table was rolled back: leave it so, or re-land."
)
@click.option("--lost-offsets", is_flag=True, help="Go on behind the records that Kafka's retention has removed.")
@click.option("--lost-topic", metavar="TOPIC", help="Go on without the unread records of a deleted topic.")
@click.option("--recreated-topic", metavar="TOPIC", help="Read a recreated topic from its beginning.")
@click.option("--recreated", "recreated_table", metavar="TABLE", help="Start again with a dropped table.")
@click.option("--unpark", metavar="TABLE", help="Land in a suspended table again; its dead letters wait for a replay.")
@click.option("--reason", help="Kept in the tables' stamps, with your name; asked for if it is not given.")
@dry_run_option()
@yes_option()
@json_option()
@click.pass_obj
def accept(
    deployment: Deployment,
    stream: str,
    rollback: str | None,
    lost_offsets: bool,
    lost_topic: str | None,
    recreated_topic: str | None,
    recreated_table: str | None,
    unpark: str | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Answer the stop of STREAM, so that it can go on. The stream's own message names the option to give.

    The answer is stamped on its tables, with your name, the reason and the ranges of records that it is about. Nothing
    is read or landed yet: the next `frazil run` does that. The command shows the answer and asks: it cannot be undone.
    """
    answer = Answer(rollback, lost_offsets, lost_topic, recreated_topic, recreated_table, unpark)
    options = {
        "--rollback": rollback,
        "--lost-offsets": "" if lost_offsets else None,
        "--lost-topic": lost_topic,
        "--recreated-topic": recreated_topic,
        "--recreated": recreated_table,
        "--unpark": unpark,
    }
    given = [f"{option} {value}".rstrip() for option, value in options.items() if value is not None]
    if len(given) != 1:
        raise FrazilError(
            "Exactly one answer is needed: --rollback, --lost-offsets, --lost-topic, --recreated-topic, --recreated or "
            "--unpark.",
            fix=f"frazil run {stream}, whose message names the one that it waits for",
        )
    spec = deployment.stream(stream)
    settings = deployment.settings()
    # A stream that has never run needs no answer, and no catalog is created for it.
    opened_catalog(settings, stream).close()
    lost = list[str]()

    def record(note: str, *, dry_run: bool) -> Mapping[str, Decision]:
        with translate_errors(settings, stream):
            return record_answer(
                spec, settings, lambda: KafkaLog(settings.kafka), answer, note, lost.append, dry_run=dry_run
            )

    stamped = record("", dry_run=True)
    if not dry_run:
        show_plan(decision_lines(stamped, done=False), as_json=as_json)
        why = consent_with_reason(f"Answer the stop of stream {stream} with {given[0]}?", yes=yes, reason=reason)
        stamped = record(f"{getpass.getuser()}: {why}", dry_run=False)
    if as_json:
        print_json({"stream": stream, "done": not dry_run, "tables": decision_facts(stamped), "lost": lost})
        return
    if dry_run:
        for line in decision_lines(stamped, done=False) or [f"{stream}: the answer fits its stop."]:
            click.echo(line)
        click.echo("Nothing was changed.\n  Next: the same without --dry-run")
        return
    for line in decision_lines(stamped):
        click.echo(line)
    for said in lost:
        click.echo(f"  {said}")
    then = f", then frazil replay {stream}, which brings its dead letters back" if unpark else ""
    click.echo(f"  Next: frazil run {stream}{then}")
