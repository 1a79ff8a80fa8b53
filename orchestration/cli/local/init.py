"""Command `frazil init`: a new deployment with a stream for a file of JSON lines or a topic, or such a stream added."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import click
import yaml

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import Settings, load_settings
from jobs.local.generate.record_lines import record_lines, rewriting
from jobs.records.formats.json.inference import InferenceRules, inferred
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.local.init_questions import TOPIC_FORMATS, Answers, ask
from orchestration.cli.stream_files.schema.infer import topic_stream
from orchestration.cli.stream_files.schema.infer_json import LookedAtJson, column_lines, time_column
from orchestration.cli.stream_files.schema.stream_yaml import NewStream, stream_id, stream_yaml
from resources.deployment import STREAMS_FOLDER, Deployment

SETTINGS_FILE = "frazil.yaml"
_SAMPLE_LINES = 10_000
# Filter of jq: the elements of an array, and objects as they are.
_OBJECTS = 'if type == "array" then .[] else . end'
_HEAD = """\
# Where Kafka and the catalog are. What is not named is local, below .frazil/: a Kafka broker, a catalog in SQLite and
# its warehouse. Secrets are references: ${env:NAME}, ${file:/path}. Check the file with: frazil validate
"""
_LOCAL = """\
kafka: {}
#   bootstrap_servers: broker-1.example.com:9092
# catalog:
#   name: lake
#   properties: {type: rest, uri: https://catalog.example.com, warehouse: s3://lake/warehouse}
"""
_IGNORED = """\
# State, the local broker, the embedded catalog and Dagster's instance
/.frazil/
"""


@dataclass(slots=True)
class NewDeployment:
    """New files of a deployment, before they are written.

    Attributes:
        folder: The deployment's folder. If the files have settings, it is empty or does not exist.
        files: Contents by path within the folder.
        next_steps: Commands that land the first rows, in order.
    """

    folder: Path
    files: dict[str, str] = field(default_factory=dict)
    next_steps: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Write the files.

        Raises:
            FrazilError: A file exists, or the folder cannot be written.
        """
        try:
            (self.folder / STREAMS_FOLDER).mkdir(parents=True, exist_ok=True)
            for name, text in self.files.items():
                with (self.folder / name).open("x", encoding="utf-8") as file:
                    file.write(text)
        except FileExistsError as problem:
            said = f"{problem.filename} exists, and nothing is written over it."
            raise FrazilError(said, fix="name the new stream with --topic") from None
        except OSError as problem:
            raise FrazilError(
                f"{self.folder} cannot be written: {problem.strerror}", fix="name another folder"
            ) from None


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--records",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Make a stream for the JSON records in this file, one a line.",
)
@click.option("--topic", help="Make a stream for this topic; with --records, its name.  [default: the file's name]")
@click.option(
    "--format",
    "value_format",
    type=click.Choice(TOPIC_FORMATS),
    help="The format of the topic's values.  [default: what most of its records are]",
)
@click.option("--brokers", metavar="HOST:PORT", help="Kafka's brokers.  [default: a broker on this machine]")
@click.option("--registry", metavar="URL", help="The schema registry.")
@click.option(
    "--catalog",
    metavar="URI",
    help="A REST catalog, or the database of a SQL catalog.  [default: a catalog in SQLite on this machine]",
)
@click.option("--warehouse", metavar="NAME", help="The REST catalog's warehouse; where the SQL catalog's files go.")
@click.option("--times", is_flag=True, help="Land texts that all look like times, or days, as such.")
def init(
    folder: Path,
    records: Path | None,
    topic: str | None,
    value_format: str | None,
    brokers: str | None,
    registry: str | None,
    catalog: str | None,
    warehouse: str | None,
    times: bool,
) -> None:
    """Make the deployment FOLDER: settings, and a stream for a file of JSON records or for a topic.

    If FOLDER is a deployment, --records adds a stream to it. Without options it asks, at a terminal. Nothing is
    overwritten or started. The next commands are printed.
    """
    deployment = Deployment.at(folder)
    answers = Answers(records, topic, value_format, brokers, registry, catalog, warehouse, times)
    asked = answers == Answers() and not deployment.exists and at_terminal()
    if deployment.exists:
        _require_addition(folder, answers)
        new, settings = NewDeployment(folder), deployment.settings()
    else:
        _require_new(folder)
        if asked:
            answers = ask()
        _require_consistent(answers)
        new = NewDeployment(folder, {SETTINGS_FILE: settings_text(answers), ".gitignore": _IGNORED})
        settings = _loaded(new)
    rules = InferenceRules(times=answers.times, declared=True)
    if answers.records is not None:
        stream_topic = answers.topic or stream_id(answers.records.stem)
        _add_file_stream(new, answers.records, stream_topic, rules, local=settings.kafka.is_embedded)
    elif answers.topic is not None:
        _add_topic_stream(new, settings, answers.topic, answers.value_format, rules)
    else:
        new.next_steps = [
            *(["frazil up"] if answers.brokers is None else []),
            f"frazil schema infer TOPIC --output {STREAMS_FOLDER}/TOPIC.yaml",
        ]
    new.write()
    for name in new.files:
        click.echo(f"wrote {folder / name}")
    if asked:
        click.echo(f"\nThe same without questions:\n  {answers.command(folder)}")
    enter = [] if folder.samefile(Path.cwd()) else [f"cd {shlex.quote(str(folder))}"]
    click.echo("\nNext:")
    for command in (*enter, *new.next_steps):
        click.echo(f"  {command}")


