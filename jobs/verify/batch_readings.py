"""Readings of offsets by batches, as all of the ledger tells them: an audit may have followed what is new alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.spec.models import StreamSpec
from jobs.verify.audit_ranges import RangeGroup, slice_of_range
from jobs.verify.audited_tables import AuditedTable
from jobs.verify.expected_rows import ExpectedRows, expected_rows
from jobs.verify.ledger_row import LedgerRow


class BatchReadings:
    """How often batches have read offsets.

    Args:
        spec: The stream.
        ledger: Gives all rows of the ledger of a table, by its name.
    """

    def __init__(self, spec: StreamSpec, ledger: Callable[[str], list[LedgerRow]]) -> None:
        self._spec: StreamSpec = spec
        self._ledger: Callable[[str], list[LedgerRow]] = ledger
        self._known: dict[str, list[ExpectedRows]] = {}

    def count(self, table: str, place: TopicPartition, range_: OffsetRange, uuid: str | None = None) -> np.ndarray:
        """How often each offset of a range was read for a table.

        Args:
            uuid: Only for the one of this uuid.
        """
        if (key := f"{table} {uuid}") not in self._known:
            rows = [row for row in self._ledger(table) if uuid in (None, row.table_uuid)]
            target = next(each for each in self._spec.targets if each.name == table)
            uuids = dict.fromkeys(row.table_uuid for row in rows)
            self._known[key] = [expected_rows(target, [r for r in rows if r.table_uuid == each]) for each in uuids]
        found = np.zeros(range_.end - range_.start, np.int16)
        for each in self._known[key]:
            found += landed_by(each.groups.get(place, []), range_)
        return found

    def allowed(
        self, audited: AuditedTable, place: TopicPartition, range_: OffsetRange, came: np.ndarray
    ) -> np.ndarray:
        """How often each offset may stand in a table that was parked: a replay brings the row of the reading in which
        letters held its place, another reading its own, and the coordinator has read for both.

        Args:
            came: The offsets of letters that a replay has brought a row of.
        """
        assert audited.table is not None, "its rows are counted"
        landed = self.count(audited.name, place, range_, str(audited.table.metadata.table_uuid))
        both = landed.copy()
        both[came - range_.start] += 1
        read = self.count(self._spec.coordinator, place, range_)
        return np.maximum(np.maximum(landed, np.minimum(both, read)), 1)


def landed_by(groups: list[RangeGroup], range_: OffsetRange) -> np.ndarray:
    """How often batches have read each offset for a table."""
    landed = np.zeros(range_.end - range_.start, np.int16)
    for group in groups:
        for batch in group.batches:
            if batch.range.start < range_.end and range_.start < batch.range.end:
                landed[slice_of_range(batch.range, range_.start)] += 1
    return landed
