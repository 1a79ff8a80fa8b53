"""Letters of a batch: which of its records the dead letters say have failed."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from pyiceberg.expressions import And, EqualTo, NotEqualTo
from pyiceberg.table import Table

from jobs.commit.offsets import Ranges, TopicPartition
from jobs.deadletter.parked_letters import not_of_parked
from jobs.formats.problems import DISCARDED
from jobs.spec.targets import DEAD_LETTER_COORDINATES


def batch_letters(letters: Table, stream: str, ranges: Ranges, batch: int) -> dict[TopicPartition, frozenset[int]]:
    """The offsets within a batch of which the dead letters hold a letter of it; of parked tables' letters none.

    Offsets that were read before, and went through a reset since, may have letters of that time: those are of an
    earlier epoch.

    Args:
        letters: The dead letters.
        stream: The stream's id.
        ranges: The batch's.
        batch: Its number in the stamps.
    """
    wanted = And(
        EqualTo("stream", stream),
        EqualTo("batch_id", batch),
        not_of_parked(letters.schema()),
        NotEqualTo("error_class", DISCARDED),
    )
    fields = (*DEAD_LETTER_COORDINATES, "epoch")
    found: dict[int, dict[TopicPartition, set[int]]] = {}
    for rows in letters.scan(row_filter=wanted, selected_fields=fields).to_arrow_batch_reader():
        for topic, partition, offset, epoch in zip(*(rows.column(name).to_pylist() for name in fields), strict=True):
            place = TopicPartition(topic, partition)
            if place in ranges and ranges[place].start <= offset < ranges[place].end:
                found.setdefault(epoch or 0, {}).setdefault(place, set()).add(offset)
    newest = found[max(found)] if found else {}
    return {place: frozenset(offsets) for place, offsets in newest.items()}
