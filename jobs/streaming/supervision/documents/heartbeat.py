"""Heartbeat of a driver: its state and its work in one small document, replaced every two seconds.

The driver alone writes it, from a thread of its own, so that it does also while a batch is long. Its last heartbeat
says how it ended, with the error if there was one. A driver that was killed leaves a state that is not final, and a
process that is dead.
"""

from __future__ import annotations

import contextlib
import time
from typing import Literal

import msgspec

from jobs.base.system.boot import boot_clock, boot_id, is_ahead
from jobs.base.system.processes import lives_here
from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.tables.commit.stamp.lateness import NONE_LATE, Lateness

KEY = "heartbeat.json"
HEARTBEAT_SECONDS = 2.0
# Where each heartbeat is two requests to a service.
SHARED_HEARTBEAT_SECONDS = 5.0

State = Literal[
    "starting",  # takes the lease, claims the tables, starts Spark
    "running",  # has a query: works on a batch, or waits for records or for the next trigger
    "paused",  # alive without a query, as an operator asked
    "retrying",  # Kafka or the catalog is away; tries again by itself
    "stopping",  # finishes the batch
    "stopped",  # ended as an operator asked, or to make room for the next attempt
    "terminated",  # ended by SIGTERM, after its batch
    "finished",  # available_now: everything was read
    "fenced",  # another driver took the stream, or the lease ran out while the host slept
    "failed",  # ended by an error
]
FINAL = frozenset({"stopped", "terminated", "finished", "fenced", "failed"})
Offsets = dict[str, dict[str, int]]


class LastError(msgspec.Struct, frozen=True):
    """The error in a heartbeat, as a person is told it.

    Attributes:
        kind: `operator`: going on would lose or double records, an operator must answer, so a restart is no use;
            `away`: Kafka or the catalog could not be reached; `error`: anything else.
        fix: The next command to type.
        at: Seconds since 1970.
        trace: The stack trace of what nobody expected; empty where the message says it all.
        question: With `operator`: whether records are in question until it is answered. Not so where records failed and
            none is to be set aside. None: a driver of an earlier version, which did not say.
        failed: Records of the batch that the stream stopped over, as so many of them failed; 0 after another error.
        read: All records of that batch.
    """

    message: str
    kind: Literal["operator", "away", "error"]
    at: float
    fix: str | None = None
    trace: str = ""
    question: bool | None = None
    failed: int = 0
    read: int = 0


class Recent(msgspec.Struct, frozen=True):
    """What a heartbeat tells of the driver's last minutes.

    Attributes:
        seconds: How long that is: five minutes at most, less after a start.
    """

    seconds: float = 0.0
    read: int = 0
    landed: int = 0
    dead: int = 0

    @property
    def rate(self) -> float:
        """Records read per second."""
        return self.read / self.seconds if self.seconds > 0 else 0.0


class Flush(msgspec.Struct, frozen=True):
    """What a heartbeat tells of the newest flush that was asked of the driver.

    Attributes:
        number: Of the request; 0 without any.
        done: All is in the tables that the topics held when the driver heard of it.
        batches, read, landed, dead: What was landed since then.
    """

    number: int = 0
    done: bool = False
    batches: int = 0
    read: int = 0
    landed: int = 0
    dead: int = 0


