"""Heartbeat of a driver: its state and its work in one small document, replaced every two seconds.

Only the driver writes it, from a thread of its own, so that it continues during a long batch. Its last heartbeat
records how it ended, with the error if there was one. A killed driver leaves a state that is not final, and a dead
process.
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
# Used if each heartbeat is two requests to a service.
SHARED_HEARTBEAT_SECONDS = 5.0

State = Literal[
    "starting",  # takes the lease, claims the tables, starts Spark
    "running",  # has a query: works on a batch, or waits for records or for the next trigger
    "paused",  # alive without a query, as an operator asked
    "retrying",  # Kafka or the catalog is unavailable; retries by itself
    "stopping",  # finishes the batch
    "stopped",  # ended as an operator asked, or to make room for the next attempt
    "terminated",  # ended by SIGTERM, after its batch
    "finished",  # available_now: everything was read
    "fenced",  # another driver took the stream, or the lease expired while the host was suspended
    "failed",  # ended by an error
]
FINAL = frozenset({"stopped", "terminated", "finished", "fenced", "failed"})
Offsets = dict[str, dict[str, int]]


class LastError(msgspec.Struct, frozen=True):
    """The error in a heartbeat, for a person.

    Attributes:
        kind: `operator`: going on would lose or duplicate records, so an operator must answer, and a restart is
            useless; `away`: Kafka or the catalog is unavailable; `error`: anything else.
        fix: Next command to type.
        at: Seconds since 1970.
        trace: Stack trace of an unexpected error; empty if the message is enough.
        question: With `operator`: whether records are in question until it is answered. False if records failed and
            none is to be set aside. None: a driver of an earlier version, which did not report it.
        failed: Failed records of the batch for which the stream stopped; 0 after another error.
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
    """Figures of the driver's last minutes, in a heartbeat.

    Attributes:
        seconds: Length of that time: five minutes at most, less after a start.
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
    """State of the newest flush request to the driver, in a heartbeat.

    Attributes:
        number: Number of the request; 0 without one.
        done: Whether the tables have everything that the topics held when the driver saw the request.
        batches, read, landed, dead: Work since then.
    """

    number: int = 0
    done: bool = False
    batches: int = 0
    read: int = 0
    landed: int = 0
    dead: int = 0


class Work(msgspec.Struct, frozen=True):
    """Work of a driver since it started, in a heartbeat; counters only grow.

    Fields that `jobs.streaming.supervision.documents.measures` explains are left out here. Times are seconds since
    1970.

    Attributes:
        recovered: Batches of earlier drivers that were committed from their pending records.
        busy_since: Start of the present batch; None between batches.
        got_on_at: Time when the tasks of a batch last progressed; None if that is not visible.
        unanswered_since: Time of the request that the JVM has not answered; None while it answers.
        lag: Records between the position and the log's end, by topic and partition, as of `lag_at`.
        lag_unknown_since: Time since which the ends of the logs cannot be queried; None while they can. `lag` and
            `undecided` are then older.
        waiting_since: Time since which records have waited without a finished batch; None if none wait, and for drivers
            of earlier versions.
        undecided: Records of open transactions behind the log's end, by topic and partition, as of `lag_at`.
        snapshot_id: Snapshot of the stream's table after the newest commit.
        watermark_ms: Watermark, milliseconds since 1970; None if the stream's file has no event time.
        late_by: Late records by lateness, as in `jobs.tables.commit.stamp.lateness.LATENESS_MS`.
        event_ms: Least and greatest event time of the newest batch with any; milliseconds since 1970.
        parked: Suspended tables and their times; milliseconds since 1970.
        flush: The newest flush request.
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
        """Whether the driver has committed a batch, its own or an earlier driver's."""
        return self.batches + self.recovered > 0

    @property
    def knows_lag(self) -> bool:
        """Whether the ends of the logs were queried, and still can be."""
        return self.lag_at is not None and self.lag_unknown_since is None

    @property
    def total_lag(self) -> int | None:
        """Number of waiting records; None if unknown."""
        return _total(self.lag) if self.knows_lag else None

    @property
    def last_lag(self) -> int | None:
        """Last known number of waiting records; None if it was never known."""
        return _total(self.lag) if self.lag_at is not None else None

    @property
    def complete_through(self) -> float | None:
        """Time before which every record is in the tables; seconds since 1970, None if unknown.

        A stream at the end of its topics was complete at the time of that query, even without a commit, unless records
        of open transactions waited there.
        """
        known = [self.valid_through_ms / 1000] if self.valid_through_ms is not None else []
        # Without a partition there is no end to reach.
        if self.lag and self.lag_at is not None and not _total(self.lag) and not _total(self.undecided):
            known.append(self.lag_at)
        return max(known, default=None)

    @property
    def total_undecided(self) -> int | None:
        """Number of records in open transactions; None if unknown."""
        return _total(self.undecided) if self.knows_lag else None


def _total(offsets: Offsets) -> int:
    return sum(sum(partitions.values()) for partitions in offsets.values())


class Heartbeat(msgspec.Struct, frozen=True):
    """One heartbeat of one driver.

    Attributes:
        generation: Generation of its configuration, see `jobs.config.settings.generation`.
        attempt: Number of its launch, which grows with every launch of the stream.
        epoch: Epoch of its lease; 0 until it has one.
        pid, started, boot, host: Identity of the process, as in the lease.
        since: Start of the driver; seconds since 1970.
        state_since: Start of the present state.
        beat: Seconds of the host's boot clock; `beat_wall` the same in seconds since 1970, for readers on other hosts.
        log: Path of its log file.
        error: Error for which it failed, or after which it retries.
        retries: Number of retries since the last commit, while `retrying`.
        unpublished_letters: Dead letters in the table that their topic lacks; None without a topic, or unknown.
        outbox_error: Reason why they are not published.
        group: Group whose driver runs the stream; its process goes on after this stream has ended.
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
        """Whether it is the driver's last heartbeat."""
        return self.state in FINAL

    def age(self) -> float:
        """Seconds since this heartbeat."""
        if self.boot == boot_id():
            return max(0.0, boot_clock() - self.beat)
        return max(0.0, time.time() - self.beat_wall)

    def process_lives(self) -> bool | None:
        """Whether its process runs; None if this host or container cannot see it."""
        return lives_here(self.pid, self.started, self.boot, self.host)


_DECODER = typed_decoder(Heartbeat)


def read_heartbeat(store: StateStore) -> Heartbeat | None:
    """Newest heartbeat of any driver of the stream with this part of the state store; None without one."""
    content = store.get(KEY)
    if content is None:
        return None
    with contextlib.suppress(*DAMAGED):
        beat = _DECODER.decode(content)
        if is_ahead(beat.boot, beat.beat_wall) or (store.shared and beat.boot != boot_id()):
            # Its clock is ahead of this one's, or another machine's: its age is the time that it was seen unchanged.
            seen = store.unchanged_for(KEY, content)
            return msgspec.structs.replace(beat, beat_wall=time.time() - seen)
        if store.shared:
            # A service that was unavailable may not have been written to yet.
            seen = store.unchanged_for(KEY, content)
            return msgspec.structs.replace(beat, beat=max(beat.beat, boot_clock() - seen))
        return beat
    return None


def write_heartbeat(store: StateStore, beat: Heartbeat) -> None:
    """Replace the heartbeat, so that a reader sees the old one or the new one.

    It need not survive a power cut: then the process is dead, and the lease, which survives, shows that.
    """
    store.put(KEY, msgspec.json.encode(beat), durable=False)
