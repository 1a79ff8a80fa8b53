"""Masking of dead letters: removal of fields of the value, headers and the key."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, StructType

from jobs.config.values.mask import Mask, path_parts
from jobs.records.formats.interface.decoder import DECODE_KEY, Failure
from jobs.records.formats.json.keys import without_repeated
from jobs.records.formats.record_columns import NO_RECORD_COLUMNS, RecordColumns
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule
from jobs.records.schema.needs import Path

MARK = "[masked]"
VALUE = "value"
KEY = "key"
HEADERS = "headers"
FIELD = "field:"

_MARK_JSON = msgspec.Raw(msgspec.json.encode(MARK))
_PARTS = re.compile(r"(?:[^,`]|`[^`]*`)+")
_INDEX = re.compile(r"\[[^\]]*\]")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder(msgspec.Raw)


class _Withheld(Exception):
    """A value whose masked fields cannot be separated from the rest."""


@dataclass(frozen=True, slots=True)
class Masked:
    """Failed records in the form that dead letters keep.

    Attributes:
        records: Columns of the records.
        failures: Failures whose messages quote nothing that is masked.
        parts: Parts that each dead letter lacks, with commas: ``value`` if it can never be a row again,
            ``field:card.number`` for a masked field that the schema does not declare, ``key``, ``headers``. None if it
            is the record as it was consumed. In a value with masked fields, only the last of repeated keys is kept, as
            the others may hold what is masked.
    """

    records: pa.RecordBatch
    failures: list[Failure]
    parts: list[str | None]


def masked(
    records: pa.RecordBatch,
    failures: Sequence[Failure],
    mask: Mask,
    rows: Schema,
    columns: RecordColumns = NO_RECORD_COLUMNS,
    *,
    json_fields: bool = True,
    names: NameRule = EXACT_NAMES,
) -> Masked:
    """Mask failed records.

    Args:
        records: One record per failure, in their order, with headers as a list of key and value.
        mask: Parts to remove.
        rows: Schema of the rows that the stream decodes.
        columns: Columns that do not come from the value; masking one masks the key, or its header.
        json_fields: Whether values are JSON; other values are removed if any of their columns is masked.
        names: Rule that matches fields of values with columns; all names of a masked column are masked.
    """
    told = [_untold(failure, mask, columns) for failure in failures]
    paths = mask.paths if json_fields else tuple(path for path in mask.paths if path[0] not in _elsewhere(columns))
    without_key, headers = _key_masked(mask, columns), _headers_masked(mask, columns)
    parts: list[list[str]] = [[] for _ in failures]
    changed = {name: records.column(name) for name in ("key", "value", "headers") if name in records.schema.names}
    record = rows.as_struct()
    spelt = {path: names.spellings(path, record) for path in paths}
    if without_key and "key" in changed:
        for row, key in enumerate(changed["key"].is_valid().to_pylist()):
            if key:
                parts[row].append(KEY)
        changed["key"] = pa.nulls(records.num_rows, changed["key"].type)
    if headers and "headers" in changed:
        changed["headers"] = _masked_headers(changed["headers"], headers, parts)
    if paths and "value" in changed:
        values: list[bytes | None] = []
        for row, value in enumerate(changed["value"].to_pylist()):
            kept, gone = _masked_value(value, paths, spelt) if json_fields else (None, list(paths))
            values.append(kept)
            withheld = value is not None and kept is None
            if withheld or any(_declares(record, written) for path in gone for written in spelt[path]):
                parts[row].append(VALUE)
            else:
                parts[row].extend(FIELD + _text(path) for path in gone)
            if withheld or _about(told[row].field, [written for each in spelt.values() for written in each]):
                told[row] = told[row].saying("what was found is masked")
        changed["value"] = pa.array(values, changed["value"].type)
    for name, column in changed.items():
        index = records.schema.get_field_index(name)
        records = records.set_column(index, records.schema.field(index), column)
    return Masked(records, told, [",".join(each) or None for each in parts])


def _elsewhere(columns: RecordColumns) -> frozenset[str]:
    return columns.key_names | {each.name for each in columns.headers}


def _key_masked(mask: Mask, columns: RecordColumns) -> bool:
    return mask.key or any(path[0] in columns.key_names for path in mask.paths)


def _headers_masked(mask: Mask, columns: RecordColumns) -> set[str]:
    named = {path[0] for path in mask.paths}
    return {*mask.headers, *(each.header for each in columns.headers if each.name in named)}


def _untold(failure: Failure, mask: Mask, columns: RecordColumns) -> Failure:
    """The failure without possible quotes of a masked key or header."""
    headers = _headers_masked(mask, columns)
    hidden = {f"$.{each.name}" for each in columns.headers if each.header in headers}
    of_key = {f"$.{name}" for name in columns.key_names} if _key_masked(mask, columns) else set[str]()
    place = _INDEX.sub("", failure.field or "")
    if place in hidden or any(place == each or place.startswith(f"{each}.") for each in of_key):
        return failure.saying("what was found is masked")
    return failure.saying("what was found is masked") if of_key and failure.stage == DECODE_KEY else failure


def can_return(parts: str | None, rows: Schema, besides: Collection[str] = (), names: NameRule = EXACT_NAMES) -> bool:
    """Whether a dead letter can become a row again: nothing that makes its columns is masked.

    Args:
        parts: Parts that the dead letter lacks, see `Masked.parts`.
        rows: Schema of the rows to which the value would be decoded, with a correction.
        besides: Other sources of columns: `key`, `headers`.
        names: Rule that matches fields of values with columns.
    """
    record = rows.as_struct()
    for part in _PARTS.findall(parts or ""):
        if part == VALUE or part in besides:
            return False
        if part.startswith(FIELD):
            masked_path = path_parts(part.removeprefix(FIELD))
            if any(_declares(record, written) for written in names.spellings(masked_path, record)):
                return False
    return True


def _masked_headers(headers: pa.Array, names: set[str], parts: list[list[str]]) -> pa.Array:
    rows: list[Any] = headers.to_pylist()
    for row, entries in enumerate(rows):
        hit = [entry for entry in entries or () if entry["key"] in names]
        for entry in hit:
            entry["value"] = MARK.encode()
        if hit:
            parts[row].append(HEADERS)
    return pa.array(rows, headers.type)


def _masked_value(
    value: bytes | None, paths: Sequence[Path], spelt: Mapping[Path, Sequence[Path]]
) -> tuple[bytes | None, list[Path]]:
    """The value with marks in place of masked fields, and their paths; None if nothing of it can be kept."""
    if value is None:
        return None, []
    gone: list[Path] = []
    try:
        # The whole text has to be JSON: anything may follow an error.
        _ANY.decode(value)
        # Only the last of repeated keys would be looked at and marked.
        once = without_repeated(value)
        raw = msgspec.Raw(value if once is None else once)
        for path in paths:
            for written in spelt[path]:
                raw, hit = _without(raw, written)
                if hit and path not in gone:
                    gone.append(path)
    except (_Withheld, msgspec.DecodeError, ValueError, RecursionError):
        return None, list(paths)
    return (value if once is None and not gone else bytes(raw)), gone


def _without(raw: msgspec.Raw, path: tuple[str, ...]) -> tuple[msgspec.Raw, bool]:
    """The JSON text with a mark in place of the value at the path; all other tokens stay as they are written."""
    text = bytes(raw).lstrip(b" \t\r\n")
    if text.startswith(b"["):
        items = [_without(item, path) for item in _ARRAY.decode(text)]
        hit = any(found for _, found in items)
        return (msgspec.Raw(msgspec.json.encode([item for item, _ in items])) if hit else raw), hit
    if text.startswith(b"n"):
        return raw, False
    if not text.startswith(b"{"):
        # A single value is in place of the object: it may be the masked value itself.
        raise _Withheld
    keys: dict[str, msgspec.Raw] = _OBJECT.decode(text)
    found = False
    for key, inner in keys.items():
        # The decoder refuses a key in another case, so such a record gets here.
        if key.casefold() != path[0].casefold():
            continue
        if len(path) == 1:
            keys[key], found = _MARK_JSON, True
            continue
        try:
            keys[key], hit = _without(inner, path[1:])
        except _Withheld:
            keys[key], hit = _MARK_JSON, True
        found = found or hit
    return (msgspec.Raw(msgspec.json.encode(keys)) if found else raw), found


def _declares(kind: IcebergType, path: tuple[str, ...]) -> bool:
    """Whether decoding reads the value at the path, or something within it."""
    while isinstance(kind, ListType):
        kind = kind.element_type
    if not path or not isinstance(kind, StructType):
        return True
    inner = next((field.field_type for field in kind.fields if field.name.casefold() == path[0].casefold()), None)
    return inner is not None and _declares(inner, path[1:])


def _about(field: str | None, paths: Sequence[tuple[str, ...]]) -> bool:
    """Whether a failure concerns a masked field, something within it, or something around it."""
    if field is None:
        return False
    at = _INDEX.sub("", field).removeprefix("$").removeprefix(".").casefold()
    for path in paths:
        masked_at = ".".join(path).casefold()
        if not at or at == masked_at or at.startswith(f"{masked_at}.") or masked_at.startswith(f"{at}."):
            return True
    return False


def _text(path: tuple[str, ...]) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" if not part.isidentifier() else part for part in path)
