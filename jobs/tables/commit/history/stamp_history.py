"""Stamp history of a table: a stream's newest stamp, and whether the table was rolled back.

If the stream writes another branch, `main` in the given metadata points to that branch (see `branch`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.base.system.typed_json import decode_json
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.branch import seen_on
from jobs.tables.commit.history.lineage import (
    ancestors,
    expired_ancestors,
    line_of,
    older_versions,
    stands_on,
)
from jobs.tables.commit.history.reissue import as_landed
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition, pointwise_max
from jobs.tables.commit.stamp.retired_topics import returned_topics
from jobs.tables.commit.stamp.stamps import (
    PROPERTY_PREFIX,
    PUBLISH_PART,
    SUMMARY_KEY,
    Stamp,
    property_key,
    sequences_key,
)


@dataclass(frozen=True, slots=True)
class History:
    """The stamps of one stream on one table.

    Attributes:
        newest: The newest stamp that counts, or None if the stream never committed here.
        stamped_ancestor: The newest stamp among the ancestors of the branch's head.
        removed: Records that a rollback took out of the table, by partition; empty without a rollback.
        rolled_back: Whether somebody rolled the table back, or may have.
        doubt: Whether a rollback can be neither shown nor excluded.
        lost_start: First offsets of the lost batches, if all lost snapshots still exist. Between the kept stamps'
            positions and these, the stream landed nothing in the table.
    """

    newest: Stamp | None
    stamped_ancestor: Stamp | None
    removed: dict[TopicPartition, OffsetRange]
    rolled_back: bool
    doubt: bool = False
    lost_start: Positions = field(default_factory=dict)

    @property
    def kept(self) -> Positions:
        """Positions by the stamps that the branch still has; `newest` has the positions before a rollback."""
        return pointwise_max([_stands_by(self.stamped_ancestor, self.newest), self.lost_start])


def history_of(table: Table, stream: str) -> History:
    """As `history`, and reads older versions of the metadata if the current one does not decide."""
    return history(table.metadata, stream, older_versions(table))


def history(metadata: TableMetadata, stream: str, older: Iterator[TableMetadata] | None = None) -> History:
    """Read the stamps of `stream` from the ancestors of main's head, and from the table property.

    Only ancestors count. Claims may be lost. If the newest stamped ancestor is older than the last stamp that is no
    claim, somebody moved the branch. If no stamped ancestor is left, the head has to be shown to descend from the last
    stamp (see `lineage`). What cannot be shown counts as rolled back. Three exceptions: replays and queues, which stamp
    rarely and whose rows prove it, and stamps of earlier versions.

    Args:
        older: Older versions of the metadata, newest first. Without them, an undecided history only sets `doubt`.
    """
    recorded = _property_stamp(metadata, stream)
    along = list(ancestors(metadata))
    found = next((stamp for each in along if (stamp := _summary_stamp(metadata, each, stream))), None)
    if recorded is None:
        return History(found, found, {}, rolled_back=False)
    if recorded.branch and recorded.branch not in metadata.refs:
        published = _published_stamp(metadata, stream, recorded)
        if published is not None and (found is None or found.sequence < published.sequence):
            # The branch was dropped. The stream goes on from what main has of it.
            return _compared(metadata, stream, recorded, published, along)
    if found is not None or not along or _comes_before(along[-1], recorded):
        return _compared(metadata, stream, recorded, found, along)
    if _on_line(metadata, recorded):
        return History(recorded, None, {}, rolled_back=False)
    for each in expired_ancestors(along[-1], older) if older is not None else ():
        found = _summary_stamp(metadata, each, stream) if each is not None else None
        if each is None or found is not None or _comes_before(each, recorded):
            past = _compared(metadata, stream, recorded, found, along)
            # The property decides, as after any expiry.
            return past if past.rolled_back else History(recorded, None, {}, rolled_back=False)
    if ("~" in stream and not stream.endswith(PUBLISH_PART)) or not recorded.moved:
        return History(recorded, None, {}, rolled_back=False)
    return History(recorded, None, {}, rolled_back=older is not None, doubt=True)


def _published_stamp(metadata: TableMetadata, stream: str, recorded: Stamp) -> Stamp | None:
    """Stamp of the stream on main after its branch was dropped; None if nothing, or nothing known, was published."""
    publication = _property_stamp(metadata, stream + PUBLISH_PART)
    through = publication.published.get(recorded.branch, 0) if publication else 0
    stamps = {
        each.sequence_number or 0: stamp
        for each in metadata.snapshots
        if 0 < (each.sequence_number or 0) <= through
        and (stamp := _summary_stamp(metadata, each, stream)) is not None
        and stamp.branch == recorded.branch
    }
    if stamps:
        return stamps[max(stamps)]
    if publication is None or not publication.landed or through not in publication.position.values():
        # No record, or only one about another branch.
        return None
    return replace(
        recorded,
        start=publication.landed,
        position=publication.landed,
        valid_through_ms=publication.valid_through_ms,
        event_time=None,
        sequence=through,
        moved=through,
    )


def _comes_before(ancestor: Snapshot, recorded: Stamp) -> bool:
    """Whether an ancestor is older than the stamp that should be an ancestor, by sequence numbers."""
    must = recorded.last_move or recorded.sequence
    return bool(recorded.sequence) and (ancestor.sequence_number or 0) < must


def _on_line(metadata: TableMetadata, recorded: Stamp) -> bool:
    line = line_of(metadata.properties)
    if line is None or not stands_on(metadata, line.snapshot_id):
        return False
    # A line that begins after the last move proves as much. It began with the first claim over a stamp of an earlier
    # version, and that claim was made on a head that had the move.
    return line.covers(recorded.last_move or recorded.sequence) or line.covers(recorded.sequence)


def _compared(
    metadata: TableMetadata, stream: str, recorded: Stamp, found: Stamp | None, along: list[Snapshot]
) -> History:
    """Compare the newest stamp among the ancestors with the newest recorded one."""
    moved = found is not None and found.sequence < (recorded.last_move or 0)
    if found is not None and moved and _only_answers_lost(metadata, stream, recorded, found, along):
        return History(recorded, found, {}, rolled_back=False)
    lost_start = _lost_start(metadata, stream, recorded, along)
    kept = pointwise_max([_stands_by(found, recorded), lost_start])
    # One commit writes both, so they differ only if the branch was moved since.
    removed = {
        partition: OffsetRange(kept.get(partition, 0), offset)
        for partition, offset in recorded.position.items()
        if offset > kept.get(partition, 0)
    }
    # If an operator moved the position back in between, the difference says nothing: all rows landed since are gone.
    removed |= {
        partition: OffsetRange(0, recorded.position[partition])
        for partition, offset in kept.items()
        if offset > recorded.position.get(partition, offset)
    }
    if found is not None and moved:
        stands = recorded.position
        lowest = _lowest(metadata, stream, recorded, found, along)
        back = {p: at for p, at in lowest.items() if at < kept.get(p, 0) <= stands.get(p, 0)}
        removed |= {p: OffsetRange(at, stands[p]) for p, at in back.items()}
        # If stamps have expired, nobody knows whether the table was moved back in between.
        doubt = not removed and bool(recorded.position)
        return History(recorded, found, removed, rolled_back=True, doubt=doubt, lost_start=lost_start)
    return History(recorded, found, removed, rolled_back=bool(removed), lost_start=lost_start)


def _stands_by(found: Stamp | None, recorded: Stamp | None) -> dict[TopicPartition, int]:
    """Positions by `found`, with topics that were retired then and that `recorded` reads again."""
    if found is None:
        return {}
    return {**(returned_topics(found.retired, recorded.topics) if recorded else {}), **found.position}


def _only_answers_lost(
    metadata: TableMetadata, stream: str, recorded: Stamp, found: Stamp, along: list[Snapshot]
) -> bool:
    """Whether a rollback is known to have removed only answers and claims, which have no rows."""
    ids = {each.snapshot_id for each in along}
    lost = {
        each.sequence_number: each
        for each in metadata.snapshots
        if each.snapshot_id not in ids and found.sequence < (each.sequence_number or 0) <= recorded.sequence
    }
    later = range(found.sequence + 1, recorded.sequence + 1)
    on_branch = {each.sequence_number for each in along}
    if not all(number in lost or number in on_branch for number in later):
        return False
    stamps = (_summary_stamp(metadata, each, stream) for each in lost.values())
    return all(stamp is None or stamp.kind == "claim" or _is_answer(stamp) for stamp in stamps)


def _is_answer(stamp: Stamp) -> bool:
    return stamp.kind == "accept" and stamp.decision is not None


def _lowest(
    metadata: TableMetadata, stream: str, recorded: Stamp, found: Stamp, along: list[Snapshot]
) -> dict[TopicPartition, int]:
    """Lowest offset of each partition in the lost stamps."""
    ids = {each.snapshot_id for each in along}
    others = (_summary_stamp(metadata, each, stream) for each in metadata.snapshots if each.snapshot_id not in ids)
    lowest: dict[TopicPartition, int] = {}
    for stamp in (recorded, *others):
        if stamp is None or stamp.kind == "claim" or not found.sequence < stamp.sequence <= recorded.sequence:
            continue
        stood = {p: part.stood for p, part in stamp.parts.items()} or (stamp.start if stamp.kind == "batch" else {})
        for each in (stood, stamp.position):
            for partition, at in each.items():
                lowest[partition] = min(at, lowest.get(partition, at))
    return lowest


def _lost_start(
    metadata: TableMetadata, stream: str, recorded: Stamp, along: list[Snapshot]
) -> dict[TopicPartition, int]:
    """First offsets of the lost batches; empty if some of them have expired, or if an answer was lost with them."""
    ids = {each.snapshot_id for each in along}
    last = next((each for each in metadata.snapshots if each.sequence_number == recorded.sequence), None)
    lost_start: dict[TopicPartition, int] = {}
    for each in ancestors(metadata, last.snapshot_id) if last is not None else ():
        if each.snapshot_id in ids:
            return lost_start
        stamp = _summary_stamp(metadata, each, stream)
        if stamp is None or stamp.kind == "claim":
            continue
        if stamp.kind != "batch":
            return {}
        stood = {**stamp.start, **{partition: part.stood for partition, part in stamp.parts.items()}}
        for partition, at in stood.items():
            lost_start[partition] = min(at, lost_start.get(partition, at))
    return {}


def newest_batch(metadata: TableMetadata, stream: str) -> Stamp | None:
    """Stamp of the stream's newest batch that still exists; None without one."""
    found = (_summary_stamp(metadata, each, stream) for each in ancestors(metadata))
    return next((stamp for stamp in found if stamp is not None and stamp.kind == "batch"), None)


