"""Maintenance jobs and their schedule: all steps each hour (`frazil_maintain`), and each kind of step alone."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Sequence
from typing import Any

import dagster as dg

from jobs.base.errors import FrazilError
from orchestration.jobs.maintain.ops import (
    ACTION,
    COMPACT,
    MaintainConfig,
    TablesConfig,
    compact_op,
    expire_op,
    maintain_tags,
    orphans_op,
    plan_op,
    report_op,
    summary_op,
)
from orchestration.jobs.runs import ACTION_TAG, MAX_RUNTIME_TAG, run_config, runs_under_way
from orchestration.reconcile.stream_files import as_launched
from resources.deployment_resource import DeploymentResource

JOB = "frazil_maintain"
# The configuration of a run is given under `ops.maintain.config`.
KEY = "maintain"
SCHEDULE = "frazil_maintenance_hourly"
# After the ledger has read the stamps (at 47 minutes), and apart from the full hour, when everything begins.
CRON = "57 * * * *"
# After drains (0) and the supervisor's control runs (10).
PRIORITY = "-10"
# A first compaction may take hours. A run whose process is gone does not wait for this: the schedule gives it up.
MAX_RUNTIME_SECONDS = 12 * 60 * 60
_ONLY_TELLS = "With dry_run it only reports what would be done."


def maintain_run_config(config: MaintainConfig) -> dict[str, Any]:
    """The configuration of a run of `frazil_maintain`."""
    return run_config(KEY, config)


def _given_under(key: str, config: type[TablesConfig], actions: Sequence[str] = ()) -> dg.ConfigMapping:
    """A run's configuration, `ops.KEY.config`, as that of the op that plans.

    Args:
        actions: What is asked in any case.
    """

    def planned(given: dict[str, Any]) -> dict[str, Any]:
        asked = {"actions": list(actions), **given["ops"][key]["config"]}
        return {**given, "ops": {"plan": {"config": asked}}}

    # Permissive: loggers and the like are as in any job.
    fields = dg.Permissive({"ops": dg.Field({key: dg.Field({"config": dg.Field(config.to_fields_dict())})})})
    return dg.ConfigMapping(planned, config_schema=fields)


def _job(name: str, stages: Sequence[dg.OpDefinition], config: dg.ConfigMapping, text: str) -> dg.JobDefinition:
    @dg.job(
        name=name,
        config=config,
        # One process, and with it one Spark; what is handed from step to step never leaves it.
        executor_def=dg.in_process_executor,
        tags={
            # The schedule asks again within the hour.
            "dagster/max_retries": "0",
            "dagster/priority": PRIORITY,
            MAX_RUNTIME_TAG: str(MAX_RUNTIME_SECONDS),
            ACTION_TAG: ACTION,
        },
        description=f"{text} {_ONLY_TELLS}",
    )
    def job() -> None:
        planned, due = plan_op()

        def in_turn(table: Any) -> Any:
            for stage in stages:
                table = stage(table)
            return report_op(table)

        summary_op(planned, due.map(in_turn).collect())

    return job


maintain_job = _job(
    JOB,
    (compact_op, expire_op, orphans_op),
    _given_under(KEY, MaintainConfig),
    "Keep tables healthy: compaction, delete files, manifests, snapshots, orphans, metadata.",
)
maintenance_jobs: tuple[dg.JobDefinition, ...] = (
    maintain_job,
    _job(
        "frazil_compaction",
        (compact_op,),
        _given_under("compaction", TablesConfig, COMPACT),
        "Compaction alone: small data files, delete files and manifests, as far as the tables' policies say.",
    ),
    _job(
        "frazil_snapshot_expiry",
        (expire_op,),
        _given_under("snapshot_expiry", TablesConfig, ("expire",)),
        "Snapshot expiry alone, as far as the tables' policies say.",
    ),
    _job(
        "frazil_orphan_removal",
        (orphans_op,),
        _given_under("orphan_removal", TablesConfig, ("orphans",)),
        "Orphan removal alone, as far as the tables' policies say.",
    ),
)


def maintenance_schedule() -> dg.ScheduleDefinition:
    """The schedule; it only reads files, and asks for no run while another one waits or works."""

    @dg.schedule(
        name=SCHEDULE,
        job=maintain_job,
        cron_schedule=CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Compaction, snapshot expiry and orphan removal: looks at every table each hour and does what is "
        "due by its policy: mostly nothing, which starts no Spark. It looks for orphans once "
        "orphans.every has passed.",
    )
    def frazil_maintenance(
        context: dg.ScheduleEvaluationContext, deployment: DeploymentResource
    ) -> dg.RunRequest | dg.SkipReason:
        under_way = runs_under_way(context.instance, tags={ACTION_TAG: ACTION})
        if under_way:
            return dg.SkipReason(f"Run {under_way[0].run_id} maintains tables, or waits to; the next hour asks again.")
        place = deployment.deployment()
        try:
            settings = place.settings()
        except FrazilError as problem:
            return dg.SkipReason(str(problem))
        specs, errors = place.streams()
        if not settings.maintenance.tables and not specs and not as_launched(specs, errors, settings, place):
            return dg.SkipReason("There is no stream, and the settings name no table under maintenance.tables.")
        config = MaintainConfig(dry_run=False, reason="each hour", by="schedule")
        hour = context.scheduled_execution_time.strftime("%Y-%m-%dT%H")
        return dg.RunRequest(
            run_key=f"maintain:{hour}", run_config=maintain_run_config(config), tags=maintain_tags(config)
        )

    return frazil_maintenance
