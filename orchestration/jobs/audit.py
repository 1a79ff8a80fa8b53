"""Auditing all streams every day, and noting their stamps in the ledger every hour, before they may expire."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.audit_check import EXACTLY_ONCE
from assets.failures import failure
from jobs.base.errors import FrazilError
from orchestration.reconcile.stream_files import as_launched
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

AUDIT_JOB = "frazil_audit"
LEDGER_JOB = "frazil_ledger"
# Apart from the full hour, when everything else begins.
DAILY = "23 3 * * *"
HOURLY = "47 * * * *"


# Dagster does not export the type of what `define_asset_job` returns.
def audit_job(tables: Sequence[dg.AssetKey]) -> Any:
    """Job that audits every stream in one run. Each stream is a step of its own, so that a failure hides no other."""
    return dg.define_asset_job(
        AUDIT_JOB,
        selection=dg.AssetSelection.checks(*(dg.AssetCheckKey(key, EXACTLY_ONCE) for key in tables)),
        description="Audit every stream: new records since its last audit are in its tables, exactly once.",
    )


@dg.op(name="fill_ledger")
def fill_ledger_op(context: dg.OpExecutionContext, deployment: DeploymentResource, catalog: CatalogResource) -> None:
    """Note what is new in the stamps of every stream in the ledger."""
    # Imported here: a code location that only loads should not wait for what the catalog needs.
    from jobs.proof.audit.ledger_fill import fill_ledger

    specs, errors = deployment.deployment().streams()
    settings = deployment.settings()
    # A stream whose file broke runs on as it was launched, and stamps; the file's problems stand elsewhere.
    specs = [*specs, *as_launched(specs, errors, settings, deployment.deployment())]
    for error in errors:
        for problem in error.problems:
            context.log.warning(str(problem))
    failed: list[str] = []
    rows = unknown = 0
    try:
        connected = catalog.catalog()
    except FrazilError as problem:
        raise failure(problem) from None
    with connected:
        for spec in specs:
            try:
                filled = fill_ledger(connected, settings, [spec])
            except Exception as problem:
                # What is wrong with one stream keeps no other from being noted.
                failed.append(f"stream {spec.stream}: {type(problem).__name__}: {problem}")
                continue
            rows += filled.rows
            unknown += filled.unknown
            if filled.rows:
                context.log.info(f"stream {spec.stream}: {filled.rows:,} rows")
    metadata = {"ledger_rows": rows, "unknown_rows": unknown, "streams": len(specs)}
    if failed:
        raise dg.Failure("; ".join(failed), metadata=metadata)
    context.add_output_metadata(metadata)


@dg.job(
    name=LEDGER_JOB,
    executor_def=dg.in_process_executor,
    description="Note what is new in the stamps of all streams in the ledger, before their snapshots may expire.",
)
def ledger_job() -> None:
    """Note the stamps of all streams in the ledger."""
    fill_ledger_op()


def audit_schedules(audit: Any | None) -> list[dg.ScheduleDefinition]:
    """The schedules of the audit and of the ledger; they run unless somebody turns them off."""
    schedules = [
        dg.ScheduleDefinition(
            name="frazil_ledger_hourly",
            job=ledger_job,
            description="Copies the new stamps of all streams to the ledger, each hour: stamps expire with their "
            "snapshots, and an audit needs the ranges of all of them. It starts no Spark.",
            cron_schedule=HOURLY,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    ]
    if audit is not None:
        schedules.append(
            dg.ScheduleDefinition(
                name="frazil_audit_daily",
                job=audit,
                description="Audits every stream each night (UTC): new records since its last audit are in its "
                "tables, exactly once. The verdicts are the checks exactly_once on the tables.",
                cron_schedule=DAILY,
                execution_timezone="UTC",
                default_status=dg.DefaultScheduleStatus.RUNNING,
            )
        )
    return schedules
