"""Opening of a stream: takes the lease, claims the targets, finishes what a crash left, and decides where to begin."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import yaml
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.full_disk import full_disk_named, refuse_if_full
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.epochs import (
    DRIVER,
    TAKEOVER,
    EpochRecord,
    Opener,
    keep_epoch,
    keep_file,
    keep_settings,
)
from jobs.clients.state_store.lease import Lease, stream_lease
from jobs.clients.state_store.store_proof import prove_store, unrenewed
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.generation import generation, settings_of_generation
from jobs.config.settings.loading import find_stream_file, load_stream
from jobs.config.settings.settings import EMBEDDED_FOLDER, Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import misfit_fix
from jobs.streaming.driver.context.continuity import log_departures
from jobs.streaming.driver.context.open_stream import OpenStream, known_targets
from jobs.streaming.driver.context.source_topics import coordinator_stamp, require_topics
from jobs.streaming.driver.context.writer_schemas import writer_schemas
from jobs.streaming.driver.opening.takeover import (
    MovedMeanwhileError,
    add_named_tables,
    claim,
    forget_retired,
    recover,
)
from jobs.streaming.driver.tables.follower_tables import refuse_bare
from jobs.streaming.driver.tables.former_sink import (
    TableHead,
    refuse_handed_back,
    refuse_restarted_sink,
    refuse_rows_of_a_sink,
)
from jobs.streaming.driver.tables.gone_tables import (
    begin_dropped_anew,
    refuse_gone,
    reopened_where_dropped,
    without_dropped,
)
from jobs.streaming.driver.tables.new_rows import NewColumns, own_columns
from jobs.streaming.driver.tables.parked_tables import reopened_where_unable
from jobs.streaming.driver.tables.previous_targets import previous_stamps, refuse_mirrors, refuse_passing_over
from jobs.streaming.driver.tables.routed_tables import ensure_routed_tables
from jobs.streaming.driver.tables.row_table import ensure_coordinator, ensure_row_table
from jobs.streaming.driver.watch.watches import registry_watch
from jobs.streaming.pipeline.row_steps import prepare_steps
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE
from jobs.streaming.supervision.documents.launches import SPEC_FILE
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.parked_target import ParkedTarget, held_by_letters
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.recovery.starting_point import starting_point
from jobs.tables.commit.stamp.errors import HalfCommittedError, LeaseExpiredError, TargetRecreatedError
from jobs.tables.commit.stamp.log_state import LogState, refuse_unidentifiable
from jobs.tables.commit.stamp.offsets import Positions, describe_ranges, pointwise_max
from jobs.tables.commit.stamp.retired_topics import returned_topics
from jobs.tables.commit.stamp.target_positions import of_known_topics, restart_positions, target_positions
from jobs.tables.dead_letter_table.table import (
    DEAD_LETTER_PARTITIONS,
    DEAD_LETTER_SCHEMA,
    ensure_replay_state_columns,
)
from jobs.tables.write.locations import local_folder, state_in_the_way
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table

log = logging.getLogger(__name__)

# How often an opening begins again because another process committed meanwhile; each held the lease in between.
_OPENINGS = 10


@contextlib.contextmanager
def opened(
    spec: StreamSpec, settings: Settings, catalog: Catalog, kafka: KafkaLog, opener: Opener = DRIVER
) -> Iterator[OpenStream]:
    """Open a stream for the block: its lease is held, and its targets are claimed and recovered.

    Raises:
        LeaseHeldError: Another driver runs it.
        StreamStopped: Going on would lose or duplicate records; the message names an operator's answers.
    """
    state = kafka.state(spec.source)
    require_topics(spec, state, catalog)
    with (
        full_disk_named(spec.stream, lambda: _written_to(settings, catalog, spec)),
        _held(spec, settings, catalog, kafka, state, opener) as stream,
    ):
        yield stream


@contextlib.contextmanager
def _held(
    spec: StreamSpec, settings: Settings, catalog: Catalog, kafka: KafkaLog, state: LogState, opener: Opener
) -> Iterator[OpenStream]:
    """Hold the lease with claimed tables; if another process committed meanwhile, everything is read again."""
    for left in reversed(range(_OPENINGS)):
        stream, lease = _read(spec, settings, catalog, kafka, state)
        if opener != TAKEOVER:
            refuse_handed_back(spec.stream, stream.anchor.table.metadata)
            heads = [TableHead(each.name, each.branch, each.table.metadata) for each in stream.targets.values()]
            refuse_restarted_sink(spec.stream, stream.anchor.table.metadata, heads)
        step("before_lease")
        with reopened_where_unable(stream), reopened_where_dropped(stream), stream.held():
            with _lease_expiry_named(stream, lease):
                keep_opening(stream, opener)
                stream.schemas = writer_schemas(stream.spec, settings, state.topics)
                try:
                    claim(stream, kafka)
                except MovedMeanwhileError as moved:
                    if not left:
                        raise
                    log.info("%s The tables are read again", moved.message)
                    continue
                lease.remember({name: target.identity for name, target in stream.targets.items()})
                resume(stream, catalog, kafka)
                with registry_watch(stream.schemas):
                    yield stream
                step("before_release")
            return


def _read(
    spec: StreamSpec, settings: Settings, catalog: Catalog, kafka: KafkaLog, state: LogState
) -> tuple[OpenStream, Lease]:
    """The stream with its present tables and its lease; nothing is held or claimed yet."""
    folder = stream_folder(settings, spec.stream)
    prove_store(folder.store)
    lease = stream_lease(settings, spec.stream)
    known = lease.read()
    lease.refuse_if_held()
    remembered = known.targets if known else {}
    spec = without_dropped(with_named_tables(spec, catalog), catalog)
    refuse_passing_over(spec, catalog, kafka, state, remembered)
    targets = _targets(spec, settings, catalog, remembered, lambda: own_columns(spec, settings, state))
    refuse_rows_of_a_sink(spec, targets)
    refuse_mirrors(spec, targets)
    read = targets[spec.coordinator].newest
    refuse_unidentifiable(spec.stream, state, read.topics if read else ())
    stream = OpenStream(
        *(spec.stream, spec.config_hash, lease, targets, generation(spec, settings)),
        spec=spec,
        settings=settings,
        folder=folder,
        log=state,
    )
    return stream, lease


@contextlib.contextmanager
def _lease_expiry_named(stream: OpenStream, lease: Lease) -> Iterator[None]:
    """Name the cause of an expired lease: no disk space, or an unavailable store."""
    try:
        yield
    except LeaseExpiredError as expired:
        refuse_if_full(stream.id, stream.folder.root)
        if stream.folder.store.shared and (problem := lease.away):
            raise unrenewed(stream.id, problem, stream.settings.lease_ttl.total_seconds()) from expired
        raise


def resume(stream: OpenStream, catalog: Catalog, kafka: KafkaLog) -> None:
    """Finish what a crash left of a claimed stream, and set where reading begins."""
    recover(stream, catalog)
    # Called again, as a record may come from a driver with tables that were dropped since.
    begin_dropped_anew(stream)
    add_named_tables(stream)
    stream.former = previous_stamps(stream.spec, stream.targets, catalog)
    decide_start(stream, kafka)


def _written_to(settings: Settings, catalog: Catalog, spec: StreamSpec) -> Iterator[Path]:
    """The local folders that a driver of the stream writes to."""
    yield settings.state
    yield settings.home / EMBEDDED_FOLDER
    for name in spec.target_names:
        with contextlib.suppress(Exception):
            if folder := local_folder(catalog.load_table(name).location()):
                yield folder


def decide_start(stream: OpenStream, kafka: KafkaLog) -> None:
    """Set the first offsets of an opened stream by Kafka and stamps; called again if topics change under a query."""
    spec = stream.spec
    stream.log, newest = kafka.state(spec.source), stream.anchor.newest
    forget_retired(stream)
    stamps = {name: target.newest for name, target in stream.targets.items()}
    refuse_unidentifiable(spec.stream, stream.log, newest.topics if newest else ())
    half = half_committed(of_known_topics(stream.former | stamps, spec.coordinator), spec.coordinator)
    subscribed = spec.source.reads
    dropped = sorted({p.topic for p in half.ranges if not subscribed(p.topic)}) if half else []
    if half and (half.config != spec.config_hash or dropped):
        changed = f"the configuration has changed since ({half.config} then, {spec.config_hash} now)"
        raise HalfCommittedError(
            f"stream {spec.stream}: the batch {describe_ranges(half.ranges)} is in {', '.join(half.have)} and not in "
            f"{', '.join(half.lack)}, its pending record is lost, and "
            + (f"the file no longer names {', '.join(dropped)}." if dropped else f"{changed}."),
            half,
            fix=f"put the stream's file back to what it was, run `frazil run {spec.stream}` once, then change it",
        )
    positions = target_positions(stamps, spec.coordinator)
    known = restart_positions(positions)
    _refuse_half_seen(stream, known, kafka)
    stream.begin = starting_point(
        spec.stream,
        known,
        newest,
        stream.log,
        known,
        subscribed,
        pointwise_max(target.position for target in stamps.values() if target),
        log_departures(newest, stream.log, kafka),
    )
    for topic in stream.begin.retired:
        log.info("stream %s: topic %s was read to its end and is deleted; it is retired", spec.stream, topic)
    if back := sorted({p.topic for p in returned_topics(newest.retired, stream.log.topics)} if newest else ()):
        log.warning(
            "stream %s: %s had been reported as unknown, and goes on at its position", spec.stream, ", ".join(back)
        )
    stream.positions = {
        name: {p: offset for p, offset in at.items() if p in stream.begin.offsets} for name, at in positions.items()
    }


def _refuse_half_seen(stream: OpenStream, known: Positions, kafka: KafkaLog) -> None:
    """Raise if a topic exists although Kafka does not list it. Retiring it would land it twice later."""
    missing = {partition.topic for partition in known} - set(stream.log.topics)
    still_there = kafka.identities(sorted(topic for topic in missing if stream.spec.source.reads(topic)))
    if still_there:
        raise FrazilError(
            f"stream {stream.spec.stream}: Kafka lists no topic {', '.join(still_there)}, but knows it when asked.",
            fix="check that the user may describe the topic, and run this again",
        )


def ensure_tables(
    spec: StreamSpec,
    catalog: Catalog,
    new: Callable[[], NewColumns] | None = None,
    *,
    without: Collection[str] = (),
    parkable: Collection[str] = (),
) -> None:
    """Create the stream's missing tables, and check that they fit the columns of the file.

    Args:
        new: Makes the columns of a new table, if the stream's file does not declare them.
        without: Tables of its route that are left alone.
        parkable: See `ensure_routed_tables`.

    Raises:
        FrazilError: They do not; the message names each column.
    """
    prepare_steps(spec)
    of_rows = spec.for_table(spec.table.name)
    has_rows = spec.coordinator_has_rows or not spec.own_columns
    table = ensure_row_table(of_rows, catalog, new) if has_rows else ensure_coordinator(spec, catalog)
    if spec.tables_follow:
        refuse_bare(spec, table.schema())
    ensure_routed_tables(spec, catalog, without, parkable)
    ensure_table(
        catalog,
        spec.dead_letter_table,
        DEAD_LETTER_SCHEMA,
        partition_spec(DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA),
        create_table_properties({}),
    )
    ensure_replay_state_columns(catalog, spec.dead_letter_table)
    differences = of_rows.disagreements_with(table.schema(), properties=table.properties) if has_rows else []
    if differences:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} cannot hold what the file declares: "
            + "; ".join(differences),
            fix=misfit_fix(spec, table.schema()),
        )


def _targets(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    remembered: dict[str, str],
    new: Callable[[], NewColumns],
) -> dict[str, Target]:
    """The stream's tables, created if they never existed, and checked to be those that it wrote before."""
    # The lease may be lost, but the coordinator knows its targets.
    newest = coordinator_stamp(spec, catalog)
    known = {**remembered, **(newest.targets if newest else {})}
    refuse_gone(spec, catalog, known, newest)
    held = held_by_letters(spec, catalog, known, newest, parking=True)
    ensure_tables(spec, catalog, new, without=held, parkable=[name for name in known if spec.parks(name)])
    targets = known_targets(spec, catalog, remembered, parking=True)
    for target in targets.values():
        if isinstance(target, ParkedTarget):
            continue
        if problem := state_in_the_way(target.table.location(), settings, f"table {target.name}"):
            raise FrazilError(f"stream {spec.stream}: {problem.message}.", fix=problem.fix)
    anchor = targets[spec.coordinator].newest
    others = [name for name, target in targets.items() if target.newest and target.newest.start]
    if anchor is None and others:
        raise TargetRecreatedError(
            f"stream {spec.stream}: table {spec.coordinator} has never received anything of the stream, but "
            f"{', '.join(others)} has, so it is not the table that the stream wrote before.",
            fix="put the former table back, or give the stream another id and another dead-letter table to start again",
        )
    return targets


