"""Acceptance of a stop: an operator's answer, stamped on the tables, after which the stream goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.lease import stream_lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.continuity import log_departures
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.source_topics import coordinator_stamp
from jobs.streaming.operator.take_over import take_over
from jobs.streaming.operator.unpark import (
    ensure_parked_table,
    refuse_unless_parked,
    unpark_table,
    with_lost,
)
from jobs.tables.commit.history.parked_places import lost_letters, parked_places, told_lost
from jobs.tables.commit.history.stamp_history import History
from jobs.tables.commit.protocol.named_tables import former_named_tables, with_named_tables
from jobs.tables.commit.protocol.parked_target import ParkedTarget, past_their_letters
from jobs.tables.commit.protocol.pending_record import Pending
from jobs.tables.commit.protocol.refusals import is_readable
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery import accept
from jobs.tables.commit.recovery.rollback import refuse_unknown_publication, rollback, with_restored
from jobs.tables.commit.stamp.errors import NothingToAcceptError, table_gone
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import pointwise_max
from jobs.tables.commit.stamp.stamp_fields import Counts, Decision
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import need, of_known_topics
from jobs.tables.write.table_remaking import is_as_made

log = logging.getLogger(__name__)

_READ_AGAIN = (
    "table {name}, which has dead letters from its suspension, was dropped: it is recreated, and gets all that is "
    "read again. `frazil replay {stream}` only once the stream has caught up, or the dead letters land a second "
    "time"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An operator's answer to a stop; exactly one of the fields is set.

    Attributes:
        rollback: `keep` leaves the records of a rollback out, `reland` lands them again.
        lost_offsets: Whether to go on behind the records that retention removed.
        lost_topic: Deleted topic to go on without.
        recreated_topic: Recreated topic to read from its beginning.
        recreated_table: Table to begin anew.
        unpark: Suspended table to resume.
    """

    rollback: str | None = None
    lost_offsets: bool = False
    lost_topic: str | None = None
    recreated_topic: str | None = None
    recreated_table: str | None = None
    unpark: str | None = None

    @property
    def of_topics(self) -> bool:
        """Whether the answer is about records in Kafka, not about tables."""
        return self.lost_offsets or self.lost_topic is not None or self.recreated_topic is not None


def record_answer(
    spec: StreamSpec,
    settings: Settings,
    kafka: Callable[[], KafkaLog],
    answer: Answer,
    note: str,
    tell: Callable[[str], object] = log.warning,
    *,
    dry_run: bool = False,
) -> dict[str, Decision]:
    """Stamp an operator's answer on the tables concerned.

    Args:
        spec: The stream, which must not be running.
        kafka: Connects to the brokers of its topics, if the answer needs them.
        note: Author and reason.
        tell: Called with sentences about what the answer gives up.
        dry_run: Whether to change nothing.

    Returns:
        Stamps that were, or would be, committed, by table. A dry run of `unpark` is empty: it is known under the lease
        only.

    Raises:
        LeaseHeldError: The stream is running.
        NothingToAcceptError: The stream is not stopped for that reason.
    """
    with connect_catalog(settings) as catalog:
        return _record(spec, settings, catalog, kafka, answer, note, tell, dry_run=dry_run)


