"""History of one offset on one table, by the ledger: which commits took it, and what became of them since. Pure.

The rows of the ledger are read as `jobs.verify.ledger_row` says. An offset may have been taken more than once: a stream
that was reset reads it again, a rollback takes rows out, and a topic that was deleted and created again gives the same
offset to another record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jobs.commit.offsets import TopicPartition
from jobs.verify.ledger_row import RETIRED, RETURNED, LedgerRow, effective_rows

_NEW_TOPIC, _CUT = "recreated_topic", "cut_topic"


@dataclass(frozen=True, slots=True)
class Passage:
    """A commit by which a table came past an offset.

    Attributes:
        row: Of the ledger: `batch` read it, `passed` left it out, `unknown` did one or the other.
        removed_by: The rollback that took the commit out of the table; None if it stands.
        ended_by: The answer after which the coordinates are another record's: the topic was created anew, its log was
            cut, or it is gone (`retired`); None if they are not.
        life: Which record of those coordinates it took: counts the answers of `ended_by` before it. 0 if removed.
    """

    row: LedgerRow
    removed_by: LedgerRow | None = None
    ended_by: str | None = None
    life: int = 0


@dataclass(frozen=True, slots=True)
class OffsetHistory:
    """What became of an offset on a table.

    Attributes:
        passages: In the order of the commits.
        past: Whether the table stands behind the offset; otherwise it is still to be read, perhaps again.
    """

    passages: tuple[Passage, ...]
    past: bool

    @property
    def landing(self) -> Passage | None:
        """The first commit that stands and took the record which the coordinates name last; None without one.

        Of a record that was read again all copies stand; this is the first of them.
        """
        standing = [each for each in self.passages if each.removed_by is None]
        newest = max((each.life for each in standing), default=0)
        its = [each for each in standing if each.life == newest]
        return next((each for each in its if each.row.kind == "batch"), its[0] if its else None)


@dataclass(slots=True)
class _Life:
    """The passages of one record: of one life of the topic, and of its log until it was cut."""

    passages: list[LedgerRow] = field(default_factory=list)
    ended_by: str | None = None


def offset_history(rows: Iterable[LedgerRow], partition: TopicPartition, offset: int) -> OffsetHistory:
    """The history of an offset.

    Args:
        rows: Of one `table_uuid`. Those of kind `batch` that do not hold the offset may be left out.
    """
    known = [row for row in rows if row.partition == partition or row.kind == "removed"]
    lives, past = [_Life()], False
    standing = effective_rows(known)
    for row in standing:
        holds = row.range.start <= offset < row.range.end
        if row.answer == RETURNED:
            # The same topic all the same: it goes on where it ended.
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
            # It had been moved back, by whom and when nobody knows.
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
    """The passages that rollbacks took out of the table."""
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
