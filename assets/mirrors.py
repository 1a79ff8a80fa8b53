"""Mirrors as assets: a run merges the new changes of the changelog and reports the source position it reached."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pyiceberg.table import Table

from assets import dagster_names
from assets.failures import failure
from assets.metadata import instant, table_metadata
from assets.named_tables import named_tables_key, named_tables_of
from assets.stream_checks import CheckOutcome
from jobs.base.errors import FrazilError
from jobs.config.documents.units import format_duration
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import VALUE
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, SparkResource

if TYPE_CHECKING:
    from jobs.mirrors.model.mirror_stamp import SourcePosition
    from jobs.mirrors.run.merging import Merged
    from jobs.mirrors.run.mirror_status import MirrorStatus


MIRROR_CURRENT = "mirror_current"
_CHANGELOG_SNAPSHOT = "changelog_snapshot"
_LATE_TIMES = 10
"""A mirror is late if it lacks a change for this many times its `every`."""
_LEAST_LATE_SECONDS = 300.0


def mirror_key(settings: Settings, mirror: Mirror) -> dg.AssetKey:
    """The key of a mirror."""
    return dagster_names.table_key(settings, mirror.table)


def mirror_assets(spec: StreamSpec, settings: Settings) -> Iterator[dg.AssetsDefinition]:
    """Yield the mirrors of a stream, downstream of their changelogs."""
    for changelog, mirror in spec.mirrored:
        yield _mirror_asset(spec, changelog, mirror, settings)


def _mirror_asset(spec: StreamSpec, changelog: str, mirror: Mirror, settings: Settings) -> dg.AssetsDefinition:
    key = mirror_key(settings, mirror)
    merges = (
        f"While the stream's driver runs, it is merged every {format_duration(mirror.every)}."
        if mirror.every is not None
        else "It is merged when it is materialized."
    )

    @dg.asset(
        key=key,
        deps=[dagster_names.table_key(settings, changelog)],
        description=f"What the source of stream `{spec.stream}` is, made of the changes in `{changelog}`. "
        f"{merges} Materialize to merge what is new in the changelog, in one commit; nothing is merged twice.",
        group_name=dagster_names.group_name(spec),
        owners=dagster_names.owners(spec),
        kinds={"spark", "iceberg", "table"},
        metadata={"dagster/table_name": mirror.table},
        op_tags={"frazil/mirror": mirror.table},
        pool=f"{dagster_names.pool(spec)}.{mirror.table}",
        check_specs=[
            dg.AssetCheckSpec(
                MIRROR_CURRENT,
                asset=key,
                description="The mirror has all old changes of its changelog, its next merge is possible, no other "
                "writer has changed it, and no dead letter holds a change back.",
            )
        ],
    )
    def merge_mirror(
        context: dg.AssetExecutionContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        spark: SparkResource,
    ) -> dg.MaterializeResult:
        # Imported here: a code location that only loads should not wait for modules that only a merge needs.
        from jobs.clients.catalog.translate import translate_errors
        from jobs.mirrors.run.mirror_run import IncrementMerger, chosen_mirrors, run_mirror
        from jobs.mirrors.run.mirror_status import mirror_status

        try:
            found = deployment.settings()
            with translate_errors(found, spec.stream), catalog.catalog() as connected:
                ((now, chosen),) = chosen_mirrors(deployment.stream(spec.stream), connected, mirror.table)
                merger = IncrementMerger(found, lambda: spark.get_session("sql"))
                done = run_mirror(now, chosen, found, connected, merger)
                status = mirror_status(now, chosen, found, connected)
                table = connected.load_table(chosen.table)
        except FrazilError as problem:
            raise failure(problem) from None
        outcome = mirror_outcome(now, chosen, status)
        return dg.MaterializeResult(
            metadata=mirror_metadata(now, table, status) | _merge_metadata(done),
            data_version=dg.DataVersion(str(done.snapshot_id)) if done.snapshot_id is not None else None,
            check_results=[
                dg.AssetCheckResult(
                    passed=outcome.passed,
                    asset_key=key,
                    check_name=outcome.name,
                    severity=outcome.severity,
                    description=outcome.sentence,
                    metadata=outcome.metadata,
                )
            ],
        )

    return merge_mirror


def mirror_metadata(spec: StreamSpec, table: Table, status: "MirrorStatus") -> dict[str, Any]:
    """The metadata of a mirror as it is now.

    Args:
        table: Table of the mirror.
        status: Status of the mirror.
    """
    metadata: dict[str, Any] = {
        **table_metadata(table, status.table),
        "changelog": spec.table.name,
        "deletes_pending": pending_deletes(table),
        **_lag_metadata(status),
        **_position_metadata(status.position),
    }
    if status.stamp is not None:
        metadata[_CHANGELOG_SNAPSHOT] = str(status.stamp.snapshot_id)
        metadata["true_as_of_changelog"] = instant(status.stamp.at_ms / 1000)
    if status.merged_at is not None:
        metadata["merged_at"] = instant(status.merged_at.timestamp())
    return metadata


def last_merged(instance: dg.DagsterInstance, key: dg.AssetKey) -> str | None:
    """The changelog's snapshot in the newest merge of a mirror that Dagster has recorded."""
    event = instance.get_latest_materialization_event(key)
    told = event.asset_materialization if event else None
    value = told.metadata.get(_CHANGELOG_SNAPSHOT) if told else None
    return str(value.value) if value is not None else None


