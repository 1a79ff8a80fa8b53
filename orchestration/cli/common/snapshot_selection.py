"""Options that select a snapshot: by a record, an instant or its id; shared by `frazil at` and `frazil tag`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import suggestion
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import value_of_table
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.common.durations import TimeOption

_OPTIONS = (
    click.option("--topic", metavar="TOPIC", help="Topic of the record; not needed if the stream has only one."),
    click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Partition of the record."),
    click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Offset of the record."),
    click.option("--timestamp", type=TimeOption(), help="A time: 24h ago, 2026-01-31, or 2026-01-31T08:00:00Z."),
    click.option("--snapshot", "snapshot_id", type=int, metavar="ID", help="A snapshot of the table."),
    click.option(
        "--table",
        metavar="TABLE",
        help="Which of the stream's tables: rows for the main table, dead_letters, or a table's name.",
    ),
    click.option("--branch", metavar="BRANCH", help="Branch of the table.  [default: the stream's]"),
)


@dataclass(frozen=True, slots=True)
class SnapshotSelection:
    """The requested snapshot: one of the first three, or none of them.

    Attributes:
        record: A record's partition and offset.
        instant: A time.
        snapshot_id: A snapshot.
        table: Name of the table; None if none was named.
        branch: Branch of the table; None for the one that the stream writes.
    """

    record: tuple[TopicPartition, int] | None
    instant: datetime | None
    snapshot_id: int | None
    table: str | None
    branch: str | None

    @property
    def given(self) -> bool:
        """Whether anything is."""
        return self.record is not None or self.instant is not None or self.snapshot_id is not None


def selecting_snapshot(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options; it gets them as keywords for `parse_snapshot_selection`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def parse_snapshot_selection(
    spec: StreamSpec,
    fix: str,
    *,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    timestamp: datetime | None,
    snapshot_id: int | None,
    table: str | None,
    branch: str | None,
) -> SnapshotSelection:
    """Read from the options which snapshot is requested.

    Args:
        fix: A command that is right, for the errors.

    Raises:
        FrazilError: The options name more than one snapshot, half a record, or a table that the stream lacks.
    """
    of_record = [each is not None for each in (topic, partition, offset)]
    if any(of_record) + (timestamp is not None) + (snapshot_id is not None) > 1:
        raise FrazilError("a record, a time or a snapshot: one of them.", fix=fix)
    record = None
    if any(of_record):
        if partition is None or offset is None:
            raise FrazilError("a record is named by --partition and --offset.", fix=fix)
        record = TopicPartition(topic or _only_topic(spec), partition), offset
    return SnapshotSelection(record, timestamp, snapshot_id, table and named_table(spec, table, by_values=True), branch)


def named_table(spec: StreamSpec, text: str, *, by_values: bool = False) -> str:
    """The full name of a stream's table, by what a person calls it: rows, dead_letters, or its name.

    Args:
        by_values: Whether a name that values of records may give a table is accepted too, whether it exists or not.

    Raises:
        FrazilError: The stream has no such table.
    """
    called = {"rows": spec.table.name, "dead_letters": spec.dead_letter_table}
    names = [each.name for each in spec.targets]
    if text in names or text in called:
        return called.get(text, text)
    to = spec.route.to if spec.route else None
    if by_values and to is not None and value_of_table(to, text) is not None:
        return text
    near = suggestion(text, [*names, *called])
    raise FrazilError(
        f"stream {spec.stream} has no table {text}.",
        fix=f"--table {near}" if near else f"one of: {', '.join([*called, *names])}",
    )


def _only_topic(spec: StreamSpec) -> str:
    topics = spec.source.topics or ()
    if len(topics) == 1:
        return topics[0]
    named = ", ".join(topics) if topics else f"those that fit {spec.source.topics_pattern}"
    raise FrazilError(f"stream {spec.stream} has several topics: {named}.", fix="name one with --topic")
