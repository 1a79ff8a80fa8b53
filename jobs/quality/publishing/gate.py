"""State of a stream's write-audit-publish: the quarantine and operators' decisions, as a property of the table.

Commits on main set the state, and publications assert it. Its generation rises with each decision of an operator, so
that snapshots judged before a decision are not published after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

import msgspec
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.quality.publishing.interval import Interval, landed_snapshots
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.stamp.errors import damaged_property
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

GATE_PREFIX = "frazil.gate."
FORMAT = 1
# Each is a sentence; the check has all of them.
MOST_REASONS = 10
_NOT_EVALUATED = " could not be evaluated: "


def gate_property(stream: str) -> str:
    """Name of the table property with a stream's write-audit-publish state."""
    return GATE_PREFIX + stream


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on unpublished snapshots.

    Attributes:
        passed: Whether they may be published.
        reasons: Reasons against it, as sentences; or other findings if they may.
        judged_by: Digest of the contract.
        rows: Number of judged rows.
        unevaluated: Whether the only reason against it is that something could not be evaluated.
    """

    passed: bool
    reasons: tuple[str, ...] = ()
    judged_by: str = ""
    rows: int = 0
    unevaluated: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Quarantined snapshots, which were judged unfit to publish.

    Attributes:
        after: Sequence number through which main has the branch.
        until: Sequence number of the last quarantined snapshot; later ones wait behind it.
        rows: Number of their rows.
        ranges: Their offsets.
        first_at: Commit time of the first rows.
        since: Start of the quarantine.
        reasons: Reasons.
        judged_by: See `Verdict`.
        unevaluated: See `Verdict`; such snapshots are judged again each time.
    """

    after: int
    until: int
    rows: int
    ranges: Mapping[TopicPartition, OffsetRange]
    first_at: datetime | None
    since: datetime
    reasons: tuple[str, ...]
    judged_by: str
    unevaluated: bool = False

    @property
    def verdict(self) -> Verdict:
        """Verdict on them."""
        return Verdict(False, self.reasons, self.judged_by, self.rows)

    @property
    def sentence(self) -> str:
        """How many rows are quarantined, since when, and the first reasons."""
        why = "; ".join(self.reasons[:2])
        return f"{self.rows:,} rows are quarantined since {self.since:%Y-%m-%d %H:%M} UTC: {why}"


def answers_to_held(stream: str) -> str:
    """Commands that resolve a stream's quarantine."""
    return (
        f"frazil release {stream} --reason TEXT; or frazil discard {stream} --reason TEXT; or correct the contract, "
        f"then frazil publish {stream}"
    )


