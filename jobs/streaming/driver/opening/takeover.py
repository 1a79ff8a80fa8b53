"""Takeover of a stream: claims its targets, and commits what earlier drivers left half committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import NoSuchTableError

from jobs.base.errors import FrazilError, StreamStopped
from jobs.base.failpoints import step
from jobs.clients.kafka.metadata import KafkaLog
from jobs.streaming.driver.context.commit_pool import commit_each
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.tables.gone_tables import begin_dropped_anew
from jobs.streaming.driver.tables.parked_tables import parking_where_unable, take_places
from jobs.streaming.driver.tables.routed_tables import ensure_late_lane
from jobs.tables.commit.history.stamp_history import stamps_along_main, written_branch
from jobs.tables.commit.protocol.named_tables import with_tables_of
from jobs.tables.commit.protocol.parked_target import parked_target
from jobs.tables.commit.protocol.pending_record import Pending, PendingTarget
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.refusals import is_there
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.recovery import half_committed, lacking_targets
from jobs.tables.commit.stamp.errors import table_gone
from jobs.tables.commit.stamp.log_state import another_topic
from jobs.tables.commit.stamp.offsets import Positions, Ranges
from jobs.tables.commit.stamp.stamps import Stamp

log = logging.getLogger(__name__)

# Answers that do not move the coordinator's position.
_MOVING_NOTHING = ("parked", "unparked", "recreated_table")
_NO_LONGER_FIT = "stream %s: the files of the pending record no longer fit table %s"


class MovedMeanwhileError(FrazilError):
    """Another process committed to the coordinator while this one opened the stream.

    Safe: Nothing was changed.
    Next: `frazil run S`; a driver tries again by itself
    """


def claim(stream: OpenStream, kafka: KafkaLog) -> None:
    """Commit an empty snapshot with this driver's epoch on each target that an older driver may commit to.

    After the coordinator's claim, an older driver can only commit to targets with rows of the coordinator's newest
    batch. This driver's first commit claims any other target, except a branch of a table without snapshots. The very
    first claim stamps the start. If the coordinator's stamp is still the one that was read, so are the other tables'.

    Raises:
        MovedMeanwhileError: The coordinator has another stamp, so the tables have to be read again.
        FencedError: A driver of the same or a later epoch has claimed it.
    """
    spec = stream.spec
    step("before_claim")
    fresh_start: Positions = {}
    if stream.anchor.newest is None:
        fresh_start = kafka.first_start(spec.source, stream.log)

    read = stream.anchor.newest

    def claim_anchor(newest: Stamp | None) -> Stamp:
        own = newest is not None and newest.epoch == stream.epoch
        if not own and (newest.sequence if newest else None) != (read.sequence if read else None):
            raise MovedMeanwhileError(
                f"stream {stream.id}: another process committed to {stream.anchor.name} while the stream was opened.",
                fix=f"frazil run {stream.id}",
            )
        claimed = stream.claim_of(newest, fresh_start)
        if newest is not None:
            return replace(claimed, ends={**claimed.ends, **_ends(stream, claimed.position, newest.topics)})
        targets = {name: target.identity for name, target in stream.targets.items()}
        return replace(claimed, ends=_ends(stream, fresh_start, {}), targets=targets, topics=stream.log.topics)

    stream.anchor.claim(stream.epoch, claim_anchor)
    step("after_anchor_claim")
    refuse_forgetful_catalog(stream.anchor, lambda: stream.anchor.claim(stream.epoch, claim_anchor, again=True))
    begin_dropped_anew(stream)
    parked = take_places(stream)
    add_named_tables(stream)
    back = _back_again(stream)
    with parking_where_unable(stream) as on:
        for name in back:
            with on(name):
                stream.targets[name].claim(stream.epoch, stream.claim_anew)
        begun = [*_under_way(stream), *(name for name, target in stream.targets.items() if target.has_to_begin)]
        for name in dict.fromkeys(begun):
            if name not in back and name not in parked:
                with on(name):
                    stream.targets[name].claim(stream.epoch, _claim_other(stream, stream.targets[name]))
    step("after_claims")


def _claim_other(stream: OpenStream, target: Target) -> Callable[[Stamp | None], Stamp]:
    def make(newest: Stamp | None) -> Stamp:
        claimed = stream.claim_of(newest, stream=target.stream)
        return claimed.known_to(stream.anchor.newest) if newest is not None else claimed

    return make


def _under_way(stream: OpenStream) -> list[str]:
    """Targets other than the coordinator that an older driver may be committing to; the dead letters always count."""
    newest = stream.anchor.newest
    names = {name for name, rows in newest.rows.items() if rows} if newest else set[str]()
    # The stamp has the former name of a table that was renamed since.
    uuids = {newest.targets[name] for name in names if name in newest.targets} if newest else set[str]()
    letters = {each.name for each in stream.spec.targets if each.role == "dead_letters"}
    return [
        name
        for name, target in stream.targets.items()
        if target is not stream.anchor and (name in names | letters or target.identity in uuids)
    ]


def add_named_tables(stream: OpenStream) -> None:
    """Add tables as targets that the coordinator names and this driver has not seen yet.

    Another driver created them after this one looked and before its claim, or a batch that uses them was committed from
    a record. If that driver's file had no table for late rows, it is created.
    """
    stream.spec = with_tables_of(stream.spec, stream.anchor.newest, stream.anchor.catalog)
    for name in stream.spec.target_names:
        if name not in stream.targets:
            newest = stream.anchor.newest
            if newest is not None and name in newest.parked:
                uuid = newest.targets.get(name, "")
                stream.targets[name] = parked_target(stream.spec, stream.anchor.catalog, name, uuid)
                continue
            timely = stream.spec.late_rows_of(name) if stream.spec.own_columns else None
            if timely is not None and (newest is None or name not in newest.targets):
                ensure_late_lane(stream.spec, stream.anchor.catalog, timely)
            try:
                stream.targets[name] = Target(
                    stream.anchor.catalog, name, stream.id, branch=stream.spec.branch_of(name)
                )
            except NoSuchTableError:
                raise table_gone(stream.id, name) from None
            stream.targets[name].read()


def _back_again(stream: OpenStream) -> list[str]:
    """Targets that were none when the coordinator was stamped last, and had been before."""
    newest = stream.anchor.newest
    if newest is None or not newest.targets:
        return []
    uuids = set(newest.targets.values())
    others = [(name, target) for name, target in stream.targets.items() if target is not stream.anchor]
    return [
        name
        for name, target in others
        # The stamp of a former coordinator names targets, and counts by itself.
        if target.newest and not target.newest.targets
        if name not in newest.targets and target.identity not in uuids
    ]


def forget_retired(stream: OpenStream) -> None:
    """Claim targets again whose stamps still have topics that the coordinator has retired.

    The stamp of a target without rows since then is outdated. If such a topic returns, or a new one of its name, the
    stamp's positions would count as landed.
    """
    anchored = stream.anchor.newest
    with parking_where_unable(stream) as on:
        for name, target in list(stream.targets.items()):
            newest = target.newest
            if target is not stream.anchor and newest and newest.known_to(anchored) != newest:
                with on(name):
                    target.claim(stream.epoch, lambda before: stream.claim_of(before).known_to(anchored), again=True)


def _ends(stream: OpenStream, position: Positions, known: Mapping[str, str]) -> Positions:
    """Ends of logs that are not read to their end; without them a topic dropped before its first batch counts as read.

    Args:
        known: Kafka's ids of the topics with these positions; a recreated topic has another log.
    """
    topics = stream.log.topics
    return {
        partition: end
        for partition, end in stream.log.latest.items()
        if end > position.get(partition, end)
        and not another_topic(known.get(partition.topic), topics.get(partition.topic))
    }


def recover(stream: OpenStream, catalog: Catalog) -> None:
    """Commit what targets lack, from the pending records of earlier drivers.

    The stamps show what cannot be committed from them: then the batch runs again, or the stream stops.
    """
    for record in stream.folder.pending_records():
        step("before_recovery")
        content = stream.folder.store.get(record)
        if content is None:
            # A zombie driver wakes up and removes its own record. It can commit nothing since the claims.
            continue
        stream.recovered += _recover_from(content, stream, catalog)
        step("before_record_goes")
        stream.folder.store.delete(record)
    step("after_recovery")


def _recover_from(content: bytes, stream: OpenStream, catalog: Catalog) -> bool:
    """Commit what targets lack, from a record; returns whether anything landed.

    If the record's part for one table cannot be committed, the others still get theirs. If the coordinator's part
    cannot, nothing is committed, as no other table may be ahead of it.
    """
    stream_id = stream.spec.stream
    targets = _targets_of(content, stream, catalog)
    pending = Pending.decode(content, {name: target.table.metadata for name, target in targets.items()})
    anchor = pending.anchor or stream.anchor.name
    if anchor not in targets:
        log.warning(
            "stream %s: table %s of the pending record does not exist any more; the record is dropped",
            stream_id,
            anchor,
        )
        return False
    there = {name: planned for name, planned in pending.targets.items() if name in targets}
    stamps = {name: targets[name].newest for name in {anchor, *there}}
    names = lacking_targets(pending.batch, there, stamps, anchor)
    if names is None:
        log.warning("stream %s: a pending record is of a driver that had been taken over; it is dropped", stream_id)
        return False
    if anchor in names and _answered_since(targets[anchor], pending.targets[anchor].stamp.epoch):
        # No target has the batch, and the answer was given without it. The batch runs again from the new position.
        log.warning("stream %s: an operator's answer is newer than the pending record; it is dropped", stream_id)
        return False

    def commit(name: str) -> bool:
        if landed := _commit_lacking(stream, name, targets[name], there[name], pending.batch):
            step("after_recovery_commit")
        return landed

    # Tables that were created for this very batch and recreated since.
    replaced = [name for name, each in there.items() if name != anchor and each.seen.uuid != targets[name].uuid]
    if anchor in names and (replaced or len(there) < len(pending.targets)):
        # Without that part, all tables would pass over its records. No target has the batch yet, so it runs again.
        log.warning(
            "stream %s: nothing of the record has landed, and a table of it was dropped; the record is dropped",
            stream_id,
        )
        return False
    half = half_committed({name: target.newest for name, target in stream.targets.items()}, anchor)
    if anchor in names and half is not None and anchor not in half.lack:
        # The record was written after all tables had the previous batch. One has lost its part since, such as by a
        # restore.
        log.warning("stream %s: %s lacks the batch before the pending record; both run again", stream_id, half.lack[0])
        return False
    if anchor in names and not commit(anchor):
        return False
    others = [name for name in names if name != anchor]
    with parking_where_unable(stream) as on:

        def commit_or_park(name: str) -> bool:
            with on(name):
                return commit(name)
            return False

        return any(commit_each(others, commit_or_park, stream.most_commits).values()) or anchor in names


def _answered_since(anchor: Target, epoch: int) -> bool:
    """Whether the coordinator's newest stamp, apart from claims, is an answer of a later epoch that moved positions."""
    stamps = (stamp for _, stamp in stamps_along_main(anchor.table.metadata, anchor.stream))
    newest = next((stamp for stamp in stamps if stamp.kind != "claim"), None)
    if newest is None or newest.kind != "accept" or newest.epoch <= epoch:
        return False
    return newest.decision is None or newest.decision.answer not in _MOVING_NOTHING


