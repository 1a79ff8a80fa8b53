from __future__ import annotations

import numpy as np

from jobs.formats.decoder import Failure
from jobs.pipeline.block import Block
from tests.unit.pipeline.blocks import TABLE, numbers, numbers_in


def failure(row: int) -> Failure:
    return Failure(row, "s", "c", "m", None)


def some(block: Block, *kept: int, failures: tuple[int, ...] = (), dropped: tuple[int, ...] = ()) -> Block:
    """What a stage makes of a block that keeps these of its rows."""
    return block.with_rows(
        block.rows.take(np.array(kept)),
        np.array(kept),
        failures=[failure(row) for row in failures],
        dropped=np.array(dropped, np.int64),
        unknown_fields={"$.x": len(kept)},
    )


def test_what_a_stage_counts_by_rows_is_told_by_records() -> None:
    first = some(numbers(6), 1, 3, 4, failures=(0, 5), dropped=(2,))
    assert (first.is_whole, numbers(6).is_whole, first.destination) == (False, True, TABLE)
    second = some(first, 1, failures=(0,), dropped=(2,))
    assert numbers_in(second) == second.positions.tolist() == [3]
    assert second.failures == [failure(0), failure(1), failure(5)]
    assert second.dropped.tolist() == [2, 4]
    assert second.unknown_fields == {"$.x": 4}
    assert second.records is first.records


def test_parts_make_the_block_again() -> None:
    block = some(numbers(8), 0, 2, 3, 5, 7, failures=(4,), dropped=(1, 6))
    parts = [block.part(0, 2), block.part(2, 2), block.part(2, 5)]
    assert [numbers_in(part) for part in parts] == [[0, 2], [], [3, 5, 7]]
    assert not any(part.failures or len(part.dropped) or part.unknown_fields for part in parts)
    again = block.replaced_by([some(parts[0], 1, failures=(0,)), parts[1], some(parts[2], 0, 2, dropped=(1,))])
    assert numbers_in(again) == again.positions.tolist() == [2, 3, 7]
    assert [each.row for each in again.failures] == [0, 4]
    assert again.dropped.tolist() == [1, 5, 6]
    assert again.unknown_fields == {"$.x": 8}


def test_a_failure_of_another_row_has_the_same_reason() -> None:
    whole = Failure(1, "stage", "class", "message", "$.f")
    assert whole.at(7) == Failure(7, "stage", "class", "message", "$.f")
    assert whole.saying("other") == Failure(1, "stage", "class", "other", "$.f")
