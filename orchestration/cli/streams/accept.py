"""`frazil accept`: an operator's answer to a stream that has stopped."""

from __future__ import annotations

import getpass
from collections.abc import Mapping

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.kafka.metadata import KafkaLog
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.stamp.stamp_fields import Decision
from orchestration.cli.common.options import stream_argument
from resources.deployment import Deployment


def decision_lines(stamped: Mapping[str, Decision]) -> list[str]:
    """What was recorded, as lines: the tables, and every range that the answer is about."""
    if not stamped:
        return ["The table is begun anew; no other table had to be told."]
    lines = [f"Recorded on {', '.join(stamped)}."]
    for name, decision in stamped.items():
        ranges = {
            "no longer in the table": decision.removed,
            "passed over": decision.passed,
            "to be read again": decision.again,
        }
        for what, each in ranges.items():
            lines += [f"  {name}: {partition} {range_} {what}" for partition, range_ in sorted(each.items())]
    return lines


@click.command()
@stream_argument()
@click.option(
    "--rollback", type=click.Choice(["keep", "reland"]), help="A table was rolled back: leave it so, or re-land."
)
@click.option("--lost-offsets", is_flag=True, help="Go on behind the records that Kafka's retention has removed.")
@click.option("--lost-topic", metavar="TOPIC", help="Go on without what a deleted topic still held.")
@click.option("--recreated-topic", metavar="TOPIC", help="Read a topic that was created anew from its beginning.")
@click.option("--recreated", "recreated_table", metavar="TABLE", help="Begin a table that was dropped anew.")
@click.option("--unpark", metavar="TABLE", help="Land in a parked table again; its letters wait for a replay.")
@click.option("--reason", help="Kept in the tables' stamps, with your name; asked for if it is not given.")
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
) -> None:
    """Answer the stop of STREAM, so that it can go on. The stream's own message names the option to give.

    The answer is stamped on the tables that it concerns, with your name and the reason. Nothing is read or landed yet:
    the next `frazil run` does that. The ranges of records that the answer is about are shown, and kept.
    """
    answer = Answer(rollback, lost_offsets, lost_topic, recreated_topic, recreated_table, unpark)
    given = [rollback, lost_offsets or None, lost_topic, recreated_topic, recreated_table, unpark]
    if sum(each is not None for each in given) != 1:
        raise FrazilError(
            "Exactly one answer is needed: --rollback, --lost-offsets, --lost-topic, --recreated-topic, --recreated or "
            "--unpark.",
            fix=f"frazil run {stream}, whose message names the one that it waits for",
        )
    spec = deployment.stream(stream)
    note = f"{getpass.getuser()}: {reason or click.prompt('Why')}"
    settings = deployment.prepared_settings()
    lost = list[str]()
    with translate_errors(settings, stream):
        stamped = record_answer(spec, settings, lambda: KafkaLog(settings.kafka), answer, note, lost.append)
    for line in decision_lines(stamped):
        click.echo(line)
    for said in lost:
        click.echo(f"  {said}")
    then = f", then frazil replay {stream}, which brings its letters back" if unpark else ""
    click.echo(f"  Next: frazil run {stream}{then}")
