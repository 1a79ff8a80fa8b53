"""A second merge of the same changes: a row that comes twice is seen, and so are changes that were not read."""

from __future__ import annotations

from collections import Counter

from jobs.local.certify.merge_action import Rows, merged_again_problem


def test_a_second_merge_changes_no_row_and_reads_all_changes() -> None:
    once: Rows = Counter({("a", 1): 1, ("b", 2): 1})
    assert merged_again_problem(once, once, 5, 5) is None
    assert merged_again_problem(once, once + Rows({("a", 1): 1}), 5, 5) == "1 rows are others than before"
    assert merged_again_problem(once, Rows({("a", 1): 1, ("b", 3): 1}), 5, 5) == "2 rows are others than before"
    assert merged_again_problem(once, once, 4, 5) == "4 changes were read, of 5 that are landed"
