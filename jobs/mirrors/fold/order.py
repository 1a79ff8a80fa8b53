"""Order of new changes: source timelines (generations), order tokens, repeats, late changes, truncates.

Positions are compared within a source timeline only. A timeline belongs to a lineage; where another lineage begins in a
partition's log, a new timeline begins. Timelines are numbered for the whole mirror, because a key may move to another
partition of the topic.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.mirrors.fold.fold import Ints, Mask, boolean_mask, whole_numbers
from jobs.mirrors.fold.log_scan import SLACK_US, LogScan, begun_earlier, source_lineage
from jobs.mirrors.model import errors
from jobs.mirrors.model.merge_plan import (
    LAST_GENERATION,
    MOST_GENERATIONS,
    Generation,
    MergeCounts,
    MergePlan,
    MirrorState,
    PartitionState,
    Scope,
    TruncateFloor,
)
from jobs.mirrors.model.order_token import SNAPSHOT_ROW, STREAMED, hex_text, order_positions, order_token
from jobs.tables.commit.stamp.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Ordered:
    """Changes with their order.

    Attributes:
        tokens: Order token of each change.
        late: True if the change came after later changes of its partition.
        dropped: True if the change sets no row: a repeat, a truncate, a truncated or an expired change.
        expired: True if its offset is below those of the changes that are complete: others around it have expired.
    """

    tokens: pa.Array
    late: Mask
    dropped: Mask
    expired: Mask


@dataclass(frozen=True, slots=True)
class Order:
    """Order of the new changes and of all before them; can be pickled.

    Attributes:
        state: State of the mirror after the new changes.
        scans: Log scan of each partition with new changes.
        scope: Scope within which positions are compared.
        begins: First offset of each partition from which no change has expired.
    """

    state: MirrorState
    scans: Mapping[TopicPartition, LogScan]
    scope: Scope = "source"
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def of(
        stream: str,
        key: tuple[str, ...],
        before: MirrorState,
        scans: Mapping[TopicPartition, LogScan],
        scope: Scope,
        *,
        scattered: bool = False,
        begins: Mapping[TopicPartition, int] | None = None,
    ) -> Order:
        """Return the order of new changes.

        Args:
            stream, key: Names for messages.
            before: State of the mirror.
            scans: Log scans of all new changes, by partition.
            scattered: Whether changes of one key may be in several partitions.
            begins: See `Order`.

        Raises:
            NullKeyError, RestoredSourceError, TooManyGenerationsError, SharedTruncateError, UnorderedTruncateError,
            ScatteredChangesError, UnknownGenerationError, BelowTruncateError: The mirror has to stop.
        """
        nulls = [(partition, scan) for partition, scan in sorted(scans.items()) if scan.null_key is not None]
        if nulls:
            partition, scan = nulls[0]
            count = sum(each.null_keys for _, each in nulls)
            raise errors.NullKeyError(stream, key, (partition, scan.null_key or 0), count)
        for partition, scan in sorted(scans.items()):
            if scan.restored is not None:
                offset, position, greatest, timed = scan.restored
                breaks = {each: found.restored[0] for each, found in sorted(scans.items()) if found.restored}
                raise errors.RestoredSourceError(
                    stream, partition, offset, position, greatest, timed=timed, breaks=breaks
                )
        begins = begins or {}
        for partition, scan in sorted(scans.items()):
            if scan.strange is not None and scan.strange >= begins.get(partition, 0):
                late = ("change", scan.strange)
                raise errors.UnknownGenerationError(stream, partition, scan.strange + 1, late)
        partitions, lineages = generations_after(before, scans)
        state = replace(before, partitions=partitions, lineages=lineages)
        if state.newest_generation > LAST_GENERATION:
            raise errors.TooManyGenerationsError(stream, sorted(lineages, key=lambda each: -lineages[each])[:2])
        if scattered:
            _refuse_scattered(stream, state)
        state = replace(state, floors=_floors(stream, before, state, scans, begins))
        _refuse_below_truncate(stream, before, state, scans)
        return Order(state, scans, scope, begins)

    def of_rows(
        self, topics: pa.Array, partitions: pa.Array, offsets: pa.Array, ops: pa.Array, positions: pa.Array
    ) -> Ordered:
        """Return the order of changes in any sequence, from any partitions.

        Args:
            topics, partitions, offsets: Coordinates of each change in Kafka, in partitions that `state` knows.
            ops, positions: Operation and position of each change; a position may be null.
        """
        rows = len(offsets)
        numbers = whole_numbers(offsets)
        generations, late, repeated = np.zeros(rows, np.int64), np.zeros(rows, bool), np.zeros(rows, bool)
        expired = np.zeros(rows, bool)
        codes, sources = _sources(topics, partitions)
        own, positions = boolean_mask(pc.is_valid(positions)), order_positions(positions)
        for code, source in enumerate(sources):
            mine = np.flatnonzero(codes == code)
            here = numbers[mine]
            of_source = self.state.partitions[source].generations
            found = np.searchsorted([each.since for each in of_source[1:]], here, side="right")
            generations[mine] = np.array([each.number for each in of_source])[found]
            expired[mine] = here < self.begins.get(source, 0)
            if (scan := self.scans.get(source)) is None:
                continue
            late[mine] = here < scan.unseen
            repeated[mine] = _inside(here, scan.repeats)
            positions = _carried(positions, mine, here, scan)
        tokens = _tokens(generations, positions, ops, numbers, own)
        truncate = boolean_mask(pc.fill_null(pc.equal(ops, "t"), False))
        below = self._below_floor(topics, generations, positions, numbers, tokens)
        return Ordered(tokens, late, repeated | truncate | below | expired, expired)

    def _below_floor(
        self, topics: pa.Array, generations: Ints, positions: pa.Array, offsets: Ints, tokens: pa.Array
    ) -> Mask:
        """Mask of the changes that a truncate has removed."""
        below = np.zeros(len(tokens), bool)
        unplaced = np.flatnonzero(boolean_mask(pc.is_null(positions)))
        for topic, floor in self.state.floors.items():
            mine = boolean_mask(pc.equal(topics, topic))
            lower = boolean_mask(pc.less(tokens, floor.token))
            if len(unplaced) and sum(each.topic == topic for each in self.state.partitions) == 1:
                # The change before one without a position is not always known. In a single partition offsets decide.
                generation, offset = int(floor.token[:4], 16), int(floor.token.rsplit(".", 1)[1], 16)
                here = generations[unplaced]
                lower[unplaced] = (here < generation) | ((here == generation) & (offsets[unplaced] < offset))
            below |= mine & lower
        return below


def _refuse_scattered(stream: str, state: MirrorState) -> None:
    for topic in sorted({each.topic for each in state.partitions}):
        of_topic = {each.partition: known for each, known in state.partitions.items() if each.topic == topic}
        if len(of_topic) > 1 and any(known.position is None for known in of_topic.values()):
            raise errors.ScatteredChangesError(stream, topic, sorted(of_topic))


def _floors(
    stream: str,
    before: MirrorState,
    state: MirrorState,
    scans: Mapping[TopicPartition, LogScan],
    begins: Mapping[TopicPartition, int],
) -> dict[str, TruncateFloor]:
    """Return the newest truncate of each topic.

    Args:
        before, state: State of the mirror before and after the new changes.
        begins: See `Order`.
    """
    floors = dict(state.floors)
    topics = {each.topic for each in state.partitions}
    for partition, scan in sorted(scans.items()):
        several = sum(each.topic == partition.topic for each in state.partitions) > 1
        known = before.partitions.get(partition)
        present = known.generations[-1].since if known is not None and len(known.generations) > 1 else 0
        for offset, position, time in scan.truncates:
            token = order_token(generation_at(state.partitions[partition], offset), position, STREAMED, offset)
            there = floors.get(partition.topic)
            # The timelines in a stamp give no change too low an order, so a truncate below the floor is below it.
            if there is not None and token <= there.token and not (position is None and several):
                continue
            if offset < present:
                if offset >= begins.get(partition, 0):
                    raise errors.UnknownGenerationError(stream, partition, present, ("truncate", offset))
                # The truncate has expired, and is merged already.
                continue
            if others := sorted(topics - {partition.topic}):
                raise errors.SharedTruncateError(stream, partition, offset, others)
            if position is None and several:
                raise errors.UnorderedTruncateError(stream, partition, offset)
            _refuse_later_changes(stream, before, state, partition, offset, time)
            floors[partition.topic] = TruncateFloor(token)
    return floors


def _refuse_later_changes(
    stream: str, before: MirrorState, state: MirrorState, partition: TopicPartition, offset: int, time: int | None
) -> None:
    """Refuse a truncate that would remove later changes of another partition, merged under a former source timeline.

    That partition's changes were merged first, and its log shows no other source before or in between. A rebuild from
    the whole changelog decides.

    Args:
        before, state: State of the mirror before and after the new changes.
        partition, offset, time: Coordinates and time of the truncate.

    Raises:
        UnknownGenerationError: There are such changes.
    """
    number = generation_at(state.partitions[partition], offset)
    for other, known in before.partitions.items():
        former = other != partition and other.topic == partition.topic and known.generation < number
        if former and time is not None and known.at is not None and known.at > time + SLACK_US:
            raise errors.UnknownGenerationError(stream, partition, offset, ("truncate", offset))


def _refuse_below_truncate(
    stream: str, before: MirrorState, state: MirrorState, scans: Mapping[TopicPartition, LogScan]
) -> None:
    """Refuse new changes of a former source that are later than the changes of the source which truncated the table.

    The former source took over again, and the partition has no change of the source in between. So its log does not
    show that a new timeline begins, and the truncate would remove the changes. Times show it: the former source's
    earlier changes are not later than changes after the truncate.

    Args:
        stream: Stream's name for messages.
        before, state: State of the mirror before and after the new changes.
        scans: Log scans of the new changes.

    Raises:
        BelowTruncateError: There are such changes.
    """
    for topic, floor in sorted(state.floors.items()):
        number = int(floor.token[:4], 16)
        known = before if before.floors.get(topic) == floor else state
        behind = {p: each for p, each in known.partitions.items() if p.topic == topic and each.generation >= number}
        for partition, scan in sorted(scans.items()):
            if partition.topic != topic or scan.first is None or scan.lineage is None:
                continue
            latest = max(
                (each.at for p, each in behind.items() if p != partition and each.at is not None), default=None
            )
            if latest is None:
                continue
            now, former = state.partitions[partition], before.partitions.get(partition)
            if generation_at(now, scan.first) >= number:
                continue
            times = [scan.first_at or 0]
            if now.generation < number and (former is None or former.at is None or (now.at or 0) > former.at):
                times.append(now.at or 0)
            if max(times) > latest + SLACK_US:
                raise errors.BelowTruncateError(stream, partition, scan.first, latest)


def increment_order(plan: MergePlan, scans: Mapping[TopicPartition, LogScan]) -> tuple[Order, MergeCounts]:
    """Return the order of new changes, and their counts.

    Args:
        scans: Log scans of all new changes, by partition.

    Raises:
        StreamStopped: The mirror has to stop; see `Order.of`.
    """
    counts = MergeCounts(
        read=sum(scan.rows for scan in scans.values()),
        repeats=sum(scan.repeated_rows for scan in scans.values()),
        late=sum(scan.late_rows for scan in scans.values()),
        truncates=sum(scan.truncate_rows for scan in scans.values()),
    )
    order = Order.of(plan.stream, plan.key, plan.state, scans, plan.scope, scattered=plan.scattered, begins=plan.begins)
    return order, counts


def _sources(topics: pa.Array, partitions: pa.Array) -> tuple[np.ndarray[Any, Any], list[TopicPartition]]:
    """Return the index of each row's partition, and the partitions."""
    named = topics.dictionary_encode()
    codes = whole_numbers(named.indices) << 32
    codes += whole_numbers(partitions)
    values, inverse = np.unique(codes, return_inverse=True)
    names = named.dictionary.to_pylist()
    return inverse, [TopicPartition(names[each >> 32], each & 0xFFFFFFFF) for each in values.tolist()]


