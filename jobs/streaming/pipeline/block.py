"""Block of records on its way through a pipeline: what was read, the rows made of it so far, and what gave none."""

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
    """Rows of a block for one of several tables, as that table holds them.

    Attributes:
        positions: The record of each row, ascending.
    """

    rows: pa.RecordBatch
    positions: Indices

    def without(self, records: Indices) -> RoutedRows:
        """Without the rows of some records, given ascending."""
        kept = ~np.isin(self.positions, records, assume_unique=True)
        return self if kept.all() else RoutedRows(self.rows.filter(pa.array(kept)), self.positions[kept])


@dataclass(frozen=True, slots=True)
class Block:
    """Records and what became of them: `positions`, rows of `failures`, `dropped` and `filtered` are records' indices.

    Attributes:
        records: As they were read: value, topic, partition, offset and timestamp.
        rows: One for each record that has not failed and was not dropped or filtered. Of any columns if there is none.
        positions: The record of each row, ascending.
        failures: One for each record that failed, ascending.
        filtered: The records that a filter dropped, ascending.
        dropped: The records that give no row and have not failed, ascending: tombstones.
        destination: Name of the target that the rows are for.
        unknown_fields: Records that were decoded, by the path of a key that the schema does not name.
        needs: Changes of the table without which records were left out in part, or failed; each by a record's index.
        undecided: Of some records no stage says what became of them, see `Decoded.undecided`.
        changed: What steps have put in place of parts of the records, one entry for each row, see `Frame`.
        gone: Which rows have no value any more, see `jobs.records.transforms.transform.Rows`; None where none is so.
        warned: The records that broke a rule and land nevertheless, by the rule's name.
        routed: Of a stream with several tables of rows, those for each, by its name; `rows` are then those of no table.
        unnamed: Of one with a route, the records that wait for a table of their own, by the value that names it.
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
        """Records that no stage has seen: each is its own row."""
        return cls(records, records, np.arange(records.num_rows, dtype=np.int64), [], _NONE, destination, {})

    @property
    def is_whole(self) -> bool:
        """Whether every record has a row, which then has the record's index."""
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
        """The block behind a stage that looked at rows only, and counted from the first of them.

        Args:
            rows: The new ones.
            kept: Which rows of this block they were made of, ascending; without it, all.
            failures: By rows of this block.
            dropped: Likewise.
            unknown_fields: Met by the stage.
            needs: By rows of this block.
            undecided: The stage says nothing of the records but their needs.
            filtered: By rows of this block.
            changed: Of the new rows; without it those of this block are kept.
            gone: Likewise, where `changed` is given.
            warned: By rows of this block.
            routed: The rows for each of several tables, by records; without it, those that there are.
            unnamed: Those that wait for a table, by rows of this block.

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
        """What steps have changed, of some of the rows."""
        if not self.changed and self.gone is None:
            return self.changed, None
        indices = pa.array(np.arange(self.rows.num_rows)[kept], pa.int64())
        changed = {name: each.take(indices) for name, each in self.changed.items()}
        return changed, None if self.gone is None else self.gone.take(indices)

    @property
    def frame(self) -> Frame:
        """What Kafka keeps of the records of the rows, as steps left it."""
        return Frame(self.records, None if self.is_whole else self.positions, self.changed)

    def part(self, start: int, stop: int) -> Block:
        """Some of the rows, without what is known of other records."""
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
        """The block with what became of its parts, which are all of its rows in their order, in place of its rows."""
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
