"""Order of the changes of an increment: generations, order tokens, repeats, late changes, truncate floors.

Positions are compared within a generation only. A generation belongs to a lineage; where another lineage begins in the
log of a partition, a new one begins there. Generations are numbered for the whole mirror, since a key may come to
another partition of the topic.
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
        tokens: One for each change.
        late: Whether it came behind later changes of its partition.
        dropped: Whether it is no change of a row any more: a repeat, a truncate, below a truncate, or expired.
        expired: Whether it is from before what has expired, as others around it are gone.
    """

    tokens: pa.Array
    late: Mask
    dropped: Mask
    expired: Mask


@dataclass(frozen=True, slots=True)
class Order:
    """What is known of the order of an increment's changes, and of all before them; can be pickled.

    Attributes:
        state: The mirror's after the increment.
        scans: By partition with changes in the increment.
        scope: What positions are compared within.
        begins: By partition, the first offset from which on all changes are there.
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
        """The order of an increment.

        Args:
            stream, key: For messages.
            before: The mirror's state.
            scans: By partition, of all changes of the increment.
            scattered: Whether changes of one key may be in several partitions.
            begins: As the order has it.

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
        """The order of changes of the increment, in any sequence of any partitions.

        Args:
            topics, partitions, offsets: Where each is in Kafka; of partitions that `state` knows.
            ops, positions: Of each; a position may be null.
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
        """Which changes a truncate has removed."""
        below = np.zeros(len(tokens), bool)
        unplaced = np.flatnonzero(boolean_mask(pc.is_null(positions)))
        for topic, floor in self.state.floors.items():
            mine = boolean_mask(pc.equal(topics, topic))
            lower = boolean_mask(pc.less(tokens, floor.token))
            if len(unplaced) and sum(each.topic == topic for each in self.state.partitions) == 1:
                # Which change stood before one without a position is not known of all. Offsets tell of one partition.
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
    """The newest truncates.

    Args:
        before, state: What the mirror knows before and after the increment.
        begins: As the order has it.
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
            # No change is lower by the generations of a stamp: what they put below the floor is below it.
            if there is not None and token <= there.token and not (position is None and several):
                continue
            if offset < present:
                if offset >= begins.get(partition, 0):
                    raise errors.UnknownGenerationError(stream, partition, present, ("truncate", offset))
                # It has expired, and the mirror has it.
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
    """Refuse a truncate that would take later changes of another partition, merged as those of a former source.

    That partition came first, and saw nothing of a source before it or in between. All of the changelog tells.

    Args:
        before, state: What the mirror knows before and after the increment.
        partition, offset, time: Of the truncate.

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
    """Refuse new changes of a source before the one that truncated the table, if they are later than that one's.

    The former source took over again, and the partition saw nothing of the source in between. So its log does not say
    that a new timeline begins, and the truncate would take the changes. Times tell: what the former source sent before
    is not later than what came behind the truncate.

    Args:
        stream: For messages.
        before, state: What the mirror knows before and after the increment.
        scans: Of the increment.

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
    """The order of an increment's changes, and how many there are of each sort.

    Args:
        scans: Of all its changes, by partition.

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
    """For each row the number of its partition, and the partitions."""
    named = topics.dictionary_encode()
    codes = whole_numbers(named.indices) << 32
    codes += whole_numbers(partitions)
    values, inverse = np.unique(codes, return_inverse=True)
    names = named.dictionary.to_pylist()
    return inverse, [TopicPartition(names[each >> 32], each & 0xFFFFFFFF) for each in values.tolist()]


def _inside(offsets: np.ndarray[Any, Any], ranges: tuple[tuple[int, int], ...]) -> Mask:
    """Which offsets are in one of the ranges, which ascend and do not overlap."""
    if not ranges:
        return np.zeros(len(offsets), bool)
    starts, ends = np.array(ranges).T
    place = np.searchsorted(starts, offsets, side="right") - 1
    return (place >= 0) & (offsets < ends[place])


def _carried(positions: pa.Array, mine: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], scan: LogScan) -> pa.Array:
    """Positions, with that of the change before for those that have none of their own."""
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
    """One for each change.

    Args:
        own: Whether the position is the change's own. A row of a snapshot without one has no place in the source's log
            but the one in Kafka's, as all others without one have.
    """
    read = pc.and_(pc.fill_null(pc.equal(ops, "r"), False), pa.array(own))
    kinds = pc.if_else(read, SNAPSHOT_ROW, STREAMED)
    return pc.binary_join_element_wise(
        hex_text(generations, 4), pc.fill_null(positions, "-").cast(pa.string()), kinds, hex_text(offsets, 16), "."
    )


def generations_after(
    before: MirrorState, scans: Mapping[TopicPartition, LogScan]
) -> tuple[dict[TopicPartition, PartitionState], dict[str, int]]:
    """The partitions' states after the increment, and the newest generation of each lineage."""
    lineages = dict(before.lineages)
    found: dict[TopicPartition, list[Generation]] = {}
    # Where nothing has a position, a key that comes to a new partition is newer there than where it was.
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
    """Another partition has seen the lineage come back, or restored: from the first new change on, this one follows."""
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
    """The first offset whose generation a stamp is sure to have; it may lack those before."""
    return state.generations[0].since if len(state.generations) >= MOST_GENERATIONS else 0


def refuse_older(stream: str, state: MirrorState, begins: Mapping[TopicPartition, int]) -> None:
    """Refuse to order changes of any age where a stamp may lack generations.

    Args:
        stream: For messages.
        state: Of the mirror's stamp.
        begins: By partition, the first offset from which on changes are ordered; those before have expired.

    Raises:
        UnknownGenerationError: It may.
    """
    for partition, each in sorted(state.partitions.items()):
        if begins.get(partition, 0) < (first := first_known(each)):
            raise errors.UnknownGenerationError(stream, partition, first)


def generation_at(state: PartitionState, offset: int) -> int:
    """The number of the generation that a change belongs to."""
    reached = [each.number for each in state.generations if each.since <= offset]
    return reached[-1] if reached else state.generations[0].number