def stamps_along_main(metadata: TableMetadata, stream: str, after: int = -1) -> list[tuple[int, Stamp]]:
    """`(snapshot id, stamp)` of the stream's existing snapshots, newest first.

    Args:
        after: Only snapshots with a greater sequence number; for a copied snapshot, the number of its original.
    """
    found = [
        (snapshot.snapshot_id, _summary_stamp(metadata, snapshot, stream)) for snapshot in _along_main(metadata, after)
    ]
    return [(snapshot_id, stamp) for snapshot_id, stamp in found if stamp]


def stamped_snapshots(metadata: TableMetadata, stream: str, after: int = -1) -> Iterator[tuple[Snapshot, Stamp]]:
    """As `stamps_along_main`, but oldest first and with whole snapshots. Stamps are parsed lazily.

    A copied snapshot has id, number and time of its original.
    """
    for snapshot in reversed(_along_main(metadata, after)):
        stamp = _summary_stamp(metadata, snapshot, stream)
        if stamp:
            yield as_landed(snapshot), stamp


def _along_main(metadata: TableMetadata, after: int) -> list[Snapshot]:
    later = takewhile(lambda each: (each.sequence_number or 0) > after, ancestors(metadata))
    return [each for each in later if (as_landed(each).sequence_number or 0) > after]


