"""Run of a preview: streams' files on the same records of Kafka; no table, lease or state is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, quick_catalog
from jobs.clients.kafka.consumer import consumer_options
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.range_reader import read_split
from jobs.clients.kafka.records import FetchedBlock
from jobs.clients.kafka.topic_sample import sample_ranges
from jobs.config.settings.settings import KafkaSettings, Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import Mask
from jobs.streaming.driver.context.writer_schemas import schema_lookup
from jobs.streaming.driver.tables.new_rows import NewColumns, new_columns
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.topic_tables import topic_tables
from jobs.streaming.preview.preview import asked_parts, preview_stream
from jobs.streaming.preview.record import StreamPreview
from jobs.streaming.preview.tables import TableAsWritten, tables_as_written
from jobs.tables.commit.protocol.named_tables import all_with_named_tables
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    PartitionRange,
    Ranges,
    TopicPartition,
    describe_ranges,
)
from jobs.tables.dead_letter_table.selection import OffsetSelection

MOST_RECORDS = 100_000
"""Most records of one preview, which keeps them in memory with their rows."""

TopicLog = Mapping[TopicPartition, OffsetRange]
NewTableColumns = Callable[[StreamSpec], NewColumns]


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
            fix=f"create the topic (`frazil generate {specs[0].stream}` makes it on the local broker), or correct "
            "source in the stream's file",
        )
    partitions = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
    earliest, latest = kafka.earliest(partitions), kafka.latest(partitions)
    return {each: OffsetRange(earliest[each], max(latest[each], earliest[each])) for each in sorted(partitions)}


def newest_ranges(log: TopicLog, records: int) -> Ranges:
    """Offsets of the newest records, equally many of each partition, as far as they exist."""
    earliest, latest = ({each: log[each][end] for each in log} for end in (0, 1))
    return sample_ranges(earliest, latest, records, "newest") if log else {}


def selected_ranges(log: TopicLog, selections: Iterable[OffsetSelection]) -> Ranges:
    """Selected offsets, as far as Kafka keeps them.

    Args:
        log: Offsets that Kafka keeps of the stream's topics.
        selections: Topics, partitions, or offsets of them.

    Raises:
        FrazilError: The stream does not read a selected topic, Kafka keeps none of the offsets, or they are too many.
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
                    f"Kafka has none of the selected records of {place}: it has the offsets {kept}.",
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
    """Records at these offsets, read like in a task of the stream; missing offsets are left out.

    Args:
        stream: Name of the stream, for the brokers' logs.
        parts: Parts to fetch beyond values and coordinates, see `jobs.clients.kafka.records.fetched_block`.

    Raises:
        LostOffsetsError: The log has lost some of them meanwhile.
        KafkaUnavailableError: Nothing arrived within the timeout for requests.
    """
    timeout = 2 * settings.kafka.request_timeout.total_seconds()
    pieces = [PartitionRange(place, range_) for place, range_ in ranges.items()]
    return list(read_split(consumer_options(settings.kafka, stream), pieces, timeout, parts))


@dataclass(frozen=True, slots=True)
class Previewed:
    """Previews of streams' files on the same records.

    Attributes:
        ranges: Previewed offsets.
        streams: Previews in the order of the files.
    """

    ranges: Ranges
    streams: tuple[StreamPreview, ...]


def preview(
    specs: Sequence[StreamSpec], settings: Settings, *, last: int, selections: Sequence[OffsetSelection] = ()
) -> Previewed:
    """Preview records of the topics that any of the streams reads.

    Whatever one of the files masks is hidden in all previews.

    Args:
        specs: The streams; one, or two to compare.
        last: Number of newest records, if no offsets are selected.

    Raises:
        FrazilError: Kafka, the catalog or the registry does not answer, the selection is empty, or a table could not be
            created by a file.
    """
    log = sample_log(settings.kafka, specs)
    ranges = selected_ranges(log, selections) if selections else newest_ranges(log, last)
    lookups = [schema_lookup(spec, settings) for spec in specs]

    def new(of_table: StreamSpec) -> NewColumns:
        return new_columns(of_table, settings, KafkaLog(settings.kafka).state(of_table.source))

    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet:
        catalog = None
    with catalog or nullcontext():
        if catalog is not None:
            specs = all_with_named_tables(specs, catalog)
        topics = sorted({each.topic for each in ranges})
        every = [
            part_with_tables(spec, [each for each in topics if spec.source.reads(each)], catalog, new) for spec in specs
        ]
    parts = frozenset[str]().union(*(asked_parts(part, tables) for part, tables in every))
    blocks = read_records(settings, specs[0].stream, ranges, parts)
    mask = joint_mask(specs)
    streams = [
        replace(preview_stream(part, tables, blocks, schemas=lookup, mask=mask), config=spec.config_hash)
        for spec, (part, tables), lookup in zip(specs, every, lookups, strict=True)
    ]
    return Previewed(ranges, tuple(streams))


def part_with_tables(
    spec: StreamSpec, topics: Sequence[str], catalog: Catalog | None, new: NewTableColumns
) -> tuple[StreamSpec, tuple[TableAsWritten, ...]]:
    """The previewed stream and its tables; if each table has its own columns, only the topics' table.

    Args:
        topics: Topics of the sample.
        catalog: Catalog; None if there is none yet.
        new: Makes the columns of a stream's new table.

    Raises:
        FrazilError: The records go to no table or to several, or a table could not be created.
    """
    if spec.own_columns:
        found = topic_tables(spec, topics, {*spec.target_names}, naming_state(spec, {}, decided=False))
        refused = next((each.refused for each in found.values() if each.table is None), None)
        tables = sorted({each.table for each in found.values() if each.table is not None})
        if refused is not None or len(tables) != 1:
            raise FrazilError(
                f"stream {spec.stream}: each of its tables has columns of its own, and a preview is of one: "
                + (refused or f"these records go to {', '.join(tables) or 'none'}")
                + ".",
                fix=f"frazil preview {spec.stream} --offsets TOPIC, with a topic of one table",
            )
        source = spec.source.model_copy(update={"topics": tuple(found), "topics_pattern": None})
        spec = spec.for_table(tables[0]).model_copy(update={"source": source})
    return spec, tables_as_written(spec, catalog, lambda: new(spec))


def joint_mask(specs: Sequence[StreamSpec]) -> Mask:
    """Everything that any of the streams masks in its dead letters."""
    masks = [spec.errors.mask for spec in specs]
    return Mask(
        columns=tuple(dict.fromkeys(each for mask in masks for each in mask.columns)),
        headers=tuple(dict.fromkeys(each for mask in masks for each in mask.headers)),
        key=any(mask.key for mask in masks),
    )
