"""Conversion of all connectors of an import: streams, settings, and an answer for every key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from jobs.config.documents.connect_keys import KeyClass, KeyOwner, find_key, nearest_key
from jobs.migration.connectors.model import Connector, Sources, Worker
from jobs.migration.conversion.account import Account, Answer, sort_answers
from jobs.migration.conversion.converters import converter_of
from jobs.migration.conversion.draft import Default, Draft, Question, SecretReference, SettingsDraft, Takeover, Yaml
from jobs.migration.conversion.references import shown_templates, templates_in

Outcome = Literal["converted", "decide", "refused"]


@dataclass(frozen=True, slots=True)
class ConvertedConnector:
    """What became of one connector.

    Attributes:
        connector: The connector.
        family: Family of its converter, such as `iceberg-sink`; None without one.
        generation: Generation of its keys; empty if the family has one.
        streams: Stream files as mappings.
        answers: One answer for each key, in a stable order.
        questions: What is left to a person.
        notes: Facts worth reading.
        defaults: Defaults that were written out.
        takeover: Facts for a takeover; None if no position exists.
    """

    connector: Connector
    family: str | None
    generation: str
    streams: tuple[Yaml, ...]
    answers: tuple[Answer, ...]
    questions: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()
    defaults: tuple[Default, ...] = ()
    takeover: Takeover | None = None

    @property
    def outcome(self) -> Outcome:
        """`refused` without a converter; `decide` if the stream must not run before a person has decided."""
        if self.family is None:
            return "refused"
        open_keys = any(answer.heading in (KeyClass.IMPOSSIBLE, KeyClass.DECIDE) for answer in self.answers)
        return "decide" if open_keys or any(question.blocks for question in self.questions) else "converted"


@dataclass(frozen=True, slots=True)
class ConvertedWorker:
    """What became of the keys of a worker."""

    worker: Worker
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Conversion:
    """Everything that an import makes.

    Attributes:
        connectors: Connectors, in the order of the sources.
        workers: Workers, in the order of the sources.
        settings: `frazil.yaml` as a mapping.
        secrets: Secrets that became references.
        skipped: Documents that hold no connector.
    """

    connectors: tuple[ConvertedConnector, ...]
    workers: tuple[ConvertedWorker, ...]
    settings: Yaml
    secrets: tuple[SecretReference, ...]
    skipped: tuple[str, ...] = field(default=())

    @property
    def streams(self) -> list[tuple[ConvertedConnector, Yaml]]:
        """Every stream with its connector."""
        return [(connector, stream) for connector in self.connectors for stream in connector.streams]

    def secret_values(self) -> set[str]:
        """Secrets in the clear, for a check that no output has one."""
        return {secret.value for secret in self.secrets if secret.value and secret.was.endswith("in the clear")}


def convert(sources: Sources, names: Sequence[str] = ()) -> Conversion:
    """Convert connectors.

    Args:
        sources: Connectors and workers.
        names: Names of the connectors to convert; all without any.
    """
    settings = SettingsDraft()
    accounts = {id(worker): Account(worker.settings, shared=True) for worker in sources.workers}
    connectors: list[ConvertedConnector] = []
    taken: set[str] = set()
    for connector in sources.connectors:
        if names and connector.name not in names:
            continue
        worker = accounts.get(id(connector.worker)) if connector.worker is not None else None
        converted = _convert(connector, sources, settings, worker)
        converted = replace(converted, streams=tuple(_renamed(stream, taken) for stream in converted.streams))
        connectors.append(converted)
    workers = [
        ConvertedWorker(worker, _worker_answers(accounts[id(worker)], worker, sources.connectors))
        for worker in sources.workers
    ]
    return Conversion(
        tuple(connectors), tuple(workers), _ordered(settings.document), tuple(settings.secrets), sources.skipped
    )


def _convert(
    connector: Connector, sources: Sources, settings: SettingsDraft, worker: Account | None
) -> ConvertedConnector:
    draft = Draft(connector, sources, settings, worker)
    converter = converter_of(connector.connector_class)
    for key in connector.written_twice:
        draft.note(f"{key} is written twice; the last one counted, and counts")
    if converter is None:
        _refuse(draft)
    else:
        converter.load()(draft)
        for key in ("spec.state", "spec.pause"):
            if draft.keys.has(key) and not draft.keys.is_answered(key):
                draft.keys.not_needed(key, "the import starts nothing; `frazil start` and `frazil stop` do")
    _answer_rest(draft.keys, draft.generation, ("connector", "strimzi", *(converter.owners if converter else ())))
    _ask_about_templates(draft)
    return ConvertedConnector(
        connector,
        converter.family if converter else None,
        draft.generation,
        tuple(draft.streams),
        tuple(sort_answers(_as_written(answer, draft.refused_places) for answer in draft.keys.answers())),
        tuple(draft.questions),
        tuple(draft.notes),
        tuple(one for one in draft.defaults if not _is_below(one.at, draft.refused_places)),
        draft.takeover,
    )


def _as_written(answer: Answer, refused: Sequence[str]) -> Answer:
    """An answer, or what is to decide if another connector's value stands at its place."""
    if answer.at is None or not _is_below(answer.at, refused):
        return answer
    return replace(answer, heading=KeyClass.DECIDE, says=f"another connector has another value at {answer.at}", at=None)


