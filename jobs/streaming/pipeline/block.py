"""Block of records in a pipeline: the records, the rows made from them so far, and the records without rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.records.formats.interface.decoder import Failure
from jobs.records.schema.needs import Need
from jobs.records.transforms.frame import Frame

Indices = npt.NDArray[np.int64]

_NONE: Indices = np.zeros(0, np.int64)
_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """Rows of a block for one of several tables, in that table's columns.

    Attributes:
        positions: Index of each row's record, ascending.
    """

    rows: pa.RecordBatch
    positions: Indices

    def without(self, records: Indices) -> RoutedRows:
        """These rows without the rows of some records, given ascending."""
        kept = ~np.isin(self.positions, records, assume_unique=True)
        return self if kept.all() else RoutedRows(self.rows.filter(pa.array(kept)), self.positions[kept])


@dataclass(frozen=True, slots=True)
class Block:
    """Records and their fates; `positions`, `failures`, `dropped` and `filtered` use indices of records.

    Attributes:
        records: Records as they were read: value, topic, partition, offset and timestamp.
        rows: One row for each record that has not failed and was not dropped or filtered. Any columns if empty.
        positions: Index of each row's record, ascending.
        failures: One for each failed record, ascending.
        filtered: Records that a filter dropped, ascending.
        dropped: Records without a row that have not failed, ascending: tombstones.
        destination: Name of the rows' target.
        unknown_fields: Decoded records by the path of an undeclared key.
        needs: Changes of the table without which records were left out in part, or failed; each by a record's index.
        undecided: Whether no stage decided some records, see `Decoded.undecided`.
        changed: Replacements by steps for parts of the records, one entry for each row, see `Frame`.
        gone: Rows that have no value any more, see `jobs.records.transforms.transform.Rows`; None without any.
        warned: Records that broke a rule and land nevertheless, by the rule's name.
        routed: For a stream with several tables of rows, the rows of each by name; `rows` then belong to no table.
        unnamed: With a route, records that wait for a table of their own, by the value that names it.
    """

    records: pa.RecordBatch
    rows: pa.RecordBatch
    positions: Indices
    failures: list[Failure]
    dropped: Indices
    destination: str
    unknown_fields: dict[str, int]
    needs: tuple[Need, ...] = ()
    undecided: bool = False
    filtered: Indices = field(default_factory=lambda: _NONE)
    changed: Mapping[str, pa.Array] = field(default_factory=dict)
    gone: pa.BooleanArray | None = None
    warned: Mapping[str, Indices] = field(default_factory=dict)
    routed: Mapping[str, RoutedRows] = field(default_factory=dict)
    unnamed: Mapping[str, Indices] = field(default_factory=dict)

    @classmethod
    def of(cls, records: pa.RecordBatch, destination: str) -> Block:
        """Records that no stage has processed: each is its own row."""
        return cls(records, records, np.arange(records.num_rows, dtype=np.int64), [], _NONE, destination, {})

    @property
    def is_whole(self) -> bool:
        """Whether every record has a row, so that rows and records have the same indices."""
        return len(self.positions) == self.records.num_rows

    def with_rows(
        self,
        rows: pa.RecordBatch,
        kept: Indices | slice = _ALL,
        *,
        failures: Sequence[Failure] = (),
        dropped: Indices = _NONE,
        unknown_fields: dict[str, int] | None = None,
        needs: Sequence[Need] = (),
        undecided: bool = False,
        filtered: Indices = _NONE,
        changed: Mapping[str, pa.Array] | None = None,
        gone: pa.BooleanArray | None = None,
        warned: Mapping[str, Indices] | None = None,
        routed: Mapping[str, RoutedRows] | None = None,
        unnamed: Mapping[str, Indices] | None = None,
    ) -> Block:
        """The block after a stage that processed rows only, and counted them from the first row.

        Args:
            rows: New rows.
            kept: Rows of this block that they were made from, ascending; None: all.
            failures: Failures by rows of this block.
            dropped: Dropped rows of this block.
            unknown_fields: Unknown fields found by the stage.
            needs: Needs by rows of this block.
            undecided: Whether the stage only reports the records' needs.
            filtered: Filtered rows of this block.
            changed: Replacements for the new rows; None: those of this block stay.
            gone: Rows without a value, if `changed` is given.
            warned: Warnings by rows of this block.
            routed: Rows of each of several tables, by records; None: unchanged.
            unnamed: Rows of this block that wait for a table.

        Raises:
            RuntimeError: The stage has more or fewer rows than records that it kept.
        """
        at = self.positions
        if rows.num_rows != (count := len(at[kept])):
            # Otherwise later rows would belong to other records.
            raise RuntimeError(f"the stage has {rows.num_rows} rows of {count} records")
        if changed is None:
            changed, gone = self._changes_of(kept)
        moved = list(failures) if self.is_whole else [failure.at(int(at[failure.row])) for failure in failures]
        return Block(
            self.records,
            rows,
            at[kept],
            _ascending([*self.failures, *moved]) if self.failures else moved,
            _joined(self.dropped, at[dropped]),
            self.destination,
            _summed([self.unknown_fields, unknown_fields or {}]),
            (*self.needs, *(need.at(int(at[need.row])) for need in needs)),
            self.undecided or undecided,
            _joined(self.filtered, at[filtered]),
            changed,
            gone,
            {**self.warned, **{name: _joined(self.warned.get(name, _NONE), at[rows]) for name, rows in warned.items()}}
            if warned
            else self.warned,
            self.routed if routed is None else routed,
            {value: at[rows] for value, rows in unnamed.items()} if unnamed else self.unnamed,
        )

    def _changes_of(self, kept: Indices | slice) -> tuple[Mapping[str, pa.Array], pa.BooleanArray | None]:
        """Replacements by steps, for some of the rows."""
        if not self.changed and self.gone is None:
            return self.changed, None
        indices = pa.array(np.arange(self.rows.num_rows)[kept], pa.int64())
        changed = {name: each.take(indices) for name, each in self.changed.items()}
        return changed, None if self.gone is None else self.gone.take(indices)

    @property
    def frame(self) -> Frame:
        """Kafka's parts of the rows' records, as changed by steps."""
        return Frame(self.records, None if self.is_whole else self.positions, self.changed)

    def part(self, start: int, stop: int) -> Block:
        """Some of the rows, without what is known about other records."""
        changed, gone = self._changes_of(slice(start, stop))
        return replace(
            self,
            rows=self.rows.slice(start, stop - start),
            positions=self.positions[start:stop],
            failures=[],
            dropped=_NONE,
            unknown_fields={},
            needs=(),
            filtered=_NONE,
            changed=changed,
            gone=gone,
            warned={},
            routed={},
            unnamed={},
        )

    def replaced_by(self, parts: Sequence[Block]) -> Block:
        """The block with the results of its parts, which cover all of its rows in order, in place of its rows."""
        filled = [part for part in parts if part.rows.num_rows] or [parts[0]]
        changed = {name for part in filled for name in part.changed}
        gone = any(part.gone is not None for part in filled)
        rules = {name for part in (self, *parts) for name in part.warned}
        return replace(
            self,
            rows=pa.concat_batches([part.rows for part in filled]),
            positions=np.concatenate([part.positions for part in parts]),
            failures=_ascending([*self.failures, *(failure for part in parts for failure in part.failures)]),
            dropped=np.sort(np.concatenate([self.dropped, *(part.dropped for part in parts)])),
            unknown_fields=_summed([self.unknown_fields, *(part.unknown_fields for part in parts)]),
            needs=(*self.needs, *(need for part in parts for need in part.needs)),
            undecided=self.undecided or any(part.undecided for part in parts),
            filtered=np.sort(np.concatenate([self.filtered, *(part.filtered for part in parts)])),
            changed={name: pa.concat_arrays([part.frame.part(name) for part in filled]) for name in sorted(changed)},
            gone=pa.concat_arrays([_gone(part) for part in filled]) if gone else None,
            warned={
                name: np.sort(np.concatenate([part.warned.get(name, _NONE) for part in (self, *parts)]))
                for name in sorted(rules)
            },
            routed=_routed([part.routed for part in parts]),
            unnamed={
                value: np.concatenate([part.unnamed[value] for part in parts if value in part.unnamed])
                for value in dict.fromkeys(value for part in parts for value in part.unnamed)
            },
        )


def _joined(first: Indices, second: Indices) -> Indices:
    return np.sort(np.concatenate([first, second])) if len(first) else second


def _gone(part: Block) -> pa.Array:
    return pa.repeat(pa.scalar(False), part.rows.num_rows) if part.gone is None else part.gone


def _routed(parts: Sequence[Mapping[str, RoutedRows]]) -> dict[str, RoutedRows]:
    found: dict[str, list[RoutedRows]] = {}
    for part in parts:
        for name, rows in part.items():
            found.setdefault(name, []).append(rows)
    return {
        name: RoutedRows(
            pa.concat_batches([each.rows for each in every]), np.concatenate([each.positions for each in every])
        )
        for name, every in found.items()
    }


def _ascending(failures: list[Failure]) -> list[Failure]:
    return sorted(failures, key=lambda failure: failure.row)


def _summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for path, count in each.items():
            found[path] = found.get(path, 0) + count
    return found
