"""Reference decoder of JSON, which defines what a record means: one record at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    MOST_UNKNOWN_PATHS,
    OTHER_UNKNOWN_PATHS,
    Decoded,
    Failure,
)
from jobs.records.formats.interface.problems import (
    EMPTY_VALUE,
    INVALID_UTF8,
    MALFORMED_JSON,
    MISSING_FIELD,
    NOT_AN_OBJECT,
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    TOO_DEEP,
    UNKNOWN_FIELD,
    WRONG_TYPE,
    ValueProblem,
    shown_key,
)
from jobs.records.formats.json.columns import build_columns
from jobs.records.formats.json.keys import (
    NO_FURTHER_NAMES,
    KeyWalker,
    UnknownKey,
    can_be_extra,
    check_depth,
    entries_of,
    last_wins,
    struct_class,
)
from jobs.records.formats.json.unknown_fields import Rename, Renaming, as_sent
from jobs.records.schema.arrow_schema import arrow_schema
from jobs.records.schema.declared import (
    DeclaredType,
    ListType,
    MapType,
    StructType,
)
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule

_PATH = re.compile(r" - at `(\$.*)`$", re.DOTALL)
_TYPE = re.compile(r"Expected `[^`]*`, got `(\w+)`")
_LENGTH = re.compile(r"Expected `array` of length 2")
_BOUND = re.compile(r"Expected `\w+` [<>]= |(?:Number|Integer value) out of range")
_MISSING = re.compile(r"Object missing required field `(.*)`$", re.DOTALL)

_FOUND = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number with a fraction or exponent",
    "bool": "a boolean",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


def problem_of(text: str, declared: StructType) -> ValueProblem:
    """Return the problem that the text of a msgspec.DecodeError means.

    The known texts are pinned by a test; another one is malformed_json, with the text as it is.

    Args:
        text: `str(error)`.
        declared: The record's type, to name what the error's path needs.
    """
    match = _PATH.search(text)
    path, reason = ("$", text) if match is None else (match.group(1), text[: match.start()])
    needed = _needed(declared, path[1:])
    if found := _TYPE.match(reason):
        kind = _FOUND.get(found.group(1), found.group(1))
        if path == "$":
            return ValueProblem(NOT_AN_OBJECT, f"needs a JSON object, found {kind}")
        error_class = NULL_IN_REQUIRED if found.group(1) == "null" else WRONG_TYPE
        return ValueProblem(error_class, f"needs {needed}, found {kind}", path)
    if _LENGTH.match(reason):
        return ValueProblem(WRONG_TYPE, f"needs {needed}, found an array of another length", path)
    if _BOUND.match(reason):
        return ValueProblem(OUT_OF_RANGE, f"needs {needed}, found a number beyond its range", path)
    if missing := _MISSING.match(reason):
        field = f"{path}.{missing.group(1)}"
        return ValueProblem(MISSING_FIELD, f"needs {_needed(declared, field[1:])}, found no such key", field)
    if reason == "Input data was truncated":
        return ValueProblem(MALFORMED_JSON, "needs one complete JSON object, but the text ends before it does")
    return ValueProblem(MALFORMED_JSON, f"needs one valid JSON object: {reason.removeprefix('JSON is malformed: ')}")


def _needed(declared: DeclaredType, path: str) -> str:
    """Return what is declared at a path without its `$`, as in `.items[0].sku` or `.map[...]`."""
    if path:
        match declared:
            case StructType(fields):
                for field in sorted(fields, key=lambda field: -len(field.name)):
                    rest = path.removeprefix("." + field.name)
                    if rest != path and rest[:1] in ("", ".", "["):
                        return _needed(field.type, rest)
            case ListType(element):
                return _needed(element, path[path.find("]") + 1 :])
            case MapType(key, value, carried="pairs"):
                _, inside, rest = path.partition("]")
                if rest and inside:
                    return _needed(key if rest.startswith("[0]") else value, rest[3:])
                return "an array of a key and a value"
            case MapType(carried="entries"):
                return _needed(entries_of(declared), path)
            case MapType(_, value):
                return _needed(value, path[path.find("]") + 1 :])
            case _:
                pass
    match declared:
        case StructType():
            return "an object"
        case ListType():
            return "an array"
        case MapType(carried="pairs"):
            return "an array of keys and values (a map)"
        case MapType(carried="entries"):
            return "an array of objects (a map)"
        case MapType():
            return "an object (a map)"
        case _:
            return str(declared)


_OFTEN = 100
"""A key comes often if at least one in this number of records of a block has it."""


class JsonReferenceDecoder:
    """Decode JSON objects by a declared schema: each field is exactly what was sent, or the record fails.

    If a key comes twice, its last value counts. A float or double is the nearest one to the number's text. A missing
    key is the same as null, and both are refused where the schema says `not null`. A key that is not declared is
    ignored and counted, or refused; one that differs only by case from a missing declared key is refused.

    Args:
        declared: The record's type.
        unknown_fields: What to do with keys that are not declared.
        names: How keys are matched with declared fields.
    """

    def __init__(
        self,
        declared: StructType,
        *,
        unknown_fields: Literal["ignore", "fail"] = "ignore",
        names: NameRule = EXACT_NAMES,
    ) -> None:
        self._declared = declared
        renaming = Renaming(declared, names) if names else None
        self._renamed: Rename = renaming.renamed if renaming else as_sent
        self._schema = arrow_schema(declared)
        self._refuse_unknown = unknown_fields == "fail"
        self._keys = KeyWalker(declared, renaming.levels if renaming else NO_FURTHER_NAMES)
        self._use_extras({})

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        problems = _invalid_utf8(values)
        records: list[Any] = []
        places: list[int] = []
        unknown: dict[int, list[UnknownKey]] = {}
        strict = self._strict.decode
        block: list[bytes | None] = values.to_numpy(zero_copy_only=False).tolist()
        for row in problems:
            block[row] = None
        for row, value in enumerate(block):
            if value is None:
                continue
            try:
                record = strict(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                try:
                    record, unknown[row] = self._look_again(value)
                except ValueProblem as problem:
                    # The exception itself would keep its frames alive.
                    problems[row] = _failure(row, problem)
                    continue
            records.append(record)
            places.append(row)
        columns = build_columns(self._declared, records, self._extras)
        for index, problem in columns.refused.items():
            row = places[index]
            problems[row] = _failure(row, problem)
        for index in columns.long_tokens:
            row = places[index]
            try:
                check_depth(block[row] or b"")
            except ValueProblem as problem:
                problems[row] = _failure(row, problem)
        good = np.ones(len(places), np.bool_)
        if problems:
            good = ~np.isin(places, np.fromiter(problems, np.int64, len(problems)))
        rows = columns.rows if good.all() else columns.rows.filter(pa.array(good))
        counts = {path: int(good[indices].sum()) for path, indices in columns.extra.items()}
        decoded = Decoded(
            rows=pa.RecordBatch.from_arrays(rows.columns, schema=self._schema),
            positions=np.array(places, np.int64)[good],
            failures=[problems[row] for row in sorted(problems)],
            tombstones=np.flatnonzero(np.asarray(values.is_null())).astype(np.int64),
            unknown_fields=self._counted(counts, [keys for row, keys in unknown.items() if row not in problems]),
        )
        self._learn(unknown.values(), len(block))
        return decoded

    def _look_again(self, value: bytes) -> tuple[Any, list[UnknownKey]]:
        """Decide about a record that the strict type refuses, regardless of what the type has learnt so far.

        Returns:
            The record and its undeclared keys, if undeclared or repeated keys were its only problem.

        Raises:
            ValueProblem: The record is refused.
        """
        if not value.strip(b" \t\r\n"):
            raise ValueProblem(EMPTY_VALUE, "needs a JSON object, found nothing")
        check_depth(value)
        try:
            value = self._renamed(value)
            try:
                return self._without_unknown(value)
            except msgspec.ValidationError:
                if (rewritten := last_wins(value, self._declared)) is None:
                    raise
                return self._without_unknown(rewritten)
        except RecursionError:
            raise ValueProblem(TOO_DEEP, "needs JSON that is nested less deep") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise problem_of(str(error), self._declared) from None

    def _without_unknown(self, value: bytes) -> tuple[Any, list[UnknownKey]]:
        keys = self._keys.unknown(value)
        if keys and self._refuse_unknown:
            message = "is not declared, and this stream refuses keys that are not declared"
            raise ValueProblem(UNKNOWN_FIELD, message, next(iter(keys.values())))
        return self._lenient.decode(value), list(keys)

    def _use_extras(self, extras: dict[str, tuple[str, ...]]) -> None:
        self._extras = extras
        self._strict = msgspec.json.Decoder(struct_class(self._declared, forbid_unknown=True, extras=extras))
        self._lenient = msgspec.json.Decoder(struct_class(self._declared, forbid_unknown=False, extras=extras))

    def _learn(self, unknown: Iterable[list[UnknownKey]], records: int) -> None:
        """Teach the strict type the keys that come often, so that their records need no second look.

        The results stay the same; without this, a stream that declares only some of its keys would be slow.
        """
        # A strict type with `ID` beside `Id` would no longer notice a record that has only the former.
        usable = (key for keys in unknown for key in keys if can_be_extra(key[1]) and not self._keys.near_declared(key))
        counts = Counter(usable)
        extras = dict(self._extras)
        room = MOST_UNKNOWN_PATHS - sum(map(len, extras.values()))
        for (level, key), count in counts.most_common(room):
            if count * _OFTEN >= records and key not in extras.get(level, ()):
                extras[level] = (*extras.get(level, ()), key)
        if extras != self._extras:
            self._use_extras(extras)

    def _counted(self, counts: dict[str, int], unknown: list[list[UnknownKey]]) -> dict[str, int]:
        """Add the keys found by a second look, unless the columns have counted them already."""
        counts = {path: count for path, count in counts.items() if count}
        for level, key in chain.from_iterable(unknown):
            if key in self._extras.get(level, ()):
                continue
            path = _path((level, key))
            if path not in counts and len(counts) >= MOST_UNKNOWN_PATHS:
                path = OTHER_UNKNOWN_PATHS
            counts[path] = counts.get(path, 0) + 1
        return counts


def _path(key: UnknownKey) -> str:
    return f"{key[0]}.{shown_key(key[1])}"


def _invalid_utf8(values: pa.BinaryArray) -> dict[int, Failure]:
    """Return failures of records that are not UTF-8; the typed decoder looks only into the fields it keeps."""
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        pass
    else:
        return {}
    found: dict[int, Failure] = {}
    for row, value in enumerate(values.to_numpy(zero_copy_only=False).tolist()):
        if value is None:
            continue
        try:
            value.decode()
        except UnicodeDecodeError as error:
            message = f"needs UTF-8, found 0x{value[error.start]:02x} at byte {error.start} ({error.reason})"
            found[row] = Failure(row, DECODE_VALUE, INVALID_UTF8, message, None)
    return found


def _failure(row: int, problem: ValueProblem) -> Failure:
    return Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field)
