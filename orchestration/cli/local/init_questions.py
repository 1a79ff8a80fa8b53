"""Questions of `frazil init` at a terminal, and their answers, which may also come from options."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import click

TOPIC_FORMATS = ("json", "connect_json", "avro", "protobuf", "json_schema")
REGISTRY_FORMATS = ("avro", "protobuf", "json_schema")
LOOK = "look"


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers from which `frazil init` makes a deployment.

    Attributes:
        records: File with one JSON record a line, for which a stream is made.
        topic: Topic for which a stream is made; with `records`, the topic that the records go to.
        value_format: Format of the topic's values; None for the format of most records.
        brokers: Kafka's brokers as `host:port`; None for a broker on this machine.
        registry: URL of the schema registry.
        catalog: URI of a REST catalog, or of the database of a SQL catalog; None for SQLite on this machine.
        warehouse: The REST catalog's warehouse, or the location of the SQL catalog's files.
        times: Whether a column whose texts all look like times, or days, gets that type.
    """

    records: Path | None = None
    topic: str | None = None
    value_format: str | None = None
    brokers: str | None = None
    registry: str | None = None
    catalog: str | None = None
    warehouse: str | None = None
    times: bool = False

    def command(self, folder: Path) -> str:
        """Command line that makes the same deployment without questions."""
        options = {
            "--records": self.records,
            "--topic": self.topic,
            "--format": self.value_format,
            "--brokers": self.brokers,
            "--registry": self.registry,
            "--catalog": self.catalog,
            "--warehouse": self.warehouse,
        }
        words = ["frazil", "init", str(folder)]
        for name, value in options.items():
            words += [name, str(value)] if value is not None else []
        return shlex.join([*words, *(["--times"] if self.times else [])])


def ask() -> Answers:
    """Ask all questions. An empty answer takes the default in brackets."""
    source = click.prompt(
        "Make a stream for a file of JSON records, for a topic, or none yet?",
        type=click.Choice(["file", "topic", "none"]),
        default="file",
    )
    records: Path | None = None
    topic = value_format = registry = None
    times = False
    if source == "file":
        records = click.prompt(
            "The file, one record a line", type=click.Path(exists=True, dir_okay=False, path_type=Path)
        )
    if source == "topic":
        brokers = click.prompt("Kafka's brokers, host:port")
        topic = click.prompt("The topic")
        chosen = click.prompt(
            "The format of its values", type=click.Choice([LOOK, *TOPIC_FORMATS]), default=LOOK, show_choices=True
        )
        value_format = None if chosen == LOOK else chosen
        if value_format is None or value_format in REGISTRY_FORMATS:
            registry = _optional("The URL of the schema registry (empty: none)")
    else:
        brokers = _optional("Kafka's brokers, host:port (empty: a broker on this machine)")
    if source != "none":
        times = click.confirm("Land texts that all look like times, or days, as such?", default=True)
    catalog, warehouse = _ask_catalog()
    return Answers(records, topic, value_format, brokers, registry, catalog, warehouse, times)


def _ask_catalog() -> tuple[str | None, str | None]:
    kind = click.prompt(
        "The Iceberg catalog: on this machine, a REST catalog, or a database (sql)?",
        type=click.Choice(["local", "rest", "sql"]),
        default="local",
    )
    if kind == "local":
        return None, None
    if kind == "rest":
        return click.prompt("Its URL"), _optional("Its warehouse (empty: its own)")
    return (
        click.prompt("The database, without a password, such as postgresql+psycopg://me@db/lake"),
        click.prompt("Where the tables' files go, such as s3://lake/warehouse or file:///srv/lake"),
    )


def _optional(question: str) -> str | None:
    return click.prompt(question, default="", show_default=False).strip() or None
