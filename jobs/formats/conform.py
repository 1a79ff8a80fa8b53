"""Conforming rows of a writer schema to the columns of a stream: by name, each value exactly as it was, or not at all.

What a writer schema and the stream's columns disagree about is judged once, when the plan for the two is made
(`jobs.formats.conform_plan`). A field that no column takes is left out and counted; a column that no field fills is
null. A field whose type the column's does not hold is looked at value by value where the two are of one kind (a long
that an int holds lands), and otherwise fails each record that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.formats.conform_place import top
from jobs.formats.conform_plan import StructPlan, needs, struct_plan
from jobs.formats.conform_work import NOTHING_REFUSED, ConformWork, Extra
from jobs.formats.decoder import Decoded, UnknownField, refused_change, undecided
from jobs.formats.rescued_fields import rescued_fields
from jobs.schema.arrow_schema import rows_arrow_schema
from jobs.schema.declared import quoted
from jobs.schema.iceberg_schema import schema_text
from jobs.schema.name_matching import EXACT_NAMES, NameRule
from jobs.schema.needs import Need
from jobs.schema.renames import with_former_column
from jobs.schema.rescued_data import EXTRA_COLUMN, EXTRA_NEED, EXTRA_PLACE, without_extra_column


class Conform:
    """Brings rows of one writer schema to a stream's columns.

    Args:
        writer: The fields of the rows.
        rows: The stream's columns, without those that say where rows came from.
        extra: What becomes of a field that no column takes.
        refused: Fields that get no column, by their JSON path, with the reason: their records fail.
        names: How fields and columns are matched.

    Attributes:
        needs: Changes of the table without which records of this writer schema lose a field, or may be refused.
    """

    def __init__(
        self,
        writer: Schema,
        rows: Schema,
        extra: Extra = "ignore",
        refused: Mapping[str, str] = NOTHING_REFUSED,
        names: NameRule = EXACT_NAMES,
    ) -> None:
        self._extra: Extra = extra
        self._refused: Mapping[str, str] = refused
        self._schema: pa.Schema = rows_arrow_schema(rows)
        self._relaxed: pa.Schema = pa.schema([each.with_nullable(True) for each in self._schema])
        self._names: tuple[str, ...] = tuple(each.name for each in rows.fields)
        columns = without_extra_column(rows) if extra == "keep" else rows
        self._plan: StructPlan = struct_plan(writer.as_struct(), columns.as_struct(), names)
        self.needs: tuple[Need, ...] = with_former_column(tuple(needs(self._plan)), writer, columns, names)

    def apply(self, decoded: Decoded) -> Decoded:
        """The rows in the stream's columns, without those that the columns do not hold: those become failures.

        Args:
            decoded: By a decoder of the writer schema.
        """
        count, positions = decoded.rows.num_rows, decoded.positions
        work = ConformWork(self._extra, self._refused)
        arrays = work.columns(self._plan, decoded.rows.columns, top(count))
        found = self._needed(work, decoded, self.needs)
        if self._extra == "keep":
            found = (*found, *self._keep(work, decoded, arrays))
        if not work.refused:
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            unknown = decoded.unknown_fields | work.counts(np.ones(count, np.bool_))
            return Decoded(rows, positions, decoded.failures, decoded.tombstones, unknown, found)
        good = np.ones(count, np.bool_)
        good[list(work.refused)] = False
        # A refused value of a required column is null until its row is gone.
        kept = pa.RecordBatch.from_arrays(arrays, schema=self._relaxed).filter(pa.array(good))
        failures = [failure.at(int(positions[row])) for row, failure in work.refused.items()]
        return Decoded(
            pa.RecordBatch.from_arrays(kept.columns, schema=self._schema),
            positions[good],
            sorted([*decoded.failures, *failures], key=lambda failure: failure.row),
            decoded.tombstones,
            decoded.unknown_fields | work.counts(good),
            found,
        )

    def surveyed(self, decoded: Decoded, if_beyond: Callable[[Need], bool] = lambda _: False) -> Decoded | None:
        """What the rows need, of a block in which they need a column otherwise than it is; None of any other.

        Nothing is told of what becomes of them: a task that surveys is going to run again.

        Args:
            decoded: By a decoder of the writer schema.
            if_beyond: Which needs count only if some value is out of its column's range.
        """
        if all(need.change == "add" for need in self.needs):
            return None
        work = ConformWork(self._extra, self._refused, count := decoded.rows.num_rows)
        arrays = work.columns(self._plan, decoded.rows.columns, top(count))
        needs = self._needed(work, decoded, [each for each in self.needs if work.beyond or not if_beyond(each)])
        if all(need.change == "add" for need in needs):
            return None
        if self._extra == "keep" and EXTRA_COLUMN not in self._names:
            needs = (*needs, *self._keep(work, decoded, arrays))
        return undecided(pa.RecordBatch.from_pylist([], schema=self._schema), needs)

    def _needed(self, work: ConformWork, decoded: Decoded, needs: Sequence[Need]) -> tuple[Need, ...]:
        """What rows need beside what their decoder has told: of the first one that it would let land."""
        count = decoded.rows.num_rows
        if not needs or len(work.hopeless) >= count:
            return decoded.needs
        first = next(row for row in range(count) if row not in work.hopeless)
        return (*decoded.needs, *(need.at(int(decoded.positions[first])) for need in needs))

    def _keep(self, work: ConformWork, decoded: Decoded, arrays: list[pa.Array]) -> Iterator[Need]:
        """Put what no column takes in its column; of a table without one, say that the rows need it, or refuse them."""
        rescued = rescued_fields(self._plan, decoded.rows)
        if EXTRA_COLUMN in self._names:
            arrays.insert(self._names.index(EXTRA_COLUMN), pa.array(rescued, pa.string()))
            work.extra.clear()
            return
        rows = [row for row, text in enumerate(rescued) if text is not None and row not in work.hopeless]
        why = self._refused.get(EXTRA_PLACE)
        if why is None and rows:
            yield EXTRA_NEED.at(int(decoded.positions[rows[0]]))
        elif why is not None:
            work.refused |= {row: refused_change(row, why, EXTRA_PLACE) for row in rows if row not in work.refused}

    def unknown_fields(self, decoded: Decoded) -> Iterator[tuple[str, UnknownField]]:
        """Each field that no column takes and that a record has, by its path, with the first such record."""
        work = ConformWork("ignore", NOTHING_REFUSED)
        work.columns(self._plan, decoded.rows.columns, top(decoded.rows.num_rows))
        for path, extra in work.extra.items():
            if len(extra.rows):
                column = f"{quoted(extra.field.name)} {schema_text(extra.field.field_type)}"
                yield path, UnknownField(int(decoded.positions[extra.rows[0]]), extra.within, column)
