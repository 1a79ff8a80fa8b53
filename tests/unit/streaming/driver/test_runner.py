"""What a driver does between queries and when things fail, without Spark; the real one is in tests/integration."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaUnavailableError
from jobs.clients.registry.failures import RegistryUnavailableError
from jobs.clients.registry.known_schemas import RegistryRemadeError
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.store_proof import unrenewed
from jobs.config.settings.settings import LocalBrokerDown, Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.batch.retry import is_unavailable
from jobs.streaming.driver.context.progress import WorkLog
from jobs.streaming.driver.context.results import BatchDone
from jobs.streaming.driver.context.source_topics import TopicsAwaitedError
from jobs.streaming.driver.process import drain
from jobs.streaming.driver.process import query as query_module
from jobs.streaming.driver.process import runner as runner_module
from jobs.streaming.driver.process.batch_pace import pause_after
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.driver.process.query import StreamQuery
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, LastError, read_heartbeat
from jobs.tables.commit.stamp.errors import (
    CommitUnknownError,
    FencedError,
    LeaseExpiredError,
    ToleranceError,
)
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from tests.helpers.waiting import wait_for

P = TopicPartition("payments", 0)


def spec(**more: Any) -> StreamSpec:
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"], "max_records_per_batch": 100},
        "decode": {"value": "json", "schema": "id string"},
        "table": {"name": "orders.payments"},
    }
    return StreamSpec.model_validate(document | more)


def done(read: int = 10, lag: int = 0, batch: int = 0) -> BatchDone:
    return BatchDone(batch, Counts(read=read, landed=read), 1.0, 0.5, 0.1, {P: lag}, None)


@pytest.mark.parametrize(
    ("trigger", "batch", "took", "between", "pause"),
    [
        ({"every": "60s"}, done(), 15.0, 0.0, 45.0),
        ({"every": "60s"}, done(), 15.0, 5.0, 40.0),
        ({"every": "60s"}, done(), 15.0, 50.0, 0.0),
        ({"every": "60s"}, done(), 90.0, 0.0, 0.0),
        ({"every": "60s"}, done(lag=99), 15.0, 0.0, 45.0),
        ({"every": "60s"}, done(lag=100), 15.0, 0.0, 0.0),
        ({"every": "60s"}, done(read=0), 15.0, 0.0, 0.0),
        ("as_fast_as_possible", done(), 15.0, 0.0, 0.0),
        ("available_now", done(), 15.0, 0.0, 0.0),
    ],
    ids=str,
)
def test_the_pause_after_a_batch(trigger: Any, batch: BatchDone, took: float, between: float, pause: float) -> None:
    assert pause_after(spec(trigger=trigger), batch, took, between) == pause


@pytest.mark.parametrize(
    ("red", "batch", "pause"),
    [
        (False, done(), 5.0),
        (True, done(), 55.0),
        (True, done(lag=99), 55.0),
        # What is full makes large files, and waits for nothing.
        (True, done(lag=100), 0.0),
    ],
)
def test_the_pause_while_the_table_is_red(red: bool, batch: BatchDone, pause: float) -> None:
    slower = spec(trigger={"every": "10s", "while_red": "60s"})
    assert pause_after(slower, batch, 5.0, red=red) == pause
    assert pause_after(spec(trigger={"every": "10s"}), done(), 5.0, red=red) == 5.0


@pytest.mark.parametrize(
    ("problem", "away"),
    [
        (KafkaUnavailableError("no answer"), True),
        (KafkaUnavailableError("wrong password", refused=True), False),
        (LocalBrokerDown("not running"), True),
        (CommitUnknownError("no answer"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), True),
        (TimeoutError(), True),
        (OSError(errno.ENOSPC, "disk full"), True),
        (OSError("an object store's client says so without a number"), True),
        (OSError(errno.EMFILE, "too many open files"), False),
        (PermissionError(errno.EACCES, "denied"), False),
        (unrenewed("payments", OSError(errno.EIO, "no answer"), 30.0), True),
        (unrenewed("payments", PermissionError(errno.EACCES, "denied"), 30.0), False),
        (LeaseExpiredError("payments", 1, 31.0, 30.0), False),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (ToleranceError("a record failed"), False),
        (FrazilError("topic payments does not exist any more."), False),
        (TopicsAwaitedError("topic payments does not exist."), True),
        (ValueError("a bug"), False),
    ],
    ids=repr,
)
def test_what_is_waited_for_and_what_is_not(problem: Exception, away: bool) -> None:
    assert is_unavailable(problem) is away


class FakeQuery:
    """A query during whose first wait a batch lands and something else is asked."""

    begins: list[dict[TopicPartition, int]] = []  # noqa: RUF012 - shared on purpose

    def __init__(self, stream: Any, kafka: Any, **told: Any) -> None:
        self.id = "q"
        self.asked_to_end = False
        FakeQuery.begins.append(dict(stream.begin.offsets))

    def start(self, spark: Any) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        return self.asked_to_end

    def waits_for(self) -> str | None:
        return None

    def between_batches(self, act: Callable[[], None]) -> None:
        act()

    def ask_to_end(self) -> None:
        self.asked_to_end = True

    def abandon(self) -> None:
        pass


def test_a_query_begins_where_the_stamps_stand_also_after_a_pause_within_a_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stamps = iter([{P: 1_000_000}])
    stream: Any = SimpleNamespace(
        begin=SimpleNamespace(offsets={P: 0}),
        lease=SimpleNamespace(lost=None),
        log=SimpleNamespace(topics={}),
        schemas=None,
    )
    asked = iter(["run", "pause", "pause", "run", "run", "end", "end"])
    control: Any = SimpleNamespace(now=lambda: next(asked, "end"), wait_while=lambda *a: None)
    watch: Any = SimpleNamespace(follow=lambda log: None, outdated=False, away=None)

    def decide(opened: Any, kafka: Any) -> None:
        opened.begin = SimpleNamespace(offsets=next(stamps))

    monkeypatch.setattr(runner_module, "StreamQuery", FakeQuery)
    monkeypatch.setattr(runner_module, "decide_start", decide)
    FakeQuery.begins = []
    context = SimpleNamespace(applicationId="a", uiWebUrl=None, master="local[2]", _jvm=None)
    spark: Any = SimpleNamespace(sparkContext=context)
    settings: Any = SimpleNamespace()
    heartbeat = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    runner = runner_module.StreamRunner(spec(), settings, heartbeat, control, lambda: spark)
    runner._run_queries(stream, SimpleNamespace(), watch)  # type: ignore[arg-type]
    assert FakeQuery.begins == [{P: 0}, {P: 1_000_000}]
    assert not runner.finished


def test_a_driver_whose_batch_gets_no_answer_is_retrying_and_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream: Any = SimpleNamespace(
        begin=SimpleNamespace(offsets={P: 0}),
        lease=SimpleNamespace(lost=None),
        log=SimpleNamespace(topics={}),
        schemas=None,
    )
    heartbeat = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    said: list[tuple[str, str | None]] = []
    answers = iter([None, "the catalog has not answered", "the catalog has not answered", None, None])

    class Waits(FakeQuery):
        def wait(self, seconds: float) -> bool:
            error = heartbeat.current().error
            said.append((heartbeat.state, error and error.message))
            return self.asked_to_end

        def waits_for(self) -> str | None:
            return next(answers, None)

    asked = iter(["run"] * 7)
    control: Any = SimpleNamespace(now=lambda: next(asked, "end"), wait_while=lambda *a: None)
    monkeypatch.setattr(runner_module, "StreamQuery", Waits)
    context = SimpleNamespace(applicationId="a", uiWebUrl=None, master="local[2]", _jvm=None)
    spark: Any = SimpleNamespace(sparkContext=context)
    watch: Any = SimpleNamespace(follow=lambda log: None, outdated=False, away=None)
    settings = Settings.embedded(tmp_path)
    runner = runner_module.StreamRunner(spec(), settings, heartbeat, control, lambda: spark)
    runner._run_queries(stream, SimpleNamespace(), watch)  # type: ignore[arg-type]
    away = ("retrying", "the catalog has not answered")
    assert said[:5] == [("running", None), ("running", None), away, away, ("running", None)]
    assert heartbeat.state == "stopping"


def test_a_driver_without_brokers_is_retrying_since_they_were_lost_also_once_its_query_fails_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream: Any = SimpleNamespace(
        begin=SimpleNamespace(offsets={P: 0}),
        lease=SimpleNamespace(lost=None),
        log=SimpleNamespace(topics={}),
        schemas=None,
    )
    heartbeat = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    lost, said = LastError("Kafka is away (since 2026-01-01 10:00:00 UTC)", "away", 1767261600.0, "look"), []
    watch: Any = SimpleNamespace(follow=lambda log: None, outdated=False, away=None)
    away = iter([lost, lost, None, lost])

    class Waits(FakeQuery):
        def wait(self, seconds: float) -> bool:
            beat = heartbeat.current()
            said.append((beat.state, beat.error, beat.state_since))
            watch.away = next(away, lost)
            if len(said) == 6:
                raise KafkaUnavailableError("Kafka is gone.", fix="look")
            return False

    control: Any = SimpleNamespace(now=lambda: "run", wait_while=lambda *a: None)
    monkeypatch.setattr(runner_module, "StreamQuery", Waits)
    context = SimpleNamespace(applicationId="a", uiWebUrl=None, master="local[2]", _jvm=None)
    spark: Any = SimpleNamespace(sparkContext=context)
    settings = Settings.embedded(tmp_path)
    runner = runner_module.StreamRunner(spec(), settings, heartbeat, control, lambda: spark)
    with pytest.raises(KafkaUnavailableError) as gone:
        runner._run_queries(stream, SimpleNamespace(), watch)  # type: ignore[arg-type]
    retrying = ("retrying", lost, lost.at)
    assert [said[0][:2], *said[1:3], said[3][:2], *said[4:]] == [
        ("running", None),
        *(retrying, retrying),
        ("running", None),
        *(retrying, retrying),
    ]
    heartbeat.work.lag({}, 1767261700.0)
    runner._wait_for(gone.value)
    beat = heartbeat.current()
    assert beat.error is not None
    assert beat.error.message == "Kafka is gone (since 2026-01-01 10:00:00 UTC)"
    assert (beat.state, beat.state_since) == ("retrying", lost.at)
    assert (beat.work.total_lag, beat.work.lag_unknown_since) == (None, beat.error.at), "nobody looks it up"


def test_a_batch_that_lands_while_the_brokers_are_away_leaves_the_reason_and_another_reason_replaces_it(
    tmp_path: Path,
) -> None:
    target = SimpleNamespace(snapshot_id=1)
    stream: Any = SimpleNamespace(anchor=target, dead_letters=target, targets={})
    nothing: Any = None
    heartbeat = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    runner = runner_module.StreamRunner(spec(), Settings.embedded(tmp_path), heartbeat, nothing, nothing)
    heartbeat.change(state="running", error=None)
    brokers, catalog = LastError("Kafka is away", "away", 5.0), LastError("the catalog is away", "away", 9.0)
    reported: list[tuple[str, LastError | None, float]] = []
    for why in (brokers, catalog):
        runner._report_waiting(why)
        runner._landed(stream, done(), {P: 1})
        beat = heartbeat.current()
        reported.append((beat.state, beat.error, beat.state_since))
    assert reported == [("retrying", brokers, 5.0), ("retrying", catalog, 5.0)]
    runner._report_waiting(None)
    assert (heartbeat.state, heartbeat.current().error) == ("running", None)


def test_what_is_waited_for_is_said_with_the_time_since_when(tmp_path: Path) -> None:
    heartbeat = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    control: Any = SimpleNamespace(now=lambda: "run", wait_while=lambda *a: None)
    settings = Settings.embedded(tmp_path)
    runner = runner_module.StreamRunner(spec(), settings, heartbeat, control, lambda: None)  # type: ignore[arg-type]
    said: list[str] = []
    for _ in range(3):
        runner._wait_for(RegistryUnavailableError("The registry does not answer.", fix="wait"))
        error = heartbeat.current().error
        assert error is not None
        assert error.fix == "wait"
        said.append(error.message)
    assert said[0] == "The registry does not answer."
    assert re.fullmatch(r"The registry does not answer \(since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", said[1])
    assert said[2] == said[1]


def test_a_registry_that_was_made_anew_meanwhile_ends_the_query_between_two_batches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schemas: Any = SimpleNamespace(remade=None)
    stream: Any = SimpleNamespace(
        begin=SimpleNamespace(offsets={P: 0}),
        lease=SimpleNamespace(lost=None),
        log=SimpleNamespace(topics={}),
        schemas=schemas,
    )
    asked: list[bool] = []

    class Watched(FakeQuery):
        def wait(self, seconds: float) -> bool:
            asked.append(self.asked_to_end)
            schemas.remade = RegistryRemadeError("made anew") if len(asked) == 3 else schemas.remade
            return self.asked_to_end

    monkeypatch.setattr(runner_module, "StreamQuery", Watched)
    context = SimpleNamespace(applicationId="a", uiWebUrl=None, master="local[2]", _jvm=None)
    spark: Any = SimpleNamespace(sparkContext=context)
    control: Any = SimpleNamespace(now=lambda: "run", wait_while=lambda *a: None)
    watch: Any = SimpleNamespace(follow=lambda log: None, outdated=False, away=None)
    heartbeat = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    settings: Any = SimpleNamespace()
    runner = runner_module.StreamRunner(spec(), settings, heartbeat, control, lambda: spark)
    with pytest.raises(RegistryRemadeError):
        runner._run_queries(stream, SimpleNamespace(), watch)  # type: ignore[arg-type]
    assert asked == [False, False, False, True]
    # The same while it stands by.
    stream.begin.offsets = {}
    with pytest.raises(RegistryRemadeError):
        runner._run_queries(stream, SimpleNamespace(), watch)  # type: ignore[arg-type]


@pytest.mark.parametrize(("letters", "dead", "told"), [(0, 0, 0), (3, 0, 1), (3, 3, 1)])
def test_the_topic_of_letters_is_told_of_letters_whose_batch_had_landed(
    tmp_path: Path, letters: int, dead: int, told: int
) -> None:
    """A driver that died between its two commits leaves the letters to the next one, which counts no record of them."""
    wakes: list[int] = []
    target = SimpleNamespace(snapshot_id=1)
    stream: Any = SimpleNamespace(anchor=target, dead_letters=target, targets={})
    nothing: Any = None
    settings: Any = SimpleNamespace()
    heartbeat = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    runner = runner_module.StreamRunner(spec(), settings, heartbeat, nothing, nothing)
    runner._letters = SimpleNamespace(wake=lambda: wakes.append(1))  # type: ignore[assignment]
    runner._landed(stream, BatchDone(0, Counts(dead=dead), 1.0, 0.5, 0.1, {}, None, letters=letters), {P: 1})
    assert len(wakes) == told


def test_a_drain_tells_of_letters_whose_batch_had_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    landed: list[BatchDone] = []

    class Query:
        outgrown = False

        def __init__(self, *given: Any, drain: bool, bound: Any, on_batch: Any) -> None:
            self.on_batch = on_batch

        def run(self, spark: Any) -> None:
            self.on_batch(BatchDone(0, Counts(), 1.0, 0.5, 0.1, {}, None, letters=3), {P: 7})

    monkeypatch.setattr(drain, "StreamQuery", Query)
    result = drain.Drained("payments", 1)
    drain._run_queries(SimpleNamespace(spec=spec()), None, None, result, landed.append)  # type: ignore[arg-type]
    assert [done.letters for done in landed] == [3]
    assert (result.batches, result.positions) == ([], {P: 7})


def test_a_batch_that_fails_while_an_end_is_asked_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began, go = threading.Event(), threading.Event()

    class Runner:
        def __init__(self, *given: Any) -> None:
            pass

        def run(self, *given: Any) -> BatchDone:
            began.set()
            assert go.wait(120)
            raise ToleranceError("a record failed, and s3cret is the password")

    class Spark:
        isActive = True  # noqa: N815 - as Spark calls it

        def stop(self) -> None:
            self.isActive = False

        def awaitTermination(self, seconds: float) -> bool:  # noqa: N802 - as Spark calls it
            return False

    monkeypatch.setattr(query_module, "_end_of", lambda *given: {})
    monkeypatch.setattr(query_module, "BatchRunner", Runner)
    stream: Any = SimpleNamespace(
        folder=SimpleNamespace(new_checkpoint=lambda: tmp_path), spec=spec(), lease=SimpleNamespace(verify=lambda: None)
    )
    query = StreamQuery(stream, SimpleNamespace(), drain=False, on_batch=lambda *given: None)  # type: ignore[arg-type]
    query._query = Spark()
    told: list[BaseException] = []

    def land() -> None:
        try:
            query._land(None, 0)  # type: ignore[arg-type]
        except Exception as problem:
            told.append(problem)

    thread = threading.Thread(target=land)
    thread.start()
    assert began.wait(120)
    query.ask_to_end()
    go.set()
    thread.join()
    with pytest.raises(ToleranceError, match="a record failed"):
        query.wait(1.0)
    # What Spark is told, and writes to its log, quotes nothing.
    assert [str(problem) for problem in told] == ["batch 0 ended with ToleranceError"]
    assert told[0].__cause__ is None
    assert told[0].__suppress_context__


class Taken:
    """A lease that another driver takes."""

    def __init__(self) -> None:
        self.lost = False

    def verify(self) -> None:
        if self.lost:
            raise FencedError("payments", 1, 2, "the lease")


@pytest.mark.parametrize("where", ["spark", "batch"])
def test_who_has_lost_the_stream_is_told_that_and_not_of_the_checkpoint_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    class Spark:
        def awaitTermination(self, seconds: float) -> bool:  # noqa: N802 - as Spark calls it
            if where == "spark":
                raise RuntimeError("batch 4 doesn't exist in checkpoints/1a2b/offsets")
            # What the successor did away with is missing also where a batch looks for it.
            query._land(None, 4)  # type: ignore[arg-type]
            return False

    monkeypatch.setattr(query_module, "BatchRunner", lambda *given: None)
    made: list[Path] = []

    def new_checkpoint() -> Path:
        made.append(tmp_path / "checkpoint")
        return made[-1]

    lease = Taken()
    stream: Any = SimpleNamespace(folder=SimpleNamespace(new_checkpoint=new_checkpoint), spec=spec(), lease=lease)
    query = StreamQuery(stream, SimpleNamespace(), drain=True, on_batch=lambda *given: None)  # type: ignore[arg-type]
    query._query = Spark()
    with pytest.raises((RuntimeError, FileNotFoundError)):
        query.wait(1.0)
    lease.lost = True
    with pytest.raises(FencedError, match="another driver took over"):
        query.wait(1.0)
    with pytest.raises(FencedError):
        StreamQuery(stream, SimpleNamespace(), drain=True, on_batch=lambda *given: None)  # type: ignore[arg-type]
    assert len(made) == 1, "the successor's checkpoint stays"


def test_the_heart_goes_on_whatever_fails_beside_it(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path / "driver.log", full, every_seconds=0.02):
        first = read_heartbeat(LocalStore(tmp_path))
        assert first is not None
        assert _later(tmp_path, first.beat).state == "starting"


def test_an_attempt_that_wakes_up_late_does_not_write_over_the_next(tmp_path: Path) -> None:
    with (
        HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path, every_seconds=0.02) as old,
        HeartbeatThread(LocalStore(tmp_path), "payments", "g", 2, tmp_path, every_seconds=0.02),
    ):
        old.change(state="running")
        wait_for(lambda: old.superseded, "it to be told")
        beat = read_heartbeat(LocalStore(tmp_path))
        assert beat is not None
        assert (beat.attempt, beat.state) == (2, "starting")


def _later(folder: Path, than: float) -> Heartbeat:
    def later() -> Heartbeat | None:
        beat = read_heartbeat(LocalStore(folder))
        return beat if beat is not None and beat.beat > than else None

    wait_for(later, "a later heartbeat")
    beat = later()
    assert beat is not None
    return beat


def test_work_adds_up_over_openings_and_forgets_what_is_no_longer_recent() -> None:
    work = WorkLog(1000.0)
    work.opened({P: 0})
    work.begun(1001.0)
    assert work.work(1002.0).busy_since == 1001.0
    work.done(done(read=30, lag=7), {P: 30}, 1010.0, snapshot_id=1, dead_letter_snapshot_id=2, refusals=5)
    work.opened({P: 30})
    work.done(done(read=20, batch=4), {P: 50}, 1100.0, snapshot_id=3, dead_letter_snapshot_id=2, refusals=1)
    now = work.work(1200.0)
    assert (now.read, now.batches, now.batch, now.refusals, now.busy_since) == (50, 2, 4, 6, None)
    assert (now.position, now.lag, now.snapshot_id) == ({"payments": {"0": 50}}, {"payments": {"0": 0}}, 3)
    assert (now.recent.read, now.recent.seconds, now.recent.rate) == (50, 200.0, 0.25)
    assert work.work(1350.0).recent.read == 20
    work.lag({P: 58}, 1360.0)
    assert (work.work(1360.0).total_lag, work.work(1360.0).lag_at) == (8, 1360.0)
    # A batch that the targets had already counts as nothing.
    work.done(done(read=0, batch=5), {P: 50}, 1400.0, snapshot_id=3, dead_letter_snapshot_id=2, refusals=1)
    assert (work.work(1400.0).batches, work.work(1400.0).batch, work.work(1400.0).last_commit_at) == (2, 4, 1100.0)


def test_a_batch_committed_from_a_record_is_told_and_stays_told() -> None:
    work = WorkLog(1000.0)
    assert not work.work(1000.0).made_progress
    work.opened({P: 5}, recovered=1)
    work.opened({P: 5})
    assert (work.work(1000.0).recovered, work.work(1000.0).made_progress) == (1, True)
    counts = {"snapshot_id": None, "dead_letter_snapshot_id": None, "refusals": 0}
    work.done(done(), {P: 15}, 1001.0, **counts)
    assert (work.work(1001.0).recovered, work.work(1001.0).batches) == (1, 1)


def test_a_topic_that_is_not_there_yet_is_asked_for_every_ten_seconds(tmp_path: Path) -> None:
    waited: list[float] = []
    control: Any = SimpleNamespace(wait_while=lambda asked, seconds: waited.append(seconds))
    nothing: Any = None
    heartbeat = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    runner = runner_module.StreamRunner(spec(), Settings.embedded(tmp_path), heartbeat, control, nothing)
    for _ in range(7):
        runner._wait_for(TopicsAwaitedError("stream payments: topic payments does not exist.", fix="create it"))
    assert waited == [1, 2, 4, 8, 10, 10, 10]
    beat = heartbeat.current()
    assert beat.error is not None
    assert (beat.state, beat.error.kind, beat.error.fix) == ("retrying", "away", "create it")
