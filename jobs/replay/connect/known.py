"""Which records of a queue are not to be taken: they stand in a table already, or the stream reads them itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from jobs.commit.decide import restart_positions, target_positions
from jobs.commit.history import history
from jobs.commit.offsets import TopicPartition
from jobs.errors import FrazilError
from jobs.replay.connect.records import Lot
from jobs.replay.landed import LETTER_COLUMNS, first_of, standing
from jobs.spec.models import StreamSpec


def with_known(
    read: list[tuple[TopicPartition, Lot]], spec: StreamSpec, sink: Table, letters: Table
) -> Iterator[tuple[TopicPartition, Lot, np.ndarray, np.ndarray]]:
    """Each lot with two masks: of the records that are not to be taken, and of those that the stream reads itself.

    Not taken are those as well that stand in a table already or came earlier in the batch. The time is left aside: the
    queue's topic may have stamped its own.

    Raises:
        FrazilError: The stream reads a topic that records come from, and has never run.
    """
    if not read:
        return
    (together,) = pa.Table.from_batches([lot.records for _, lot in read]).combine_chunks().to_batches()
    places = (together.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    is_left = _is_left(spec, sink, letters)
    left = np.array([is_left(*place) for place in zip(*places, strict=True)], dtype=bool)
    known = left | (first_of(together, by_time=False) != np.arange(together.num_rows))
    known |= standing(sink, together, by_time=False)
    known |= standing(letters, together, columns=LETTER_COLUMNS, by_time=False)
    at = 0
    for partition, lot in read:
        part = slice(at, at + lot.records.num_rows)
        yield partition, lot, known[part], left[part]
        at = part.stop


def _is_left(spec: StreamSpec, sink: Table, letters: Table) -> Callable[[str, int, int], bool]:
    """Tells which records the stream reads by itself: those of its topics that its tables are not complete with."""
    stamps = {
        spec.table.name: history(sink.metadata, spec.stream).newest,
        spec.dead_letter_table: history(letters.metadata, spec.stream).newest,
    }
    stands = restart_positions(target_positions(stamps, spec.coordinator))
    began = any(stamps.values())

    def left(topic: str, partition: int, offset: int) -> bool:
        if not spec.source.reads(topic):
            return False
        if not began:
            raise FrazilError(
                f"stream {spec.stream} reads topic {topic}, where records of the queue come from, and has never "
                "run: nobody can tell which of them it will read itself. Nothing of the batch is committed.",
                fix=f"frazil run {spec.stream}, then run this again",
            )
        return offset >= stands.get(TopicPartition(topic, partition), 0)

    return left