def _targets_of(content: bytes, stream: OpenStream, catalog: Catalog) -> dict[str, Target]:
    """The stream's targets, and those that only a record names: earlier decisions stand."""
    stream_id, targets = stream.spec.stream, dict(stream.targets)
    for name in Pending.names(content):
        if name in targets:
            continue
        if not is_there(catalog, name):
            log.warning(
                "stream %s: table %s of the pending record does not exist any more; its part is dropped",
                stream_id,
                name,
            )
            continue
        targets[name] = Target(catalog, name, stream_id)
        if branch := written_branch(targets[name].table.metadata, stream_id):
            targets[name] = Target(catalog, name, stream_id, branch=branch)
        targets[name].read()
    return targets


def _commit_lacking(stream: OpenStream, name: str, target: Target, planned: PendingTarget, batch: Ranges) -> bool:
    """Commit a record's part for one table; False if that is impossible, so that the tasks run again for it."""
    stream_id = stream.spec.stream
    if planned.seen.uuid != target.uuid and target is not stream.anchor:
        # The table was created for this batch, dropped, and recreated by a driver that has landed the batch.
        log.warning("stream %s: table %s of the pending record is another one; its part is dropped", stream_id, name)
        return False
    if planned.unreadable and planned.seen.uuid == target.uuid:
        log.warning(_NO_LONGER_FIT, stream_id, name)
        return False
    io = target.table.io
    lost = [file.file_path for file in planned.files if not io.new_input(file.file_path).exists()]
    if lost:
        log.warning("stream %s: files of the pending record are missing (%s and others)", stream_id, lost[0])
        return False
    stream.lease.verify()
    if stream.commit(target, planned, batch) is ProposalOutcome.RUN_AGAIN:
        log.warning(_NO_LONGER_FIT, stream_id, name)
        return False
    log.info("stream %s: %d files committed to %s from the pending record", stream_id, len(planned.files), name)
    return True


