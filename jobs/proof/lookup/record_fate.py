"""Fate of a record: row, dead letter, neither or not read, by the ledger and the tables. Pure functions.

An offset may have been taken more than once: a reset stream reads it again, a rollback removes rows, and a recreated
topic gives the same offset to another record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_row import (
    RETIRED,
    RETURNED,
    LedgerRow,
    effective_rows,
)

_NEW_TOPIC, _CUT = "recreated_topic", "cut_topic"


@dataclass(frozen=True, slots=True)
class Passage:
    """A commit by which a table passed an offset.

    Attributes:
        row: Row of the ledger: `batch` read it, `passed` left it out, `unknown` did one of these.
        removed_by: Rollback that removed the commit from the table; None if it still counts.
        ended_by: Answer after which the coordinates belong to another record: the topic was recreated, cut, or dropped
            (`retired`); None without one.
        life: Which record of those coordinates it took, as the number of earlier `ended_by` answers. 0 if removed.
    """

    row: LedgerRow
    removed_by: LedgerRow | None = None
    ended_by: str | None = None
    life: int = 0


@dataclass(frozen=True, slots=True)
class OffsetHistory:
    """Fate of an offset on a table.

    Attributes:
        passages: Passages in commit order.
        past: Whether the table is past the offset; otherwise it is still to be read, perhaps again.
    """

    passages: tuple[Passage, ...]
    past: bool

    @property
    def landing(self) -> Passage | None:
        """First existing commit that took the latest record of the coordinates; None without one.

        If a record was read again, all copies exist; this is the first of them.
        """
        standing = [each for each in self.passages if each.removed_by is None]
        newest = max((each.life for each in standing), default=0)
        its = [each for each in standing if each.life == newest]
        return next((each for each in its if each.row.kind == "batch"), its[0] if its else None)


@dataclass(slots=True)
class _Life:
    """Passages of one record: of one incarnation of the topic and its log."""

    passages: list[LedgerRow] = field(default_factory=list)
    ended_by: str | None = None


def offset_history(rows: Iterable[LedgerRow], partition: TopicPartition, offset: int) -> OffsetHistory:
    """History of an offset.

    Args:
        rows: Rows of one `table_uuid`. `batch` rows without the offset may be left out.
    """
    known = [row for row in rows if row.partition == partition or row.kind == "removed"]
    lives, past = [_Life()], False
    standing = effective_rows(known)
    for row in standing:
        holds = row.range.start <= offset < row.range.end
        if row.answer == RETURNED:
            # It is the same topic nevertheless, and goes on where it ended.
            if len(lives) > 1 and lives[-2].ended_by == RETIRED and not lives[-1].passages:
                lives.pop()
                lives[-1].ended_by = None
            past = offset < row.range.end
        elif row.kind == "noted" and row.answer == RETIRED:
            lives, past = _ended(lives, RETIRED), False
        elif row.answer == _NEW_TOPIC and row.kind == "again":
            lives, past = _ended(lives, _NEW_TOPIC), False
        elif row.kind == "again":
            if row.range.start <= offset:
                past = False
                if row.answer == _CUT:
                    lives = _ended(lives, _CUT)
        elif row.kind == "unknown" and holds and past:
            # It had been moved back, by an unknown author at an unknown time.
            past = False
        elif row.kind in ("batch", "passed", "unknown") and holds:
            lives[-1].passages.append(row)
            past = True
    passages = [Passage(row, None, life.ended_by, n) for n, life in enumerate(lives) for row in life.passages]
    passages += _removed(known, standing, offset)
    return OffsetHistory(tuple(sorted(passages, key=lambda each: each.row.sequence)), past)


def _ended(lives: list[_Life], by: str) -> list[_Life]:
    lives[-1].ended_by = by
    return [*lives, _Life()]


def _removed(known: list[LedgerRow], standing: list[LedgerRow], offset: int) -> list[Passage]:
    """Passages that rollbacks removed from the table."""
    stand = {id(row) for row in standing}
    rollbacks = sorted((row for row in known if row.kind == "removed"), key=lambda row: row.sequence)
    found: list[Passage] = []
    for row in known:
        if row.kind not in ("batch", "passed") or id(row) in stand or not row.range.start <= offset < row.range.end:
            continue
        by = next((each for each in rollbacks if (each.since or 0) < row.sequence < each.sequence), None)
        if by is not None:
            found.append(Passage(row, by))
    return found


Fate = Literal[
    "row",
    "dead_letter",
    "parked",
    "tombstone",
    "filtered",
    "no_record",
    "undecided",
    "passed_over",
    "unknown",
    "removed",
    "former",
    "not_read",
    "before_beginning",
    "never_read",
    "gap",
]
"""Fate of a record.

