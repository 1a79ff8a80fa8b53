"""Row of the ledger: the fate of one offset range of one partition on one table, by a stamp.

Rules for the rows of one stream on one table (`table_uuid`), in the ledger's order:

1. A `removed` row says that main was moved back to the sequence number `since`. Every row with a greater sequence than
   that, and a smaller one than its own, is void: it says nothing of the table any more. `effective_rows` leaves
   them out.
2. What stands, on the **anchor**, moves each partition along, all offsets being next offsets:

   - `batch` [a, b): the table stood at a and stands at b. It holds `counts.landed` rows of it more than before.
   - `passed` [a, b): it stands at b; no row came.
   - `again` [a, b): it stood at b, or further before a rollback, and stands at a. Rows that standing `batch` rows
     brought stay, so that what is read a second time stands in the table twice, and is meant to.
   - `unknown` [a, b): the stamps that said what became of it had expired before they were filled in. If a > where the
     table stood, records may have landed; if b is where it stood, it had been moved back to a. `counts` is None.
   - `noted`: an operator's answer that concerns no range of this table; or a topic that was retired, or returned.

   So where the table stands after a row is where the next one of the partition has to begin; otherwise records were
   lost or doubled. Free to begin anywhere: the first row of a partition, and the next one after an `again` of
   `recreated_topic`, whose range is of the former topic, or after a `noted` of `retired`, unless one of `returned`
   follows, before all else of its commit: it is the same topic, and stands where it did. Else a topic just ends.
3. The **dead letters** are stamped only when rows come, so their ranges leave gaps, in which there are none. Only
   `batch` rows bring rows: `counts.dead`, which is `counts.read` too.

An operator's answers, by `answer`:

==================== =================================================================================================
lost_offsets         `passed`: what Kafka no longer kept; on the dead letters what they alone lacked.
lost_topic           `passed`: from where the table stood to the topic's last known end. The topic is retired.
recreated_topic      `again` [0, b): the former topic was read up to b. The new one's records come at the same
                     coordinates as rows that stay.
cut_topic            `again` [a, b): the log of the same topic ended at a, before the position b; others come there.
recreated_table      `noted` on the table that is still there. The new one has another uuid and rows of its own.
rollback_keep        `removed`, then `passed`: the rows are gone and do not come again.
rollback_reland      `removed`, then `again`: the rows are gone and come once more. `noted` on the other tables.
retired              `noted` [0, b) on the anchor, and nobody's answer: the topic was gone, and read whole up to b.
returned             `noted` [0, b) on the anchor, nobody's answer either: the retired topic is back, with the same id.
reset                `passed` where it skipped, `again` where it went back. On the dead letters only `again`, which
                     comes before the anchor's and is in force only with that.
==================== =================================================================================================

A rollback to after a reset was undone may have it the other way round, `removed` then `again` for `rollback_keep`: the
rows before the reset exist again, and the table goes on where the reset had put it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from jobs.config.values.targets import Role
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts

# In the order in which the rows of one commit take effect.
Kind = Literal["unknown", "noted", "removed", "passed", "again", "batch"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Answers of `noted` rows about dropped topics, and about topics that exist again.
RETIRED, RETURNED = "retired", "returned"

# Partition of rows about the whole table.
WHOLE_TABLE = TopicPartition("", -1)
NO_RANGE = OffsetRange(0, 0)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One range of one partition, on one target; the module's docstring has the rules of their order.

    Attributes:
        table: Full name of the target; the stream's main table and its dead letters have rows of their own.
        table_uuid: Uuid of the table: rows of a dropped table do not apply to its successor.
        kind: Effect of the row, see the module.
        anchor: Whether the table is the stream's coordinator, whose counts cover all records of the range.
        partition: `WHOLE_TABLE` for a `noted` answer, or for the sum of all ranges of a commit and kind whose own
            counts are not known, so that a sum over rows counts nothing twice.
        sequence: Sequence number of the commit; rows of one table are in its order.
        range: Next offsets: from the target's former position to its new one.
        counts: For `batch`, the records in the range; None if not known for this partition alone.
        answer: The operator's decision, `retired` or `returned`; None if the stamp's version did not record it.
        note: Author and reason.
        since: For `removed`: see the module.
        elsewhere: Landed records of a stream with a route that have no row in the coordinator itself.
        late: On the first row of a commit, all its rows behind the watermark, by the start of their hour or day in
            milliseconds since 1970.
    """

    stream: str
    table: str
    table_uuid: str
    anchor: bool
    kind: Kind
    partition: TopicPartition
    range: OffsetRange
    epoch: int
    batch: int
    sequence: int
    snapshot_id: int
    committed_at: datetime
    config: str
    generation: str = ""
    counts: Counts | None = None
    answer: str | None = None
    note: str | None = None
    since: int | None = None
    elsewhere: int = 0
    late: Mapping[int, int] | None = None

    def rows(self, role: Role) -> int | None:
        """Number of rows that the table received in a role; None if unknown."""
        return None if self.counts is None else self.counts.rows(role) - self.elsewhere

    @property
    def place(self) -> tuple[object, ...]:
        """Sort key of rows."""
        effect = -1 if self.answer == RETURNED else KINDS.index(self.kind)
        return (self.stream, self.table, self.table_uuid, self.sequence, effect, *self.partition)


def effective_rows(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """Rows that describe the table's content: without the rows that a rollback made void, and without `removed` ones.

    A later rollback may have undone an earlier one, so the newest applies first.
    """
    # Sorted by uuid: a renamed table has rows under both names.
    ordered = sorted(rows, key=lambda row: (row.stream, row.table_uuid, *row.place[3:]))
    stand: list[LedgerRow] = []
    of: tuple[str, str] | None = None
    bound: tuple[int, int] | None = None
    for row in reversed(ordered):
        if of != (row.stream, row.table_uuid):
            of, bound = (row.stream, row.table_uuid), None
        if bound and bound[0] < row.sequence < bound[1]:
            continue
        if row.kind == "removed":
            bound = (row.since or 0, row.sequence)
        else:
            stand.append(row)
    return stand[::-1]
