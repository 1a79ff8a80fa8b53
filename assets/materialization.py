"""Materialization of a stream: it ensures that the driver runs, or makes a one-off run; with the metadata of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from assets.dead_letters import KNOWN_FILES, report_dead_letter_check, tally_metadata
from assets.failures import failure
from assets.last_reported import last_dead_letter_metadata
from assets.metadata import (
    as_main_has_it,
    counts_table,
    dead_letter_metadata,
    drained_event_times,
    driver_metadata,
    figures_metadata,
    freshness_metadata,
    in_reading_order,
    instant,
    landed_metadata,
    landed_rows,
    look_up_metadata,
    routed_drain_metadata,
    routed_running_metadata,
    table_metadata,
)
from assets.named_tables import report_drained
from assets.schema_history import history_metadata
from assets.stream_checks import adds_up, check_result, totals_of
from jobs.base.errors import FrazilError
from jobs.clients.state_store.epochs import Opener
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Work
from jobs.streaming.supervision.documents.measures import LATENESS, OF_WORK
from jobs.tables.commit.history.branch import TableOnBranch, on_branch
from jobs.tables.dead_letter_table.tally import tally_dead_letters
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource, SparkResource

_PARKED = "suspended: its records wait as dead letters; `frazil accept {stream} --unpark {name}`, then replay them"
_NOT_MADE = "no record has come for it yet: it is made with the columns of its first records"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.streaming.driver.context.open_stream import OpenStream
    from jobs.streaming.driver.process.drain import Drained, DrainProgress


def materialize(
    context: dg.AssetExecutionContext,
    spec: StreamSpec,
    keys: Sequence[dg.AssetKey],
    deployment: DeploymentResource,
    catalog: CatalogResource,
    kafka: KafkaResource,
    spark: SparkResource,
) -> Iterator[dg.MaterializeResult]:
    """Ensure that the driver of a continuous stream runs, or make a one-off run of another stream.

    Args:
        spec: The stream as this code location has loaded it; its file may be newer.

    Raises:
        dg.Failure: A problem for a person, with the next command.
    """
    try:
        # The file may be newer than what this code location has loaded.
        current = deployment.stream(spec.stream)
        if current.continuous:
            yield from _running(context, current, deployment, catalog, keys)
            return
        _refuse_unless_running(current.stream, deployment.settings())
        drained = _drained(context, current, deployment.settings(), kafka, spark)
        parked = parked_tables(current, catalog.catalog())
        tables = [None if each.name in parked else _drained_table(catalog, current, each) for each in current.targets]
    except FrazilError as problem:
        raise failure(problem) from None
    for key, target, table in zip(keys, current.targets, tables, strict=True):
        if table is None:
            said = _PARKED.format(stream=current.stream, name=target.name) if target.name in parked else _NOT_MADE
            yield dg.MaterializeResult(asset_key=key, metadata={"table": said})
            continue
        totals = totals_of(table, current.stream)
        yield dg.MaterializeResult(
            asset_key=key,
            metadata=in_reading_order(_drained_metadata(current, target, drained, table)),
            data_version=_data_version(_readers_head(current, table, drained.snapshots.get(target))),
            check_results=[check_result(adds_up(current.stream, totals, drained.counts), key)]
            if target.coordinator
            else [],
        )
        if target.role == "dead_letters" and (own := tables[0]) is not None:
            report_dead_letter_check(context.instance, current, key, table, own)
    report_drained(context, current, deployment.settings(), catalog.catalog(), drained)


def _drained_table(catalog: CatalogResource, spec: StreamSpec, target: TargetSpec) -> Table | None:
    """Return a target's table; None if its first records create it and have not come yet."""
    if not spec.own_columns or target.coordinator or target.role == "dead_letters":
        return on_branch(catalog.table(target.name), target.branch)
    return _table_or_none(catalog, target)


def _drained_metadata(spec: StreamSpec, target: TargetSpec, drained: Drained, table: Table) -> dict[str, Any]:
    if target.role == "rows" and not target.coordinator:
        metadata = routed_drain_metadata(spec, target, drained, table) | history_metadata(table, spec.stream)
        late = LATENESS if target.name == spec.late_table else ()
        if late:
            metadata |= {"records_late": 0, "latest_late_s": 0.0}
        return metadata | figures_metadata(drained_event_times(drained), late)
    if target.role == "rows":
        told = landed_metadata(spec, drained, table) | history_metadata(table, spec.stream)
        if len([each for each in spec.targets if each.role == "rows"]) > 1:
            # Other tables got part of the landed records.
            told |= {"rows_landed": landed_rows(spec.stream, table, drained.epoch)["rows_landed"]}
        return as_main_has_it(spec, table, told, drained.valid_through_ms, drained.watermark_ms)
    return dead_letter_metadata(spec, drained, table) | tally_metadata(
        tally_dead_letters(table, spec.stream, KNOWN_FILES)
    )


