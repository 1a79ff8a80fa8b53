"""The schedule that asks for maintenance each hour: `frazil_maintenance_hourly`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import dagster as dg

from jobs.errors import FrazilError
from orchestration.jobs.maintain import JOB, MaintainConfig, maintain_job, maintain_run_config, maintain_tags
from orchestration.jobs.runs import runs_under_way
from orchestration.reconcile.shown import as_launched
from resources.deployment_resource import DeploymentResource

SCHEDULE = "frazil_maintenance_hourly"
# After the ledger has taken note of the stamps (at 47 minutes), and apart from the full hour, when everything begins.
CRON = "57 * * * *"


def maintenance_schedule() -> dg.ScheduleDefinition:
    """The schedule; it only reads files, and asks for no run while another one waits or works."""

    @dg.schedule(
        name=SCHEDULE,
        job=maintain_job,
        cron_schedule=CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Looks at every table each hour and does what its policy says is due: mostly nothing, which starts "
        "no Spark. Orphans are looked for where orphans.every has passed.",
    )
    def frazil_maintenance(
        context: dg.ScheduleEvaluationContext, deployment: DeploymentResource
    ) -> dg.RunRequest | dg.SkipReason:
        under_way = runs_under_way(context.instance, job=JOB)
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
