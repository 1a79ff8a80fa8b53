"""Draft that the converter of one connector fills: streams, settings, secrets, questions, and the sink's position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.migration.connectors.model import Connector, Place, Sources
from jobs.migration.conversion.account import Account
from jobs.migration.conversion.references import provider_reference

Yaml = dict[str, Any]
"""A part of a YAML file, in the order in which it is written."""

UNDECIDED = "undecided"
"""Name in place of one that only a person knows: of a topic, or of the namespace of a table."""


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A secret that became a reference: to an environment variable, or to a file in PEM.

    Attributes:
        key: Key of Kafka Connect that holds or names the secret.
        place: Place of the key.
        at: Place in frazil's files, such as `catalog.properties.token`.
        reference: `${env:NAME}`, or the path of the file.
        was: Where the secret is now, such as `in the clear` or `secret ns/name, key password`.
        value: The secret, to tell two apart; in no output.
    """

    key: str
    place: Place
    at: str
    reference: str
    was: str
    value: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Question:
    """Something that is left to a person.

    Attributes:
        text: The question in one or two sentences.
        blocks: Whether the stream must not run before it is answered; then the connector's outcome is `decide`.
    """

    text: str
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Default:
    """A default of Kafka Connect that differs from frazil's and was written out.

    Attributes:
        key: Key that the connector does not have, such as `errors.tolerance`.
        there: Its default there.
        at: Place in frazil's files.
        here: What was written, as text.
    """

    key: str
    there: str
    at: str
    here: str


@dataclass(frozen=True, slots=True)
class Takeover:
    """Facts that a takeover needs.

    Attributes:
        group: Consumer group with the source offsets.
        control_topic: Control topic of an Iceberg sink; None for other connectors.
        snapshot_key: Key of snapshot summaries with the offsets of the control topic; None for other connectors.
        read_uncommitted: Whether the connector also read records of open and aborted transactions.
    """

    group: str | None
    control_topic: str | None = None
    snapshot_key: str | None = None
    read_uncommitted: bool = True


class SettingsDraft:
    """`frazil.yaml` that all converters fill together. The first value of a place stays.

    A second, different value is a question: a deployment has one catalog, one Kafka and one registry.
    """

    def __init__(self) -> None:
        self.document: Yaml = {}
        self.secrets: list[SecretReference] = []
        self._owners: dict[tuple[str, ...], str] = {}

    def get(self, *path: str) -> Any:
        """Value at a place; None if nothing is there."""
        part: Any = self.document
        for name in path:
            part = part.get(name) if isinstance(part, dict) else None
        return part

    def put(self, path: Sequence[str], value: Any, owner: str) -> str | None:
        """Write a value.

        Args:
            path: Keys from the top of the file.
            value: The value; a secret as a reference.
            owner: Connector or worker that it is from.

        Returns:
            The owner of another value that stands there already; None if the value was written or is equal.
        """
        *above, last = path
        part = self.document
        for name in above:
            part = part.setdefault(name, {})
        if last in part and part[last] != value:
            return self._owners.get(tuple(path), "another connector")
        part[last] = value
        self._owners.setdefault(tuple(path), owner)
        return None

    def put_cores(self, cores: int) -> None:
        """Give Spark at least so many cores."""
        spark = self.document.setdefault("spark", {})
        now = int(str(spark.get("master", "local[1]")).removeprefix("local[").removesuffix("]"))
        spark["master"] = f"local[{max(now, cores)}]"

    def variable(self, wanted: str, value: str | None) -> str:
        """Name of an environment variable that no other secret has.

        Args:
            wanted: Name if it is free.
            value: Value or reference of the secret; an equal one shares the variable.
        """
        name, number = wanted, 1
        while any(one.reference == f"${{env:{name}}}" and one.value != value for one in self.secrets):
            number += 1
            name = f"{wanted}_{number}"
        return name


