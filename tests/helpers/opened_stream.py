"""A routed stream that is opened as a driver opens it: by `opening.opened`, with a log in memory in place of Kafka."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from jobs.clients.kafka.metadata import LogEnds
from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.opening import opening
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition
from tests.helpers.evolving_stream import MemoryRunner
from tests.helpers.routed_stream import ROUTE, RoutedStream

KINDS = ("INS", "UPD", "DEL", "OWN", "other")


class MemoryKafka:
    """Kafka's answers to the opening of a stream, from the log of the stream.

    Attributes:
        first: The first offset that the log still keeps.
        identity: Kafka's id of the topic.
        partitions: Partitions of the topic; each has the same records.
    """

    def __init__(self, world: OpenedStream) -> None:
        self._world: OpenedStream = world
        self.first: int = 0
        self.identity: str = "Bc0aaaaaaaaaaaaaaaaaaQ"
        self.partitions: int = 1

    def _all(self, at: int) -> dict[TopicPartition, int]:
        return {TopicPartition("payments", number): at for number in range(self.partitions)}

    def state(self, source: object) -> LogState:
        end = self._all(len(self._world.log))
        return LogState({"payments": self.identity}, self._all(self.first), end, end, self._all(0), 1)

    def first_start(self, source: object, log: object) -> Positions:
        return self._all(self.first)

    def ends(self, partitions: Any) -> LogEnds:
        at = dict.fromkeys(partitions, len(self._world.log))
        return LogEnds(at, at, dict.fromkeys(partitions, 0))

    def departures(self, marks: object) -> dict[TopicPartition, int]:
        return {}

    def identities(self, topics: Any) -> dict[str, str]:
        return dict.fromkeys(topics, self.identity)


class OpenedStream(RoutedStream):
    """Open stream of routed records; offset `n` has the kind `KINDS[n % 5]`."""

    def __init__(self, home: Path, route: dict[str, Any] | None = ROUTE, **more: Any) -> None:
        super().__init__(home, route, **more)
        self.kafka: MemoryKafka = MemoryKafka(self)

    @contextlib.contextmanager
    def opened(self) -> Iterator[OpenStream]:
        """Open the stream for the length of the block, as a driver does."""
        kafka: Any = self.kafka
        with opening.opened(self.spec, self.settings, self.catalog, kafka) as stream:
            self.stream, self.spec = stream, stream.spec
            self.runner = MemoryRunner(self, kafka)
            yield stream

    def open_and_close(self) -> None:
        """Open the stream, which completes what a driver left, and land nothing."""
        with self.opened():
            pass

    def land_next(self, count: int = 5, batch: int = 0) -> None:
        """Produce as many records and land them; the stream is open."""
        first = len(self.log)
        self.land(
            *({"id": f"a{at}", "type": KINDS[at % 5], "n": at} for at in range(first, first + count)), batch=batch
        )

    def produce(self, count: int) -> None:
        """Produce as many records."""
        first = len(self.log)
        self.log += [
            json.dumps({"id": f"a{at}", "type": KINDS[at % 5], "n": at}).encode() for at in range(first, first + count)
        ]

    def land_elsewhere(self, count: int = 5) -> None:
        """Land as `land_next` does, by a driver of its own."""
        with self.opened():
            self.land_next(count)

    def killed_before(self, table: str) -> None:
        """Produce five records and land them; the driver dies before its commit to a table."""
        commit = OpenStream.commit

        def dies(stream: OpenStream, target: Any, *given: Any) -> Any:
            if target.name == table:
                raise OSError("killed")
            return commit(stream, target, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OpenStream, "commit", dies)
            with pytest.raises(OSError, match="killed"), self.opened():
                self.land_next()

    def answer(self, **answer: Any) -> None:
        """Give an operator's answer."""
        kafka: Any = self.kafka
        record_answer(self.spec, self.settings, lambda: kafka, Answer(**answer), "ada: because", lambda said: None)

    def roll_back(self, table: str, snapshot_id: int | None) -> None:
        """Move main of a table to an earlier snapshot."""
        there = self.catalog.load_table(table)
        moved = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
        self.catalog.commit_table(there, (), (SetSnapshotRefUpdate.model_validate(moved),))

    def restore(self, table: str, location: str) -> None:
        """Restore a table from an older metadata file, as a catalog's backup does: its uuid stays."""
        self.catalog.drop_table(table)
        self.catalog.register_table(table, location)

    def head(self, table: str) -> int | None:
        return self.catalog.load_table(table).metadata.current_snapshot_id

    def audited(self) -> StreamAudit:
        return audit(self.spec, self.settings, self.catalog, full=True)

    def at_step(self, name: str, action: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
        """Do something once, where the opening of the stream passes a failpoint."""
        return _at_step(name, action)


@contextlib.contextmanager
def _at_step(name: str, action: Callable[[], object]) -> Iterator[None]:
    real, done = opening.step, list[str]()

    def step(passed: str) -> None:
        real(passed)
        if passed == name and not done:
            done.append(passed)
            action()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "step", step)
        yield