def _record(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    kafka: Callable[[], KafkaLog],
    answer: Answer,
    note: str,
    tell: Callable[[str], object],
    *,
    dry_run: bool,
) -> dict[str, Decision]:
    spec = with_named_tables(spec, catalog)
    anchored = coordinator_stamp(spec, catalog)
    if answer.unpark:
        # Checked before the lease is taken, so that a stream without such a table is left alone.
        refuse_unless_parked(spec, answer.unpark, anchored)
    if anchored is not None and answer.recreated_table in anchored.parked:
        raise NothingToAcceptError(
            f"table {answer.recreated_table} is suspended: dead letters of its records wait for it",
            fix=f"frazil accept {spec.stream} --unpark {answer.recreated_table}, which creates it if it was dropped",
        )
    targets: dict[str, Target] = {}
    there = catalog.table_exists(spec.dead_letter_table)
    if answer.unpark and not there:
        raise table_gone(spec.stream, spec.dead_letter_table)
    for name in spec.target_names:
        if anchored is not None and name in anchored.parked:
            if there:
                uuid = anchored.targets.get(name, "")
                targets[name] = ParkedTarget(catalog, spec.dead_letter_table, spec.stream, name, uuid)
        elif catalog.table_exists(name):
            targets[name] = Target(catalog, name, spec.stream, branch=spec.branch_of(name))
    aside = _rolled_back_aside(spec, catalog, anchored) if answer.rollback else {}
    if answer.rollback == "keep":
        targets |= aside
    folder = stream_folder(settings, spec.stream)
    lease = stream_lease(settings, spec.stream)
    # Checked before the lease is taken, so that a stream that waits for no answer is left alone.
    histories = _histories(spec, targets)[0]
    if answer.rollback == "reland" and aside and not any(past.rolled_back for past in histories.values()):
        raise NothingToAcceptError(
            f"table {', '.join(aside)} was rolled back while it was no table of stream {spec.stream}, or suspended: "
            "its records were read under the file of that time, and cannot be landed again",
            fix=f"`frazil accept {spec.stream} --rollback keep` to leave the records out",
        )
    new = {} if answer.unpark else _decision(spec, kafka, answer, targets, histories)
    if answer.recreated_table in targets:
        anchored = histories[spec.coordinator].newest if spec.coordinator in histories else None
        held = lease.read()
        identities = {**(held.targets if held else {}), **(anchored.targets if anchored else {})}
        _refuse_unchanged(spec, targets[answer.recreated_table], identities, waits=bool(new))
    if dry_run:
        return {name: stamp.decision for name, stamp in new.items() if stamp.decision}
    session = OpenStream(
        *(spec.stream, spec.config_hash, lease, targets),
        spec=spec,
        settings=settings,
        folder=folder,
        log=LogState({}, {}, {}),
    )
    with session.held():
        if answer.of_topics:
            # The files about to be committed were read before the topic changed, and no log has their records any more.
            take_over(session, catalog)
        for record in folder.pending_records():
            content = folder.store.get(record)
            if content is not None and _takes_back(spec, answer, targets, content):
                folder.store.delete(record)
        histories, restored = _histories(spec, targets)
        lost = _lost_letters(spec, answer, anchored, targets)
        if answer.unpark:
            ensure = partial(ensure_parked_table, settings=settings, kafka=kafka)
            signed = with_lost(note, lost.get(answer.unpark))
            stamped = unpark_table(session, spec, catalog, answer.unpark, signed, ensure=ensure)
            uuids = {name: target.identity for name, target in targets.items() if name != answer.unpark}
            lease.remember(uuids)
            _tell_lost(tell, anchored, lost)
            return stamped
        new = _decision(spec, kafka, answer, targets, histories)
        if restored and answer.rollback:
            new = with_restored_known(new, spec.coordinator, histories)
        session.answer({name: stamp.naming_only(spec.target_names) for name, stamp in new.items()}, note)
        _tell_lost(tell, anchored, lost)
        if answer.recreated_table == spec.coordinator and (letters := targets.get(spec.dead_letter_table)):
            for name in parked_places(letters.table.metadata, spec.stream):
                if name in spec.target_names and name not in targets:
                    tell(_READ_AGAIN.format(stream=spec.stream, name=name))
        if answer.recreated_table:
            lease.remember({name: t.identity for name, t in targets.items() if name != answer.recreated_table})
        return {name: stamp.decision for name, stamp in new.items() if stamp.decision}


def _histories(spec: StreamSpec, targets: Mapping[str, Target]) -> tuple[dict[str, History], tuple[str, ...]]:
    """Histories of the tables, with restored tables counted as rolled back; and the names of those."""
    histories = {name: target.history() for name, target in targets.items()}
    uuids = {name: target.uuid for name, target in targets.items() if target.identity == target.uuid}
    return with_restored(histories, spec.coordinator, uuids)


def with_restored_known(new: accept.NewStamps, coordinator: str, histories: Mapping[str, History]) -> accept.NewStamps:
    """Stamps of an answer after which restored tables are accepted as they are.

    An answer's stamp does not have the coordinator's sequence number. The coordinator comes last and forgets those of
    the other tables, so the stop stands until all of them are stamped.
    """
    found = dict(new)
    for name, past in histories.items():
        if name not in found and past.newest is not None:
            found[name] = past.newest.decided(Decision("rollback_keep"))
    anchor = found.pop(coordinator)
    return {**found, coordinator: replace(anchor, sequences={})}


def _lost_letters(
    spec: StreamSpec, answer: Answer, anchored: Stamp | None, targets: Mapping[str, Target]
) -> dict[str, int]:
    """Number of missing dead letters by suspended table, if the answer concerns either."""
    if answer.recreated_table == spec.dead_letter_table:
        letters = targets.get(spec.dead_letter_table)
        return lost_letters(anchored, parked_places(letters.table.metadata, spec.stream) if letters else {})
    if answer.unpark is None:
        return {}
    lost = lost_letters(anchored, parked_places(targets[spec.dead_letter_table].table.metadata, spec.stream))
    return {name: count for name, count in lost.items() if name == answer.unpark}


def _tell_lost(tell: Callable[[str], object], anchored: Stamp | None, lost: Mapping[str, int]) -> None:
    for said in told_lost(anchored, lost) if anchored is not None else ():
        tell(said)


def _rolled_back_aside(spec: StreamSpec, catalog: Catalog, anchored: Stamp | None) -> dict[str, Target]:
    """Suspended tables that were rolled back meanwhile, and dynamic tables that were rolled back while no targets."""
    parked = [name for name in spec.target_names if anchored is not None and name in anchored.parked]
    # Their own names stand for their placeholders.
    keys = {f"{name} (parked)": name for name in parked if is_readable(catalog, name)}
    keys |= {name: name for name in former_named_tables(spec, catalog)}
    former = {key: Target(catalog, name, spec.stream, branch=spec.branch_of(name)) for key, name in keys.items()}
    return {name: target for name, target in former.items() if target.history().rolled_back}