def keep_opening(stream: OpenStream, opener: Opener) -> None:
    """Store what the stamps of this epoch will name by hashes, before the first of them is committed."""
    store, spec = stream.folder.store, stream.spec
    text = _text(spec, stream.settings, stream.folder.root / SPEC_FILE)
    keep_file(store, stream.config, stream.generation, text)
    keep_settings(store, stream.generation, settings_of_generation(spec, stream.settings))
    keep_epoch(
        store,
        EpochRecord(
            stream.epoch,
            _numbered(opener),
            stream.config,
            stream.generation,
            time.time(),
            socket.gethostname(),
            os.getpid(),
        ),
    )


def _numbered(opener: Opener) -> Opener:
    """An opener with the launch number from the environment, if the driver was launched."""
    attempt = os.environ.get(DRIVER_VARIABLE, "").rpartition(":")[2]
    return Opener(attempt=int(attempt)) if opener == DRIVER and attempt.isdigit() else opener


def _text(spec: StreamSpec, settings: Settings, launched: Path) -> str:
    """Text of the stream's file; an equivalent text if the file is not found any more."""
    wanted = spec.config_hash, generation(spec, settings)
    for path in _files(spec, settings, launched):
        with contextlib.suppress(FrazilError, OSError, UnicodeError):
            text, found = path.read_text(encoding="utf-8"), load_stream(path)
            if (found.config_hash, generation(found, settings)) == wanted:
                return text
    said = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return "# The stream's file had been changed when this was kept; its meaning was the same.\n" + yaml.safe_dump(
        said, sort_keys=False
    )


def _files(spec: StreamSpec, settings: Settings, launched: Path) -> Iterator[Path]:
    """Possible files of the stream: a launched driver has its own copy; `frazil run` and Dagster read the original."""
    yield launched
    if (file := find_stream_file(settings.home / "streams", spec.stream)) is not None:
        yield file
