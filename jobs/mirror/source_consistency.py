"""Consistency of a mirror with its source: what a check came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WrongKey:
    """A key of which mirror and source say different things.

    Attributes:
        what: `missing` in the mirror, `extra` there, or `different`.
        key: Its values, as people read them.
        columns: The columns that differ, of rows that both have.
        certain: Whether no change that is on its way can be the reason.
    """

    what: str
    key: Mapping[str, str]
    columns: tuple[str, ...]
    certain: bool


@dataclass(frozen=True, slots=True)
class SourceConsistency:
    """What a check of a mirror against its source came to.

    Attributes:
        table: The mirror.
        source: The connection, and the table there.
        looked_at: How many buckets of `BUCKETS` were compared.
        source_rows, mirror_rows: Rows in them.
        position: What was compared was committed at the source before this place of its log.
        reached: Through which place the mirror has everything, at the last look; None: nobody can say.
        behind: Whether the source showed less than the mirror had at the last look, so that nothing is certain.
        wrong: Keys that are wrong, by what they are: `missing`, `extra`, `different`.
        unsettled: Keys that disagreed to the end, while changes may be on their way; likewise.
        again: Keys that were looked at again.
        unread: Rows of leaves that disagree and were not looked at one by one, and keys that were not looked at again.
        examples: The first of those, wrong ones before others.
        compared: The columns that were compared.
        left_out: Columns that were not, each with the reason.
    """

    table: str
    source: str
    looked_at: int
    source_rows: int
    mirror_rows: int
    position: int
    reached: int | None
    behind: bool
    wrong: Mapping[str, int]
    unsettled: Mapping[str, int]
    again: int
    unread: int
    examples: tuple[WrongKey, ...]
    compared: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def agrees(self) -> bool:
        """Whether every key agrees."""
        return not self.wrong and not self.unsettled and not self.unread
