"""References of JSON Schemas: the target of a `$ref`, within a schema and in those that it refers to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

from jobs.records.formats.connect_json.schema import of_place
from jobs.records.formats.interface.writer_schema import BadWriterSchema, NoSchema, WriterSchema


class At(NamedTuple):
    """The place in a schema that is being read.

    Attributes:
        document: The text that local references point into.
        path: Path of the record's field.
        followed: The references that lead here; one that leads to itself has no end.
    """

    document: str
    path: str = ""
    depth: int = 0
    followed: frozenset[tuple[str, str]] = frozenset()

    def field(self, name: str) -> At:
        """Return the place of a field of the schema here."""
        return self._replace(path=f"{self.path}.{name}" if self.path else name, depth=self.depth + 1)


ROOT = At("", followed=frozenset({("", "")}))


class WithinItself(BadWriterSchema):
    """A reference that leads to itself without an end."""


class Documents:
    """A schema's text, and the texts that it refers to.

    Attributes:
        root: The schema.
    """

    def __init__(self, schema: WriterSchema) -> None:
        self._texts: dict[str, Any] = {"": _parsed(schema.text)}
        self._texts.update({name: _parsed(text) for name, text in schema.references})
        self._ids: dict[str, str] = {}
        for name, document in self._texts.items():
            if isinstance(document, dict) and isinstance(document.get("$id"), str):
                self._ids.setdefault(document["$id"].rstrip("#"), name)
        self.root: Any = self._texts[""]

    def referred(self, reference: Any, at: At) -> tuple[Any, At]:
        """Return the target of a reference, and its place.

        Raises:
            BadWriterSchema: The target does not exist.
            WithinItself: The reference leads to itself.
        """
        place = of_place(at.path)
        if not isinstance(reference, str):
            raise NoSchema(f"{place} has a reference that is no text")
        name, _, pointer = reference.partition("#")
        document = self._document(name, at.document) if name else at.document
        if document is None:
            raise BadWriterSchema(f"{place} refers to a schema that is not among its references")
        if (document, pointer) in at.followed:
            raise WithinItself(f"{place} is within itself, without an end")
        for found in _found(self._texts[document], unquote(pointer)):
            return found, at._replace(document=document, followed=at.followed | {(document, pointer)})
        raise NoSchema(f"{place} refers to what is not there")

    def _document(self, name: str, within: str) -> str | None:
        """Return the name of the text that a reference names: by name, by id, or relative to the text around it."""
        base = self._texts[within].get("$id") if isinstance(self._texts[within], dict) else None
        whole = urljoin(base if isinstance(base, str) else within, name)
        for each in (name, whole):
            if each in self._texts:
                return each
            if each in self._ids:
                return self._ids[each]
        return None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise BadWriterSchema("it is nested too deep") from None
    except ValueError:
        raise NoSchema("it is no JSON") from None


def _found(document: Any, pointer: str) -> Iterator[Any]:
    """Yield the target of a pointer, or the values that have it as an anchor."""
    if pointer and not pointer.startswith("/"):
        yield from _anchored(document, pointer)
        return
    found = document
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return
    yield found


def _anchored(document: Any, anchor: str) -> Iterator[Any]:
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("$anchor") == anchor or one.get("$id") == f"#{anchor}":
                yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
