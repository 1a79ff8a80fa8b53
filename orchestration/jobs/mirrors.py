"""Checking mirrors against their changelogs: the job, and its schedule, which looks at a part of the keys each day."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.mirror_check import MIRROR_CONSISTENT, mirror_check_name
from assets.mirrors import mirror_key
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec

JOB = "frazil_mirror_check"
# Behind the audit, apart from the full hour.
DAILY = "53 3 * * *"


# Dagster does not export the type of what `define_asset_job` returns.
def mirror_check_job(specs: Sequence[StreamSpec], settings: Settings) -> Any | None:
    """Job that checks the mirrors of all streams in one run; None without mirrors."""
    keys = [mirror_key(settings, mirror) for spec in specs for _, mirror in spec.mirrored]
    if not keys:
        return None
    return dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.checks(*(dg.AssetCheckKey(key, MIRROR_CONSISTENT) for key in keys)),
        description="Compare all mirrors with the result of the changes in their changelogs.",
    )


def mirror_schedules(job: Any | None, specs: Sequence[StreamSpec]) -> list[dg.ScheduleDefinition]:
    """The schedule of the check; it runs unless somebody turns it off."""
    if job is None:
        return []
    parts = {mirror_check_name(mirror): {"config": {"part": True}} for spec in specs for _, mirror in spec.mirrored}
    return [
        dg.ScheduleDefinition(
            name="frazil_mirror_check_daily",
            job=job,
            run_config={"ops": parts},
            description="Compares an eighth of the keys of every mirror with its changelog each night (UTC), another "
            "one each day. The verdicts are the checks mirror_consistent on the mirrors.",
            cron_schedule=DAILY,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    ]
