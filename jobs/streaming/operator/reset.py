"""Reset of a stream's offsets: the check whether it may be done, the plan, and the execution."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from pyiceberg.catalog import Catalog

from jobs.base.failpoints import step
from jobs.base.system.locks import exclusive
from jobs.base.system.private_files import private_folder
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.lease import stream_lease
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.open_stream import OpenStream, known_targets
from jobs.streaming.driver.context.source_topics import coordinator_stamp
from jobs.streaming.driver.tables.previous_targets import previous_stamps
from jobs.streaming.operator.backfill_stream import backfill_id
from jobs.streaming.operator.backfilled_rows import refusal_of_backfilled
from jobs.streaming.operator.reset_plan import Counting, ResetPlan, describe_reset
from jobs.streaming.operator.reset_request import ResetRequest
from jobs.streaming.operator.take_over import take_over
from jobs.streaming.supervision.documents.control_request import LOCK, read_control
from jobs.streaming.supervision.launchers.choice import looker
from jobs.streaming.supervision.processes.actual import read_certain
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.protocol import proposals
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.reset import (
    ResetMove,
    ResetRefusedError,
    complete_positions,
    note_of_reset,
    reset_moves,
    reset_stamps,
    valid_through_after,
)
from jobs.tables.commit.stamp.errors import table_gone
from jobs.tables.commit.stamp.log_state import check_identity
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import of_known_topics

_LOCK_SECONDS = 120.0


@contextlib.contextmanager
def control_lock(folder: StreamFolder, stream: str) -> Iterator[None]:
    """Guard a reset with the stream's control lock, so that nobody starts the stream meanwhile.

    Raises:
        ResetRefusedError: Another control action holds the lock.
    """
    private_folder(folder.root)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(exclusive(folder.root / LOCK, deadline_seconds=_LOCK_SECONDS))
        except TimeoutError:
            raise ResetRefusedError(
                f"stream {stream}: another control action is at work.", fix="wait for it to end, then run this again"
            ) from None
        yield


def reset_refusal(spec: StreamSpec, settings: Settings) -> ResetRefusedError | None:
    """Why the stream's offsets must not be moved now: it runs, may start, or is backfilled; None if it is stopped."""
    store = stream_folder(settings, spec.stream).store
    stop = f"frazil stop {spec.stream} --reason 'reset offsets'"
    filled = backfill_id(spec.stream)
    beside = read_certain(stream_folder(settings, filled).store, filled, looker(settings))
    if beside.lease.state == "live":
        # The backfill has decided by the stream's position what the stream will not read.
        return ResetRefusedError(
            f"stream {spec.stream} is backfilled by {beside.lease.name}; offsets are reset once that has ended.",
            fix=f"wait for process {beside.lease.pid} to end, then run this again",
        )
    actual = read_certain(store, spec.stream, looker(settings))
    if actual.lease.state == "live":
        return ResetRefusedError(
            f"stream {spec.stream} is run by {actual.lease.name}; offsets are reset while it is stopped.",
            fix=stop if spec.continuous else f"wait for process {actual.lease.pid} to end, then run this again",
        )
    if not spec.continuous:
        return None
    beat = actual.heartbeat
    if beat and not beat.final and actual.process:
        return ResetRefusedError(
            f"stream {spec.stream}: its driver, process {beat.pid}, is {beat.state}; offsets are reset while it is "
            "stopped.",
            fix=stop,
        )
    if read_control(store).mode == "running":
        return ResetRefusedError(
            f"stream {spec.stream} is wanted running, so a driver may start at any moment; offsets are reset while it "
            "is stopped.",
            fix=stop,
        )
    return None


def existing_targets(spec: StreamSpec, catalog: Catalog, remembered: Mapping[str, str]) -> dict[str, Target]:
    """Tables of a stream to be reset, the coordinator first, loaded and checked to be those it wrote; creates none.

    Args:
        remembered: Uuids by name, from the lease.

    Raises:
        ResetRefusedError: The stream has never run.
        StreamStopped: A table was rolled back, dropped or recreated; the message names the answer.
    """
    coordinator = coordinator_stamp(spec, catalog)
    names = [name for name in spec.target_names if coordinator is None or name not in coordinator.parked]
    missing = [name for name in names if not catalog.table_exists(name)]
    if missing and not remembered:
        complete_positions(spec.stream, {}, spec.coordinator)
    for name in missing:
        raise table_gone(spec.stream, name)
    return known_targets(spec, catalog, remembered)


def plan_reset(
    spec: StreamSpec,
    settings: Settings,
    connect: Callable[[], KafkaLog],
    request: ResetRequest,
    *,
    on_count: Counting = lambda *_: None,
) -> ResetPlan:
    """Plan what a reset would do; changes nothing.

    Args:
        connect: Connects to the brokers of the stream's topics.
        on_count: Called with the progress of counting rows.

    Raises:
        ResetRefusedError: It is not possible, whether or not the stream is stopped.
    """
    folder = stream_folder(settings, spec.stream)
    with connect_catalog(settings) as catalog:
        spec = with_named_tables(spec, catalog)
        targets = existing_targets(spec, catalog, {})
        stamps = _as_claimed(targets, spec.coordinator)
        kafka = connect()
        log = kafka.state(spec.source)
        anchored = stamps[spec.coordinator]
        check_identity(spec.stream, anchored.topics if anchored else {}, log.topics)
        unfinished = bool(folder.pending_records())
        try:
            known = complete_positions(spec.stream, stamps, spec.coordinator)
        except ResetRefusedError:
            if not unfinished or anchored is None:
                raise
            # The batch is finished first, and ends at the position of the target that has it.
            known = dict(anchored.position)
        made = reset_moves(spec.stream, known, log, request.offsets(spec.stream, log, kafka))
        older = _stamps_of(targets[spec.coordinator])
        return describe_reset(
            spec,
            request,
            targets,
            made,
            anchored,
            older,
            on_count=on_count,
            obstacle=reset_refusal(spec, settings)
            or refusal_of_backfilled(spec, settings, catalog, targets, request, made),
            unfinished=unfinished,
        )


