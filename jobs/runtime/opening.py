"""Opening a stream: take the lease, claim the targets, finish what a crash left, and decide where to begin."""

from __future__ import annotations

import contextlib
import logging
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog

from jobs.commit.decide import half_committed, restart_positions, target_positions
from jobs.commit.errors import HalfCommittedError, TargetRecreatedError
from jobs.commit.history import history
from jobs.commit.offsets import Positions, TopicPartition, describe
from jobs.commit.pending import Pending
from jobs.commit.recovery import lacking
from jobs.commit.stamps import Stamp
from jobs.commit.start import LogState, StartingPoint, starting_point
from jobs.commit.target import Outcome, Target, gone, recreated
from jobs.deadletter.table import DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA
from jobs.errors import FrazilError
from jobs.runtime.durable import remove_durably
from jobs.runtime.kafka_log import KafkaLog, subscription
from jobs.runtime.lease import Lease
from jobs.runtime.steps import step
from jobs.schema.table_schema import disagreements, iceberg_schema
from jobs.spec.models import StreamSpec
from jobs.spec.settings import EMBEDDED_FOLDER, Settings, embedded_catalog
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import create_table_properties, ensure_table

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """Where a stream keeps what is not in its tables: the lease, the pending record, and Spark's scratch checkpoint."""

    root: Path

    def pending(self, epoch: int) -> Path:
        """The pending record of the driver with this epoch, while it commits a batch.

        Each epoch has its own, so that a driver that wakes up after a take-over cannot overwrite its successor's.
        """
        return self.root / f"pending-{epoch:08d}.json"

    def pending_records(self) -> list[Path]:
        """The pending records that earlier drivers left, oldest first."""
        return sorted(self.root.glob("pending-*.json"))

    def new_checkpoint(self) -> Path:
        """An empty checkpoint for a query; those of earlier queries go, since the position is in the tables."""
        folder = self.root / "checkpoints"
        shutil.rmtree(folder, ignore_errors=True)
        return folder / uuid.uuid4().hex[:8]


@dataclass(slots=True)
class OpenStream:
    """A stream that this process may commit to.

    Attributes:
        targets: By table name, the anchor first.
        positions: Where each target stands; follows every commit.
        begin: Where reading begins.
        former: The newest stamps of tables that the stream wrote under an earlier configuration.
    """

    spec: StreamSpec
    settings: Settings
    folder: StreamFolder
    lease: Lease
    epoch: int
    targets: dict[str, Target]
    log: LogState
    former: dict[str, Stamp | None] = field(default_factory=dict)
    positions: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    begin: StartingPoint = field(default_factory=lambda: StartingPoint({}))

    @property
    def anchor(self) -> Target:
        """The stream's table: stamped in every batch."""
        return self.targets[self.spec.table.name]

    @property
    def dead_letters(self) -> Target:
        """The table of the records that failed."""
        return self.targets[self.spec.dead_letter_table]


def connect_catalog(settings: Settings) -> Catalog:
    """The catalog that the settings name, with its secrets resolved here and nowhere else.

    Raises:
        FrazilError: It cannot be reached, in the words of its driver.
    """
    if settings.catalog == embedded_catalog(settings.home):
        (settings.home / EMBEDDED_FOLDER).mkdir(parents=True, exist_ok=True)
    try:
        return load_catalog(settings.catalog.name, **settings.catalog.revealed())
    except FrazilError:
        raise
    except Exception as problem:
        raise FrazilError(
            f"catalog {settings.catalog.name}: {type(problem).__name__}: {problem}",
            fix="check `catalog` in frazil.yaml, then run `frazil validate`",
        ) from problem


def stream_folder(settings: Settings, stream: str) -> StreamFolder:
    """The state folder of a stream."""
    return StreamFolder(settings.state / "streams" / stream)


