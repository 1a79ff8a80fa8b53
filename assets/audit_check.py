"""Asset check `exactly_once` on a stream's table: an audit of the records read since the last audit."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets import dagster_names
from assets.failures import failure
from assets.last_reported import is_driver_only, last_check_result, lasting
from assets.metadata import cell
from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource

if TYPE_CHECKING:
    from jobs.proof.audit.audit_result import StreamAudit


EXACTLY_ONCE = "exactly_once"
_SHOWN_PROBLEMS = 50


def audit_check(spec: StreamSpec, key: dg.AssetKey) -> dg.AssetChecksDefinition:
    """The check of a stream's table."""

    @dg.multi_asset_check(
        name=dagster_names.op_name(spec).replace("drain_", "audit_", 1),
        description="Audits what is new since the last audit: each record is in the tables once.",
        can_subset=True,
        specs=[
            dg.AssetCheckSpec(
                EXACTLY_ONCE,
                asset=key,
                description="Every record that was read since the last audit is a row, a dead letter, a tombstone or "
                "filtered, once, and the rows are in the tables. Evaluated each night and by Execute, not by the first "
                "records.",
            )
        ],
    )
    @lasting
    def audit_stream(
        context: dg.AssetCheckExecutionContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        kafka: KafkaResource,
    ) -> Iterator[dg.AssetCheckResult]:
        if is_driver_only(context, spec, key):
            kept = last_check_result(context, key, EXACTLY_ONCE, f"frazil audit {spec.stream}")
            if kept is not None:
                yield kept
            return
        # Imported here: a code location that only loads should not wait for the catalog's modules.
        from jobs.proof.audit.audit import audit

        progress, settings = _Progress(context), deployment.settings()
        try:
            with catalog.catalog() as connected:
                found = audit(deployment.current(spec), settings, connected, kafka=kafka.quick, on_progress=progress)
        except FrazilError as problem:
            raise failure(problem) from None
        yield audit_check_result(found, key)

    return audit_stream


def audit_check_result(found: "StreamAudit", key: dg.AssetKey) -> dg.AssetCheckResult:
    """Return an audit's check result: an error if records are missing or doubled, a warning for changes by others."""
    from jobs.proof.audit.audit_result import verdict_sentence

    fix = "" if found.verdict == "complete" else f" Next: frazil audit {found.stream}"
    return dg.AssetCheckResult(
        passed=found.verdict == "complete",
        asset_key=key,
        check_name=EXACTLY_ONCE,
        severity=dg.AssetCheckSeverity.ERROR if found.verdict == "incomplete" else dg.AssetCheckSeverity.WARN,
        description=verdict_sentence(found) + fix,
        metadata=_metadata(found),
    )


def _metadata(found: "StreamAudit") -> dict[str, Any]:
    from jobs.proof.audit.audit_result import decision_sentence, problem_sentence, queue_sentence

    metadata: dict[str, Any] = {
        "audited_records": found.read,
        "missing_records": found.missing,
        "doubled_records": found.doubled,
        "scanned_rows": found.scanned,
        "ledger_rows": found.recorded,
        "audit_seconds": round(found.seconds, 3),
        "problems": len(found.problems),
    }
    if found.problems:
        lines = [
            f"| {problem.kind} | {problem.records:,} | {cell(problem_sentence(problem))} | "
            f"{', '.join(str(change.snapshot_id) for change in problem.changes) or '–'} |"
            for problem in found.problems[:_SHOWN_PROBLEMS]
        ]
        if len(found.problems) > _SHOWN_PROBLEMS:
            lines.append(f"| … | | {len(found.problems) - _SHOWN_PROBLEMS:,} more | |")
        head = "| what | records | where | changed by snapshot |\n|---|---:|---|---|"
        metadata["what_is_wrong"] = dg.MetadataValue.md("\n".join([head, *lines]))
    queue = queue_sentence(found)
    said = [decision_sentence(decision) for decision in found.decisions] + found.notes + found.pending
    said += [queue] if queue else []
    if said:
        metadata["also"] = dg.MetadataValue.md("\n".join(f"- {cell(each)}" for each in said[:_SHOWN_PROBLEMS]))
    return metadata


class _Progress:
    """Logs the progress of an audit at every tenth."""

    def __init__(self, context: dg.AssetCheckExecutionContext) -> None:
        self._context: dg.AssetCheckExecutionContext = context
        self._next: float = 0.1

    def __call__(self, done: int, total: int, rows: int) -> None:
        if total and done / total >= self._next:
            self._next = done / total + 0.1
            self._context.log.info(f"{done:,} of {total:,} offsets looked at, {rows:,} rows read")
