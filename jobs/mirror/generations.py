"""Generations of a mirror's partitions: where positions begin anew in a log, and numbers that order the stretches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.commit.offsets import TopicPartition
from jobs.mirror.errors import UnknownGenerationError
from jobs.mirror.log_scan import LogScan
from jobs.mirror.merge_plan import MOST_GENERATIONS, Generation, MirrorState, PartitionState
from jobs.mirror.restored_lineage import source_lineage


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
        own = _begun_earlier(state.generations, scan) if state else []
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


def _begun_earlier(known: Sequence[Generation], scan: LogScan) -> list[Generation]:
    """The generations, each from its first change on, if that has come late."""
    since = {number: min(each for n, each in scan.earlier if n == number) for number, _ in scan.earlier}
    return [Generation(each.number, since.get(each.number, each.since), each.lineage) for each in known]


def first_known(state: PartitionState) -> int:
    """The first offset whose generation a stamp is sure to have; it may lack those before."""
    return state.generations[0].since if len(state.generations) >= MOST_GENERATIONS else 0


def refuse_older(stream: str, state: MirrorState, begins: Mapping[TopicPartition, int]) -> None:
    """Refuse to order changes of any age where a stamp may lack generations.

    Args:
        stream: For messages.
        state: Of the mirror's stamp.
        begins: By partition, the first offset from which on changes are ordered; before it, baselines stand for them.

    Raises:
        UnknownGenerationError: It may.
    """
    for partition, each in sorted(state.partitions.items()):
        if begins.get(partition, 0) < (first := first_known(each)):
            raise UnknownGenerationError(stream, partition, first)


def generation_at(state: PartitionState, offset: int) -> int:
    """The number of the generation that a change belongs to."""
    reached = [each.number for each in state.generations if each.since <= offset]
    return reached[-1] if reached else state.generations[0].number