@contextlib.contextmanager
def opened(spec: StreamSpec, settings: Settings, catalog: Catalog, kafka: KafkaLog) -> Iterator[OpenStream]:
    """Hold the stream's lease for the length of the block, with its targets claimed and recovered.

    Raises:
        LeaseHeldError: Another driver runs it.
        StreamStopped: Going on would lose or double records; the message says what an operator can do.
    """
    state = kafka.state(spec.source)
    _require_topics(spec, state)
    folder = stream_folder(settings, spec.stream)
    lease = Lease(folder.root, spec.stream, settings.lease_ttl.total_seconds())
    known = lease.read()
    if known is not None and known.held():
        lease.acquire(above=0)  # Says who holds it, before anything is touched.
    targets = _targets(spec, catalog, known.targets if known else {})
    epoch = lease.acquire(above=max(target.greatest_epoch() for target in targets.values()))
    try:
        stream = OpenStream(spec, settings, folder, lease, epoch, targets, state)
        _claim(stream, kafka)
        lease.remember({name: target.uuid for name, target in targets.items()})
        _recover(stream, catalog)
        stream.former = _former_stamps(stream, catalog)
        decide_start(stream, kafka)
        yield stream
    finally:
        lease.release()


def decide_start(stream: OpenStream, kafka: KafkaLog) -> None:
    """Look at Kafka and the stamps, and set where reading begins; called again when the topics change under a query."""
    spec = stream.spec
    stream.log = kafka.state(spec.source)
    stamps = {name: target.newest for name, target in stream.targets.items()}
    half = half_committed(stream.former | stamps, spec.table.name)
    if half and half.config != spec.config_hash:
        raise HalfCommittedError(
            f"stream {spec.stream}: the batch {describe(half.ranges)} is in {', '.join(half.have)} and not in "
            f"{', '.join(half.lack)}, its pending record is lost, and the configuration has changed since "
            f"({half.config} then, {spec.config_hash} now).",
            fix=f"put the stream's file back to what it was, run `frazil run {spec.stream}` once, then change it",
        )
    positions = target_positions(stamps, spec.table.name)
    known = restart_positions(positions)
    stream.begin = starting_point(
        spec.stream, known, stream.anchor.newest, stream.log, known, subscription(spec.source)
    )
    for topic in stream.begin.retired:
        log.info("stream %s: topic %s was read to its end and is gone; it is retired", spec.stream, topic)
    stream.positions = {
        name: {p: offset for p, offset in at.items() if p in stream.begin.offsets} for name, at in positions.items()
    }


def _require_topics(spec: StreamSpec, state: LogState) -> None:
    missing = [topic for topic in spec.source.topics or () if topic not in state.topics]
    if missing and len(missing) == len(spec.source.topics or ()):
        raise FrazilError(
            f"stream {spec.stream}: topic {', '.join(missing)} does not exist.",
            fix=f"create the topic, or correct source.topics in streams/{spec.stream}.yaml",
        )


def _targets(spec: StreamSpec, catalog: Catalog, remembered: dict[str, str]) -> dict[str, Target]:
    """The stream's tables, created if they never were, and checked to be the ones it wrote before."""
    for name in (spec.table.name, spec.dead_letter_table):
        if name in remembered and not catalog.table_exists(name):
            raise gone(spec.stream, name)
    properties = create_table_properties(spec.table.properties)
    schema = iceberg_schema(spec.declared, kafka_columns=spec.table.kafka_columns)
    table = ensure_table(catalog, spec.table.name, schema, partition_spec(spec.table.partition_by, schema), properties)
    ensure_table(
        catalog,
        spec.dead_letter_table,
        DEAD_LETTER_SCHEMA,
        partition_spec(DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA),
        create_table_properties({}),
    )
    differences = disagreements(spec.declared, table.schema(), kafka_columns=spec.table.kafka_columns)
    if differences:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} cannot hold what the spec declares: "
            + "; ".join(differences),
            fix=f"correct decode.schema in streams/{spec.stream}.yaml, or alter the table",
        )
    targets = {name: Target(catalog, name, spec.stream) for name in (spec.table.name, spec.dead_letter_table)}
    for target in targets.values():
        target.read()
    anchor = targets[spec.table.name].newest
    identities = remembered | (dict(anchor.targets) if anchor else {})
    for name, target in targets.items():
        if name in identities and identities[name] != target.uuid:
            raise recreated(spec.stream, name, identities[name], target.uuid)
    others = [name for name, target in targets.items() if target.newest and target.newest.start]
    if anchor is None and others:
        raise TargetRecreatedError(
            f"stream {spec.stream}: table {spec.table.name} has never received anything of the stream, but "
            f"{', '.join(others)} has, so it is not the table that the stream wrote before.",
            fix="put the former table back, or give the stream another id and other dead letters to begin anew",
        )
    return targets


