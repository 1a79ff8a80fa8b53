"""Restored tables: metadata that an older version replaced under the same uuid, found by sequence numbers.

A catalog's backup, or a table registered again from an older metadata file, removes a table's newest commits together
with the properties that recorded them. The table then looks as if it never received those commits. Other tables still
record them. The coordinator's property `frazil.sequences.<stream>` says, by uuid, the sequence number of the newest
commit of the stream on each other table. The stamp of every other table says the coordinator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.commit.errors import RolledBackError
from jobs.commit.offsets import OffsetRange, Ranges, describe_ranges, pointwise_max
from jobs.commit.stamp_history import History
from jobs.commit.stamps import Stamp
from jobs.commit.target_positions import NewestStamps, target_positions


def restored_tables(stamps: NewestStamps, anchor: str, uuids: Mapping[str, str]) -> dict[str, int]:
    """The tables that lack a commit of the stream which another table knows.

    Args:
        stamps: The newest stamp of each table, as its metadata have it.
        anchor: Name of the coordinator.
        uuids: Uuids of the tables, by name.

    Returns:
        By name, the sequence number of the commit that the table lacks.
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
    """The records that a restored table had received, as far as the other tables tell."""
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
    """See that every table has the commits that the others know; arguments as of `restored_tables`.

    Raises:
        RolledBackError: One was restored from older metadata.
    """
    for name in restored_tables(stamps, anchor, uuids):
        raise restored(stream, name, lost_ranges(stamps, anchor, name))


def restored(stream: str, table: str, lost: Ranges) -> RolledBackError:
    """The stop for a table that was restored from older metadata.

    Args:
        lost: Records that it had received, as far as known.
    """
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
    """The histories of a stream's tables in which a restored table counts as rolled back; and which those are.

    Args:
        histories: By name, as the tables' metadata have them.
        anchor: Name of the coordinator.
        uuids: Uuids of the tables, by name.
    """
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
        # If it was rolled back since, the records of both are gone.
        for p, range_ in past.removed.items():
            both = removed.get(p, range_)
            removed[p] = OffsetRange(min(range_.start, both.start), max(range_.end, both.end))
        found[name] = History(
            newest, past.stamped_ancestor if past.rolled_back else kept, removed, rolled_back=True, doubt=past.doubt
        )
    return found, tuple(names)


def _last_move(stamp: Stamp | None) -> int | None:
    return stamp.last_move if stamp is not None else 0
