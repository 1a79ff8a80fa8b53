"""Evolving decoder of JSON: beside rows and failures it says which changes of the table the records need.

It stands around the reference or the block decoder, and costs nothing while records have no field without a column and
none fails. A record alters nothing that its table would refuse anyway: its needs count only if they would let it land.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import StringType

from jobs.formats.decoder import (
    DECODE_VALUE,
    EVERY_FIELD,
    LEFT_OUT,
    OTHER_UNKNOWN_PATHS,
    WITHIN,
    Decoded,
    Failure,
    ValueDecoder,
)
from jobs.formats.json.block import JsonBlockDecoder
from jobs.formats.json.block_text import Indices
from jobs.formats.json.cures import Cures
from jobs.formats.json.decoded_rows import with_rows, without_rows
from jobs.formats.json.former_columns import former_column
from jobs.formats.json.healing import Heal
from jobs.formats.json.new_fields import NewField, NewFields, NewFieldTypes, inner_places, simple_kind, value_types
from jobs.formats.json.renaming import Rename, as_sent
from jobs.formats.json.seen_values import parsed
from jobs.formats.json.shadowed import shadowed
from jobs.formats.problems import (
    CHANGE_PROPOSED,
    SCHEMA_CHANGE_PROPOSED,
    SCHEMA_CHANGE_REFUSED,
    change_refused,
    shown_key,
)
from jobs.schema.declared import StructType
from jobs.schema.evolution_policy import EvolutionPolicy
from jobs.schema.iceberg_schema import schema_text
from jobs.schema.needs import Change, Need, Path

MOST_NEEDS = 2_000
"""Different ones that a block of records tells."""

_BEYOND = "it has a number of more than 38 digits, or is nested too deep"


class EvolvingJsonDecoder:
    """Decodes JSON objects as another decoder does, and says what the table lacks.

    Args:
        inner: The decoder.
        declared: The columns.
        policy: What becomes of each kind of change.
        refused: Fields that get no column, by their JSON path, with the reason: a record that has one fails.
        types: What new fields become.
        reference: Makes the reference decoder of other columns.
        rename: Gives a record with the names of columns.
        refused_changes: Changes of columns that the table refuses: no record waits for them.
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
        # What may lie in a field that is new itself.
        self._refused_within: frozenset[str] = frozenset(each[:-1] for each in refused if each.endswith(WITHIN))
        self._types: NewFieldTypes = types
        self._cures: Cures = Cures(declared, policy, refused_changes, reference)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        decoded = self._inner.decode(values)
        found = _Needs()
        if decoded.failures and self._policy.heals:
            decoded = self._healed(values, decoded, found)
        if decoded.unknown_fields and self._policy.add != "ignore":
            decoded = self._with_new_fields(values, decoded, found)
        return replace(decoded, needs=tuple(self._with_former(values, found.by.values()))) if found.by else decoded

    def _with_former(self, values: pa.BinaryArray, needs: Iterable[Need]) -> Iterator[Need]:
        """The needs, those of new columns with the one that their record lacks, and that looks the same."""
        records: dict[int, Any] = {}
        for each in needs:
            if each.change != "add":
                yield each
                continue
            if each.row not in records:
                records[each.row] = parsed(self._rename(values[each.row].as_py()))
            yield replace(each, former=former_column(self._declared, records[each.row], each.path))

    def _with_new_fields(self, values: pa.BinaryArray, decoded: Decoded, found: _Needs) -> Decoded:
        """The rows that land, with the needs of fields that they have beside the columns."""
        needs, rows = self._seen_in_block(decoded)
        if not len(rows) or _says_nothing(values, decoded):
            found.add(needs)
            return decoded
        failures: dict[int, Failure] = {}
        left: dict[int, set[str]] = {}
        # What a record that failed needs may be needed by one before it.
        found.simple.clear()
        # A path that is cut does not tell the name.
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
        """What a block's records need as far as its decoder has seen it, and the rows that have to be looked at."""
        undeclared = self._inner.undeclared if isinstance(self._inner, JsonBlockDecoder) else None
        refused = bool(self._refused_within) or any(map(self._refused.get, (EVERY_FIELD, *decoded.unknown_fields)))
        if undeclared is None or refused or self._policy.add == "propose":
            return [], decoded.positions
        needs, told = undeclared.needs(self._declared, self._types)
        if len(needs) >= MOST_NEEDS:
            return [], decoded.positions
        return needs, np.setdiff1d(decoded.positions, told, assume_unique=True)

    def _take(self, row: int, fields: Iterable[NewField], found: _Needs) -> Failure | None:
        """Note what the fields of a row need; the failure if one of them gets no column."""
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
                return _refusal(row, why, field.place)
            simple = simple_kind(field.value, self._types)
            if simple is not None and (field.path, simple) in found.simple and self._policy.add != "propose":
                # An earlier record needs the same.
                continue
            for kind in value_types(field.value, self._types):
                if kind is None:
                    return _refusal(row, _BEYOND, field.place)
                for place in inner_places(field.place, kind) if self._refused_within else ():
                    if place in self._refused_within:
                        return _refusal(row, self._refused[place], place)
                needs.append(Need("add", field.path, kind, row))
                if self._policy.add == "propose":
                    refused = Failure(row, DECODE_VALUE, SCHEMA_CHANGE_PROPOSED, CHANGE_PROPOSED, field.place)
            if simple is not None:
                seen.append((field.path, simple))
        found.add(needs)
        found.simple.update(seen)
        return refused

    def _healed(self, values: pa.BinaryArray, decoded: Decoded, found: _Needs) -> Decoded:
        """The block with the needs of failed records that a change of the table would let land.

        Those whose values lie as text in columns that are there land at once.
        """
        texts = _values(values, np.array([each.row for each in decoded.failures]))
        records = {failure.row: self._rename(text) for failure, text in zip(decoded.failures, texts, strict=True)}
        object_at = cache(lambda row: parsed(records[row]))
        cured: dict[int, set[Heal]] = {}
        if self._policy.widen != "ignore" or self._policy.relax != "ignore":
            cured = self._cures.of(records, decoded.failures, object_at)
        landed: dict[int, Decoded] = {}
        beside: dict[int, list[Path]] = {}
        if self._policy.clash == "shadow":
            for failure in decoded.failures:
                if failure.row in cured:
                    continue
                match shadowed(self._declared, self._cures, failure, records[failure.row], self._may_add):
                    case Decoded() as one:
                        landed[failure.row] = one
                    case set() as heals:
                        # A column beside is asked for once it is known what becomes of these.
                        cured[failure.row] = heals
                    case list() as paths:
                        beside[failure.row] = paths
                    case None:
                        pass
        if cured:
            decoded = self._told(decoded, cured, object_at, found)
        for row, paths in beside.items():
            if self._take(row, self._new.of(object_at(row)), found) is None:
                found.add(Need("add", path, StringType(), row) for path in paths)
        return with_rows(decoded, landed) if landed else decoded

    def _may_add(self, path: Path) -> bool:
        """Whether the table may get a column of text."""
        place = ".".join(("$", *path[:-1], shown_key(path[-1])))
        return self._policy.add == "auto" and place not in self._refused

    def _told(
        self, decoded: Decoded, cured: Mapping[int, set[Heal]], object_at: Callable[[int], Any], found: _Needs
    ) -> Decoded:
        """The failures, those that a proposed change would cure with that as their reason."""
        proposed: set[int] = set()
        told: set[Heal] = set()
        for row, cures in sorted(cured.items()):
            fields = self._new.of(object_at(row)) if self._policy.add in ("auto", "fail") else ()
            if self._take(row, fields, found) is not None:
                continue
            found.add(Need(cure.change, cure.path, cure.iceberg, row) for cure in cures - told)
            told |= cures
            if any(self._policy.answer(cure.change) == "propose" for cure in cures):
                proposed.add(row)
        failures = [
            Failure(each.row, each.stage, SCHEMA_CHANGE_PROPOSED, CHANGE_PROPOSED, each.field)
            if each.row in proposed
            else each
            for each in decoded.failures
        ]
        return replace(decoded, failures=failures)


class _Needs:
    """The different needs of a block, each with the least row that has it."""

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


def _refusal(row: int, why: str, place: str) -> Failure:
    return Failure(row, DECODE_VALUE, SCHEMA_CHANGE_REFUSED, change_refused(why), place)


def _says_nothing(values: pa.BinaryArray, decoded: Decoded) -> bool:
    """Whether all fields without a column are null wherever they stand, as a search in the bytes of a block tells.

    A producer may write a null for every field that it does not use; nobody should look at each record for that.
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
        # A name may have a point in it.
        if not nulls or nulls != text.count(name) or b"." + last + b'"' in text:
            return False
    return True
