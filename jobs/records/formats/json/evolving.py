"""JSON decoders that report, beside rows and failures, which changes of their table the records need.

`EvolvingJsonDecoder` wraps the reference or the block decoder. It costs nothing while records have no field without a
column and none fails. The needs of a record count only if they would let it land.

`SurveyingJsonDecoder` serves the first run of a batch's tasks. Once a record needs a wider or an optional column, the
driver changes the table and the tasks run again. So from that block on it decodes by the future columns, and reports
only needs, without an explanation for each failed record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    EVERY_FIELD,
    LEFT_OUT,
    OTHER_UNKNOWN_PATHS,
    WITHIN,
    Decoded,
    Failure,
    ValueDecoder,
    refused_change,
    undecided,
    without_rows,
)
from jobs.records.formats.interface.problems import CHANGE_PROPOSED, SCHEMA_CHANGE_PROPOSED, shown_key
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.block_text import Indices
from jobs.records.formats.json.column_changes import CHANGE_BY_CLASS, ColumnChanges, changed_columns
from jobs.records.formats.json.new_fields import (
    NewField,
    NewFields,
    NewFieldTypes,
    former_column,
    inner_places,
    simple_kind,
    value_types,
)
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.rescued_json import rescued_values
from jobs.records.formats.json.seen_values import parsed
from jobs.records.formats.json.unknown_fields import Rename, as_sent
from jobs.records.schema.declared import StructType
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.needs import (
    Change,
    EvolutionPolicy,
    Need,
    Path,
)

MOST_NEEDS = 2_000
"""Limit of different needs that a block of records reports."""

_BEYOND = "it has a number of more than 38 digits, or is nested too deep"
_SAMPLE = 64
_MANY = 1_000

MakeBlock: TypeAlias = Callable[..., JsonBlockDecoder]
Stack: TypeAlias = Callable[[StructType, MakeBlock], ValueDecoder]
"""Makes the decoder of some columns that reports the table's missing changes, around the decoder that it is given."""


