"""The demo adds up only when the dead letters of the last batch are in, which are committed after its rows."""

from __future__ import annotations

from pathlib import Path

from orchestration.cli.demo.report import stamped_counts
from tests.helpers.real_stream import RealStream
from tests.helpers.stream_history import FAILED, ROW


def test_between_the_two_commits_of_a_batch_it_is_not_whole(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    assert stamped_counts(stream.catalog(), stream.spec).passed == 0
    stream.land([ROW, FAILED])
    assert stamped_counts(stream.catalog(), stream.spec).whole
    stream.land([ROW, FAILED, ROW], dead_too=False)
    between = stamped_counts(stream.catalog(), stream.spec)
    assert (between.passed, between.whole) == (5, False)
    stream.land([ROW])
    assert stamped_counts(stream.catalog(), stream.spec).passed == 6
