"""Reset of a stream's positions by an operator: pure decisions on stamps; nothing is committed here.

Each target's stamp can hold a position up (see `target_positions`). So a reset takes three commits, and only the last
one moves the stream. If the process is killed earlier, the old positions stay in force entirely.

1. The coordinator's stamp records that every target is complete where the stream stands (`start = position`, no rows).
2. Every other target takes, per partition, the lower of the old and the new position. The coordinator holds the old one
up. 3. The coordinator takes the new position, as `start` too. A raised position then counts on every target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jobs.base.errors import FrazilError
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    TopicPartition,
    describe_ranges,
)
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import NewestStamps, target_positions

# A stamp is carried by every later snapshot's metadata, so its note stays short.
_NAMED_IN_NOTE = 10
# Between an operator's note and the offsets that a reset moved.
RESET_NOTE = " · offsets reset: "


class ResetRefusedError(FrazilError):
    """The stream's position cannot be moved there, or not now.

    Safe: Nothing was changed.
    Next: the command that the message names; then `frazil reset-offsets S` again
    """


@dataclass(frozen=True, slots=True)
class ResetMove:
    """What a reset does to one partition; all offsets are offsets of the next record.

    Attributes:
        before: The stream's offset; where it would begin, if it does not know the partition yet.
        after: Offset at which the stream is to go on.
        kept: Offsets that Kafka keeps now.
    """

    partition: TopicPartition
    before: int
    after: int
    kept: OffsetRange

    @property
    def skipped(self) -> int:
        """Number of offsets that are passed over."""
        return max(0, self.after - self.before)

    @property
    def again(self) -> int:
        """Number of offsets that are read a second time."""
        return max(0, self.before - self.after)

    @property
    def range(self) -> OffsetRange:
        """Offsets that are passed over or read again."""
        return OffsetRange(min(self.before, self.after), max(self.before, self.after))

    @property
    def gone(self) -> int:
        """Number of offsets of the range that Kafka no longer keeps: lost before, and passed over now."""
        return max(0, min(self.range.end, self.kept.start) - self.range.start)


def complete_positions(
    stream: str, stamps: NewestStamps, anchor: str, former: NewestStamps | None = None
) -> dict[TopicPartition, int]:
    """Positions of a stream that is to be reset, if all its targets agree.

    Args:
        former: Tables that the stream wrote under an earlier configuration.

    Raises:
        ResetRefusedError: A batch, or an answer of `frazil accept`, has reached some targets only.
    """
    if stamps.get(anchor) is None:
        raise ResetRefusedError(
            f"stream {stream}: it has never run, so there is no position to move.",
            fix="say where it starts in source.start of its file",
        )
    half = half_committed({**(former or {}), **stamps}, anchor)
    positions = target_positions(stamps, anchor)
    different = {
        partition: OffsetRange(at, positions[anchor].get(partition, at))
        for name, each in positions.items()
        for partition, at in each.items()
        if positions[anchor].get(partition) != at
    }
    if half or different:
        raise ResetRefusedError(
            f"stream {stream}: its tables are not all at the same position: "
            f"{describe_ranges(half.ranges if half else different)} is in some of them only.",
            fix=f"frazil run {stream}, which completes them; then reset the offsets",
        )
    return positions[anchor]


def reset_moves(
    stream: str, known: Positions, log: LogState, wanted: Mapping[TopicPartition, int]
) -> tuple[ResetMove, ...]:
    """Moves for the offsets that a reset asks for.

    Args:
        wanted: New offsets of existing partitions.

    Raises:
        ResetRefusedError: Kafka has no such partition, or does not keep the offset.
    """
    unknown = [str(partition) for partition in sorted(wanted) if partition not in log.earliest]
    if unknown:
        raise ResetRefusedError(
            f"stream {stream} reads no such partition: {', '.join(unknown)}.",
            fix=f"name partitions of {', '.join(sorted(log.topics)) or 'topics that exist'}",
        )
    kept = {partition: OffsetRange(log.earliest[partition], log.latest[partition]) for partition in wanted}
    outside = [
        f"{partition} at {at}, where Kafka keeps offsets {kept[partition].start} to {kept[partition].end}"
        for partition, at in sorted(wanted.items())
        if not kept[partition].start <= at <= kept[partition].end
    ]
    if outside:
        raise ResetRefusedError(
            f"stream {stream}: there is nothing at the offset asked for: {'; '.join(outside)}.",
            fix="name offsets within these bounds, or `--to earliest`, or `--to latest`",
        )
    return tuple(
        ResetMove(partition, known.get(partition, kept[partition].start), at, kept[partition])
        for partition, at in sorted(wanted.items())
    )


def reset_stamps(
    stamps: Mapping[str, Stamp],
    anchor: str,
    known: Positions,
    made: Iterable[ResetMove],
    log: LogState,
    *,
    valid_through_ms: int | None,
    note: str,
    epoch: int,
) -> list[tuple[str, Stamp]]:
    """The stamps of a reset, in the order of their commits; the last one puts it in force.

    Totals stay: records read again are counted again, and records passed over were never counted.

    Args:
        stamps: Newest stamp of every target, all complete up to `known`.
        valid_through_ms: Time through which the stream is complete at the new position.
        note: Author, reason and moved offsets.
    """
    made = tuple(made)
    after = {move.partition: move.after for move in made}
    moved = {**known, **after}
    low = {partition: min(at, moved[partition]) for partition, at in known.items()}
    anchored = stamps[anchor]
    again = {move.partition: move.range for move in made if move.again}
    passed = {move.partition: move.range for move in made if move.skipped}
    complete = replace(anchored.decided(None), start=dict(known), position=dict(known), rows={})
    flat = replace(complete, kind="claim", epoch=epoch, note=None)
    others = [
        (
            name,
            replace(
                signed_answer(
                    stamp.decided(Decision("reset", again=again)),
                    epoch,
                    f"{note}; in force once {anchor} has its stamp",
                ),
                start=low,
                position=low,
            ),
        )
        for name, stamp in stamps.items()
        if name != anchor
    ]
    ends = {partition: end for partition, end in anchored.ends.items() if partition not in log.latest}
    ends |= {p: end for p, end in log.latest.items() if p in moved and end > moved[p]}
    topics = {p.topic: log.topics[p.topic] for p in after if p.topic in log.topics}
    last = replace(
        signed_answer(complete.decided(Decision("reset", passed=passed, again=again)), epoch, note),
        start=moved,
        position=moved,
        ends=ends,
        valid_through_ms=valid_through_ms,
        topics={**anchored.topics, **topics},
    )
    return [(anchor, flat), *others, (anchor, last)]


def valid_through_after(newest: Stamp, older: Iterable[Stamp], made: Iterable[ResetMove]) -> int | None:
    """Time through which the stream is complete after a reset, milliseconds since 1970.

    Going back lowers it to that of the newest stamp that stood no further, or to None. Passing over leaves it.

    Args:
        older: Earlier stamps that still exist, newest first.
    """
    lowered = {move.partition: move.after for move in made if move.again}
    if not lowered:
        return newest.valid_through_ms
    for stamp in older:
        if all(stamp.position.get(partition, 0) <= at for partition, at in lowered.items()):
            return stamp.valid_through_ms
    return None


def note_of_reset(note: str, made: Iterable[ResetMove]) -> str:
    """Note of an operator on a reset, followed by the moved offsets."""
    changed = [move for move in made if move.before != move.after]
    named = [f"{move.partition} {move.before} to {move.after}" for move in changed[:_NAMED_IN_NOTE]]
    more = f" and {len(changed) - _NAMED_IN_NOTE} more" if len(changed) > _NAMED_IN_NOTE else ""
    return f"{note}{RESET_NOTE}{', '.join(named)}{more}"
