"""Lag of a batch: the records that are left behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.kafka.metadata import LogEnds
from tests.helpers.evolving_stream import EvolvingStream


def test_a_batch_tells_how_many_records_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = EvolvingStream(tmp_path, columns="id string")
    kafka: Any = one.runner._kafka
    monkeypatch.setattr(kafka, "ends", lambda partitions: LogEnds({one.at: 3}, {one.at: 3}, {}))
    one.log += [b'{"id": "a"}', b'{"id": "b"}', b'{"id": "c"}']
    frame: Any = None
    done = one.runner.run(frame, 0, {one.at: 2})
    assert (done.counts.landed, done.lag) == (2, {one.at: 1})
    assert one.runner.run(frame, 1, {one.at: 3}).lag == {one.at: 0}