def _inside(offsets: np.ndarray[Any, Any], ranges: tuple[tuple[int, int], ...]) -> Mask:
    """Mask of the offsets in one of the ranges, which ascend and do not overlap."""
    if not ranges:
        return np.zeros(len(offsets), bool)
    starts, ends = np.array(ranges).T
    place = np.searchsorted(starts, offsets, side="right") - 1
    return (place >= 0) & (offsets < ends[place])


def _carried(positions: pa.Array, mine: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], scan: LogScan) -> pa.Array:
    """Fill null positions with the position of the change before, as far as the scan has it."""
    inside = _inside(offsets, tuple((start, end) for start, end, _ in scan.carried))
    if not inside.any():
        return positions
    starts = np.array([start for start, _, _ in scan.carried])
    place = np.full(len(positions), -1)
    place[mine[inside]] = np.searchsorted(starts, offsets[inside], side="right") - 1
    chosen = pa.array(place, mask=place < 0)
    return pc.coalesce(positions, pa.array([position for _, _, position in scan.carried]).take(chosen))


def _tokens(
    generations: np.ndarray[Any, Any], positions: pa.Array, ops: pa.Array, offsets: np.ndarray[Any, Any], own: Mask
) -> pa.Array:
    """Return the order token of each change.

    Args:
        own: Whether the change has its own position. Without one, a row of a snapshot is ordered like other changes, by
            its offset in Kafka.
    """
    read = pc.and_(pc.fill_null(pc.equal(ops, "r"), False), pa.array(own))
    kinds = pc.if_else(read, SNAPSHOT_ROW, STREAMED)
    return pc.binary_join_element_wise(
        hex_text(generations, 4), pc.fill_null(positions, "-").cast(pa.string()), kinds, hex_text(offsets, 16), "."
    )


