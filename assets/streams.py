"""Assets of a stream: its topics as external assets, its tables, its late rows and its dead letters."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Iterator, Sequence

import dagster as dg

from assets import dagster_names
from assets.deployment_assets import SUPERVISOR_KEY
from assets.materialization import materialize
from assets.metadata import DEAD_LETTER_MEANINGS, column_schema
from assets.stream_checks import ADDS_UP
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource, SparkResource

_DRAINS = "Materialize to land all present records of its topics, once."
_RUNS = (
    "It runs all the time, in a process of its own. Materialize it to make the driver run the present file; the run "
    "ends within seconds. Terminating that run does not stop the stream: use `frazil pause` or `frazil stop`. "
    "A paused or stopped stream refuses to be materialized."
)


def topic_specs(specs: Sequence[StreamSpec]) -> list[dg.AssetSpec]:
    """The topics of all streams as external assets; a topic of several streams appears once."""
    readers: dict[dg.AssetKey, list[StreamSpec]] = {}
    for spec in specs:
        for key in dagster_names.topic_keys(spec):
            readers.setdefault(key, []).append(spec)
    return [_topic_spec(key, read_by) for key, read_by in readers.items()]


def _topic_spec(key: dg.AssetKey, read_by: Sequence[StreamSpec]) -> dg.AssetSpec:
    first = read_by[0]
    pattern = first.source.topics_pattern
    what = f"All Kafka topics that match `{pattern}`" if pattern else f"Kafka topic `{key.path[-1]}`"
    streams = ", ".join(f"`{spec.stream}`" for spec in read_by)
    return dg.AssetSpec(
        key,
        description=f"{what}, read by {'stream' if len(read_by) == 1 else 'streams'} {streams}. Its lag, by partition, "
        "is observed as it changes.",
        group_name=dagster_names.group_name(first),
        owners=list(dict.fromkeys(owner for spec in read_by for owner in dagster_names.owners(spec))),
        # A topic and its table often share a name, and stand side by side in the graph.
        kinds={"kafka", "topic"},
    )


def stream_assets(spec: StreamSpec, settings: Settings) -> dg.AssetsDefinition:
    """The targets of a stream. To materialize them ensures that its driver runs, or makes a one-off run."""
    keys = dagster_names.target_keys(settings, spec)

    @dg.multi_asset(
        name=dagster_names.op_name(spec),
        description="Makes sure that the stream's driver runs, or lands the present records of its topics, once.",
        specs=[_asset_spec(spec, target, keys) for target in spec.targets],
        check_specs=[
            dg.AssetCheckSpec(
                ADDS_UP,
                asset=keys[0],
                description="Every record that was read is a row, a dead letter or a tombstone.",
            )
        ],
        pool=dagster_names.pool(spec),
    )
    def drain_stream(
        context: dg.AssetExecutionContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        kafka: KafkaResource,
        spark: SparkResource,
    ) -> Iterator[dg.MaterializeResult]:
        yield from materialize(context, spec, keys, deployment, catalog, kafka, spark)

    return drain_stream


def _asset_spec(spec: StreamSpec, target: TargetSpec, keys: Sequence[dg.AssetKey]) -> dg.AssetSpec:
    key = keys[spec.targets.index(target)]
    if spec.has_late_rows(target.name):
        return _late_spec(spec, target, key)
    return _table_spec(spec, target, key) if target.role == "rows" else _dead_letter_spec(spec, key)


def _columns(spec: StreamSpec) -> dict[str, dg.TableSchema]:
    """The table's columns as far as the stream's file declares them."""
    return (
        {"dagster/column_schema": column_schema(spec.table_schema, spec.kafka_columns)}
        if spec.decode.declares_all
        else {}
    )


def _table_spec(spec: StreamSpec, target: TargetSpec, key: dg.AssetKey) -> dg.AssetSpec:
    freshness = spec.freshness
    return dg.AssetSpec(
        key,
        deps=dagster_names.topic_keys(spec),
        description=_described(spec, f"Stream `{spec.stream}`. {_RUNS if spec.continuous else _DRAINS}", _links(key)),
        group_name=dagster_names.group_name(spec),
        owners=dagster_names.owners(spec),
        kinds={"spark", "iceberg", "table"},
        metadata={"dagster/table_name": target.name} | _columns(spec),
        freshness_policy=(
            dg.FreshnessPolicy.time_window(fail_window=freshness.fail, warn_window=freshness.warn)
            if freshness
            else None
        ),
    )


def _late_spec(spec: StreamSpec, target: TargetSpec, key: dg.AssetKey) -> dg.AssetSpec:
    assert spec.event_time is not None
    return dg.AssetSpec(
        key,
        # No dependency on the table: with each report of the table, Dagster would call this asset unsynced. No
        # freshness: nobody knows how often rows come late.
        deps=dagster_names.topic_keys(spec),
        description=f"Rows of stream `{spec.stream}` that came late: their `{spec.event_time.column}` was before the "
        "watermark. In its table there are none of them.",
        group_name=dagster_names.group_name(spec),
        owners=dagster_names.owners(spec),
        kinds={"iceberg", "table"},
        metadata={"dagster/table_name": target.name} | _columns(spec),
    )


def _dead_letter_spec(spec: StreamSpec, key: dg.AssetKey) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        # No dependency on the table: with each report of the table, Dagster would call the letters unsynced.
        deps=dagster_names.topic_keys(spec),
        description=f"Records of stream `{spec.stream}` that failed: their bytes, where they came from, and why.",
        group_name=dagster_names.group_name(spec),
        owners=dagster_names.owners(spec),
        kinds={"iceberg", "table"},
        metadata={
            "dagster/column_schema": column_schema(DEAD_LETTER_SCHEMA, meanings=DEAD_LETTER_MEANINGS),
            "dagster/table_name": spec.dead_letter_table,
        },
    )


def _links(key: dg.AssetKey) -> str:
    """Links of the asset's page, relative, because the web server may have a path prefix."""
    every = "/".join([*[".."] * (len(key.path) - 1), *SUPERVISOR_KEY.path])
    return (
        "**State and next command:** [checks](?view=checks&checkDetail=driver_alive), or *Metadata* below. "
        f"[Reports and plots](?view=events) · [All streams]({every})"
    )


def _described(spec: StreamSpec, *texts: str) -> str:
    parts = [spec.description, *texts]
    if spec.owner and not dagster_names.owners(spec):
        parts.append(f"Owner: {spec.owner}.")
    return "\n\n".join(filter(None, parts))
