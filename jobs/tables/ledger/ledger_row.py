"""Row of the ledger: what became of one range of one partition on one table, as a stamp said it.

How to read the rows of one stream on one table (`table_uuid`), in the order that the ledger gives them in:

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
rows before the reset are back, and the table goes on where the reset had led it.
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

# What is noted of topics that are gone, and back.
RETIRED, RETURNED = "retired", "returned"

# The partition of rows that concern the whole table.
WHOLE_TABLE = TopicPartition("", -1)
NO_RANGE = OffsetRange(0, 0)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One range of one partition, on one target; see the module for how rows follow each other.

    Attributes:
        table: The target's full name; a stream's sink and its dead letters have rows of their own.
        table_uuid: Iceberg's identity of it: rows of a table that was dropped say nothing of its successor.
        kind: See the module.
        anchor: Whether the table is the stream's anchor, whose counts are of all records of the range.
        partition: Or `WHOLE_TABLE`: a `noted` answer; or the sum for all ranges of the same commit and kind whose own
            counts are not known, so that a sum over rows counts nothing twice.
        sequence: Iceberg's sequence number of the commit: rows of one table are in its order.
        range: Next offsets: from where this target stood to where it stands.
        counts: With `batch`, of the records in the range; None if not known for this partition alone.
        answer: What an operator decided, `retired` or `returned`; None if the stamp is of a version that did not say.
        note: Who decided it, and why.
        since: With `removed`: see the module.
        elsewhere: Landed records of a stream with a route of which the anchor's table got no row itself.
        late: On the first row of a commit, all its rows that came behind the watermark, by the begin of the hour or day
            that they are of, in milliseconds since 1970.
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
        """Rows that the table got, of a role; None if that is not known."""
        return None if self.counts is None else self.counts.rows(role) - self.elsewhere

    @property
    def place(self) -> tuple[object, ...]:
        """What rows are sorted by."""
        effect = -1 if self.answer == RETURNED else KINDS.index(self.kind)
        return (self.stream, self.table, self.table_uuid, self.sequence, effect, *self.partition)


def effective_rows(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """The rows that say what is in the tables: without those that a rollback made void, and the `removed` ones.

    A rollback may itself have been taken back by a later one, so the newest is heard first.
    """
    # Not by name: a table that was renamed has rows under both.
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
