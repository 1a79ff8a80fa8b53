"""Account of the keys of one document: gives their values, and takes exactly one answer for each key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from jobs.config.documents.connect_keys import KeyClass
from jobs.migration.connectors.model import Place, Setting
from jobs.migration.conversion.references import has_reference, has_template


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one key.

    Attributes:
        key: Key as it is written.
        heading: Heading under which the report has it.
        says: Phrase without a value of the key, such as `the sink writes no key`.
        place: Place of the key in its source.
        at: Place in frazil's files, such as `source.topics` or `catalog.properties.uri`; None if it has none.
    """

    key: str
    heading: KeyClass
    says: str
    place: Place
    at: str | None = None


class Account:
    """Keys of a connector or worker, with their answers.

    Args:
        settings: The keys.
        shared: Whether several converters answer for it, as for a worker; then the first answer of a key counts.
    """

    def __init__(self, settings: Mapping[str, Setting], *, shared: bool = False) -> None:
        self._settings: Mapping[str, Setting] = settings
        self._shared: bool = shared
        self._answers: dict[str, Answer] = {}
        self._unread: set[str] = set()

    def get(self, key: str) -> str | None:
        """Value of a key without blanks around it, for anything but a secret. Answers nothing.

        Returns:
            None if the document does not have the key, or it is empty, a template or a reference.
        """
        value = self.raw(key)
        if value and self.is_open(key):
            self._unread.add(key)
            return None
        return value or None

    def take(self, key: str) -> None:
        """The value of a key is no matter, because a reference has taken its place."""
        self._unread.discard(key)

    def raw(self, key: str) -> str:
        """Value of a key as it is written, templates and references included; empty without the key."""
        setting = self._settings.get(key)
        return "" if setting is None else setting.value.strip()

    def is_open(self, key: str) -> bool:
        """Whether the value of a key is not known here: it is a template, or a reference of a config provider."""
        value = self.raw(key)
        return has_template(key, value) or (not key.startswith("transforms.") and has_reference(value))

    def flag(self, key: str, *, otherwise: bool = False) -> bool:
        """Value of a key that is true or false, in any case as Kafka reads them."""
        value = (self.get(key) or "").lower()
        return value == "true" if value in ("true", "false") else otherwise

    def number(self, key: str) -> int | None:
        """Value of a key that is a whole number; None if it is none, or beyond all times in milliseconds."""
        value = self.get(key) or ""
        return int(value) if re.fullmatch(r"[+-]?[0-9]{1,16}", value) else None

    def has(self, key: str) -> bool:
        """Whether the document has the key."""
        return key in self._settings

    def keys(self, prefix: str = "") -> list[str]:
        """Keys that begin with a prefix, in the order of the document."""
        return [key for key in self._settings if key.startswith(prefix)]

    def place(self, key: str) -> Place:
        """Place of a key of the document."""
        return self._settings[key].place

    def same(self, key: str, at: str, says: str = "") -> None:
        """The key means the same here, at a place of frazil's files."""
        self.answer(key, KeyClass.SAME, says, at)

    def approximated(self, key: str, says: str, at: str | None = None) -> None:
        """The key has a counterpart that differs; `says` names the difference and when one notices it."""
        self.answer(key, KeyClass.APPROXIMATED, says, at)

    def not_needed(self, key: str, says: str) -> None:
        """Nothing takes the key's place, and nothing is lost."""
        self.answer(key, KeyClass.NOT_NEEDED, says)

    def no_effect(self, key: str, says: str) -> None:
        """The connector never read the key."""
        self.answer(key, KeyClass.NO_EFFECT, says)

    def impossible(self, key: str, says: str) -> None:
        """frazil cannot do what the key did; `says` names the way out."""
        self.answer(key, KeyClass.IMPOSSIBLE, says)

    def decide(self, key: str, says: str) -> None:
        """A person has to decide what takes the key's place."""
        self.answer(key, KeyClass.DECIDE, says)

    def answer(self, key: str, heading: KeyClass, says: str, at: str | None = None) -> None:
        """Record the answer for a key; a key that the document does not have is passed over.

        Raises:
            ValueError: The key has an answer, and the account is not shared.
        """
        if key not in self._settings:
            return
        if key in self._answers:
            if self._shared:
                return
            raise ValueError(f"{key} is answered twice")
        self._answers[key] = Answer(key, heading, says, self._settings[key].place, at)

    def is_answered(self, key: str) -> bool:
        """Whether the key has an answer."""
        return key in self._answers

    def unanswered(self) -> Iterator[str]:
        """Keys without an answer, in the order of the document."""
        return (key for key in list(self._settings) if key not in self._answers)

    def answers(self) -> list[Answer]:
        """All answers by heading, and by key within one.

        Raises:
            ValueError: A key has no answer.
        """
        if missing := next(self.unanswered(), None):
            raise ValueError(f"{missing} has no answer")
        return sort_answers(self._read(answer) for answer in self._answers.values())

    def _read(self, answer: Answer) -> Answer:
        """An answer, or what is to decide if it was given without the value: that is a template or a reference."""
        if answer.key not in self._unread or answer.heading in (KeyClass.IMPOSSIBLE, KeyClass.DECIDE):
            return answer
        says = "the value is a template or is set elsewhere, so its default was taken: write the value"
        return replace(answer, heading=KeyClass.DECIDE, says=says)


def sort_answers(answers: Iterable[Answer]) -> list[Answer]:
    """Answers by heading, and by key within one."""
    order = list(KeyClass)
    return sorted(answers, key=lambda answer: (order.index(answer.heading), answer.key))