class Work(msgspec.Struct, frozen=True):
    """What a heartbeat tells of the work of a driver since it started; counters only grow.

    What `jobs.streaming.supervision.documents.measures` explains is not explained here. Times are seconds since 1970.

    Attributes:
        recovered: Batches of earlier drivers that were committed from their pending records.
        busy_since: When the batch at hand began; None between batches.
        got_on_at: When the tasks of a batch were last seen to work; None where that cannot be seen.
        unanswered_since: When the JVM was asked the question that it has not answered; None while it answers.
        lag: Records between the position and the log's end, by topic and partition, as of `lag_at`.
        lag_unknown_since: Since when nobody could look where the log ends; None while that is looked up. `lag` and
            `undecided` are then of before.
        waiting_since: Since when records have waited without a batch that ended; None while none wait, and of drivers
            of earlier versions.
        undecided: Records of open transactions behind that end, by topic and partition, as of `lag_at`.
        snapshot_id: Of the stream's table, after the newest commit.
        watermark_ms: Milliseconds since 1970, None where the stream's file names no event time.
        late_by: By how much late records were late, as `jobs.tables.commit.stamp.lateness.LATENESS_MS` has it.
        event_ms: The least and the greatest event time of the newest batch with any; milliseconds since 1970.
        parked: The tables that are parked, and since when; milliseconds since 1970.
        flush: The newest that was asked of it.
    """

    batch: int | None = None
    batches: int = 0
    recovered: int = 0
    busy_since: float | None = None
    got_on_at: float | None = None
    unanswered_since: float | None = None
    read: int = 0
    landed: int = 0
    dead: int = 0
    tombstones: int = 0
    filtered: int = 0
    commit_seconds: float = 0.0
    batch_seconds: float = 0.0
    last_commit_seconds: float = 0.0
    last_batch_seconds: float = 0.0
    last_commit_at: float | None = None
    refusals: int = 0
    position: Offsets = {}
    lag: Offsets = {}
    lag_at: float | None = None
    lag_unknown_since: float | None = None
    waiting_since: float | None = None
    undecided: Offsets = {}
    undecided_since: float | None = None
    snapshot_id: int | None = None
    dead_letter_snapshot_id: int | None = None
    valid_through_ms: int | None = None
    reasons: dict[str, int] = {}
    recent: Recent = Recent()
    unknown_fields: dict[str, int] = {}
    watermark_ms: int | None = None
    late: int = 0
    late_by: Lateness = NONE_LATE
    latest_ms: int = 0
    event_ms: tuple[int, int] | None = None
    warned: dict[str, int] = {}
    parked: dict[str, int] = {}
    parked_letters: dict[str, int] = {}
    flush: Flush = Flush()

    @property
    def made_progress(self) -> bool:
        """Whether the driver has committed a batch, of its own or of one before it."""
        return self.batches + self.recovered > 0

    @property
    def knows_lag(self) -> bool:
        """Whether it has been looked up where the log ends, and still is."""
        return self.lag_at is not None and self.lag_unknown_since is None

    @property
    def total_lag(self) -> int | None:
        """Records that wait; None if that is not known."""
        return _total(self.lag) if self.knows_lag else None

    @property
    def last_lag(self) -> int | None:
        """Records that waited when that was last known; None if it never was."""
        return _total(self.lag) if self.lag_at is not None else None

    @property
    def complete_through(self) -> float | None:
        """Every record with an older timestamp is in the tables; seconds since 1970, None if unknown.

        A stream that stood at the end of its topics was complete when it was looked up, though no commit says so;
        unless records of open transactions waited there.
        """
        known = [self.valid_through_ms / 1000] if self.valid_through_ms is not None else []
        # Without a partition there is no end to stand at.
        if self.lag and self.lag_at is not None and not _total(self.lag) and not _total(self.undecided):
            known.append(self.lag_at)
        return max(known, default=None)

    @property
    def total_undecided(self) -> int | None:
        """Records that wait for the end of a transaction; None if that is not known."""
        return _total(self.undecided) if self.knows_lag else None


def _total(offsets: Offsets) -> int:
    return sum(sum(partitions.values()) for partitions in offsets.values())


class Heartbeat(msgspec.Struct, frozen=True):
    """One heartbeat of one driver.

    Attributes:
        generation: Of the configuration it runs under, see `jobs.config.settings.generation`.
        attempt: The launch that it belongs to; grows with every launch of the stream.
        epoch: Of its lease; 0 until it has one.
        pid, started, boot, host: The process, told apart as in the lease.
        since: When it started; seconds since 1970.
        state_since: When it took the present state.
        beat: Seconds of the host's boot clock; `beat_wall` the same since 1970, for readers on other hosts.
        log: Its log file.
        error: Why it failed, or what it is retrying after.
        retries: How often it has tried again since the last commit, while `retrying`.
        unpublished_letters: Dead letters in the table that their topic lacks; None without a topic, or unknown.
        outbox_error: Why they are not published.
        group: The group whose driver carries the stream; its process goes on when this stream has ended.
    """

    stream: str
    generation: str
    attempt: int
    pid: int
    started: str
    boot: str
    host: str
    since: float
    state: State
    state_since: float
    beat: float
    beat_wall: float
    epoch: int = 0
    log: str = ""
    application_id: str | None = None
    query_id: str | None = None
    ui_url: str | None = None
    metrics_url: str | None = None
    error: LastError | None = None
    retries: int = 0
    unpublished_letters: int | None = None
    outbox_error: LastError | None = None
    group: str | None = None
    work: Work = Work()

    @property
    def final(self) -> bool:
        """Whether it is the driver's last."""
        return self.state in FINAL

    def age(self) -> float:
        """Seconds since this heartbeat."""
        if self.boot == boot_id():
            return max(0.0, boot_clock() - self.beat)
        return max(0.0, time.time() - self.beat_wall)

    def process_lives(self) -> bool | None:
        """Whether its process runs; None if that cannot be told from this host, or from this container."""
        return lives_here(self.pid, self.started, self.boot, self.host)


_DECODER = typed_decoder(Heartbeat)


def read_heartbeat(store: StateStore) -> Heartbeat | None:
    """The newest heartbeat of any driver of the stream whose part of the state store this is; None without one."""
    content = store.get(KEY)
    if content is None:
        return None
    with contextlib.suppress(*DAMAGED):
        beat = _DECODER.decode(content)
        if is_ahead(beat.boot, beat.beat_wall) or (store.shared and beat.boot != boot_id()):
            # Written under a clock ahead of ours, or another machine's: it is as old as it has been seen unchanged.
            seen = store.unchanged_for(KEY, content)
            return msgspec.structs.replace(beat, beat_wall=time.time() - seen)
        if store.shared:
            # A service that has just come back may not have been written yet.
            seen = store.unchanged_for(KEY, content)
            return msgspec.structs.replace(beat, beat=max(beat.beat, boot_clock() - seen))
        return beat
    return None


def write_heartbeat(store: StateStore, beat: Heartbeat) -> None:
    """Replace the heartbeat, so that a reader sees the old one or the new one.

    It need not survive a power cut: then the process is gone, and the lease, which survives, says so.
    """
    store.put(KEY, msgspec.json.encode(beat), durable=False)