def pending_deletes(table: Table) -> int:
    """Rows that delete files mark as deleted; every reader skips them until the table is compacted."""
    head = table.current_snapshot()
    found = head.summary.additional_properties if head and head.summary else {}
    return int(found.get("total-position-deletes", 0)) + int(found.get("total-equality-deletes", 0))


def mirror_outcome(spec: StreamSpec, mirror: Mirror, status: "MirrorStatus") -> CheckOutcome:
    """The outcome of check `mirror_current`: whether a mirror keeps up and can be merged."""
    now = datetime.now(UTC)
    lag = status.lag_seconds(now)
    figures = _lag_metadata(status)
    next_merge = f"frazil mirror run {spec.stream} --table {mirror.table}"
    if status.problem is not None:
        fix = status.problem.fix or f"frazil mirror status {spec.stream}"
        said = f"{status.problem.message} Next: {fix}"
        return CheckOutcome(MIRROR_CURRENT, False, said, "problem", figures=figures)
    if status.others:
        said = (
            f"Somebody else has changed rows of {mirror.table}, so it may not be what the "
            f"source is. Next: frazil mirror rebuild {spec.stream} --table {mirror.table}"
        )
        return CheckOutcome(MIRROR_CURRENT, False, said, "others", figures=figures)
    if mirror.every is not None and lag is not None:
        allowed = max(_LEAST_LATE_SECONDS, _LATE_TIMES * mirror.every.total_seconds())
        if lag > allowed:
            said = (
                f"{status.lag_rows or 0:,} changes have been missing in {mirror.table} for {lag:,.0f} s; its file has "
                f"every {mirror.every.total_seconds():,.0f} s. Next: {next_merge}"
            )
            return CheckOutcome(MIRROR_CURRENT, False, said, "late", figures=figures)
    if status.letters:
        said = (
            f"{status.letters:,} dead letters of stream {spec.stream} have not come back, and {mirror.table} lacks "
            f"their changes. Next: frazil letters {spec.stream}"
        )
        return CheckOutcome(MIRROR_CURRENT, False, said, "letters", warn=True, figures=figures)
    return CheckOutcome(MIRROR_CURRENT, True, _sentence(mirror, status), "fine", figures=figures)


def _sentence(mirror: Mirror, status: "MirrorStatus") -> str:
    if status.stamp is None:
        return f"Nothing is merged into {mirror.table} yet."
    where = f" as of position {status.position.position}" if status.position else ""
    lacking = f"; it lacks {status.lag_rows:,} changes" if status.lag_rows else ""
    return f"{mirror.table} is what its source was{where}{lacking}."


def _merge_metadata(done: "Merged") -> dict[str, Any]:
    if done.result is None:
        return {"changes_merged": 0}
    counts = done.result.counts
    return {
        "changes_merged": counts.read,
        "rows_set": counts.upserts,
        "rows_deleted": counts.deletes,
        "repeats_left_out": counts.repeats,
        "late_changes": counts.late,
        "attempts": done.attempts,
    }


def _lag_metadata(status: "MirrorStatus") -> dict[str, Any]:
    lag = status.lag_seconds(datetime.now(UTC))
    metadata: dict[str, Any] = {"letters_pending": status.letters}
    if status.lag_rows is not None:
        metadata["lag_rows"] = status.lag_rows
    if lag is not None:
        metadata["lag_s"] = round(lag, 3)
    return metadata


def _position_metadata(where: "SourcePosition | None") -> dict[str, Any]:
    if where is None:
        return {}
    metadata: dict[str, Any] = {"source_position": where.position}
    if where.lineage:
        metadata["source_lineage"] = where.lineage
    if where.at_us is not None:
        metadata["true_as_of_source"] = instant(where.at_us / 1_000_000)
    return metadata


def named_mirrors(spec: StreamSpec) -> tuple[Mirror, ...]:
    """The mirrors of a stream's file that are patterns: each dynamic table gets its own mirror."""
    if spec.route is None or spec.route.to is None:
        return ()
    return tuple(each for each in spec.mirrors if each.is_pattern)


def named_mirrors_assets(spec: StreamSpec, settings: Settings) -> Iterator[dg.AssetSpec]:
    """Yield one asset for each mirror pattern, with its name in the file."""
    tables = named_tables_key(spec, settings)
    for mirror in named_mirrors(spec):
        assert tables is not None and spec.route is not None
        yield dg.AssetSpec(
            mirror_key(settings, mirror),
            deps=[tables],
            partitions_def=named_tables_of(spec),
            description=f"The source tables of stream `{spec.stream}`, merged from its changelogs `{spec.route.to}`: "
            f"a table `{mirror.table}` for each. Each is a partition, reported by the sensor "
            "`frazil_mirrors` after a merge and when it is not current. Each table's own page is the "
            "asset of its name in the catalog of assets: put the changelog's name where `{table}` "
            f"stands, which has its value where `{VALUE}` stands in its own.",
            group_name=dagster_names.group_name(spec),
            owners=dagster_names.owners(spec),
            kinds={"spark", "iceberg", "table"},
        )
