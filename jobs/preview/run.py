"""Run of a preview: streams' files on the same records of Kafka, without a table, lease or state being touched."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from jobs.catalog import NoCatalogYet, quick_catalog
from jobs.commit.named_tables import all_with_named_tables
from jobs.commit.offsets import Ranges
from jobs.deadletter.selection import OffsetSelection
from jobs.kafka.metadata import KafkaLog
from jobs.preview.lanes import LanePart, PreviewLanes, lanes_of, preview_lanes
from jobs.preview.preview import asked_parts
from jobs.preview.record import StreamPreview
from jobs.preview.sample import newest_ranges, read_records, sample_log, selected_ranges
from jobs.preview.tables import TableAsWritten, tables_as_written
from jobs.spec.mask import Mask
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.new_rows import NewColumns, new_columns
from jobs.stream.writer_schemas import schema_lookup


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