def _claim(stream: OpenStream, kafka: KafkaLog) -> None:
    spec = stream.spec
    step("before_claim")
    fresh_start: Positions = {}
    if stream.anchor.newest is None:
        fresh_start = kafka.first_start(spec.source, stream.log)

    def claim_anchor(newest: Stamp | None) -> Stamp:
        if newest is not None:
            return newest.claimed(stream.epoch)
        return Stamp(
            spec.stream,
            "claim",
            -1,
            stream.epoch,
            spec.config_hash,
            start=fresh_start,
            position=fresh_start,
            targets={name: target.uuid for name, target in stream.targets.items()},
            topics=stream.log.topics,
        )

    def claim_other(newest: Stamp | None) -> Stamp:
        if newest is not None:
            anchored = stream.anchor.newest
            return newest.claimed(stream.epoch).of_topics(anchored.topics if anchored else stream.log.topics)
        return Stamp(spec.stream, "claim", -1, stream.epoch, spec.config_hash, start={}, position={})

    for target in stream.targets.values():
        target.claim(stream.epoch, claim_anchor if target is stream.anchor else claim_other)
    step("after_claims")


def _former_stamps(stream: OpenStream, catalog: Catalog) -> dict[str, Stamp | None]:
    """The newest stamps of tables that the anchor's newest batch names and the spec no longer does."""
    newest = stream.anchor.newest
    former: dict[str, Stamp | None] = {}
    for name in newest.rows if newest else ():
        if name in stream.targets:
            continue
        if catalog.table_exists(name):
            former[name] = history(catalog.load_table(name).metadata, stream.spec.stream).newest
        else:
            # Whoever dropped it took the batch out of it; it counts as committed.
            former[name] = newest
    return former


def _recover(stream: OpenStream, catalog: Catalog) -> None:
    """Commit what the pending records of earlier drivers say is missing.

    Whatever cannot be committed from them is recognised by the stamps: the batch runs again, or the stream stops.
    """
    for record in stream.folder.pending_records():
        _recover_from(record.read_bytes(), stream, catalog)
        remove_durably(record)


def _recover_from(content: bytes, stream: OpenStream, catalog: Catalog) -> None:
    stream_id = stream.spec.stream
    targets = dict(stream.targets)
    for name in Pending.names(content):
        if name in targets:
            continue
        # The spec was changed since: what was decided under the old one goes where the old one said.
        if not catalog.table_exists(name):
            log.warning("stream %s: table %s of the pending record is gone; the record is dropped", stream_id, name)
            return
        targets[name] = Target(catalog, name, stream_id)
        targets[name].read()
    pending = Pending.decode(content, {name: target.table.metadata for name, target in targets.items()})
    anchor = next((name for name, planned in pending.targets.items() if planned.stamp.targets), stream.anchor.name)
    stamps = {name: targets[name].newest for name in {anchor, *pending.targets}}
    names = lacking(pending.batch, pending.targets, stamps, anchor)
    if names is None:
        log.warning("stream %s: a pending record is of a driver that had been taken over; it is dropped", stream_id)
        return
    for name in names:
        target, planned = targets[name], pending.targets[name]
        io = target.table.io
        lost = [file.file_path for file in planned.files if not io.new_input(file.file_path).exists()]
        if lost:
            log.warning("stream %s: files of the pending record are gone (%s and others)", stream_id, lost[0])
            return
        stream.lease.verify()
        stamp = planned.stamp.under(stream.epoch)
        outcome = target.commit(stamp, planned.files, seen=planned.seen, batch=pending.batch, position=planned.position)
        if outcome is Outcome.RUN_AGAIN:
            log.warning("stream %s: the files of the pending record no longer fit table %s", stream_id, name)
            return
        log.info("stream %s: %d files committed to %s from the pending record", stream_id, len(planned.files), name)