@dataclass(frozen=True, slots=True)
class Gate:
    """State of a stream's write-audit-publish.

    Attributes:
        generation: Number of operators' decisions.
        held: Quarantined snapshots; None without any.
    """

    generation: int = 0
    held: Held | None = None

    def holding(self, interval: Interval, verdict: Verdict, now: datetime) -> Self:
        """The state with quarantined snapshots; their time counts from the first quarantine."""
        since = self.held.since if self.held and self.held.after == interval.after else now
        reasons = verdict.reasons[:MOST_REASONS]
        held = Held(
            *(interval.after, interval.until, interval.rows, interval.ranges, interval.first_at),
            *(since, reasons, verdict.judged_by, verdict.unevaluated),
        )
        return replace(self, held=held)

    def discarding(self, said: str) -> Self:
        """The state after an operator's unfinished decision to discard quarantined snapshots.

        Args:
            said: A sentence, shown before the reasons.
        """
        held = self.held and replace(self.held, reasons=(said, *self.held.reasons)[:MOST_REASONS])
        return replace(self, generation=self.generation + 1, held=held)

    def decided(self) -> Self:
        """The state after an operator's decision about the quarantine."""
        return replace(self, generation=self.generation + 1, held=None)

    def open(self) -> Self:
        """The state after the quarantined snapshots are published."""
        return replace(self, held=None)

    def still_holds(self, after: int, judged_by: str) -> bool:
        """Whether nothing has changed by which the snapshots after a sequence number might pass now.

        What could not be evaluated may be evaluable by now, whatever prevented it.
        """
        held = self.held
        return held is not None and (held.after, held.judged_by, held.unevaluated) == (after, judged_by, False)

    def holds_as(self, interval: Interval, verdict: Verdict) -> bool:
        """Whether the snapshots are quarantined for the same reasons already, so that nothing needs to be recorded."""
        held, reasons = self.held, verdict.reasons[:MOST_REASONS]
        if held is None or verdict.passed:
            return False
        return (held.after, held.judged_by, held.reasons) == (interval.after, verdict.judged_by, reasons)

    def to_json(self) -> str:
        """Text of the table property."""
        said: dict[str, Any] = {"v": FORMAT, "generation": self.generation}
        if (held := self.held) is not None:
            said["held"] = {
                "after": held.after,
                "until": held.until,
                "rows": held.rows,
                "ranges": [[p.topic, p.partition, *range_] for p, range_ in sorted(held.ranges.items())],
                "first": held.first_at.isoformat() if held.first_at else None,
                "since": held.since.isoformat(),
                "reasons": list(held.reasons),
                "by": held.judged_by,
                **({"unevaluated": True} if held.unevaluated else {}),
            }
        return msgspec.json.encode(said).decode()

    @classmethod
    def of(cls, properties: Mapping[str, str], stream: str, table: str = "") -> Self:
        """State in a table's properties; open without any.

        Args:
            properties: Properties of the stream's table.

        Raises:
            FrazilError: The property has another format, or is damaged.
        """
        name = gate_property(stream)
        try:
            text = whole_property(properties, name)
            return cls._of(msgspec.json.decode(text), stream) if text else cls()
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            meaning = (
                f"Nothing is quarantined then, and `frazil publish {stream}` checks all unpublished snapshots again."
            )
            raise damaged_property(stream, table, name, problem, meaning) from None

    @classmethod
    def _of(cls, said: Mapping[str, Any], stream: str) -> Self:
        if said["v"] != FORMAT:
            raise FrazilError(
                f"stream {stream}: the publishing state of its table is of format {said.get('v')!r}, not {FORMAT}: it "
                "was written by another version.",
                fix="publish with the version of frazil that did so last, or a newer one",
            )
        held = said.get("held")
        return cls(said["generation"], _held(held) if held else None)

    @classmethod
    def standing(cls, metadata: TableMetadata, stream: str, branch: str, table: str = "") -> Self:
        """State with the quarantined snapshots, if they are still on a branch.

        If the branch was moved back or recreated, other rows may follow the same snapshot, which nobody has judged.

        Args:
            metadata: The table's whole metadata, not seen from a branch.

        Raises:
            FrazilError: The property has another format, or is damaged.
        """
        gate = cls.of(metadata.properties, stream, table)
        held, ref = gate.held, metadata.refs.get(branch)
        if held is None:
            return gate
        along = list(ancestors(metadata, ref.snapshot_id)) if ref else []
        within = [each for each in along if held.after < (each.sequence_number or 0) <= held.until]
        # Newest first.
        stands = within and within[0].sequence_number == held.until and landed_snapshots(within, stream)
        return gate if stands else gate.open()


def _held(said: Mapping[str, Any]) -> Held:
    reasons = tuple(said["reasons"])
    # An earlier release recorded it in its sentences only.
    formerly = bool(reasons) and all(_NOT_EVALUATED in each for each in reasons)
    return Held(
        said["after"],
        said["until"],
        said["rows"],
        {TopicPartition(topic, n): OffsetRange(start, end) for topic, n, start, end in said["ranges"]},
        datetime.fromisoformat(said["first"]) if said["first"] else None,
        datetime.fromisoformat(said["since"]).astimezone(UTC),
        reasons,
        said["by"],
        said.get("unevaluated", formerly),
    )
