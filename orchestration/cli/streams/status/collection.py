"""Collection of streams and of their status from state folders, without reading any table."""

from __future__ import annotations

import time
from typing import NoReturn

from jobs.base.errors import FrazilError
from jobs.clients.kafka.open_transactions import find_hanging
from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.unknown_fields import read_unknown_fields
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Work
from jobs.streaming.supervision.processes.actual import QUIET_SECONDS
from jobs.streaming.supervision.state.observation import Observation, observe
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.streams.status.stream_status import (
    Freshness,
    Process,
    StreamStatus,
    Undeclared,
    event_span,
    utc,
)
from orchestration.reconcile.stream_files import read_files, stream_ids
from orchestration.reconcile.stream_state import next_command, state_word
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat
from resources.deployment import Deployment

# The observation and the spec of each stream, by id.
Listed = dict[str, tuple[Observation, StreamSpec]]


def list_streams(deployment: Deployment, settings: Settings) -> tuple[Listed, tuple[SpecError, ...]]:
    """Streams with files or with a running driver, by id; and the errors of invalid files."""
    files, listed = read_files(deployment), Listed()
    for stream in stream_ids(files, settings):
        observed = observe(stream, files, settings)
        shown = observed.desired.file in ("valid", "invalid") or observed.driver is not None
        if shown and observed.desired.spec is not None:
            listed[stream] = observed, observed.desired.spec
    return listed, files.errors


def refuse_unlisted(deployment: Deployment, settings: Settings, stream: str) -> NoReturn:
    """Raise the reason why a stream is not listed.

    Raises:
        FrazilError: The stream does not exist, or its file is invalid and it was never launched.
    """
    for error in read_files(deployment).errors_of(stream, None, settings.home):
        raise error
    deployment.stream(stream)
    raise FrazilError(f"The state of stream {stream} is unknown.", fix="run this again")


def status_from_state(observed: Observation, spec: StreamSpec, note: SupervisorHeartbeat | None = None) -> StreamStatus:
    """Status of a stream from its state folder alone.

    Args:
        observed: Observation of the stream.
        spec: Spec in the stream's file, or that of the last launch if the file is invalid.
        note: The supervisor's newest heartbeat; an old one is ignored.
    """
    status = StreamStatus(spec.stream, spec.table.name, spec.dead_letter_table)
    desired, actual, driver = observed.desired, observed.actual, observed.driver
    if actual.problem:
        status.state, status.unknown["control"], status.fix = "unknown", actual.problem, actual.fix
        return status
    supervised = note is not None and not note.is_silent(time.time())
    decision = note.decisions.get(spec.stream, {}) if note is not None and supervised else {}
    status.decision = decision.get("sentence")
    status.state = state_word(observed, decision.get("action"))
    status.control = desired.control
    status.launched.wanted_generation = desired.generation
    if desired.file == "invalid":
        status.file_problem = desired.error.problems[0] if desired.error is not None else desired.problem
    elif desired.file != "valid":
        status.file_problem = f"no file in {observed.settings.home / 'streams'} names the stream any more"
    held_back = driver is not None and driver.generation != desired.generation
    if desired.file == "valid" and held_back and decision.get("action") == "halt":
        # The file is valid, but the supervisor found in the catalog that its stream could not run.
        status.file_problem = decision.get("sentence")
    if actual.lease.state != "none":
        status.epoch = actual.lease.epoch
        status.state = "idle" if status.state == "never ran" else status.state
    status.fix = decision.get("fix") or next_command(observed, status.state)
    if actual.launch is not None:
        launched = status.launched
        launched.attempt, launched.generation = actual.launch.attempt, actual.launch.generation
        launched.failures_in_a_row = actual.launch.failures
    if (known := read_unknown_fields(observed.folder.store, spec.config_hash)) is not None:
        status.undeclared = Undeclared(known, known.unexpected(spec.slo), known.facts(spec.slo))
    if driver is not None:
        status.holder, status.group = driver.name, driver.group
        process = driver.process
        status.process = Process(driver.pid, driver.host, process.launcher, process.handle or None)
    elif actual.other_holder is not None:
        status.holder = actual.other_holder.name
    if actual.heartbeat is not None:
        lives = driver is not None and driver.heartbeat is not None
        _take_from_heartbeat(status, actual.heartbeat, actual.heartbeat_age, lives=lives)
        name_hanging(status, observed.settings.kafka.bootstrap_servers)
    return status


def name_hanging(status: StreamStatus, servers: str | None) -> None:
    """Name the command that finds a hanging transaction, if there is one and no other command comes first."""
    if status.hangs and not status.fix:
        (topic, partitions), *_ = status.work.undecided.items()
        status.fix = find_hanging(TopicPartition(topic, int(next(iter(partitions)))), servers or "…")


def _take_from_heartbeat(status: StreamStatus, beat: Heartbeat, age: float, *, lives: bool) -> None:
    launched, process, work = status.launched, status.process, beat.work
    status.beat, process.log = beat, beat.log or None
    launched.generation, launched.attempt = beat.generation, max(beat.attempt, launched.attempt or 0)
    if beat.error is not None and beat.error.fix and status.state not in ("idle", "draining"):
        status.fix = beat.error.fix
    if not lives:
        status.work = Work(reasons=work.reasons)
        return
    status.work, status.epoch = work, beat.epoch or status.epoch
    process.since, process.uptime_seconds = utc(beat.since), max(0.0, time.time() - beat.since)
    process.beat_age_seconds, process.spark_ui, process.metrics = age, beat.ui_url, beat.metrics_url
    status.freshness = Freshness(work.complete_through, work.watermark_ms and work.watermark_ms / 1000)
    if work.event_ms is not None:
        status.freshness.event_times = event_span(work.event_ms)
    if work.lag_unknown_since is not None:
        since = f"{utc(work.lag_unknown_since):%Y-%m-%d %H:%M UTC}"
        status.unknown["kafka"] = f"the driver of {status.stream} has not been able to look up its lag since {since}"
    elif age > QUIET_SECONDS:
        status.learn(lag_unknown_since=beat.beat_wall)
