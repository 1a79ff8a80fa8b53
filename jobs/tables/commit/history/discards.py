"""Discards: ranges of a branch's snapshots that an operator withdrew before publication, kept as a table property.

The rows stay in the branch's files and are written as dead letters as well. A discard is recorded before its dead
letters are written, and again once main is past it. Until then it is unfinished: nothing of the branch is published,
and the next discard finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from jobs.base.errors import FrazilError
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.branch import begin_property
from jobs.tables.commit.stamp.errors import damaged_property
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition

DISCARDS_PREFIX = "frazil.discards."
DISCARDED_KEY = "frazil.discarded"
"""Entry of the summary of main's snapshots: what a discard withdrew."""
FORMAT = 1
MOST_KEPT = 50
"""Most discards that are kept in full. Of older ones, only the range and the number of rows are kept."""


@dataclass(frozen=True, slots=True)
class Discard:
    """A range of unpublished snapshots that was discarded, or is about to be.

    Attributes:
        after: The snapshots have greater sequence numbers than this one.
        until: Sequence number of the last snapshot.
        ranges: Offsets that the batches read, by partition.
        at: Time of the decision, to the microsecond. It is the first-seen time of exactly the dead letters of this
            discard.
        reasons: What was wrong with the snapshots, a sentence each.
        letters: Dead letters that the discard wrote; None while it is unfinished.
    """

    id: str
    branch: str
    after: int
    until: int
    rows: int
    ranges: Ranges
    at: datetime
    by: str
    why: str
    reasons: tuple[str, ...] = ()
    letters: int | None = None

    @classmethod
    def forgotten(cls, branch: str, after: int, until: int, rows: int) -> Self:
        """An old discard, of which only the range and the number of rows are kept."""
        return cls("", branch, after, until, rows, {}, datetime.fromtimestamp(0, UTC), "", "", (), 0)

    @property
    def finished(self) -> bool:
        """Whether main is past the discard."""
        return self.letters is not None

    def has(self, sequence: int) -> bool:
        """Whether the snapshot of the branch with this sequence number is in the range."""
        return self.after < sequence <= self.until

    def as_json(self) -> dict[str, Any]:
        """The discard as JSON of the property."""
        return {
            "id": self.id,
            "branch": self.branch,
            "after": self.after,
            "until": self.until,
            "rows": self.rows,
            "ranges": [[p.topic, p.partition, *range_] for p, range_ in sorted(self.ranges.items())],
            "at": self.at.astimezone(UTC).isoformat(),
            "by": self.by,
            "why": self.why,
            "reasons": list(self.reasons),
            "letters": self.letters,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`."""
        return cls(
            said["id"],
            said["branch"],
            said["after"],
            said["until"],
            said["rows"],
            {TopicPartition(topic, n): OffsetRange(start, end) for topic, n, start, end in said["ranges"]},
            datetime.fromisoformat(said["at"]).astimezone(UTC),
            said["by"],
            said["why"],
            tuple(said["reasons"]),
            said["letters"],
        )


@dataclass(frozen=True, slots=True)
class Discards:
    """The discards of a stream, oldest first.

    Attributes:
        each: Discards that are kept in full; the last one may be unfinished.
        forgotten: Older ones, see `Discard.forgotten`, while their branch may hold the rows; empty if an earlier
            version wrote the property.
    """

    stream: str
    each: tuple[Discard, ...] = field(default=())
    forgotten: tuple[Discard, ...] = field(default=())

    @classmethod
    def of(cls, properties: Mapping[str, str], stream: str, table: str = "") -> Self:
        """Read the discards from a table's properties.

        Raises:
            FrazilError: The property has another format, or is damaged.
        """
        name = DISCARDS_PREFIX + stream
        try:
            text = whole_property(properties, name)
            return cls._of(msgspec.json.decode(text), stream, properties) if text else cls(stream)
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            meaning = (
                "Nobody knows then which rows of the branch were discarded: those that main is past stay out of it "
                "until it is rolled back, audits miss them there, and a discard that was not finished is none."
            )
            raise damaged_property(stream, table, name, problem, meaning) from None

    @classmethod
    def _of(cls, said: Mapping[str, Any], stream: str, properties: Mapping[str, str]) -> Self:
        if said["v"] != FORMAT:
            raise FrazilError(
                f"stream {stream}: the record of discards in its table is of format {said.get('v')!r}, not {FORMAT}: "
                "it was written by another version.",
                fix="use the version of frazil that did so last, or a newer one",
            )
        old = (Discard.forgotten(*one) for one in said.get("forgotten", ()))
        kept = tuple(each for each in old if each.until > _begin(properties, each.branch))
        return cls(stream, tuple(map(Discard.from_json, said["discards"])), kept)

    @property
    def unfinished(self) -> Discard | None:
        """The discard that main is not past; None if there is none."""
        return self.each[-1] if self.each and not self.each[-1].finished else None

    def on(self, branch: str) -> tuple[Discard, ...]:
        """The discards of a branch, the shortened ones as well."""
        return tuple(each for each in (*self.forgotten, *self.each) if each.branch == branch)

    def with_one(self, discard: Discard) -> Self:
        """These discards with another one, or with a newer version of the last one."""
        every = (*(each for each in self.each if each.id != discard.id), discard)
        forgotten = list(self.forgotten)
        for one in every[:-MOST_KEPT]:
            last, after, rows = forgotten[-1] if forgotten else None, one.after, one.rows
            if last is not None and (last.branch, last.until) == (one.branch, after):
                # Nothing was published in between, so one range covers both.
                forgotten.pop()
                after, rows = last.after, last.rows + rows
            forgotten.append(Discard.forgotten(one.branch, after, one.until, rows))
        return replace(self, each=every[-MOST_KEPT:], forgotten=tuple(forgotten))

    def refuse_unfinished(self) -> None:
        """Raise if a discard is unfinished."""
        if (one := self.unfinished) is not None:
            raise FrazilError(
                f"stream {self.stream}: {one.by} has decided to discard {one.rows:,} rows of branch {one.branch} "
                f"({one.why}), and not all of that is done. Nothing was published.",
                fix=f"frazil discard {self.stream}, which finishes it",
            )

    def as_property(self) -> dict[str, str]:
        """The table property with these discards."""
        said: dict[str, Any] = {"v": FORMAT, "discards": [each.as_json() for each in self.each]}
        if self.forgotten:
            said["forgotten"] = [[each.branch, each.after, each.until, each.rows] for each in self.forgotten]
        return {DISCARDS_PREFIX + self.stream: msgspec.json.encode(said).decode()}


def _begin(properties: Mapping[str, str], branch: str) -> int:
    """Sequence number behind which a branch's discards count: the branch was created or rebuilt there."""
    said = properties.get(begin_property(branch), "")
    return int(said) if said.isdigit() else 0


def is_discarded(discards: Iterable[Discard], sequence: int) -> bool:
    """Whether the snapshot of a branch with this sequence number is in one of the branch's discards."""
    return any(each.has(sequence) for each in discards)
