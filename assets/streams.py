"""From stream specs to assets: the topics outside, the table that a run fills, and the dead letters after it."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets import names
from assets.dead_letters import KNOWN_FILES, report_check, tally_metadata
from assets.failures import failure
from assets.kept_verdicts import kept_letters
from assets.metadata import column_schema, dead_letter_metadata, landed_metadata
from assets.running import (
    dead_letters_of_running,
    refuse_unless_running,
    running_metadata,
    table_or_none,
)
from assets.stream_checks import ADDS_UP, adds_up, check_result, totals_of
from jobs.deadletter.table import DEAD_LETTER_SCHEMA
from jobs.deadletter.tally import tally
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.targets import TargetSpec
from resources.catalog import CatalogResource
from resources.deployment_resource import DeploymentResource
from resources.kafka import KafkaResource
from resources.spark import SparkResource

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from jobs.stream.drain import Drained, DrainProgress
    from jobs.stream.open_stream import OpenStream


_DRAINS = "Materialize to land everything its topics hold, once."
_RUNS = (
    "It runs all the time, in a process of its own. Materialize to see to it that it runs as its file says now; that "
    "run ends within moments. To terminate such a run ends only the run, not the stream: for that there are "
    "`frazil pause` and `frazil stop`. A paused or stopped stream refuses to be materialized."
)


def topic_specs(specs: Sequence[StreamSpec]) -> list[dg.AssetSpec]:
    """The topics of all streams as external assets, each once however many streams read it."""
    readers: dict[dg.AssetKey, list[StreamSpec]] = {}
    for spec in specs:
        for key in names.topic_keys(spec):
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
        group_name=names.group_name(first),
        owners=list(dict.fromkeys(owner for spec in read_by for owner in names.owners(spec))),
        # A topic and its table often share a name, and stand side by side in the graph.
        kinds={"kafka", "topic"},
    )


def stream_assets(spec: StreamSpec, settings: Settings) -> dg.AssetsDefinition:
    """The targets of a stream: to materialize them is to see to it that it runs, or to drain it."""
    keys = names.target_keys(settings, spec)

    @dg.multi_asset(
        name=names.op_name(spec),
        specs=[_asset_spec(spec, target, keys) for target in spec.targets],
        check_specs=[
            dg.AssetCheckSpec(
                ADDS_UP,
                asset=keys[0],
                description="Every record that was read is a row, a dead letter or a tombstone.",
            )
        ],
        pool=names.pool(spec),
    )
    def drain_stream(
        context: dg.AssetExecutionContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        kafka: KafkaResource,
        spark: SparkResource,
    ) -> Iterator[dg.MaterializeResult]:
        try:
            # The files as they are now, which may be newer than what this code location has loaded.
            current = deployment.stream(spec.stream)
            if current.continuous:
                yield from _running(context, current, deployment, catalog, keys)
                return
            refuse_unless_running(current.stream, deployment.settings())
            drained = _drained(context, current, deployment.settings(), kafka, spark)
            tables = [catalog.table(name) for name in current.target_names]
        except FrazilError as problem:
            raise failure(problem) from None
        for key, target, table in zip(keys, current.targets, tables, strict=True):
            totals = totals_of(table, current.stream)
            yield dg.MaterializeResult(
                asset_key=key,
                metadata=_drained_metadata(current, target, drained, table),
                data_version=_data_version(drained.snapshots.get(target)),
                check_results=[check_result(adds_up(current.stream, totals, drained.counts), key)]
                if target.coordinator
                else [],
            )
            if target.role == "dead_letters":
                report_check(context.instance, current, key, table, tables[0])

    return drain_stream


def _drained_metadata(spec: StreamSpec, target: TargetSpec, drained: "Drained", table: "Table") -> dict[str, Any]:
    if target.role == "rows":
        return landed_metadata(spec, drained, table)
    return dead_letter_metadata(spec, drained, table) | tally_metadata(tally(table, spec.stream, KNOWN_FILES))


def _running(
    context: dg.AssetExecutionContext,
    spec: StreamSpec,
    deployment: DeploymentResource,
    catalog: CatalogResource,
    keys: Sequence[dg.AssetKey],
) -> Iterator[dg.MaterializeResult]:
    # Imported here: most runs of this code location need nothing of it.
    from jobs.supervise.stream_control import StreamControl

    place = deployment.deployment()
    control = StreamControl(place.home, place.settings_file, spec.stream)
    done = control.ensure_running(f"materialized by run {context.run.run_id[:8]}", "Dagster")
    context.log.info(done.sentence)
    for key, target in zip(keys, spec.targets, strict=True):
        table = table_or_none(catalog, target.name)
        if target.role == "rows":
            metadata = running_metadata(spec, done.sentence, done.heartbeat, table)
        else:
            # Counting them takes as long as they are many; the supervisor does it when there are new ones.
            metadata = dead_letters_of_running(spec, done.heartbeat, table) | kept_letters(context.instance, key)
        yield dg.MaterializeResult(
            asset_key=key,
            metadata=metadata,
            data_version=_data_version(_head(table)),
            check_results=[check_result(adds_up(spec.stream, totals_of(table, spec.stream)), key)]
            if target.coordinator
            else [],
        )


def _head(table: "Table | None") -> int | None:
    snapshot = table.current_snapshot() if table is not None else None
    return snapshot.snapshot_id if snapshot else None


def _asset_spec(spec: StreamSpec, target: TargetSpec, keys: Sequence[dg.AssetKey]) -> dg.AssetSpec:
    key = keys[spec.targets.index(target)]
    return _table_spec(spec, key) if target.role == "rows" else _dead_letter_spec(spec, key, keys[0])


def _table_spec(spec: StreamSpec, key: dg.AssetKey) -> dg.AssetSpec:
    freshness = spec.freshness
    return dg.AssetSpec(
        key,
        deps=names.topic_keys(spec),
        description=_described(spec, f"Stream `{spec.stream}`. {_RUNS if spec.continuous else _DRAINS}"),
        group_name=names.group_name(spec),
        owners=names.owners(spec),
        kinds={"spark", "iceberg", "table"},
        metadata={"dagster/column_schema": column_schema(spec.table_schema), "dagster/table_name": spec.table.name},
        freshness_policy=(
            dg.FreshnessPolicy.time_window(fail_window=freshness.fail, warn_window=freshness.warn)
            if freshness
            else None
        ),
    )


def _dead_letter_spec(spec: StreamSpec, key: dg.AssetKey, table_key: dg.AssetKey) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=[table_key],
        description=f"Records of stream `{spec.stream}` that failed: their bytes, where they came from, and why.",
        group_name=names.group_name(spec),
        owners=names.owners(spec),
        kinds={"iceberg", "table"},
        metadata={
            "dagster/column_schema": column_schema(DEAD_LETTER_SCHEMA),
            "dagster/table_name": spec.dead_letter_table,
        },
    )


def _described(spec: StreamSpec, text: str) -> str:
    parts = [spec.description, text]
    if spec.owner and not names.owners(spec):
        parts.append(f"Owner: {spec.owner}.")
    return "\n\n".join(filter(None, parts))


def _drained(
    context: dg.AssetExecutionContext, spec: StreamSpec, settings: Settings, kafka: KafkaResource, spark: SparkResource
) -> "Drained":
    # Imported here: PySpark and what else it brings would double the time to load this code location.
    from jobs.stream.drain import drain

    def opened(stream: "OpenStream", total: int) -> None:
        context.log.info(f"{total:,} records wait; epoch {stream.epoch}")

    def progressed(progress: "DrainProgress") -> None:
        batch, counts = progress.batch, progress.counts
        context.log.info(
            f"batch {batch.batch}: {counts.read:,} of {progress.total:,} records; {batch.counts.landed:,} landed, "
            f"{batch.counts.dead:,} dead, {batch.counts.tombstones:,} tombstones in {batch.seconds:.1f} s"
        )

    def get_session() -> "SparkSession":
        session = spark.get_session()
        context.log.info(f"Spark UI: {session.sparkContext.uiWebUrl}")
        return session

    return drain(spec, settings, kafka.log(), get_session, on_open=opened, on_progress=progressed)


def _data_version(snapshot_id: int | None) -> dg.DataVersion | None:
    return None if snapshot_id is None else dg.DataVersion(str(snapshot_id))
