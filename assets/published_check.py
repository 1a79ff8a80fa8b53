"""Asset check `published` of a WAP stream: unpublished snapshots are checked, then published or quarantined."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets import dagster_names
from assets.failures import failure
from assets.last_reported import is_driver_only, last_check_result, lasting
from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, SparkResource

if TYPE_CHECKING:
    from jobs.quality.publishing.gated import GateResult

PUBLISHED = "published"


def published_check(spec: StreamSpec, key: dg.AssetKey) -> Iterator[dg.AssetChecksDefinition]:
    """Yield the check of a WAP stream's table; nothing for another stream."""
    if spec.publish is None:
        return

    @dg.multi_asset_check(
        name=dagster_names.op_name(spec).replace("drain_", "publish_", 1),
        description="Judges what has landed on the branch by the contract, and publishes it to main.",
        can_subset=True,
        specs=[
            dg.AssetCheckSpec(
                PUBLISHED,
                asset=key,
                description=f"Checks what the stream has landed on branch {spec.publish.branch} against its contract, "
                "and publishes it to main. Red while rows are quarantined.",
                blocking=True,
            )
        ],
    )
    @lasting
    def publish_stream(
        context: dg.AssetCheckExecutionContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        spark: SparkResource,
    ) -> Iterator[dg.AssetCheckResult]:
        now = deployment.current(spec)
        if is_driver_only(context, spec, key) or now.publish is None:
            kept = last_check_result(context, key, PUBLISHED, f"frazil publish {spec.stream}")
            if kept is not None:
                yield kept
            return
        # Imported here: a code location that only loads should not wait for modules that only a check needs.
        from jobs.clients.catalog.translate import translate_errors
        from jobs.quality.contracts.gate_judge import ContractJudge
        from jobs.quality.publishing.gated import publish_if_fit

        settings = deployment.settings()
        try:
            with translate_errors(settings, spec.stream), catalog.catalog() as connected:
                session, log = lambda: spark.get_session("sql"), context.log.info
                by = f"Dagster, run {context.run.run_id}"
                judge = ContractJudge(now, settings, connected, session, by=by, on_progress=log)
                found = publish_if_fit(now, settings, connected, by, judge, judge.judged_by)
        except FrazilError as problem:
            raise failure(problem) from None
        yield published_result(now, found, key)

    yield publish_stream


def published_result(spec: StreamSpec, found: "GateResult", key: dg.AssetKey) -> dg.AssetCheckResult:
    """The check result of an attempt to publish."""
    from jobs.quality.publishing.gate import answers_to_held
    from jobs.tables.commit.stamp.offsets import describe_ranges

    held, interval = found.gate.held, found.interval
    metadata: dict[str, Any] = {
        "became": found.became,
        "rows": interval.rows if interval else 0,
        "files": len(interval.files) if interval else 0,
        "gate_generation": found.gate.generation,
    }
    if interval and interval.ranges:
        metadata["offsets"] = describe_ranges(interval.ranges, limit=50)
    if found.snapshot_id is not None:
        # As text: JavaScript rounds integers as large as snapshot ids.
        metadata["snapshot_id"] = str(found.snapshot_id)
    if held is None:
        said = "Main has all that the stream has landed."
        if found.became == "published" and interval:
            said = f"{interval.rows:,} rows were published."
    else:
        metadata |= {"held_rows": held.rows, "held_since": dg.MetadataValue.timestamp(held.since)}
        metadata["reasons"] = dg.MetadataValue.md("\n".join(f"- {each}" for each in held.reasons))
        said = (
            f"{held.rows:,} rows are quarantined, offsets {describe_ranges(held.ranges)}: "
            f"{'; '.join(held.reasons[:3])}. Next: {answers_to_held(spec.stream)}"
        )
    severity = dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(
        passed=held is None,
        asset_key=key,
        check_name=PUBLISHED,
        severity=severity,
        description=said,
        metadata=metadata,
    )
