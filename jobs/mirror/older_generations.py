"""Older generations: stretches of a log that a mirror's stamp has no more, by what the changelog says of lineages.

A stamp has the newest generations of a partition. A merge of new changes needs no others, but keys that are folded
again have changes of any age. An older stretch gets the number that it had: they ascend by one within a partition, but
where another one was ahead.
"""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, EqualTo, LessThan, Or

from jobs.commit.offsets import TopicPartition
from jobs.increment.offset_ranges import quoted_text
from jobs.mirror.errors import UnknownGenerationError
from jobs.mirror.log_scan import LogScan
from jobs.mirror.merge_plan import MOST_GENERATIONS, Generation, MergePlan, MirrorState, PartitionState


def known_since(state: MirrorState) -> dict[TopicPartition, int]:
    """By partition of which a stamp may lack generations, the first offset of those that it has."""
    return {
        partition: each.generations[0].since
        for partition, each in state.partitions.items()
        if len(each.generations) >= MOST_GENERATIONS
    }


def may_be_older(plan: MergePlan, since: Mapping[TopicPartition, int]) -> BooleanExpression:
    """What a file of the changelog must fulfil to have a change from before some offsets."""
    topic, partition, offset = plan.coordinates
    parts = [
        And(EqualTo(topic, each.topic), EqualTo(partition, each.partition), LessThan(offset, first))
        for each, first in sorted(since.items())
    ]
    return reduce(Or, parts, AlwaysFalse())


def older_sql(names: tuple[str, str, str], since: Mapping[TopicPartition, int]) -> str:
    """The condition, in the SQL of Spark, that a change is from before some offsets.

    Args:
        names: Columns of topic, partition and offset.
        since: One at least.
    """
    topic, partition, offset = names
    return " OR ".join(
        f"({topic} = {quoted_text(each.topic)} AND {partition} = {each.partition} AND {offset} < {first})"
        for each, first in sorted(since.items())
    )


def with_older(stream: str, state: MirrorState, scans: Mapping[TopicPartition, LogScan]) -> MirrorState:
    """A state with the generations before those that it has.

    Args:
        stream: For messages.
        scans: Of all changes before the first of them, by partition.

    Raises:
        UnknownGenerationError: There were fewer, as letters that came back are of other lineages.
    """
    partitions = dict(state.partitions)
    for partition, scan in sorted(scans.items()):
        partitions[partition] = _with_older(stream, partition, partitions[partition], scan)
    return replace(state, partitions=partitions)


def _with_older(stream: str, partition: TopicPartition, state: PartitionState, scan: LogScan) -> PartitionState:
    first, *rest = state.generations
    older = list(scan.lineages)
    if older and older[-1][1] == first.lineage:
        # Another partition had seen more of the source by then, or it is the letters of before the first change.
        first = replace(first, since=older.pop()[0])
    least = first.number - len(older)
    if least < 0:
        raise UnknownGenerationError(stream, partition, first.since)
    found = [Generation(least + n, since, lineage) for n, (since, lineage) in enumerate(older)]
    return replace(state, generations=(*found, first, *rest))