def _running(
    context: dg.AssetExecutionContext,
    spec: StreamSpec,
    deployment: DeploymentResource,
    catalog: CatalogResource,
    keys: Sequence[dg.AssetKey],
) -> Iterator[dg.MaterializeResult]:
    # Imported here: most runs of this code location do not need it.
    from jobs.streaming.supervision.control.stream_control import StreamControl

    place = deployment.deployment()
    control = StreamControl(place.home, place.settings_file, spec.stream)
    done = control.ensure_running(f"materialized by run {context.run.run_id[:8]}", "Dagster")
    context.log.info(done.sentence)
    parked = parked_tables(spec, catalog.catalog())
    for key, target in zip(keys, spec.targets, strict=True):
        if target.name in parked:
            # Its records wait as dead letters, so it has no freshness; and reading it may not be allowed.
            told = {"done": done.sentence, "table": _PARKED.format(stream=spec.stream, name=target.name)}
            yield dg.MaterializeResult(asset_key=key, metadata=told)
            continue
        table = _table_or_none(catalog, target)
        if target.role == "rows" and not target.coordinator:
            work = done.heartbeat.work if done.heartbeat else None
            metadata = routed_running_metadata(spec, target, done.sentence, work, table) | _as_of(done.heartbeat)
        elif target.role == "rows":
            metadata = _running_metadata(spec, done.sentence, done.heartbeat, table)
            if table is not None:
                work = done.heartbeat.work if done.heartbeat else Work()
                metadata = as_main_has_it(spec, table, metadata, work.valid_through_ms, work.watermark_ms)
        else:
            # Counting many dead letters takes long; the supervisor counts when there are new ones.
            metadata = _dead_letters_of_running(spec, done.heartbeat, table) | last_dead_letter_metadata(
                context.instance, key
            )
        yield dg.MaterializeResult(
            asset_key=key,
            metadata=in_reading_order(metadata),
            data_version=_data_version(_readers_head(spec, table, _head(table))),
            check_results=[check_result(adds_up(spec.stream, totals_of(table, spec.stream)), key)]
            if target.coordinator
            else [],
        )


def _readers_head(spec: StreamSpec, table: Table | None, landed: int | None) -> int | None:
    """The snapshot that readers of a table see: the head of main for a WAP stream, else the landed snapshot."""
    if spec.publish is None or not isinstance(table, TableOnBranch):
        return landed
    head = table.whole.current_snapshot()
    return head.snapshot_id if head else None


def _head(table: Table | None) -> int | None:
    snapshot = table.current_snapshot() if table is not None else None
    return snapshot.snapshot_id if snapshot else None


def _drained(
    context: dg.AssetExecutionContext, spec: StreamSpec, settings: Settings, kafka: KafkaResource, spark: SparkResource
) -> Drained:
    # Imported here: PySpark and its dependencies would double the time to load this code location.
    from jobs.streaming.driver.process.drain import drain

    def opened(stream: OpenStream, total: int) -> None:
        context.log.info(f"{total:,} records wait; epoch {stream.epoch}")

    def progressed(progress: DrainProgress) -> None:
        batch, counts = progress.batch, progress.counts
        context.log.info(
            f"batch {batch.batch}: {counts.read:,} of {progress.total:,} records; {batch.counts.landed:,} landed, "
            f"{batch.counts.dead:,} dead, {batch.counts.tombstones:,} tombstones in {batch.seconds:.1f} s"
        )

    def get_session() -> SparkSession:
        session = spark.get_session()
        context.log.info(f"Spark UI: {session.sparkContext.uiWebUrl}")
        return session

    opener = Opener("Dagster run", run_id=context.run.run_id)
    return drain(spec, settings, kafka.log(), get_session, on_open=opened, on_progress=progressed, opener=opener)


def _data_version(snapshot_id: int | None) -> dg.DataVersion | None:
    return None if snapshot_id is None else dg.DataVersion(str(snapshot_id))


def _refuse_unless_running(stream: str, settings: Settings) -> None:
    """Raise if an operator paused or stopped the stream: such a stream has no one-off runs either.

    Raises:
        FrazilError: The stream is paused or stopped; the error names who did it, why, and the command to resume.
    """
    control = read_control(stream_folder(settings, stream).store)
    if control.mode != "running":
        raise FrazilError(control.sentence(stream), fix=f"frazil resume {stream}")


def _table_or_none(catalog: CatalogResource, target: TargetSpec) -> Table | None:
    """Return a table on the stream's branch; None if the driver has not created it yet."""
    try:
        return on_branch(catalog.table(target.name), target.branch)
    except NoSuchTableError:
        return None


def _running_metadata(spec: StreamSpec, sentence: str, beat: Heartbeat | None, table: Table | None) -> dict[str, Any]:
    """Metadata of a continuous stream's main table and of its driver.

    Args:
        sentence: Outcome of `ensure_running`.
    """
    metadata: dict[str, Any] = {"done": sentence, **_as_of(beat)}
    if table is not None:
        metadata |= table_metadata(table, spec.table.name, spec.kafka_columns)
        metadata |= look_up_metadata(spec.stream, _head(table))
        metadata |= history_metadata(table, spec.stream)
    if beat is None:
        return metadata
    work = beat.work
    metadata |= driver_metadata(beat) | figures_metadata(work, OF_WORK)
    if work.unknown_fields:
        metadata["unknown_fields"] = counts_table("field", work.unknown_fields)
    return metadata | freshness_metadata(work.valid_through_ms, work.watermark_ms)


def _dead_letters_of_running(spec: StreamSpec, beat: Heartbeat | None, table: Table | None) -> dict[str, Any]:
    """The metadata of the dead-letter table, as far as the table and the heartbeat exist, and of the driver."""
    metadata = table_metadata(table, spec.dead_letter_table) if table is not None else {}
    if beat is None:
        return metadata
    return metadata | driver_metadata(beat) | _as_of(beat) | {"records_dead": beat.work.dead}


def _as_of(beat: Heartbeat | None) -> dict[str, Any]:
    return {} if beat is None else {"as_of": instant(beat.beat_wall)}
