"""Opening of a queue, the dead-letter topic of a Kafka Connect sink, as a stream of its own on the same tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError, StreamStopped
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.lease import stream_lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.config.stream.stream_targets import without_parking
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.opening.opening import resume
from jobs.streaming.driver.opening.takeover import claim
from jobs.streaming.driver.tables.gone_tables import without_dropped
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import HalfCommittedError, OffsetsLostError, RolledBackError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import describe_ranges
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp


def queue_id(stream: str) -> str:
    """Id under which imports from Connect's queues are stamped; no stream can have it."""
    return f"{stream}~connect"


def as_stream(spec: StreamSpec, topic: str) -> StreamSpec:
    """The stream with the topic as its source: a queue holds failed records, so its failures stop nothing.

    Its records are old, so none is late, and they do not move the stream's watermark. No table is suspended.
    """
    return spec.read_by_headers().model_copy(
        update={
            "stream": queue_id(spec.stream),
            "source": Source(topics=(topic,)),
            "errors": spec.errors.model_copy(update={"tolerance": "all", "stop_above": None}),
            "event_time": None,
            "route": without_parking(spec.route),
        }
    )


def refuse_missing(log: LogState, topic: str, settings: Settings) -> None:
    """Raise unless the topic exists.

    Raises:
        FrazilError: It does not exist.
    """
    if topic not in log.topics:
        raise FrazilError(
            f"topic {topic} does not exist at {settings.kafka.require_bootstrap()}.",
            fix="name the topic of errors.deadletterqueue.topic.name in the connector's configuration",
        )


@contextlib.contextmanager
def open_queue(
    taken: StreamSpec, spec: StreamSpec, settings: Settings, catalog: Catalog, topic: str
) -> Iterator[tuple[OpenStream, KafkaLog]]:
    """Hold a queue during the block; its targets are claimed, and what a crash left is finished.

    Args:
        taken: See `as_stream`.

    Raises:
        StreamStopped: Going on would lose or duplicate records.
    """
    kafka = KafkaLog(settings.kafka)
    log = kafka.state(taken.source)
    refuse_missing(log, topic, settings)
    lease, targets = stream_lease(settings, taken.stream), _targets(spec, catalog)
    stream = OpenStream(
        *(taken.stream, taken.config_hash, lease, targets, generation(spec, settings)),
        spec=taken,
        settings=settings,
        folder=stream_folder(settings, taken.stream),
        log=log,
    )
    try:
        with stream.held():
            for target in targets.values():
                target.read()
            claim(stream, kafka)
            resume(stream, catalog, kafka)
            yield stream, kafka
    except OffsetsLostError as lost:
        raise _told(lost, spec.stream, "its retention removed dead letters before they were taken") from None
    except RolledBackError as rolled:
        fix = (
            f"`frazil letters {spec.stream} --after-rollback WHY`, then run this again: the removed records are "
            "taken again"
        )
        raise RolledBackError(rolled.message, fix=fix) from None
    except HalfCommittedError as problem:
        raise _half_taken(problem, spec) from None
    except StreamStopped as stopped:
        raise _told(stopped, spec.stream, "") from None


def reland_queue(spec: StreamSpec, settings: Settings, catalog: Catalog, note: str) -> None:
    """After a rollback of a stream's table: import the removed records from the queues again.

    Args:
        note: Author and reason.
    """
    spec = without_dropped(with_named_tables(spec, catalog), catalog)
    name, targets = queue_id(spec.stream), _targets(spec, catalog)
    if not any(target.history().rolled_back for target in targets.values()):
        return
    session = CommitSession(name, spec.config_hash, stream_lease(settings, name), targets)
    with session.held():
        # The pending batch belongs to positions that are moved back.
        folder = stream_folder(settings, name)
        for pending in folder.pending_records():
            folder.store.delete(pending)
        histories = {name: target.history() for name, target in targets.items()}
        kept = [
            past.stamped_ancestor.position if past.stamped_ancestor else {}
            for past in histories.values()
            if past.rolled_back
        ]
        new: dict[str, Stamp] = {}
        # The rolled-back table comes last, so that the stop stands until both are stamped.
        for table, past in sorted(histories.items(), key=lambda each: each[1].rolled_back):
            if past.newest is None:
                continue
            # Both are moved back: rows that remain are known by their coordinates, and are not imported twice.
            back = {p: min(at, *(each.get(p, 0) for each in kept)) for p, at in past.newest.position.items()}
            decided = past.newest.decided(Decision("rollback_reland", removed=past.removed))
            new[table] = replace(decided, start=back, position=back, rows={})
        session.answer(new, note)


def _targets(spec: StreamSpec, catalog: Catalog) -> dict[str, Target]:
    name = queue_id(spec.stream)
    return {table: Target(catalog, table, name, branch=spec.branch_of(table)) for table in spec.target_names}


def _half_taken(problem: HalfCommittedError, spec: StreamSpec) -> HalfCommittedError:
    """Error of a half-imported batch: its rest can only be made again under the former configuration."""
    half = problem.half
    (queue, *_) = sorted({partition.topic for partition in half.ranges})
    return HalfCommittedError(
        f"stream {spec.stream}: the batch {describe_ranges(half.ranges)} of a queue is in {', '.join(half.have)} and "
        f"not in {', '.join(half.lack)}, and its pending record is lost. The rest is made by taking that queue with "
        "the stream's file and the correction as they were then.",
        half,
        fix=f"`frazil replay {spec.stream} --from-topic {queue}`, with the same --correction if there was one; "
        "then run this again",
    )


def _told(problem: StreamStopped, stream: str, why: str) -> StreamStopped:
    """Error that stops a queue, without the `frazil accept` answers, which are for streams."""
    said = problem.message + (f" ({why})" if why else "")
    return type(problem)(
        said,
        fix="restore what is missing; or mirror the topic's records to a topic of another name, and take that one: "
        f"rows in the tables of {stream} are not landed twice",
    )
