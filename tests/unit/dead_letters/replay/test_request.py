"""How fast a replay goes: the request, the correction or the stream's file says."""

from __future__ import annotations

import pytest

from jobs.config.settings.correction import parse_correction
from jobs.dead_letters.replay.request import Pace, ReplayRequest
from tests.helpers.dead_letters import DeadLetterWorld


@pytest.mark.parametrize(
    ("of_file", "of_correction", "asked", "batch"),
    [
        (None, 2, None, 10),
        (1, 2, None, 10),
        (2, None, None, 10),
        (1, 2, 5.0, 25),
        (None, None, None, 100),
        (None, None, 0.1, 1),
    ],
)
def test_the_request_goes_before_the_correction_and_that_before_the_file(
    dead_letters: DeadLetterWorld, of_file: int | None, of_correction: int | None, asked: float | None, batch: int
) -> None:
    path = dead_letters.spec_file
    if of_file:
        path.write_text(path.read_text().replace("park_after: 2", f"park_after: 2, rate: {of_file}"))
    correction = parse_correction(path, f"errors: {{replay: {{rate: {of_correction}}}}}") if of_correction else None
    assert ReplayRequest(correction=correction, rate=asked).pace(dead_letters.spec, 100).batch == batch


def test_a_pause_is_as_long_as_the_rate_asks() -> None:
    pauses: list[float] = []
    pace = Pace(4.0, 100, pauses.append)
    for passed in (0, 20, 40):
        pace.wait(passed)
    assert [round(pause) for pause in pauses] == [5, 10]
    Pace(None, 100, pauses.append).wait(1000)
    assert len(pauses) == 2