def generations_after(
    before: MirrorState, scans: Mapping[TopicPartition, LogScan]
) -> tuple[dict[TopicPartition, PartitionState], dict[str, int]]:
    """Return the partitions' states after the new changes, and the newest timeline of each lineage."""
    lineages = dict(before.lineages)
    found: dict[TopicPartition, list[Generation]] = {}
    # Without positions, a key that moves to a new partition is newer there.
    newest = max((each.generation for each in before.partitions.values()), default=-1)
    fresh = newest + 1
    for partition, scan in sorted(scans.items()):
        state = before.partitions.get(partition)
        own = begun_earlier(state.generations, scan.earlier) if state else []
        for since, lineage in scan.lineages:
            known = lineages.get(lineage)
            last = own[-1] if own else None
            if last is None:
                number = fresh if known is None else known
            elif last.lineage is None:
                number = max(last.number, last.number if known is None else known)
            else:
                number = known if known is not None and known > last.number else max(newest, fresh - 1) + 1
            newest = max(newest, number)
            lineages[lineage] = max(number, lineages.get(lineage, -1))
            if last is not None and last.lineage is None and number == last.number:
                own[-1] = Generation(number, last.since, lineage)
            else:
                own.append(Generation(number, since, lineage))
        if not own:
            own = [Generation(fresh, scan.first or 0, None)]
            newest = max(newest, fresh)
        found[partition] = own
    states = dict(before.partitions)
    for partition, own in found.items():
        _raise_to_newest(own, scans[partition], lineages)
        scan = scans[partition]
        states[partition] = PartitionState(scan.next_offset, scan.position, scan.at, tuple(own))
    return states, lineages