def _is_below(at: str, places: Sequence[str]) -> bool:
    return any(at == place or at.startswith(f"{place}.") for place in places)


def _ask_about_templates(draft: Draft) -> None:
    """Ask for the values of templates; secrets become references in any case."""
    if templates_in("", draft.connector.name):
        shown = shown_templates("", draft.connector.name)
        draft.ask(f"the name of the connector has {shown}: render it first", blocks=True)
    for answer in draft.keys.answers():
        value = draft.keys.raw(answer.key)
        if templates_in(answer.key, value) and answer.heading is KeyClass.DECIDE:
            shown = shown_templates(answer.key, value)
            draft.ask(f"{answer.key} has {shown}: render it, or write the value", blocks=True)


def _refuse(draft: Draft) -> None:
    said = "frazil has no converter for this class"
    if draft.connector.connector_class.endswith("SourceConnector"):
        said = "a source connector, which goes on producing; frazil lands the topics that it fills"
    draft.keys.impossible("connector.class", said)
    for key in list(draft.keys.unanswered()):
        draft.keys.impossible(key, "of a connector that is not converted")
    draft.ask(f"{draft.connector.name} is not converted: {said}", blocks=True)


def _answer_rest(keys: Account, generation: str, owners: Sequence[KeyOwner] = ()) -> None:
    """Answer the keys that no converter has answered: by the table, and misspelt ones by the nearest key."""
    for key in list(keys.unanswered()):
        entry = find_key(key, *owners)
        near = nearest_key(key, *owners)
        if key.lstrip("/ ").startswith(("_", "#")) or key.startswith("//"):
            keys.no_effect(key, "a comment")
        elif key != key.strip() and find_key(key.strip(), *owners) is not None:
            keys.no_effect(key, f"a blank beside it makes it another key than {key.strip()}")
        elif near is not None:
            keys.no_effect(key, f"no connector reads it; it may mean {near}")
        elif entry is None:
            keys.no_effect(key, "no connector that frazil knows reads it")
        elif entry.read_by and generation and generation not in entry.read_by:
            keys.no_effect(key, f"this release of the sink ignores it; it {entry.says}")
        elif entry.key_class in (KeyClass.NOT_NEEDED, KeyClass.NO_EFFECT):
            keys.answer(key, entry.key_class, _phrase(entry.says))
        elif not keys.raw(key):
            keys.no_effect(key, "is empty")
        elif keys.is_open(key):
            keys.decide(key, f"the value is a template or is set elsewhere; the key {entry.says}")
        elif entry.key_class is KeyClass.IMPOSSIBLE:
            keys.impossible(key, entry.says)
        elif entry.key_class is KeyClass.APPROXIMATED:
            keys.approximated(key, _phrase(entry.says))
        else:
            keys.decide(key, f"was not written; the key {entry.says}")


def _phrase(says: str) -> str:
    """The rest of a sentence, without the words that the report's heading has."""
    return says.removeprefix("is not needed: ").removeprefix("is ")


def _worker_answers(keys: Account, worker: Worker, connectors: Iterable[Connector]) -> tuple[Answer, ...]:
    used = any(connector.worker is worker for connector in connectors)
    for key in list(keys.unanswered()):
        entry = find_key(key)
        if key.startswith(("key.converter", "value.converter", "header.converter")):
            keys.not_needed(key, "no imported connector uses it" if used else "no connector of the worker is imported")
        elif entry is not None and entry.key_class in (KeyClass.SAME, KeyClass.DECIDE) and not used:
            keys.decide(key, f"no connector of the worker is imported; the key {entry.says}")
    _answer_rest(keys, "")
    return tuple(keys.answers())


def _renamed(stream: Yaml, taken: set[str]) -> Yaml:
    """A stream with a name that no other has."""
    name, number = str(stream["stream"]), 1
    while name in taken:
        number += 1
        name = f"{str(stream['stream'])[:60]}-{number}"
    taken.add(name)
    return {**stream, "stream": name}


_SECTIONS = ("kafka", "registry", "catalog", "spark")


def _ordered(document: Yaml) -> Yaml:
    """Settings in the order of the reference."""
    return {key: document[key] for key in (*_SECTIONS, *(k for k in document if k not in _SECTIONS)) if key in document}
