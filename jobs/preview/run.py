"""Run of a preview: streams' files on the same records of Kafka, without a table, lease or state being touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from jobs.catalog import NoCatalogYet, quick_catalog
from jobs.commit.named_tables import all_with_named_tables
from jobs.commit.offsets import OffsetRange, PartitionRange, Ranges, TopicPartition, describe_ranges
from jobs.deadletter.selection import OffsetSelection
from jobs.errors import FrazilError
from jobs.kafka.consumer import consumer_options
from jobs.kafka.metadata import KafkaLog
from jobs.kafka.range_reader import read_split
from jobs.kafka.records import FetchedBlock
from jobs.kafka.topic_sample import sample_ranges
from jobs.preview.lanes import LanePart, PreviewLanes, lanes_of, preview_lanes
from jobs.preview.preview import asked_parts
from jobs.preview.record import StreamPreview
from jobs.preview.tables import TableAsWritten, tables_as_written
from jobs.spec.mask import Mask
from jobs.spec.models import StreamSpec
from jobs.spec.settings import KafkaSettings, Settings
from jobs.stream.new_rows import NewColumns, new_columns
from jobs.stream.writer_schemas import schema_lookup

MOST_RECORDS = 100_000
"""That one preview looks at: it keeps them in memory, with their rows."""

TopicLog = Mapping[TopicPartition, OffsetRange]


def sample_log(settings: KafkaSettings, specs: Sequence[StreamSpec]) -> TopicLog:
    """What Kafka keeps of the topics that streams read.

    Raises:
        FrazilError: None of them exists, or Kafka does not answer.
    """
    kafka = KafkaLog(settings)
    topics = {name: numbers for spec in specs for name, numbers in kafka.topics(spec.source).items()}
    if not topics:
        named = ", ".join(specs[0].source.topics or (f"that fits {specs[0].source.topics_pattern}",))
        raise FrazilError(
            f"stream {specs[0].stream}: topic {named} does not exist at {settings.require_bootstrap()}.",
            fix="create the topic, or correct source in the stream's file",
        )
    partitions = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
    earliest, latest = kafka.earliest(partitions), kafka.latest(partitions)
    return {each: OffsetRange(earliest[each], max(latest[each], earliest[each])) for each in sorted(partitions)}


def newest_ranges(log: TopicLog, records: int) -> Ranges:
    """The offsets of the newest records, as many of each partition as of another, as far as it has them."""
    earliest, latest = ({each: log[each][end] for each in log} for end in (0, 1))
    return sample_ranges(earliest, latest, records, "newest") if log else {}


def selected_ranges(log: TopicLog, selections: Iterable[OffsetSelection]) -> Ranges:
    """The offsets that are asked for, as far as Kafka keeps them.

    Args:
        log: What it keeps of the topics that the stream reads.
        selections: Topics, partitions, or offsets of them.

    Raises:
        FrazilError: The stream does not read such a topic, Kafka keeps nothing of what is asked for, or there is too
            much of it.
    """
    ranges: dict[TopicPartition, OffsetRange] = {}
    for asked in selections:
        places = [each for each in log if each.topic == asked.topic and asked.partition in (None, each.partition)]
        if not places:
            known = ", ".join(sorted({each.topic for each in log} if asked.partition is None else map(str, log)))
            place = asked.topic if asked.partition is None else f"{asked.topic}-{asked.partition}"
            raise FrazilError(f"the stream does not read {place}; it reads {known}.", fix="name one of these")
        for place in places:
            kept, wanted = log[place], asked.range or log[place]
            range_ = OffsetRange(max(kept.start, wanted.start), min(kept.end, wanted.end))
            if asked.range is not None and range_.start >= range_.end:
                raise FrazilError(
                    f"Kafka keeps no record of what is asked for of {place}: it has the offsets {kept}.",
                    fix=f"--offsets {place.topic}:{place.partition}, or others within",
                )
            if known := ranges.get(place):
                range_ = OffsetRange(min(known.start, range_.start), max(known.end, range_.end))
            if range_.start < range_.end:
                ranges[place] = range_
    if (count := sum(each.end - each.start for each in ranges.values())) > MOST_RECORDS:
        raise FrazilError(
            f"{count:,} records are asked for ({describe_ranges(ranges)}), and a preview looks at {MOST_RECORDS:,} at "
            "most.",
            fix="name fewer offsets, such as --offsets TOPIC:PARTITION:FIRST-LAST",
        )
    return dict(sorted(ranges.items()))


def read_records(settings: Settings, stream: str, ranges: Ranges, parts: frozenset[str]) -> list[FetchedBlock]:
    """The records at these offsets, as a task of the stream reads them; those that the log does not have are left out.

    Args:
        stream: The brokers' logs show it.
        parts: What is fetched beyond values and coordinates, see `jobs.kafka.records.fetched_block`.

    Raises:
        LostOffsetsError: The log has lost some of them meanwhile.
        KafkaUnavailableError: Nothing came within the time-out for requests.
    """
    timeout = 2 * settings.kafka.request_timeout.total_seconds()
    pieces = [PartitionRange(place, range_) for place, range_ in ranges.items()]
    return list(read_split(consumer_options(settings.kafka, stream), pieces, timeout, parts))


@dataclass(frozen=True, slots=True)
class Previewed:
    """What streams' files would make of the same records.

    Attributes:
        ranges: The offsets that were looked at.
        streams: In the order of the files.
    """

    ranges: Ranges
    streams: tuple[StreamPreview, ...]


def preview(
    specs: Sequence[StreamSpec], settings: Settings, *, last: int, selections: Sequence[OffsetSelection] = ()
) -> Previewed:
    """See what would become of records of the topics that any of the streams reads.

    What one of the files masks is hidden for all.

    Args:
        specs: The streams; one, or two to compare.
        settings: Of the deployment.
        last: So many of the newest records, where no offsets are named.
        selections: Offsets.

    Raises:
        FrazilError: Kafka, the catalog or the registry does not answer, there is nothing of what is asked for, or a
            table could not be made as a file says.
    """
    log = sample_log(settings.kafka, specs)
    ranges = selected_ranges(log, selections) if selections else newest_ranges(log, last)
    lookups = [schema_lookup(spec, settings) for spec in specs]
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet:
        catalog = None
    with catalog or nullcontext():
        if catalog is not None:
            specs = all_with_named_tables(specs, catalog)
        every = [_lanes(spec, settings, catalog, ranges) for spec in specs]
    parts = frozenset[str]().union(*(asked_parts(each.spec, each.tables) for one in every for each in one.parts))
    blocks = read_records(settings, specs[0].stream, ranges, parts)
    mask = joint_mask(specs)
    streams = (
        preview_lanes(lanes, blocks, schemas=lookup, mask=mask) for lanes, lookup in zip(every, lookups, strict=True)
    )
    return Previewed(ranges, tuple(streams))


def _lanes(spec: StreamSpec, settings: Settings, catalog: Catalog | None, ranges: Ranges) -> PreviewLanes:
    """The parts of a stream: one, unless each of its tables has columns of its own."""
    if not spec.own_columns:
        return PreviewLanes(spec, (LanePart(spec, _tables(spec, settings, catalog)),))
    topics = sorted({each.topic for each in ranges if spec.source.reads(each.topic)})

    def new(of_table: StreamSpec) -> NewColumns:
        return new_columns(of_table, settings, KafkaLog(settings.kafka).state(of_table.source))

    return lanes_of(spec, topics, catalog, new)


def _tables(spec: StreamSpec, settings: Settings, catalog: Catalog | None) -> tuple[TableAsWritten, ...]:
    return tables_as_written(
        spec, catalog, lambda: new_columns(spec, settings, KafkaLog(settings.kafka).state(spec.source))
    )


def joint_mask(specs: Sequence[StreamSpec]) -> Mask:
    """What any of the streams masks in its dead letters."""
    masks = [spec.errors.mask for spec in specs]
    return Mask(
        columns=tuple(dict.fromkeys(each for mask in masks for each in mask.columns)),
        headers=tuple(dict.fromkeys(each for mask in masks for each in mask.headers)),
        key=any(mask.key for mask in masks),
    )