def reset(
    spec: StreamSpec,
    settings: Settings,
    connect: Callable[[], KafkaLog],
    request: ResetRequest,
    who: str,
    reason: str,
    *,
    on_count: Counting = lambda *_: None,
) -> ResetPlan:
    """Move a stopped stream's position, and record author and reason in its stamps.

    Args:
        connect: Connects to the brokers of the stream's topics.
        on_count: Called with the progress of counting rows.

    Returns:
        The plan that was carried out.

    Raises:
        ResetRefusedError: The stream is not stopped, the reset is not possible, or it would double rows of a backfill;
            its position is unchanged.
    """
    folder = stream_folder(settings, spec.stream)
    with connect_catalog(settings) as catalog:
        with control_lock(folder, spec.stream):
            obstacle = reset_refusal(spec, settings)
            if obstacle:
                raise obstacle
            kafka = connect()
            lease = stream_lease(settings, spec.stream)
            held = lease.read()
            spec = with_named_tables(spec, catalog)
            targets = existing_targets(spec, catalog, held.targets if held else {})
            newest = targets[spec.coordinator].newest
            if newest is None:
                complete_positions(spec.stream, {}, spec.coordinator)
            # Checked before anything is taken, so that a refusal leaves everything unchanged.
            log = kafka.state(spec.source)
            wanted = request.offsets(spec.stream, log, kafka)
            planned = reset_moves(spec.stream, newest.position if newest else {}, log, wanted)
            if obstacle := refusal_of_backfilled(spec, settings, catalog, targets, request, planned):
                raise obstacle
            unfinished = bool(folder.pending_records())
            older = _stamps_of(targets[spec.coordinator])
            given = (spec.stream, spec.config_hash, lease, targets)
            stream = OpenStream(*given, spec=spec, settings=settings, folder=folder, log=log)
            with stream.held():
                made, note = move_positions(stream, catalog, wanted, f"{who}: {reason}", older)
        # Counting may take a while; it uses the tables as the reset left them.
        return describe_reset(
            spec, request, targets, made, newest, older, on_count=on_count, unfinished=unfinished, note=note
        )


def _stamps_of(target: Target) -> list[Stamp]:
    return [stamp for _, stamp in stamps_along_main(target.table.metadata, target.stream)]


def move_positions(
    stream: OpenStream, catalog: Catalog, wanted: Mapping[TopicPartition, int], note: str, older: list[Stamp]
) -> tuple[tuple[ResetMove, ...], str]:
    """Take the targets over, finish what a crash left, and commit the stamps of `jobs.tables.commit.recovery.reset`.

    Args:
        stream: Stream with the lease held and its targets loaded.
        older: Earlier stamps of the coordinator, newest first.

    Returns:
        The moves, and the note on the stamps; an empty note if nothing moved.

    Raises:
        ResetRefusedError: Nothing moved.
    """
    anchor = stream.anchor.name
    if stream.anchor.newest is None:
        complete_positions(stream.spec.stream, {}, anchor)
    take_over(stream, catalog)
    step("after_reset_claims")
    return move_claimed(stream, catalog, wanted, note, older)


def move_claimed(
    stream: OpenStream, catalog: Catalog, wanted: Mapping[TopicPartition, int], note: str, older: list[Stamp]
) -> tuple[tuple[ResetMove, ...], str]:
    """Commit the stamps of a reset on a stream whose tables are claimed, see `move_positions`."""
    anchor = stream.anchor.name
    stamps = _as_claimed(stream.targets, anchor)
    anchored = stamps[anchor]
    assert anchored is not None
    check_identity(stream.spec.stream, anchored.topics, stream.log.topics)
    former = previous_stamps(stream.spec, stream.targets, catalog)
    known = complete_positions(stream.spec.stream, stamps, anchor, former)
    made = reset_moves(stream.spec.stream, known, stream.log, wanted)
    if all(move.before == move.after for move in made):
        return made, ""
    text = note_of_reset(note, made)
    for name, stamp in reset_stamps(
        {name: stamp for name, stamp in stamps.items() if stamp},
        anchor,
        known,
        made,
        stream.log,
        valid_through_ms=valid_through_after(anchored, older, made),
        note=text,
        epoch=stream.epoch,
    ):
        _restamp(stream, stream.targets[name], stamp.naming_only(stream.targets))
    return made, text


def _as_claimed(targets: Mapping[str, Target], anchor: str) -> dict[str, Stamp | None]:
    return of_known_topics({name: target.newest for name, target in targets.items()}, anchor)


def _restamp(stream: OpenStream, target: Target, stamp: Stamp) -> None:
    """Commit a stamp on any head: others may append or compact meanwhile, but no other driver may commit."""

    def given_up(said: str) -> ResetRefusedError:
        return ResetRefusedError(
            f"stream {stream.spec.stream}: {said}. The offsets are as they were.",
            fix="if others write to the table, let them finish; then run this again",
        )

    propose = proposals.restamp(stamp)
    target.swap(propose, epoch=stream.epoch, known=True, check=stream.lease.verify, given_up=given_up)
    step("after_reset_stamp")
