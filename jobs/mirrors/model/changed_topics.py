"""Changelogs that stop their mirrors: topics were recreated, cut or got partitions, or changes have expired.

Offsets of a recreated or cut topic start again. A mirror needs offsets to order changes, to recognise repeats, and to
assign changes to source timelines. So changes of two topic incarnations are never merged into one mirror. If a topic
got partitions, keys move to other ones, whose offsets cannot be compared with those of earlier changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.model import errors
from jobs.mirrors.model.mirror_stamp import MirrorStamp
from jobs.quality.incremental_scan.arrow_rows import table_batches
from jobs.tables.commit.history.other_logs import other_logs
from jobs.tables.commit.stamp.expired_changes import REPLACED, expired_changes, stream_topics
from jobs.tables.commit.stamp.offsets import Positions
from jobs.tables.write.data_file_rows import UnreadableFileError

_EARLIER = "was made again, or was cut"


def refuse_recreated_topics(
    spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp | None, files: Iterable[DataFile] = ()
) -> None:
    """Refuse to merge changes of a topic that was recreated or cut.

    Args:
        known: Stamp of the mirror.
        files: Data files that would be merged.

    Raises:
        AnotherLogError: An operator's answer reports it, or the topic has another id than when its changes expired.
    """
    properties = changelog.metadata.properties
    expired = expired_changes(properties, spec.table.name)
    for topic in expired.replaced(stream_topics(properties, spec.stream)) if expired else ():
        raise errors.AnotherLogError(spec.stream, mirror.table, spec.table.name, topic, REPLACED, None)
    merged = {partition.topic for partition in known.state.partitions} if known else set[str]()
    answers = other_logs(changelog.metadata, spec.stream, 0)
    found = [(each.topic, each.said, each.sequence) for each in answers]
    # Earlier releases went on after such answers, and recorded the topics.
    found += [(topic, _EARLIER, None) for topic in (known.state.recreated if known else ())]
    for topic, said, sequence in found:
        if topic in merged or _has_changes(spec, changelog, files, topic):
            raise errors.AnotherLogError(spec.stream, mirror.table, spec.table.name, topic, said, sequence)


def refuse_added_partitions(spec: StreamSpec, mirror: Mirror, known: MirrorStamp, now: Positions) -> None:
    """Refuse to merge if a topic got partitions, and only offsets order its changes.

    Args:
        known: Stamp of the mirror.
        now: Offsets of the stream, in all partitions of its topics.

    Raises:
        AddedPartitionsError: A topic got partitions.
    """
    if spec.changes is not None and spec.changes.order_by:
        return
    before = known.positions.get(spec.stream, {})
    unplaced = {partition.topic for partition, each in known.state.partitions.items() if each.position is None}
    for topic in sorted(unplaced):
        newest = max((each.partition for each in before if each.topic == topic), default=None)
        added = sorted(each.partition for each in now if each.topic == topic and each.partition > (newest or 0))
        if newest is not None and added:
            raise errors.AddedPartitionsError(spec.stream, mirror.table, spec.table.name, topic, added)


def expired_offsets(spec: StreamSpec, changelog: Table) -> Positions:
    """Return the first offset of each partition from which no change has expired; empty if none has expired.

    Raises:
        FrazilError: The changelog's record of expired changes cannot be read.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
    return expired.offsets if expired is not None else {}


def refuse_expired(spec: StreamSpec, mirror: Mirror, changelog: Table) -> None:
    """Refuse to build a mirror from a changelog whose changes have expired.

    Raises:
        ExpiredChangesError: Changes have expired.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
    if expired is not None:
        raise errors.ExpiredChangesError(spec.stream, mirror.table, spec.table.name, expired.rows, expired.before)


def refuse_missed(
    spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp | None, position: Positions
) -> None:
    """Refuse to merge if changes have expired that the mirror has not merged, or that the changelog has not reached.

    Args:
        known: Newest stamp of the mirror; None for a rebuild.
        position: Offsets of the stream in the changelog.

    Raises:
        MissedChangesError: Changes have expired that the mirror has not merged.
        StaleExpiryError: The changelog was rolled back to before the expired changes.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
    if expired is None:
        return
    for partition, since in sorted(expired.offsets.items()):
        if (at := position.get(partition, since)) < since:
            raise errors.StaleExpiryError(spec.stream, spec.table.name, partition, since, at)
    if known is not None and known.sequence < expired.sequence:
        raise errors.MissedChangesError(spec.stream, mirror.table, spec.table.name, expired.before)


def _has_changes(spec: StreamSpec, changelog: Table, files: Iterable[DataFile], topic: str) -> bool:
    """Whether a file has a change of a topic; True if one cannot be read."""
    name, schema = spec.kafka_columns.coordinates[0], changelog.schema()
    number, wanted = schema.find_field(name).field_id, topic.encode()
    for file in files:
        least, greatest = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
        if (least is not None and wanted < least) or (greatest is not None and wanted > greatest):
            continue
        try:
            batches = table_batches(changelog.io, file, schema, {name})
            if any(topic in batch[name].unique().to_pylist() for batch in batches):
                return True
        except UnreadableFileError:
            return True
    return False
