"""Decided names: further names by which a table's columns were matched with the records of a batch.

A stamp keeps them, so that a recovery matches alike. If they are long it keeps a digest; the names are then in the
table, or in its older metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.records.schema.name_matching import NAME_MAPPING, aliases_of
from jobs.records.schema.schema_change import columns_of

DecidedNames: TypeAlias = Mapping[int, tuple[str, ...]] | str
"""Further names of columns, by field id; or a digest of them."""

MOST_CHARACTERS = 400
_DIGITS = 16


def decided_names(schema: Schema, mapping: str | None) -> DecidedNames:
    """Further names of a table's columns, or their digest if they are long.

    Args:
        mapping: Name mapping of the table, as the property's text; None without one.

    Raises:
        FrazilError: The text is no name mapping.
    """
    found = _further_names(schema, mapping)
    return found if len(_text(found)) <= MOST_CHARACTERS else _digest(found)


def decided_properties(
    names: DecidedNames, schema: Schema, properties: Mapping[str, str], older: Iterable[Mapping[str, str]]
) -> dict[str, str]:
    """A table's properties, with a name mapping that gives its columns the names of a stamp.

    If no mapping matches the stamp's digest, the properties stay as they are.

    Args:
        schema: The schema that the stamp names.
        older: The table's former properties, newest first; read only to look for a digest.
    """
    if isinstance(names, str):
        found = next((each for each in _known(schema, properties, older) if _digest(each) == names), None)
        if found is None:
            return dict(properties)
        names = found
    kept = {name: text for name, text in properties.items() if name != NAME_MAPPING}
    if not names:
        return kept
    # Ids are unique within the table, so a flat list is enough.
    mapping = [{"field-id": number, "names": list(each)} for number, each in names.items()]
    return kept | {NAME_MAPPING: msgspec.json.encode(mapping).decode()}


def _known(
    schema: Schema, properties: Mapping[str, str], older: Iterable[Mapping[str, str]]
) -> Iterable[dict[int, tuple[str, ...]]]:
    yield _further_names(schema, properties.get(NAME_MAPPING))
    for each in older:
        try:
            yield _further_names(schema, each.get(NAME_MAPPING))
        except FrazilError:
            # A text that is no mapping decided no names.
            continue


def _further_names(schema: Schema, mapping: str | None) -> dict[int, tuple[str, ...]]:
    if mapping is None:
        return {}
    columns = dict(columns_of(schema))
    return {columns[path].field_id: names for path, names in aliases_of(schema, {NAME_MAPPING: mapping}, "")}


def _text(names: Mapping[int, tuple[str, ...]]) -> bytes:
    return msgspec.json.encode({str(number): names[number] for number in sorted(names)})


def _digest(names: Mapping[int, tuple[str, ...]]) -> str:
    return hashlib.sha256(_text(names)).hexdigest()[:_DIGITS]


def pack_names(names: DecidedNames | None) -> object:
    """The names for a stamp's JSON; None without names."""
    if names is None or isinstance(names, str):
        return names
    return {str(number): list(each) for number, each in names.items()}


def unpack_names(document: object) -> DecidedNames | None:
    """The inverse of `pack_names`."""
    if isinstance(document, dict):
        return {int(number): tuple(each) for number, each in document.items()}
    return document if isinstance(document, str) else None
