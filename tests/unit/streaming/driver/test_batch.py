"""A batch without Spark: what its tasks wrote goes into real tables, and what it did is told."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.records.formats.interface.decoder import Failure
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.progress import BatchWaits
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.row_steps import TakeStep
from jobs.streaming.task.tally import Tally
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.starting_point import StartingPoint
from jobs.tables.commit.stamp.errors import ToleranceError, UnaccountedRecordsError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from jobs.tables.write.target_writer import TargetWriter
from tests.helpers.dead_letters import SEEN, DeadLetterWorld
from tests.helpers.evolving_stream import EvolvingStream
from tests.helpers.waiting import wait_for

P = TopicPartition("payments.v1", 0)
SINK, DEAD = "orders.payments", "orders.payments_dead"


def opened(dead_letters: DeadLetterWorld, positions: dict[str, int]) -> OpenStream:
    """The stream, claimed, with its two tables standing at these offsets."""
    lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
    log = LogState({}, {}, {})
    targets = {name: Target(dead_letters.catalog, name, "payments") for name in (SINK, DEAD)}
    for name, target in targets.items():
        at = {P: positions[name]}
        target.claim(1, lambda newest, at=at: Stamp("payments", "claim", -1, 1, "c", start=at, position=at))
    given = ("payments", dead_letters.spec.config_hash, lease, targets, "", 1)
    folder = StreamFolder.at(dead_letters.home / "state")
    stream = OpenStream(*given, spec=dead_letters.spec, settings=dead_letters.settings, folder=folder, log=log)
    stream.folder.root.mkdir()
    stream.positions = {name: {P: at} for name, at in positions.items()}
    stream.begin = StartingPoint({P: min(positions.values())})
    return stream


class Runner(BatchRunner):
    """Its tasks find that one record failed."""

    def _run_tasks(self, frame: Any, batch: int, ranges: Any, needs: Any, survey: bool) -> TaskResults:
        table = self._stream.dead_letters.table
        records = pa.record_batch(
            {
                "key": pa.array([None], pa.binary()),
                "value": pa.array([b"{"], pa.binary()),
                "topic": [P.topic],
                "partition": pa.array([P.partition], pa.int32()),
                "offset": [3],
                "timestamp": pa.array([SEEN], pa.timestamp("us", "UTC")),
                "timestampType": pa.array([0], pa.int32()),
            }
        )
        failure = Failure(0, "decode_value", "malformed_json", "bad", None)
        rows = dead_letter_rows(
            records, [failure], stream="payments", config_hash="c", batch_id=0, epoch=1, first_seen=SEEN
        )
        writer = TargetWriter(table.metadata, table.io, file_prefix="test")
        writer.write(rows)
        # Counted are the records of the offsets that the stream's table lacks.
        dead = 0 if needs[SINK].nothing else 1
        return TaskResults(
            {SINK: [], DEAD: writer.close()},
            [Tally(P.topic, 0, read=5 * dead, dead=dead, filtered=4 * dead, rows={DEAD: 1})],
        )


@pytest.mark.parametrize(("sink_stands", "dead"), [(0, 1), (5, 0)])
def test_letters_are_told_also_of_a_batch_whose_rows_had_landed(
    dead_letters: DeadLetterWorld, sink_stands: int, dead: int
) -> None:
    """A driver that died between its two commits leaves the letters to the next one."""
    kafka: Any = SimpleNamespace(
        ends=lambda partitions: LogEnds({}, {}, {}), departures=lambda marks: {}, identities=lambda topics: {}
    )
    runner = Runner(opened(dead_letters, {SINK: sink_stands, DEAD: 0}), kafka)
    frame: Any = None
    done = runner.run(frame, 0, {P: 5})
    assert (done.counts.dead, done.letters) == (dead, 1)
    assert dead_letters.dead().scan().to_arrow().num_rows == 1
    assert runner.run(frame, 1, {P: 5}).letters == 0


def test_a_commit_that_a_locked_catalog_holds_up_says_so(dead_letters: DeadLetterWorld) -> None:
    """SQLite makes the commit wait for whoever writes to it; the batch lands once the lock is gone."""
    kafka: Any = SimpleNamespace(
        ends=lambda partitions: LogEnds({}, {}, {}), departures=lambda marks: {}, identities=lambda topics: {}
    )
    runner = Runner(opened(dead_letters, {SINK: 0, DEAD: 0}), kafka, waits=BatchWaits(long_seconds=0.2))
    uri = dead_letters.settings.catalog.revealed()["uri"].removeprefix("sqlite:///")
    told: list[int] = []
    with contextlib.closing(sqlite3.connect(uri, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        thread = threading.Thread(target=lambda: told.append(runner.run(None, 0, {P: 5}).letters))  # type: ignore[arg-type]
        thread.start()
        wait_for(lambda: runner.waits.message() is not None, "the wait to be told")
        said = runner.waits.message() or ""
        other.execute("ROLLBACK")
    thread.join(300)
    assert said.startswith(f"catalog frazil, asked to commit to {SINK}, has not answered since ")
    assert told == [1]
    assert runner.waits.message() is None


take_step, add_rows = TakeStep.apply, TargetWriter.add


def drop_first_row(step: TakeStep, block: Block) -> Block:
    taken = take_step(step, block)
    return taken.part(1, taken.rows.num_rows)


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ((TakeStep, "apply", drop_first_row), "of 2 records read from payments-0, 1 landed"),
        (
            (TargetWriter, "add", lambda writer, rows: add_rows(writer, rows.slice(1))),
            "3 rows for orders.payments are in",
        ),
    ],
)
def test_a_batch_that_does_not_add_up_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: tuple[Any, ...], message: str
) -> None:
    """A step or a writer that drops a row stops the stream before anything of the batch is committed."""
    one = EvolvingStream(tmp_path / "deployment", more={"transform": [{"set": {"site": "eu"}}]})
    before = one.table.current_snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(*planted)
        with pytest.raises(UnaccountedRecordsError, match=message):
            one.land({"id": "a"}, {"id": "b"}, {"id": "c"})
    assert one.table.current_snapshot() == before
    assert one.files == []
    one.land()
    assert one.rows == [{"id": each, "site": "eu"} for each in "abc"]


def test_a_batch_tells_how_many_records_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = EvolvingStream(tmp_path, columns="id string")
    kafka: Any = one.runner._kafka
    monkeypatch.setattr(kafka, "ends", lambda partitions: LogEnds({one.at: 3}, {one.at: 3}, {}))
    one.log += [b'{"id": "a"}', b'{"id": "b"}', b'{"id": "c"}']
    frame: Any = None
    done = one.runner.run(frame, 0, {one.at: 2})
    assert (done.counts.landed, done.lag) == (2, {one.at: 1})
    assert one.runner.run(frame, 1, {one.at: 3}).lag == {one.at: 0}


def test_a_stop_tells_that_the_record_is_not_put_into_the_topic_of_letters(tmp_path: Path) -> None:
    letters = {"table": DEAD, "topic": {"name": "letters", "stops": True}}
    one = EvolvingStream(tmp_path, more={"errors": {"tolerance": "none", "dead_letters": letters}})
    with pytest.raises(
        ToleranceError, match=r"It is not put into topic letters: topic\.stops has no effect any more\."
    ):
        one.land(b"no record")