class EvolvingJsonDecoder:
    """Decode JSON objects as another decoder does, and report the changes that the table lacks.

    Args:
        inner: The decoder.
        declared: The columns.
        policy: The action for each kind of change.
        refused: Fields that get no column, by their JSON path, with the reason; a record that has one fails.
        types: Types of new fields.
        reference: Makes the reference decoder of other columns.
        rename: Returns a record with the names of columns.
        refused_changes: Changes of columns that the table refuses; no record waits for them.
    """

    def __init__(
        self,
        inner: ValueDecoder,
        declared: StructType,
        *,
        policy: EvolutionPolicy,
        refused: Mapping[str, str],
        types: NewFieldTypes,
        reference: Callable[[StructType], ValueDecoder],
        rename: Rename = as_sent,
        refused_changes: Collection[tuple[Change, Path]] = (),
    ) -> None:
        self._rename: Rename = rename
        self._inner: ValueDecoder = inner
        self._declared: StructType = declared
        self._new: NewFields = NewFields(declared)
        self._policy: EvolutionPolicy = policy
        self._refused: Mapping[str, str] = refused
        # Paths of fields that may contain refused fields and are new themselves.
        self._refused_within: frozenset[str] = frozenset(each[:-1] for each in refused if each.endswith(WITHIN))
        self._types: NewFieldTypes = types
        self._changes: ColumnChanges = ColumnChanges(declared, policy, refused_changes, reference)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        decoded = self._inner.decode(values)
        found = _Needs()
        if decoded.failures and self._policy.heals:
            decoded = self._with_failed(values, decoded, found)
        if decoded.unknown_fields and self._policy.add != "ignore":
            decoded = self._with_new_fields(values, decoded, found)
        return replace(decoded, needs=tuple(self._with_former(values, found.by.values()))) if found.by else decoded

    def _with_former(self, values: pa.BinaryArray, needs: Iterable[Need]) -> Iterator[Need]:
        """Yield the needs; a new column with the column that may be the same under its former name."""
        records: dict[int, Any] = {}
        for each in needs:
            if each.change != "add":
                yield each
                continue
            if each.row not in records:
                records[each.row] = parsed(self._rename(values[each.row].as_py()))
            yield replace(each, former=former_column(self._declared, records[each.row], each.path))

    def _with_new_fields(self, values: pa.BinaryArray, decoded: Decoded, found: _Needs) -> Decoded:
        """Return the rows that land, with the needs of their fields without a column."""
        needs, rows = self._seen_in_block(decoded)
        if not len(rows) or _says_nothing(values, decoded):
            found.add(needs)
            return decoded
        failures: dict[int, Failure] = {}
        left: dict[int, set[str]] = {}
        # An earlier record may have the same need as a failed one.
        found.simple.clear()
        # A path that was cut does not contain the name.
        names = [path.rsplit(".", 1)[-1].encode() for path in decoded.unknown_fields if "…" not in path]
        some = len(names) < len(decoded.unknown_fields)
        for row, value in zip(rows.tolist(), _values(values, rows), strict=True):
            if not (some or b"\\" in value or any(name in value for name in names)):
                continue
            fields = list(self._new.of(parsed(self._rename(value))))
            problem = self._take(row, fields, found)
            if problem is not None:
                failures[row], left[row] = problem, {field.place for field in fields}
        found.add(needs)
        return without_rows(decoded, failures, left.values()) if failures else decoded

    def _seen_in_block(self, decoded: Decoded) -> tuple[list[Need], Indices]:
        """Return the needs of a block that its decoder has seen, and the rows that have to be looked at."""
        undeclared = self._inner.undeclared if isinstance(self._inner, JsonBlockDecoder) else None
        refused = bool(self._refused_within) or any(map(self._refused.get, (EVERY_FIELD, *decoded.unknown_fields)))
        if undeclared is None or refused or self._policy.add == "propose":
            return [], decoded.positions
        needs, told = undeclared.needs(self._declared, self._types)
        if len(needs) >= MOST_NEEDS:
            return [], decoded.positions
        return needs, np.setdiff1d(decoded.positions, told, assume_unique=True)

    def _take(self, row: int, fields: Iterable[NewField], found: _Needs) -> Failure | None:
        """Note what the fields of a row need; return the failure if one of them gets no column."""
        refused: Failure | None = None
        needs: list[Need] = []
        seen: list[tuple[Path, object]] = []
        for field in fields:
            if field.value is None:
                continue
            why = self._refused.get(field.place, self._refused.get(EVERY_FIELD))
            if why == LEFT_OUT:
                continue
            if why is not None:
                return refused_change(row, why, field.place)
            simple = simple_kind(field.value, self._types)
            if simple is not None and (field.path, simple) in found.simple and self._policy.add != "propose":
                # An earlier record has the same need.
                continue
            for kind in value_types(field.value, self._types):
                if kind is None:
                    return refused_change(row, _BEYOND, field.place)
                for place in inner_places(field.place, kind) if self._refused_within else ():
                    if place in self._refused_within:
                        return refused_change(row, self._refused[place], place)
                needs.append(Need("add", field.path, kind, row))
                if self._policy.add == "propose":
                    refused = Failure(row, DECODE_VALUE, SCHEMA_CHANGE_PROPOSED, CHANGE_PROPOSED, field.place)
            if simple is not None:
                seen.append((field.path, simple))
        found.add(needs)
        found.simple.update(seen)
        return refused

    def _with_failed(self, values: pa.BinaryArray, decoded: Decoded, found: _Needs) -> Decoded:
        """Return the block with the needs of failed records that a change of the table would let land.

        Records land at once if the text columns for their values exist.
        """
        texts = _values(values, np.array([each.row for each in decoded.failures]))
        records = {failure.row: self._rename(text) for failure, text in zip(decoded.failures, texts, strict=True)}
        object_at = cache(lambda row: parsed(records[row]))
        changes = self._changes.needed(records, decoded.failures)
        landed: dict[int, Decoded] = {}
        hopeless = [each for each in decoded.failures if each.row not in changes]
        for each in hopeless if self._policy.clash == "shadow" else ():
            match rescued_values(self._declared, self._changes, each, records[each.row], self._may_add):
                case Decoded() as one:
                    landed[each.row] = one
                case list() as needs:
                    changes[each.row] = [need.at(each.row) for need in needs]
                case None:
                    pass
        if changes:
            decoded = self._waiting(decoded, changes, object_at, found)
        return _with_rows(decoded, landed) if landed else decoded

    def _may_add(self, path: Path) -> bool:
        """Return whether the table may get a column of text."""
        place = ".".join(("$", *path[:-1], shown_key(path[-1])))
        return self._policy.add == "auto" and place not in self._refused

    def _waiting(
        self, decoded: Decoded, changes: Mapping[int, Collection[Need]], object_at: Callable[[int], Any], found: _Needs
    ) -> Decoded:
        """Return the block with the needs of records that wait for changes; their failures name a proposed one."""
        proposed: set[int] = set()
        for row, needs in sorted(changes.items()):
            fields = self._new.of(object_at(row)) if self._policy.add in ("auto", "fail") else ()
            if self._take(row, fields, found) is not None:
                continue
            found.add(needs)
            if any(self._policy.answer(each.change) == "propose" for each in needs):
                proposed.add(row)
        failures = [
            Failure(each.row, each.stage, SCHEMA_CHANGE_PROPOSED, CHANGE_PROPOSED, each.field)
            if each.row in proposed
            else each
            for each in decoded.failures
        ]
        return replace(decoded, failures=failures)


