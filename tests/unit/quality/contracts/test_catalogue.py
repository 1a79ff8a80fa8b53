"""The catalogue says what Great Expectations has, in the version that is installed."""

from __future__ import annotations

from jobs.config.contract.expectation_catalogue import FILE, expectation_types
from tests.helpers.expectation_catalogue import LEFT_OUT, build, written


def test_it_is_what_great_expectations_has() -> None:
    """If it is not: `python -m tests.helpers.expectation_catalogue`, and see what changed."""
    assert written(build()) == FILE.read_text(encoding="utf-8")


def test_what_is_left_out_is_not_in_it() -> None:
    assert not set(LEFT_OUT) & set(expectation_types())
    assert all(LEFT_OUT.values())