`undecided`: several of the first six are possible, see `RecordFate.possible`. `parked`: only dead letters for tables
that are or were suspended have it.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What the tables have at the coordinates of a record.

    Attributes:
        rows: Rows of the stream's table in the looked-up snapshot; None if its rows lack coordinates, or nothing could
            be read.
        letters: Dead letters of the batch that took the record; None without a table.
        exact: Whether the snapshot is the batch's: a later one may lack deleted rows.
        letters_gone: Whether dead letters have been deleted by age.
    """

    rows: int | None = None
    letters: int | None = None
    exact: bool = True
    letters_gone: bool = False


@dataclass(frozen=True, slots=True)
class RecordFate:
    """Fate of a record.

    Attributes:
        possible: Possible fates, if `undecided`.
        deleted: Whether the batch counted it and the tables lack it, so that somebody has deleted it since.
        expired: Whether it was a change of a changelog and expired (`changes.keep`).
    """

    fate: Fate
    possible: tuple[Fate, ...] = ()
    deleted: bool = False
    expired: bool = False


def batch_fate(counts: Counts | None, span: int, found: Found) -> RecordFate:
    """Fate of a record that a batch took.

    Args:
        counts: Counts of the batch for its partition; None if not known for this partition alone.
        span: Offsets that it passed, more than it read if the log has holes.
    """
    if found.letters:
        return RecordFate("dead_letter")
    if found.rows:
        return RecordFate("row")
    row_excluded = found.rows == 0 and found.exact
    letter_excluded = found.letters == 0 and not found.letters_gone
    some = Counts(span, span, span, span, span) if counts is None else counts
    holes = counts is None or counts.read < span
    maybe: dict[Fate, bool] = {
        "row": bool(some.landed) and not row_excluded,
        "dead_letter": bool(some.dead) and not letter_excluded,
        "tombstone": bool(some.tombstones),
        "filtered": bool(some.filtered),
        "no_record": holes,
    }
    left: list[Fate] = [fate for fate, may_be in maybe.items() if may_be]
    if not left:
        counted: dict[Fate, int] = {"row": some.landed, "dead_letter": some.dead}
        gone: tuple[Fate, ...] = tuple(fate for fate, count in counted.items() if count)
        return RecordFate(gone[0] if len(gone) == 1 else "undecided", gone, deleted=True)
    if len(left) == 1:
        # All records of the batch had this fate, or all others are excluded.
        seen = found.rows == 0 if left[0] == "row" else found.letters == 0 if left[0] == "dead_letter" else False
        return RecordFate(left[0], deleted=seen)
    return RecordFate("undecided", tuple(left))


def unlanded_fate(history: OffsetHistory, offset: int, first: int | None, position: int | None) -> Fate | None:
    """Fate of a record that no existing batch took; None if one did.

    Args:
        first: Least offset that the stream passed in the partition; None if it never read it.
        position: Position of the stream; None without one.
    """
    landing = history.landing
    if landing is not None and landing.ended_by in ("recreated_topic", "cut_topic"):
        # The present record at the coordinates is not read yet.
        return "former"
    if landing is not None:
        return None if landing.row.kind == "batch" else "unknown" if landing.row.kind == "unknown" else "passed_over"
    if history.passages:
        return "removed"
    if first is None and position is None:
        return "never_read"
    begins = first if first is not None else position or 0
    if offset >= max(position if position is not None else 0, begins):
        return "not_read"
    return "before_beginning" if offset < begins else "gap"


def sentence(fate: RecordFate, landing: Passage | None, position: int | None, first: int | None) -> str:
    """Sentence about the record's fate, to follow `… offset 17`."""
    row = landing.row if landing else None
    match fate.fate:
        case "row":
            if fate.expired:
                return "became a row, a change that has expired since (changes.keep)"
            return "became a row, which was deleted since" if fate.deleted else "is a row"
        case "dead_letter":
            return "became a dead letter, which was deleted since" if fate.deleted else "is a dead letter"
        case "parked":
            return "is in no table yet: it is a dead letter for a table that is or was suspended"
        case "tombstone":
            return "is a tombstone: a record without a value, which becomes no row"
        case "filtered":
            return "was filtered out"
        case "no_record":
            return "is no record: a transaction marker, or a record that was aborted or compacted"
        case "undecided":
            words = {"tombstone": "a tombstone", "filtered": "filtered out", "no_record": "no record at all"}
            words |= {"row": "a row", "dead_letter": "a dead letter"}
            which = " or ".join(words[each] for each in fate.possible)
            return f"became {which}, which was deleted since" if fate.deleted else f"is {which}: its batch had both"
        case "passed_over":
            why = f": {row.answer.replace('_', ' ')}" if row and row.answer else ""
            who = f", {row.note}" if row and row.note else ""
            return f"was passed over by an operator's answer{why}{who}"
        case "unknown":
            return "was landed or passed over by a commit whose stamp had expired before it was noted"
        case "removed":
            return "was landed, and taken out of the table by a rollback"
        case "former":
            return "is not read yet; another record had these coordinates before"
        case "not_read":
            return f"is not read yet; the stream stands at {position if position is not None else first}"
        case "before_beginning":
            return f"lies before the stream's beginning, {first if first is not None else position}"
        case "gap":
            return "was read by no batch, though the stream stands behind it"
        case _:
            return "is of a partition that the stream never read"
