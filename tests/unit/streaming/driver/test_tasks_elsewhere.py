"""Tasks in executors of a cluster: what they raise is decided on once, by the driver."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PythonException

from jobs.base.system.carried import NOTHING
from jobs.clients.kafka.metadata import KafkaUnavailableError
from jobs.streaming.driver.batch import tasks
from jobs.streaming.driver.batch.retry import is_transient
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

RANGES = {TopicPartition("payments", 0): OffsetRange(0, 5)}


class Executors:
    """A context whose tasks run at once; counts them."""

    def __init__(self, master: str) -> None:
        self.applicationId: str = "app-1"
        self.defaultParallelism: int = 2
        self.master: str = master
        self.ran: int = 0

    def parallelize(self, slices: list[Any], count: int) -> Any:
        def collect(run: Callable[[Any], Any]) -> list[Any]:
            self.ran += 1
            return [result for each in slices for result in run(iter([each]))]

        return SimpleNamespace(mapPartitions=lambda run: SimpleNamespace(collect=lambda: collect(run)))


@pytest.fixture
def plan() -> Any:
    target = SimpleNamespace(skip=frozenset())
    return SimpleNamespace(targets=(target,), fetched=frozenset(), carried=NOTHING, reader={}, timeout=1.0)


@pytest.mark.parametrize(
    ("problem", "passes"),
    [
        (KafkaUnavailableError("Kafka did not answer."), True),
        (ConnectionResetError(104, "reset"), True),
        (ValueError("a defect"), False),
    ],
)
def test_what_a_task_raises_comes_back_as_its_result(
    monkeypatch: pytest.MonkeyPatch, plan: Any, problem: Exception, passes: bool
) -> None:
    def run_split(*_: Any) -> list[Any]:
        raise problem

    monkeypatch.setattr(tasks, "run_split", run_split)
    stream: Any = SimpleNamespace(targets={})
    context: Any = Executors("spark://one:7077")
    with pytest.raises(PythonException) as told:
        tasks.run_tasks(stream, plan, RANGES, context)
    assert context.ran == 1
    assert type(problem).__name__ in str(told.value).splitlines()[0]
    assert is_transient(told.value) is passes
    local: Any = Executors("local[2]")
    with pytest.raises(type(problem)):
        tasks.run_tasks(stream, plan, RANGES, local)
