"""YAML of a new stream, with comments on each column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.config.documents.base import field_path
from jobs.config.documents.judgement import judge
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.json.seen_values import Place
from jobs.records.schema.column_names import ColumnNames
from jobs.records.schema.declared import quoted
from jobs.records.schema.iceberg_schema import iceberg_schema, unread_problem
from jobs.records.schema.parser import parse_schema

_WIDTH = 118


@dataclass(frozen=True, slots=True)
class ColumnLines:
    """Column as schema text, and the comments above its line."""

    text: str
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewStream:
    """Inferred stream, before its file is written.

    Attributes:
        stream: Id of the stream.
        topic: Topic that the stream reads.
        value: `decode.value`, as YAML.
        columns: Declared columns; or their source, such as `registry`.
        table: Name of the table that rows go to.
        comments: First comments of the file.
        partition_by: Column of times to suggest partitions by.
        subject: Subject in the registry, if it is not the topic's usual one.
    """

    stream: str
    topic: str
    value: str
    columns: Sequence[ColumnLines] | str
    table: str
    comments: Sequence[str] = ()
    partition_by: str | None = None
    subject: str | None = None


@dataclass(slots=True)
class SampleCounts:
    """Counts of a sample of records, and the sentences about them.

    Attributes:
        records: Number of records.
        tombstones: Number of records without a value.
        others: Number of values in another form than the expected one.
        first_other: Coordinates of the first such value.
    """

    records: int = 0
    tombstones: int = 0
    others: int = 0
    first_other: Place | None = None

    def values(self, records: Iterable[SampleRecord]) -> Iterator[tuple[Place, bytes]]:
        """Count records, and yield each value with its coordinates."""
        for record in records:
            self.records += 1
            if record.value is None:
                self.tombstones += 1
            else:
                yield Place(record.partition.topic, record.partition.partition, record.offset), record.value

    def add_other(self, place: Place) -> None:
        """Count a value in another form than the expected one."""
        self.others += 1
        self.first_other = self.first_other or place

    def opening(self, topic: str, end: str, which: str) -> str:
        """First sentence of the file's comments.

        Args:
            topic: The topic.
            end: End of the log that the sample is from: `newest` or `oldest`.
            which: Number of records in the expected form, as text.
        """
        looked = f"Inferred on {datetime.now(UTC):%Y-%m-%d} from the {end} {self.records:,} records of topic {topic}"
        return f"{looked}, of which {which}."

    def sentences(self) -> Iterator[str]:
        """Yield sentences about tombstones and about values in another form."""
        if self.tombstones:
            yield f"Tombstones: {self.tombstones:,}; they are counted and not landed."
        if self.others:
            yield f"In another form: {self.others:,}, which would become dead letters; the first at {self.first_other}."


def stream_id(topic: str) -> str:
    """Stream id from a topic's name: lower-case letters, digits, _ and -, beginning with a letter."""
    name = re.sub(r"[^a-z0-9_-]+", "_", topic.lower()).strip("_-")
    name = name if name[:1].isalpha() else f"s_{name}".rstrip("_")
    return name[:63]


def stream_yaml(new: NewStream, *, fix: str = "choose other names with --stream and --table") -> str:
    """Text of the stream's file.

    Args:
        new: The stream.
        fix: How to choose other names, if these make no stream.

    Raises:
        FrazilError: The stream is invalid, for instance the name of its table.
    """
    lines = [*_comments(new.comments), f"stream: {scalar(new.stream)}", "", "source:"]
    lines += [f"  topics: [{scalar(new.topic, flow=True)}]", "  start: earliest", "", "decode:"]
    lines += [f"  value: {new.value}"]
    if isinstance(new.columns, str):
        lines.append(f"  schema: {new.columns}")
        lines += [f"  subject: {scalar(new.subject)}"] if new.subject is not None else []
    else:
        lines.append("  schema:")
        for column in new.columns:
            lines += _comments(column.comments, indent=4)
            lines.append(f"    - {scalar(column.text)}")
    lines += ["", "table:", f"  name: {scalar(new.table)}"]
    if new.partition_by is not None:
        lines.append(f"  # partition_by: {_partitions(new.partition_by)}")
    text = "\n".join([*lines, ""])
    _check(text, fix)
    return text


def undeclarable(name: str, text: str) -> str | None:
    """Reason why a file cannot declare a column; None if it can.

    Args:
        name: Name of the column.
        text: The column as schema text.
    """
    if (why := ColumnNames().field_refusal((name,))) is not None:
        return why.partition(";")[0]
    try:
        # Parsing the text gives the fields new ids, as reading the file would.
        column = iceberg_schema(parse_schema(text))
    except FrazilError:
        return f"a column cannot be declared as {text.removeprefix(quoted(name)).strip()}"
    if unread_problem(column) is not None:
        return "Spark reads no table with a time of day; declare it with `maintenance: {enabled: false}` to land it"
    return None


def _partitions(column: str) -> str:
    return f"[{scalar(f'day({column})', flow=True)}]"


def _check(text: str, fix: str) -> None:
    context = {"base": Path.cwd()}
    loaded, found = judge(yaml.safe_load(text), StreamSpec, context=context, show_values=True)
    if loaded is None:
        said = "; ".join(f"{field_path(location)}: {sentence}" for location, sentence in found)
        raise FrazilError(f"such a stream would be refused: {said}", fix=fix)


def scalar(text: str, *, flow: bool = False) -> str:
    """Text as a YAML scalar: plain if YAML reads it as the same text, else in quotes.

    Args:
        text: The text.
        flow: Whether the scalar is within brackets.
    """
    if not text.isprintable():
        return '"' + "".join(_escaped(char) for char in text) + '"'
    plain = f"[{text}]" if flow else text
    try:
        read = yaml.safe_load(plain)
    except yaml.YAMLError:
        read = None
    if read == ([text] if flow else text) and text == text.strip():
        return text
    return "'" + text.replace("'", "''") + "'"


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def _comments(sentences: Iterable[str], indent: int = 0) -> list[str]:
    """Comment lines, wrapped at the file's width."""
    lines: list[str] = []
    for sentence in sentences:
        line = " " * indent + "#"
        for word in printable(sentence).split(" "):
            if len(line) + 1 + len(word) > _WIDTH and line.strip() != "#":
                lines.append(line)
                line = " " * indent + "#  "
            line += f" {word}"
        lines.append(line)
    return lines


def printable(text: str) -> str:
    """Text with escapes for characters that would break the line or control a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
