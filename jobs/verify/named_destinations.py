"""Named destinations: where rows belong whose tables are named by values, by which of these there were at the time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.commit.offsets import TopicPartition
from jobs.pipeline.route_dispatch import Dispatched, grouped
from jobs.pipeline.route_naming import Naming, naming_state
from jobs.spec.models import StreamSpec
from jobs.spec.targets import value_of_table
from jobs.verify.table_ranges import TableRanges

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


class NamedDestinations:
    """Tells the tables of rows that no entry of a route takes.

    A value's row belongs in the value's table if that was a target when its record was read, else with the unmatched.
    One whose record was read several times may belong in either.

    Args:
        spec: The stream as it was, with tables that values name.
        ranges: Since when each of its tables has been one.
    """

    def __init__(self, spec: StreamSpec, ranges: TableRanges) -> None:
        # What had a table when its record came is told by the ranges, not by what may get one now.
        state = naming_state(spec, {}, decided=True)
        if spec.route is None or state is None:
            raise TypeError("no table of this stream is named by a value")
        self._naming: Naming = Naming(spec.route, ranges.tables, state)
        self._ranges: TableRanges = ranges
        self._unmatched: str | None = spec.route.unmatched_table

    def tables(
        self, found: Dispatched, values: pa.Array, place: TopicPartition, offsets: Offsets, again: Mask
    ) -> Mapping[str, Offsets]:
        """The rows that belong in each table.

        Args:
            found: What the entries of the route say.
            values: What decides, as text, of all rows.
            place: The partition of the rows.
            offsets: Of the rows.
            again: Which of their records were read more than once.
        """
        parts: dict[str, list[Offsets]] = {name: [rows] for name, rows in found.tables.items()}
        encoded = values.take(pa.array(found.nowhere)).dictionary_encode(null_encoding="encode")
        texts = encoded.dictionary.to_pylist()
        for number, at in grouped(np.arange(len(texts), dtype=np.int64), np.asarray(encoded.indices)):
            rows, table = found.nowhere[at], self._naming.of(texts[number]).table
            others = rows
            if table is not None:
                there = self._ranges.of(table, place, offsets[rows])
                parts.setdefault(table, []).append(rows[there])
                others = rows[~there | again[rows]]
            if self._unmatched is not None:
                parts.setdefault(self._unmatched, []).append(others)
        return {name: np.unique(np.concatenate(each)) for name, each in parts.items()}


def may_be_named(spec: StreamSpec, table: str) -> bool:
    """Whether a value may name a table: none of those that the stream's file names has rows by its name."""
    if spec.route is None or spec.route.to is None:
        return False
    given = {spec.table.name, spec.dead_letter_table, *spec.route.table_names}
    if table in given or spec.has_late_rows(table):
        return False
    return value_of_table(spec.route.to, table) is not None
