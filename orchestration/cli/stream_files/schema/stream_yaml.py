"""YAML of a new stream, with comments that say what was seen of each column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import yaml

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.json.seen_values import Place
from jobs.records.schema.column_names import ColumnNames
from jobs.records.schema.declared import quoted
from jobs.records.schema.iceberg_schema import iceberg_schema, unread_problem
from jobs.records.schema.parser import parse_schema

_WIDTH = 118


@dataclass(frozen=True, slots=True)
class ColumnLines:
    """A column as schema text, and what is said of it above its line."""

    text: str
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewStream:
    """A stream to be written down.

    Attributes:
        stream: Its id.
        topic: What it reads.
        value: `decode.value`, as YAML.
        columns: What it declares; or where they are from, such as `registry`.
        table: Where rows go.
        told: Said above all.
        partition_by: A column of times to suggest partitions by.
        subject: Of the registry, where it is not the topic's usual one.
    """

    stream: str
    topic: str
    value: str
    columns: Sequence[ColumnLines] | str
    table: str
    told: Sequence[str] = ()
    partition_by: str | None = None
    subject: str | None = None


@dataclass(slots=True)
class SampleCounts:
    """Counts of a sample of records, and the sentences that say them.

    Attributes:
        others: Values of another form than is looked for; `first_other`: where the first of them is.
    """

    records: int = 0
    tombstones: int = 0
    others: int = 0
    first_other: Place | None = None

    def values(self, records: Iterable[SampleRecord]) -> Iterator[tuple[Place, bytes]]:
        """The values of some records, which are counted, each with its place."""
        for record in records:
            self.records += 1
            if record.value is None:
                self.tombstones += 1
            else:
                yield Place(record.partition.topic, record.partition.partition, record.offset), record.value

    def add_other(self, place: Place) -> None:
        """Count a value of another form."""
        self.others += 1
        self.first_other = self.first_other or place

    def opening(self, topic: str, end: str, which: str) -> str:
        """The first sentence above the file.

        Args:
            end: Which records were looked at: the newest, or the oldest.
            which: How many of them are what was looked for.
        """
        looked = f"Inferred on {datetime.now(UTC):%Y-%m-%d} from the {end} {self.records:,} records of topic {topic}"
        return f"{looked}, of which {which}."

    def sentences(self) -> Iterator[str]:
        """What is said of the other records."""
        if self.tombstones:
            yield f"Tombstones: {self.tombstones:,}; they are counted and not landed."
        if self.others:
            yield f"Of another form: {self.others:,}, which would become dead letters; the first at {self.first_other}."


def stream_id(topic: str) -> str:
    """A stream's id made of the name of a topic: small letters, digits, _ and -, beginning with a letter."""
    name = re.sub(r"[^a-z0-9_-]+", "_", topic.lower()).strip("_-")
    name = name if name[:1].isalpha() else f"s_{name}".rstrip("_")
    return name[:63]


def stream_yaml(new: NewStream) -> str:
    """The text of the stream's file.

    Raises:
        FrazilError: Such a stream is refused, for the name of its table for instance.
    """
    lines = [*_comments(new.told), f"stream: {scalar(new.stream)}", "", "source:"]
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
    _check(text)
    return text


def undeclarable(name: str, text: str) -> str | None:
    """Why a file cannot declare a column, nor say what is in it; None if it can.

    Args:
        text: The column as schema text.
    """
    if (why := ColumnNames().field_refusal((name,))) is not None:
        return why.partition(";")[0]
    try:
        # As it would be read, so that fields have ids of their own, whatever schemas they are from.
        column = iceberg_schema(parse_schema(text))
    except FrazilError:
        return f"a column cannot be declared as {text.removeprefix(quoted(name)).strip()}"
    if unread_problem(column) is not None:
        return "Spark reads no table with a time of day; declare it with `maintenance: {enabled: false}` to land it"
    return None


def _partitions(column: str) -> str:
    return f"[{scalar(f'day({column})', flow=True)}]"


def _check(text: str) -> None:
    try:
        StreamSpec.model_validate(yaml.safe_load(text))
    except ValueError as problem:
        raise FrazilError(
            f"such a stream would be refused: {problem}", fix="choose other names with --stream and --table"
        ) from problem


def scalar(text: str, *, flow: bool = False) -> str:
    """A text as YAML writes it: plain where that reads as the same text, else in quotes.

    Args:
        flow: Within brackets.
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
    """Comment lines, none longer than the file's width but for words that are."""
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
    """Text that stays on its line and does nothing to a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
