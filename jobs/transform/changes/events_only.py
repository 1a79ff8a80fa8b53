"""Events only: records that say nothing of a row are left out before their keys are read.

The keys of heartbeats, of transactions and of messages are other ones than those of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jobs.transform.changes.debezium_events import event_problem, events_of
from jobs.transform.columns import Columns
from jobs.transform.transform import Applied, Rows, Transform, settled


@dataclass(frozen=True, slots=True)
class EventsOnly(Transform):
    """Debezium's records without those that say nothing of a row; what is no event at all is refused.

    Attributes:
        documents: Whether rows are documents of MongoDB.
    """

    name: ClassVar[str] = "changes"
    documents: bool = False

    def output(self, columns: Columns) -> Columns:
        """The same columns."""
        event_problem(columns, documents=self.documents)
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Rows stay as they are."""
        events = events_of(rows)
        return settled(rows, events.failures, events.filtered)