class Draft:
    """What the converter of one connector fills.

    Attributes:
        connector: The connector.
        sources: All connectors and workers of the import, for converters that join several.
        keys: Account of the connector's keys.
        worker: Account of its worker's keys; None without a worker.
        settings: Settings of the deployment, shared by all connectors.
        streams: Stream files as mappings, in the order in which keys are written; empty if nothing comes of it.
        generation: Family and generation of the keys, such as `apache`, `tabular`, `first`; empty if there is one.
        questions: What is left to a person.
        notes: Facts worth reading that are no question.
        defaults: Defaults that were written out.
        takeover: Facts for `frazil takeover`; None if no position exists.
        refused_places: Places of the settings where another connector's value stands.
    """

    def __init__(
        self, connector: Connector, sources: Sources, settings: SettingsDraft, worker: Account | None = None
    ) -> None:
        self.connector: Connector = connector
        self.sources: Sources = sources
        self.settings: SettingsDraft = settings
        self.keys: Account = Account(connector.settings)
        self.worker: Account | None = worker
        self.streams: list[Yaml] = []
        self.generation: str = ""
        self.questions: list[Question] = []
        self.notes: list[str] = []
        self.defaults: list[Default] = []
        self.takeover: Takeover | None = None
        self.refused_places: list[str] = []

    def ask(self, text: str, *, blocks: bool = False) -> None:
        """Leave something to a person."""
        question = Question(text, blocks)
        if question not in self.questions:
            self.questions.append(question)

    def note(self, text: str) -> None:
        """Say something that is no question."""
        if text not in self.notes:
            self.notes.append(text)

    def default(self, key: str, there: str, at: str, here: object) -> None:
        """Say that a default of Kafka Connect was written out."""
        shown = str(here).lower() if isinstance(here, bool) else str(here)
        self.defaults.append(Default(key, there, at, shown))

    def put(self, at: str, value: Any, *path: str) -> bool:
        """Write a value of the settings; ask if another connector has another value there.

        Args:
            at: Place with dots, for the question.
            value: The value.
            path: Keys from the top of the file; without them `at`, split at its dots.

        Returns:
            Whether the value stands there now.
        """
        place = path or tuple(at.split("."))
        owner = self.settings.put(place, value, self.connector.name)
        if owner is not None:
            self.refused_places.append(at)
            differing = ", ".join(_differing(self.settings.get(*place), value)) or at
            self.ask(
                f"{at} differs from that of {owner} ({differing}), and a deployment has one. Import "
                f"{self.connector.name} into a deployment of its own: frazil import … --connector "
                f"{self.connector.name} --into FOLDER",
                blocks=True,
            )
        return owner is None

    def secret(
        self, keys: Account, key: str, at: str, variable: str, *, value: str | None = None, was: str | None = None
    ) -> str:
        """Reference that takes a secret's place.

        Args:
            keys: Account that has the key.
            key: Key with the secret.
            at: Place in frazil's files.
            variable: Name of the environment variable, if the key does not name one.
            value: Part of the key's value that is the secret; without it the whole value.
            was: Where the secret is now; without it as the value says.

        Returns:
            `${env:NAME}`.
        """
        text = keys.raw(key) if value is None else value
        reference, phrase = provider_reference(text)
        if reference is None:
            reference = f"${{env:{self.settings.variable(variable, text)}}}"
        self._add(SecretReference(key, keys.place(key), at, reference, was or phrase, text))
        return reference

    def secret_file(self, keys: Account, key: str, at: str, path: str, was: str) -> str:
        """Path of a file in PEM that takes the place of a key's certificates.

        Args:
            keys: Account that has the key.
            key: Key that names the certificates.
            at: Place in frazil's files.
            path: The file.
            was: Where the certificates are now.
        """
        self._add(SecretReference(key, keys.place(key), at, path, was))
        return path

    def _add(self, found: SecretReference) -> None:
        if found not in self.settings.secrets:
            self.settings.secrets.append(found)


def _differing(existing: Any, value: Any, at: str = "") -> Iterator[str]:
    """Values that differ from existing ones, with their places; secrets are references in both."""
    if isinstance(existing, dict) and isinstance(value, dict):
        for key in dict.fromkeys([*value, *existing]):
            yield from _differing(existing.get(key), value.get(key), f"{at}.{key}" if at else str(key))
    elif existing != value:
        yield f"{at}: {_shown(value)} here, {_shown(existing)} there"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def without_empty(part: Mapping[str, Any]) -> Yaml:
    """A part of a YAML file without keys whose value is None or an empty mapping or list."""
    return {key: value for key, value in part.items() if value is not None and value != {} and value != []}
