"""Batches of a queue of a stream whose tables have columns of their own: each record by its original topic's table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.route import Route
from jobs.dead_letters.connect_queue.importer import QueueRunner
from jobs.dead_letters.connect_queue.opening import as_stream
from jobs.dead_letters.connect_queue.task import QueueCounts, QueueTask
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.opening import takeover
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.starting_point import StartingPoint
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.target_positions import (
    TargetNeed,
    need,
    restart_positions,
    target_positions,
)
from tests.helpers.lane_stream import DEAD, OWN, LaneStream
from tests.unit.dead_letters.replay.connect.queue_letters import QUEUE, Letter, Reader

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ROUTE: dict[str, Any] = {
    "by": "topic",
    "tables": [
        {"match": "a|dlq", "table": "lake.a", "columns": {"drop": ["secret"]}},
        {"match": "b", "table": "lake.b", "branch": "side"},
        {"match": "d", "table": "lake.never"},
    ],
}


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaneStream:
    made = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, source={"topics": ["a", "b", "c", "d"]})
    made.produce("a", {"id": 1, "secret": "s"})
    made.produce("b", {"id": "x"})
    made.land()
    made.spec = made.stream.spec
    return made


def of(topic: str, at: int, document: Any) -> Letter:
    value = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Letter(at, topic=topic, value=value)


def taken(
    one: LaneStream, *letters: Letter, at: dict[str, int] | None = None, decided: int | None = None
) -> tuple[dict[str, int], QueueCounts]:
    """Takes letters, of which tables may have the first ones by their stamps; rows by table, and counts."""
    reader: Any = Reader(letters)
    ranges = {QUEUE: OffsetRange(0, len(letters))}
    names = one.spec.target_names
    needs: dict[str, TargetNeed] = {name: need(ranges, {QUEUE: (at or {}).get(name, 0)}) for name in names}
    tables = {name: stream_table(one.catalog, one.spec, name) for name in names}
    task = QueueTask(one.spec, one.spec, reader)
    results, counts = task.run(ranges, tables, needs, first_seen=NOW, file_prefix="connect", decided=decided)
    for name, files in results.files.items():
        branch = one.spec.branch_of(name)
        with (
            one.catalog.load_table(name).transaction() as change,
            change.update_snapshot(branch=branch).fast_append() as append,
        ):
            for file in files:
                append.append_data_file(file)
    return {name: sum(file.record_count for file in files) for name, files in results.files.items() if files}, counts


def test_each_record_lands_in_the_table_of_its_original_topic_and_once(one: LaneStream) -> None:
    # Numbers before what the stream has read: from there on it reads them by itself.
    one.stream.positions.clear()
    letters = [
        of("a", 0, {"id": 1}),
        of("other", 3, {"id": 1}),
        of("d", 0, {"id": 1}),
        of("b", 7, {"id": "later"}),
    ]
    rows, counts = taken(one, *letters)
    assert rows == {DEAD: 1}, "a has its record, b and d are read by the stream itself, and no table is other's"
    assert (counts.read, counts.known, counts.left, counts.dead) == (4, 1, 2, 1)


def test_records_are_decoded_by_the_columns_of_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stream that reads the topics of somebody else's sink no more: theirs are not its own.
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, source={"topics_pattern": "[ab]"})
    one.produce("a", {"id": 1, "secret": "s"})
    one.produce("b", {"id": "x"})
    one.land()
    one.spec = one.stream.spec.model_copy(
        update={"source": one.stream.spec.source.model_copy(update={"topics_pattern": "none"})}
    )
    letters = [
        of("a", 5, {"id": 2, "secret": "t"}),
        of("b", 5, {"id": "y"}),
        of("b", 6, {"id": 3}),
        of("other", 0, {"id": 1}),
        of("d", 0, {"id": 1}),
        of("a", 7, b"no JSON"),
        of("a", 5, {"id": 2, "secret": "t"}),
    ]
    rows, counts = taken(one, *letters)
    assert rows == {"lake.a": 1, "lake.b": 1, DEAD: 4}
    assert (counts.read, counts.landed, counts.dead, counts.known) == (7, 2, 4, 1)
    assert one.placed()["lake.a"][-1] == ("a", 0, 5) and one.placed()["lake.b"][-1] == ("b", 0, 5)
    assert "secret" not in one.columns("lake.a") and one.placed().get(OWN) is None
    said = one.letters()
    assert said["b", 6] == "wrong_type: needs string, found a whole number"
    assert "no table of the route" in said["other", 0] or "that a table of the route takes" in said["other", 0]
    assert "needs a table of its own, which the stream makes" in said["d", 0]
    again, counts = taken(one, *letters)
    assert again == {} and (counts.landed, counts.known) == (0, 7)


def test_a_batch_of_the_queue_alters_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner that an import has takes a batch of tables whose columns have nothing in common."""
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, source={"topics_pattern": "[ab]"})
    one.produce("a", {"id": 1, "secret": "s"})
    one.produce("b", {"id": "x"})
    one.land()
    names = one.stream.spec.target_names
    before = {name: one.columns(name) for name in names}
    spec = one.stream.spec.model_copy(
        update={"source": one.stream.spec.source.model_copy(update={"topics_pattern": "none"})}
    )
    letters = [of("a", 5, {"id": 2}), of("b", 5, {"id": "y"}), of("b", 6, {"id": 3})]
    runner = queue_runner(one, spec, letters)
    runner.run(None, 0, {QUEUE: len(letters)})
    assert (runner.counts.landed, runner.counts.dead) == (2, 1)
    assert one.placed()["lake.a"][-1] == ("a", 0, 5) and one.placed()["lake.b"][-1] == ("b", 0, 5)
    assert {name: one.columns(name) for name in names} == before


