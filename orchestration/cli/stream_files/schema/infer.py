"""Command `frazil schema infer`: a stream's file, inferred from records of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, Protocol

import click

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord, find_sample, read_sample
from jobs.config.documents.validation import shown_path
from jobs.config.settings.loading import find_stream_file
from jobs.config.settings.settings import KafkaSettings, Settings
from jobs.records.formats.connect_json.inference import is_enveloped
from jobs.records.formats.json.inference import InferenceRules
from jobs.records.schema.declared import Primitive
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.stamp.offsets import Ranges
from orchestration.cli.common.options import json_option
from orchestration.cli.common.terminal import print_json, progress_bar
from orchestration.cli.stream_files.schema.infer_connect import LookedAtEnvelopes
from orchestration.cli.stream_files.schema.infer_json import LookedAtJson
from orchestration.cli.stream_files.schema.infer_registry import (
    LookedAtIds,
    is_framed,
    subject_stream,
    subject_version,
)
from orchestration.cli.stream_files.schema.stream_yaml import NewStream, stream_id, stream_yaml
from resources.deployment import Deployment

_RECORDS = 10_000
_JUDGED = 1_000
_FRAMED = "framed"
_FORMATS = ("json", "connect_json", "avro", "protobuf", "json_schema")


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
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    help="What the records are.  [default: what most of the first ones are]",
)
@click.option("--subject", metavar="SUBJECT", help="Look at this subject of the registry instead of at records.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it there; never over it."
)
@json_option("Print the file's text and its sources as one JSON document.")
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
    format_: str | None,
    subject: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Write the file of a stream that lands TOPIC, with comments about the values.

    Columns of plain JSON come from the records. Columns of connect_json come from the schemas in the records. Avro,
    Protobuf and JSON Schema get the columns of the topic's subject in the registry. With --subject, only that subject
    is read.

    In JSON, a whole number becomes a long, a number with a fraction a double (--decimal), and a text a string
    (--times). No column is `not null`. Comments show ranges of numbers and times; --show-values shows other values.
    """
    if output is not None and output.exists():
        raise FrazilError(f"{output} exists, and nothing is written over it.", fix="name another file with --output")
    name = stream or stream_id(topic)
    target = table or f"landing.{name.replace('-', '_')}"
    if subject is not None:
        found = subject_version(deployment.settings().registry, subject)
        new = subject_stream(found, topic, name, target)
    else:
        end: Literal["newest", "oldest"] = "oldest" if oldest else "newest"
        rules = InferenceRules(decimal, times, declared=True)
        new = topic_stream(
            *(deployment.settings(), topic, name, target, rules),
            records=records,
            end=end,
            format_=format_,
            show=show_values,
        )
    text = stream_yaml(new)
    if output is not None or not as_json:
        write_stream(text, output, name, deployment.streams_folder)
    if as_json:
        written = str(output) if output is not None else None
        print_json({"stream": name, "topic": topic, "table": target, "written": written, "yaml": text})


def topic_stream(
    settings: Settings,
    topic: str,
    stream: str,
    table: str,
    rules: InferenceRules,
    *,
    records: int = _RECORDS,
    end: Literal["newest", "oldest"] = "newest",
    format_: str | None = None,
    show: bool = False,
) -> NewStream:
    """Stream for a topic, inferred from a sample of the topic's records.

    Args:
        settings: Settings of the deployment.
        topic: The topic.
        stream: Id of the stream.
        table: Name of the table that rows go to.
        rules: Rules of the inference for JSON.
        records: Number of records in the sample.
        end: End of the log that the sample is from.
        format_: Format of the values; None for the format of most of the first records.
        show: Whether comments show values.

    Raises:
        FrazilError: There is no such topic, Kafka does not answer, or nothing can be inferred.
    """
    ranges = find_sample(settings.kafka, topic, records, end)
    format_, parts = _of_format(format_, _with_progress(settings.kafka, ranges))
    match format_:
        case "json":
            looked = LookedAtJson(show_values=show)
            _look(looked, parts)
            return looked.stream(topic, end, stream, table, rules)
        case "connect_json":
            envelopes = LookedAtEnvelopes(show_values=show)
            _look(envelopes, parts)
            return envelopes.stream(topic, end, stream, table)
        case _:
            ids = LookedAtIds()
            _look(ids, parts)
            wanted = None if format_ == _FRAMED else format_
            return ids.stream(settings.registry, topic, end, stream, table, wanted)


class _Looks(Protocol):
    def add(self, records: Iterable[SampleRecord]) -> None: ...


def _look(looked: _Looks, parts: Iterable[list[SampleRecord]]) -> None:
    for part in parts:
        looked.add(part)


def _of_format(format_: str | None, parts: Iterator[list[SampleRecord]]) -> tuple[str, Iterator[list[SampleRecord]]]:
    """Format of a sample, inferred from its first records unless `format_` is set; and the whole sample."""
    if format_ is not None:
        return format_, parts
    first: list[list[SampleRecord]] = []
    values: list[bytes] = []
    for part in parts:
        first.append(part)
        values += [each.value for each in part if each.value is not None]
        if len(values) >= _JUDGED:
            break
    return sampled_format(values[:_JUDGED]), chain(first, parts)


def sampled_format(values: Sequence[bytes]) -> str:
    """Format of most values: `json`, `connect_json`, or `framed` if they begin with a schema id."""
    framed = sum(map(is_framed, values))
    if 2 * framed > len(values):
        return _FRAMED
    enveloped = sum(is_enveloped(value) for value in values if value[:1] == b"{")
    return "connect_json" if 2 * enveloped > len(values) else "json"


def write_stream(text: str, output: Path | None, stream: str, folder: Path) -> None:
    """Print a stream's file, or write it to a new file.

    Args:
        text: Text of the stream's file.
        output: Path of the new file; None to print the text.
        stream: Id of the stream.
        folder: Folder of the deployment's stream files.

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
    found = find_stream_file(folder, stream)
    move = (
        ""
        if found is not None and found.samefile(output)
        else f"move it to {shown_path(folder / f'{stream}.yaml')}, then "
    )
    click.echo(f"  Next: {move}frazil validate {stream}", err=True)


def _with_progress(settings: KafkaSettings, ranges: Ranges) -> Iterator[list[SampleRecord]]:
    total = sum(range_.end - range_.start for range_ in ranges.values())
    with progress_bar("{task.completed:,.0f} of {task.total:,.0f} records", bar=True) as bar:
        task = bar.add_task("reading", total=total)
        for part in read_sample(settings, ranges):
            yield part
            bar.advance(task, len(part))
