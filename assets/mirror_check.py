"""Asset check `mirror_consistent`: the changelog, collapsed by key again, compared with the mirror's rows."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.failures import failure
from assets.last_reported import last_check_result, lasting
from assets.metadata import cell
from assets.mirrors import mirror_key
from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, SparkResource

if TYPE_CHECKING:
    from jobs.mirrors.check.consistency import Consistency
    from jobs.mirrors.check.source_report import SourceConsistency


MIRROR_CONSISTENT = "mirror_consistent"


class ConsistencyConfig(dg.Config):
    """Keys to compare."""

    part: bool = Field(default=False, description="An eighth of the keys, another one each day; else all of them.")
    wait_seconds: float = Field(
        default=60.0,
        ge=0.0,
        description="How long keys that disagree with the source are looked at again, as changes come in.",
    )


def mirror_check_name(mirror: Mirror) -> str:
    """The unique name of the op that checks a mirror."""
    # Without the digest, tables whose names differ only in a dot would share an op's name.
    digest = hashlib.sha256(mirror.table.encode()).hexdigest()[:8]
    return f"check_mirror_{re.sub(r'[^A-Za-z0-9_]', '_', mirror.table)}_{digest}"


def mirror_checks(spec: StreamSpec, settings: Settings) -> Iterator[dg.AssetChecksDefinition]:
    """Yield the check of each mirror of a stream."""
    for _, mirror in spec.mirrored:
        yield _mirror_check(spec, mirror, settings)


def _mirror_check(spec: StreamSpec, mirror: Mirror, settings: Settings) -> dg.AssetChecksDefinition:
    key = mirror_key(settings, mirror)

    @dg.multi_asset_check(
        name=mirror_check_name(mirror),
        description=f"Compares mirror `{mirror.table}` with what its changelog makes of each key.",
        can_subset=True,
        specs=[
            dg.AssetCheckSpec(
                MIRROR_CONSISTENT,
                asset=key,
                description="Each key has the row that results from the changelog, up to the merge in the mirror's "
                "newest stamp, and no dead letter holds a change back."
                + (f" And it has that of source `{mirror.source.connection}` itself." if mirror.source else ""),
            )
        ],
    )
    @lasting
    def check_mirror(
        context: dg.AssetCheckExecutionContext,
        config: ConsistencyConfig,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        spark: SparkResource,
    ) -> Iterator[dg.AssetCheckResult]:
        if key in context.job_def.asset_layer.selected_asset_keys:
            # A merge takes moments; a comparison takes longer the larger the changelog is.
            kept = last_check_result(
                context, key, MIRROR_CONSISTENT, f"frazil mirror check {spec.stream}", "by a run that merges"
            )
            if kept is not None:
                yield kept
            return
        # Imported here: a code location that only loads should not wait for modules that only a check needs.
        from jobs.clients.catalog.translate import translate_errors
        from jobs.mirrors.check.consistency import buckets_of_day, check_consistency
        from jobs.mirrors.check.source_check import check_source
        from jobs.mirrors.run.mirror_run import chosen_mirrors

        found = deployment.settings()
        its: SourceConsistency | None = None
        unasked: FrazilError | None = None
        try:
            with translate_errors(found, spec.stream), catalog.catalog() as connected:
                ((now, chosen),) = chosen_mirrors(deployment.stream(spec.stream), connected, mirror.table)
                buckets = buckets_of_day(datetime.now(UTC).date()) if config.part else None
                done = check_consistency(now, chosen, found, connected, lambda: spark.get_session("sql"), buckets)
                try:
                    its = check_source(
                        now, chosen, found, connected, lambda: spark.get_session("sql"), buckets, config.wait_seconds
                    )
                except FrazilError as problem:
                    # The comparison with the changelog is reported even if the source does not answer.
                    unasked = problem
        except FrazilError as problem:
            raise failure(problem) from None
        yield consistency_result(now, chosen, done, key, its, unasked)

    return check_mirror


def consistency_result(
    spec: StreamSpec,
    mirror: Mirror,
    found: "Consistency | None",
    key: dg.AssetKey,
    source: "SourceConsistency | None" = None,
    unasked: FrazilError | None = None,
) -> dg.AssetCheckResult:
    """The check result of a comparison.

    Args:
        found: Comparison with the changelog; None if nothing is merged yet.
        source: Comparison with the source, if the stream's file names one for the mirror.
        unasked: Why the source could not be compared.
    """
    from jobs.mirrors.check.consistency import consistency_fix, consistency_sentence
    from jobs.mirrors.check.source_report import source_fix, source_sentence

    if found is None:
        return dg.AssetCheckResult(
            passed=True,
            asset_key=key,
            check_name=MIRROR_CONSISTENT,
            description=f"Nothing is merged into {mirror.table} yet.",
        )
    said, fixes = [consistency_sentence(found)], [consistency_fix(spec, found)]
    if source is not None:
        said.append(source_sentence(source))
        fixes.append(source_fix(spec, source, changelog_agrees=not found.wrong, letters=found.letters))
    if unasked is not None:
        said.append(f"It was not compared with its source. {unasked.message}")
        fixes.append(unasked.fix)
    fix = next((each for each in fixes if each), None)
    certain = bool(found.wrong or (source is not None and source.wrong))
    return dg.AssetCheckResult(
        passed=found.consistent and (source is None or source.agrees) and unasked is None,
        asset_key=key,
        check_name=MIRROR_CONSISTENT,
        severity=dg.AssetCheckSeverity.ERROR if certain else dg.AssetCheckSeverity.WARN,
        description=" ".join(said) + (f" Next: {fix}" if fix else ""),
        metadata=_metadata(found) | (source_metadata(source) if source is not None else {}),
    )


def source_metadata(found: "SourceConsistency") -> dict[str, Any]:
    """The metadata of a comparison with the source."""
    from jobs.mirrors.check.source_report import key_sentence, lsn

    metadata: dict[str, Any] = {
        "source": found.source,
        "source_rows": found.source_rows,
        "source_rows_in_mirror": found.mirror_rows,
        "source_keys_wrong": sum(found.wrong.values()),
        "source_keys_unsettled": sum(found.unsettled.values()),
        "source_keys_looked_at_again": found.again,
        "source_position": lsn(found.position),
    }
    if found.reached is not None:
        metadata["source_position_of_mirror"] = lsn(found.reached)
    if found.left_out:
        left_out = [f"- {cell(name)}: {cell(reason)}" for name, reason in found.left_out]
        metadata["source_columns_left_out"] = dg.MetadataValue.md("\n".join(left_out))
    if found.examples:
        keys = [f"- {cell(key_sentence(each))}{'' if each.certain else ' (not certain)'}" for each in found.examples]
        metadata["source_keys"] = dg.MetadataValue.md("\n".join(keys))
    return metadata


def _metadata(found: "Consistency") -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "rows_expected": found.rows,
        "rows_found": found.found,
        "keys_wrong": found.wrong,
        "buckets_looked_at": found.looked_at,
        "letters_pending": found.letters,
        "snapshot_id": str(found.snapshot_id),
        "changelog_snapshot": str(found.changelog_snapshot),
    }
    if found.examples:
        keys = [
            f"- {what}: {cell(', '.join(f'{name} = {value}' for name, value in key.items()))}"
            for what, key in found.examples
        ]
        metadata["keys"] = dg.MetadataValue.md("\n".join(keys))
    return metadata
