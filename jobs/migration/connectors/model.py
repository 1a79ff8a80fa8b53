"""Connectors and workers of Kafka Connect as they were found, with the place of every key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["running", "paused", "stopped"]


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a key.

    Attributes:
        source: File or address, without user and password.
        path: Path within the document, such as `spec.config.topics`; empty for the whole document.
        line: Line in the file, from 1; None if the form has no lines.
    """

    source: str
    path: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return self.source + (f":{self.line}" if self.line else "")


@dataclass(frozen=True, slots=True)
class Setting:
    """One key with its value as text, as Kafka Connect reads it.

    Attributes:
        key: Name in Connect, such as `topics`. A key of a Strimzi resource outside of its `config` has its path
            instead, such as `spec.resources`.
        value: Value as text; not in the repr, because it may be a secret.
        place: Place of the key.
    """

    key: str
    value: str = field(repr=False)
    place: Place


@dataclass(frozen=True, slots=True)
class Worker:
    """A Connect worker, a worker's properties file, or a Strimzi `KafkaConnect`.

    Attributes:
        name: Name of the Strimzi resource or of the file; None for a file that has the connector as well.
        settings: Its keys, in the order of the document.
        place: Where it was found.
        written_twice: Keys that the document has twice. Connect takes the last.
        namespace: Namespace of a Strimzi resource.
    """

    name: str | None
    settings: Mapping[str, Setting]
    place: Place
    written_twice: tuple[str, ...] = ()
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector as it was found.

    Attributes:
        name: Name of the connector, which names its consumer group.
        connector_class: Class in full as written; empty if the document has none.
        settings: Its keys, in the order of the document, `name` and `connector.class` included.
        place: Where it was found.
        worker: Worker that runs it, if it was found.
        worker_name: Name of the Strimzi `KafkaConnect` that it belongs to.
        state: State that is written down, or that the worker reports.
        failed: Task failures that the worker reports, one sentence each and without stack traces.
        written_twice: Keys that the document has twice. Connect takes the last.
        namespace: Namespace of a Strimzi resource.
    """

    name: str
    connector_class: str
    settings: Mapping[str, Setting]
    place: Place
    worker: Worker | None = None
    worker_name: str | None = None
    state: State | None = None
    failed: tuple[str, ...] = ()
    written_twice: tuple[str, ...] = ()
    namespace: str | None = None

    def value(self, key: str) -> str | None:
        """Value of a key of the connector itself, without blanks around it; None if it has no such key."""
        setting = self.settings.get(key)
        return None if setting is None else setting.value.strip()


@dataclass(frozen=True, slots=True)
class Sources:
    """All connectors and workers that an import was given.

    Attributes:
        connectors: Connectors, in the order of the sources and documents.
        workers: Workers, also those that no connector belongs to.
        skipped: Documents that hold neither, one sentence each.
    """

    connectors: tuple[Connector, ...]
    workers: tuple[Worker, ...] = ()
    skipped: tuple[str, ...] = ()


def settings_of(pairs: Iterable[tuple[str, str, Place]]) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """Settings of a document, and the keys that it has twice.

    Args:
        pairs: Key, value and place, in the order of the document. The last of two counts, as in Connect.
    """
    settings: dict[str, Setting] = {}
    twice: list[str] = []
    for key, value, place in pairs:
        if key in settings:
            twice.append(key)
        settings[key] = Setting(key, value, place)
    return settings, tuple(dict.fromkeys(twice))