def at_terminal() -> bool:
    """Whether the command runs at a terminal, so that it can ask questions."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _require_consistent(answers: Answers) -> None:
    if answers.warehouse is not None and answers.catalog is None:
        raise click.UsageError("--warehouse belongs to a REST or SQL catalog; name it with --catalog.")
    if answers.catalog is not None and _is_database(answers.catalog) and answers.warehouse is None:
        raise click.UsageError("A SQL catalog needs a place for its tables' files; name it with --warehouse.")
    if answers.topic is not None and answers.records is None and answers.brokers is None:
        raise click.UsageError("--topic asks Kafka; name the brokers with --brokers, or a file with --records.")
    if answers.value_format is not None and (answers.topic is None or answers.records is not None):
        raise click.UsageError("--format belongs to a topic; the records of a file are JSON.")


def _is_database(catalog: str) -> bool:
    return "://" in catalog and not catalog.startswith(("http://", "https://"))


def _require_addition(folder: Path, answers: Answers) -> None:
    """Refuse options that are about a new deployment's settings."""
    if answers.records is None or answers != Answers(answers.records, answers.topic, times=answers.times):
        raise FrazilError(
            f"{folder} is a deployment. Only a stream can be added to it, and its settings stay.",
            fix=f"frazil init {shlex.quote(str(folder))} --records FILE; or, for a topic, in that folder: "
            f"frazil schema infer TOPIC --output {STREAMS_FOLDER}/TOPIC.yaml",
        )


def _require_new(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise FrazilError(f"{folder} is not empty, and nothing is written over.", fix="name a new folder")


def settings_text(answers: Answers) -> str:
    """Text of frazil.yaml: the answers as settings; without any, examples as comments."""
    settings: dict[str, object] = {}
    if answers.brokers is not None:
        settings["kafka"] = {"bootstrap_servers": answers.brokers}
    if answers.registry is not None:
        settings["registry"] = {"url": answers.registry}
    if answers.catalog is not None:
        kind = "sql" if _is_database(answers.catalog) else "rest"
        properties = {"type": kind, "uri": answers.catalog}
        settings["catalog"] = {
            "name": "lake",
            "properties": properties | ({"warehouse": answers.warehouse} if answers.warehouse else {}),
        }
    return _HEAD + (yaml.safe_dump(settings, sort_keys=False) if settings else _LOCAL)


def _loaded(new: NewDeployment) -> Settings:
    """Load the settings of the new deployment like every other command.

    Raises:
        FrazilError: An answer is no valid setting; the message names its place.
    """
    with tempfile.TemporaryDirectory(prefix="frazil-init-") as folder:
        file = Path(folder) / SETTINGS_FILE
        file.write_text(new.files[SETTINGS_FILE], encoding="utf-8")
        try:
            return load_settings(file, home=new.folder)
        except SpecError as error:
            # Lines of the temporary file would mean nothing to the user.
            problems = "; ".join([place.sentence for place in error.places] or error.problems)
            raise FrazilError(f"These answers make no settings: {problems}", fix="frazil init --help") from None


def _add_file_stream(new: NewDeployment, file: Path, topic: str, rules: InferenceRules, *, local: bool) -> None:
    stream = stream_id(topic)
    looked = LookedAtJson(show_values=False)
    looked.add(file_records(file, topic))
    found = inferred(looked.seen, rules)
    if found.schema is None:
        raise FrazilError(f"{file}: no line is a JSON object with a field.", fix=_one_a_line(file))
    said = [f"Inferred on {datetime.now(UTC):%Y-%m-%d} from {looked.seen.count:,} records of {file.name}."]
    said += (others := list(looked.others()))
    for sentence in others:
        click.echo(f"{file.name}: {sentence}", err=True)
    columns = list(column_lines(found, looked.examples))
    described = NewStream(stream, topic, "json", columns, _table(stream), said, time_column(found.schema))
    new.files[f"{STREAMS_FOLDER}/{stream}.yaml"] = stream_yaml(described, fix="name another topic with --topic")
    broker = ["frazil up"] if local else []
    source = shlex.quote(str(file.absolute()))
    new.next_steps = [*broker, f"frazil generate {stream} --from {source}", f"frazil run {stream}", "frazil dev"]


def _one_a_line(file: Path) -> str:
    """How a file is made of one that is an array, or has each object on several lines."""
    if next(record_lines(file), b"")[:1] not in (b"[", b"{"):
        return "name a file with one JSON object a line"
    return rewriting(f"jq -c '{_OBJECTS}' {{file}} > {{text}}, and name that file", file)


def file_records(file: Path, topic: str) -> Iterator[SampleRecord]:
    """Yield the first lines of a file that are not blank as records of a topic's partition 0, with offsets from 0.

    Raises:
        FrazilError: The file cannot be read.
    """
    partition = TopicPartition(topic, 0)
    for number, line in enumerate(islice(record_lines(file), _SAMPLE_LINES)):
        yield SampleRecord(partition, number, line)


def _add_topic_stream(
    new: NewDeployment, settings: Settings, topic: str, value_format: str | None, rules: InferenceRules
) -> None:
    stream = stream_id(topic)
    described = topic_stream(settings, topic, stream, _table(stream), rules, format_=value_format)
    new.files[f"{STREAMS_FOLDER}/{stream}.yaml"] = stream_yaml(described)
    new.next_steps = [f"frazil validate {stream}", f"frazil preview {stream}", f"frazil run {stream}", "frazil dev"]


def _table(stream: str) -> str:
    return f"landing.{stream.replace('-', '_')}"
