from __future__ import annotations

import errno
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError, ServiceUnavailableError, TooManyRequestsError
from pyspark.errors import PythonException
from thrift.transport.TTransport import TTransportException

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.registry.failures import RegistryRefusedError, RegistryUnavailableError
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.settings.settings import Settings
from jobs.config.stream.error_handling import Retry
from jobs.streaming.driver.batch import batch as batch_module
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.batch.retry import (
    error_text,
    is_transient,
    is_unavailable,
    retry_delay,
    with_retries,
)
from jobs.streaming.driver.batch.tasks import PreparedBatch
from jobs.streaming.driver.context.results import TaskResults
from jobs.tables.commit.stamp.log_state import LogState
from tests.helpers.tasks import stream_spec

MINUTE = timedelta(minutes=1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return False


def failing(times: int, problem: Exception) -> Callable[[], str]:
    left = [times]

    def action() -> str:
        if left[0]:
            left[0] -= 1
            raise problem
        return "done"

    return action


def run(action: Callable[[], str], retry: Retry, clock: Clock, **changed: Any) -> str:
    return with_retries(
        action, retry, **{"wait": clock.wait, "on_failure": lambda *_: None, "clock": lambda: clock.now} | changed
    )


def test_the_pauses_double_from_300_ms_on_and_are_random_below_the_cap_after() -> None:
    assert [retry_delay(k, timedelta(seconds=2), None, lambda: 0.25) for k in (1, 2, 3, 4, 5, 9999)] == [
        0.3,
        0.6,
        1.2,
        0.5,
        0.5,
        0.5,
    ]


def test_a_pause_ends_with_the_time_that_is_left() -> None:
    assert retry_delay(5, MINUTE, 1.5) == 1.5
    assert retry_delay(5, MINUTE, -1.0) == 0.0


def test_what_passes_is_tried_until_it_has() -> None:
    clock = Clock()
    assert run(failing(3, ConnectionResetError()), Retry(timeout=MINUTE), clock) == "done"
    assert clock.pauses == [0.3, 0.6, 1.2]


def test_the_timeout_counts_from_the_first_attempt_on() -> None:
    clock = Clock()
    with pytest.raises(TimeoutError):
        run(failing(99, TimeoutError()), Retry(timeout=timedelta(seconds=2)), clock)
    assert clock.pauses == pytest.approx([0.3, 0.6, 1.1])


def test_forever() -> None:
    clock = Clock()
    assert run(failing(50, TimeoutError()), Retry(timeout="forever", max_delay=timedelta(seconds=1)), clock) == "done"


@pytest.mark.parametrize(
    ("retry", "problem"),
    [
        (Retry(), TimeoutError()),
        (Retry(), RegistryUnavailableError("away")),
        (Retry(timeout=MINUTE), ValueError("data")),
        (Retry(timeout="forever"), FrazilError("an operator's matter")),
        (Retry(timeout=MINUTE), PermissionError(errno.EACCES, "no")),
        (Retry(timeout=MINUTE), RegistryRefusedError("a wrong password")),
    ],
)
def test_what_is_tried_once(retry: Retry, problem: Exception) -> None:
    clock = Clock()
    with pytest.raises(type(problem)):
        run(failing(1, problem), retry, clock)
    assert clock.pauses == []


def test_a_registry_that_is_away_is_waited_for() -> None:
    clock = Clock()
    assert run(failing(3, RegistryUnavailableError("away")), Retry(timeout=MINUTE), clock) == "done"


def test_a_catalog_that_asks_to_be_asked_less_is_waited_for() -> None:
    assert is_unavailable(TooManyRequestsError())
    assert is_unavailable(ServiceUnavailableError())
    assert is_unavailable(TTransportException(TTransportException.NOT_OPEN, "Could not connect to any of"))
    assert not is_unavailable(ForbiddenError())


def test_a_stop_ends_the_waiting() -> None:
    with pytest.raises(TimeoutError):
        run(failing(1, TimeoutError()), Retry(timeout="forever"), Clock(), wait=lambda _: True)


@pytest.mark.parametrize(
    ("last_line", "transient"),
    [
        ("OSError: [Errno 28] No space left on device", True),
        ("OSError: When reading information for key 'x' in bucket 'y': AWS Error NETWORK_CONNECTION", True),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", True),
        ("urllib3.exceptions.TimeoutError: x", True),
        ("OSError: [Errno 24] Too many open files", False),
        ("PermissionError: [Errno 13] Permission denied", False),
        ("jobs.tables.write.projection.ProjectionError: the table has no column `x`", False),
        ("ValueError: x", False),
        (
            "jobs.clients.kafka.metadata.KafkaUnavailableError: Kafka: topic t, unread\n  Next: wait",
            True,
        ),
        (
            "jobs.clients.registry.failures.RegistryUnavailableError: The schema registry at http://a\n  Next: wait",
            True,
        ),
        (
            "jobs.clients.registry.failures.RegistryRefusedError: The registry at http://a refuses us\n  Next: look",
            False,
        ),
        ("jobs.clients.registry.failures.RegistryError: The schema registry at http://a\n  Next: look", False),
        ("jobs.clients.kafka.consumer.ReadError: Kafka: topic t, partition 0 cannot be read\n  Next: look", False),
    ],
)
def test_what_a_task_raised(last_line: str, transient: bool) -> None:
    text = (
        'Job aborted: Traceback (most recent call last):\n  File "slice_task.py", line 3, in take\n'
        f"    self.write(rows)\n{last_line}\n"
    )
    assert is_transient(PythonException(text)) is transient


class _Noted(Exception):
    """The batch has come to what is never tried again."""


def test_a_batch_is_tried_again_until_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []
    told: list[str | None] = []

    class Runner(BatchRunner):
        def _prepare(self, frame: Any, batch: Any, ranges: Any, end: Any, needs: Any) -> Any:
            attempts.append(len(attempts))
            told.append(self.waits.message())
            if len(attempts) < 3:
                raise ConnectionResetError
            return PreparedBatch({}, TaskResults({}, []), 0.0, LogEnds({}, {}, {}), 0)

    def noted(*_: Any) -> Any:
        raise _Noted

    monkeypatch.setattr(batch_module, "batch_stamp", noted)
    spec = stream_spec("id string", errors={"retry": {"timeout": "1m"}})
    begin, ends = SimpleNamespace(offsets={}), LogState({}, {}, {})
    folder, settings = StreamFolder.at(Path("/nowhere")), Settings.embedded(Path("/nowhere"))
    anchor = SimpleNamespace(name=spec.coordinator, newest=None)
    parts: dict[str, Any] = {"begin": begin, "log": ends, "anchor": anchor, "targets": {}}
    stream: Any = SimpleNamespace(spec=spec, settings=settings, folder=folder, **parts)
    clock = Clock()
    runner = Runner(stream, SimpleNamespace(), clock.wait)  # type: ignore[arg-type]
    with pytest.raises(_Noted):
        runner._attempt(None, 0, {}, {}, {})  # type: ignore[arg-type]
    assert len(attempts) == 3
    assert clock.pauses == [0.3, 0.6]
    assert told[0] is None
    assert told[1] == told[2]
    assert re.fullmatch(
        r"batch 0 is tried again after ConnectionResetError \(since \d\d:\d\d:\d\d UTC\)", told[1] or ""
    )
    assert runner.waits.message() is None


def test_of_others_only_what_cannot_quote_anything_is_said(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    refused = OSError("AWS Error ACCESS_DENIED during HeadObject operation for hunter2: No response body.")
    assert error_text(refused, settings) == "OSError (the store answers ACCESS_DENIED)"
    assert error_text(OSError(28, "hunter2"), settings) == "OSError (ENOSPC)"
    assert error_text(ValueError("hunter2"), settings) == "ValueError"