def _raise_to_newest(own: list[Generation], scan: LogScan, lineages: Mapping[str, int]) -> None:
    """Let a partition follow, from its first new change on, if its lineage came back or was restored in another one."""
    last = own[-1]
    source = source_lineage(last.lineage) if last.lineage else None
    newest = max((number for name, number in lineages.items() if source_lineage(name) == source), default=-1)
    if newest <= last.number or scan.first is None:
        return
    if last.since >= scan.first:
        own[-1] = Generation(newest, last.since, last.lineage)
    else:
        own.append(Generation(newest, scan.first, last.lineage))


def first_known(state: PartitionState) -> int:
    """Return the first offset whose timeline is certainly in a stamp; earlier timelines may be missing."""
    return state.generations[0].since if len(state.generations) >= MOST_GENERATIONS else 0


def refuse_older(stream: str, state: MirrorState, begins: Mapping[TopicPartition, int]) -> None:
    """Refuse to order changes of any age if a stamp may lack their timelines.

    Args:
        stream: Stream's name for messages.
        state: State in the mirror's stamp.
        begins: First offset of each partition from which changes are ordered; earlier ones have expired.

    Raises:
        UnknownGenerationError: The stamp may lack timelines.
    """
    for partition, each in sorted(state.partitions.items()):
        if begins.get(partition, 0) < (first := first_known(each)):
            raise errors.UnknownGenerationError(stream, partition, first)


def generation_at(state: PartitionState, offset: int) -> int:
    """Return the number of the timeline that a change belongs to."""
    reached = [each.number for each in state.generations if each.since <= offset]
    return reached[-1] if reached else state.generations[0].number
