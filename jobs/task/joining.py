"""Joined blocks: several of one partition as one, where each of them would be taken apart by writer schemas.

Each group of a block costs a few hundred calls whatever its size, so five small ones cost twice what one of all their
records does. Together with the next blocks' groups they are as large as those of a stream with one schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from jobs.kafka.range_reader import MOST_BYTES
from jobs.kafka.records import FetchedBlock

MOST_JOINED = 6
"""Blocks that become one; of large records fewer, so that no more than two blocks' bytes are held at once."""


def joined_blocks(blocks: Iterable[FetchedBlock], groups: Callable[[], int]) -> Iterator[FetchedBlock]:
    """The blocks, as many of them in one as the last one had groups.

    Args:
        blocks: Of a split, in their order.
        groups: How many writer schemas the last block's records had.
    """
    held: list[FetchedBlock] = []
    size = 0
    for block in blocks:
        if held and block.source != held[0].source:
            yield joined(held)
            held, size = [], 0
        held.append(block)
        size += block.records.column("value").nbytes
        if len(held) >= min(groups(), MOST_JOINED) or size * (len(held) + 1) > 2 * MOST_BYTES * len(held):
            yield joined(held)
            held, size = [], 0
    if held:
        yield joined(held)


def joined(blocks: Sequence[FetchedBlock]) -> FetchedBlock:
    """Blocks of one partition, one behind another, as one."""
    if len(blocks) == 1:
        return blocks[0]
    ends = np.cumsum([each.records.num_rows for each in blocks]).tolist()

    def whole(rows: Sequence[int]) -> pa.RecordBatch:
        begins = [0, *ends[:-1]]
        own = [[row - begin for row in rows if begin <= row < end] for begin, end in zip(begins, ends, strict=True)]
        return pa.concat_batches([block.whole(each) for block, each in zip(blocks, own, strict=True) if each])

    records, last = pa.concat_batches([each.records for each in blocks]), blocks[-1]
    return FetchedBlock(last.source, records, whole, last.leader_epoch, last.appended_ms)
