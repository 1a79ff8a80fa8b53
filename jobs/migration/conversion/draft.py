"""Draft that the converter of one connector fills: streams, settings, secrets, questions, and the sink's position."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.config.documents.secrets import REFERENCE
from jobs.migration.connectors.model import Connector, Place, Sources
from jobs.migration.conversion.account import Account

Yaml = dict[str, Any]
"""A part of a YAML file, in the order in which it is written."""

_PROVIDER = re.compile(r"\$\{(?P<provider>[A-Za-z0-9_-]+):(?:(?P<path>[^{}]*):)?(?P<name>[^{}:]*)\}")
# Jinja, Helm and Go: {{ … }}; shells and Terraform: ${NAME} without a provider, $NAME, $(NAME), <NAME>.
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\$\{[^{}:]*\}|\$\([A-Za-z_][^)]*\)|<[A-Za-z][\w .:-]*>")


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A secret that became a reference to an environment variable.

    Attributes:
        key: Key of Kafka Connect that holds or names the secret.
        place: Place of the key.
        at: Place in frazil's files, such as `catalog.properties.token`.
        variable: Name of the environment variable.
        was: Where the secret is now, such as `in the clear` or `secret ns/name, key password`.
    """

    key: str
    place: Place
    at: str
    variable: str
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
        while any(one.variable == name and one.value != value for one in self.secrets):
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
        owner = self.settings.put(path or at.split("."), value, self.connector.name)
        if owner is not None:
            self.ask(
                f"{at} differs from that of {owner}, and a deployment has one. Import {self.connector.name} into a "
                f"deployment of its own: frazil import … --connector {self.connector.name} --into FOLDER",
                blocks=True,
            )
        return owner is None

    def secret(self, keys: Account, key: str, at: str, variable: str, value: str | None = None) -> str:
        """Reference that takes a secret's place.

        Args:
            keys: Account that has the key.
            key: Key with the secret.
            at: Place in frazil's files.
            variable: Name of the environment variable, if the key does not name one.
            value: Part of the key's value that is the secret; without it the whole value.

        Returns:
            `${env:NAME}`.
        """
        text = (keys.get(key) or "") if value is None else value
        reference, was = provider_reference(text)
        if reference is None:
            name = self.settings.variable(variable, text)
            reference = f"${{env:{name}}}"
        else:
            name = reference.removeprefix("${env:").removesuffix("}")
        found = SecretReference(key, keys.place(key), at, name, was, text)
        if found not in self.settings.secrets:
            self.settings.secrets.append(found)
        return reference


def provider_reference(text: str) -> tuple[str | None, str]:
    """Reference of frazil's that a config provider's reference already is, and where the secret is now.

    Args:
        text: A value: a secret in the clear, or `${provider:path:key}`.

    Returns:
        `${env:NAME}` if the text is exactly that, else None; and a phrase such as `key k of the file /x.properties`.
    """
    match = _PROVIDER.fullmatch(text)
    if match is None:
        return None, "a template" if has_template(text) else "in the clear"
    provider, path, name = match["provider"], match["path"] or "", match["name"]
    if provider == "env" and not path and REFERENCE.fullmatch(text):
        return text, f"environment variable {name}"
    if provider in ("secrets", "configmaps"):
        return None, f"{provider.removesuffix('s')} {path}, key {name}"
    if provider == "file":
        return None, f"key {name} of the file {path}"
    if provider == "directory":
        return None, f"file {name} in the folder {path}"
    return None, f"config provider {provider}, {' '.join(part for part in (path, name) if part)}"


def has_template(text: str) -> bool:
    """Whether a value has a template of Jinja, Helm, Terraform or a shell in it, or a placeholder in `<…>`."""
    return _TEMPLATE.search(text) is not None


def has_reference(text: str) -> bool:
    """Whether a value has a reference of a config provider in it, such as `${file:/x.properties:key}`."""
    return _PROVIDER.search(text) is not None


def without_empty(part: Mapping[str, Any]) -> Yaml:
    """A part of a YAML file without keys whose value is None or an empty mapping or list."""
    return {key: value for key, value in part.items() if value is not None and value != {} and value != []}
