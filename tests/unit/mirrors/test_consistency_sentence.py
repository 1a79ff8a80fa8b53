"""Sentence of a comparison with the changelog: what was compared, what disagrees, and what was not compared."""

from __future__ import annotations

from dataclasses import replace

from jobs.mirrors.check.consistency import BUCKETS, Consistency, consistency_sentence

FOUND = Consistency("shop.customers", 7, 8, BUCKETS, 1_204, 1_204, {"missing": 0, "extra": 0, "different": 0}, 0, (), 0)


def test_a_mirror_that_agrees() -> None:
    whole = "All keys of shop.customers were compared with its changelog (1,204 rows): they are the same."
    assert consistency_sentence(FOUND) == whole
    part = consistency_sentence(replace(FOUND, looked_at=8))
    assert part.startswith("8 of 64 buckets of keys of shop.customers were compared with its changelog")


def test_keys_that_disagree_are_counted_and_one_is_named() -> None:
    wrong = replace(FOUND, counts={"missing": 2, "extra": 0, "different": 1}, examples=(("missing", {"id": 5}),))
    assert consistency_sentence(wrong).endswith(
        "(1,204 rows): of its rows 2 missing, 1 different; for instance id = 5 is missing."
    )


def test_what_was_not_compared_is_counted() -> None:
    found = consistency_sentence(replace(FOUND, adopted=3, undecided=2, letters=1))
    assert "they are the same. 3 rows have no change in the changelog, and are not compared" in found
    assert "2 keys without a row are not compared: their changes do not say whether there should be one." in found
    assert found.endswith(
        "1 dead letters had not come back at its newest merge: the changes in them are on neither side."
    )
