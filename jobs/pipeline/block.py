"""Block of records on its way through a pipeline: what was read, the rows made of it so far, and what gave none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.formats.decoder import Failure
from jobs.schema.needs import Need

Indices = npt.NDArray[np.int64]

_NONE: Indices = np.zeros(0, np.int64)
_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Block:
    """Records and what became of them: `positions`, the rows of `failures` and `dropped` are indices of records.

    Attributes:
        records: As they were read: value, topic, partition, offset and timestamp.
        rows: One for each record that has neither failed nor been dropped. Of any columns where there is none.
        positions: The record of each row, ascending.
        failures: One for each record that failed, ascending.
        dropped: The records that give no row and have not failed, ascending: tombstones.
        destination: Name of the target that the rows are for.
        unknown_fields: Records that were decoded, by the path of a key that the schema does not name.
        needs: Changes of the table without which records were left out in part, or failed; each by a record's index.
        undecided: Of some records no stage says what became of them, see `Decoded.undecided`.
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
        """
        at = self.positions
        moved = list(failures) if self.is_whole else [failure.at(int(at[failure.row])) for failure in failures]
        return Block(
            self.records,
            rows,
            at[kept],
            _ascending([*self.failures, *moved]) if self.failures else moved,
            np.sort(np.concatenate([self.dropped, at[dropped]])) if len(self.dropped) else at[dropped],
            self.destination,
            _summed([self.unknown_fields, unknown_fields or {}]),
            (*self.needs, *(need.at(int(at[need.row])) for need in needs)),
            self.undecided or undecided,
        )

    def part(self, start: int, stop: int) -> Block:
        """Some of the rows, without what is known of other records."""
        return replace(
            self,
            rows=self.rows.slice(start, stop - start),
            positions=self.positions[start:stop],
            failures=[],
            dropped=_NONE,
            unknown_fields={},
            needs=(),
        )

    def replaced_by(self, parts: Sequence[Block]) -> Block:
        """The block with what became of its parts, which are all of its rows in their order, in place of its rows."""
        filled = [part.rows for part in parts if part.rows.num_rows] or [parts[0].rows]
        return replace(
            self,
            rows=pa.concat_batches(filled),
            positions=np.concatenate([part.positions for part in parts]),
            failures=_ascending([*self.failures, *(failure for part in parts for failure in part.failures)]),
            dropped=np.sort(np.concatenate([self.dropped, *(part.dropped for part in parts)])),
            unknown_fields=_summed([self.unknown_fields, *(part.unknown_fields for part in parts)]),
            needs=(*self.needs, *(need for part in parts for need in part.needs)),
            undecided=self.undecided or any(part.undecided for part in parts),
        )


def _ascending(failures: list[Failure]) -> list[Failure]:
    return sorted(failures, key=lambda failure: failure.row)


def _summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for path, count in each.items():
            found[path] = found.get(path, 0) + count
    return found