def _takes_back(spec: StreamSpec, answer: Answer, targets: Mapping[str, Target], content: bytes) -> bool:
    """Whether a pending record's batch belongs to positions that an answer moves back.

    A table that begins anew does not move the others back: those that lack a batch of the coordinator get it from the
    record.
    """
    if answer.rollback == "reland" or answer.recreated_table == spec.coordinator:
        return True
    if answer.recreated_table is None:
        return False
    pending = Pending.decode(content, {name: target.table.metadata for name, target in targets.items()})
    planned, anchor = pending.targets.get(spec.coordinator), targets.get(spec.coordinator)
    if planned is None or anchor is None or pending.anchor != spec.coordinator:
        return True
    at = anchor.newest.position if anchor.newest else {}
    return not need(pending.batch, pointwise_max([planned.position, at])).nothing


def _decision(
    spec: StreamSpec,
    connect: Callable[[], KafkaLog],
    answer: Answer,
    targets: dict[str, Target],
    histories: dict[str, History],
) -> accept.NewStamps:
    anchor = spec.coordinator
    stamps = of_known_topics({name: past.newest for name, past in histories.items()}, anchor)
    if answer.rollback == "keep" or answer.rollback == "reland":
        if answer.rollback == "reland":
            refuse_unknown_publication(
                spec.stream, {name: targets[name].table.metadata for name in histories}, histories
            )
        return _with_kept_letters(rollback(histories, anchor, answer.rollback, spec.config_hash), targets, histories)
    if answer.recreated_table:
        if answer.recreated_table == anchor:
            stamps = past_their_letters(stamps, spec, targets)
        if answer.recreated_table not in spec.target_names:
            raise FrazilError(
                f"{answer.recreated_table} is no table of stream {spec.stream}",
                fix=f"name {' or '.join(spec.target_names)}",
            )
        return accept.recreated_table(stamps, anchor, answer.recreated_table, spec.config_hash)
    if answer.lost_topic:
        return accept.lost_topic(stamps, anchor, answer.lost_topic)
    kafka = connect()
    if answer.recreated_topic:
        identity = kafka.identities([answer.recreated_topic]).get(answer.recreated_topic)
        if identity is None:
            raise FrazilError(f"topic {answer.recreated_topic} does not exist", fix="frazil validate")
        log, newest = kafka.state(spec.source), stamps.get(anchor)
        departures = {p: max(at, log.earliest[p]) for p, at in log_departures(newest, log, kafka).items()}
        return accept.recreated_topic(stamps, anchor, answer.recreated_topic, identity, log.latest, departures)
    log = kafka.state(spec.source)
    return accept.lost_offsets(stamps, anchor, log.earliest, log.topics)


def _with_kept_letters(
    new: accept.NewStamps, targets: Mapping[str, Target], histories: Mapping[str, History]
) -> accept.NewStamps:
    """Stamps of a rollback in which placeholders of suspended tables count the dead letters that still exist.

    No ledger has those that a rollback removed, so an audit compares the dead letters with the newest totals.
    """
    found = dict(new)
    for name, stamp in new.items():
        past = histories[name]
        if isinstance(targets.get(name), ParkedTarget) and past.rolled_back and not past.doubt:
            kept = past.stamped_ancestor
            found[name] = replace(stamp, totals=kept.totals if kept else Counts())
    return found


def _refuse_unchanged(spec: StreamSpec, target: Target, identities: Mapping[str, str], *, waits: bool) -> None:
    """Raise if a table to begin anew is the one that the stream wrote before.

    Args:
        identities: Uuids of the tables in the stream's record.
        waits: Whether another table has to record that this one begins anew.

    Raises:
        NothingToAcceptError: The table was not dropped; if its columns stop the stream, the message names them.
    """
    name, known = target.name, identities.get(target.name)
    if known != target.uuid and (known is not None or waits):
        return
    run = f"frazil run {spec.stream}"
    there = target.table
    own = name == spec.table.name
    differences = spec.for_table(name).disagreements_with(there.schema(), properties=there.properties) if own else []
    if name != spec.table.name or not differences:
        raise NothingToAcceptError(
            f"table {name} has not been dropped; it is the one that stream {spec.stream} writes to", fix=run
        )
    if is_as_made(target.table.metadata, spec.stream):
        raise NothingToAcceptError(
            f"table {name} has no rows, and not the columns that the file declares; the next run adds them",
            fix=run,
        )
    raise NothingToAcceptError(
        f"table {name} has not been dropped, and cannot hold what the file declares: {'; '.join(differences)}",
        fix=f"frazil schema apply {spec.stream}, or correct decode.schema in streams/{spec.stream}.yaml; if it is not "
        "needed, drop it, and give the same answer again",
    )
