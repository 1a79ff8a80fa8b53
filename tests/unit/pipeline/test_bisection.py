"""The bisection: whichever records a stage fails for, those and no others become failures, in their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.formats.decoder import Failure
from jobs.pipeline.block import Block
from jobs.pipeline.pipeline import UNEXPECTED, Pipeline, apply_stage
from jobs.write.projection import ProjectionError
from tests.unit.pipeline.blocks import TABLE, Picky, numbers, numbers_in, records_of

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