def greatest_epoch(metadata: TableMetadata, stream: str) -> int:
    """Greatest epoch of any stamp of the stream on this table, on any branch; 0 without one."""
    stamps = [_property_stamp(metadata, stream)]
    stamps += [_summary_stamp(metadata, snapshot, stream) for snapshot in metadata.snapshots]
    return max((stamp.epoch for stamp in stamps if stamp), default=0)


def written_branch(metadata: TableMetadata, stream: str) -> str | None:
    """The branch that the stream's newest stamp was committed to; None if it never committed here."""
    stamp = _property_stamp(metadata, stream)
    return (stamp.branch or MAIN_BRANCH) if stamp else None


def streams_on_branch(metadata: TableMetadata, branch: str) -> set[str]:
    """Ids that write a branch beside main, by newest stamps and by the stamps left on the branch."""
    found: set[str] = set()
    for key in metadata.properties:
        stream = key.removeprefix(PROPERTY_PREFIX)
        if key.startswith(PROPERTY_PREFIX) and written_branch(metadata, stream) == branch:
            found.add(stream)
    for snapshot in ancestors(metadata, metadata.refs[branch].snapshot_id) if branch in metadata.refs else ():
        text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
        if text and (stamp := Stamp.from_json(text)).branch == branch:
            found.add(stamp.stream)
    return found


def as_written(metadata: TableMetadata, stream: str) -> TableMetadata:
    """The metadata seen from the branch that the stream wrote last; see `branch`."""
    return seen_on(metadata, written_branch(metadata, stream) or MAIN_BRANCH)


def _property_stamp(metadata: TableMetadata, stream: str) -> Stamp | None:
    text = whole_property(metadata.properties, property_key(stream))
    if not text:
        return None
    stamp = Stamp.from_json(text, metadata.properties)
    sequences = whole_property(metadata.properties, sequences_key(stream))
    return replace(stamp, sequences=decode_json(sequences, dict[str, int])) if sequences else stamp


def _summary_stamp(metadata: TableMetadata, snapshot: Snapshot, stream: str) -> Stamp | None:
    text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
    # The text contains the stream's name, so most other streams' stamps need no parsing.
    if not text or f'"{stream}"' not in text:
        return None
    stamp = Stamp.from_json(text, metadata.properties)
    return stamp if stamp.stream == stream else None
