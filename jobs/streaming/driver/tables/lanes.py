"""Outputs of a batch by topic, for a stream whose tables each have their own columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.stream.event_time import event_time_problems_of
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import misfit_fix
from jobs.records.formats.interface.decoder_spec import SURVEY
from jobs.records.formats.interface.problems import UNROUTED
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.second_run import known_table, table_as_decided, unknown_as_decided
from jobs.streaming.driver.tables.new_rows import refuse_misnamed
from jobs.streaming.pipeline.lanes import Lane
from jobs.streaming.pipeline.route_naming import DECIDED, naming_state
from jobs.streaming.pipeline.row_steps import row_steps_of
from jobs.streaming.pipeline.topic_tables import TopicTable, topic_tables
from jobs.tables.commit.protocol.parked_target import ParkedTarget
from jobs.tables.commit.stamp.offsets import Ranges
from jobs.tables.commit.stamp.target_positions import TargetNeed


def topics_of(ranges: Ranges) -> list[str]:
    """Topics of a batch with offsets to read, in order."""
    return sorted({partition.topic for partition, (start, end) in ranges.items() if start < end})


def destinations(stream: OpenStream, topics: Iterable[str], *, decided: bool = False) -> dict[str, TopicTable]:
    """Table of each topic's records, existing or to be created, or none.

    Args:
        decided: Whether the coordinator has their batch, so that topics without a table then got none.

    Raises:
        FrazilError: A topic would go to two tables.
    """
    # A topic that got no table then has none now, whatever prevented it.
    naming = naming_state(stream.spec, stream.refused_values, decided=False)
    return topic_tables(stream.spec, topics, stream.targets, naming, {} if decided else stream.unmade)


def tables_of_topics(stream: OpenStream, ranges: Ranges) -> tuple[str, ...]:
    """Tables that a batch has decoded records for, if each table of the stream has its own columns."""
    if not stream.spec.own_columns:
        return ()
    found = dict.fromkeys(each.table for each in destinations(stream, topics_of(ranges)).values())
    return tuple(
        name for name in found if name in stream.targets and not isinstance(stream.targets[name], ParkedTarget)
    )


def task_lanes(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], *, survey: bool
) -> tuple[Lane, ...]:
    """Outputs of a batch's topics, by the tables' present state, or their state when the batch was decided."""
    if not stream.spec.own_columns:
        return ()
    decided = needs[stream.anchor.name].nothing
    found = destinations(stream, topics_of(ranges), decided=decided)
    by_table: dict[str, list[str]] = {}
    lanes: list[Lane] = []
    for topic, each in found.items():
        if each.table in stream.targets:
            by_table.setdefault(each.table, []).append(topic)
        else:
            lanes.append(_without_table(stream, topic, each))
    lanes += [_lane(stream, needs, name, topics, survey=survey) for name, topics in by_table.items()]
    return tuple(lanes)


def _lane(stream: OpenStream, needs: Mapping[str, TargetNeed], name: str, topics: list[str], *, survey: bool) -> Lane:
    if isinstance(stream.targets[name], ParkedTarget) and not (stream.fits_parked and known_table(stream, name)):
        own = stream.resolved_for(stream.rows_table.metadata)
        return Lane(frozenset(topics), name, own, stream.spec.record_columns, decoded=False)
    table, unknown = table_as_decided(stream, needs, name), unknown_as_decided(stream, needs)
    spec = stream.spec.for_table(name)
    refuse_altered(spec, table)
    _refuse_bare(stream, name, table.schema())
    refuse_timeless(spec, name, table.schema())
    options = {SURVEY: True} if survey and name not in stream.unsurveyed else {}
    resolved = stream.resolved_for(table, unknown, name).with_options(options)
    columns = stream.record_columns_for(table, unknown, name)
    steps = row_steps_of(spec, resolved.schema, columns)
    if steps is not None and steps.asks_batch_time:
        steps = replace(steps, batch_time=stream.batch_time)
    return Lane(frozenset(topics), name, resolved, columns, steps, late=spec.late_table)


def _without_table(stream: OpenStream, topic: str, found: TopicTable) -> Lane:
    route, own = stream.spec.route, stream.rows_table.metadata
    refused, error_class = found.refused, found.error_class
    if found.table is not None:
        refused, error_class = f"needs a topic that {DECIDED}, found {topic!r}", UNROUTED
    drops = route is not None and route.unmatched == "drop" and found.table is None and not found.unmade
    columns = stream.spec.record_columns
    return Lane(frozenset({topic}), None, stream.resolved_for(own), columns, None, refused, error_class, drops)


def refuse_altered(spec: StreamSpec, table: TableMetadata) -> None:
    """Raise if a table was altered so that the stream's steps no longer fit it."""
    if spec.decode.declares_all or not (spec.chain or spec.rules or spec.shapes):
        return
    refuse_misnamed(spec, spec.problems_with(table.schema(), table.properties))
    if found := spec.disagreements_with(table.schema(), properties=table.properties):
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} does not take the columns of the stream's steps: "
            f"{' '.join(found)}",
            fix=misfit_fix(spec, table.schema()),
        )


def refuse_timeless(spec: StreamSpec, name: str, table: Schema) -> None:
    """Raise if a table lacks the column of the event time, or has it with another type."""
    if problems := event_time_problems_of(spec.event_time, table):
        raise FrazilError(
            f"stream {spec.stream}: event_time, in table {name}: {problems[0][1]}.",
            fix=f"correct event_time.column in streams/{spec.stream}.yaml, or alter table {name}",
        )


def _refuse_bare(stream: OpenStream, name: str, table: Schema) -> None:
    """Raise if the rows of a table would have no value, as Arrow would then hold no rows."""
    spec = stream.spec.for_table(name)
    if not {each.name for each in table.fields} - spec.kafka_columns.names:
        raise FrazilError(
            f"stream {spec.stream}: table {name} has no column but Kafka's own, and records go there.",
            fix=f"add a column of its records to table {name}, or drop it: it is recreated with theirs",
        )
