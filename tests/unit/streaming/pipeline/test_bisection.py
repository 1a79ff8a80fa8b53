"""The bisection: whichever records a stage fails for, those and no others become failures, in their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.formats.interface.decoder import Failure
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import UNEXPECTED, Pipeline, apply_stage
from jobs.tables.write.projection import ProjectionError
from tests.unit.streaming.pipeline.blocks import (
    TABLE,
    Picky,
    numbers,
    numbers_in,
    records_of,
)

COUNT = st.integers(1, 40)
SUBSET = st.sets(st.integers(0, 39))


def partitioned(block: Block) -> list[int]:
    """Every record that something became of, ascending."""
    return sorted([*block.positions.tolist(), *block.dropped.tolist(), *(failure.row for failure in block.failures)])


@given(COUNT, SUBSET, SUBSET, SUBSET)
def test_any_records_at_fault_stand_alone(count: int, bad: set[int], breaking: set[int], dropped: set[int]) -> None:
    block = apply_stage(Picky(bad, breaking, dropped), numbers(count))
    wrong = sorted((bad | breaking) & set(range(count)))
    assert [failure.row for failure in block.failures] == wrong
    assert block.dropped.tolist() == sorted(dropped & set(range(count)) - set(wrong))
    assert block.positions.tolist() == [n for n in range(count) if n not in bad | breaking | dropped]
    assert numbers_in(block) == block.positions.tolist()
    assert partitioned(block) == list(range(count))
    for failure in block.failures:
        known = Failure(failure.row, "picky", "bad_number", "needs another number", "$.n")
        assert failure == known if failure.row in bad else failure.error_class == UNEXPECTED
        assert (failure.stage, "secret" in failure.message) == ("picky", False)


@given(COUNT, st.lists(st.tuples(SUBSET, SUBSET, SUBSET), min_size=2, max_size=4))
def test_the_first_stage_that_refuses_a_record_counts(
    count: int, stages: list[tuple[set[int], set[int], set[int]]]
) -> None:
    made = [Picky(*each) for each in stages]
    for number, stage in enumerate(made):
        stage.name = f"stage {number}"
    block = Pipeline(made, TABLE).run(numbers(count).records)
    first = {
        n: next((i for i, (bad, breaking, dropped) in enumerate(stages) if n in bad | breaking | dropped), None)
        for n in range(count)
    }
    refused = [n for n, i in first.items() if i is not None and n in stages[i][0] | stages[i][1]]
    assert [(failure.row, failure.stage) for failure in block.failures] == [(n, f"stage {first[n]}") for n in refused]
    assert block.dropped.tolist() == [n for n, i in first.items() if i is not None and n not in refused]
    assert block.positions.tolist() == [n for n, i in first.items() if i is None]
    if len(block.positions):
        assert numbers_in(block) == block.positions.tolist()
    assert partitioned(block) == list(range(count))


def test_one_record_among_many_is_found_by_halving() -> None:
    stage = Picky(bad={700})
    assert [failure.row for failure in apply_stage(stage, numbers(1024)).failures] == [700]
    assert stage.asked <= 2 + 2 * 10, "the block, the probe, and two halves for each of ten levels"


def test_a_stage_without_rows_is_not_asked() -> None:
    second = Picky()
    block = Pipeline([Picky(bad={0, 1}), second], TABLE).run(numbers(2).records)
    assert (len(block.failures), second.asked) == (2, 0)
    assert Pipeline([second], TABLE).run(records_of([])).rows.num_rows == second.asked == 0


@pytest.mark.parametrize("problem", [OSError("disk away"), MemoryError(), ProjectionError("no such column")])
def test_what_is_no_records_fault_passes_through(problem: Exception) -> None:
    stage = Picky(broken=problem)
    with pytest.raises(type(problem)):
        apply_stage(stage, numbers(8))
    assert stage.asked == 1


def test_a_stage_that_can_do_nothing_is_no_records_fault() -> None:
    with pytest.raises(ImportError, match="missing") as raised:
        apply_stage(Picky(broken=ImportError("a package is missing")), numbers(8))
    assert raised.value.__context__ is None, "it could quote a record"


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
