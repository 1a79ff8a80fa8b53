"""Rollback of a table: the error that stops the stream, and the stamps of an operator's answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.tables.commit.history.branch import described
from jobs.tables.commit.history.publications import published_through
from jobs.tables.commit.history.stamp_history import History
from jobs.tables.commit.stamp.errors import NothingToAcceptError, RolledBackError
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    Ranges,
    describe_ranges,
    pointwise_max,
)
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import NewestStamps, target_positions


def rolled_back(stream: str, table: str, past: History, branch: str = MAIN_BRANCH) -> RolledBackError:
    """The stop for a table that was rolled back, or may have been.

    Args:
        branch: Branch that the stream writes; it may be dropped, or never have had the records.
    """
    where = described(table, branch)
    former = past.newest.branch if past.newest else ""
    if past.doubt:
        return RolledBackError(
            f"stream {stream}: it is unknown whether {where} still has the stream's last commit: the snapshots since "
            "then were committed by others and have expired, so somebody may have rolled the table back, or replaced "
            "it.",
            fix=f"`frazil audit {stream} --full` to see whether records are missing; `frazil accept {stream} "
            f"--rollback keep` to go on at the stream's position, or `frazil accept {stream} --rollback reland` "
            "to land again all that Kafka still keeps",
        )
    if branch != MAIN_BRANCH or former:
        was = f"branch {former}" if former else "main"
        return RolledBackError(
            f"stream {stream}: {where} does not have what the stream landed last, on {was}: the branch was dropped, "
            f"moved back, or never had it; the records {describe_ranges(past.removed)} are not in it.",
            fix="name the former branch of the table in the stream's file again, or give this one its snapshots; or "
            f"`frazil accept {stream} --rollback keep` to leave them out, or `frazil accept {stream} --rollback "
            "reland` to land them again",
        )
    return RolledBackError(
        f"stream {stream}: {where} was rolled back to before the stream's last commit; "
        f"the records {describe_ranges(past.removed)} are no longer in it.",
        fix=f"`frazil accept {stream} --rollback keep` to leave them out, or "
        f"`frazil accept {stream} --rollback reland` to land them again",
    )


def rolled_back_aside(stream: str, table: str, past: History) -> RolledBackError:
    """The stop for a dynamic table that was rolled back, or may have been, while it was no target.

    Its records cannot be landed again: they were read under the stream's former file.
    """
    gone = f"; the records {describe_ranges(past.removed)} are no longer in it" if past.removed else ""
    return RolledBackError(
        f"stream {stream}: a record names table {table}, which was rolled back while it was no table of the stream, or "
        f"may have been{gone}.",
        fix=f"bring its snapshots back, or `frazil accept {stream} --rollback keep` to leave the records out: it gets "
        "what comes from then on",
    )


def refuse_unknown_publication(
    stream: str, tables: Mapping[str, TableMetadata], histories: Mapping[str, History]
) -> None:
    """Raise if it is unknown what main has of a dropped branch, before its records are landed again.

    Raises:
        FrazilError: Something of the branch was published, and nothing records which rows.
    """
    for name, past in histories.items():
        branch = past.newest.branch if past.newest else ""
        if not branch or branch in tables[name].refs or not past.rolled_back or past.stamped_ancestor is not None:
            continue
        if published_through(tables[name], stream, branch):
            raise FrazilError(
                f"stream {stream}: branch {branch} of table {name} was dropped, and its snapshots have expired, so it "
                "is unknown which of its records main has. Landing all of them again would double those.",
                fix=f"`frazil accept {stream} --rollback keep`, then `frazil reset-offsets {stream}` to the first "
                "record that main lacks",
            )


def rollback(
    histories: Mapping[str, History], anchor: str, answer: Literal["keep", "reland"], config: str
) -> dict[str, Stamp]:
    """Answer to a table that was rolled back: leave the removed records out, or land them again.

    Landing again lowers what other targets prove about the rolled back table, and no position of theirs, so nothing
    lands twice. Until then the stream's completeness and watermark are those of the kept stamps.

    Args:
        config: Hash of the present configuration, under which the records are landed again.
    """
    rolled = {name for name, past in histories.items() if past.rolled_back}
    if not rolled:
        raise NothingToAcceptError("no table of the stream was rolled back", fix="frazil status")
    through = _kept_through(histories, anchor, rolled)
    new: dict[str, Stamp] = {}
    for name, past in histories.items():
        stamp = past.newest
        if stamp is None:
            continue
        if answer == "keep":
            if name in rolled:
                new[name] = stamp.decided(_after_rollback(past, stamp.position, answer))
        else:
            kept = [_position_kept(histories[each]) for each in rolled]
            # A partition that a rolled back table never had was complete there up to the begin of the batch.
            start = {
                partition: min([offset, *(each[partition] for each in kept if partition in each)])
                for partition, offset in stamp.start.items()
            }
            position = _position_kept(past) if name in rolled else stamp.position
            rows = dict(stamp.rows)
            retired, bare = stamp.retired, stamp.decided(None)
            if name in rolled:
                kept_times = past.stamped_ancestor.event_time if past.stamped_ancestor else None
                bare = replace(bare, event_time=kept_times.bare() if kept_times else None)
                retired = {topic: _landed_by(past.stamped_ancestor, topic, each) for topic, each in retired.items()}
            if name == anchor:
                # A target with rows to come does not count as complete at the coordinator's position.
                rows |= dict.fromkeys(rolled - {anchor}, 1)
                # Failed records are counted for the newest batch, and more than that is landed again.
                bare = replace(bare, failed=None)
            decision = _after_rollback(past, position, answer) if name in rolled else Decision("rollback_reland")
            new[name] = replace(
                bare,
                decision=decision,
                start=start,
                position=position,
                rows=rows,
                config=config,
                valid_through_ms=through,
                retired=retired,
            )
    # Tables that were rolled back come last, so the stop stands until the last of them is stamped.
    return {name: new[name] for name in sorted(new, key=lambda name: (name in rolled, name != anchor))}


def _after_rollback(past: History, position: Positions, answer: Literal["keep", "reland"]) -> Decision:
    """Decision about a rolled back table that is to stand at `position`.

    Counted from the position of its kept stamps, which may also be ahead: a reset may have been rolled back as well. If
    it is in doubt whether rows are gone, and the answer is to leave them out, the newest stamp stands.
    """
    if past.doubt and answer == "keep" and past.newest:
        return Decision("rollback_keep", since=past.newest.sequence)
    ancestor, kept = past.stamped_ancestor, past.kept
    before = past.newest.position if past.newest else {}
    return Decision(
        "rollback_keep" if answer == "keep" else "rollback_reland",
        passed={p: OffsetRange(kept.get(p, 0), at) for p, at in position.items() if at > kept.get(p, 0)},
        again={
            p: OffsetRange(at, max(kept.get(p, 0), before.get(p, 0)))
            for p, at in position.items()
            if at < max(kept.get(p, 0), before.get(p, 0))
        },
        removed=past.removed,
        since=ancestor.sequence if ancestor else 0,
    )


def _position_kept(past: History) -> Positions:
    """Position of a rolled back table.

    Partitions missing from the kept stamps start at 0. Otherwise they would inherit the other targets' position. If a
    partition was moved back in between, the lower offset counts.
    """
    kept = past.kept
    stood = past.newest.position if past.newest else {}
    return {
        partition: min(kept.get(partition, 0), past.removed[partition].start)
        if partition in past.removed and kept.get(partition, 0) <= at
        else kept.get(partition, 0)
        for partition, at in stood.items()
    }


def _kept_through(histories: Mapping[str, History], anchor: str, rolled: Collection[str]) -> int | None:
    """Time through which the stream is complete at the positions of the rolled back tables; milliseconds since 1970.

    The least of their stamps and the coordinator's; None if a table stands before the stamp that would tell it.
    """
    newest = histories[anchor].newest if anchor in histories and anchor not in rolled else None
    said = [newest.valid_through_ms] if newest else []
    for name in rolled:
        kept, stands = histories[name].stamped_ancestor, _position_kept(histories[name])
        if kept is None or any(stands.get(partition, at) < at for partition, at in histories[name].kept.items()):
            return None
        said.append(kept.valid_through_ms)
    known = [each for each in said if each is not None]
    return min(known) if len(known) == len(said) else None


def _landed_by(stamp: Stamp | None, topic: str, each: Retired) -> Retired:
    """A retired topic, landed only as far as an earlier stamp records; 0 for partitions that it does not name."""
    known: Mapping[int, int] = {}
    if stamp is not None and stamp.topics.get(topic) == each.identity:
        known = {partition.partition: at for partition, at in stamp.position.items() if partition.topic == topic}
    elif stamp is not None and topic in stamp.retired and stamp.retired[topic].identity == each.identity:
        known = stamp.retired[topic].positions
    return each._replace(positions={number: min(at, known.get(number, 0)) for number, at in each.positions.items()})


def restored_tables(stamps: NewestStamps, anchor: str, uuids: Mapping[str, str]) -> dict[str, int]:
    """The tables that lack a commit of the stream which another table knows.

    Args:
        stamps: Newest stamp of each table, by its metadata.

    Returns:
        Sequence number of the missing commit by table.
    """
    anchored = stamps.get(anchor)
    recorded = dict(anchored.sequences or {}) if anchored else {}
    for name, stamp in stamps.items():
        if name != anchor and stamp is not None and stamp.coordinator is not None:
            uuid, sequence = stamp.coordinator
            recorded[uuid] = max(sequence, recorded.get(uuid, 0))
    found: dict[str, int] = {}
    for name, stamp in stamps.items():
        known, has = recorded.get(uuids.get(name, ""), 0), _last_move(stamp)
        if has is not None and has < known:
            found[name] = known
    return found


def lost_ranges(stamps: NewestStamps, anchor: str, table: str) -> Ranges:
    """Records that a restored table had received, by the stamps of the other tables."""
    stamp = stamps.get(table)
    has = stamp.position if stamp else {}
    if table == anchor:
        # Every other table commits a batch after the coordinator.
        others = [each for name, each in stamps.items() if name != anchor and each is not None]
        stood = pointwise_max(positions for each in others for positions in (each.start, each.position))
    else:
        stood = target_positions(stamps, anchor)[table]
    return {p: OffsetRange(has.get(p, 0), at) for p, at in sorted(stood.items()) if at > has.get(p, 0)}


def refuse_restored(stream: str, stamps: NewestStamps, anchor: str, uuids: Mapping[str, str]) -> None:
    """Raise if a table lacks a commit that another table knows; arguments as of `restored_tables`."""
    for name in restored_tables(stamps, anchor, uuids):
        raise restored(stream, name, lost_ranges(stamps, anchor, name))


def restored(stream: str, table: str, lost: Ranges) -> RolledBackError:
    """The stop for a table that was restored from older metadata."""
    gone = f": the records {describe_ranges(lost)} may no longer be in it" if lost else ""
    return RolledBackError(
        f"stream {stream}: table {table} was restored from older metadata, and lacks commits that the stream has made "
        f"to it{gone}.",
        fix=f"put the newest metadata of {table} back; or `frazil accept {stream} --rollback reland` to land those "
        f"records again, or `frazil accept {stream} --rollback keep` to leave them out",
    )


def with_restored(
    histories: Mapping[str, History], anchor: str, uuids: Mapping[str, str]
) -> tuple[dict[str, History], tuple[str, ...]]:
    """Histories of a stream's tables, with restored tables counted as rolled back; and the names of those."""
    stamps = {name: past.newest for name, past in histories.items()}
    found = dict(histories)
    names = restored_tables(stamps, anchor, uuids)
    for name, sequence in names.items():
        past, kept, removed = histories[name], stamps[name], dict(lost_ranges(stamps, anchor, name))
        pattern = (kept or next(stamp for stamp in stamps.values() if stamp is not None)).decided(None)
        newest = replace(
            pattern,
            position={**(kept.position if kept else {}), **{p: range_.end for p, range_ in removed.items()}},
            sequence=sequence,
            moved=sequence,
        )
        # If it was rolled back as well, the records of both are gone.
        for p, range_ in past.removed.items():
            both = removed.get(p, range_)
            removed[p] = OffsetRange(min(range_.start, both.start), max(range_.end, both.end))
        found[name] = History(
            newest, past.stamped_ancestor if past.rolled_back else kept, removed, rolled_back=True, doubt=past.doubt
        )
    return found, tuple(names)


def _last_move(stamp: Stamp | None) -> int | None:
    return stamp.last_move if stamp is not None else 0
