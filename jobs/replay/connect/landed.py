"""Records of a queue that are left out: they have landed already, stand in it twice, or are left to the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_history import history
from jobs.commit.target_positions import restart_positions, target_positions
from jobs.errors import FrazilError
from jobs.pipeline.block import Indices
from jobs.replay.connect.records import QueueRecords
from jobs.replay.landed import LETTER_COLUMNS, already_landed, first_of
from jobs.replay.result import COORDINATES
from jobs.replay.routing import not_located
from jobs.replay.row_tables import names_beside
from jobs.spec.models import StreamSpec


def left_out(
    fetched: list[QueueRecords], spec: StreamSpec, tables: Mapping[str, Table], *, routed: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For fetched records two masks: of all that are left out, and of those among them that the stream reads itself.

    Left out are those as well that a table has already or that came earlier in the batch. The time is left aside: the
    queue's topic may have stamped its own. Which tables of a route a record is for is not known yet: of those `lacked`
    tells.

    Args:
        fetched: The records.
        spec: The stream.
        tables: All of its tables, by name.
        routed: Whether a route says where rows go.

    Raises:
        FrazilError: The stream reads a topic that records come from, and has never run.
    """
    if not fetched:
        return
    (together,) = pa.Table.from_batches([each.records for each in fetched]).combine_chunks().to_batches()
    places = (together.column(name).to_pylist() for name in COORDINATES)
    letters = tables[spec.dead_letter_table]
    is_left = _is_left(spec, tables)
    left = np.array([is_left(*place) for place in zip(*places, strict=True)], dtype=bool)
    out = left | (first_of(together, by_time=False) != np.arange(together.num_rows))
    if not routed:
        for name in names_beside(spec, spec.table.name):
            out |= already_landed(tables[name], together, columns=spec.kafka_columns.instant_coordinates, by_time=False)
    out |= already_landed(letters, together, columns=LETTER_COLUMNS, by_time=False)
    at = 0
    for each in fetched:
        rows = slice(at, at + each.records.num_rows)
        yield out[rows], left[rows]
        at = rows.stop


def lacked(
    fetched: Sequence[QueueRecords], rows: Sequence[Indices], spec: StreamSpec, name: str, tables: Mapping[str, Table]
) -> list[np.ndarray]:
    """Which of the records that are for one of a route's tables have no row there: a mask for each block of records.

    One among its late rows is none that is lacking.

    Args:
        fetched: The blocks.
        rows: Of each, the records that are for the table.
        spec: The stream.
        name: Of the table.
        tables: All of the stream's, as they are.

    Raises:
        FrazilError: It does not say which records its rows are of.
    """
    mine = [each.records.take(pa.array(at)) for each, at in zip(fetched, rows, strict=True)]
    (together,) = pa.Table.from_batches(mine).combine_chunks().to_batches() or [mine[0]]
    lack = np.ones(together.num_rows, dtype=bool)
    for each in names_beside(spec, name):
        if not spec.kafka_columns.locate_rows_of(tables[each].schema()):
            raise not_located(spec, each)
        columns = spec.kafka_columns.instant_coordinates
        lack &= ~already_landed(tables[each], together, columns=columns, by_time=False)
    return np.split(lack, np.cumsum([len(at) for at in rows])[:-1])


def _is_left(spec: StreamSpec, tables: Mapping[str, Table]) -> Callable[[str, int, int], bool]:
    """Tells which records the stream reads by itself: those of its topics that its tables are not complete with."""
    stamps = {name: history(table.metadata, spec.stream).newest for name, table in tables.items()}
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
