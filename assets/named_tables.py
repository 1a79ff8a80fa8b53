"""Dynamic tables in Dagster: one asset downstream of the stream's topics, with a partition for each table.

Hundreds of assets would hide all others in the graph, and every new value would need a reload of the code location. So
the graph has one asset, and the sensor adds a partition when it first reports a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyiceberg.catalog import Catalog

from assets import dagster_names
from assets.metadata import column_schema, routed_drain_metadata, snapshot_tags
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import VALUE, value_of_table
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.protocol.named_tables import with_named_tables

if TYPE_CHECKING:
    from jobs.streaming.driver.process.drain import Drained


ALL_COMPLETE = "Nothing new: no record of late went to any of these tables."


def named_tables_key(spec: StreamSpec, settings: Settings) -> dg.AssetKey | None:
    """The key of the asset: the pattern of the tables' names in the file; None without dynamic tables."""
    if spec.route is None or spec.route.to is None:
        return None
    return dagster_names.table_key(settings, spec.route.to)


def named_tables_of(spec: StreamSpec) -> dg.DynamicPartitionsDefinition:
    """The partitions of a stream's asset: the values that have a table."""
    return dg.DynamicPartitionsDefinition(name=f"{dagster_names.group_name(spec)}.tables")


def named_partition(spec: StreamSpec, table: str) -> str | None:
    """The value in a dynamic table's name, which is its partition; None for another table."""
    to = spec.route.to if spec.route else None
    return value_of_table(to, table) if to is not None and table in spec.named_tables else None


def named_tables_asset(spec: StreamSpec, settings: Settings) -> dg.AssetSpec | None:
    """The asset of all dynamic tables of a stream; None if the stream has none."""
    key = named_tables_key(spec, settings)
    if key is None or spec.route is None or spec.route.to is None:
        return None
    freshness = spec.freshness
    return dg.AssetSpec(
        key,
        deps=dagster_names.topic_keys(spec),
        partitions_def=named_tables_of(spec),
        description=f"The dynamic tables of stream `{spec.stream}`, which its records name: `{spec.route.to}`, one "
        f"for each `{spec.route.by}`, at most {spec.route.limit:,} with those of the file. Each is a "
        "partition, added when it is first reported, by the sensor `frazil_reconcile` or by the stream's "
        "one-off run, and reported again when rows have come. Each table's own page, with its rows, "
        "snapshots and times, is the asset of its name in the catalog of assets: put its value where "
        f"`{VALUE}` stands.",
        group_name=dagster_names.group_name(spec),
        owners=dagster_names.owners(spec),
        kinds={"spark", "iceberg", "table"},
        metadata={"limit": spec.route.limit}
        | (
            {"dagster/column_schema": column_schema(spec.table_schema, spec.kafka_columns)}
            if spec.decode.declares_all
            else {}
        ),
        # Some values come once a year, so freshness is that of all tables together.
        freshness_policy=(
            dg.FreshnessPolicy.time_window(fail_window=freshness.fail, warn_window=freshness.warn)
            if freshness
            else None
        ),
    )


def report_drained(
    context: dg.AssetExecutionContext, spec: StreamSpec, settings: Settings, catalog: Catalog, drained: Drained
) -> None:
    """Report the dynamic tables that got rows in a one-off run, by their own keys and as partitions of the asset.

    If no table got rows, one materialization reports that all of them are complete.
    """
    key = named_tables_key(spec, settings)
    if key is None:
        return
    whole = with_named_tables(spec, catalog)
    grown, parked = list[tuple[str, dg.AssetMaterialization]](), parked_tables(whole, catalog)
    for target in whole.targets:
        partition, late = named_partition(whole, target.name), whole.late_rows_of(target.name)
        if target.name in parked or (partition is None and (late is None or named_partition(whole, late) is None)):
            continue
        table = on_branch(catalog.load_table(target.name), target.branch)
        told = routed_drain_metadata(whole, target, drained, table)
        if told["rows_landed"]:
            own, tags = (
                dagster_names.table_key(settings, target.name),
                snapshot_tags(table.metadata.current_snapshot_id),
            )
            context.log_event(dg.AssetMaterialization(own, metadata=told, tags=tags))
            if partition is None:
                # A table of late rows has no partition.
                continue
            grown.append((partition, dg.AssetMaterialization(key, partition=partition, metadata=told)))
    context.instance.add_dynamic_partitions(named_tables_of(spec).name or "", [each for each, _ in grown])
    for _, event in grown:
        context.log_event(event)
    if not grown and whole.named_tables:
        context.log_event(dg.AssetMaterialization(key, description=ALL_COMPLETE))
