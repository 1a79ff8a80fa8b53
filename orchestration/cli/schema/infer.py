"""`frazil schema infer`: the file of a stream, from records of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from jobs.commit.offsets import Ranges
from jobs.errors import FrazilError
from jobs.formats.json.inference import InferenceRules, inferred
from jobs.formats.json.seen_values import Place, SeenValues, example_values, parsed
from jobs.formats.known_formats import FORMATS
from jobs.formats.writer_schema import BadWriterSchema
from jobs.kafka.topic_sample import SampleRecord, find_sample, read_sample
from jobs.registry.client import SubjectVersion, registry_client
from jobs.schema.declared import Primitive, quoted
from jobs.schema.iceberg_schema import with_null
from jobs.schema.parser import parse_schema
from jobs.spec.decode import Decode
from jobs.spec.settings import KafkaSettings
from orchestration.cli.schema.inferred_columns import column_lines, time_column
from orchestration.cli.schema.stream_yaml import NewStream, stream_id, stream_yaml
from orchestration.cli.terminal import stderr_console
from resources.deployment import Deployment

_RECORDS = 10_000


def _decimal(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Primitive | None:
    if text is None:
        return None
    try:
        found = parse_schema(f"n decimal({text})").fields[0].type
    except FrazilError as problem:
        raise click.BadParameter(f"write P,S such as 12,2: {problem.message}") from None
    return found if isinstance(found, Primitive) else None


@click.command()
@click.argument("topic")
@click.option(
    "--records", type=click.IntRange(1, 1_000_000), default=_RECORDS, show_default=True, help="How many to look at."
)
@click.option("--oldest", is_flag=True, help="Look at the oldest records instead of the newest.")
@click.option("--decimal", metavar="P,S", callback=_decimal, help="Land numbers with a fraction as this decimal.")
@click.option("--times", is_flag=True, help="Land texts that all look like times, or days, as such.")
@click.option("--stream", metavar="ID", help="The stream's id.  [default: made of the topic]")
@click.option("--table", metavar="NAME", help="Where rows go.  [default: landing.ID]")
@click.option("--show-values", is_flag=True, help="Also show some values of each field in the comments.")
@click.option("--subject", metavar="SUBJECT", help="Look at this subject of the registry instead of at records.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it there; never over it."
)
@click.pass_obj
def infer(
    deployment: Deployment,
    topic: str,
    records: int,
    oldest: bool,
    decimal: Primitive | None,
    times: bool,
    stream: str | None,
    table: str | None,
    show_values: bool,
    subject: str | None,
    output: Path | None,
) -> None:
    """Write the file of a stream that lands TOPIC, whose values are JSON, with comments that say what was seen.

    With --subject the values are those of a schema registry: Avro, Protobuf or JSON Schema, as its newest version says.

    A whole number becomes a long, one with a fraction a double (--decimal), a text a string (--times). No column is
    `not null`. The comments have ranges of numbers and times, and no other value unless --show-values is given.
    """
    if output is not None and output.exists():
        raise FrazilError(f"{output} exists, and nothing is written over it.", fix="name another file with --output")
    name = stream or stream_id(topic)
    target = table or f"landing.{name.replace('-', '_')}"
    if subject is not None:
        found_version = _version(deployment, subject)
        write_stream(stream_yaml(subject_stream(found_version, topic, name, target)), output, name)
        return
    settings = deployment.settings().kafka
    ranges = find_sample(settings, topic, records, "oldest" if oldest else "newest")
    looked = _Looked(show_values)
    for part in _with_progress(settings, ranges):
        looked.add(part)
    looked.require(topic)
    found = inferred(looked.seen, InferenceRules(decimal, times))
    if found.schema is None:
        raise FrazilError(f"topic {topic}: no record that was looked at has a field.", fix="produce some, or --oldest")
    text = stream_yaml(
        NewStream(
            name,
            topic,
            "json",
            list(column_lines(found, looked.examples)),
            target,
            list(looked.told(topic, "oldest" if oldest else "newest")),
            time_column(found.schema),
        )
    )
    write_stream(text, output, name)


def write_stream(text: str, output: Path | None, stream: str) -> None:
    """Print a stream's file, or write it where nothing is yet.

    Raises:
        FrazilError: The file exists, or cannot be written.
    """
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        problem = f"{output} exists, and nothing is written over it."
        raise FrazilError(problem, fix="name another file with --output") from None
    except OSError as failed:
        raise FrazilError(f"{output} cannot be written: {failed.strerror}", fix="name another file") from None
    click.echo(f"{output} is written; look at it.", err=True)
    click.echo(f"  Next: frazil validate {stream}", err=True)


def _version(deployment: Deployment, subject: str) -> SubjectVersion:
    client = registry_client(deployment.settings().registry)
    try:
        return client.version(subject)
    finally:
        client.close()


def subject_stream(found: SubjectVersion, topic: str, stream: str, table: str) -> NewStream:
    """The stream of a topic whose records have a subject's schemas.

    Raises:
        FrazilError: Schemas of this kind cannot be read, or this one is none.
    """
    kind = found.schema.kind
    format_ = next((each for each in FORMATS.values() if each.registry_kind == kind), None)
    if format_ is None or format_.writer_rows is None:
        raise FrazilError(f"subject {found.subject} has schemas of the kind {kind}, which cannot be read.")
    decode = Decode.model_validate({"value": format_.name, "schema": "registry"})
    try:
        rows = format_.writer_rows(found.schema.schema, decode.options)
    except BadWriterSchema as problem:
        raise FrazilError(f"{found.subject} version {found.version} cannot be read: {problem.message}") from None
    told = [
        f"Columns are from the registry: subject {found.subject}, which stands at version {found.version} "
        f"(id {found.id}):",
        *(f"  {quoted(field.name)} {with_null(field)}" for field in rows.fields),
        "The table follows later versions; to decide about that, write evolve: {add: propose, widen: propose}.",
    ]
    usual = found.subject == f"{topic}-value"
    return NewStream(stream, topic, format_.name, "registry", table, told, subject=None if usual else found.subject)


class _Looked:
    """What was seen of the records of a sample."""

    def __init__(self, show_values: bool) -> None:
        self.seen: SeenValues = SeenValues()
        self.examples: dict[str, list[Any]] = {}
        self._show_values: bool = show_values
        self._records: int = 0
        self._tombstones: int = 0
        self._others: int = 0
        self._first_other: SampleRecord | None = None

    def add(self, records: Iterable[SampleRecord]) -> None:
        for record in records:
            self._records += 1
            if record.value is None:
                self._tombstones += 1
            elif (value := parsed(record.value)) is not None:
                self.seen.add(value, Place(record.partition.topic, record.partition.partition, record.offset))
                if self._show_values:
                    example_values(value, self.examples)
            else:
                self._others += 1
                self._first_other = self._first_other or record

    def require(self, topic: str) -> None:
        """Refuse a topic whose values are not JSON objects."""
        if self.seen.count:
            return
        first = self._first_other
        if first is None:
            raise FrazilError(f"topic {topic} has no record with a value.", fix=f"frazil schema infer {topic} --oldest")
        value = first.value or b""
        where = f"the first one at {Place(topic, first.partition.partition, first.offset)}"
        if value[:1] == b"\0" and len(value) > 5:
            number = int.from_bytes(value[1:5], "big")
            raise FrazilError(
                f"topic {topic}: its values begin as a schema registry's serializers write them; {where} has the "
                f"schema id {number}.",
                fix=f"frazil schema infer {topic} --subject {topic}-value",
            )
        raise FrazilError(
            f"topic {topic}: no value is a JSON object; {where} has {len(value):,} bytes.",
            fix="write the stream with another decode.value, such as string or bytes",
        )

    def told(self, topic: str, end: Literal["newest", "oldest"]) -> Iterator[str]:
        """What is said above all."""
        yield (
            f"Inferred on {datetime.now(UTC):%Y-%m-%d} from the {end} {self._records:,} records of topic {topic}, "
            f"of which {self.seen.count:,} are JSON objects."
        )
        if self._tombstones:
            yield f"Tombstones: {self._tombstones:,}; they are counted and not landed."
        if first := self._first_other:
            yield (
                f"Of another form: {self._others:,}, which would become dead letters; the first at "
                f"{Place(topic, first.partition.partition, first.offset)}."
            )
        yield "Records that were not looked at may differ. `not null` behind a column refuses records without it."


def _with_progress(settings: KafkaSettings, ranges: Ranges) -> Iterator[list[SampleRecord]]:
    console = stderr_console()
    total = sum(range_.end - range_.start for range_ in ranges.values())
    bar = Progress(
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} records"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("reading", total=total)
        for part in read_sample(settings, ranges):
            yield part
            bar.advance(task, len(part))