_TRIES = 3


class NoHistoryError(StreamStopped):
    """The catalog keeps no snapshot of a table but the newest, and stamps are in snapshots.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: move the table to a catalog that keeps snapshots
    """


def refuse_forgetful_catalog(target: Target, claim_again: Callable[[], object]) -> None:
    """Check that the snapshot before this driver's claim still exists, unless PyIceberg writes the metadata itself.

    Args:
        target: A target that was just claimed.
        claim_again: Commits another empty snapshot, as the first one of a table has none before it.
    """
    if isinstance(target.catalog, MetastoreCatalog):
        return
    for attempt in range(_TRIES):
        if attempt:
            claim_again()
        if _former_head_is_there(target):
            return
    raise NoHistoryError(
        f"stream {target.owner}: catalog {target.catalog.name} shows no snapshot of table {target.name} but the "
        "newest. A stream's position is in the snapshots, so nothing could be landed exactly once.",
        fix="use a catalog that keeps the snapshots of a table: SQLite, PostgreSQL, or Iceberg's REST catalog",
    )


def _former_head_is_there(target: Target) -> bool:
    claim = target.table.metadata.current_snapshot()
    if claim is None or claim.parent_snapshot_id is None:
        return False
    shown = target.catalog.load_table(target.name).metadata
    if shown.snapshot_by_id(claim.snapshot_id) is None:
        # A claim of another driver serves as well.
        return len(shown.snapshots) > 1
    return shown.snapshot_by_id(claim.parent_snapshot_id) is not None
