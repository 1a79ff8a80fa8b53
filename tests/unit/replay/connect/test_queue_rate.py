"""How fast a Connect queue is taken."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.commit.offsets import TopicPartition
from jobs.replay.connect import importer
from jobs.replay.connect.importer import QueueCounts
from jobs.replay.dry_run import ReplayRequest
from jobs.spec.correction import parse_correction
from jobs.spec.loading import load_stream

QUEUE = TopicPartition("payments.dlq", 0)
SPEC = """\
stream: payments
source: {topics: [payments.v1]}
decode: {value: json, schema: id string not null}
table: {name: orders.payments}
"""


class Runner:
    """Takes each batch as it is told."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.taken: QueueCounts = QueueCounts()

    def run(self, frame: Any, batch: int, end: dict[TopicPartition, int]) -> None:
        before = self.ends[-1] if self.ends else 0
        self.ends.append(end[QUEUE])
        self.taken = QueueCounts(read=end[QUEUE] - before)


@pytest.mark.parametrize(
    ("of_file", "of_correction", "asked", "ends"),
    [
        (None, 2, None, [10, 20, 25]),
        (1, 2, None, [10, 20, 25]),
        (2, None, None, [10, 20, 25]),
        (1, 2, 5.0, [25]),
        (None, None, None, [25]),
    ],
)
def test_the_rate_of_a_correction_goes_before_that_of_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_file: int | None,
    of_correction: int | None,
    asked: float | None,
    ends: list[int],
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(importer.time, "sleep", pauses.append)
    path = tmp_path / "payments.yaml"
    path.write_text(SPEC + (f"errors: {{replay: {{rate: {of_file}}}}}\n" if of_file else ""))
    correction = parse_correction(path, f"errors: {{replay: {{rate: {of_correction}}}}}") if of_correction else None
    stream: Any = SimpleNamespace(log=SimpleNamespace(latest={QUEUE: 25}), begin=SimpleNamespace(offsets={QUEUE: 0}))
    runner: Any = Runner()
    request = ReplayRequest(correction=correction, rate=asked)
    size: Any = SimpleNamespace(most=100)
    spec = load_stream(path)
    earlier = QueueCounts()
    result = importer._run(runner, size, stream, spec, "payments.dlq", request, 0.0, earlier, lambda told: None)
    assert (runner.ends, result.read) == (ends, 25)
    assert len(pauses) == len(ends) - 1
