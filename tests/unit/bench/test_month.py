from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.month import Hour, by_case, cases, read, told, write

HOUR = Hour(
    trigger=60,
    maintained=True,
    hour=1,
    snapshots=360,
    manifests=61,
    metadata_bytes=540_000,
    data_files=240,
    commit_ms=50.25,
    score=60,
    rewritten_bytes=10**9,
)
MONTH = [replace(HOUR, hour=hour) for hour in range(1, 30 * 24 + 1)]


def test_hours_are_read_as_they_were_written(tmp_path: Path) -> None:
    hours = [HOUR, replace(HOUR, maintained=False, trigger=10, commit_ms=7.0)]
    write(tmp_path / "hours.csv", hours)
    assert read(tmp_path / "hours.csv") == hours
    assert by_case(hours) == [hours[:1], hours[1:]]


def test_the_contrast_takes_as_many_commits_with_either_trigger() -> None:
    assert [(each.trigger, each.maintained, each.hours) for each in cases(30, 5, 1)] == [
        (60, True, 720),
        (10, True, 120),
        (60, False, 24),
        (10, False, 4),
    ]


@pytest.mark.parametrize("figure", ["snapshots", "manifests", "metadata_bytes", "commit_ms"])
def test_what_rises_is_told(figure: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(MONTH) == []
    risen = [replace(each, **{figure: getattr(each, figure) * (1 + each.hour / 720)}) for each in MONTH]
    assert [figure in problem for problem in told(risen)] == [True]
    assert told([replace(each, maintained=False) for each in risen]) == []
    assert "43,200 commits in 30 days" in capsys.readouterr().out


def test_data_files_may_rise() -> None:
    assert told([replace(each, data_files=240 + each.hour) for each in MONTH]) == []
