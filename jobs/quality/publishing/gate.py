"""Gate of a stream's publications: what it lets pass, what it holds, and who decided, as a property of the table.

The gate's state is set by commits on main, which publications assert. Its generation rises with each decision of an
operator, so what was judged before one is not published after it.
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
# A sentence each; the check has all of it.
MOST_REASONS = 10
_NOT_EVALUATED = " could not be evaluated: "


def gate_property(stream: str) -> str:
    """The table property with the state of a stream's gate."""
    return GATE_PREFIX + stream


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was judged of an interval.

    Attributes:
        passed: Whether it may be published.
        reasons: Sentences, why it may not; or what else was found, if it may.
        judged_by: Changes with what it was judged by: a hash of the contract.
        rows: How many rows were looked at.
        unevaluated: Whether it may not be published for the sole reason that something could not be evaluated.
    """

    passed: bool
    reasons: tuple[str, ...] = ()
    judged_by: str = ""
    rows: int = 0
    unevaluated: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """An interval that is not published, since it was judged not to be fit.

    Attributes:
        after: Main has the branch through this sequence number.
        until: The interval's last sequence number; what came later waits behind it.
        rows: Of the interval.
        ranges: Its offsets.
        first_at: When its first rows were committed.
        since: When it was held first.
        reasons: Why.
        judged_by: See `Verdict`.
        unevaluated: See `Verdict`; then it is judged again each time.
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
        """What was judged of it."""
        return Verdict(False, self.reasons, self.judged_by, self.rows)

    @property
    def sentence(self) -> str:
        """How many rows are quarantined, since when, and the first reasons."""
        why = "; ".join(self.reasons[:2])
        return f"{self.rows:,} rows are quarantined since {self.since:%Y-%m-%d %H:%M} UTC: {why}"


def answers_to_held(stream: str) -> str:
    """The commands that go on with what a stream's gate holds."""
    return (
        f"frazil release {stream} --reason TEXT; or frazil discard {stream} --reason TEXT; or correct the contract, "
        f"then frazil publish {stream}"
    )


@dataclass(frozen=True, slots=True)
class Gate:
    """The state of a stream's gate.

    Attributes:
        generation: How many decisions operators have made.
        held: What is held; None if nothing is.
    """

    generation: int = 0
    held: Held | None = None

    def holding(self, interval: Interval, verdict: Verdict, now: datetime) -> Self:
        """The gate as it holds an interval; for how long it has done so is counted from the first time."""
        since = self.held.since if self.held and self.held.after == interval.after else now
        reasons = verdict.reasons[:MOST_REASONS]
        held = Held(
            *(interval.after, interval.until, interval.rows, interval.ranges, interval.first_at),
            *(since, reasons, verdict.judged_by, verdict.unevaluated),
        )
        return replace(self, held=held)

    def discarding(self, said: str) -> Self:
        """The gate once an operator has decided to discard something of what it holds, which is not done yet.

        Args:
            said: A sentence, shown before the reasons.
        """
        held = self.held and replace(self.held, reasons=(said, *self.held.reasons)[:MOST_REASONS])
        return replace(self, generation=self.generation + 1, held=held)

    def decided(self) -> Self:
        """The gate after an operator's decision about what was held."""
        return replace(self, generation=self.generation + 1, held=None)

    def open(self) -> Self:
        """The gate once what was held is published."""
        return replace(self, held=None)

    def still_holds(self, after: int, judged_by: str) -> bool:
        """Whether nothing has come up by which the interval after a sequence number might pass now.

        What could not be evaluated may be by now, whatever stood in its way.
        """
        held = self.held
        return held is not None and (held.after, held.judged_by, held.unevaluated) == (after, judged_by, False)

    def holds_as(self, interval: Interval, verdict: Verdict) -> bool:
        """Whether it holds an interval for the same reasons already, so that there is nothing to say of it anew."""
        held, reasons = self.held, verdict.reasons[:MOST_REASONS]
        if held is None or verdict.passed:
            return False
        return (held.after, held.judged_by, held.reasons) == (interval.after, verdict.judged_by, reasons)

    def to_json(self) -> str:
        """As the table property."""
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
        """The state that a table's properties tell; an open gate without any.

        Args:
            properties: Of the stream's table.

        Raises:
            FrazilError: It is of another version, or damaged.
        """
        name = gate_property(stream)
        try:
            text = whole_property(properties, name)
            return cls._of(msgspec.json.decode(text), stream) if text else cls()
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            meaning = f"The gate is open then, and `frazil publish {stream}` judges anew all that waits."
            raise damaged_property(stream, table, name, problem, meaning) from None

    @classmethod
    def _of(cls, said: Mapping[str, Any], stream: str) -> Self:
        if said["v"] != FORMAT:
            raise FrazilError(
                f"stream {stream}: the gate of its table is of format {said.get('v')!r}, not {FORMAT}: it was "
                "written by another version.",
                fix="publish with the version of frazil that did so last, or a newer one",
            )
        held = said.get("held")
        return cls(said["generation"], _held(held) if held else None)

    @classmethod
    def standing(cls, metadata: TableMetadata, stream: str, branch: str, table: str = "") -> Self:
        """The state with what is held, as long as that stands on a branch.

        Once the branch was moved back behind it, or made again, other rows may stand there after the same snapshot, of
        which nothing was judged.

        Args:
            metadata: The table's own, not as a branch has it.

        Raises:
            FrazilError: It is of another version, or damaged.
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
    # An earlier release did not note it, but for what it said.
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