def queue_runner(one: LaneStream, spec: StreamSpec, letters: list[Letter]) -> QueueRunner:
    """The runner of an import, whose queue is open as a stream of its own on the stream's tables."""
    queue = as_stream(spec, QUEUE.topic)
    targets = {name: Target(one.catalog, name, queue.stream, branch=spec.branch_of(name)) for name in spec.target_names}
    for target in targets.values():
        target.read()
    folder = stream_folder(one.settings, queue.stream)
    folder.root.mkdir(parents=True, exist_ok=True)
    lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
    log = LogState({QUEUE.topic: "id"}, {QUEUE: 0}, {QUEUE: len(letters)})
    stream = OpenStream(
        *(queue.stream, queue.config_hash, lease, targets, "", 1),
        spec=queue,
        settings=one.settings,
        folder=folder,
        log=log,
    )
    kafka: Any = SimpleNamespace(
        ends=lambda partitions: LogEnds({}, {}, {}),
        departures=lambda marks: {},
        identities=lambda topics: {},
        earliest=lambda partitions: dict.fromkeys(partitions, 0),
        first_start=lambda source, log: {QUEUE: 0},
    )
    takeover.claim(stream, kafka)
    takeover.recover(stream, one.catalog)
    stamps = {name: target.newest for name, target in targets.items()}
    stream.positions = target_positions(stamps, queue.coordinator)
    stream.begin = StartingPoint(restart_positions(stream.positions))
    reader: Any = Reader(letters)
    return QueueRunner(stream, kafka, QueueTask(spec, spec, reader))


def test_what_no_column_takes_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source: dict[str, Any] = {"source": {"topics_pattern": "[ab]"}, "evolve": {"add": "ignore"}}
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, **source)
    one.produce("a", {"id": 1})
    one.land()
    none = {"source": one.stream.spec.source.model_copy(update={"topics_pattern": "none"})}
    letters = [of("a", 5, {"id": 2, "new": 1}), of("a", 6, {"id": 3, "new": 2}), of("a", 7, {"id": 4})]
    runner = queue_runner(one, one.stream.spec.model_copy(update=none), letters)
    for end in (1, 3):
        runner.run(None, 0, {QUEUE: end})
    assert runner.unknown_fields == {"$.new": 2}


def test_a_record_that_failed_when_its_batch_was_decided_on_stays_a_letter_though_the_table_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, source={"topics_pattern": "[ab]"})
    one.produce("a", {"id": 1})
    one.land()
    one.spec = one.stream.spec.model_copy(
        update={"source": one.stream.spec.source.model_copy(update={"topics_pattern": "none"})}
    )
    # Both tables have the batch and no row of it, so the record failed then; the letters lack it.
    rows, counts = taken(one, of("a", 9, {"id": 2}), at={OWN: 1, "lake.a": 1}, decided=1)
    assert rows == {DEAD: 1} and counts.landed == 0
    assert one.letters()["a", 9].startswith("failed_before: failed when lake.a got its batch")


def test_the_stream_of_a_queue_asks_no_topic_that_it_reads(one: LaneStream) -> None:
    made = as_stream(one.spec, "dlq")
    assert one.spec.own_columns and not made.own_columns and made.target_names == one.spec.target_names
    assert not made.tables_follow
    both = {"by": "topic", "tables": [{"match": "a.*", "table": "lake.a"}, {"match": ".*x", "table": "lake.b"}]}
    spec = one.spec.model_copy(update={"route": Route.model_validate(both)})
    one.spec = spec
    with pytest.raises(FrazilError, match="topic ax is taken by"):
        taken(one, of("ax", 1, {"id": 1}))


def test_records_of_a_topic_of_a_stream_that_has_never_run_are_refused(
    one: LaneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.dead_letters.connect_queue.records.history", lambda *_: SimpleNamespace(newest=None))
    with pytest.raises(FrazilError, match="has never run"):
        taken(one, of("d", 0, {"id": 1}))