class _Needs:
    """The different needs of a block, each with its lowest row."""

    def __init__(self) -> None:
        self.by: dict[tuple[Change, Path, str], Need] = {}
        self.simple: set[tuple[Path, object]] = set()

    def add(self, needs: Iterable[Need]) -> None:
        for need in needs:
            key = (need.change, need.path, schema_text(need.type) if need.type else "")
            known = self.by.get(key)
            if known is None and len(self.by) >= MOST_NEEDS:
                continue
            if known is None or need.row < known.row:
                self.by[key] = need


def _values(values: pa.BinaryArray, rows: np.ndarray) -> list[bytes]:
    return values.take(pa.array(rows, pa.int64())).to_numpy(zero_copy_only=False).tolist()


def _says_nothing(values: pa.BinaryArray, decoded: Decoded) -> bool:
    """Return whether every field without a column is null wherever it occurs; found by a search in the block's bytes.

    A producer may write null for every field that it does not use; such records need no closer look.
    """
    if OTHER_UNKNOWN_PATHS in decoded.unknown_fields:
        return False
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    text = memoryview(data)[int(places[0]) : int(places[-1])].tobytes() if data is not None else b""
    if b"\\" in text:
        return False
    for path in decoded.unknown_fields:
        last = path.rsplit(".", 1)[-1].encode()
        name = b'"' + last + b'"'
        nulls = text.count(name + b":null") + text.count(name + b": null")
        # A name may contain a point.
        if not nulls or nulls != text.count(name) or b"." + last + b'"' in text:
            return False
    return True


def _with_rows(decoded: Decoded, parts: Mapping[int, Decoded]) -> Decoded:
    """Return the block with rows of records that had failed, by row."""
    positions = np.concatenate([decoded.positions, np.fromiter(parts, np.int64, len(parts))])
    order = np.argsort(positions)
    together = pa.Table.from_batches([decoded.rows, *(each.rows for each in parts.values())], decoded.rows.schema)
    batches = together.take(pa.array(order)).combine_chunks().to_batches()
    unknown = dict(decoded.unknown_fields)
    for each in parts.values():
        for path, count in each.unknown_fields.items():
            unknown[path] = unknown.get(path, 0) + count
    return replace(
        decoded,
        rows=batches[0],
        positions=positions[order],
        failures=[each for each in decoded.failures if each.row not in parts],
        unknown_fields=unknown,
    )


class SurveyingJsonDecoder:
    """Decode JSON objects as the exact decoder does, up to the first block that needs a wider or an optional column.

    That block and all behind it are `Decoded.undecided`: they have needs, and neither rows nor failures.

    Args:
        declared: The columns.
        stack: Makes the exact decoder.
    """

    def __init__(self, declared: StructType, stack: Stack) -> None:
        self._stack: Stack = stack
        self._undecided: bool = False
        self._adopt(declared)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        needs: list[Need] = []
        while True:
            self._sampled.left = False
            decoded = self._decoder.decode(values)
            needs += decoded.needs
            columns = changed_columns(self._columns, [need for need in decoded.needs if need.change != "add"])
            if columns != self._columns:
                self._undecided = True
                self._adopt(columns)
            elif self._sampled.left:
                # The first records have needs that are met, or none: each record has to be looked at.
                self._sampled.whole = True
            else:
                break
        if not self._undecided:
            return decoded
        return undecided(decoded.rows.slice(0, 0), tuple(needs))

    def _adopt(self, columns: StructType) -> None:
        self._columns: StructType = columns
        self._decoder: ValueDecoder = self._stack(columns, self._block)

    def _block(self, columns: StructType, **options: Any) -> JsonBlockDecoder:
        self._sampled: _Sampled = _Sampled(JsonReferenceDecoder(columns, **options))
        return JsonBlockDecoder(columns, reference=self._sampled, **options)


class _Sampled:
    """The reference decoder for many records that fail for lack of a change: it decodes only the first ones.

    Args:
        inner: The reference decoder.

    Attributes:
        left: Set once records are left undecoded; their failures have no reason.
        whole: Decode all records, whatever the first ones are.
    """

    def __init__(self, inner: ValueDecoder) -> None:
        self._inner: ValueDecoder = inner
        self.left: bool = False
        self.whole: bool = False

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        if self.whole or len(values) < _MANY:
            return self._inner.decode(values)
        first = self._inner.decode(values.slice(0, _SAMPLE))
        if 2 * sum(each.error_class in CHANGE_BY_CLASS for each in first.failures) < _SAMPLE:
            return self._inner.decode(values)
        self.left = True
        rest = [Failure(row, DECODE_VALUE, "undecided", "", None) for row in range(_SAMPLE, len(values))]
        return replace(first, failures=[*first.failures, *rest])
