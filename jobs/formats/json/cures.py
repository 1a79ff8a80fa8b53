"""Cures of failed JSON records: the changes of the columns that would let each of them land.

A record names one fault at a time, so it is decoded again with the columns as its cures would make them. Of one that
has many faults, what the widest columns take tells all of them at once: its cost has an end, however many it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.formats.decoder import Decoded, Failure, ValueDecoder
from jobs.formats.json.healing import Heal, column_at, digits_of, heal, healed, possible
from jobs.schema.declared import DeclaredType, ListType, MapType, Primitive, StructType
from jobs.schema.evolution_policy import EvolutionPolicy
from jobs.schema.needs import Change, Path

LESSONS = 8
"""How often records are decoded again, with one more of their faults cured, before the widest columns are asked."""

_DECODERS = 15
_INT = 2**31


class Cures:
    """Finds the changes that let failed records land.

    Args:
        declared: The columns.
        policy: What becomes of each kind of change.
        refused: Changes that the table refuses: they are no cure.
        reference: Makes the reference decoder of other columns.
    """

    def __init__(
        self,
        declared: StructType,
        policy: EvolutionPolicy,
        refused: Collection[tuple[Change, Path]],
        reference: Callable[[StructType], ValueDecoder],
    ) -> None:
        self._declared: StructType = declared
        self._policy: EvolutionPolicy = policy
        self._refused: Collection[tuple[Change, Path]] = refused
        self._reference: Callable[[StructType], ValueDecoder] = reference
        self._decoders: dict[StructType, ValueDecoder] = {}

    def of(
        self, records: Mapping[int, bytes], failures: Collection[Failure], object_at: Callable[[int], Any]
    ) -> dict[int, set[Heal]]:
        """The changes by row, of those that land once these are made.

        Args:
            records: By row, with the names of columns.
            failures: Theirs.
            object_at: Each as `parsed` gives it.
        """
        open_ = {each.row: each for each in failures}
        cures: dict[int, set[Heal]] = {}
        cured: dict[int, set[Heal]] = {}
        columns = self._declared
        for _ in range(LESSONS):
            found = {row: self.heal(columns, failure, object_at) for row, failure in open_.items()}
            rows = sorted(row for row, cure in found.items() if cure is not None)
            if not rows:
                return cured
            for row in rows:
                cure = found[row]
                assert cure is not None
                cures.setdefault(row, set()).add(cure)
            columns = healed(self._declared, {cure for row in rows for cure in cures[row]})
            again = self.decode(columns, [records[row] for row in rows])
            cured |= {rows[index]: cures[rows[index]] for index in again.positions.tolist()}
            open_ = {rows[each.row]: each.at(rows[each.row]) for each in again.failures}
        rows = sorted(row for row, failure in open_.items() if self.heal(columns, failure, object_at))
        return cured | self._of_many_faults(rows, records) if rows else cured

    def heal(self, columns: StructType, failure: Failure, object_at: Callable[[int], Any]) -> Heal | None:
        """The change that a failure by these columns asks for; None if no change is a cure."""
        column = column_at(columns, failure.field)
        cure = column and heal(failure.error_class, column, lambda: object_at(failure.row), self._policy)
        return cure if cure and (cure.change, cure.path) not in self._refused else None

    def widest(self, columns: StructType) -> StructType:
        """The columns with each change made that the policy and the table allow."""
        return healed(columns, [each for each in possible(columns, self._policy) if each[:2] not in self._refused])

    def decode(self, columns: StructType, records: list[bytes]) -> Decoded:
        """Records by other columns, decoded by the reference."""
        if columns not in self._decoders:
            recent = dict(list(self._decoders.items())[-_DECODERS:])
            self._decoders = {**recent, columns: self._reference(columns)}
        return self._decoders[columns].decode(pa.array(records, pa.binary()))

    def _of_many_faults(self, rows: list[int], records: Mapping[int, bytes]) -> dict[int, set[Heal]]:
        wide = self.decode(self.widest(self._declared), [records[row] for row in rows])
        rows = [rows[index] for index in wide.positions.tolist()]
        if not rows:
            return {}
        found = needed(self._declared, wide.rows)
        columns = healed(self._declared, {cure for cures in found.values() for cure in cures})
        again = self.decode(columns, [records[row] for row in rows])
        return {rows[index]: found.get(index, set()) for index in again.positions.tolist()}


def needed(declared: StructType, rows: pa.RecordBatch) -> dict[int, set[Heal]]:
    """The changes that rows of wider columns need to land in the columns as they are, by the rows' indices."""
    found: dict[int, set[Heal]] = {}
    owners = np.arange(rows.num_rows)
    for field in declared.fields:
        _gather(field.type, field.required, rows.column(field.name), owners, (field.name,), found)
    return found


def _gather(
    kind: DeclaredType,
    required: bool,
    values: pa.Array,
    owners: np.ndarray,
    path: Path,
    found: dict[int, set[Heal]],
) -> None:
    if values.null_count:
        there = values.is_valid()
        if required:
            _note(Heal("relax", path), owners[~there.to_numpy(zero_copy_only=False)], found)
        values, owners = values.filter(there), owners[there.to_numpy(zero_copy_only=False)]
    match kind:
        case StructType(fields):
            for index, each in enumerate(fields):
                _gather(each.type, each.required, values.field(index), owners, (*path, each.name), found)
        case ListType(element, inner_required):
            inner, within = _elements(values, values.values, owners)
            _gather(element, inner_required, inner, within, (*path, "element"), found)
        case MapType(_, value, inner_required):
            inner, within = _elements(values, values.items, owners)
            _gather(value, inner_required, inner, within, (*path, "value"), found)
        case Primitive("int") if pa.types.is_int64(values.type):
            numbers = values.to_numpy()
            _note(Heal("widen", path, Primitive("long")), owners[(numbers < -_INT) | (numbers >= _INT)], found)
        case Primitive("float") if pa.types.is_float64(values.type):
            numbers = values.to_numpy()
            with np.errstate(over="ignore"):
                beyond = np.isinf(numbers.astype(np.float32)) & np.isfinite(numbers)
            _note(Heal("widen", path, Primitive("double")), owners[beyond], found)
        case Primitive("decimal", int() as precision, int() as scale):
            digits = np.fromiter(map(digits_of, values.to_pylist()), np.int64, len(values)) + scale
            for wider in set(digits[digits > precision].tolist()):
                wide = Primitive("decimal", wider, scale, kind.encoding)
                _note(Heal("widen", path, wide), owners[digits == wider], found)
        case _:
            return


def _elements(values: pa.Array, inner: pa.Array, owners: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """What lists or maps have, none of them null, with the row of each."""
    offsets = values.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    return inner.slice(first, last - first), np.repeat(owners, np.diff(offsets))


def _note(cure: Heal, rows: np.ndarray, found: dict[int, set[Heal]]) -> None:
    for row in rows.tolist():
        found.setdefault(row, set()).add(cure)
